"""Sums of 16-bit rows in C against the torch sums of the same contributions: the same bytes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from kernels import no_kernels
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock, blocks
from graphveil.core.features import safe_unit
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise import _kernels
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.plan import ReleasePlan
from graphveil.core.private_edges import CompactRows
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery, grid_table
from graphveil.core.queries.row_sums import NoisyRows, RowNoise, Sums, can_compact
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge

pytestmark = pytest.mark.skipif(not _kernels.available(), reason="the loops in C were not built")

NODES = 300
KEY = bytes(range(32))


def graph(edges: int = 4000) -> Adjacency:
    rng = np.random.default_rng(edges)
    ends = np.minimum(rng.integers(NODES, size=(2, edges)), rng.integers(NODES, size=(2, edges)))
    return Adjacency.from_edges(*ends, num_nodes=NODES, directed=True)


def rows_of(dim: int, bits: int = 10, copies: int = 1, count: int = NODES) -> CompactRows:
    rng = np.random.default_rng(dim)
    rows = CompactRows.empty(copies * count, dim, bits)
    rows.rows.zero_()[:-1, :dim] = torch.from_numpy(
        rng.integers(-(1 << bits), (1 << bits) + 1, (copies * count, dim)).astype(np.int16)
    )
    return rows


def noisy(
    rows: CompactRows | Tensor, edges: EdgeBlock, kinds: Tensor | None = None, stride: int = 0
) -> Tensor:
    law = DiscreteGaussian(3000.5)
    noise = RowNoise(kinds, (law,) * 3, (0.25,) * 3) if kinds is not None else RowNoise(None, (law,), (0.25,))
    return NoisyRows(Sums(rows, 1 << 14, stride=stride), noise, KEY)(edges)


def block(adjacency: Adjacency) -> EdgeBlock:
    (one,) = blocks(adjacency, adjacency.num_nodes)
    return one


@pytest.mark.parametrize("bits", [10, 12, 14])
@pytest.mark.parametrize("dim", [1, 7, 8, 9, 16, 17, 24, 33, 40, 64, 100, 128])
def test_rows_of_any_width_and_size_have_the_same_bytes(dim: int, bits: int) -> None:
    rows, edges = rows_of(dim, bits), block(graph())
    assert torch.equal(noisy(rows, edges), noisy(rows.plain, edges))


@pytest.mark.parametrize("degree", [*range(18), 63, 64, 65])
def test_rows_of_any_length_have_the_same_bytes(degree: int) -> None:
    sources = torch.arange(degree, dtype=torch.int32) * 7 % NODES
    edges = EdgeBlock(3, 6, torch.tensor([0, 0, degree, degree], dtype=torch.int32), sources)
    rows = rows_of(16)
    assert torch.equal(noisy(rows, edges), noisy(rows.plain, edges))


def test_every_kind_of_row_reads_its_own_copy() -> None:
    kinds, edges = torch.arange(NODES) % 3, block(graph())
    rows = rows_of(6, copies=3)
    own = noisy(rows, edges, kinds, NODES)
    assert torch.equal(own, noisy(rows.plain, edges, kinds, NODES))
    assert not torch.equal(own, noisy(rows, edges, kinds, 0))


@pytest.fixture(scope="module")
def large() -> tuple[CompactRows, EdgeBlock]:
    """Rows and edges of more than one piece, and of more than one piece a thread."""
    nodes, dim = 40_000, 128
    ends = np.random.default_rng(2).integers(nodes, size=(2, 60_000))
    return rows_of(dim, count=nodes), block(Adjacency.from_edges(*ends, num_nodes=nodes, directed=False))


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_any_number_of_threads_gives_the_same_bytes(
    threads: int, large: tuple[CompactRows, EdgeBlock]
) -> None:
    rows, edges = large
    vectors, bounds = torch.ones(len(edges), 9) / 4, torch.tensor([[1000.0]], dtype=torch.float64)
    alone = noisy(rows, edges)
    torch.set_num_threads(threads)  # restored by a fixture
    assert torch.equal(noisy(rows, edges), alone)
    filled = CompactRows.empty(len(edges), 9, 10)
    _kernels.truncate_rows(vectors, bounds, None, filled.rows[:-1])
    assert filled.plain.eq(250).all() and not filled.rows[-1].any() and not filled.rows[:, 9:].any()


def test_pieces_give_the_same_bytes_as_the_whole(large: tuple[CompactRows, EdgeBlock]) -> None:
    rows, edges = large
    pieces = [noisy(rows, edges.rows(first, first + 8000)) for first in range(0, len(edges), 8000)]
    assert torch.equal(noisy(rows, edges), torch.cat(pieces))
    assert torch.equal(pieces[1], noisy(rows.plain, edges.rows(8000, 16_000)))


def test_a_block_of_no_rows_and_one_of_no_edges() -> None:
    rows, none = rows_of(9), torch.empty(0, dtype=torch.int32)
    assert noisy(rows, EdgeBlock(5, 5, torch.zeros(1, dtype=torch.int32), none)).shape == (0, 9)
    lonely = EdgeBlock(5, 30, torch.zeros(26, dtype=torch.int32), none)
    assert torch.equal(noisy(rows, lonely), noisy(rows.plain, lonely))


def test_the_largest_sums_do_not_overflow() -> None:
    rows = CompactRows.empty(2, 2, 14)
    rows.rows.zero_()[:2, :2] = torch.tensor([[1, -1], [1, 0]], dtype=torch.int16) * (1 << 14)
    for count in ((1 << 16) - 1, 1 << 16):  # the second sum is too large for C
        edges = EdgeBlock(
            0, 1, torch.tensor([0, count], dtype=torch.int32), torch.zeros(count, dtype=torch.int32)
        )
        assert torch.equal(noisy(rows, edges), noisy(rows.plain, edges))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("weights", [GroupWeights.unit_weights(), GroupWeights.target_weighted()])
@pytest.mark.parametrize("dim", [1, 5, 8, 20])
def test_truncated_contributions_are_the_same(dtype: torch.dtype, weights: GroupWeights, dim: int) -> None:
    rng = np.random.default_rng(dim)
    vectors = torch.from_numpy(rng.normal(size=(NODES, dim)))
    vectors *= torch.from_numpy(rng.uniform(0.9, 1.1, (NODES, 1))) / vectors.norm(dim=1, keepdim=True)
    vectors[0], vectors[1], vectors[2], vectors[3] = 0.0, torch.inf, torch.nan, -1e30
    vectors[4], vectors[5] = 1.0 / np.sqrt(dim), -1.0 / np.sqrt(dim)
    vectors[6, 0] = torch.inf
    vectors = vectors.to(dtype)
    query = NeighborSumQuery(weights, (1.0,) * weights.groups, dim)
    groups = None if weights.groups == 1 else torch.arange(NODES) % 3
    made = grid_table(vectors, groups, query, CompactRows.empty(weights.groups * NODES, dim, 10))
    assert isinstance(made, CompactRows)
    plain = grid_table(vectors, groups, query)
    assert isinstance(plain, Tensor) and torch.equal(made.plain, plain)
    assert bool(plain.any(dim=1).any()) and not bool(plain.any(dim=1).all())


@pytest.mark.parametrize("weights", [GroupWeights.unit_weights(), GroupWeights.target_weighted()])
def test_a_release_is_bit_identical_without_the_c_extension(weights: GroupWeights) -> None:
    groups = torch.arange(NODES) % 3 if weights.groups > 1 else None
    query = NeighborSumQuery(weights, (3.0, 2.0, 1.5)[: weights.groups], 16)
    plan = ReleasePlan(UndirectedEdge(), (query, replace(query, dim=5)), delta=1e-3)
    adjacency = Adjacency.from_edges(
        *np.random.default_rng(3).integers(NODES, size=(2, 3000)), num_nodes=NODES, directed=False
    )
    rows = safe_unit(torch.from_numpy(np.random.default_rng(4).normal(size=(NODES, 16))))

    def answers() -> list[Tensor]:
        key = ReleaseKey.from_seed(0, "compact")
        release = Release.open(plan, adjacency, groups, budget=MemoryLedger(), key=key)
        return [
            release.answer(NeighborSumData(rows)),
            release.answer(NeighborSumData(safe_unit(rows[:, :5]))),
        ]

    fast = answers()
    with no_kernels():
        assert not can_compact(16, 10)
        slow = answers()
    assert all(torch.equal(one, other) for one, other in zip(fast, slow, strict=True))


def test_wide_rows_and_fine_grids_use_torch() -> None:
    assert can_compact(128, 14)
    assert not can_compact(129, 10) and not can_compact(4, 15)


def test_sizes_and_types_that_do_not_fit_are_rejected() -> None:
    rows, edges = rows_of(4), block(graph())
    noise, out = torch.zeros(NODES, 4, dtype=torch.int32), torch.empty(NODES, 4)
    bad = [
        {"noise": noise[1:]},
        {"noise": noise.long()},
        {"out": out[:, :3]},
        {"out": out.double()},
        {"shifts": torch.zeros(3, dtype=torch.int32)},
        {"rows": rows.rows[:, :3]},
        {"rows": rows.rows.int()},
    ]
    whole = {"offsets": edges.offsets, "sources": edges.sources, "shifts": None, "rows": rows.rows}
    whole |= {"bits": 10, "noise": noise, "out": out, "scale": 1.0}
    _kernels.add_noisy_sums(**whole)
    for one in bad:
        with pytest.raises(ValueError):
            _kernels.add_noisy_sums(**{**whole, **one})
    bounds = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(ValueError, match="rows do not fit"):
        _kernels.truncate_rows(torch.ones(NODES + 5, 4), bounds, None, rows.rows)
    with pytest.raises(ValueError, match="one kind"):
        _kernels.truncate_rows(torch.ones(NODES, 4), bounds, torch.zeros(3, dtype=torch.int64), rows.rows)
