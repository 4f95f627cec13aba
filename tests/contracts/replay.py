"""Neighbour replay: toggle an edge, run the shipped path without noise, and measure what has changed.

Lengths are in noise units: every row is divided by its noise's standard deviation. A pair's *price* is what
the plan's events charge for it; no change may exceed it, and some change must attain it.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from contracts.doubles import NoNoise, unnoised
from contracts.graphs import KINDS, Drawn, Pair, draw
from graphveil.privacy import DirectedEdge, MemoryLedger, UndirectedEdge, Unit
from graphveil.propagation import safe_unit
from graphveil.release import (
    EdgeCountData,
    EdgeCountQuery,
    GroupWeights,
    NeighborSumData,
    NeighborSumQuery,
    Release,
)
from graphveil.release.query import GRID_BITS, Query

MU = 0.7
CLASSES, DIM = 3, 2
COUNT_SHARE = 0.05
CODES = torch.tensor([[1.0, 0.0], [-0.5, math.sqrt(0.75)], [-0.5, -math.sqrt(0.75)]], dtype=torch.float64)
UNITS: tuple[Unit, ...] = (UndirectedEdge(), DirectedEdge())
GROUP_NAMES = ("Tr", "V", "T")


@dataclass(frozen=True)
class Method:
    """A way to release: a name and its queries for a total mu."""

    name: str
    queries: Callable[[Unit, float, int], tuple[Query, ...]]

    def __str__(self) -> str:
        return self.name


def _hops(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    weights = GroupWeights.one()
    shares = (0.5, 0.3, 0.2)
    return tuple(
        NeighborSumQuery(weights, (weights.sensitivity(unit) / (mu * math.sqrt(share)),), DIM, bits)
        for share in shares
    )


def _equal(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    weights = GroupWeights.equal("train/val/target", 3)
    return (NeighborSumQuery(weights, (weights.sensitivity(unit) / mu,) * 3, DIM, bits),)


def _counts(mu: float, bits: int) -> EdgeCountQuery:
    sigma = 1 / (mu * math.sqrt(COUNT_SHARE))
    return EdgeCountQuery("train/val/target", (True, True, False), CLASSES, (sigma,), bits)


def _steered(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    labelled = 1 / (mu * math.sqrt(1 - COUNT_SHARE))
    return (
        NeighborSumQuery(GroupWeights.steered(), (labelled, labelled, 1 / mu), DIM, bits),
        _counts(mu, bits),
    )


def _few_labels(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    labelled = 1 / (mu * math.sqrt((1 - COUNT_SHARE) / 2))
    hop = NeighborSumQuery(GroupWeights.few_labels(0.3), (labelled, labelled, math.sqrt(2) / mu), DIM, bits)
    return (hop, hop, _counts(mu, bits))


ONE = Method("one, three hops", _hops)
EQUAL = Method("equal", _equal)
STEERED = Method("steered and counts", _steered)
FEW_LABELS = Method("few labels, two hops and counts", _few_labels)
METHODS = (ONE, EQUAL, STEERED, FEW_LABELS)


@dataclass(frozen=True)
class Case:
    """What a release is asked with, apart from the edges: public, and the same for both neighbours."""

    unit: Unit
    queries: tuple[Query, ...]
    groups: Tensor
    labels: Tensor
    vectors: tuple[Tensor, ...]  # one matrix a hop: what the hops before have released

    @classmethod
    def drawn(cls, method: Method, unit: Unit, nodes: int, rng: np.random.Generator, bits: int) -> "Case":
        """Draw groups, labels and vectors: hard codes, or rows of any direction and length."""
        queries = method.queries(unit, MU, bits)
        labels = torch.from_numpy(rng.integers(CLASSES, size=nodes))
        hard = rng.random() < 0.5
        vectors = tuple(CODES[labels] if hard else _rows(nodes, rng) for _ in queries)
        groups = torch.from_numpy(rng.integers(3, size=nodes))
        return cls(unit, queries, groups, labels, vectors)

    def answers(self, graph: Drawn) -> list[Tensor]:
        """Run the shipped path with noise that is zero."""
        plan, adjacency = unnoised(self.unit, self.queries), graph.adjacency()
        release = Release(plan, adjacency, self.groups, budget=MemoryLedger())
        return [
            release.ask(NeighborSumData(rows)).double()
            if isinstance(query, NeighborSumQuery)
            else release.ask(EdgeCountData(self.labels))
            for query, rows in zip(self.queries, self.vectors, strict=True)
        ]

    def price(self, pair: Pair) -> float:
        """Return what the plan's events charge for this pair's edge."""
        g, h = (int(self.groups[v]) for v in pair)
        events = [query.event(self.unit) for query in self.queries]
        tables = [np.array(event.mu_squared) for event in events]
        return math.sqrt(sum(table[g, h] if table.size > 1 else table[0, 0] for table in tables))

    def total(self) -> float:
        """Return the mu that the whole plan is booked with."""
        return unnoised(self.unit, self.queries).mu

    def changed(self, before: list[Tensor], after: list[Tensor]) -> float:
        """Return the length of the difference of two transcripts, in noise units."""
        squares = 0.0
        for query, x, y in zip(self.queries, before, after, strict=True):
            sigma = torch.tensor(query.sigma, dtype=torch.float64)
            scale = sigma[self.groups, None] if len(sigma) > 1 else sigma
            squares += float(((x - y) / scale).square().sum())
        return math.sqrt(squares)

    def type_of(self, pair: Pair) -> str:
        """Name the pair by its groups, labelled ends first."""
        g, h = sorted(int(self.groups[v]) for v in pair)
        return f"{GROUP_NAMES[g]}-{GROUP_NAMES[h]}"


def _rows(nodes: int, rng: np.random.Generator) -> Tensor:
    """Rows of norm one in any direction, and some that are zero, short, or longer than allowed."""
    rows = safe_unit(torch.from_numpy(rng.normal(size=(nodes, DIM))))
    length = torch.from_numpy(rng.choice([0.0, 0.4, 1.0, 1.0, 1.0, 1.2, 40.0], size=nodes))
    return rows * length[:, None]


def cases(
    method: Method, unit: Unit, *, pairs: int, seed: int, bits: int
) -> Iterator[tuple[Case, Drawn, Iterator[Pair]]]:
    """Yield cases over all kinds of graphs until this many pairs have been toggled."""
    rng = np.random.default_rng(seed)
    left = pairs
    while left > 0:
        for kind in KINDS:
            graph = draw(kind, directed=isinstance(unit, DirectedEdge), rng=rng)
            chosen = list(graph.pairs())
            yield Case.drawn(method, unit, graph.nodes, rng, bits), graph, iter(chosen)
            left -= len(chosen)


def no_change_exceeds_its_price(
    method: Method, unit: Unit, *, pairs: int = 200, seed: int = 0, bits: int = GRID_BITS
) -> dict[str, float]:
    """Toggle edges; return, by type of pair, the largest change as a share of the pair's price."""
    largest: dict[str, float] = defaultdict(float)
    for case, graph, chosen in cases(method, unit, pairs=pairs, seed=seed, bits=bits):
        before, total = case.answers(graph), case.total()
        for pair in chosen:
            after, price, name = case.answers(graph.toggled(pair)), case.price(pair), case.type_of(pair)
            change = case.changed(before, after)
            assert price <= total * (1 + 1e-12), f"{name} is priced above the plan's total"
            assert change <= price * (1 + 1e-9), f"{name} moves {change:.6f}, priced {price:.6f}"
            only_the_two_ends_hear_of_it(case, pair, before, after)
            largest[name] = max(largest[name], change / price)
    return dict(largest)


def only_the_two_ends_hear_of_it(case: Case, pair: Pair, before: list[Tensor], after: list[Tensor]) -> None:
    """No row but the pair's, and at most one cell, changes by a single bit."""
    ends = set(pair[1:] if isinstance(case.unit, DirectedEdge) else pair)
    for query, x, y in zip(case.queries, before, after, strict=True):
        moved = (x != y).nonzero()
        if isinstance(query, NeighborSumQuery):
            assert set(moved[:, 0].tolist()) <= ends, "a third row has changed"
        else:
            assert len(moved) <= 1, "more than one cell has changed"


def neighbours_draw_the_same_noise(method: Method, unit: Unit, *, pairs: int = 60, seed: int = 2) -> None:
    """Toggle edges: shapes, laws of noise, and the rows that they are drawn for stay the same."""
    for case, graph, chosen in cases(method, unit, pairs=pairs, seed=seed, bits=GRID_BITS):
        shapes, asked = _asked(case, graph)
        rows = sorted(row for _, drawn, dim in asked if dim == DIM for row in drawn)
        hops = sum(isinstance(query, NeighborSumQuery) for query in case.queries)
        assert rows == sorted([*range(graph.nodes)] * hops), "a row goes without noise"
        for pair in chosen:
            others, noise = _asked(case, graph.toggled(pair))
            assert others == shapes, "a shape depends on an edge"
            assert noise == asked, "noise depends on an edge"


def _asked(case: Case, graph: Drawn) -> tuple[list[torch.Size], list[tuple[float, tuple[int, ...], int]]]:
    """Return the shapes of the answers, and what noise was drawn for them."""
    NoNoise.asked.clear()
    shapes = [answer.shape for answer in case.answers(graph)]
    return shapes, NoNoise.asked.copy()
