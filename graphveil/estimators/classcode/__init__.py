"""ClassCode, the flagship: codes, public posteriors, one steered release, likelihood, head and gate."""

from graphveil.estimators.classcode.estimator import ClassCode

__all__ = ["ClassCode"]
