"""One slot toggled, the rest fixed: no attack passes the ceiling, and a mechanism of less noise does."""

import math

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.attacks import (
    SecretEdges,
    largest_advantage,
    pure_advantage,
    pure_auc,
    single_slot,
    toggled,
)
from graphveil.graph.synthetic import synthetic

PAIR = (2, 7)
GRAPH = gv.Graph.from_edges(
    torch.eye(10), [0, 1] * 5, [0, 1, 2, 3, 5], [1, 2, 3, 4, 6], directed=False, num_classes=2
)
REPEATS = 200
CHANCE = 4 * math.sqrt(0.5 / REPEATS)  # four standard errors of the difference of two rates, at most


def bit(epsilon: float) -> "gv.attacks.single_slot.Score":
    """Return the best score against randomised response: whether the pair is joined in what comes out."""

    def score(graph: gv.Graph, number: int) -> float:
        released = gv.perturb.edge_rand(
            graph, epsilon=epsilon, unit="undirected-edge", unsafe_noise_seed=number
        )
        edges = SecretEdges.of(released.graph.adjacency)
        return float(edges.joined(np.array([PAIR[0]]), np.array([PAIR[1]]))[0])

    return score


def test_toggling_twice_changes_nothing() -> None:
    graph = synthetic("tiny")
    there, back = toggled(graph, PAIR), toggled(toggled(graph, PAIR), PAIR)
    assert len(there.adjacency.indices) == len(graph.adjacency.indices) + 2
    assert torch.equal(back.adjacency.indices, graph.adjacency.indices)
    assert there.edge_set is not graph.edge_set


def test_randomised_response_reaches_its_ceiling_and_no_more() -> None:
    found = single_slot(bit(1.0), GRAPH, PAIR, repeats=REPEATS)
    assert abs(largest_advantage(found) - pure_advantage(1.0)) < CHANCE
    assert abs(found.auc - pure_auc(1.0)) < CHANCE


def test_twice_the_epsilon_is_noticed() -> None:
    found = single_slot(bit(2.0), GRAPH, PAIR, repeats=REPEATS)
    assert largest_advantage(found) > pure_advantage(1.0) + CHANCE


@pytest.mark.parametrize("edge", [True, False])
def test_it_is_the_joined_graph_that_counts_as_there(edge: bool) -> None:
    graph = toggled(GRAPH, PAIR) if edge else GRAPH
    exact = single_slot(lambda one, number: float(len(one.adjacency.indices)), graph, PAIR, repeats=3)
    assert exact.auc == 1.0
