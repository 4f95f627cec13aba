"""Work on other processes and machines: sealed messages, workers that open them, and who gets which block."""
