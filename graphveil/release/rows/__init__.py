"""Queries whose answer is a noisy row for each node, and how such rows are formed."""
