"""Any message-passing module, trained on protected records: each node's own star, with published leaves."""

from graphveil.estimators.gnn.estimator import PrivateGNN

__all__ = ["PrivateGNN"]
