"""GAP: aggregation perturbation, at edge level and on records."""

from graphveil.estimators.gap.estimator import GAP

__all__ = ["GAP"]
