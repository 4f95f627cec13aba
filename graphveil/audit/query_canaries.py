"""Canaries in single queries: many copies of a query's worst neighbors, answered by the release path.

Each canary has separate rows, node pairs, cells or coordinates, so one release contains thousands of
independent ones. The same path with zero noise shows how far each moves the answer; the bound is about
the noise. There are as many releases as the claim needs for a bound of about nine tenths of it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial, singledispatch
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor

from graphveil.audit.bounds import (
    LowerBound,
    counted_runs,
    largest_multiplier,
    one_run,
    steps_bound,
    summed_gaussian,
)
from graphveil.audit.example_data import NeighborView, example_data, reason_without_example
from graphveil.audit.noise import FlipLaw, GaussianLaw, LaplaceLaw, Law
from graphveil.audit.query_neighbor_tests import (
    law,
    own_rows,
    with_degree_bound,
    zero_noise_plan,
)
from graphveil.audit.small_graphs import adjacency, family
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.events import Event, Gaussian, PoissonGaussian, PureDP, Relation
from graphveil.core.keys import ReleaseKey, canonical
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.dendrogram import BlockCountData, BlockCountQuery, Dendrogram, DendrogramBlocks
from graphveil.core.queries.edge_counts import (
    EdgeCountData,
    EdgeCountQuery,
    NeighborCountData,
    NeighborCountQuery,
)
from graphveil.core.queries.edge_training import EdgeAttentionQuery
from graphveil.core.queries.graph_queries import (
    EdgeResponseData,
    EdgeResponseQuery,
    TopNodePairsData,
    TopNodePairsQuery,
)
from graphveil.core.queries.held_out import HeldOutPairs
from graphveil.core.queries.list_products import (
    MAX_COLUMNS,
    NO_COLUMN,
    ListProductData,
    ListProductQuery,
    unpack_products,
)
from graphveil.core.queries.neighbor_sums import NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import (
    OutEdgeCodeSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    simplex_codes,
)
from graphveil.core.queries.pair_sums import (
    EdgeProductData,
    EdgeProductQuery,
    PairHistogramData,
    PairHistogramQuery,
    PairSumData,
    PairSumQuery,
    PairTerms,
)
from graphveil.core.queries.projected_sums import (
    ClassMomentsData,
    ClassMomentsQuery,
    DegreeHIndexData,
    DegreeHIndexQuery,
    ProjectedSumData,
    ProjectedSumQuery,
)
from graphveil.core.queries.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
)
from graphveil.core.queries.row_counts import RowCountData, RowCountQuery
from graphveil.core.queries.training_steps import DPSGDQuery, TreeStepsQuery
from graphveil.core.query import Query, QueryData
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, EdgeSubset, NodeBoundedDegree, NodeRecord, NodeUnit, Unit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Coins = npt.NDArray[np.bool_]
Insert = Callable[[Coins], tuple[Adjacency, Any]]

BLUR = 0.08  # how far below mu its bound may lie on average, relative
_MAX_ROUNDS = 64


@dataclass(frozen=True, eq=False)
class CanaryContext:
    """The setting of canaries in one query: the plan, the confidence, and the source of the coins.

    Args:
        seed: Seed of reproducible noise, for tests; secret noise by default.
    """

    plan: ReleasePlan
    confidence: float
    rng: np.random.Generator
    group: int = 0
    pair: tuple[int, int] = (0, 0)
    seed: int | None = None

    @property
    def unit(self) -> Unit:
        return self.plan.unit

    @property
    def directed(self) -> bool:
        return isinstance(self.unit, DirectedEdge)

    def coins(self, count: int) -> Coins:
        return self.rng.random(count) < 0.5

    def key(self) -> ReleaseKey:
        if self.seed is None:
            return ReleaseKey.fresh()
        return ReleaseKey.from_seed(self.seed + int(self.rng.integers(1 << 30)), "audit")

    def noisy(
        self, query: Query, edges: Adjacency, data: Any, groups: Tensor | None = None, count: int = 1
    ) -> Floats:
        """Answer the query as the plan does; several independent answers are stacked."""
        return _answer(single_query_plan(self.plan, query, count), edges, data, groups, self.key())

    def exact(self, query: Query, edges: Adjacency, data: Any, groups: Tensor | None = None) -> Floats:
        return _answer(zero_noise_plan(self.unit, (query,)), edges, data, groups, None)

    def rounds(self, count: int, mu: float) -> int:
        """Return the number of releases that a bound on mu needs, for a number of canaries."""
        needed = (2 * float(ndtri(self.confidence)) / (BLUR * max(mu, 1e-3))) ** 2
        return max(1, min(_MAX_ROUNDS, math.ceil(needed / count)))

    def gaussian(self, scores: Floats, present: Coins, edges: int = 1) -> LowerBound:
        """Return the bound from scores of canaries; ``present`` are included.

        A canary may have several edges: if mu bounds the loss of one edge, k mu bounds that of k edges.
        """
        delta = self.plan.delta
        bound = summed_gaussian(scores[present], scores[~present], delta=delta, confidence=self.confidence)
        mu = (bound.mu or 0.0) / edges
        return replace(bound, mu=mu, epsilon=epsilon_of(mu, delta))


@lru_cache(maxsize=64)
def single_query_plan(plan: ReleasePlan, query: Query, count: int = 1) -> ReleasePlan:
    return replace(plan, queries=(query,) * count, slack=0.0, alternatives=())


def _answer(
    plan: ReleasePlan, edges: Adjacency, data: Any, groups: Tensor | None, key: ReleaseKey | None
) -> Floats:
    release = Release.open(plan, edges, groups, budget=MemoryLedger(), key=key, label="audit")
    answers = [release.answer(data).to(dtype=torch.float64).numpy() for _ in plan.queries]
    return np.asarray(answers[0] if len(answers) == 1 else np.stack(answers))


@dataclass(frozen=True, eq=False)
class Canaries:
    """How canaries are inserted into the releases of a query, and read from its answers.

    Args:
        query: Query to answer: the audited one, or one of the same noise with room for more canaries.
        count: Number of canaries in each release.
        insert: From the canaries that are in to the edges and the data of a release.
        score: From an answer to a score of each canary in units of the noise, or to whether it was detected.
            Several answers have the scores of one canary.
        rounds: Number of releases.
        groups: Public groups of the nodes.
        edges: Number of edges of each canary.
        answers: Number of independent answers of each release.
        compete: Whether canaries compete for places, so that all detections are guesses in a single run.
    """

    query: Query
    count: int
    insert: Insert
    score: Callable[[Floats], npt.NDArray[Any]]
    rounds: int = 1
    groups: Tensor | None = None
    edges: int = 1
    answers: int = 1
    compete: bool = False


@dataclass(frozen=True, eq=False)
class CanaryResult:
    """Result of the canaries in one query."""

    stage: str
    canaries: int
    certified: Event
    claimed: float
    bound: LowerBound


@singledispatch
def build_canaries(query: Query, context: CanaryContext) -> Canaries | CanaryResult | str:
    """Return the canaries of a query, or why there are none.

    By default each release has one canary: one of two neighboring small graphs is answered, those of a few
    hundred whose answers differ most by the query's own law. Kinds of queries whose releases have room for
    many canaries at once register a function here, which needs less time and certifies more.
    """
    return reason_without_example(query) or _of_small_graphs(query, context)


def insert_canaries(query: Query, context: CanaryContext) -> CanaryResult | str:
    """Insert canaries into a query and return the result, or why there are none."""
    built = build_canaries(query, context)
    return release_canaries(query, context, built) if isinstance(built, Canaries) else built


def release_canaries(query: Query, context: CanaryContext, canaries: Canaries) -> CanaryResult:
    """Release the canaries, each by a fair coin. Sums have Gaussian scores, and detections are counted."""
    rounds, answers = canaries.rounds, canaries.answers
    coins = context.coins(rounds * canaries.count).reshape(rounds, canaries.count)
    found = [
        canaries.score(context.noisy(canaries.query, *canaries.insert(inside), canaries.groups, answers))
        for inside in coins
    ]
    scores, present = np.concatenate(found), coins.repeat(answers)
    if scores.dtype != bool:
        bound = context.gaussian(scores, present, canaries.edges)
        return _result(query, context, len(scores), Gaussian(bound.mu or 0.0), bound)
    bound = counted_runs(scores, present, context.confidence)
    if canaries.compete:
        right = int((scores & present).sum())
        bound = one_run(len(present), int(scores.sum()), right, confidence=context.confidence)
    return _result(query, context, len(present), PureDP(bound.epsilon), bound)


def _result(
    query: Query, context: CanaryContext, count: int, certified: Event, bound: LowerBound
) -> CanaryResult:
    """Return the result of a number of canaries, with the query's own privacy cost as the claim."""
    claimed = privacy_curve(query.event(context.unit)).epsilon(context.plan.delta)
    return CanaryResult(query.describe().stage, count, certified, claimed, bound)


# -- any query with example data: one pair of small graphs, and one canary in each release ------------------

_FAMILIES, _NEIGHBORS = 60, 4  # small graphs, and neighbors of each, among which the pair is searched
_RECORDS = 1 << 11  # releases of single canaries
SmallPair = tuple[NeighborView, tuple[int, ...], list[tuple[Adjacency, QueryData[Any]]]]


def _of_small_graphs(query: Query, context: CanaryContext) -> Canaries | str:
    """Release one of two neighbors, and compare how likely the answer is under both."""

    def law_around(answer: Floats, view: NeighborView, own: tuple[int, ...]) -> Law:
        answer[list(own)] = 0.0
        return law(query, view, answer)

    best, largest = None, 0.0
    for view, own, sides in _small_pairs(query, context):
        groups = view.groups if query.needs_groups else None
        before, after = (law_around(context.exact(query, *side, groups), view, own) for side in sides)
        loss = before.against(after, 0.0)
        if max(loss.mu, loss.pure) > largest:
            best, largest = (view, own, sides, groups, before, after, loss.mu), max(loss.mu, loss.pure)
    if best is None:
        return "no pair of small graphs differs in its answer"
    view, own, sides, groups, before, after, mu = best

    def score(answer: Floats) -> npt.NDArray[Any]:
        seen = law_around(answer, view, own)
        ratio = np.array([_log_likelihood(after, seen) - _log_likelihood(before, seen)])
        return ratio / mu if mu else ratio > 0

    return Canaries(query, 1, lambda coins: sides[int(coins[0])], score, _RECORDS, groups)


def _small_pairs(query: Query, context: CanaryContext) -> Iterator[SmallPair]:
    """Yield neighboring small graphs that differ in a record, or edge, of the context's groups.

    Of each pair these are the public facts, the rows that only the changed node receives, and both inputs.
    """
    unit, seed = context.unit, int(context.rng.integers(1 << 30))
    for number in range(_FAMILIES):
        drawn = family(unit, np.random.default_rng([seed, number]), (seed, number))
        for neighbor in () if drawn is None else drawn.neighbors[:_NEIGHBORS]:
            assert drawn is not None
            groups = torch.full((drawn.public.nodes,), context.group)
            if not isinstance(unit, NodeUnit):
                groups[list(neighbor.place)] = torch.tensor(context.pair)
            view = NeighborView(drawn.graph, drawn.public, groups % query.groups, 0)
            other = replace(view, graph=neighbor.graph)
            first = example_data(query, view)
            second = example_data(query, other) if isinstance(unit, NodeUnit) else first
            if first is not None and second is not None:
                weighted = query.reads_edge_weights
                sides = [
                    (adjacency(one.graph, one.public, weighted=weighted), data)
                    for one, data in ((view, first), (other, second))
                ]
                yield view, own_rows(query, unit, neighbor.place), sides


def _log_likelihood(found: Law, seen: Law) -> float:
    """Return the log-likelihood of an answer under a law, up to a number that is the same for neighbors.

    ``seen`` is the law around the answer.
    """
    match found, seen:
        case GaussianLaw(), GaussianLaw():
            return -float(np.square((seen.value - found.value) / found.scale).sum()) / 2
        case LaplaceLaw(), LaplaceLaw():
            return -float(np.abs((seen.value - found.value) / found.scale).sum())
        case FlipLaw(), FlipLaw():
            right = seen.value == found.value
            return float(np.log(np.where(right, 1 - found.scale, found.scale)).sum())
    raise NotImplementedError(
        f"canaries in small graphs are not supported for answers of type {type(found).__name__}"
    )


# -- rows: disjoint stars and sources ----------------------------------------------------------------------

NUMBERS, _MAX_NODES = 1 << 21, 1 << 17  # of a release with canaries, which then takes seconds
_MAX_LEAVES = 1 << 12  # of a star: a larger asserted degree is certified in part


def canaries_per_release(dim: int, nodes_each: int) -> int:
    return max(16, min(NUMBERS // dim, _MAX_NODES) // nodes_each)


def _stars(
    centers: Indices, nodes: int, *, leaves: int = 1, directed: bool = False, weighted: bool = False
) -> Adjacency:
    """Return the graph in which each center has an edge to each of the nodes that follow it."""
    sources, targets = np.repeat(centers, leaves), (centers[:, None] + 1 + np.arange(leaves)).ravel()
    weights: Any = {"weight": np.ones(len(targets)), "max_weight": 1.0} if weighted else {}
    return Adjacency.from_edges(sources, targets, num_nodes=nodes, directed=directed, **weights)


@build_canaries.register
def _of_hops(query: NeighborSumQuery, context: CanaryContext) -> Canaries:
    """Stars whose centers send a vector of norm one: an undirected or stored edge, or all edges of a node."""
    unit, weighted = context.unit, query.reads_edge_weights
    leaves = min(unit.max_degree, _MAX_LEAVES) if isinstance(unit, NodeBoundedDegree) else 1
    count = canaries_per_release(query.dim, 1 + leaves)
    nodes, center = count * (1 + leaves), np.arange(count) * (1 + leaves)
    here, there = context.pair if query.groups > 1 else (0, 0)
    groups = torch.full((nodes,), there)
    groups[:: 1 + leaves] = here
    vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
    vectors[:, 0] = 1.0
    keys: Any = None  # by which any two nodes are as alike as can be
    if query.similarity is not None and query.similarity.reads == "attention":
        maps = torch.full((nodes, 1), 4.0)
        keys = maps, maps, torch.tensor([9.0]), torch.tensor(0.0)
    elif query.similarity is not None:
        keys = torch.eye(3, dtype=torch.float64)[:1].repeat(nodes, 1)
    data = NeighborSumData(vectors, keys)
    star = partial(_stars, nodes=nodes, leaves=leaves, directed=context.directed, weighted=weighted)
    return _of_rows(query, context, count, lambda who: (star(center[who]), data), groups)


_HUBS = 8, 64  # the least and the largest number of hubs of a canary


@build_canaries.register
def _of_projected_sums(query: ProjectedSumQuery, context: CanaryContext) -> Canaries:
    """Nodes that D hubs list, whose degrees are then above the degree bound D.

    The hubs have the same recipients, and so has the canary, whose vector is the opposite of theirs. As many
    others with the canary's vector send to these recipients, so that no sum is shortened. They list a canary
    with the opposite vector if records are replaced. The bound holds for each canary: of the nodes that list
    it at most D have a degree above D.
    """
    hubs = min(max(_HUBS[0], math.ceil(query.radius**2) + 1), _HUBS[1])
    each = 1 + 3 * hubs
    count = canaries_per_release(query.dim, each)
    nodes, place = count * each, np.arange(count) * each
    replaced = getattr(context.unit, "replace_one", False)
    of_hubs, of_others = np.arange(1, 1 + hubs), np.arange(1 + hubs, 1 + 2 * hubs)
    recipients = np.arange(1 + 2 * hubs, each)
    senders = place[:, None] + np.concatenate([of_hubs, of_others])

    def lists(sources: Indices, targets: Indices) -> list[Indices]:
        """Return edges from each source of a canary (n, k) to each target of it (n, m)."""
        return [each.ravel() for each in np.broadcast_arrays(sources[:, :, None], targets[:, None, :])]

    def insert(who: Coins) -> tuple[Adjacency, ProjectedSumData]:
        values = np.zeros((count, each, query.dim))
        values[:, of_hubs, 0], values[:, of_others, 0], values[who, 0, 0] = 1.0, -1.0, -1.0
        own, listed_by = place[who], [place[who, None] + of_hubs]
        if replaced:
            values[~who, 0, 0] = 1.0
            own, listed_by = place, [*listed_by, place[~who, None] + of_others]
        vectors = torch.from_numpy(values.reshape(nodes, query.dim))
        every = [lists(senders, place[:, None] + recipients), lists(own[:, None], own[:, None] + recipients)]
        every += [lists(one, one[:, :1] // each * each) for one in listed_by]
        ends = (np.concatenate(part) for part in zip(*every, strict=True))
        return Adjacency.from_edges(*ends, num_nodes=nodes, directed=True), ProjectedSumData(vectors)

    fine = replace(query, grid_bits=max(query.grid_bits, query.grid_for(nodes, query.dim)))
    given = with_degree_bound(fine, hubs)
    return _of_rows(given, context, count, insert, torch.zeros(nodes, dtype=torch.int64))


@build_canaries.register
def _of_pushes(query: OutEdgeSumQuery, context: CanaryContext) -> Canaries | str:
    """Sources with separate lists that use the whole budget, and a vector at its bound."""
    level, group = int(np.argmax(query.levels)), context.group if query.groups > 1 else 0
    if not query.bounds[group]:
        return "records of this group send nothing"
    listed = max(1, math.ceil(16 * query.out_degree_bound / query.levels[level]))
    count = canaries_per_release(query.dim, 1 + listed)
    nodes, source = count * (1 + listed), np.arange(count) * (1 + listed)
    replaced = getattr(context.unit, "replace_one", False)
    groups, place = torch.full((nodes,), group), torch.full((nodes,), level)
    first = torch.eye(1, query.dim, dtype=torch.float64)
    apart = torch.cat([first, -first])  # as far apart as a source may send
    if isinstance(query, OutEdgeCodeSumQuery):
        apart = simplex_codes(query.dim + 1)[:2]
    present, opposite = query.bounds[group] * (1 - 1e-9) * apart
    absent = opposite if replaced else torch.zeros_like(opposite)

    def insert(who: Coins) -> tuple[Adjacency, OutEdgeSumData]:
        vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
        vectors[torch.from_numpy(source)] = torch.where(torch.from_numpy(who)[:, None], present, absent)
        lists = source if replaced else source[who]
        return _stars(lists, nodes, leaves=listed, directed=True), OutEdgeSumData(vectors, place)

    return _of_rows(query, context, count, insert, groups)


def _of_rows(
    query: Query,
    context: CanaryContext,
    count: int,
    insert: Insert,
    groups: Tensor,
) -> Canaries:
    """Score each canary along what it moves; the nodes of a canary, first its own, follow each other."""
    owner = np.arange(len(groups)) // (len(groups) // count)
    sigma = np.array(query.noise)[groups.numpy() % len(query.noise)]

    def rows(answer: Floats) -> Floats:
        found: Floats = answer / sigma[:, None]
        if isinstance(context.unit, NodeBoundedDegree):  # a node's own row is for it alone
            found[np.flatnonzero(np.diff(owner, prepend=-1))] = 0.0
        return found

    coins = np.zeros(count, dtype=bool), np.ones(count, dtype=bool)
    none, every = (rows(context.exact(query, *insert(inside), groups)) for inside in coins)
    moved = every - none
    squares = np.bincount(owner, (moved * moved).sum(axis=1))

    def score(answer: Floats) -> Floats:
        along = (moved * (rows(answer) - none)).sum(axis=1)
        return np.asarray(np.bincount(owner, along) / np.sqrt(squares))

    rounds = context.rounds(count, float(np.sqrt(squares.mean())))
    return Canaries(query, count, insert, score, rounds, groups)


# -- counts: each canary moves a count, a cell or a candidate of its own -----------------------------------

# More classes and candidates than the query has: the noise has the same law, and each canary its own count.
_CLASSES, _CANDIDATES = 64, 1 << 12


@build_canaries.register
def _of_neighbor_counts(query: NeighborCountQuery, context: CanaryContext) -> Canaries:
    """Undirected edges of disjoint pairs: the count that one moves is at least one, or not."""
    narrow = replace(query, classes=1)  # the law of a count is the same
    open_pairs = HeldOutPairs(0.0, 0) if query.held_out is None else query.held_out
    first = _pairs(open_pairs, canaries_per_release(1, 2), held=False)
    count, ends = len(first), np.stack([first, first + 1], axis=1)
    none = torch.zeros(int(first[-1]) + 2, dtype=torch.int64)
    insert = _pair_edges(first[:, None], NeighborCountData(none), directed=context.directed)
    reached = (context.exact(narrow, *insert(np.ones(count, dtype=bool)), none) > 0.5)[ends]

    def score(answer: Floats) -> Coins:
        above = (answer > 0.5)[ends] | ~reached
        return np.asarray(above.reshape(count, -1).all(axis=1))  # in every count that it moves

    rounds = context.rounds(count, query.sensitivity(context.unit) * query.epsilon)
    return Canaries(narrow, count, insert, score, rounds, none)


@build_canaries.register
def _of_edge_counts(query: EdgeCountQuery, context: CanaryContext) -> Canaries | str:
    """An edge for each cell, in a table of more classes."""
    pays = [group for group, counted in enumerate(query.labeled) if counted]
    here, there = context.pair
    if query.groups > 1 and not (query.labeled[here] and query.labeled[there]):
        return "the pair of groups with the largest privacy cost is not counted"
    wide, every = replace(query, classes=_CLASSES), np.indices((_CLASSES, _CLASSES)).reshape(2, -1)
    cells = every if context.directed else every[:, every[0] <= every[1]]
    count = cells.shape[1]
    data, groups = EdgeCountData(torch.from_numpy(cells.T.ravel().copy())), torch.full((2 * count,), pays[0])
    insert = _pair_edges(2 * np.arange(count)[:, None], data, directed=context.directed)
    rounds, sigma = context.rounds(count, 1 / query.sigma[0]), query.sigma[0]
    return Canaries(wide, count, insert, lambda answer: answer[*cells] / sigma, rounds, groups)


@build_canaries.register
def _of_row_counts(query: RowCountQuery, context: CanaryContext) -> Canaries:
    """Rows of owners in a counted group, each with a cell of its own."""
    count = canaries_per_release(1, 2)
    owners, nodes = 2 * np.arange(count), 2 * count
    starts = torch.arange(nodes) // 2
    data = RowCountData(torch.zeros_like(starts), starts, torch.zeros_like(starts))
    groups = torch.full((nodes,), query.pays.index(True))

    def insert(coins: Coins) -> tuple[Adjacency, RowCountData]:
        return _stars(owners[coins], nodes, directed=True), data

    rounds, wide = context.rounds(count, query.epsilon), replace(query, cells=count)
    return Canaries(wide, count, insert, lambda answer: answer > 0.5, rounds, groups)


@build_canaries.register
def _of_tallies(query: AccuracyCountQuery, context: CanaryContext) -> Canaries | str:
    """A record for each run of candidates, right about all of them, in a tally of more candidates."""
    if query.groups > 1 and not query.pays[context.group]:
        return "records of this group are not counted"
    each = query.candidates
    count, run = max(1, _CANDIDATES // each), np.ones((1, each), dtype=bool)
    graph = Adjacency.from_edges([], [], num_nodes=2, directed=True)  # which counts of records do not read
    return Canaries(
        query=replace(query, candidates=count * each),
        count=count,
        insert=lambda coins: (graph, AccuracyCountData(torch.from_numpy(np.kron(np.diag(coins), run)))),
        score=lambda answer: answer.reshape(count, each).sum(axis=1) / (query.sigma * math.sqrt(each)),
        rounds=context.rounds(count, math.sqrt(each) / query.sigma),
        groups=torch.full((2,), context.group),
    )


_CLIQUE, _MOMENTS = 9, 1 << 9  # nodes of a graph, and classes of a release


@build_canaries.register
def _of_h_indices(query: DegreeHIndexQuery, context: CanaryContext) -> Canaries:
    """One node of a clique, in each release."""
    every = np.array(list(combinations(range(_CLIQUE), 2))).T

    def insert(coins: Coins) -> tuple[Adjacency, DegreeHIndexData]:
        ends = every if coins[0] else every[:, every[0] > 0]
        return Adjacency.from_edges(*ends, num_nodes=_CLIQUE, directed=False), DegreeHIndexData()

    each = replace(query, failure=query.failure / _ANSWERS)  # with the same noise
    return Canaries(
        each, 1, insert, lambda found: found[:, 0] / query.sigma, _RELEASES // 2, answers=_ANSWERS
    )


@build_canaries.register
def _of_moments(query: ClassMomentsQuery, context: CanaryContext) -> Canaries | str:
    """A record for each class, of more classes, with a row of the largest norm."""
    if query.groups > 1 and not query.pays[context.group]:
        return "records of this group are not counted"
    count = max(2, min(NUMBERS // (query.dim + 1), _MOMENTS))
    wide, classes = replace(query, classes=count), torch.arange(count)
    replaced = getattr(context.unit, "replace_one", False)
    graph = Adjacency.from_edges([], [], num_nodes=2, directed=True)  # which counts of records do not read
    along = np.zeros(query.dim + 1)  # the direction of the change
    along[0], along[-1] = math.sqrt(1 - query.count_share), 0.0 if replaced else math.sqrt(query.count_share)
    scales = query.factors().numpy() * along / (np.linalg.norm(along) * query.sigma)

    def insert(coins: Coins) -> tuple[Adjacency, ClassMomentsData]:
        inside, rows = torch.from_numpy(coins), torch.zeros(count, query.dim, dtype=torch.float64)
        rows[:, 0] = torch.where(inside, query.radius, -query.radius)
        return graph, ClassMomentsData(rows, classes if replaced else torch.where(inside, classes, -1))

    shift = (2 * along[0] if replaced else 1.0) / query.sigma
    rounds, groups = context.rounds(count, shift / 2), torch.full((2,), context.group)
    return Canaries(wide, count, insert, lambda answer: answer @ scales, rounds, groups)


# -- released graphs: every node pair, or one in every block, is an edge or not; public edges stay ---------

_NODES = 600  # of which every pair is a canary
_TREE_LEAVES = 2000  # of a tree, each block of which has one
_KEPT = 8  # one node pair in so many becomes an edge
_COUNTED = 1 << 17  # canaries in blocks


def _node_pairs(nodes: int, unit: Unit) -> tuple[Domain, Indices, Callable[[Indices], Adjacency]]:
    """Return node pairs that belong to one canary each, and the graph with some of them and public edges.

    Under ``edge-subset`` a path is public, and a tenth of nodes is unlisted.
    """
    known = np.empty((2, 0), dtype=np.int64)
    domain = Domain.whole(nodes, directed=isinstance(unit, DirectedEdge))
    if isinstance(unit, EdgeSubset):
        known = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
        path = Adjacency.from_edges(*known, num_nodes=nodes, directed=False)
        domain = Domain.within(path, torch.arange(nodes) < max(2, nodes - nodes // 10))
    slots = np.arange(domain.slots.total)

    def edges(chosen: Indices) -> Adjacency:
        ends = np.concatenate([known, np.stack(domain.ends(chosen))], axis=1)
        return Adjacency.from_edges(*ends, num_nodes=len(domain.rank), directed=domain.slots.directed)

    return domain, domain.keep_protected(slots) if isinstance(unit, EdgeSubset) else slots, edges


@build_canaries.register
def _of_responses(query: EdgeResponseQuery | TopNodePairsQuery, context: CanaryContext) -> Canaries:
    """Every node pair is reported as an edge, or not; in a fixed number of places, pairs compete for them."""
    domain, slots, edges = _node_pairs(_NODES, context.unit)
    compete = isinstance(query, TopNodePairsQuery)
    data = TopNodePairsData(domain, len(slots) // _KEPT) if compete else EdgeResponseData(domain)
    return Canaries(
        query,
        len(slots),
        lambda coins: (edges(slots[coins]), data),
        lambda answer: np.isin(slots, answer.astype(np.int64)),
        compete=compete,
    )


@build_canaries.register
def _of_blocks(query: BlockCountQuery, context: CanaryContext) -> Canaries:
    """One edge per block, or none: disjoint blocks have separate counts."""
    domain, slots, edges = _node_pairs(_TREE_LEAVES, context.unit)
    tree = Dendrogram.balanced(domain.slots.nodes, context.rng)
    blocks = DendrogramBlocks.from_tree(tree, domain.public, query.epsilon)
    tried = slots[context.rng.permutation(len(slots))]
    owner = blocks.owner[tree.lowest_common_ancestors(*domain.slots.ends(tried))]
    held, first = np.unique(owner, return_index=True)
    chosen, data = tried[first], BlockCountData(domain, tree=tree)

    def insert(coins: Coins) -> tuple[Adjacency, BlockCountData]:
        return edges(chosen[coins]), data

    rounds = math.ceil(min(64, _COUNTED / len(chosen)))
    return Canaries(query, len(chosen), insert, lambda answer: answer[held] > 0, rounds)


# -- training steps: gradients that are the axes, each with a coordinate of its own ------------------------

_COORDINATES, _MAX_SCORES = 1 << 11, 1 << 24  # canaries in one step, and in all steps that are drawn


@build_canaries.register
def _of_records(query: DPSGDQuery, context: CanaryContext) -> CanaryResult | str:
    """Records whose clipped gradients are the axes."""
    if isinstance(query, TreeStepsQuery) and query.sampling_rate < 1:
        return "the claim assumes opposite gradients at several root nodes, whose number in a batch is random"
    if query.groups > 1 and not query.pays[context.group]:
        return "records of this group are not trained on"
    if query.reach and query.sampling_rate < 1:
        return (
            "the claim assumes that every batch contains all gradients that read a record, and sampled "
            "batches contain fewer"
        )
    wide = replace(query, parameters=_COORDINATES)  # the same law, with room for canaries
    if isinstance(query, TreeStepsQuery):
        return _of_steps(query, context, wide, None, query.sensitivity(context.unit) / query.clip)
    if query.sampling_rate == 1:
        own = 2 * query.reach + query.pays[context.group if query.groups > 1 else 0]
        return _of_steps(query, context, wide, None, own * getattr(context.unit, "change", 1.0))
    relation: Relation = getattr(context.unit, "relation", "add_remove")
    claimed = PoissonGaussian(query.noise_multiplier, query.sampling_rate, query.steps, relation)
    return _of_steps(query, context, wide, claimed)


@build_canaries.register
def _of_edges(query: EdgeAttentionQuery, context: CanaryContext) -> CanaryResult | str:
    """Targets whose clipped gradients are the axes, and the opposite ones with the edge."""
    claimed = query.event(context.unit)
    assert isinstance(claimed, PoissonGaussian)
    if claimed.steps > query.steps:
        return "both endpoints are training nodes, and the claim assumes that they are in separate batches"
    wide = replace(query, dim=math.ceil(math.sqrt(_COORDINATES / 2)))  # the same law, with room
    return _of_steps(query, context, wide, claimed)


def _of_steps(
    query: DPSGDQuery | EdgeAttentionQuery,
    context: CanaryContext,
    wide: DPSGDQuery | EdgeAttentionQuery,
    claimed: PoissonGaussian | None,
    change: float = 1.0,
) -> CanaryResult:
    """Score single steps in units of the noise. A record moves its score by ``change`` clipping norms.

    There are as many steps as a bound on the multiplier needs. Without ``claimed`` every record is in every
    batch: one Gaussian. Otherwise batches are samples: the largest multiplier that scores do not reject,
    composed as is claimed. Under REPLACE both neighbors are in the batch, and move it in opposite directions:
    the multiplier that is certified of one of them is that of both.
    """
    noise = wide.randomness(context.key().query_key(canonical({"audit": query.stage})))
    z, q = (1.0, 1.0) if claimed is None else (claimed.noise_multiplier, claimed.sampling_rate)
    mu_per_score = q * math.sqrt(math.expm1(min((change / query.noise[0]) ** 2, 30.0)))
    needed = (2 * 3.5 / (BLUR * mu_per_score)) ** 2
    steps = math.ceil(min(max(needed, 1 << 16), _MAX_SCORES) / _COORDINATES)
    present = context.coins(steps * _COORDINATES).reshape(steps, -1)
    scores = np.empty((steps, _COORDINATES))
    for step in range(steps):
        inside = np.zeros(_COORDINATES)
        inside[noise.batch(step, _COORDINATES).numpy()] = 1.0
        drawn = np.asarray(noise.noise(step), dtype=np.float64)[:_COORDINATES]
        scores[step] = (inside * present[step] * change * noise.steps + drawn) / noise.sigma
    certified: Event = Gaussian(0.0)
    if claimed is None:
        bound = context.gaussian(scores.ravel(), present.ravel())
        certified = Gaussian((bound.mu or 0.0) * math.sqrt(query.steps))
        bound = replace(bound, mu=certified.mu)
    else:
        bound = steps_bound(0.0, context.plan.delta, context.confidence)
        largest = largest_multiplier(scores[present], scores[~present], z, q, 1 - context.confidence)
        if math.isfinite(largest):
            certified = replace(claimed, noise_multiplier=largest)
    bound = replace(bound, epsilon=privacy_curve(certified).epsilon(context.plan.delta))
    return _result(query, context, scores.size, certified, bound)


# -- features of node pairs: a canary is a group of edges, each of which has an equal part in its score -----

_SHIFT, _MAX_EDGES = 4.0, 1 << 13  # of a score, in standard deviations of the noise, and edges of a release
_DIM, _CELLS, _SCORES = 1 << 6, 1 << 8, 1 << 14  # canaries in a release, and in all of them
_RELEASES, _ANSWERS = 1 << 6, 1 << 6  # with one canary, and answers of each
PairQuery = EdgeProductQuery | PairHistogramQuery | PairSumQuery


def _pairs(held_out: HeldOutPairs, count: int, *, held: bool) -> Indices:
    """Return the smaller ids of disjoint pairs (i, i + 1) that are held out, or that are not."""
    share = held_out.share if held else 1 - held_out.share
    first = 2 * np.arange(math.ceil(4 * count / share) + 64)
    chosen: Indices = first[held_out.contains(first, first + 1) == held][:count]
    return chosen


def _pair_groups(query: PairQuery, count: int, *, held: bool = False) -> tuple[Indices, int]:
    """Return the smaller ids of the pairs of each group, shape (count, edges of a group), and all nodes.

    The group moves its score by a few standard deviations, so large noise needs no more canaries than small.
    """
    each = min(math.ceil(_SHIFT * query.sigma[0]), _MAX_EDGES // count)
    first = _pairs(query.held_out, count * each, held=held).reshape(count, each)
    return first, int(first.max()) + 2


def _pair_edges(first: Indices, data: Any, *, directed: bool) -> Insert:
    """Return what inserts the edges (i, i + 1) of some canaries; ``first`` has each i, (count, edges)."""
    star = partial(_stars, nodes=int(first.max()) + 2, directed=directed)
    return lambda coins: (star(first[coins].ravel()), data)


@build_canaries.register
def _of_edge_products(query: EdgeProductQuery, context: CanaryContext) -> Canaries:
    """Edges between nodes with equal unit vectors; those of each group have a column of their own."""
    first, nodes = _pair_groups(query, _DIM)
    vectors = torch.zeros(nodes, _DIM)
    for column, group in enumerate(torch.from_numpy(first)):
        vectors[group, column] = vectors[group + 1, column] = 1.0
    wide, rounds, sigma = replace(query, dim=_DIM), _SCORES // _DIM, query.sigma[0]
    insert = _pair_edges(first, EdgeProductData(vectors), directed=not query.symmetric)
    return Canaries(wide, _DIM, insert, lambda found: np.diag(found) / sigma, rounds, edges=first.shape[1])


@build_canaries.register
def _of_pair_histograms(query: PairHistogramQuery, context: CanaryContext) -> Canaries | str:
    """Held-out edges; those of each group have a cell of their own."""
    if not query.held_out.share:
        return "no pair is held out"
    first, nodes = _pair_groups(query, _CELLS, held=True)
    table, one = torch.zeros(nodes, 1), torch.ones(1).double()
    for cell, group in enumerate(torch.from_numpy(first)):
        table[group] = table[group + 1] = cell
    terms = PairTerms((table,), (torch.ones_like(table),), 0 * one, one)
    data = PairHistogramData(terms, one, torch.arange(_CELLS - 1).double() + 0.5)
    wide, rounds, sigma = replace(query, terms=1, cells=_CELLS), _SCORES // _CELLS, query.sigma[0]
    insert = _pair_edges(first, data, directed=not query.symmetric)
    return Canaries(wide, _CELLS, insert, lambda found: found / sigma, rounds, edges=first.shape[1])


@build_canaries.register
def _of_pair_sums(query: PairSumQuery, context: CanaryContext) -> Canaries:
    """One group of edges, or none, with a single feature of size one: the largest possible contribution.

    Each moves the feature, its square, and the number of edges by 1 / sqrt(3).
    """
    first, nodes = _pair_groups(query, 1)
    table, one = torch.ones(nodes, 1), torch.ones(1).double()
    data = PairSumData(PairTerms((table,), (table,), 0 * one, one))
    wide, scale = replace(query, terms=1), math.sqrt(3) * query.sigma[0]
    insert = _pair_edges(first, data, directed=not query.symmetric)
    score, edges = (lambda found: found.sum(axis=1) / scale), first.shape[1]
    return Canaries(wide, 1, insert, score, _RELEASES, edges=edges, answers=_ANSWERS)


_LISTS = 256  # of a release
_LIST_RELEASES = 8  # between two looks at the number of canaries


@build_canaries.register
def _of_list_products(query: ListProductQuery, context: CanaryContext) -> Canaries | str:
    """Insert lists that change in one item each, which no other list has.

    A record is a list of one item, or none; if it is replaced, another item. For an edge, all lists contain
    the same D - 1 items, so that the item moves its own products and no others.
    """
    unit, length = context.unit, query.out_degree_bound
    record = isinstance(unit, NodeRecord)
    if record and length > 1:
        return _of_small_graphs(query, context)  # a list of one item would not have norm one
    shared = 0 if record else min(length, query.columns, MAX_COLUMNS + 1 - _LISTS) - 1
    replaced = isinstance(unit, NodeRecord) and unit.replace_one
    users = _LISTS // 2 if replaced else _LISTS
    wide = replace(query, columns=shared + _LISTS)
    nodes = users + wide.columns
    columns = torch.full((nodes,), NO_COLUMN, dtype=torch.int64)
    columns[users:] = torch.arange(wide.columns)
    data = ListProductData(columns, torch.ones(nodes, dtype=torch.bool))
    common = np.repeat(np.arange(users), shared), np.tile(users + np.arange(shared), users)
    own = users + shared + np.arange(users)

    def insert(coins: Coins) -> tuple[Adjacency, ListProductData]:
        inside, absent = np.flatnonzero(coins), np.flatnonzero(~coins) if replaced else own[:0]
        sources = np.concatenate([common[0], inside, absent])
        targets = np.concatenate([common[1], own[inside], own[absent] + users])
        return Adjacency.from_edges(sources, targets, num_nodes=nodes, directed=True), data

    def score(answer: Floats) -> Floats:
        seen = unpack_products(torch.from_numpy(answer), wide.columns)
        scores = np.diagonal(seen)[shared:] + 2 * seen[:shared, shared:].sum(axis=0)
        scores = (scores[:users] - scores[users:]) / math.sqrt(2) if replaced else scores
        return np.asarray(scores / (math.sqrt(2 * shared + 1) * query.sigma))

    shift = math.sqrt(2) if replaced else math.sqrt(2 * shared + 1) / length
    rounds = _LIST_RELEASES * context.rounds(_LIST_RELEASES * users, shift / query.sigma)
    return Canaries(wide, users, insert, score, rounds)
