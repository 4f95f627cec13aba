"""Votes of similar nodes exclude the own label of a node."""

import torch

from graphveil.data import RECIPES, Graph, synthetic
from graphveil.estimators.features.crossfit import blend_similar_nodes, similar_nodes_posterior
from graphveil.estimators.public_sizes import nodes_of


def twins() -> Graph:
    """Six nodes in three pairs of equal features; (0, 1) and (2, 3) share a label, (4, 5) do not."""
    x = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    graph = Graph.from_edges(x, [0, 0, 1, 1, 0, 1], [0], [1], directed=False)
    everyone = torch.ones(6, dtype=torch.bool)
    return graph.with_split(everyone, ~everyone, ~everyone)


def test_a_node_does_not_vote_on_itself() -> None:
    graph = twins()
    votes = similar_nodes_posterior(graph, nodes_of(graph.labeled_in("train"))).argmax(dim=1)
    assert votes.tolist() == [0, 0, 1, 1, 1, 0]


def test_blending_does_not_increase_the_loss_on_public_labels() -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    flat = torch.zeros(graph.num_nodes, graph.num_classes).log_softmax(dim=1)
    nodes = nodes_of(graph.labeled_in("train", "val"))

    def loss(log: torch.Tensor) -> float:
        return float(torch.nn.functional.nll_loss(log[nodes], graph.y[nodes]))

    assert loss(blend_similar_nodes(flat, graph)) <= loss(flat)


def test_posteriors_of_a_large_graph_are_not_changed() -> None:
    nodes = 8200  # all of them labeled: more than 2^26 pairs
    graph = Graph.from_edges(torch.ones(nodes, 1), [0, 1] * (nodes // 2), [0], [1], directed=False)
    everyone = torch.ones(nodes, dtype=torch.bool)
    log = torch.zeros(nodes, 2)
    assert blend_similar_nodes(log, graph.with_split(everyone, ~everyone, ~everyone)) is log
