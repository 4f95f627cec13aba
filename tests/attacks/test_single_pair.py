"""Attacks on one node pair: none exceeds the bound, and one on too little noise does."""

import math

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.attacks import (
    PairTest,
    SecretEdges,
    largest_advantage,
    pair_scores,
    pure_advantage,
    pure_auc,
    single_pair,
    toggle_edge,
)
from graphveil.attacks.pairs import Score
from graphveil.audit.bounds import clopper_pearson_lower, clopper_pearson_upper
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


def test_toggling_twice_changes_nothing() -> None:
    graph = synthetic("tiny")
    there, back = toggle_edge(graph, PAIR), toggle_edge(toggle_edge(graph, PAIR), PAIR)
    assert len(there.adjacency.indices) == len(graph.adjacency.indices) + 2
    assert torch.equal(back.adjacency.indices, graph.adjacency.indices)
    assert there.edge_set is not graph.edge_set


def test_randomized_response_reaches_its_bound_and_more_at_twice_the_epsilon() -> None:
    found, louder = (single_pair(bit(epsilon), GRAPH, PAIR, repeats=REPEATS) for epsilon in (1.0, 2.0))
    assert abs(largest_advantage(found) - pure_advantage(1.0)) < CHANCE
    assert abs(found.auc - pure_auc(1.0)) < CHANCE
    assert largest_advantage(louder) > pure_advantage(1.0) + CHANCE


def test_counts_at_a_threshold_of_other_releases_refute_too_little_noise() -> None:
    weak, strong = (PairTest.from_scores(*pair_scores(bit(e), GRAPH, PAIR, repeats=400)) for e in (1.0, 3.0))
    least = [
        clopper_pearson_lower(t.tp, 200, 0.005) - clopper_pearson_upper(t.fp, 200, 0.005)
        for t in (weak, strong)
    ]
    assert least[0] < pure_advantage(1.0) < least[1]


def test_largest_advantage_is_biased_and_that_of_other_releases_is_not() -> None:
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((300, 2, 200))
    fresh = [PairTest.from_scores(*draw).advantage for draw in draws]
    largest = [
        largest_advantage(gv.attacks.RocCurve.from_scores(draw.ravel(), np.arange(400) < 200))
        for draw in draws
    ]
    assert abs(np.mean(fresh)) < 4 * np.std(fresh) / math.sqrt(300)
    assert np.mean(largest) > 0.04  # sqrt(pi / 8) sqrt(2 / 200) less steps
    with pytest.raises(gv.errors.ConfigError, match="releases"):  # one is too few to choose and to count
        PairTest.from_scores([1.0], [0.0])


@pytest.mark.parametrize("edge", [True, False])
def test_releases_with_the_edge_are_the_positives(edge: bool) -> None:
    graph = toggle_edge(GRAPH, PAIR) if edge else GRAPH
    exact = single_pair(lambda one, number: float(len(one.adjacency.indices)), graph, PAIR, repeats=3)
    assert exact.auc == 1.0
