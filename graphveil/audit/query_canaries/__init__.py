"""Canaries in single mechanisms: the worst neighbors that a query has, many of them, asked by the real path.

Each canary has rows, slots, cells or coordinates of its own, so one release holds thousands of independent
ones. What they would move without noise is asked by the same path with noise that is zero; the bound is about
the noise. As many releases are made as the claim needs for a bound of some nine tenths of it.
"""

from graphveil.audit.query_canaries import counts, rows, slots, steps
from graphveil.audit.query_canaries.context import (
    WITHOUT_CANARIES,
    CanaryContext,
    CanaryResult,
    insert_canaries,
)

__all__ = [
    "WITHOUT_CANARIES",
    "CanaryContext",
    "CanaryResult",
    "counts",
    "insert_canaries",
    "rows",
    "slots",
    "steps",
]
