"""Neighbour replay of what a plan asks: every kind of query under every unit, through one harness.

``families`` draws graphs and their neighbours by unit, ``questions`` says what every kind of query is asked
with, ``prices`` what its events charge, and ``plan`` compares.
"""

from graphveil.audit.replayed.plan import replay_mutual_edges, replay_plan, replay_query
from graphveil.audit.replayed.questions import NOT_REPLAYED

__all__ = ["NOT_REPLAYED", "replay_mutual_edges", "replay_plan", "replay_query"]
