"""Public linear maps of rows, and row normalization: nothing here reads a protected edge."""

from graphveil.propagation.linear import ComposedPropagation, KProp, Propagation, SparseMap, propagate
from graphveil.propagation.normalize import plain_unit, safe_unit, shrink_unit

__all__ = [
    "ComposedPropagation",
    "KProp",
    "Propagation",
    "SparseMap",
    "plain_unit",
    "propagate",
    "safe_unit",
    "shrink_unit",
]
