"""Who schedules the blocks of a release: in this process, or elsewhere. The bytes are the same."""
