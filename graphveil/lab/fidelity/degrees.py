"""How many neighbors nodes have, and whether those with many know each other."""

import numpy as np

from graphveil.lab.fidelity.simple_graph import Integers, SimpleGraph


def average_degree(graph: SimpleGraph) -> float:
    """Return 2 m / N."""
    return 2 * graph.edges / graph.nodes


def degree_variance(graph: SimpleGraph) -> float:
    """Return (1 / N) sum_v (d_v - 2 m / N)^2."""
    return float(graph.degrees.var())


def degree_counts(graph: SimpleGraph) -> Integers:
    """Return how many nodes have 0, 1, 2, ... neighbors."""
    return np.bincount(graph.degrees)


def assortativity(graph: SimpleGraph) -> float | None:
    """Return Pearson's correlation of the degrees at the two ends of an edge, each taken as either end.

    None where it is undefined: there is no edge, or all edges have ends of one degree.
    """
    ends = graph.degrees[graph.rows].astype(np.float64)
    others = graph.degrees[graph.indices].astype(np.float64)
    if not len(ends) or ends.min() == ends.max():
        return None
    centered, other = ends - ends.mean(), others - others.mean()
    return float((centered * other).mean() / (centered**2).mean())
