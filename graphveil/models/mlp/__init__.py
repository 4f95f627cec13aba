"""MLP: the baseline that never reads an edge."""

from graphveil.models.mlp.estimator import MLP

__all__ = ["MLP"]
