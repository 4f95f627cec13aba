"""Rows that nodes with alike lists of neighbors share, from edges of which some are there by chance.

If every pair of nodes tells whether it is an edge, and lies with probability q, then

    M = (A' - q (J - I)) / (1 - 2 q),   E[M] = A,   s = sqrt(q (1 - q)) / (1 - 2 q),

s being the deviation of each entry. Such noise alone has eigenvalues up to 2 s sqrt(N). What A itself adds
stands out of them: an eigenvalue t of A above s sqrt(N) is seen at t + N s^2 / t, and its vector with a
squared cosine of 1 - N s^2 / t^2 to the true one (Benaych-Georges, Nadakuditi: The eigenvalues and
eigenvectors of finite, low rank perturbations of large random matrices, 2011). So vectors beyond the edge are
kept, each as long as that cosine and no longer: eigenvalues as weights would let the few directions of hubs
drown the many that tell lists apart. Everything here follows from what was released.
"""

import math

import torch
from scipy import sparse
from torch import Tensor

from graphveil.data import Adjacency
from graphveil.propagation.linear import SparseMap

_ROUNDS = 8  # of orthogonal iteration: enough for what stands out; the rest is noise
_MIN_VALUE = 1e-3  # of the largest eigenvalue: smaller ones are rounding where nobody lies


def spectral_rows(adjacency: Adjacency, flip: float, rank: int, generator: torch.Generator) -> Tensor:
    """Return one row a node, the leading direction first, float32, shape (N, r) with r at most ``rank``.

    Nodes with the same list have the same row, up to noise, and others have rows that are nearly orthogonal.

    Args:
        adjacency: undirected edges, each pair's answer.
        flip: q, the probability that a pair says the opposite; 0 for exact edges.
        rank: the most vectors that are kept.
        generator: draws where the iteration begins.

    >>> star = Adjacency.from_edges([0, 0, 0], [1, 2, 3], num_nodes=4, directed=False)
    >>> rows = spectral_rows(star, 0.0, 4, torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(rows[1:], rows[1].expand(3, -1), atol=1e-5))
    True
    """
    nodes = adjacency.num_nodes
    values, vectors = _leading(adjacency, flip, min(rank, nodes), generator)
    variance = nodes * flip * (1 - flip) / (1 - 2 * flip) ** 2  # N s^2
    largest = float(values.abs().max())
    kept = values.abs() > max(2 * math.sqrt(variance), _MIN_VALUE * largest, 1e-30)
    seen = values[kept].abs().to(torch.float64)
    true = (seen + (seen.square() - 4 * variance).clamp_min(0).sqrt()) / 2
    cosine = (1 - variance / true.square()).clamp_min(0).sqrt()
    return vectors[:, kept] * cosine.to(torch.float32)


def _leading(
    adjacency: Adjacency, flip: float, rank: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of M that are largest by size, (rank), and their vectors, (N, rank)."""
    indptr, sources = (part.numpy() for part in adjacency.arrays[:2])
    ones = torch.ones(len(sources)).numpy()
    size = (adjacency.num_nodes, adjacency.num_nodes)
    edges = SparseMap.from_scipy(sparse.csr_array((ones, sources, indptr), shape=size))

    def product(rows: Tensor) -> Tensor:
        expected = flip * (rows.sum(dim=0, keepdim=True) - rows)
        return (edges.apply(rows) - expected) / (1 - 2 * flip)

    basis = torch.randn(adjacency.num_nodes, rank, generator=generator)
    for _ in range(_ROUNDS):
        basis = product(torch.linalg.qr(basis).Q)
    basis = torch.linalg.qr(basis).Q
    small = basis.T @ product(basis)
    values, turned = torch.linalg.eigh((small + small.T) / 2)
    order = values.abs().argsort(descending=True)
    return values[order], basis @ turned[:, order]
