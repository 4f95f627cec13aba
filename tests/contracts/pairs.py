"""Neighbour replay of hops with weights by similarity: every weight, both units, and what must not matter."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from contracts.doubles import unnoised
from contracts.graphs import KINDS, Drawn, Pair, draw
from contracts.replay import UNITS
from graphveil.graph import Adjacency, EdgeSet
from graphveil.graph.blocks import blocks
from graphveil.privacy import DirectedEdge, MemoryLedger, UndirectedEdge, Unit
from graphveil.release import InMemoryEngine, NeighborSumData, Release, ReleaseKey, ReleasePlan
from graphveil.release.plan import hops
from graphveil.weights import (
    Attention,
    ClassAgree,
    DotWeight,
    ExpCos,
    HalfCos,
    Jaccard,
    Landmarks,
    LearnedPublic,
    PosteriorDot,
    ReluCos,
    SigmoidCos,
    Similarity,
)

DIM = 2
Keys = Callable[[int, np.random.Generator], Any]


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


@dataclass(frozen=True)
class Weighing:
    """A weight and how its keys are drawn: some alike, some apart, and some zero."""

    weight: Similarity
    keys: Keys

    def __str__(self) -> str:
        return type(self.weight).__name__


def directions(nodes: int, rng: np.random.Generator) -> Tensor:
    """Rows of norm one along the axes or anywhere, and rows of zeros."""
    anywhere = rng.normal(size=(nodes, 3))
    along = np.eye(3)[rng.integers(3, size=nodes)]
    rows = np.where(rng.random((nodes, 1)) < 0.5, along, anywhere)
    return torch.from_numpy(rows * (rng.random((nodes, 1)) < 0.9))


def posteriors(nodes: int, rng: np.random.Generator) -> Tensor:
    """Probabilities of three classes, some of them certain."""
    rows = np.where(
        rng.random((nodes, 1)) < 0.5, np.eye(3)[rng.integers(3, size=nodes)], rng.dirichlet([1, 1, 1], nodes)
    )
    return torch.from_numpy(rows)


def sets(nodes: int, rng: np.random.Generator) -> Tensor:
    """Sets of up to three members, empty ones included."""
    return torch.from_numpy((rng.random((nodes, 3)) < 0.5).astype(np.float32))


def networks(nodes: int, rng: np.random.Generator) -> tuple[Tensor, ...]:
    """Both maps of a network of three hidden units, its readout and offset; some logits are out of reach."""
    maps = (torch.from_numpy(rng.normal(size=(nodes, 3)) * 4) for _ in range(2))
    return (*maps, torch.from_numpy(rng.normal(size=3) * 3), torch.tensor(1.0))


WEIGHINGS = (
    Weighing(SigmoidCos(), directions),
    Weighing(ExpCos(0.5), directions),
    Weighing(HalfCos(), directions),
    Weighing(ReluCos(), directions),
    Weighing(LearnedPublic(), directions),
    Weighing(Sharp(), directions),
    Weighing(OneSided(), directions),
    Weighing(Jaccard(), sets),
    Weighing(ClassAgree(0.2), posteriors),
    Weighing(PosteriorDot(), posteriors),
    Weighing(Attention(), networks),
    Weighing(Landmarks(HalfCos(), 3), directions),
    Weighing(Landmarks(OneSided(), 2), directions),
)
SHARP, ONE_SIDED = WEIGHINGS[5:7]


def answer(weight: Similarity, unit: Unit, graph: Drawn, vectors: Tensor, keys: Any) -> Tensor:
    """Run the shipped path with noise that is zero."""
    plan = unnoised(unit, hops(1.0, 1, DIM, unit, weight))
    return (
        Release(plan, graph.adjacency(), budget=MemoryLedger()).ask(NeighborSumData(vectors, keys)).double()
    )


def no_change_exceeds_its_price(weighing: Weighing, unit: Unit, *, pairs: int = 60, seed: int = 0) -> float:
    """Toggle edges; return the largest change as a share of the sensitivity."""
    rng, weight, largest = np.random.default_rng(seed), weighing.weight, 0.0
    (query,) = hops(1.0, 1, DIM, unit, weight)
    declared = query.sensitivity(unit)
    for kind in KINDS * max(1, pairs // 60):
        graph = draw(kind, directed=isinstance(unit, DirectedEdge), rng=rng)
        keys = weighing.keys(graph.nodes, rng)
        vectors = torch.from_numpy(np.eye(DIM)[rng.integers(DIM, size=graph.nodes)])
        before = answer(weight, unit, graph, vectors, keys)
        for pair in graph.pairs():
            after = answer(weight, unit, graph.toggled(pair), vectors, keys)
            change = float((after - before).norm())
            assert change <= declared * (1 + 1e-6), f"{weighing} moves {change:.6f}, priced {declared:.6f}"
            _only_the_ends_hear_of_it(pair, unit, before, after)
            largest = max(largest, change / declared)
    return largest


def _only_the_ends_hear_of_it(pair: Pair, unit: Unit, before: Tensor, after: Tensor) -> None:
    ends = set(pair[1:] if isinstance(unit, DirectedEdge) else pair)
    assert set((before != after).nonzero()[:, 0].tolist()) <= ends, "a third row has changed"


def every_weight_costs_what_it_is_booked_with() -> None:
    """Replay of the whole catalogue, and of a user's own weights."""
    for weighing in WEIGHINGS:
        for unit in UNITS:
            no_change_exceeds_its_price(weighing, unit)


def a_user_cannot_misstate_a_bound() -> None:
    """Replay of a weight that reaches 1.2."""
    for unit in UNITS:
        assert no_change_exceeds_its_price(SHARP, unit, pairs=120, seed=1) > 0.99


def weights_that_differ_by_direction_are_charged_for_both() -> None:
    """Replay where a friendship moves both rows, at the weights of its two directions."""
    assert no_change_exceeds_its_price(ONE_SIDED, UndirectedEdge(), pairs=120, seed=2) > 0.99


def one_edge_changes_no_other_edges_contribution() -> None:
    """A toggled edge changes rows by its own weighted vector and by nothing else, bit for bit."""
    rng = np.random.default_rng(3)
    for weighing in WEIGHINGS:
        graph = Drawn(6, ((0, 1), (1, 2), (2, 3), (3, 0), (4, 1), (5, 2)), directed=True)
        keys, vectors = weighing.keys(6, rng), torch.from_numpy(np.eye(DIM)[rng.integers(DIM, size=6)])
        run = partial(answer, weighing.weight, DirectedEdge(), vectors=vectors, keys=keys)
        alone = run(Drawn(6, ((3, 1),), directed=True))
        moved = run(graph.toggled((3, 1))) - run(graph)
        assert torch.allclose(moved, alone, rtol=0, atol=1e-6), str(weighing)


def sums_depend_on_nothing_but_the_edges() -> None:
    """Bit for bit the same for every order of the edges, size of blocks and number of threads."""
    rng, nodes, threads = np.random.default_rng(4), 200, torch.get_num_threads()
    code = np.unique(rng.integers(nodes * nodes, size=3000))
    source, target = code // nodes, code % nodes
    vectors = torch.from_numpy(rng.normal(size=(nodes, DIM)) / 4)
    for weighing in WEIGHINGS:
        keys, answers = weighing.keys(nodes, np.random.default_rng(5)), []
        for block_rows, count, seed in ((1 << 16, 1, 0), (1, 1, 1), (64, 2, 2), (7, 2, 3)):
            torch.set_num_threads(count)
            order = np.random.default_rng(seed).permutation(len(source))
            graph = _unsorted(source[order], target[order], nodes)
            answers.append(_noisy(weighing.weight, graph, vectors, keys, block_rows))
        torch.set_num_threads(threads)
        assert all(torch.equal(other, answers[0]) for other in answers), str(weighing)


def keys_are_bound_to_the_noise() -> None:
    """One key draws other noise where the weights are others, even if no edge shows it."""
    empty = Adjacency.from_edges([], [], num_nodes=40, directed=True)
    vectors = torch.zeros(40, DIM)
    for weighing in WEIGHINGS:
        first, second = (
            Release(
                ReleasePlan(DirectedEdge(), hops(1.0, 1, DIM, DirectedEdge(), weighing.weight), delta=1e-5),
                empty,
                budget=MemoryLedger(),
                key=ReleaseKey.from_seed(7, "pairs"),
            ).ask(NeighborSumData(vectors, weighing.keys(40, np.random.default_rng(seed))))
            for seed in (0, 1)
        )
        assert not torch.equal(first, second), str(weighing)


def _noisy(weight: Similarity, graph: Adjacency, vectors: Tensor, keys: Any, block_rows: int) -> Tensor:
    """Return noisy rows under a key that meets no other data here, whatever the order of the edges."""
    unit = DirectedEdge()
    release = Release(
        ReleasePlan(unit, hops(1.0, 1, DIM, unit, weight), delta=1e-5),
        graph,
        budget=MemoryLedger(),
        key=ReleaseKey("a" * 32, bytes(32), bytes(range(32))),
        engine=InMemoryEngine(block_rows=block_rows),
    )
    release._edges_digest = ""  # two orders must meet one key here
    return release.ask(NeighborSumData(vectors, keys))


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
    """More in-neighbours than float32 adds exactly, against an oracle in whole numbers."""
    weight, rng = HalfCos(), np.random.default_rng(6)
    for degree in (1023, 1024, 1025, 20_000):
        keys = torch.from_numpy(rng.normal(size=(degree + 1, 3)))
        vectors = torch.from_numpy(rng.random((degree + 1, DIM)) / 2)
        into_first = np.arange(1, degree + 1), np.zeros(degree, dtype=np.int64)
        star = Adjacency.from_edges(*into_first, num_nodes=degree + 1, directed=True)
        plan = unnoised(DirectedEdge(), hops(1.0, 1, DIM, DirectedEdge(), weight))
        got = Release(plan, star, budget=MemoryLedger()).ask(NeighborSumData(vectors, keys))[0]
        (block,) = blocks(star, degree + 1)
        whole = weight.prepare(keys).of(block).numpy().astype(np.int64)
        total = whole @ np.trunc(vectors.numpy()[1:] * 512).astype(np.int64)
        assert got.tolist() == (total / (512 * 32)).astype(np.float32).tolist(), degree


CHECKS: tuple[Callable[[], None], ...] = (
    every_weight_costs_what_it_is_booked_with,
    a_user_cannot_misstate_a_bound,
    weights_that_differ_by_direction_are_charged_for_both,
    one_edge_changes_no_other_edges_contribution,
    sums_depend_on_nothing_but_the_edges,
    keys_are_bound_to_the_noise,
    a_hub_is_summed_exactly,
)
