"""Estimates from aggregates: affinities, homophily, likelihoods, lengths, heads and the gate."""

import numpy as np
import pytest
import torch
from command import NODES, Files, Invoke, write
from torch import Tensor

from estimators.spectral.test_spectral import listed
from graphveil.core.queries.out_edge_sums import simplex_codes
from graphveil.estimators.classcode import ClassCode, likelihoods
from graphveil.estimators.classcode.edge import BatchedHeads, fit_gate
from graphveil.estimators.classcode.likelihoods import (
    Homophily,
    LikelihoodShape,
    Signal,
    affinity_from_counts,
    fit_length,
    fit_shape,
    row_log_likelihood,
)
from graphveil.publish.results import weak_homophily

ONE = torch.ones((), dtype=torch.float64)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# -- affinities and homophily ------------------------------------------------------------------------------


def test_counts_without_noise_give_the_exact_affinities() -> None:
    cells = torch.tensor([[1000.0, 200.0], [0.0, 3000.0]])  # edges within class 0, across, within class 1
    labels = torch.tensor([0] * 100 + [1] * 100)
    affinity = affinity_from_counts(cells, 1e-6, labels, num_nodes=200)
    expected = torch.tensor([[2000 / 2200, 200 / 2200], [200 / 6200, 6000 / 6200]], dtype=torch.float64)
    torch.testing.assert_close(affinity.neighbors, expected, rtol=1e-6, atol=1e-6)
    assert abs(affinity.mean_degree - 8400 / 200) < 1e-6


def test_directed_counts_are_read_from_the_receiving_side() -> None:
    cells = torch.tensor([[10.0, 90.0], [0.0, 100.0]]) * 100  # rows: source class; columns: target class
    affinity = affinity_from_counts(cells, 1e-6, torch.tensor([0, 1] * 50), num_nodes=100, directed=True)
    assert float(affinity.neighbors[0, 0]) > 0.99
    assert abs(float(affinity.neighbors[1, 0]) - 90 / 190) < 0.01


def test_counts_below_the_noise_are_replaced_by_class_shares() -> None:
    cells = torch.tensor([[100.0, -300.0, 80.0], [0.0, 40.0, 120.0], [0.0, 0.0, 500.0]])
    affinity = affinity_from_counts(cells, 1e6, torch.tensor([0, 1, 2] * 30), num_nodes=90)
    assert bool((affinity.neighbors > 0).all())
    torch.testing.assert_close(affinity.neighbors.sum(dim=1), torch.ones(3, dtype=torch.float64))
    across = affinity.neighbors[~torch.eye(3, dtype=torch.bool)]
    assert float(across.max() - across.min()) < 1e-3


def test_the_error_of_the_homophily_is_that_of_the_noise() -> None:
    exact = torch.tensor([[900.0, 300.0, 100.0], [300.0, 500.0, 200.0], [100.0, 200.0, 700.0]])
    generator, found = stream(), []
    variance = torch.full((3, 3), 400.0) + torch.eye(3) * 1200
    for _ in range(400):
        noise = torch.triu(20 * torch.randn(3, 3, generator=generator))
        estimate = Homophily.from_counts(exact + noise + noise.T, variance)
        assert estimate is not None
        found.append((estimate.adjusted, estimate.error))
    adjusted, errors = torch.tensor(found).T
    shares = exact.sum(dim=0) / exact.sum()
    same, chance = float(exact.trace() / exact.sum()), float(shares.square().sum())
    assert float(adjusted.mean()) == pytest.approx((same - chance) / (1 - chance), abs=0.003)
    assert 1.0 <= float(errors.mean() / adjusted.std()) < 1.5


@pytest.mark.parametrize(
    ("endpoint_counts", "variance"),
    [
        (torch.full((2, 2), 5.0), 100.0),
        (torch.full((2, 2), -5.0), 1.0),
        (torch.diag(torch.tensor([9.0, 0.0])), 0.1),
    ],
    ids=["noise", "negative", "one class"],
)
def test_counts_that_may_be_noise_give_no_homophily(endpoint_counts: Tensor, variance: float) -> None:
    assert Homophily.from_counts(endpoint_counts, torch.full((2, 2), variance)) is None


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_fit_estimates_the_homophily_from_released_counts(noise: str) -> None:
    model = ClassCode(unit="undirected-edge", epsilon=4.0, delta=1e-6, seed=0, noise=noise)
    assert model.homophily_ is None
    model.fit(listed())
    assert model.homophily_ is not None and weak_homophily(**vars(model.homophily_))


@pytest.mark.parametrize(("method", "reported"), [("classcode", True), ("gap", False)])
def test_low_homophily_is_reported(method: str, reported: bool, invoke: Invoke, files: Files) -> None:
    ends = np.random.default_rng(0).integers(NODES, size=(4000, 2))
    write(files.edges, [["a", "b"], *([f"u{a}", f"u{b}"] for a, b in ends)])
    edges = ["--unit", "undirected-edge", "--epsilon", "30", "--delta", "1e-6"]
    answer = invoke("train", method, *files.flags, *edges, "--out", "r", "--json")
    assert ("Low homophily" in " ".join(answer.err.split())) is reported
    assert (answer.json["homophily"] is not None) is reported


# -- likelihoods -------------------------------------------------------------------------------------------


def test_the_likelihood_recovers_the_class_of_the_neighbors() -> None:
    generator, means = stream(), 0.7 * simplex_codes(3)
    labels = torch.randint(3, (600,), generator=generator)
    rows = 5 * means[labels] + torch.randn(600, 2, generator=generator, dtype=torch.float64)
    signal = Signal(torch.full((600,), 5.0, dtype=torch.float64), means, ONE)
    likelihood = row_log_likelihood(rows, signal, 0.6, 0.0)
    assert float((likelihood.argmax(dim=1) == labels).float().mean()) > 0.95


def test_aggregates_without_signal_hardly_change_the_prior() -> None:
    generator = stream(1)
    labels = torch.randint(3, (900,), generator=generator)
    prior = torch.nn.functional.one_hot(labels, 3).double().mul(2).log_softmax(dim=1)
    rows = torch.randn(900, 2, generator=generator, dtype=torch.float64)
    signal = Signal(torch.full((900,), 1e-3, dtype=torch.float64), 0.5 * simplex_codes(3), ONE)
    _, updated = fit_shape(rows, signal, prior, labels, torch.arange(900))
    torch.testing.assert_close(updated.exp(), prior.exp(), atol=0.01, rtol=0)


def test_very_many_nodes_are_computed_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = stream()
    rows = torch.randn(50, 3, generator=generator)
    signal = Signal(torch.rand(50, generator=generator) + 1, torch.eye(4, 3).double(), ONE)
    prior = torch.randn(50, 4, generator=generator).double().log_softmax(dim=1)
    labels, nodes = torch.arange(50) % 4, torch.arange(0, 50, 2)
    whole = fit_shape(rows, signal, prior, labels, nodes)
    monkeypatch.setattr(likelihoods, "_MAX_CELLS", 12)
    monkeypatch.setattr(likelihoods, "_MAX_NODES", 10)
    parts = fit_shape(rows, signal, prior, labels, nodes)
    assert parts[0] == whole[0]
    torch.testing.assert_close(parts[1], whole[1], rtol=1e-12, atol=1e-12)


def test_the_length_of_aggregates_is_fitted_to_them() -> None:
    generator = stream()
    y = torch.randint(3, (800,), generator=generator)
    means = (0.8 * simplex_codes(3)).repeat(800, 1, 1)
    rows = 12 * means[0][y] + torch.randn(800, 2, generator=generator, dtype=torch.float64)
    flat = torch.full((800, 3), 1 / 3, dtype=torch.float64).log()
    shape = LikelihoodShape(0.6, 0.0, 1.0)
    for start in (2.0, 12.0, 50.0):
        signal = Signal(torch.full((800,), start, dtype=torch.float64), means, ONE)
        assert 10 < float(fit_length(rows, signal, shape, flat).length[0]) < 16
    none = fit_length(rows[:0], Signal(torch.ones(0), means[:0], ONE), shape, flat[:0])
    assert len(none.length) == 0


# -- heads and the gate ------------------------------------------------------------------------------------


def test_the_gate_selects_the_better_expert() -> None:
    labels = torch.tensor([0, 1] * 50)
    right = torch.nn.functional.one_hot(labels, 2).double().mul(6).log_softmax(dim=1)
    weights, log = fit_gate((right.flip(1), right), labels, torch.arange(100))
    assert weights == (0.0, 1.0)
    torch.testing.assert_close(log, right)


def test_the_gate_blends_experts_that_err_differently_into_a_log_posterior() -> None:
    labels = torch.tensor([0, 1] * 50)
    right = torch.nn.functional.one_hot(labels, 2).double().mul(6)
    half = torch.arange(100)[:, None] < 50
    experts = [torch.where(part, right, 0.4 * right.flip(1)).log_softmax(dim=1) for part in (half, ~half)]
    weights, log = fit_gate(experts, labels, torch.arange(100))
    assert weights == (0.5, 0.5)
    torch.testing.assert_close(log.exp().sum(dim=1), torch.ones(100, dtype=torch.float64))
    assert bool((log.argmax(dim=1) == labels).all())


def test_heads_that_are_trained_together_are_the_same_alone() -> None:
    heads = BatchedHeads(9, 3, small=True, generator=stream()).eval()
    with torch.no_grad():
        heads.alpha.copy_(torch.tensor([0.5, 1.0, 2.0])[:, None, None])
    start, inputs = torch.randn(5, 3), torch.randn(5, 9)
    single = heads.heads()
    alone = torch.stack([head(start, inputs) for head in single])
    torch.testing.assert_close(alone, heads(start, inputs))
