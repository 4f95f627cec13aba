"""LPGNN: graph neural networks on records that their own nodes randomized."""

from graphveil.local.lpgnn.estimator import LPGNN

__all__ = ["LPGNN"]
