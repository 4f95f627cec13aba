"""SAGE: message passing with sums, and SAGE-NDP over bounded subgraphs."""

from graphveil.estimators.sage.estimator import SAGE

__all__ = ["SAGE"]
