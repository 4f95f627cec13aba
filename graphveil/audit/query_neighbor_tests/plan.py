"""Neighbor replay of plans: the shipped release path without noise, on small graphs and their neighbors.

Both sides are asked the same, so what differs is what the edges or the record said. The difference over the
noise is compared with what the plan's events charge for this very pair, and nothing else may differ: no
shape, no noise that is drawn, no row that the pair does not reach.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.laws import Law, LossLowerBound
from graphveil.audit.query_neighbor_tests.charged_losses import GRID, OF_MU, ChargedLoss, charged_loss
from graphveil.audit.query_neighbor_tests.neighbor_families import (
    NODES,
    Families,
    Family,
    adjacency,
    family,
    mutual_edges,
)
from graphveil.audit.query_neighbor_tests.query_inputs import (
    NeighborView,
    answers_node_pairs,
    has_row_per_node,
    is_own_row_private,
    law,
    query_data,
    reachable_rows,
    single_step_query,
)
from graphveil.audit.report import Finding, NeighborTestResult
from graphveil.audit.zero_noise import Draw, RecordingZeroNoise, zero_noise_plan
from graphveil.errors import ConfigError
from graphveil.ledger import MemoryLedger
from graphveil.privacy import NodeRecord, NodeUnit, Unit, compose
from graphveil.privacy.accountant import total_mu
from graphveil.release import OutEdgeSumQuery, Release
from graphveil.release.query import Query, QueryData

Floats = npt.NDArray[np.float64]

PAIRS = 200


@checked
def neighbor_test_plan(
    unit: Unit, queries: tuple[Query, ...], *, pairs: int = PAIRS, seed: int = 0
) -> NeighborTestResult | None:
    """Replay queries of one release on random neighbors; None where no small graph is about them.

    Every query is asked as a plan of all of them would ask, with noise that is zero, on graphs of every kind.
    The claim is the price of each pair: what the queries' own events charge for the groups of its ends, or
    of its record.

    Args:
        unit: what is protected.
        queries: of one release, in order.
        pairs: how many neighbors to compare.
        seed: of everything that is drawn.

    >>> from graphveil.privacy import UndirectedEdge
    >>> from graphveil.release.plan import hops
    >>> found = neighbor_test_plan(UndirectedEdge(), hops(1.0, 2, 4), pairs=20)
    >>> found.broken, found.attained["0-0"] > 0.99
    (False, True)
    """
    _check_pairs(pairs, seed)
    if not queries:
        raise ConfigError("queries is empty; give at least one query of a plan.")
    if any(query_data.dispatch(type(query)) is query_data.dispatch(object) for query in queries):
        return None
    return _Replay(unit, queries).over(lambda rng, seeds: family(unit, rng, seeds), pairs, seed)


@checked
def neighbor_test_query(
    query: Query, unit: Unit, *, pairs: int = PAIRS, seed: int = 0
) -> NeighborTestResult | None:
    """Replay one query of a plan on random neighbors; None where it cannot be asked about small graphs.

    >>> from graphveil.privacy import UndirectedEdge
    >>> from graphveil.release.plan import hops
    >>> (query,) = hops(1.0, 1, 4)
    >>> neighbor_test_query(query, UndirectedEdge(), pairs=20).broken
    False
    """
    return neighbor_test_plan(unit, (query,), pairs=pairs, seed=seed)


@checked
def neighbor_test_mutual_edges(
    query: OutEdgeSumQuery, *, pairs: int = PAIRS, seed: int = 0
) -> NeighborTestResult:
    """Replay a push on pairs of nodes that list each other, or do not; the price is its bound for an edge.

    >>> neighbor_test_mutual_edges(OutEdgeSumQuery(dim=2, sigma=2.0), pairs=20).broken
    False
    """
    _check_pairs(pairs, seed)
    found = _MutualReplay(NodeRecord(), (query,)).over(mutual_edges, pairs, seed)
    assert found is not None
    return found


def _check_pairs(pairs: int, seed: int) -> None:
    checks.integer_at_least(1, pairs=pairs)
    checks.integer_at_least(0, seed=seed)


@dataclass(frozen=True, eq=False)
class _Answers:
    """What one side told: the sums, and what noise was drawn for them."""

    answers: list[Floats]
    drawn: list[Draw]


class _Replay:
    """A replay under way: what was found, the smallest pair of each kind, and what prices were attained."""

    def __init__(self, unit: Unit, queries: tuple[Query, ...]) -> None:
        self._unit, self._queries = unit, tuple(map(single_step_query, queries))
        self._events = [query.event(unit) for query in self._queries]
        self._groups = max(query.groups for query in self._queries)
        self._weighted = any(query.reads_edge_weights for query in self._queries)
        self._recorded_price = self._total()
        self._sampler = RecordingZeroNoise.with_new_list()
        self._plan = zero_noise_plan(unit, self._queries, self._sampler)
        self._found: dict[str, Finding] = {}
        self._attained: dict[str, float] = {}
        self._largest = LossLowerBound()
        self._pairs = 0

    def over(self, families: Families, pairs: int, seed: int) -> NeighborTestResult | None:
        """Compare so many pairs of neighbors; None where the unit has none."""
        started, number = time.perf_counter(), 0
        while self._pairs < pairs:
            drawn = families(np.random.default_rng([seed, number]), (seed, number, 1))
            if drawn is None:
                return None
            self._compare(drawn, pairs - self._pairs)
            number += 1
        return self._report(time.perf_counter() - started)

    def privacy_cost(self, groups: tuple[int, ...], nodes: int) -> ChargedLoss:
        """Return what is charged what differs, whose nodes are in these groups."""
        return sum((charged_loss(event, groups) for event in self._events), ChargedLoss())

    def view(self, drawn: Family, number: int, groups: Tensor) -> NeighborView:
        """Return what a query sees."""
        return NeighborView(drawn.graph, drawn.public, groups, number)

    def _total(self) -> ChargedLoss:
        """Return what the whole plan is booked with; no pair may cost more."""
        gaussian = total_mu(compose(*self._events))
        return ChargedLoss(math.inf if gaussian is None else gaussian, math.inf)

    def _compare(self, drawn: Family, most: int) -> None:
        groups = torch.from_numpy(drawn.public.draw("groups").integers(self._groups, size=drawn.public.nodes))
        worlds = [self.view(drawn, number, groups) for number in range(len(self._queries))]
        data = self._data(worlds)
        for first, neighbor in enumerate(drawn.neighbors[:most] if data else ()):
            if not first:
                before = self._answers_of(worlds, data)
            others = [replace(view, graph=neighbor.graph) for view in worlds]
            of_records = isinstance(self._unit, NodeUnit)  # elsewhere they are public
            after = self._answers_of(others, self._data(others) if of_records else data)
            self._pairs += 1
            self._judge(_Pair(worlds, others, before, after, neighbor.place))

    def _data(self, worlds: list[NeighborView]) -> list[QueryData[Any]]:
        """Return what the queries are asked with; nothing if one cannot be asked about this graph."""
        data = [query_data(query, view) for query, view in zip(self._queries, worlds, strict=True)]
        present = [one for one in data if one is not None]
        return present if len(present) == len(data) else []

    def _answers_of(self, worlds: list[NeighborView], data: list[QueryData[Any]]) -> _Answers:
        """Ask all queries as one release."""
        self._sampler.drawn.clear()
        first = worlds[0]
        edges = adjacency(first.graph, first.public, weighted=self._weighted)
        release = Release.open(self._plan, edges, first.groups, budget=MemoryLedger(), label="audit")
        return _Answers([release.answer(one).double().numpy() for one in data], self._sampler.drawn.copy())

    def _judge(self, pair: "_Pair") -> None:
        """Compare one pair, and note what is wrong."""
        if not pair.of_one_shape(self._queries):
            self._note("shape", LossLowerBound(certain=1.0), pair)
            return
        if pair.before.drawn != pair.after.drawn:
            self._note("noise scale", LossLowerBound(certain=1.0), pair)
        groups = tuple(int(pair.worlds[0].groups[node]) for node in pair.place)
        privacy_cost = self.privacy_cost(groups, pair.worlds[0].public.nodes)
        if privacy_cost.mu > self._recorded_price.mu * (1 + GRID):
            self._note("privacy_cost", LossLowerBound(mu_squared=privacy_cost.mu**2), pair)
        laws = pair.laws(self._queries, self._unit)
        loss = sum((one.against(other, 0.0) for one, other in laws), LossLowerBound())
        if loss.mu_squared > self._largest.mu_squared or loss.pure > self._largest.pure:
            self._largest = loss
        if not privacy_cost.is_satisfied_by(loss):
            self._note("change", loss, pair)
        if pair.reaches_too_far(self._queries, self._unit):
            self._note("reach", loss, pair)
        name = "-".join(map(str, sorted(groups)))
        self._attained[name] = max(
            self._attained.get(name, 0.0), 0.0 if loss.none else privacy_cost.share(loss)
        )

    def _note(self, kind: str, loss: LossLowerBound, pair: "_Pair") -> None:
        finding = Finding(kind, loss.epsilon(OF_MU), loss.mu, pair.worlds[0].graph, pair.others[0].graph)
        known = self._found.get(kind)
        if known is None or finding.size < known.size:
            self._found[kind] = finding

    def _report(self, seconds: float) -> NeighborTestResult:
        edges = not isinstance(self._unit, NodeUnit)
        every = product(range(self._groups), repeat=2 if edges else 1)
        worst = max(
            (self.privacy_cost(groups, NODES) for groups in every),
            key=lambda privacy_cost: privacy_cost.at[0],
        )
        return NeighborTestResult(
            unit=self._unit.name,
            claim=worst.claim,
            findings=tuple(sorted(self._found.values(), key=lambda finding: -finding.epsilon)),
            pairs=self._pairs,
            seconds=seconds,
            largest=self._largest.epsilon(OF_MU),
            largest_mu=self._largest.mu,
            steps=len(self._queries),
            hidden=False,
            attained=dict(sorted(self._attained.items())),
        )


class _MutualReplay(_Replay):
    """A replay of a friendship on both ends' lists, for vectors within their bounds."""

    def privacy_cost(self, groups: tuple[int, ...], nodes: int) -> ChargedLoss:
        """Return what a mutual edge may move at most, in a graph of so many nodes."""
        pushes = [query for query in self._queries if isinstance(query, OutEdgeSumQuery)]
        return sum((ChargedLoss(query.edge_shift(nodes) / query.sigma) for query in pushes), ChargedLoss())

    def view(self, drawn: Family, number: int, groups: Tensor) -> NeighborView:
        """Return what a query sees."""
        return replace(super().view(drawn, number, groups), within=True)

    def _total(self) -> ChargedLoss:
        return ChargedLoss(math.inf, math.inf)  # an edge is in two records


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two neighbors: what each query saw, what all told, and where they differ."""

    worlds: list[NeighborView]
    others: list[NeighborView]
    before: _Answers
    after: _Answers
    place: tuple[int, ...]

    def of_one_shape(self, queries: tuple[Query, ...]) -> bool:
        """Whether answers have shapes that are public: the same on both sides, and rows one for each node."""
        return all(
            has_row_per_node(query, one, x)
            and has_row_per_node(query, other, y)
            and (x.shape == y.shape or answers_node_pairs(query))
            for query, one, other, x, y in self._parts(queries)
        )

    def laws(self, queries: tuple[Query, ...], unit: Unit) -> list[tuple[Law, Law]]:
        """Return the laws of all answers, without rows that are for what differs itself."""
        return [
            (law(query, one, self._seen(query, unit, x)), law(query, other, self._seen(query, unit, y)))
            for query, one, other, x, y in self._parts(queries)
        ]

    def reaches_too_far(self, queries: tuple[Query, ...], unit: Unit) -> bool:
        """Whether a row changes that no edge of what differs leads to."""
        both = self.worlds[0].graph, self.others[0].graph
        for query, _, _, x, y in self._parts(queries):
            rows = reachable_rows(query, unit, both, self.place)
            if rows is not None and not {*np.nonzero((x != y).any(axis=1))[0].tolist()} <= {
                *rows,
                *self._own(query, unit),
            }:
                return True
        return False

    def _own(self, query: Query, unit: Unit) -> tuple[int, ...]:
        return self.place if is_own_row_private(query, unit) else ()

    def _seen(self, query: Query, unit: Unit, answer: Floats) -> Floats:
        own = self._own(query, unit)
        if not own:
            return answer
        seen = answer.copy()
        seen[list(own)] = 0.0
        return seen

    def _parts(
        self, queries: tuple[Query, ...]
    ) -> Iterator[tuple[Query, NeighborView, NeighborView, Floats, Floats]]:
        yield from zip(
            queries, self.worlds, self.others, self.before.answers, self.after.answers, strict=True
        )
