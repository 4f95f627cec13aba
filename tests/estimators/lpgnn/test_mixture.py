"""Belief propagation against sums over all labelings, and mixture weights by held-out reports."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.local.posterior_mixture import (
    CANDIDATE_POSTERIORS,
    PRIORS,
    DirectedPairs,
    EdgeContext,
    NoisyLabels,
    PosteriorContext,
    PosteriorMixture,
    belief_propagation,
    choose_prediction_rule,
    combine_predictions,
    mixed_posterior,
    mixture_weights,
    without_labels,
)
from graphveil.local.reports import UNKNOWN
from graphveil.mechanisms import LocalHashing, LocalNoise, SubsetSelection
from tests.estimators.conftest import grouped

TREE = Adjacency.from_edges([0, 1, 1, 3], [1, 2, 3, 4], num_nodes=6, directed=False)
HOMOPHILY_LEVELS = 0.7


def pairs(adjacency: Adjacency) -> DirectedPairs:
    return DirectedPairs.from_edges(adjacency)


def test_beliefs_on_a_tree_are_exact_marginals() -> None:
    evidence = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3))).float()
    start = torch.full((6, 3), 1 / 3)
    found = belief_propagation(
        evidence, pairs(TREE), homophily=HOMOPHILY_LEVELS, start=start, rounds=200
    ).exp()
    degrees = np.array([1, 3, 1, 2, 1, 0])
    inside, outside = HOMOPHILY_LEVELS * 3, (1 - HOMOPHILY_LEVELS) * 3 / 2
    crowd = degrees @ found.numpy() / degrees.sum()
    field = -(inside - outside) * degrees[:, None] * crowd
    marginals = np.zeros((6, 3))
    for labels in product(range(3), repeat=6):
        own = sum(float(evidence[v, c]) + field[v, c] for v, c in enumerate(labels))
        edges = [(0, 1), (1, 2), (1, 3), (3, 4)]
        homophily = sum(labels[u] == labels[v] for u, v in edges)
        weight = np.exp(own) * inside**homophily * outside ** (len(edges) - homophily)
        for v, c in enumerate(labels):
            marginals[v, c] += weight
    assert found.numpy() == pytest.approx(marginals / marginals.sum(axis=1, keepdims=True), abs=1e-4)


def test_beliefs_without_edges_are_the_evidence() -> None:
    evidence = torch.randn(4, 3)
    nobody = Adjacency.from_edges([], [], num_nodes=4, directed=False)
    found = belief_propagation(
        evidence, pairs(nobody), homophily=HOMOPHILY_LEVELS, start=torch.full((4, 3), 1 / 3)
    )
    assert torch.allclose(found, evidence.log_softmax(dim=1), atol=1e-6)


def test_directions_of_edges_are_ignored() -> None:
    one_way = Adjacency.from_edges([0, 1, 3], [1, 2, 1], num_nodes=4, directed=True)
    both = Adjacency.from_edges([0, 1, 3], [1, 2, 1], num_nodes=4, directed=False)
    assert torch.equal(pairs(one_way).source, pairs(both).source)
    assert torch.equal(pairs(one_way).target[pairs(one_way).reverse], pairs(one_way).source)


# -- evidence ----------------------------------------------------------------------------------------------


def reported(seed: int = 0, nodes: int = 600) -> tuple[NoisyLabels, EdgeContext, torch.Tensor]:
    """Sets of classes that a group's nodes said, but for every fourth node."""
    graph, law = grouped(nodes=nodes), SubsetSelection(epsilon=1.0, classes=7)
    stream = LocalNoise(unsafe_noise_seed=seed).stream("labels")
    labels = torch.from_numpy(law.perturb(graph.y.numpy(), stream=stream))
    labels[::4] = UNKNOWN
    known = (labels[:, 0] >= 0).nonzero()[:, 0]
    noisy = NoisyLabels(labels=labels, law=law, train=known[::2], val=known[1::2])
    return noisy, EdgeContext(graph.adjacency, 4), graph.y


@pytest.mark.parametrize("name", CANDIDATE_POSTERIORS)
def test_every_candidate_is_normalized_and_better_than_chance(name: str) -> None:
    noisy, edge_context, truth = reported()
    (found,) = PosteriorContext(noisy, edge_context).candidates([name])
    assert torch.allclose(found.exp().sum(dim=1), torch.ones(600), atol=1e-4)
    silent = found[::4].argmax(dim=1)
    accuracy = float((silent == truth[::4]).float().mean())
    assert accuracy < 0.5 if name == "nothing" else accuracy > 0.75


def test_held_out_predictions_do_not_read_the_reports_of_their_fold() -> None:
    noisy, edge_context, _ = reported()
    deal = torch.Generator().manual_seed(0)
    found = mixed_posterior(noisy, edge_context, deal, PRIORS["nothing"]).held_out
    heard = (noisy.labels[:, 0] != UNKNOWN).nonzero()[:, 0]
    assert len(torch.unique(found[heard], dim=0)) == 3  # the shares of classes, a third of the nodes left out
    labels = noisy.labels.clone()
    labels[1] = torch.tensor([3, 5])
    changed = replace(noisy, labels=labels)
    deal = torch.Generator().manual_seed(0)
    again = mixed_posterior(changed, edge_context, deal, PRIORS["diffusion"])
    before = mixed_posterior(noisy, edge_context, torch.Generator().manual_seed(0), PRIORS["diffusion"])
    assert torch.equal(again.held_out[1], before.held_out[1])
    assert not torch.equal(again.log_proba[1], before.log_proba[1])


def test_a_robust_mixture_differs_only_if_a_class_is_claimed() -> None:
    noisy, edge_context, truth = reported(seed=4, nodes=2000)  # no class has a significant excess

    def found(labels: torch.Tensor, robust: bool) -> PosteriorMixture:
        given = replace(noisy, labels=labels)
        deal = torch.Generator().manual_seed(0)
        return mixed_posterior(given, edge_context, deal, ("diffusion",), robust=robust)

    lying = noisy.labels.clone()
    liars = (lying[:, 0] != UNKNOWN).nonzero()[::5, 0]  # a fifth says one class and another one
    lying[liars] = torch.stack([torch.full((len(liars),), 4), torch.arange(len(liars)) % 4], dim=1)
    taken, heeded = (found(lying, robust).log_proba.argmax(dim=1) for robust in (False, True))
    assert float((heeded == truth).float().mean()) > float((taken == truth).float().mean()) + 0.01
    assert int((heeded == 4).sum()) < int((taken == 4).sum())
    assert torch.equal(found(noisy.labels, True).log_proba, found(noisy.labels, False).log_proba)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_likelihood_includes_missing_labels(missing: float) -> None:
    law = SubsetSelection(epsilon=1.0, classes=7)
    labels, nobody = torch.tensor([[0, 3]]), torch.empty(0, dtype=torch.int64)
    noisy = NoisyLabels(labels=labels, law=law, train=nobody, val=nobody, missing=missing)
    inside, outside = law.ratios(missing)
    expected = torch.full((7,), outside).index_fill(0, labels[0], inside)
    assert torch.allclose(noisy.likelihood[0], expected)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_likelihood_of_a_group_is_that_of_its_hash(missing: float) -> None:
    law = LocalHashing(epsilon=1.0, classes=7)
    labels, nobody = torch.tensor([[0, 3, -1], [1, 4, 6], [-1, -1, -1]]), torch.empty(0, dtype=torch.int64)
    noisy = NoisyLabels(labels=labels, law=law, train=nobody, val=nobody, missing=missing)
    assert noisy.reported.tolist() == law.members(labels.numpy()).astype(float).tolist()
    inside, outside = law.ratios(missing)
    for row, classes in enumerate(([0, 3], [1, 4, 6])):
        expected = torch.full((7,), outside).index_fill(0, torch.tensor(classes), inside)
        assert torch.allclose(noisy.likelihood[row], expected)
    assert (noisy.likelihood[2] == 1).all()


def test_weights_follow_the_likelihood_and_sum_to_one() -> None:
    likely = torch.tensor([[0.9, 0.2, 0.1]] * 300 + [[0.1, 0.8, 0.1]] * 100)
    weights = mixture_weights(likely)
    assert float(weights.sum()) == pytest.approx(1)
    assert weights.argsort(descending=True).tolist() == [0, 1, 2]
    assert weights[2] < 0.01


def test_the_prediction_rule_has_the_best_held_out_likelihood() -> None:
    noisy, _, truth = reported(nodes=3000)
    right = torch.nn.functional.one_hot(truth, 7) * 0.9 + 0.1 / 7
    wrong = torch.roll(right, 3, dims=1)
    weak = right * 0.3 + 0.7 / 7

    def chosen(network: torch.Tensor, posterior: torch.Tensor) -> str:
        return choose_prediction_rule(network, PosteriorMixture(posterior.log(), posterior.log(), {}), noisy)

    assert chosen(right, wrong) == "network"
    assert chosen(wrong, right) == "posterior"
    assert chosen(weak, weak) == "product"
    sure = torch.nn.functional.one_hot(truth, 7) * (1 - 1e-6) + 1e-6 / 7
    assert chosen(sure, sure) == "posterior"  # nothing is better
    both = combine_predictions("product", weak, weak.log())
    assert torch.allclose(both, (weak**2) / (weak**2).sum(dim=1, keepdim=True), atol=1e-6)


def test_held_out_nodes_are_in_no_part_of_the_split() -> None:
    noisy, *_ = reported()
    away = torch.tensor([1, 2, 3, 5])
    left = without_labels(noisy, away)
    assert (left.labels[away] == UNKNOWN).all()
    for before, after in ((noisy.train, left.train), (noisy.val, left.val)):
        assert set(after.tolist()) == set(before.tolist()) - set(away.tolist())
