"""One pair of nodes, joined or not, everything else fixed: what the ceiling of a guarantee is about."""

from collections.abc import Callable

import numpy as np

from graphveil import _check
from graphveil.attacks.ranking import Ranking
from graphveil.attacks.secret_edges import SecretEdges
from graphveil.graph import Adjacency, Graph

Score = Callable[[Graph, int], float]  # a graph and the number of a repeat in, a score of the pair out


def toggled(graph: Graph, pair: tuple[int, int]) -> Graph:
    """Return the undirected graph with the pair joined if it is not, and apart if it is.

    It has an edge set of its own, so what is asked of it is booked there.

    >>> import torch
    >>> apart = Graph.from_edges(torch.eye(3), [0, 1, 1], [0], [1], directed=False)
    >>> SecretEdges.of(toggled(apart, (1, 2)).adjacency).keys
    array([1, 5])
    """
    low, high = sorted(pair)
    keys = np.setxor1d(SecretEdges.of(graph.adjacency).keys, [low * graph.num_nodes + high])
    source, target = np.divmod(keys, graph.num_nodes)
    edges = Adjacency.from_edges(source, target, num_nodes=graph.num_nodes, directed=False)
    return graph.replace(adjacency=edges)


def single_slot(score: Score, graph: Graph, pair: tuple[int, int], *, repeats: int = 2000) -> Ranking:
    """Return how well a score tells whether one pair is joined, over repeated releases of two graphs.

    The two graphs differ in that pair alone, so under pure epsilon no score has an AUC above
    e^eps / (1 + e^eps) or a TPR - FPR above tanh(eps / 2), but for the chance of so many repeats.

    Args:
        score: releases a graph anew, attacks what comes out, and scores the pair.
        graph: the one of the two; the other has the pair toggled.
        pair: two nodes.
        repeats: releases of each of the two.
    """
    _check.integer_at_least(1, repeats=repeats)
    other = toggled(graph, pair)
    joined = bool(SecretEdges.of(graph.adjacency).joined(*np.array(sorted(pair))[:, None])[0])
    scores = [score(one, number) for one in (graph, other) for number in range(repeats)]
    return Ranking.of(scores, [joined] * repeats + [not joined] * repeats)


def largest_advantage(ranking: Ranking) -> float:
    """Return the largest TPR - FPR over thresholds."""
    false, true = ranking.rates
    return float((true - false).max())
