"""Noisy training steps, and the examples that a record affects."""
