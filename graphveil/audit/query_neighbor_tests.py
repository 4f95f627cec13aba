"""Neighbor tests of query plans: the release path without noise, on small graphs and their neighbors.

Both graphs are queried alike, so answers differ by the edges or records that differ. The difference over the
noise is compared with the loss that the plan's events charge for this pair. Nothing else may differ: no
shape, no requested noise, and no row that the difference does not reach.

Inputs come from ``example_data`` and laws from the queries themselves (``law``), so a new kind of query is
tested under every unit that it has a bound for.

Zero noise replaces a plan's sampler and the noise that queries draw themselves. Audits alone use it, and no
result is published.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.example_data import NeighborView, example_data, reason_without_example
from graphveil.audit.neighbor_test import (
    DELTA_OF_MU,
    Finding,
    FindingLog,
    NeighborTestResult,
    PrivacyClaim,
)
from graphveil.audit.noise import FlipLaw, GaussianLaw, LaplaceLaw, Law, LossLowerBound
from graphveil.audit.small_graphs import (
    FAMILY_NODES,
    Families,
    Family,
    adjacency,
    family,
    mutual_edges,
)
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    Gaussian,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    compose,
)
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_gaussian import IntegerNoise
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.noise.random import RowStream
from graphveil.core.noise.steps import StepNoise
from graphveil.core.plan import ReleasePlan
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.out_edge_sums import OutEdgeSumQuery
from graphveil.core.queries.projected_sums import ClassMomentsQuery
from graphveil.core.query import PreparedData, PublicInputs, Query, QueryData
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, Node, NodeBoundedDegree, NodeRecord, NodeUnit, Unit
from graphveil.errors import ConfigError

_CERTAIN = 40.0  # an epsilon at which a node pair is reported wrongly with probability e^-40

Draw = tuple[float, tuple[int, ...], int]  # standard deviation, rows, and numbers in each row


@dataclass(frozen=True)
class ZeroNoise(IntegerNoise):
    """Sampler that draws zero."""

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        return 0.0

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        return np.zeros((len(rows), dim), dtype=np.int64)


@dataclass(frozen=True)
class RecordingZeroNoise(ZeroNoise):
    """Sampler that draws zero and records each request, in one list per class (``with_new_list``)."""

    drawn: ClassVar[list[Draw]]

    @classmethod
    def with_new_list(cls) -> "type[RecordingZeroNoise]":
        """Return a sampler with an empty list.

        >>> sampler = RecordingZeroNoise.with_new_list()
        >>> sampler(2.0).draw(RowStream(bytes(32)), np.arange(2), 3).tolist(), sampler.drawn
        ([[0, 0, 0], [0, 0, 0]], [(2.0, (0, 1), 3)])
        """
        return type("RecordingZeroNoise", (cls,), {"drawn": []})

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        self.drawn.append((self.sigma, tuple(rows.tolist()), dim))
        return super().draw(stream, rows, dim)


class ZeroNoiseSteps(StepNoise):
    """Training steps without noise, with every record in every batch."""

    def batch(self, step: int, count: int) -> Tensor:
        return torch.arange(count)

    def noise(self, step: int) -> npt.NDArray[np.int64]:
        return np.zeros(self.parameters, dtype=np.int64)


class _ZeroLaplace(DiscreteLaplace):
    """Discrete Laplace law that draws zero."""

    def draw(self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int = 1) -> npt.NDArray[np.int64]:
        return np.zeros((len(rows), dim), dtype=np.int64)


class _WithoutOwnNoise:
    """Proxy of a query that draws its noise itself, instead of using the plan's sampler.

    The query's own code computes the answer, with the proxy as ``self``. Only the two sources of noise
    differ: ``law``, and ``randomness`` for training steps.
    """

    def __init__(self, query: Any) -> None:
        self._query = query

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    @property
    def law(self) -> DiscreteLaplace | EdgeRandomizedResponse | None:
        match self._query.law:
            case DiscreteLaplace(epsilon=epsilon):
                return _ZeroLaplace(epsilon)
            case EdgeRandomizedResponse():
                return EdgeRandomizedResponse(_CERTAIN)
        return None

    def randomness(self, key: bytes) -> StepNoise:
        return ZeroNoiseSteps(
            key,
            parameters=self._query.parameters,
            noise_multiplier=self._query.noise_multiplier,
            sampling_rate=self._query.sampling_rate,
        )

    def answer(self, private: PrivateEdges, data: Any, key: bytes) -> Any:
        return type(self._query).answer(self, private, data, key)


def zero_noise_plan(
    unit: Unit, queries: tuple[Query, ...], sampler: type[IntegerNoise] = ZeroNoise
) -> ReleasePlan:
    """Return the plan whose answers are the exact sums, for every query that adds noise to a sum."""
    exact: list[Any] = [_WithoutOwnNoise(query) if query.exact_noise else query for query in queries]
    return ReleasePlan(unit, tuple(exact), delta=1e-3, sampler=sampler)


def with_degree_bound(query: Query, bound: int) -> Query:
    """Return a query that needs a degree bound with a given one, so that it needs no query before it.

    The bound is an answer of the release, so it is the same for neighbors that are compared.
    """
    if not query.needs_degree_bound:
        return query
    kind = type(query)

    def prepare(self: Any, data: Any, public: PublicInputs) -> PreparedData:
        return kind.prepare(self, data, replace(public, degree_bound=bound))

    given = type(kind.__name__, (kind,), {"needs_degree_bound": False, "prepare": prepare})
    return cast(Query, given(**vars(query)))


Floats = npt.NDArray[np.float64]
PAIRS = 200
ROUNDING = 1e-6  # relative: answers are float32


@checked
def neighbor_test_plan(
    unit: Unit, queries: tuple[Query, ...], *, pairs: int = PAIRS, seed: int = 0
) -> NeighborTestResult | None:
    """Test the queries of one release on random neighboring graphs.

    Each query is answered as in a plan of all of them, with zero noise, on graphs of every kind. The claim is
    the privacy cost of each pair: the charge of the queries' events for the groups of the edge's ends, or of
    the record.

    Args:
        unit: Privacy unit.
        queries: Queries of one release, in order.
        pairs: Number of neighboring pairs to compare.
        seed: Seed of all draws.

    Returns:
        The findings and the largest measured loss; None if small graphs have no data for a query.

    Raises:
        ConfigError: If there are no queries, or an argument is out of range.

    Privacy:
        Reads: synthetic graphs only. Charges: nothing. The result is public.

    >>> from graphveil.privacy import UndirectedEdge
    >>> from graphveil.core.plan import hops
    >>> found = neighbor_test_plan(UndirectedEdge(), hops(1.0, 2, 4), pairs=20)
    >>> found.broken, found.attained["0-0"] > 0.99
    (False, True)
    """
    _check_pairs(pairs, seed)
    if not queries:
        raise ConfigError("queries is empty. Pass at least one query of a plan.")
    if any(reason_without_example(query) for query in queries):
        return None
    return _Comparison(unit, queries).over(lambda rng, seeds: family(unit, rng, seeds), pairs, seed)


@checked
def neighbor_test_mutual_edges(
    query: OutEdgeSumQuery, *, pairs: int = PAIRS, seed: int = 0
) -> NeighborTestResult:
    """Test a sum over out-edges on graphs in which two nodes list each other or not.

    The claim is the query's bound for an undirected edge.

    Args:
        query: Query to test.
        pairs: Number of neighboring pairs to compare.
        seed: Seed of all draws.

    Returns:
        The findings and the largest measured loss.

    Raises:
        ConfigError: If an argument is out of range.

    Privacy:
        Reads: synthetic graphs only. Charges: nothing. The result is public.

    >>> neighbor_test_mutual_edges(OutEdgeSumQuery(dim=2, sigma=2.0), pairs=20).broken
    False
    """
    _check_pairs(pairs, seed)
    found = _Comparison(NodeRecord(), (query,), mutual=True).over(mutual_edges, pairs, seed)
    assert found is not None
    return found


def _check_pairs(pairs: int, seed: int) -> None:
    checks.integer_at_least(1, pairs=pairs)
    checks.integer_at_least(0, seed=seed)


# -- charged losses ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChargedLoss:
    """Privacy loss that events charge: a Gaussian part and a pure part.

    >>> ChargedLoss(0.3) + ChargedLoss(0.4, 1.0)
    ChargedLoss(mu=0.5, pure=1.0)
    """

    mu: float = 0.0
    pure: float = 0.0

    def __add__(self, other: "ChargedLoss") -> "ChargedLoss":
        return ChargedLoss(math.hypot(self.mu, other.mu), self.pure + other.pure)

    @property
    def at(self) -> tuple[float, float]:
        """The (epsilon, delta) to compare."""
        return (epsilon_of(self.mu, DELTA_OF_MU) if self.mu else 0.0) + self.pure, DELTA_OF_MU

    @property
    def claim(self) -> PrivacyClaim:
        """The claimed loss of every pair if this is the worst one."""
        if not self.pure:
            return PrivacyClaim(mu=self.mu)
        return PrivacyClaim(epsilon=self.at[0], delta=DELTA_OF_MU if self.mu else 0.0)

    def share(self, loss: LossLowerBound) -> float:
        """Return a loss as a share of the charged one, by its larger part."""
        if loss.certain or loss.alone:
            return math.inf
        parts = ((loss.mu, self.mu), (loss.pure, self.pure))
        return max(lost / cost if cost else math.inf for lost, cost in parts if lost or cost)

    def is_satisfied_by(self, loss: LossLowerBound) -> bool:
        """Whether the loss is within the charged cost, except for the rounding of answers."""
        return loss.none or self.share(loss) <= 1 + ROUNDING


def charged_loss(event: Event, groups: tuple[int, ...]) -> ChargedLoss:
    """Return the cost that an event charges for a difference between nodes of these groups, or for a record.

    Sampled steps are charged as if everything were in every batch.

    >>> charged_loss(PairwiseGaussian("split", ((0.0, 1.0), (1.0, 4.0))), (0, 1))
    ChargedLoss(mu=1.0, pure=0.0)
    """
    match event:
        case Gaussian():
            return ChargedLoss(event.mu)
        case PairwiseGaussian():
            row = event.mu_squared[groups[0] % len(event.mu_squared)]  # if groups are distinguished
            return ChargedLoss(math.sqrt(row[groups[1] % len(row)] if len(groups) > 1 else max(row)))
        case ByGroup():
            return charged_loss(event.events[groups[0]], groups)
        case PureDP():
            return ChargedLoss(pure=event.epsilon)
        case ApproximateDP(delta=0.0):
            return ChargedLoss(pure=event.epsilon)
        case ApproximateDP(epsilon=0.0):
            return ChargedLoss()  # delta is for a failure that does not occur here
        case PoissonGaussian() | PoissonRoots():
            return ChargedLoss(math.sqrt(event.steps) * event.change / event.noise_multiplier)
        case Composed():
            return sum((charged_loss(part, groups) for part in event.events), ChargedLoss())
    raise NotImplementedError(f"the event {type(event).__name__} has no privacy cost for a single node pair")


# -- laws of answers -----------------------------------------------------------------------------------------


def law(query: Query, view: NeighborView, answer: Floats) -> Law:
    """Return the law of an answer: by default Gaussian, with the query's own standard deviations."""
    match query.law:
        case DiscreteLaplace(epsilon=epsilon):
            return LaplaceLaw(answer, np.array(1 / epsilon))
        case EdgeRandomizedResponse(epsilon=epsilon):
            slots = np.arange(view.public.domain.slots.total)
            return FlipLaw(np.isin(slots, answer), np.array(1 / (1 + np.exp(epsilon))))
    sigma = np.array(query.noise)
    if isinstance(query, ClassMomentsQuery):
        return GaussianLaw(answer, sigma / query.factors().numpy())
    return GaussianLaw(answer, sigma[view.groups.numpy()][:, None] if len(sigma) > 1 else sigma)


def has_row_per_node(query: Query) -> bool:
    return query.describe().values_per_node is not None


def own_rows(query: Query, unit: Unit, place: tuple[int, ...]) -> tuple[int, ...]:
    """Return rows that only the changed node receives, which the guarantee does not cover."""
    return place if has_row_per_node(query) and isinstance(unit, NodeBoundedDegree) else ()


# -- the comparison ------------------------------------------------------------------------------------------


class _Comparison(FindingLog):
    """A test in progress: the findings, the smallest pair of each kind, and the attained privacy costs.

    Args:
        mutual: Whether two nodes list each other in one neighbor only. Such an edge is in two records, so the
            privacy cost is the queries' bound for an edge, for vectors within their bounds.
    """

    def __init__(self, unit: Unit, queries: tuple[Query, ...], *, mutual: bool = False) -> None:
        super().__init__()
        self._unit, self._mutual = unit, mutual
        self._queries = tuple(
            replace(query, steps=1) if query.describe().steps else query  # type: ignore[call-arg]
            for query in queries
        )
        self._events = [query.event(unit) for query in self._queries]
        self._groups = max(query.groups for query in self._queries)
        self._weighted = any(query.reads_edge_weights for query in self._queries)
        total = math.inf if mutual else total_mu(compose(*self._events))
        self._charged_mu = math.inf if total is None else total  # of the whole plan: no pair may cost more
        self._sampler = RecordingZeroNoise.with_new_list()
        self._attained: dict[str, float] = {}

    def over(self, families: Families, pairs: int, seed: int) -> NeighborTestResult | None:
        number = 0
        while self.pairs < pairs:
            drawn = families(np.random.default_rng([seed, number]), (seed, number, 1))
            if drawn is None:
                return None
            self._compare(drawn, pairs - self.pairs)
            number += 1
        every = product(range(self._groups), repeat=1 if isinstance(self._unit, NodeUnit) else 2)
        costs = (self._privacy_cost(groups, FAMILY_NODES, part=part) for groups in every for part in (0, 1))
        claim, attained = max(costs, key=lambda one: one.at[0]).claim, dict(sorted(self._attained.items()))
        facts = {"steps": len(self._queries), "hidden": False, "attained": attained}
        return self.result(self._unit.name, claim, self.largest.epsilon(DELTA_OF_MU), **facts)

    def _compare(self, drawn: Family, most: int) -> None:
        groups = torch.from_numpy(drawn.public.draw("groups").integers(self._groups, size=drawn.public.nodes))
        views = [
            NeighborView(drawn.graph, drawn.public, groups, number, within=self._mutual)
            for number in range(len(self._queries))
        ]
        data = self._data(views)
        if not data or not drawn.neighbors:
            return
        bound = drawn.degree_bound() if any(query.needs_degree_bound for query in self._queries) else 0
        queries = tuple(with_degree_bound(query, bound) for query in self._queries)
        plan = zero_noise_plan(self._unit, queries, self._sampler)
        before, drawn_before = self._answers(plan, views[0], data)
        for neighbor in drawn.neighbors[:most]:
            others = [replace(view, graph=neighbor.graph) for view in views]
            of_records = isinstance(self._unit, NodeUnit)  # under other units the data are public
            after, drawn_after = self._answers(plan, others[0], self._data(others) if of_records else data)
            self.pairs += 1
            pair = _Pair(self._queries, self._unit, views, others, (before, after), neighbor.place)
            if not pair.has_public_shapes():
                self._note("shape", LossLowerBound(certain=1.0), pair)
                continue
            if drawn_before != drawn_after:
                self._note("noise scale", LossLowerBound(certain=1.0), pair)
            differing = tuple(int(groups[node]) for node in pair.place)
            privacy_cost = self._privacy_cost(differing, drawn.public.nodes, pair.place)
            loss = pair.loss()
            if privacy_cost.mu > self._charged_mu * (1 + ROUNDING):
                self._note("privacy_cost", LossLowerBound(mu_squared=privacy_cost.mu**2), pair)
            if loss.mu_squared > self.largest.mu_squared or loss.pure > self.largest.pure:
                self.largest = loss
            if not privacy_cost.is_satisfied_by(loss):
                self._note("change", loss, pair)
            if pair.reaches_too_far():
                self._note("reach", loss, pair)
            name = "-".join(map(str, sorted(differing)))
            share = 0.0 if loss.none else privacy_cost.share(loss)
            self._attained[name] = max(self._attained.get(name, 0.0), share)

    def _data(self, views: list[NeighborView]) -> list[QueryData[Any]]:
        data = [example_data(query, view) for query, view in zip(self._queries, views, strict=True)]
        present = [one for one in data if one is not None]
        return present if len(present) == len(data) else []

    def _answers(
        self, plan: ReleasePlan, view: NeighborView, data: list[QueryData[Any]]
    ) -> tuple[list[Floats], list[Draw]]:
        self._sampler.drawn.clear()
        edges = adjacency(view.graph, view.public, weighted=self._weighted)
        release = Release.open(plan, edges, view.groups, budget=MemoryLedger(), label="audit")
        return [release.answer(one).double().numpy() for one in data], self._sampler.drawn.copy()

    def _privacy_cost(
        self, groups: tuple[int, ...], nodes: int, place: tuple[int, ...] = (), part: int = 0
    ) -> "ChargedLoss":
        """Return the charged loss of a difference at these nodes, or in this part, of these groups."""
        if self._mutual:
            pushes = [query for query in self._queries if isinstance(query, OutEdgeSumQuery)]
            losses = (ChargedLoss(query.edge_shift(nodes) / query.sigma) for query in pushes)
            return sum(losses, ChargedLoss())
        total = ChargedLoss()
        for query, event in zip(self._queries, self._events, strict=True):
            own, held_out = groups, getattr(query, "held_out", None)
            if isinstance(event, ByGroup) and held_out is not None:
                ends = (np.array([end]) for end in place)
                own = (int(held_out.contains(*ends)[0]) if place else part,)
            total += charged_loss(event, own)
        return total

    def _note(self, kind: str, loss: LossLowerBound, pair: "_Pair") -> None:
        first, second = pair.views[0].graph, pair.others[0].graph
        self.add(Finding(kind, loss.epsilon(DELTA_OF_MU), loss.mu, first, second))


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two neighbors under some queries: their views and answers, and the nodes where they differ."""

    queries: tuple[Query, ...]
    unit: Unit
    views: list[NeighborView]
    others: list[NeighborView]
    answers: tuple[list[Floats], list[Floats]]
    place: tuple[int, ...]

    @property
    def sides(self) -> Iterator[tuple[Query, NeighborView, NeighborView, Floats, Floats]]:
        return zip(self.queries, self.views, self.others, *self.answers, strict=True)

    def has_public_shapes(self) -> bool:
        """Whether shapes are equal and rows are one for each node.

        The number of entries of an answer of node pairs follows from its noise.
        """
        for query, _, _, x, y in self.sides:
            if has_row_per_node(query) and not len(x) == len(y) == self.views[0].public.nodes:
                return False
            if x.shape != y.shape and not isinstance(query.law, EdgeRandomizedResponse):
                return False
        return True

    def loss(self) -> LossLowerBound:
        """Return the loss of all answers together, without rows that only the changed node receives."""
        total = LossLowerBound()
        for query, one, other, x, y in self.sides:
            own = list(own_rows(query, self.unit, self.place))
            if own:
                x, y = x.copy(), y.copy()
                x[own] = y[own] = 0.0
            total += law(query, one, x).against(law(query, other, y), 0.0)
        return total

    def reaches_too_far(self) -> bool:
        """Whether a row changes that no differing edge leads to."""
        both = self.views[0].graph, self.others[0].graph
        for query, _, _, x, y in self.sides:
            if not has_row_per_node(query):
                continue
            reached = {*(self.place[1:] if isinstance(self.unit, DirectedEdge) else self.place)}
            if isinstance(self.unit, NodeUnit):
                ends = (np.flatnonzero(graph.a[q]).tolist() for graph in both for q in self.place)
                reached = set(chain.from_iterable(ends))
            if isinstance(self.unit, Node):  # also the own row, and those of nodes that share a neighbor
                sharing = (graph.a[graph.a[:, q] > 0].any(axis=0) for graph in both for q in self.place)
                reached.update(self.place, *(np.flatnonzero(one).tolist() for one in sharing))
            changed = {*np.flatnonzero((x != y).any(axis=1)).tolist()}
            if not changed <= reached | {*own_rows(query, self.unit, self.place)}:
                return True
        return False
