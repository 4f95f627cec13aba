"""ClassCode: node classification from noisy counts of neighbors by class, or noisy sums of class codes."""

from graphveil.estimators.classcode.estimator import ClassCode

__all__ = ["ClassCode"]
