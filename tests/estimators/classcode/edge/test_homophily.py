"""Homophily: what released counts say about neighbors, and which method is named where they say little."""

import numpy as np
import pytest
import torch
from command import NODES, Files, Invoke, write

from estimators.spectral.lists import listed
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.classcode.edge_rows import Homophily


def test_the_error_is_that_of_the_noise() -> None:
    exact = torch.tensor([[900.0, 300.0, 100.0], [300.0, 500.0, 200.0], [100.0, 200.0, 700.0]])
    generator, found = torch.Generator().manual_seed(0), []
    for _ in range(400):
        noise = torch.triu(20 * torch.randn(3, 3, generator=generator))
        estimate = Homophily.from_counts(
            exact + noise + noise.T, torch.full((3, 3), 400.0) + torch.eye(3) * 1200
        )
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
def test_what_noise_may_have_made_says_nothing(endpoint_counts: torch.Tensor, variance: float) -> None:
    assert Homophily.from_counts(endpoint_counts, torch.full((2, 2), variance)) is None


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_fit_says_how_alike_neighbors_are_from_what_it_released(noise: str) -> None:
    model = ClassCode(unit="undirected-edge", epsilon=4.0, delta=1e-6, seed=0, noise=noise).fit(listed())
    assert model.homophily_ is not None and model.homophily_.is_weak
    before = ClassCode(unit="undirected-edge", epsilon=4.0)
    assert before.homophily_ is None


@pytest.mark.parametrize(("method", "named"), [("classcode", True), ("gap", False)])
def test_where_counts_say_little_another_method_is_named(
    method: str, named: bool, invoke: Invoke, files: Files
) -> None:
    endpoint_counts = np.random.default_rng(0).integers(NODES, size=(4000, 2))
    write(files.edges, [["a", "b"], *([f"u{a}", f"u{b}"] for a, b in endpoint_counts)])
    edges = ["--unit", "undirected-edge", "--epsilon", "30", "--delta", "1e-6"]
    answer = invoke("train", method, *files.flags, *edges, "--out", "r", "--json")
    assert ("Method spectral reads who is listed with whom" in answer.err) is named
    assert (answer.json["homophily"] is not None) is named
