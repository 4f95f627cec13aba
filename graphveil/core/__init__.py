"""What a printed guarantee rests on: it imports nothing of the package but ``errors`` and ``_util``."""
