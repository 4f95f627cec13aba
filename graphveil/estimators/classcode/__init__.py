"""ClassCode: noisy counts of neighbors by class, or sums of their codes, and what they say about labels."""

from graphveil.estimators.classcode.estimator import ClassCode

__all__ = ["ClassCode"]
