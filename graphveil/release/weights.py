"""Weights of edges that users define; the core has the rest."""

from graphveil.core.queries.weights import DotWeight, register_weight

__all__ = ["DotWeight", "register_weight"]
