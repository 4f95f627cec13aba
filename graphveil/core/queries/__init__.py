"""Queries: each has its privacy cost, its exact sum and its noise in one file."""
