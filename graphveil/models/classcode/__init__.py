"""ClassCode, the flagship: codes, public posteriors, one steered release, likelihood, head and gate."""

from graphveil.models.classcode.estimator import ClassCode

__all__ = ["ClassCode"]
