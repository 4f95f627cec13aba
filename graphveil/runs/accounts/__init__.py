"""What is spent, by whom, and out of which budget."""
