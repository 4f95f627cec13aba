"""LPGNN: graph neural networks on records that their own nodes randomized."""

from graphveil.models.lpgnn.estimator import LPGNN

__all__ = ["LPGNN"]
