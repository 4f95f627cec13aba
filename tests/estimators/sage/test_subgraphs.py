"""Clipped sums over subgraphs, compared with autograd."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, selu

from graphveil.core.edges.adjacency import Adjacency
from graphveil.nn.message_passing import SageNetwork
from graphveil.papers.as_published.edge_samples import sample_total_degree
from graphveil.papers.as_published.subgraph_sums import (
    AffineMaps,
    ClipPer,
    SubgraphClippedSum,
    neighbor_table,
)

NODES, FEATURES, WIDTH, CLASSES, MOST = 30, 7, 4, 3, 4


def network(pre: int, post: int, activation: str) -> SageNetwork:
    generator = torch.Generator().manual_seed(pre + post)
    style: dict[str, Any] = {
        "activation": activation,
        "batch_norm": False,
        "dropout": 0.0,
    }
    return SageNetwork(
        FEATURES,
        CLASSES,
        hidden=WIDTH,
        depth=1,
        style=style,
        pre_layers=pre,
        post_layers=post,
        unit=True,
        generator=generator,
    ).double()


def graph(seed: int = 0) -> Adjacency:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(NODES, size=(2, 120))
    edges = Adjacency.from_edges(source, target, num_nodes=NODES, directed=True)
    return sample_total_degree(edges, MOST, rng)


def features(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(NODES, FEATURES, generator=generator) * (
        torch.rand(NODES, FEATURES, generator=generator) < 0.5
    )


ROOTS = torch.arange(0, NODES, 2)
LABELS = torch.arange(len(ROOTS)) % CLASSES


def summed(
    model: SageNetwork,
    x: Any,
    edges: Adjacency,
    labels: Tensor,
    clip: float,
    clip_per: ClipPer = "root",
) -> Tensor:
    sums = SubgraphClippedSum(
        AffineMaps.from_network(model), "selu", x, neighbor_table(edges, ROOTS, MOST), labels, clip_per
    )
    sums.add(torch.arange(len(ROOTS)), clip)
    return sums.sums.clone()


def one_root(model: SageNetwork, x: Tensor, edges: Adjacency, root: int, label: int) -> Tensor:
    """Return the gradient of one root's loss by all weights, in the order of the sums."""
    model.zero_grad()
    rows = model.rows(x.double())
    senders = edges.indices[edges.indptr[root] : edges.indptr[root + 1]].long()
    logits = model.read(rows[root : root + 1], rows[senders].sum(dim=0, keepdim=True))
    cross_entropy(logits, torch.tensor([label])).backward()
    maps = AffineMaps.from_network(model)
    linears = [*maps.before, maps.own, maps.incoming, *maps.after]
    return torch.cat([part.grad.reshape(-1) for one in linears for part in (one.weight, one.bias)])


def test_the_table_lists_roots_and_in_neighbors():
    star = Adjacency.from_edges([1, 2, 3, 0], [0, 0, 0, 2], num_nodes=5, directed=True)
    assert neighbor_table(star, torch.tensor([0, 2, 4]), 3).tolist() == [
        [0, 1, 2, 3],
        [2, 0, -1, -1],
        [4, -1, -1, -1],
    ]
    empty = Adjacency.from_edges([], [], num_nodes=2, directed=True)
    assert neighbor_table(empty, torch.tensor([1]), 2).tolist() == [[1, -1, -1]]


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize(("pre", "post"), [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_sums_per_root_equal_autograd(as_sparse, pre, post, clip):
    model, edges, x = network(pre, post, "selu"), graph(), features()
    expected = torch.zeros(1)
    for root, label in zip(ROOTS.tolist(), LABELS.tolist(), strict=True):
        gradient = one_root(model, x, edges, root, label)
        expected = expected + gradient * min(1.0, clip / float(gradient.norm()))
    found = summed(model, sparse.csr_array(x.numpy()) if as_sparse else x, edges, LABELS, clip)
    torch.testing.assert_close(found, expected, rtol=3e-6, atol=1e-6)


def parts_of_rows(model: SageNetwork, x: Tensor, edges: Adjacency, labels: Tensor) -> Tensor:
    """Return what each row adds to the gradient of the batch, (N, p): each has a copy of the weights."""
    maps = AffineMaps.from_network(model)
    linears = [*maps.before, maps.own, maps.incoming, *maps.after]
    copies = [
        part.detach().expand(NODES, *part.shape).clone().requires_grad_()
        for one in linears
        for part in (one.weight, one.bias)
    ]
    passed = iter(zip(copies[::2], copies[1::2], strict=True))

    def affine(h: Tensor) -> Tensor:
        weight, bias = next(passed)
        return torch.einsum("ni,nio->no", h, weight) + bias

    h = x.double()
    for _ in maps.before:
        h = selu(affine(h))
    h = normalize(h)
    source, target = edges.edge_index()
    sums = torch.zeros_like(h).index_add(0, target, h[source])
    h = selu(normalize(affine(h) + affine(sums)))
    for _ in maps.after[:-1]:
        h = selu(affine(h))
    (NODES * cross_entropy(affine(h)[ROOTS], labels)).backward()
    return torch.cat([copy.grad.reshape(NODES, -1) for copy in copies if copy.grad is not None], dim=1)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize(("pre", "post"), [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("clip", [0.3, 1e6])
def test_sums_per_row_equal_autograd(as_sparse, pre, post, clip):
    model, edges, x = network(pre, post, "selu"), graph(), features()
    parts = parts_of_rows(model, x, edges, LABELS)
    norms = parts.norm(dim=1, keepdim=True)
    assert (norms == 0).any()  # of nodes that neither are roots nor send to one
    expected = (parts * (clip / norms.clamp_min(1e-12)).clamp(max=1)).sum(dim=0)
    given = sparse.csr_array(x.numpy()) if as_sparse else x
    found = summed(model, given, edges, LABELS, clip, "row")
    torch.testing.assert_close(found, expected, rtol=3e-6, atol=3e-6)
    if clip > 1:
        whole = summed(model, given, edges, LABELS, clip, "root")
        torch.testing.assert_close(found, NODES / len(ROOTS) * whole, rtol=3e-6, atol=3e-6)


class WholeGraph(nn.Module):
    """The network on all nodes at once, of layers that opacus has hooks for."""

    def __init__(self, model: SageNetwork, edges: Adjacency) -> None:
        super().__init__()
        maps = AffineMaps.from_network(model)
        self._pre, self._edges = len(maps.before), edges
        self.layers = nn.ModuleList()
        for one in (*maps.before, maps.own, maps.incoming, *maps.after):
            layer = nn.Linear(*one.weight.shape).double()
            layer.load_state_dict({"weight": one.weight.detach().t(), "bias": one.bias.detach()})
            self.layers.append(layer)

    def forward(self, x: Tensor) -> Tensor:
        before, (own, incoming, last) = self.layers[: self._pre], self.layers[self._pre :]
        for layer in before:
            x = selu(layer(x))
        x = normalize(x)
        source, target = self._edges.edge_index()
        sums = torch.zeros_like(x).index_add(0, target, x[source])
        return last(selu(normalize(own(x) + incoming(sums))))


def test_sums_per_row_equal_opacus_on_a_whole_graph():
    from opacus import GradSampleModule

    model, edges, x, clip = network(2, 1, "selu"), graph(), features().double(), 0.7
    whole = GradSampleModule(WholeGraph(model, edges))
    given = x.clone().requires_grad_()  # without it a hook of torch's warns that no input needs a gradient
    cross_entropy(whole(given)[ROOTS], LABELS).backward()
    samples = [part.grad_sample for part in whole.parameters()]
    norms = torch.stack([part.flatten(1).square().sum(dim=1) for part in samples]).sum(dim=0).sqrt()
    factors = (clip / norms.clamp_min(1e-12)).clamp(max=1)
    sums = [torch.tensordot(factors, part, dims=1) for part in samples]
    expected = torch.cat([part.t().reshape(-1) if part.ndim == 2 else part for part in sums])
    found = summed(model, x.float(), edges, LABELS, clip, "row")
    torch.testing.assert_close(found, expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_rows_that_are_not_finite_contribute_nothing(as_sparse):
    model, edges, x = network(2, 1, "selu"), graph(), features()
    x[5] = float("inf")
    found = summed(model, sparse.csr_array(x.numpy()) if as_sparse else x, edges, LABELS, 1.0, "row")
    assert found.isfinite().all()
    assert float(found.norm()) > 0
    sums = SubgraphClippedSum(
        AffineMaps.from_network(model), "selu", x, neighbor_table(edges, ROOTS, MOST), LABELS, "row"
    )
    sums.add(torch.arange(0), 1.0)
    assert not sums.sums.any()


def test_roots_without_a_label_contribute_nothing():
    model, edges, x = network(2, 1, "selu"), graph(), features()
    without = LABELS.clone()
    without[3] = -1
    gradient = one_root(model, x, edges, int(ROOTS[3]), int(LABELS[3]))
    moved = summed(model, x, edges, LABELS, 1e6) - summed(model, x, edges, without, 1e6)
    torch.testing.assert_close(moved, gradient, rtol=1e-5, atol=1e-6)
    x[5] = float("inf")
    assert summed(model, x, edges, LABELS, 1.0).isfinite().all()


@pytest.mark.parametrize("clip_per", ["root", "row"])
def test_a_record_changes_the_sum_by_at_most_its_reach(clip_per):
    """Null every record on fixed samples: at most C for the root, 2 C for each of up to D readers.

    If rows are clipped, at most 2 C for each of up to D^2 + 1 rows, and more than what the paper counts.
    """
    model, edges, x, clip = network(2, 1, "selu"), graph(), features(), 0.05
    whole, attained = summed(model, x, edges, LABELS, clip, clip_per), 0.0
    source, target = edges.edge_index()
    for q in range(NODES):
        nulled, labels = x.clone(), LABELS.clone()
        nulled[q] = 0.0
        labels[q == ROOTS] = -1
        kept = source != q
        fewer = Adjacency.from_edges(source[kept], target[kept], num_nodes=NODES, directed=True)
        readers = target[~kept][torch.isin(target[~kept], ROOTS)]
        moved = float((whole - summed(model, nulled, fewer, labels, clip, clip_per)).norm())
        is_root = bool((q == ROOTS).any())
        changed = {q, *readers.tolist()}
        for root in [*readers.tolist(), *[q] * is_root]:
            changed |= set(source[target == root].tolist())
        assert len(changed) <= MOST**2 + 1
        bound = 2 * len(changed) if clip_per == "row" else 2 * len(readers) + is_root
        assert moved <= clip * bound * (1 + 1e-5)
        attained = max(attained, moved / clip)
    assert 1 < attained <= (2 * (MOST**2 + 1) if clip_per == "row" else 2 * MOST + 1)
