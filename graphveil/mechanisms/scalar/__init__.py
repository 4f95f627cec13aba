"""Mechanisms for one number in [-1, 1] under local differential privacy, one a file. NumPy only."""
