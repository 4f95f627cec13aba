"""GAP: aggregation perturbation, at edge level and on records."""

from graphveil.models.gap.estimator import GAP

__all__ = ["GAP"]
