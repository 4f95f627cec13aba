"""Grids of experiments: one price, one table, one figure."""
