"""Custom message-passing modules on protected records: 1-hop ego graphs with published leaves."""

from graphveil.estimators.gnn.estimator import PrivateGNN

__all__ = ["PrivateGNN"]
