"""Canaries in single mechanisms: the worst neighbours that a query has, many of them, asked by the real path.

Each canary has rows, slots, cells or coordinates of its own, so one release holds thousands of independent
ones. What they would move without noise is asked by the same path with noise that is zero; the bound is about
the noise. As many releases are made as the claim needs for a bound of some nine tenths of it.
"""

from graphveil.audit.planted import counts, rows, slots, steps
from graphveil.audit.planted.asking import UNPLANTED, Asking, Planted, plant

__all__ = ["UNPLANTED", "Asking", "Planted", "counts", "plant", "rows", "slots", "steps"]
