import json
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock, blocks
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData, NeighborSumQuery
from graphveil.core.queries.weights import (
    CELLS,
    FULL,
    TANH_ONE,
    TANH_STEPS,
    BitSets,
    CategoryWeights,
    DotProductWeights,
    ListSets,
    NetworkWeights,
    PairWeights,
    Similarity,
    integer_tanh,
)
from graphveil.core.release import Release
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.errors import (
    ConfigError,
    InputError,
    NotImplementedGuaranteeError,
    ReleaseError,
    UnsupportedGuaranteeError,
)
from graphveil.papers.attention import Attention
from graphveil.papers.weights import (
    ClassAgree,
    ExpCos,
    HalfCos,
    LearnedPublic,
    PosteriorDot,
    ReluCos,
    SigmoidCos,
)
from graphveil.release.weights import DotWeight, Jaccard, parse_weight, register_weight

NODES = 60
COMPLETE = Adjacency.from_edges(*np.nonzero(~np.eye(NODES, dtype=bool)), num_nodes=NODES, directed=True)


def cosines(z: np.ndarray) -> np.ndarray:
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    return unit @ unit.T


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("weight", "formula"),
    [
        (SigmoidCos(), lambda c: sigmoid(c)),
        (ExpCos(0.5), lambda c: np.exp((c - 1) / 0.5)),
        (HalfCos(), lambda c: (1 + c) / 2),
        (ReluCos(), lambda c: np.maximum(0, c)),
        (LearnedPublic(3.0), lambda c: sigmoid(3 * c)),
    ],
)
def test_weights_by_cosine_follow_their_formula(
    weight: Similarity, formula: Callable[[np.ndarray], np.ndarray]
) -> None:
    z = np.random.default_rng(0).normal(size=(NODES, 5))
    assert_weights(weight, torch.from_numpy(z), formula(cosines(z)))


def test_weights_by_posterior_follow_their_formula() -> None:
    p = np.random.default_rng(1).dirichlet([0.3] * 4, NODES)
    assert_weights(PosteriorDot(), torch.from_numpy(p), p @ p.T)
    best = p.argmax(axis=1)
    assert_weights(ClassAgree(0.25), torch.from_numpy(p), np.where(best[:, None] == best, 1.0, 0.25))


@pytest.mark.parametrize("kind", [torch.from_numpy, sparse.csr_array])
def test_weights_by_common_features_follow_their_formula(kind: Callable[[np.ndarray], object]) -> None:
    x = (np.random.default_rng(2).random((NODES, 7)) < 0.3).astype(np.float32)
    x[:2] = 0
    common, size = x @ x.T, x.sum(axis=1)
    union = size[:, None] + size - common
    assert_weights(Jaccard(), kind(x), common / np.maximum(1, union), error=0.0)


@pytest.mark.parametrize("width", [0, 1, 15, 16, 17, 40])
def test_sets_as_bits_and_as_lists_have_the_same_weights(width: int) -> None:
    x = (np.random.default_rng(width).random((NODES, width)) < 0.5).astype(np.float32)
    spread = sparse.csr_array((NODES, 4096 + 4096 * width), dtype=np.float32).tolil()
    spread[:, : 4096 * width : 4096] = x
    kinds = (torch.from_numpy(x), sparse.csr_array(x), sparse.csr_array(spread))
    dense, few, many = (Jaccard().prepare(sets) for sets in kinds)
    assert isinstance(dense, BitSets) and isinstance(few, BitSets) and torch.equal(dense.bits, few.bits)
    assert isinstance(many, ListSets) or not width
    assert torch.equal(weights_of(dense, COMPLETE), weights_of(many, COMPLETE))


def test_explicit_zeros_are_no_features() -> None:
    x = sparse.csr_array((np.array([1.0, 0.0, 2.0], dtype=np.float32), ([0, 0, 1], [0, 1, 0])), shape=(2, 2))
    pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=True)
    assert weights_of(Jaccard().prepare(x), pair).tolist() == [FULL]
    assert (x.nnz, x.data.tolist()) == (3, [1.0, 0.0, 2.0])  # the graph's features stay as they are


@pytest.mark.parametrize(("units", "size"), [(1, 1.0), (4, 1.0), (16, 0.5), (130, 0.1), (2, 3.0)])
def test_attention_follows_its_formula(units: int, size: float) -> None:
    rng = np.random.default_rng(units)
    a, b, w = rng.normal(size=(NODES, units)), rng.normal(size=(NODES, units)), size * rng.normal(size=units)
    keys = (*map(torch.from_numpy, (a, b, w)), torch.tensor(0.5))
    hidden = np.tanh(a[:, None] + b[None])
    assert_weights(Attention(), keys, sigmoid(hidden @ w + 0.5), error=0.002 + 0.0067 * np.abs(w).sum())


def test_the_tangent_is_odd_to_a_step_and_right_to_a_fortieth() -> None:
    value = integer_tanh()[1:].astype(int)
    x = np.arange(1 - (1 << 15), 1 << 15) / TANH_STEPS
    assert np.abs(value / TANH_ONE - np.tanh(x)).max() < 0.027
    assert np.abs(value + value[::-1]).max() <= 1 and value[len(value) // 2] == 0
    assert np.abs(integer_tanh().astype(int)).max() <= TANH_ONE


@pytest.mark.parametrize(
    ("a", "b", "w", "c", "level"),
    [
        (7.0, -6.0, 1.0, 0.0, sigmoid(np.tanh(1.0))),  # halves that cancel
        (30.0, 30.0, 1.0, 0.0, sigmoid(1.0)),  # and that pass 16 bits
        (9.0, 9.0, 1e9, 0.0, 1.0),
        (9.0, 9.0, 1.0, 1e30, 1.0),
        (0.0, 0.0, 1e30, -5.0, sigmoid(-5.0)),
        (1e300, -1e300, 2.0, 0.0, 0.5),
    ],
)
def test_attention_takes_any_finite_network(a: float, b: float, w: float, c: float, level: float) -> None:
    keys = tuple(torch.tensor(part, dtype=torch.float64) for part in ([[a]] * 2, [[b]] * 2, [w], c))
    made = Attention().prepare(keys)  # type: ignore[arg-type]
    pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=True)
    assert made.is_valid
    assert abs(float(weights_of(made, pair)) / FULL - level) <= 0.02


def assert_weights(weight: Similarity, keys: object, expected: np.ndarray, error: float = 0.01) -> None:
    """Compare all pairs with an oracle (source, target); half a step of the weight's grid is allowed, too."""
    got = weights_of(weight.prepare(keys), COMPLETE).numpy() * weight.bound / FULL
    target = np.repeat(np.arange(NODES), NODES - 1)
    pairs = expected[COMPLETE.indices.numpy(), target]
    assert np.abs(got - pairs).max() <= error + weight.bound / FULL / 2 + 1e-6
    assert got.max() <= weight.bound * (1 + 1e-12)


def weights_of(pairs: PairWeights, graph: Adjacency) -> Tensor:
    (block,) = blocks(graph, graph.num_nodes)
    return pairs.of(block)


@pytest.mark.parametrize(
    ("weight", "bound"),
    [
        (SigmoidCos(), 0.731058578630),
        (ExpCos(0.1), 1.0),
        (HalfCos(), 1.0),
        (ReluCos(), 1.0),
        (Jaccard(), 1.0),
        (ClassAgree(0.5), 1.0),
        (PosteriorDot(), 1.0),
        (LearnedPublic(5.0), 1 / (1 + math.exp(-5))),
        (Attention(), 1 / (1 + math.exp(-8))),
    ],
)
def test_bounds_are_those_of_the_formula(weight: Similarity, bound: float) -> None:
    assert weight.bound == pytest.approx(bound, abs=1e-12)


# -- a weight of one's own ---------------------------------------------------------------------------------


class RecordingZeroNoise(DotWeight):
    """Notes what it is shown."""

    seen: list[tuple[int, ...]]

    def transform(self, dots: np.ndarray) -> np.ndarray:
        self.seen.append(dots.shape)
        return np.maximum(0, dots) ** 2

    def phi(self, rows: Tensor) -> Tensor:
        self.seen.append(tuple(rows.shape))
        return rows

    def psi(self, rows: Tensor) -> Tensor:
        self.seen.append(tuple(rows.shape))
        return -rows


@pytest.mark.parametrize("edges", [0, 1, 300, 900])
def test_a_custom_weight_receives_nothing_that_depends_on_edges(edges: int) -> None:
    weight = RecordingZeroNoise()
    object.__setattr__(weight, "seen", [])
    rng = np.random.default_rng(edges)
    source, target = rng.integers(40, size=(2, edges))
    graph = Adjacency.from_edges(source, target, num_nodes=40, directed=False)
    plan = ReleasePlan(UndirectedEdge(), hops(1.0, 2, 3, None, weight), delta=1e-5)
    release = Release.open(plan, graph, budget=MemoryLedger())
    for _ in plan.queries:
        release.answer(NeighborSumData(torch.zeros(40, 3), torch.ones(40, 3)))
    assert weight.seen == [(4097,), (40, 3), (40, 3), (40, 3), (40, 3)]


def test_rejects_weights_that_would_receive_edges() -> None:
    class Neighbors(PairWeights):
        tables, num_nodes, is_valid = (), 2, True

        def of(self, edges: EdgeBlock) -> Tensor:
            raise AssertionError("it was given edges")

    class ByDegree(HalfCos):
        def prepare(self, keys: Tensor) -> PairWeights:
            return Neighbors()

    class FromDots(HalfCos):
        def prepare(self, keys: Tensor) -> PairWeights:
            class Own(DotProductWeights):
                def of(self, edges: EdgeBlock) -> Tensor:
                    raise AssertionError("it was given edges")

            made = super().prepare(keys)
            assert isinstance(made, DotProductWeights)
            return Own(made.phi, made.psi, made.levels)

    for weight in (ByDegree(), FromDots()):
        with pytest.raises(UnsupportedGuaranteeError, match="before an edge is read"):
            answer(weight, torch.ones(2, 3))


def dots_of(levels: Tensor, *, steps: int = 1024, width: int = 16) -> DotProductWeights:
    rows = torch.full((2, 16), steps // 2, dtype=torch.int16)
    return DotProductWeights(rows, rows[:, :width], levels)


def network_of(
    *,
    units: int = 1,
    readout: Tensor | None = None,
    offset: int = 0,
    shift: int = 0,
    levels: Tensor | None = None,
) -> NetworkWeights:
    rows = torch.zeros(2, units, dtype=torch.int16)
    weights = torch.ones(1) if readout is None else readout
    table = torch.ones(CELLS) if levels is None else levels
    return NetworkWeights(rows, rows[:, :1].repeat(1, units), weights.to(torch.int16), offset, shift, table)


OPEN = [
    dots_of(torch.full((CELLS,), FULL + 1.0)),
    dots_of(torch.full((CELLS,), -1.0)),
    dots_of(torch.full((CELLS,), 0.5)),
    dots_of(torch.full((CELLS,), math.nan)),
    dots_of(torch.ones(CELLS - 1)),
    dots_of(torch.ones(CELLS), steps=1026),
    dots_of(torch.ones(CELLS), width=8),
    CategoryWeights(np.array([0, 2], dtype=np.uint8), torch.ones(2, 2)),
    CategoryWeights(np.array([0, 1], dtype=np.uint8), torch.ones(2, 3)),
    ListSets(sparse.csr_array(([5, 1], [0, 1], [0, 1, 2]), shape=(2, 2))),
    ListSets(sparse.csr_array(([1, 1], [0, 0], [0, 2, 2]), shape=(2, 2))),
    BitSets(torch.zeros(2, dtype=torch.int16)),
    BitSets(torch.zeros(2, 1, dtype=torch.int32)),
    network_of(units=2),
    network_of(shift=-1),
    network_of(shift=32),
    network_of(offset=1 << 31),
    network_of(readout=torch.full((1,), 1000), offset=(1 << 31) - (1 << 11)),
    network_of(levels=torch.full((CELLS,), FULL + 1.0)),
    network_of(levels=torch.ones(CELLS - 1)),
]


@pytest.mark.parametrize("tables", OPEN)
@pytest.mark.parametrize("edges", [[], [0]])
def test_rejects_incomplete_weight_tables_for_any_edges(tables: PairWeights, edges: list[int]) -> None:
    class Open(HalfCos):
        def prepare(self, keys: Tensor) -> PairWeights:
            return tables

    with pytest.raises(UnsupportedGuaranteeError, match="do not bound the weight of every pair"):
        answer(Open(), torch.ones(2, 3), edges)


def test_tables_at_their_limits_are_taken() -> None:
    assert dots_of(torch.full((CELLS,), float(FULL))).is_valid
    assert CategoryWeights(np.array([0, 1], dtype=np.uint8), torch.full((2, 2), float(FULL))).is_valid
    assert network_of().is_valid
    assert HalfCos().prepare(torch.randn(50, 3, generator=torch.Generator().manual_seed(0))).is_valid


@pytest.mark.parametrize("edges", [[], [0]])
@pytest.mark.parametrize("times", [1, 20])
def test_rejects_maps_of_two_shapes_for_any_edges(times: int, edges: list[int]) -> None:
    class Uneven(HalfCos):
        def psi(self, rows: Tensor) -> Tensor:
            return rows.repeat(3 - min(2, times), times)

    with pytest.raises(InputError, match="same width"):
        answer(Uneven(), torch.ones(2, 3), edges)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda dots: dots[:5], "finite number for each"),
        (lambda dots: dots / 0, "finite number for each"),
        (lambda dots: -np.abs(dots), "All weights"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_weight_without_a_bound_is_rejected_uncharged(
    transform: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    class Wrong(DotWeight):
        def transform(self, dots: np.ndarray) -> np.ndarray:
            return transform(dots)

    with pytest.raises(ConfigError, match=message):
        ReleasePlan(UndirectedEdge(), hops(1.0, 1, 3, None, Wrong()), delta=1e-5)


def test_rows_longer_than_one_count_as_one() -> None:
    class Raw(ReluCos):
        def phi(self, rows: Tensor) -> Tensor:
            return rows

    pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=True)
    for length, level in ((0.5, FULL / 4), (1.0, FULL), (40.0, FULL)):
        made = Raw().prepare(torch.full((2, 1), length))
        assert weights_of(made, pair).tolist() == [level]


def test_rejects_a_weight_above_its_bound() -> None:
    class FalseBound(SigmoidCos):
        bound = 0.5

    with pytest.raises(ConfigError, match="larger than its bound"):
        answer(FalseBound(), torch.ones(2, 3))


# -- asking ------------------------------------------------------------------------------------------------


def answer(weight: Similarity, keys: object, sources: list[int] | None = None) -> Tensor:
    ends = [0] if sources is None else sources
    pair = Adjacency.from_edges(ends, [1 - end for end in ends], num_nodes=2, directed=False)
    plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, 3, None, weight), delta=1e-5)
    return Release.open(plan, pair, budget=MemoryLedger()).answer(NeighborSumData(torch.zeros(2, 3), keys))


def test_keys_default_to_the_vectors() -> None:
    assert answer(SigmoidCos(), None).shape == (2, 3)


@pytest.mark.parametrize(
    ("weight", "keys", "error"),
    [
        (SigmoidCos(), torch.ones(3, 3), ReleaseError),
        (ClassAgree(), torch.ones(1, 3), ReleaseError),
        (Jaccard(), torch.ones(4, 3), ReleaseError),
        (SigmoidCos(), torch.full((2, 3), math.nan), InputError),
        (PosteriorDot(), torch.full((2, 3), math.inf), InputError),
        (ClassAgree(), torch.full((2, 3), math.nan), InputError),
        (ClassAgree(), torch.ones(2, 300), InputError),
        (Attention(), (torch.zeros(2, 1),) * 2 + (torch.tensor([math.nan]), torch.tensor(0.0)), InputError),
    ],
)
def test_keys_that_do_not_fit_are_rejected(weight: Similarity, keys: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        answer(weight, keys)


def test_a_hop_without_a_similarity_takes_no_keys() -> None:
    plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, 3), delta=1e-5)
    release = Release.open(plan, COMPLETE, budget=MemoryLedger())
    with pytest.raises(ReleaseError, match="no similarity"):
        release.answer(NeighborSumData(torch.zeros(NODES, 3), torch.zeros(NODES, 3)))


@pytest.mark.parametrize("unit", [NodeRecord(), NodeBoundedDegree(5)])
def test_similarities_are_rejected_under_node_units(unit: NodeRecord | NodeBoundedDegree) -> None:
    (query,) = hops(1.0, 1, 3, None, HalfCos())
    with pytest.raises(NotImplementedGuaranteeError, match=r"which unit .* protects"):
        query.event(unit)
    with pytest.raises(NotImplementedGuaranteeError, match=r"which unit .* protects"):
        query.sensitivity(unit)


def test_a_description_names_the_weight_and_stays_what_it_was_without_one() -> None:
    (plain,), (weighted,) = hops(1.0, 1, 3), hops(1.0, 1, 3, None, ExpCos(0.25))
    assert set(plain.describe().parameters) == {"query", "weights", "sigma", "dim", "grid_bits"}
    described = json.loads(json.dumps(weighted.describe().parameters))
    assert described["similarity"] == {"weight": "ExpCos", "temperature": 0.25, "bound": (1.0).hex()}


def test_the_grid_has_bits_for_vectors_and_for_weights() -> None:
    (query,) = hops(1.0, 1, 3, None, SigmoidCos())
    assert (query.grid_bits, query.contribution_bits, query.grid.contribution) == (9, 14, 2.0**14)
    assert query.unit_steps == pytest.approx(2**14 / query.similarity.bound)
    with pytest.raises(ConfigError):
        NeighborSumQuery(query.weights, (1.0,), 3, 20, SigmoidCos())


# -- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        ("one", None),
        ("sigmoid_cos", SigmoidCos()),
        ("exp_cos(0.25)", ExpCos(0.25)),
        ("exp_cos", ExpCos()),
        ("class_agree(0.1)", ClassAgree(0.1)),
        ("jaccard", Jaccard()),
        ("attention", Attention()),
    ],
)
def test_weights_are_parsed_by_name(text: str, weight: Similarity | None) -> None:
    assert parse_weight(text) == weight


@pytest.mark.parametrize(
    "text",
    ["sigmoid", "", "exp_cos(a)", "exp_cos(1,2)", "exp_cos(-1)", "exp_cos(1", "half_cos(2)", "softmax"],
)
def test_rejects_unknown_weight_names(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_weight(text)


def test_a_misspelled_weight_name_is_suggested() -> None:
    with pytest.raises(ConfigError, match="sigmoid_cos"):
        parse_weight("sigmoid_cso")


@pytest.mark.usefixtures("own_names")
def test_a_custom_weight_can_be_registered() -> None:
    register_weight("witness", RecordingZeroNoise)
    assert isinstance(parse_weight("witness"), RecordingZeroNoise)
    for name in ("witness", "one", "sigmoid_cos", "no name"):
        with pytest.raises(ConfigError):
            register_weight(name, RecordingZeroNoise)
