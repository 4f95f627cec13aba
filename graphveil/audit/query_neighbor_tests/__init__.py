"""Neighbor replay of what a plan asks: every kind of query under every unit, through one harness.

``families`` draws graphs and their neighbors by unit, ``questions`` says what every kind of query is asked
with, ``prices`` what its events charge, and ``plan`` compares.
"""

from graphveil.audit.query_neighbor_tests.plan import (
    neighbor_test_mutual_edges,
    neighbor_test_plan,
    neighbor_test_query,
)
from graphveil.audit.query_neighbor_tests.query_inputs import NOT_NEIGHBOR_TESTED

__all__ = ["NOT_NEIGHBOR_TESTED", "neighbor_test_mutual_edges", "neighbor_test_plan", "neighbor_test_query"]
