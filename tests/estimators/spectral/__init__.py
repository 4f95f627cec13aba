"""Spectral: rows from released lists, votes, and the method."""
