"""Neighbor replay of hops with weights by similarity: every weight, both units, and what must not matter."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contracts import replay
from contracts.replay import UNITS
from graphveil.audit.example_data import example_keys
from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.backends import InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.edges.blocks import blocks
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.queries.weights import Similarity
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit
from graphveil.papers.attention import Attention
from graphveil.papers.weights import (
    ClassAgree,
    ExpCos,
    HalfCos,
    Landmarks,
    LearnedPublic,
    PosteriorDot,
    ReluCos,
    SigmoidCos,
)
from graphveil.release.weights import DotWeight, Jaccard

DIM = 2


class Sharp(DotWeight):
    """A user's weight that reaches 1.2."""

    def transform(self, dots: np.ndarray) -> np.ndarray:
        """Return 1.2 cos^3, and negative values, which count as zero."""
        return 1.2 * dots**3


class OneSided(DotWeight):
    """A user's weight that differs by direction: a source counts by its first entry, above zero."""

    def transform(self, dots: np.ndarray) -> np.ndarray:
        """Return the product."""
        return dots

    def phi(self, rows: Tensor) -> Tensor:
        """Return the first entry."""
        return rows[:, :1].clamp(0, 1)

    def psi(self, rows: Tensor) -> Tensor:
        """Return one: any target listens."""
        return torch.ones(len(rows), 1)


WEIGHTS: tuple[Similarity, ...] = (
    SigmoidCos(),
    ExpCos(0.5),
    HalfCos(),
    ReluCos(),
    LearnedPublic(),
    Sharp(),
    OneSided(),
    Jaccard(),
    ClassAgree(0.2),
    PosteriorDot(),
    Attention(),
    Landmarks(HalfCos(), 3),
    Landmarks(OneSided(), 2),
)


def no_change_exceeds_its_price(
    weight: Similarity, unit: Unit, *, pairs: int = 60, seed: int = 0
) -> Mapping[str, float]:
    """Replay a hop."""
    return replay.no_change_exceeds_its_price(hops(1.0, 1, DIM, unit, weight), unit, pairs=pairs, seed=seed)


def answer(weight: Similarity, unit: Unit, edges: Adjacency, vectors: Tensor, keys: Any) -> Tensor:
    """Run the shipped path with noise that is zero."""
    plan = zero_noise_plan(unit, hops(1.0, 1, DIM, unit, weight))
    return Release.open(plan, edges, budget=MemoryLedger()).answer(NeighborSumData(vectors, keys)).double()


def directed(nodes: int, edges: Iterable[tuple[int, int]]) -> Adjacency:
    """Store directed edges."""
    return Adjacency.from_edges(*zip(*edges, strict=True), num_nodes=nodes, directed=True)


def every_weight_costs_what_it_is_charged() -> None:
    """Replay of the whole catalog, and of a user's own weights."""
    for weight in WEIGHTS:
        for unit in UNITS:
            no_change_exceeds_its_price(weight, unit)


def a_user_cannot_misstate_a_bound() -> None:
    """Replay of a weight that reaches 1.2."""
    for unit in UNITS:
        assert no_change_exceeds_its_price(Sharp(), unit, pairs=120)["0-0"] > 0.99


def weights_that_differ_by_direction_are_charged_for_both() -> None:
    """Replay where a friendship moves both rows, at the weights of its two directions."""
    assert no_change_exceeds_its_price(OneSided(), UndirectedEdge(), pairs=200)["0-0"] > 0.99


def one_edge_changes_no_other_edges_contribution() -> None:
    """A toggled edge changes rows by its own weighted vector and by nothing else, bit for bit."""
    rng = np.random.default_rng(3)
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 1), (5, 2)]
    for weight in WEIGHTS:
        keys, vectors = example_keys(weight, 6, rng), torch.from_numpy(np.eye(DIM)[rng.integers(DIM, size=6)])
        run = partial(answer, weight, DirectedEdge(), vectors=vectors, keys=keys)
        moved = run(directed(6, [*edges, (3, 1)])) - run(directed(6, edges))
        assert torch.allclose(moved, run(directed(6, [(3, 1)])), rtol=0, atol=1e-6), str(weight)


def sums_depend_on_nothing_but_the_edges() -> None:
    """Bit for bit the same for every order of the edges, size of blocks and number of threads."""
    rng, nodes, threads = np.random.default_rng(4), 200, torch.get_num_threads()
    code = np.unique(rng.integers(nodes * nodes, size=3000))
    source, target = code // nodes, code % nodes
    vectors = torch.from_numpy(rng.normal(size=(nodes, DIM)) / 4)
    for weight in WEIGHTS:
        keys, answers = example_keys(weight, nodes, np.random.default_rng(5)), []
        for block_rows, count, seed in ((1 << 16, 1, 0), (1, 1, 1), (64, 2, 2), (7, 2, 3)):
            torch.set_num_threads(count)
            order = np.random.default_rng(seed).permutation(len(source))
            graph = _unsorted(source[order], target[order], nodes)
            answers.append(_noisy(weight, graph, vectors, keys, block_rows))
        torch.set_num_threads(threads)
        assert all(torch.equal(other, answers[0]) for other in answers), str(weight)


def keys_are_bound_to_the_noise() -> None:
    """One key draws other noise where the weights are others, even if no edge shows it."""
    empty = Adjacency.from_edges([], [], num_nodes=40, directed=True)
    vectors = torch.zeros(40, DIM)
    for weight in WEIGHTS:
        first, second = (
            Release.open(
                ReleasePlan(DirectedEdge(), hops(1.0, 1, DIM, DirectedEdge(), weight), delta=1e-5),
                empty,
                budget=MemoryLedger(),
                key=ReleaseKey.from_seed(7, "pairs"),
            ).answer(NeighborSumData(vectors, example_keys(weight, 40, np.random.default_rng(seed))))
            for seed in (0, 1)
        )
        assert not torch.equal(first, second), str(weight)


def _noisy(weight: Similarity, graph: Adjacency, vectors: Tensor, keys: Any, block_rows: int) -> Tensor:
    """Return noisy rows under a key that meets no other data here, whatever the order of the edges."""
    unit = DirectedEdge()
    release = Release.open(
        ReleasePlan(unit, hops(1.0, 1, DIM, unit, weight), delta=1e-5),
        graph,
        budget=MemoryLedger(),
        key=ReleaseKey("a" * 32, bytes(32), bytes(range(32))),
        backend=InMemoryBackend(block_rows=block_rows),
    )
    release._edges_digest = ""  # two orders must meet one key here
    return release.answer(NeighborSumData(vectors, keys))


def _unsorted(source: np.ndarray, target: np.ndarray, nodes: int) -> Adjacency:
    """Store the edges by target, in the order given."""
    by_target = np.argsort(target, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=nodes))])
    return Adjacency._in_order(  # which no constructor would leave as it is
        torch.from_numpy(indptr.astype(np.int64)),
        torch.from_numpy(source[by_target].astype(np.int32)),
        True,
        EdgeSet(),
    )


def a_hub_is_summed_exactly() -> None:
    """More in-neighbors than float32 adds exactly, against an oracle in whole numbers."""
    weight, rng = HalfCos(), np.random.default_rng(6)
    for degree in (1023, 1024, 1025, 20_000):
        keys = torch.from_numpy(rng.normal(size=(degree + 1, 3)))
        vectors = torch.from_numpy(rng.random((degree + 1, DIM)) / 2)
        into_first = np.arange(1, degree + 1), np.zeros(degree, dtype=np.int64)
        star = Adjacency.from_edges(*into_first, num_nodes=degree + 1, directed=True)
        plan = zero_noise_plan(DirectedEdge(), hops(1.0, 1, DIM, DirectedEdge(), weight))
        got = Release.open(plan, star, budget=MemoryLedger()).answer(NeighborSumData(vectors, keys))[0]
        (block,) = blocks(star, degree + 1)
        whole = weight.prepare(keys).of(block).numpy().astype(np.int64)
        total = whole @ np.trunc(vectors.numpy()[1:] * 512).astype(np.int64)
        assert got.tolist() == (total / (512 * 32)).astype(np.float32).tolist(), degree


CHECKS: tuple[Callable[[], None], ...] = (
    every_weight_costs_what_it_is_charged,
    a_user_cannot_misstate_a_bound,
    weights_that_differ_by_direction_are_charged_for_both,
    one_edge_changes_no_other_edges_contribution,
    sums_depend_on_nothing_but_the_edges,
    keys_are_bound_to_the_noise,
    a_hub_is_summed_exactly,
)
