"""Public linear maps of rows: nothing here reads a protected edge."""

from graphveil.propagation.linear import ComposedPropagation, KProp, Propagation, SparseMap, propagate

__all__ = ["ComposedPropagation", "KProp", "Propagation", "SparseMap", "propagate"]
