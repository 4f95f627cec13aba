"""Record replay: null or replace one record, run the shipped path without noise, and measure what has moved.

A record is a list of nodes and the vectors that its node sends, one a push. Lengths are in noise units: what
moves is divided by the noise of its query. A record's *price* is what the plan's events charge its group.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from contracts.doubles import unnoised
from contracts.graphs import KINDS, draw
from graphveil.graph import Adjacency
from graphveil.privacy import ByGroup, MemoryLedger, NodeOwner, NodePromise, NodeUnit
from graphveil.propagation import safe_unit
from graphveil.release import NeighborSumData, NeighborSumQuery, PushData, PushQuery, Release
from graphveil.release.plan import hops

DIM = 3
LEVELS = (0, 4, 16, 81)
BOUNDS = (1.0, 1.118033988749895, 0.0)  # labelled, not labelled, silent
OWNER, REPLACED = NodeOwner(), NodeOwner(replace_one=True)

Lists = tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Records:
    """Everybody's own list, and vectors to send, one matrix a push."""

    lists: Lists
    vectors: tuple[Tensor, ...]
    directed: bool

    @classmethod
    def drawn(cls, lists: Lists, pushes: int, rng: np.random.Generator, *, directed: bool) -> "Records":
        """Draw vectors of any direction; some are zero, short, or longer than any bound, in every push."""
        length = lengths(len(lists), rng)
        return cls(lists, tuple(some_rows(length, rng) for _ in range(pushes)), directed)

    def adjacency(self) -> Adjacency:
        """Store the lists. Those of an undirected graph agree, until a record is nulled."""
        edges = [(u, v) for u, own in enumerate(self.lists) for v in own]
        source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        graph = Adjacency.from_edges(source, target, num_nodes=len(self.lists), directed=True)
        return dataclasses.replace(graph, directed=self.directed)

    def replaced(self, q: int, own: frozenset[int], vectors: list[Tensor]) -> "Records":
        """Return the records with another one in q's place."""
        lists = (*self.lists[:q], own - {q}, *self.lists[q + 1 :])
        changed = tuple(x.clone() for x in self.vectors)
        for x, row in zip(changed, vectors, strict=True):
            x[q] = row
        return dataclasses.replace(self, lists=lists, vectors=changed)

    def nulled(self, q: int) -> "Records":
        """Return the records with a null record in q's place."""
        return self.replaced(q, frozenset(), [torch.zeros(DIM, dtype=torch.float64) for _ in self.vectors])

    def neighbours(self, q: int, unit: NodeUnit, rng: np.random.Generator) -> Iterator["Records"]:
        """Yield neighbours that differ in q's record: the worst one of the relation, and another one."""
        yield self.nulled(q)
        if unit.replace_one:
            yield self.replaced(q, self.lists[q], [-x[q] for x in self.vectors])
            other = frozenset(np.flatnonzero(rng.random(len(self.lists)) < 0.5).tolist())
            yield self.replaced(q, other, [some_rows(lengths(1, rng), rng)[0] for _ in self.vectors])


@dataclass(frozen=True)
class Pushes:
    """What is asked, and with which public groups and levels."""

    unit: NodeUnit
    queries: tuple[PushQuery, ...]
    groups: Tensor
    levels: tuple[Tensor, ...]

    @classmethod
    def drawn(cls, unit: NodeUnit, nodes: int, rng: np.random.Generator) -> "Pushes":
        """Two pushes: one that treats rows alike, and one whose levels vary."""
        budget = int(rng.integers(1, 5))
        queries = (
            PushQuery(dim=DIM, sigma=2.0, degree_budget=budget, bounds=BOUNDS),
            PushQuery(dim=DIM, sigma=3.0, degree_budget=budget, bounds=BOUNDS, levels=LEVELS),
        )
        alike, varied = np.zeros(nodes, dtype=np.int64), rng.integers(len(LEVELS), size=nodes)
        groups = torch.from_numpy(rng.integers(len(BOUNDS), size=nodes))
        return cls(unit, queries, groups, (torch.from_numpy(alike), torch.from_numpy(varied)))

    def answers(self, records: Records) -> list[Tensor]:
        """Run the shipped path with noise that is zero."""
        plan = unnoised(self.unit, self.queries)
        release = Release(plan, records.adjacency(), self.groups, budget=MemoryLedger())
        return [
            release.ask(PushData(x, index)).double()
            for x, index in zip(records.vectors, self.levels, strict=True)
        ]

    def moved(self, before: list[Tensor], after: list[Tensor]) -> float:
        """Return the length of the difference of two transcripts, in noise units."""
        parts = zip(self.queries, before, after, strict=True)
        return math.sqrt(sum(float(((x - y) / query.sigma).square().sum()) for query, x, y in parts))

    def price(self, q: int) -> float:
        """Return what the plan's events charge q's group."""
        squares = 0.0
        for query in self.queries:
            event = query.event(self.unit)
            assert isinstance(event, ByGroup)
            squares += event.events[int(self.groups[q])].mu ** 2  # type: ignore[union-attr]
        return math.sqrt(squares)


def lengths(nodes: int, rng: np.random.Generator) -> Tensor:
    """Draw lengths: a bound, or zero, short, or longer than allowed."""
    return torch.from_numpy(rng.choice([0.0, 0.4, 1.0, 1.0, BOUNDS[1], BOUNDS[1], 1.3, 40.0], size=nodes))


def some_rows(length: Tensor, rng: np.random.Generator) -> Tensor:
    """Rows of these lengths in any direction."""
    return safe_unit(torch.from_numpy(rng.normal(size=(len(length), DIM)))) * length[:, None]


def lists_of(kind: str, rng: np.random.Generator, *, directed: bool) -> Lists:
    """Draw everybody's list, from one of the small graphs."""
    graph = draw(kind, directed=directed, rng=rng)
    own: list[set[int]] = [set() for _ in range(graph.nodes)]
    for u, v in graph.edges:
        own[u].add(v)
        if not directed:
            own[v].add(u)
    return tuple(map(frozenset, own))


def every_case(
    unit: NodeUnit, graphs: int, seed: int, *, directed: bool
) -> Iterator[tuple[Pushes, Records, np.random.Generator]]:
    """Yield cases over all kinds of graphs, this many of each kind."""
    rng = np.random.default_rng(seed)
    for _ in range(graphs):
        for kind in KINDS:
            lists = lists_of(kind, rng, directed=directed)
            yield Pushes.drawn(unit, len(lists), rng), Records.drawn(lists, 2, rng, directed=directed), rng


def no_record_exceeds_its_price(
    unit: NodeUnit, *, graphs: int = 6, seed: int = 0, directed: bool = True
) -> dict[int, float]:
    """Null or replace every record; return, by group, the largest move as a share of the record's price."""
    largest: dict[int, float] = defaultdict(float)
    for case, records, rng in every_case(unit, graphs, seed, directed=directed):
        before = case.answers(records)
        total = unnoised(unit, case.queries).mu
        for q in range(len(records.lists)):
            price, group = case.price(q), int(case.groups[q])
            assert price <= total * (1 + 1e-12), "a group is priced above the plan's total"
            for neighbour in records.neighbours(q, unit, rng):
                move = case.moved(before, case.answers(neighbour))
                # Answers are float32, which may be off by 6e-8 of themselves.
                assert move <= price * (1 + 1e-6), f"a record moves {move:.6f}, priced {price:.6f}"
                largest[group] = max(largest[group], move / price if price else 0.0)
    return dict(largest)


def no_mutual_edge_exceeds_its_bound(*, graphs: int = 4, seed: int = 1) -> float:
    """Put every pair on both ends' lists, and on neither; return the largest move as a share of the bound."""
    largest = 0.0
    for case, drawn, _ in every_case(OWNER, graphs, seed, directed=True):
        nodes = len(drawn.lists)
        bounds = torch.tensor(BOUNDS, dtype=torch.float64)[case.groups, None]
        within = tuple(safe_unit(x) * bounds for x in drawn.vectors)  # the bound is for such vectors only
        records = dataclasses.replace(drawn, vectors=within)
        limits = [query.edge_shift(nodes) / query.sigma for query in case.queries]
        for u in range(nodes):
            for v in range(u):
                with_edge, without = (_mutual(records, u, v, present) for present in (True, False))
                for query, x, y, limit in zip(
                    case.queries, case.answers(with_edge), case.answers(without), limits, strict=True
                ):
                    move = float(((x - y) / query.sigma).norm())
                    assert move <= limit * (1 + 1e-6), f"a mutual edge moves {move:.6f}, bound {limit:.6f}"
                    largest = max(largest, move / limit)
    return largest


def _mutual(records: Records, u: int, v: int, present: bool) -> Records:
    lists = list(records.lists)
    for one, other in ((u, v), (v, u)):
        lists[one] = lists[one] | {other} if present else lists[one] - {other}
    return dataclasses.replace(records, lists=tuple(lists))


def no_promised_node_exceeds_its_price(
    *, replace_one: bool = False, graphs: int = 6, seed: int = 0, directed: bool = True
) -> float:
    """Delete every node with all its edges; return the largest share of its price that others move by."""
    rng, largest = np.random.default_rng(seed), 0.0
    for _ in range(graphs):
        for kind in KINDS:
            lists = lists_of(kind, rng, directed=directed)
            records = Records.drawn(lists, 1, rng, directed=directed)
            into = [sum(v in own for own in lists) for v in range(len(lists))]
            unit = NodePromise(max_degree=max(1, *into, *map(len, lists)), replace_one=replace_one)
            queries = hops(0.5, 1, DIM, unit)
            before = _hop(unit, queries, records)
            for q in range(len(lists)):
                for other in _without(records, q, unit):
                    moved = (_hop(unit, queries, other) - before) / queries[0].sigma[0]
                    moved[q] = 0.0  # q's own row is for q
                    share = float(moved.norm()) / 0.5
                    assert share <= 1 + 1e-6, f"a node moves {share:.6f} of its price"
                    largest = max(largest, share)
    return largest


def _without(records: Records, q: int, unit: NodePromise) -> Iterator[Records]:
    """Yield neighbours of a promised graph: q has no edges, or the same ones and an opposite vector."""
    nulled = records.nulled(q)
    yield dataclasses.replace(nulled, lists=tuple(own - {q} for own in nulled.lists))
    if unit.replace_one:
        yield records.replaced(q, records.lists[q], [-x[q] for x in records.vectors])


def _hop(unit: NodePromise, queries: tuple[NeighborSumQuery, ...], records: Records) -> Tensor:
    release = Release(unnoised(unit, queries), records.adjacency(), budget=MemoryLedger())
    return release.ask(NeighborSumData(records.vectors[0])).double()
