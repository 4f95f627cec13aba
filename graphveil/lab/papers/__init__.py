"""Tables and figures of papers, measured again: ours beside theirs, each by one command."""
