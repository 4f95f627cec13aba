"""Attacks on one node pair: none exceeds the bound, and one on too little noise does."""

import math

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.attacks import RocCurve, SecretEdges, pair_scores, pure_advantage, pure_auc, toggle_edge
from graphveil.attacks.pairs import Score
from graphveil.data import synthetic

PAIR = (2, 7)
GRAPH = gv.Graph.from_edges(
    torch.eye(10), [0, 1] * 5, [0, 1, 2, 3, 5], [1, 2, 3, 4, 6], directed=False, num_classes=2
)
REPEATS = 200
CHANCE = 4 * math.sqrt(0.5 / REPEATS)  # four standard errors of the difference of two rates, at most


def bit(epsilon: float) -> Score:
    """Return the best score against randomized response: whether the pair is joined in the released graph."""

    def score(graph: gv.Graph, number: int) -> float:
        released = gv.perturb.edge_rand(
            graph, epsilon=epsilon, unit="undirected-edge", unsafe_noise_seed=number
        )
        edges = SecretEdges.from_adjacency(released.graph.adjacency)
        return float(edges.joined(np.array([PAIR[0]]), np.array([PAIR[1]]))[0])

    return score


def curve(score: Score, graph: gv.Graph, repeats: int) -> RocCurve:
    joined, apart = pair_scores(score, graph, PAIR, repeats=repeats)
    return RocCurve.from_scores(np.append(joined, apart), [True] * repeats + [False] * repeats)


def test_toggling_twice_changes_nothing() -> None:
    graph = synthetic("tiny")
    there, back = toggle_edge(graph, PAIR), toggle_edge(toggle_edge(graph, PAIR), PAIR)
    assert len(there.adjacency.indices) == len(graph.adjacency.indices) + 2
    assert torch.equal(back.adjacency.indices, graph.adjacency.indices)
    assert there.edge_set is not graph.edge_set


def test_randomized_response_reaches_its_bound_and_more_at_twice_the_epsilon() -> None:
    found, louder = (curve(bit(epsilon), GRAPH, REPEATS) for epsilon in (1.0, 2.0))
    least, most = (float((true - false).max()) for false, true in (found.rates, louder.rates))
    assert abs(least - pure_advantage(1.0)) < CHANCE
    assert abs(found.auc - pure_auc(1.0)) < CHANCE
    assert most > pure_advantage(1.0) + CHANCE


@pytest.mark.parametrize("edge", [True, False])
def test_releases_with_the_edge_are_the_positives(edge: bool) -> None:
    graph = toggle_edge(GRAPH, PAIR) if edge else GRAPH
    exact = curve(lambda one, number: float(len(one.adjacency.indices)), graph, 3)
    assert exact.auc == 1.0
