"""Clipped gradients of roots over their subgraphs, against autograd one root at a time."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphveil.graph import Adjacency
from graphveil.models.bounded import at_most
from graphveil.models.layers import FeedForward, Hidden
from graphveil.models.sage import SageLayer, SageNetwork
from graphveil.models.subgraphs import SubgraphSum, table_of

NODES, FEATURES, WIDTH, CLASSES, MOST = 30, 7, 4, 3, 3


def network(pre: int, post: int, activation: str) -> SageNetwork:
    generator = torch.Generator().manual_seed(pre + post)
    style: dict[str, Any] = {
        "generator": generator,
        "activation": activation,
        "batch_norm": False,
        "dropout": 0.0,
    }
    before = FeedForward([FEATURES, *[WIDTH] * pre], plain_last=False, **style)
    rounds = [SageLayer(WIDTH, Hidden(WIDTH, **style), generator=generator)]
    after = FeedForward([*[WIDTH] * post, CLASSES], **style)
    return SageNetwork(before, rounds, after, unit=True).double()


def graph(seed: int = 0) -> Adjacency:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(NODES, size=(2, 120))
    edges = Adjacency.from_edges(source, target, num_nodes=NODES, directed=True)
    return at_most(at_most(edges, MOST, rng), MOST, rng, received=True)


def features(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(NODES, FEATURES, generator=generator) * (
        torch.rand(NODES, FEATURES, generator=generator) < 0.5
    )


ROOTS = torch.arange(0, NODES, 2)
LABELS = torch.arange(len(ROOTS)) % CLASSES


def summed(model: SageNetwork, x: Any, edges: Adjacency, labels: Tensor, clip: float) -> Tensor:
    sums = SubgraphSum(model.maps(), "selu", x, table_of(edges, ROOTS, MOST), labels)
    sums.add(torch.arange(len(ROOTS)), clip)
    return sums.sums.clone()


def one_root(model: SageNetwork, x: Tensor, edges: Adjacency, root: int, label: int) -> Tensor:
    """Return the gradient of one root's loss by all weights, in the order of the sums."""
    model.zero_grad()
    rows = model.rows(x.double())
    heard = edges.indices[edges.indptr[root] : edges.indptr[root + 1]].long()
    logits = model.read(rows[root : root + 1], rows[heard].sum(dim=0, keepdim=True))
    cross_entropy(logits, torch.tensor([label])).backward()
    maps = model.maps()
    linears = [*maps.before, maps.own, maps.incoming, *maps.after]
    return torch.cat([part.grad.reshape(-1) for one in linears for part in (one.weight, one.bias)])


def test_a_table_lists_roots_and_who_sends_to_them():
    star = Adjacency.from_edges([1, 2, 3, 0], [0, 0, 0, 2], num_nodes=5, directed=True)
    assert table_of(star, torch.tensor([0, 2, 4]), 3).tolist() == [
        [0, 1, 2, 3],
        [2, 0, -1, -1],
        [4, -1, -1, -1],
    ]
    empty = Adjacency.from_edges([], [], num_nodes=2, directed=True)
    assert table_of(empty, torch.tensor([1]), 2).tolist() == [[1, -1, -1]]


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize(("pre", "post"), [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_sums_are_those_of_autograd(as_sparse, pre, post, clip):
    model, edges, x = network(pre, post, "selu"), graph(), features()
    expected = torch.zeros(1)
    for root, label in zip(ROOTS.tolist(), LABELS.tolist(), strict=True):
        gradient = one_root(model, x, edges, root, label)
        expected = expected + gradient * min(1.0, clip / float(gradient.norm()))
    found = summed(model, sparse.csr_array(x.numpy()) if as_sparse else x, edges, LABELS, clip)
    torch.testing.assert_close(found, expected, rtol=3e-6, atol=1e-6)


def test_a_root_without_a_label_contributes_nothing_and_nobody_an_infinity():
    model, edges, x = network(2, 1, "selu"), graph(), features()
    without = LABELS.clone()
    without[3] = -1
    gradient = one_root(model, x, edges, int(ROOTS[3]), int(LABELS[3]))
    moved = summed(model, x, edges, LABELS, 1e6) - summed(model, x, edges, without, 1e6)
    torch.testing.assert_close(moved, gradient, rtol=1e-5, atol=1e-6)
    x[5] = float("inf")
    assert summed(model, x, edges, LABELS, 1.0).isfinite().all()


def test_a_record_moves_the_sum_by_its_own_gradient_and_by_those_that_read_it():
    """Null every record on fixed samples: at most C for the root, 2 C for each of up to D readers."""
    model, edges, x, clip = network(2, 1, "selu"), graph(), features(), 0.05
    whole, attained = summed(model, x, edges, LABELS, clip), 0.0
    source, target = edges.edge_index()
    for q in range(NODES):
        nulled, labels = x.clone(), LABELS.clone()
        nulled[q] = 0.0
        labels[q == ROOTS] = -1
        kept = source != q
        fewer = Adjacency.from_edges(source[kept], target[kept], num_nodes=NODES, directed=True)
        readers = int(torch.isin(target[~kept], ROOTS).sum())
        moved = float((whole - summed(model, nulled, fewer, labels, clip)).norm())
        bound = clip * (2 * readers + int((q == ROOTS).any()))
        assert moved <= bound * (1 + 1e-5)
        attained = max(attained, moved / clip)
    assert 1 < attained <= 2 * MOST + 1
