"""Clipped gradient sums, and gradient descent on their noisy means."""
