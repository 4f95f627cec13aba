"""What an experiment is given: tables, flags, a user's own code."""
