"""Weighted sums against whole numbers: weights from their definitions, sums from a loop over edges."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.queries.row_sums import Sums, exact_sum
from graphveil.core.queries.weights import (
    CELLS,
    FULL,
    HALF,
    BitSets,
    CategoryWeights,
    DotProductWeights,
    ListSets,
    NetworkWeights,
    PairWeights,
    integer_tanh,
)
from graphveil.papers.attention import Attention
from graphveil.papers.weights import ClassAgree, ExpCos, HalfCos
from graphveil.release.weights import Jaccard

NODES, LONGEST = 50, 1 << 10


def graph(seed: int = 0) -> EdgeBlock:
    """Rows of 0 to 30 in-edges, the last ones of none."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 31, NODES)
    degrees[-2:] = 0
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32))
    sources = torch.from_numpy(rng.integers(0, NODES, degrees.sum()).astype(np.int32))
    return EdgeBlock(0, NODES, offsets, sources)


def vectors(width: int, rows: int = NODES, most: int = 512) -> Tensor:
    return torch.from_numpy(np.random.default_rng(width).integers(-most, most + 1, (rows, width))).float()


def whole_weight(pairs: PairWeights, u: int, v: int) -> int:
    """Return a pair's weight in exact arithmetic."""
    if isinstance(pairs, DotProductWeights):
        dot = sum(int(a) * int(b) for a, b in zip(pairs.phi[u], pairs.psi[v], strict=True))
        return int(pairs.levels[(2 * dot + HALF) // (2 * HALF) + HALF])
    if isinstance(pairs, NetworkWeights):
        units = (pairs.source[u].int() + pairs.target[v].int()).clamp(-(1 << 15), (1 << 15) - 1) + (1 << 15)
        hidden = integer_tanh()[units.numpy()].astype(int)
        logit = int(hidden @ pairs.readout.numpy().astype(int)) + pairs.offset
        return int(pairs.levels[min(max(logit >> pairs.shift, 0), CELLS - 1)])
    if isinstance(pairs, CategoryWeights):
        return int(pairs.levels[pairs.codes[v], pairs.codes[u]])
    one, other = (members(pairs, node) for node in (u, v))
    common, union = len(one & other), max(1, len(one | other))
    return (2 * FULL * common + union) // (2 * union)  # to the nearest, from the middle up


def members(pairs: PairWeights, node: int) -> set[int]:
    if isinstance(pairs, ListSets):
        return set(pairs.sets[[node]].indices.tolist())
    assert isinstance(pairs, BitSets)
    bits = np.unpackbits(pairs.bits[node].numpy().view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def summed(edges: EdgeBlock, table: Tensor, pairs: PairWeights, kinds: list[int] | None = None) -> Tensor:
    """Return the sums in int64, an edge at a time; ``kinds`` choose the copy of the table for a row."""
    total = torch.zeros(len(edges), table.shape[1], dtype=torch.int64)
    for row in range(len(edges)):
        v, copy = edges.start + row, 0 if kinds is None else kinds[row]
        for u in edges.sources[edges.offsets[row] : edges.offsets[row + 1]].tolist():
            total[row] += whole_weight(pairs, u, v) * table[u + copy * NODES].to(torch.int64)
    return total


def network(units: int, size: float = 1.0) -> PairWeights:
    rng = np.random.default_rng(units)
    halves = (torch.from_numpy(3 * size * rng.normal(size=(NODES, units))) for _ in range(2))
    readout, offset = torch.from_numpy(size * rng.normal(size=units)), torch.tensor(0.3)
    return Attention().prepare((*halves, readout, offset))  # type: ignore[arg-type]


def sets(width: int, share: float) -> sparse.csr_array:
    """Random sets, among them one of nothing and one of twenty members or all."""
    x = np.random.default_rng(width).random((NODES, width)) < share
    x[0], x[1] = False, False
    x[1, :20] = True
    return sparse.csr_array(x.astype(np.float32))


def rows(width: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(width).normal(size=(NODES, width)))


WEIGHTS: dict[str, Callable[[], PairWeights]] = {
    "half_cos 3": lambda: HalfCos().prepare(rows(3)),
    "half_cos 128": lambda: HalfCos().prepare(rows(128)),
    "exp_cos": lambda: ExpCos(0.5).prepare(rows(16)),
    "class_agree": lambda: ClassAgree(0.3).prepare(rows(6).softmax(dim=1)),
    "network 1": lambda: network(1),
    "network 17": lambda: network(17, 0.3),
    "network of large weights": lambda: network(16, 100.0),
    "bits": lambda: Jaccard().prepare(sets(767, 0.4)),
    "few bits": lambda: Jaccard().prepare(sets(15, 0.5)),
    "lists": lambda: Jaccard().prepare(sets(3000, 0.002)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_sums_are_those_of_whole_numbers(name: str) -> None:
    pairs, table = WEIGHTS[name](), vectors(9)
    found = exact_sum(graph(), Sums(table, LONGEST, pairs=pairs), None)
    assert found.dtype == torch.float32 and bool(found.any())
    assert torch.equal(found.to(torch.int64), summed(graph(), table, pairs))


@pytest.mark.parametrize("name", ["half_cos 3", "network 1", "class_agree"])
def test_every_kind_of_row_reads_its_own_copy_of_the_vectors(name: str) -> None:
    pairs, table, kinds = WEIGHTS[name](), vectors(6, 3 * NODES), np.arange(NODES) % 3
    found = exact_sum(graph(), Sums(table, LONGEST, stride=NODES, pairs=pairs), kinds)
    assert torch.equal(found.to(torch.int64), summed(graph(), table, pairs, kinds.tolist()))


@pytest.mark.parametrize("degree", [0, 1, 7, 61])
def test_blocks_that_begin_anywhere_read_their_own_targets(degree: int) -> None:
    sources = torch.arange(degree, dtype=torch.int32) % NODES
    edges = EdgeBlock(3, 5, torch.tensor([0, 0, degree], dtype=torch.int32), sources)
    for name in ("half_cos 3", "network 17", "bits", "lists"):
        pairs, table = WEIGHTS[name](), vectors(16)
        found = exact_sum(edges, Sums(table, LONGEST, pairs=pairs), None)
        assert torch.equal(found.to(torch.int64), summed(edges, table, pairs))


def test_every_hidden_unit_gives_its_weight() -> None:
    # One unit with a readout of one, to the last step: 16 bits of halves, and distinct table entries.
    count = 1 << 16
    source = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)[:, None]
    levels, one = (torch.arange(CELLS) % 33).float(), torch.ones(1, dtype=torch.int16)
    offsets = torch.tensor([0, count], dtype=torch.int32)
    edges = EdgeBlock(0, 1, offsets, torch.arange(count, dtype=torch.int32))
    for target, offset in ((0, HALF), (1 << 14, HALF), (0, HALF + 16), (-300, HALF - 16)):
        pairs = NetworkWeights(source, torch.full_like(source, target), one, offset, 0, levels)
        x = np.clip(source.numpy()[:, 0].astype(int) + target, -(1 << 15), (1 << 15) - 1) + (1 << 15)
        places = np.clip(integer_tanh()[x].astype(int) + offset, 0, CELLS - 1)
        assert np.array_equal(pairs.of(edges).numpy(), levels.numpy()[places])


def test_every_share_of_common_members_is_rounded_alike() -> None:
    # Unions from 20 to 40, whose quotients lie close to halves.
    shares = [(common, others) for common in range(21) for others in range(21)]
    x = np.zeros((1 + len(shares), 40), dtype=bool)
    x[0, :20] = True
    for row, (common, others) in enumerate(shares, 1):
        x[row, :common], x[row, 20 : 20 + others] = True, True
    sources = torch.arange(1, len(x), dtype=torch.int32)
    edges = EdgeBlock(0, 1, torch.tensor([0, len(sources)], dtype=torch.int32), sources)
    expected = [(2 * FULL * c + 20 + e) // (2 * (20 + e)) for c, e in shares]
    assert Jaccard().prepare(torch.from_numpy(x)).of(edges).tolist() == expected


def test_the_largest_numbers_do_not_overflow() -> None:
    most, count = 1 << 14, 300
    phi = torch.zeros(count, 16, dtype=torch.int16)
    phi[:, 0] = HALF
    psi = phi * torch.tensor([1, -1], dtype=torch.int16).repeat(count // 2)[:, None]
    levels = torch.arange(CELLS).float().mul(FULL / (2 * HALF)).round()
    sources = torch.arange(count, dtype=torch.int32).repeat(2)
    edges = EdgeBlock(0, 2, torch.tensor([0, count, 2 * count], dtype=torch.int32), sources)
    table = torch.tensor([[most, -most]]).float().repeat(count, 1)
    sums = Sums(table, (1 << 24) // (most * FULL), pairs=DotProductWeights(phi, psi, levels))
    assert exact_sum(edges, sums, None).tolist() == [[count * FULL * most, -count * FULL * most], [0, 0]]


def test_sums_that_float32_does_not_hold_come_in_float64() -> None:
    count = 3 * LONGEST
    offsets = torch.tensor([0, count], dtype=torch.int32)
    edges = EdgeBlock(0, 1, offsets, torch.arange(count, dtype=torch.int32))
    pairs = HalfCos().prepare(torch.eye(2)[torch.arange(count).clamp_max(1)])
    table = torch.full((count, 1), 511.0)
    table[0] = 0
    found = exact_sum(edges, Sums(table, LONGEST, pairs=pairs), None)
    assert found.dtype == torch.float64 and found.tolist() == [[(count - 1) * 511 * 16]]
