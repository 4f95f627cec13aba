"""MLP: the baseline that never reads an edge."""

from graphveil.estimators.mlp.estimator import MLP

__all__ = ["MLP"]
