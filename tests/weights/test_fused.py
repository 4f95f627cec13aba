"""The compiled pass against the slower way: the same integers in the same type."""

import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock, blocks
from graphveil.privacy import MemoryLedger, UndirectedEdge
from graphveil.release import NeighborSumData, Release, ReleaseKey, ReleasePlan
from graphveil.release.plan import hops
from graphveil.release.rows import private_sums
from graphveil.release.rows.private_sums import Sums, exact_sum
from graphveil.release.weights import (
    Attention,
    ClassAgree,
    ExpCos,
    HalfCos,
    Jaccard,
    Landmarks,
    LearnedPublic,
    PosteriorDot,
    Similarity,
)
from graphveil.release.weights import tables as _pairs
from graphveil.release.weights.compiled import fused_sum as _fused
from graphveil.release.weights.compiled.fused_sum import FusedSum, fused_sum
from graphveil.release.weights.network import NetworkWeights
from graphveil.release.weights.set_overlap import BitSets, ListSets
from graphveil.release.weights.tables import (
    HALF,
    CategoryWeights,
    DotProductWeights,
    PairWeights,
    StoredWeights,
)

pytest.importorskip("llvmlite", minversion="0.45")

NODES, LONGEST = 50, 1 << 10


def graph(seed: int = 0, nodes: int = NODES) -> EdgeBlock:
    """Rows of 0 to 30 in-edges, the last ones of none."""
    rng = np.random.default_rng(seed)
    degrees = rng.integers(0, 31, nodes)
    degrees[-2:] = 0
    sources = rng.integers(0, nodes, degrees.sum())
    target = np.repeat(np.arange(nodes), degrees)
    (block,) = blocks(Adjacency.from_edges(sources, target, num_nodes=nodes, directed=True), nodes)
    return block


def vectors(width: int, rows: int = NODES, most: int = 512) -> Tensor:
    return torch.from_numpy(np.random.default_rng(width).integers(-most, most + 1, (rows, width))).float()


def both(edges: EdgeBlock, table: Tensor, pairs: PairWeights, **more: Tensor | int) -> tuple[Tensor, Tensor]:
    """Return the sums of the compiled pass and of the slower way."""
    fused = fused_sum(table, pairs)
    assert fused is not None
    kinds, stride = more.get("kinds"), int(more.get("stride", 0))
    longest = int(more.get("longest", LONGEST))
    sums = (Sums(table, longest, stride=stride, pairs=pairs, short=way) for way in (True, False))
    first, second = (exact_sum(edges, one, None if kinds is None else kinds.numpy()) for one in sums)
    return first, second


@pytest.mark.parametrize("width", [1, 5, 8, 16, 17, 40, 128])
@pytest.mark.parametrize("keys", [3, 16, 20, 128])
def test_dot_products_of_any_width_give_the_same_sums(width: int, keys: int) -> None:
    z = torch.from_numpy(np.random.default_rng(keys).normal(size=(NODES, keys)))
    for weight in (HalfCos(), ExpCos(0.5), LearnedPublic()):
        first, second = both(graph(), vectors(width), weight.prepare(z))
        assert first.dtype == second.dtype == torch.float32
        assert torch.equal(first, second) and bool(second.any())


@pytest.mark.parametrize(
    "weight", [ClassAgree(0.3), PosteriorDot(), Landmarks(HalfCos(), 7), Landmarks(HalfCos(), 128)]
)
def test_weights_of_kinds_and_posteriors_give_the_same_sums(weight: Similarity) -> None:
    p = torch.from_numpy(np.random.default_rng(1).dirichlet([0.3] * 6, NODES))
    assert torch.equal(*both(graph(), vectors(16), weight.prepare(p)))


def network(units: int, size: float = 1.0) -> PairWeights:
    rng = np.random.default_rng(units)
    halves = (torch.from_numpy(3 * size * rng.normal(size=(NODES, units))) for _ in range(2))
    readout, offset = torch.from_numpy(size * rng.normal(size=units)), torch.tensor(0.3)
    return Attention().prepare((*halves, readout, offset))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0.3, 1.0, 100.0])
@pytest.mark.parametrize("units", [1, 7, 8, 16, 17, 128])
def test_networks_of_any_width_give_the_same_sums(units: int, size: float) -> None:
    first, second = both(graph(), vectors(16), network(units, size))
    assert torch.equal(first, second) and bool(second.any())


def test_every_hidden_unit_gives_the_same_weight() -> None:
    # One unit with a readout of one, to the last step: 16 bits of halves, and places that tell values apart.
    count = 1 << 16
    source = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)[:, None]
    levels = torch.arange(_pairs.CELLS) % 33
    for target, offset in ((0, HALF), (1 << 14, HALF), (0, HALF + 16), (-300, HALF - 16)):
        rows = torch.full_like(source, target)
        made = NetworkWeights(source, rows, torch.ones(1, dtype=torch.int16), offset, 0, levels.float())
        edges = EdgeBlock(
            0, 1, torch.tensor([0, count], dtype=torch.int32), torch.arange(count).to(torch.int32)
        )
        table = torch.zeros(count, 16)
        table[torch.arange(count), torch.arange(count) % 16] = torch.arange(count).mul(7).fmod(251).float()
        assert torch.equal(*both(edges, table, made, longest=1 << 30))


def sets(width: int, share: float, nodes: int = NODES) -> sparse.csr_array:
    """Random sets, among them one of nothing and one of twenty members or all."""
    x = np.random.default_rng(width).random((nodes, width)) < share
    x[0], x[1] = False, False
    x[1, :20] = True
    return sparse.csr_array(x.astype(np.float32))


@pytest.mark.parametrize(
    ("width", "share", "kind"),
    [(1, 0.5, BitSets), (15, 0.5, BitSets), (16, 0.9, BitSets), (255, 0.1, BitSets), (767, 0.4, BitSets)]
    + [(width, share, ListSets) for width in (3000, 1 << 16) for share in (0.0, 0.002)],
)
def test_sets_of_any_kind_give_the_same_sums(
    width: int, share: float, kind: type[PairWeights], monkeypatch: pytest.MonkeyPatch
) -> None:
    share = min(share, 60 / width) if kind is ListSets else share
    pairs = Jaccard().prepare(sets(width, share)[:, : (1 << 16) - 1])
    assert type(pairs) is kind
    assert torch.equal(*both(graph(), vectors(16), pairs))
    monkeypatch.setattr(_fused, "_EDGES_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(*both(graph(), vectors(16), pairs))


@pytest.mark.parametrize(("width", "own", "step"), [(40, 20, 1), (16_367, 16_367, 16)])
def test_every_share_of_common_members_is_rounded_alike(width: int, own: int, step: int) -> None:
    # Unions from 20 to 40, and the largest sets there are, whose quotients lie closest to halves.
    shares = [(c, e) for c in range(0, own + 1, step) for e in range(width - own + 1)]
    x = np.zeros((1 + len(shares), width), dtype=bool)
    x[0, :own] = True
    for row, (common, others) in enumerate(shares, 1):
        x[row, :common], x[row, own : own + others] = True, True
    sources = torch.arange(1, len(x), dtype=torch.int32)
    edges = EdgeBlock(0, 1, torch.tensor([0, len(sources)], dtype=torch.int32), sources)
    table = torch.zeros(len(x), 128)
    table[sources.long(), sources.long() % 128] = sources.float().mul(7).fmod(251) + 1
    assert torch.equal(*both(edges, table, Jaccard().prepare(torch.from_numpy(x)), longest=1 << 30))


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 5, 7, 8, 9, 61])
def test_rows_of_any_length_give_the_same_sums(degree: int) -> None:
    sources = torch.arange(degree, dtype=torch.int32) % NODES
    edges = EdgeBlock(3, 5, torch.tensor([0, 0, degree], dtype=torch.int32), sources)
    z = torch.from_numpy(np.random.default_rng(degree).normal(size=(NODES, 4)))
    for pairs in (
        HalfCos().prepare(z),
        Landmarks(HalfCos(), 9).prepare(z),
        network(4),
        Jaccard().prepare(sets(30, 0.5)),
        Jaccard().prepare(sets(3000, 0.005)),
    ):
        assert torch.equal(*both(edges, vectors(16), pairs))


def test_every_kind_of_row_reads_its_own_copy_of_the_vectors() -> None:
    z = torch.from_numpy(np.random.default_rng(2).normal(size=(NODES, 4)))
    kinds = torch.arange(NODES) % 3
    table = vectors(6, 3 * NODES)
    for pairs in (HalfCos().prepare(z), ClassAgree().prepare(z.softmax(dim=1)), network(4)):
        first, second = both(graph(), table, pairs, kinds=kinds, stride=NODES)
        assert torch.equal(first, second)
        assert not torch.equal(first, both(graph(), table, pairs)[0])


def test_the_largest_numbers_do_not_overflow() -> None:
    most, count = 1 << _fused.VECTOR_BITS, 300
    phi = torch.zeros(count, 16, dtype=torch.int16)
    phi[:, 0] = HALF
    psi = phi * torch.tensor([1, -1], dtype=torch.int16).repeat(count // 2)[:, None]
    levels = torch.arange(2 * HALF + 1).float().mul(32 / (2 * HALF)).round()
    sources = torch.arange(count, dtype=torch.int32).repeat(2)
    edges = EdgeBlock(0, 2, torch.tensor([0, count, 2 * count], dtype=torch.int32), sources)
    table = torch.tensor([[most, -most]]).float().repeat(count, 1)
    fused = fused_sum(table, DotProductWeights(phi, psi, levels))
    assert fused is not None
    assert fused(edges, sources).tolist() == [[count * 32 * most, -count * 32 * most], [0, 0]]


def test_sums_that_float32_does_not_hold_come_in_float64_and_longer_rows_take_the_slower_way() -> None:
    def refused(*_: object) -> None:
        raise AssertionError

    count = 3 * LONGEST
    edges = EdgeBlock(
        0, 1, torch.tensor([0, count], dtype=torch.int32), torch.arange(count, dtype=torch.int32)
    )
    pairs = HalfCos().prepare(torch.eye(2)[torch.arange(count).clamp_max(1)])
    table = torch.full((count, 1), 511.0)
    table[0] = 0
    first, second = both(edges, table, pairs)
    assert first.dtype == second.dtype == torch.float64
    assert first.tolist() == second.tolist() == [[(count - 1) * 511 * 16]]
    whole = fused_sum(table, pairs)
    assert whole is not None
    unused = FusedSum(whole.keyed, whole.sources, 1, refused)
    for longest in (count // 128, count // 128 + 1):
        sums = Sums(table, longest, pairs=pairs)
        vars(sums)["fused"] = unused
        if longest * 128 <= count:
            assert exact_sum(edges, sums, None).tolist() == first.tolist()
        else:
            with pytest.raises(AssertionError):
                exact_sum(edges, sums, None)


def test_threads_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.from_numpy(np.random.default_rng(4).normal(size=(NODES, 4)))
    alone = both(graph(), vectors(16), HalfCos().prepare(z))
    monkeypatch.setattr(_fused, "_EDGES_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    together = both(graph(), vectors(16), HalfCos().prepare(z))
    assert torch.equal(alone[0], together[0]) and torch.equal(*together)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)


def test_without_a_compiler_or_for_other_weights_there_is_no_pass(no_compiler: None) -> None:
    z = torch.eye(4)
    assert fused_sum(z, HalfCos().prepare(z)) is None


def test_a_compiler_that_does_not_load_is_none(monkeypatch: pytest.MonkeyPatch, no_compiler: None) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "llvmlite.binding":
                raise OSError("cannot load shared object file")

    monkeypatch.delitem(sys.modules, "llvmlite.binding")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    z = torch.eye(4)
    assert fused_sum(z, HalfCos().prepare(z)) is None


def test_some_weights_and_widths_have_no_pass() -> None:
    z = torch.eye(4)
    assert fused_sum(z, None) is None and fused_sum(z, StoredWeights(4)) is None
    assert fused_sum(z, Jaccard().prepare(torch.zeros(4, 1 << 14))) is None
    long = sparse.csr_array(sparse.eye_array(4000, 1 << 14, format="lil", dtype=np.float32))
    one = sparse.csr_array(np.ones((1, 130), dtype=np.float32))
    one.resize((1, 1 << 14))
    long = sparse.csr_array(sparse.vstack([long, one]))
    assert isinstance(Jaccard().prepare(long), ListSets)
    assert fused_sum(torch.zeros(4001, 4), Jaccard().prepare(long)) is None
    assert fused_sum(torch.zeros(4, 129), HalfCos().prepare(z)) is None
    assert fused_sum(z, HalfCos().prepare(torch.zeros(4, 129))) is None
    assert fused_sum(torch.zeros(NODES, 4), network(129)) is None
    assert (
        isinstance(ClassAgree().prepare(z), CategoryWeights)
        and fused_sum(z, ClassAgree().prepare(z)) is not None
    )


@pytest.mark.parametrize("weight", [HalfCos(), Attention(), Jaccard()])
def test_a_release_has_the_same_bytes_either_way(weight: Similarity, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    adjacency = Adjacency.from_edges(*rng.integers(0, NODES, (2, 400)), num_nodes=NODES, directed=False)
    rows = torch.from_numpy(rng.normal(size=(NODES, 16)))
    rows /= 1.01 * rows.norm(dim=1, keepdim=True)
    keys = (rows, 2 * rows, rows[0], rows[1, 0]) if isinstance(weight, Attention) else (rows > 0) * rows
    plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, 16, UndirectedEdge(), weight), delta=1e-3)

    def asked() -> Tensor:
        key = ReleaseKey.from_seed(0, "fused")
        return Release.open(plan, adjacency, budget=MemoryLedger(), key=key).answer(
            NeighborSumData(rows, keys)
        )

    fast = asked()
    monkeypatch.setattr(private_sums, "fused_sum", lambda table, pairs: None)
    assert torch.equal(fast, asked())


@pytest.mark.parametrize("columns", [9, 16, 17, 24, 32, 33, 48, 64, 65, 136, 256])
def test_a_row_lies_on_as_few_lines_of_memory_as_it_can(columns: int) -> None:
    line, length = 32, _fused._length(columns)
    touched = {(row * length + columns - 1) // line - row * length // line + 1 for row in range(100)}
    assert touched == {-(-columns // line)}
