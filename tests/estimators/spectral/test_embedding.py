"""Rows of nodes: the eigenvectors that a plain solver finds, twins alike, and nothing of noise alone."""

import numpy as np
import pytest
import torch

from estimators.spectral.lists import NODES, alike, listed
from graphveil.data import Adjacency
from graphveil.estimators.spectral_embedding import _leading, spectral_rows


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def answered(edges: Adjacency, flip: float, seed: int = 0) -> Adjacency:
    """Return what pairs say that lie with this probability."""
    nodes, rng = edges.num_nodes, np.random.default_rng(seed)
    dense = np.zeros((nodes, nodes), dtype=bool)
    dense[tuple(edges.edge_index().numpy())] = True
    tail, head = np.triu_indices(nodes, 1)
    said = dense[tail, head] != (rng.random(len(tail)) < flip)
    return Adjacency.from_edges(tail[said], head[said], num_nodes=nodes, directed=False)


@pytest.mark.parametrize("flip", [0.0, 0.02])
def test_the_vectors_are_those_of_a_plain_solver(flip: float) -> None:
    edges = answered(listed().adjacency, flip)
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    dense[tuple(edges.edge_index())] = 1.0
    dense = (dense - flip * (1 - torch.eye(NODES, dtype=torch.float64))) / (1 - 2 * flip)
    exact, directions = torch.linalg.eigh(dense)
    found, vectors = _leading(edges, flip, 40, seeded())
    top = exact.abs().argsort(descending=True)[:6]
    for place in top.tolist():
        nearest = int((found - exact[place]).abs().argmin())
        assert float(found[nearest]) == pytest.approx(float(exact[place]), rel=1e-4)
    inside = vectors.to(torch.float64).T @ directions[:, top]
    assert torch.allclose(inside.norm(dim=0), torch.ones(6, dtype=torch.float64), atol=1e-4)


def test_nodes_of_one_list_have_one_row_and_nobody_else_has_it() -> None:
    rows = spectral_rows(listed(certain=True).adjacency, 0.0, NODES, seeded())
    same, other = alike(rows)
    assert same == pytest.approx(1.0, abs=1e-3) and other < 0.5


@pytest.mark.parametrize(("epsilon", "least"), [(6.0, 0.3), (4.0, 0.15)])
def test_like_lists_have_like_rows_through_the_noise(epsilon: float, least: float) -> None:
    flip = 1 / (1 + np.exp(epsilon))
    same, other = alike(spectral_rows(answered(listed().adjacency, flip), flip, 64, seeded()))
    assert same > other + least and abs(other) < 0.1


def test_noise_alone_has_no_directions() -> None:
    nobody = Adjacency.from_edges([], [], num_nodes=NODES, directed=False)
    rows = spectral_rows(answered(nobody, 0.12), 0.12, 64, seeded())
    assert rows.shape[1] <= 2
    assert spectral_rows(nobody, 0.0, 64, seeded()).shape == (NODES, 0)


def test_rows_have_at_most_the_rank_and_the_leading_direction_first() -> None:
    edges = listed().adjacency
    few, more = (spectral_rows(edges, 0.0, rank, seeded()) for rank in (5, 40))
    assert few.shape == (NODES, 5)
    assert torch.allclose(few[:, 0].abs(), more[:, 0].abs(), atol=1e-3)
