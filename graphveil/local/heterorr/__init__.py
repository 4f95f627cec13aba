"""HeteroRR: features and private edges randomized, each at a budget of its own, and a network on both."""

from graphveil.local.heterorr.estimator import HeteroRR

__all__ = ["HeteroRR"]
