"""Canaries in single queries: many copies of a query's worst neighbors, answered by the release path.

Each canary has separate rows, node pairs, cells or coordinates, so one release contains thousands of
independent ones. The same path with zero noise shows how far each moves the answer; the bound is about
the noise. There are as many releases as the claim needs for a bound of about nine tenths of it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor

from graphveil.audit.bounds import LowerBound, largest_multiplier, one_run, repeated_runs, summed_gaussian
from graphveil.audit.noise import FlipLaw, GaussianLaw, LaplaceLaw, Law
from graphveil.audit.query_neighbor_tests import (
    NeighborView,
    has_row_per_node,
    law,
    reason_without_example,
    zero_noise_plan,
)
from graphveil.audit.small_graphs import adjacency, family
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain, Integers
from graphveil.core.events import Event, Gaussian, PoissonGaussian, PureDP, Relation
from graphveil.core.keys import ReleaseKey, canonical
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.steps import StepNoise
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
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.queries.pair_sums import (
    EdgeProductData,
    EdgeProductQuery,
    PairHistogramData,
    PairHistogramQuery,
    PairSumData,
    PairSumQuery,
    PairTerms,
)
from graphveil.core.queries.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
)
from graphveil.core.queries.training_steps import DPSGDQuery, TreeStepsQuery
from graphveil.core.query import Query, QueryData
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, EdgeSubset, NodeBoundedDegree, NodeRecord, NodeUnit, Unit

Floats = npt.NDArray[np.float64]
Coins = npt.NDArray[np.bool_]
RowQuery = Callable[[Any, Coins], Floats]

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

    def coins(self, count: int) -> Coins:
        return self.rng.random(count) < 0.5

    def key(self) -> ReleaseKey:
        if self.seed is None:
            return ReleaseKey.fresh()
        return ReleaseKey.from_seed(self.seed + int(self.rng.integers(1 << 30)), "audit")

    def noisy(
        self, query: Query, edges: Adjacency, groups: Tensor | None, data: Any, count: int = 1
    ) -> Floats:
        """Answer the query as the plan does; several independent answers are stacked."""
        return _answer(single_query_plan(self.plan, query, count), edges, groups, data, self.key())

    def rounds(self, count: int, mu: float) -> int:
        """Return the number of releases that a bound on mu needs, for a number of canaries."""
        needed = (2 * float(ndtri(self.confidence)) / (BLUR * max(mu, 1e-3))) ** 2
        return max(1, min(_MAX_ROUNDS, math.ceil(needed / count)))

    def exact(self, query: Query, edges: Adjacency, groups: Tensor | None, data: Any) -> Floats:
        return _answer(zero_noise_plan(self.unit, (query,)), edges, groups, data, None)

    def gaussian(self, scores: Floats, present: Coins, edges: int = 1) -> LowerBound:
        """Return the bound from scores of canaries; ``present`` are included.

        A canary may have several edges: if mu bounds the loss of one edge, k mu bounds that of k edges.
        """
        bound = summed_gaussian(
            scores[present], scores[~present], delta=self.plan.delta, confidence=self.confidence
        )
        mu = (bound.mu or 0.0) / edges
        return replace(bound, mu=mu, epsilon=epsilon_of(mu, self.plan.delta))

    def counted(self, detected: Coins, present: Coins) -> LowerBound:
        tp, fp = int(detected[present].sum()), int(detected[~present].sum())
        inside = int(present.sum())
        return repeated_runs(tp, inside, fp, len(present) - inside, confidence=self.confidence)


@lru_cache(maxsize=64)
def single_query_plan(plan: ReleasePlan, query: Query, count: int = 1) -> ReleasePlan:
    return replace(plan, queries=(query,) * count, slack=0.0, alternatives=())


def _answer(
    plan: ReleasePlan, edges: Adjacency, groups: Tensor | None, data: Any, key: ReleaseKey | None
) -> Floats:
    release = Release.open(plan, edges, groups, budget=MemoryLedger(), key=key, label="audit")
    answers = [release.answer(data).to(dtype=torch.float64).numpy() for _ in plan.queries]
    return np.asarray(answers[0] if len(answers) == 1 else np.stack(answers))


@dataclass(frozen=True, eq=False)
class CanaryResult:
    """Result of the canaries in one query."""

    stage: str
    canaries: int
    certified: Event
    claimed: float
    bound: LowerBound


@singledispatch
def insert_canaries(query: Query, context: CanaryContext) -> CanaryResult | str:
    """Insert canaries into a query and return the result, or why there are none.

    By default each release has one canary: one of two neighboring small graphs is answered, those of a few
    hundred whose answers differ most by the query's own law. Kinds of queries whose releases have room for
    many canaries at once register a function here, which needs less time and certifies more.
    """
    return reason_without_example(query) or _of_small_graphs(query, context)


def planted(
    query: Query, context: CanaryContext, count: int, certified: Event, bound: LowerBound
) -> CanaryResult:
    """Return the result of a number of canaries, with the query's own privacy cost as the claim."""
    claimed = privacy_curve(query.event(context.unit)).epsilon(context.plan.delta)
    return CanaryResult(query.describe().stage, count, certified, claimed, bound)


def of_scores(
    query: Query, context: CanaryContext, scores: Floats, present: Coins, edges: int = 1
) -> CanaryResult:
    """Return the result of canaries with Gaussian scores, which have one or several edges each."""
    bound = context.gaussian(scores, present, edges)
    return planted(query, context, len(scores), Gaussian(bound.mu or 0.0), bound)


def of_rounds(
    query: Query,
    context: CanaryContext,
    count: int,
    rounds: int,
    score: Callable[[Coins], Floats],
    edges: int = 1,
) -> CanaryResult:
    """Return the result of several releases with ``count`` canaries.

    ``score`` makes a release with the canaries that are in, and returns one score per canary.
    """
    scores, present = [], []
    for _ in range(rounds):
        coins = context.coins(count)
        scores.append(score(coins))
        present.append(coins)
    return of_scores(query, context, np.concatenate(scores), np.concatenate(present), edges)


# -- any query with example data: one pair of small graphs, and one canary in each release ------------------

_FAMILIES, _NEIGHBORS = 60, 4  # small graphs, and neighbors of each, among which the pair is searched
_RECORDS = 1 << 11  # releases of single canaries


@dataclass(frozen=True, eq=False)
class _SmallGraph:
    """A small graph as a release reads it."""

    view: NeighborView
    data: QueryData[Any]
    own_rows: list[int]  # which only the changed node receives

    def answer(self, run: Any, query: Query) -> Law:
        """Return the law around an answer: around the exact one it is the law of noisy answers."""
        edges = adjacency(self.view.graph, self.view.public, weighted=query.reads_edge_weights)
        found: Floats = run(query, edges, self.view.groups if query.needs_groups else None, self.data)
        found[self.own_rows] = 0.0
        return law(query, self.view, found)


def _of_small_graphs(query: Query, context: CanaryContext) -> CanaryResult | str:
    """Release one of two neighbors, and compare how likely the answer is under both."""
    best, largest = None, 0.0
    for pair in _small_pairs(query, context):
        before, after = (one.answer(context.exact, query) for one in pair)
        loss = before.against(after, 0.0)
        if max(loss.mu, loss.pure) > largest:
            best, largest, mu = (pair, before, after), max(loss.mu, loss.pure), loss.mu
    if best is None:
        return "no pair of small graphs differs in its answer"
    pair, before, after = best
    present, ratios = context.coins(_RECORDS), np.empty(_RECORDS)
    for number, inside in enumerate(present):
        seen = pair[int(inside)].answer(context.noisy, query)
        ratios[number] = _log_likelihood(after, seen) - _log_likelihood(before, seen)
    if mu:
        return of_scores(query, context, ratios / mu, present)
    bound = context.counted(ratios > 0, present)
    return planted(query, context, _RECORDS, PureDP(bound.epsilon), bound)


def _small_pairs(query: Query, context: CanaryContext) -> Iterator[tuple[_SmallGraph, _SmallGraph]]:
    """Yield neighboring small graphs that differ in a record, or edge, of the context's groups."""
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
            first = query.example_data(view)
            second = query.example_data(other) if isinstance(unit, NodeUnit) else first
            if first is not None and second is not None:
                private = has_row_per_node(query) and isinstance(unit, NodeBoundedDegree)
                own = list(neighbor.place) if private else []
                yield _SmallGraph(view, first, own), _SmallGraph(other, second, own)


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
            return float(np.log(np.where(seen.bits == found.bits, 1 - found.flip, found.flip)).sum())
    raise NotImplementedError(
        f"canaries in small graphs are not supported for answers of type {type(found).__name__}"
    )


# -- rows: disjoint stars and sources ----------------------------------------------------------------------

NUMBERS, _MAX_NODES = 1 << 21, 1 << 17  # of a release with canaries, which then takes seconds
_MAX_LEAVES = 1 << 12  # of a star: a larger asserted degree is certified in part


def canaries_per_release(dim: int, nodes_each: int) -> int:
    return max(16, min(NUMBERS // dim, _MAX_NODES) // nodes_each)


@insert_canaries.register
def _of_hops(query: NeighborSumQuery, context: CanaryContext) -> CanaryResult:
    """Stars whose centers send a vector of norm one: an undirected or stored edge, or all edges of a node."""
    unit = context.unit
    here, there = context.pair if query.groups > 1 else (0, 0)
    leaves = min(unit.max_degree, _MAX_LEAVES) if isinstance(unit, NodeBoundedDegree) else 1
    count = canaries_per_release(query.dim, 1 + leaves)
    nodes, center = count * (1 + leaves), np.arange(count) * (1 + leaves)
    groups = torch.full((nodes,), there)
    groups[torch.from_numpy(center)] = here
    vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
    vectors[:, 0] = 1.0
    keys: Any = None  # by which any two nodes are as alike as can be
    if query.similarity is not None and query.similarity.reads == "attention":
        maps = torch.full((nodes, 1), 4.0)
        keys = maps, maps, torch.tensor([9.0]), torch.tensor(0.0)
    elif query.similarity is not None:
        keys = torch.eye(3, dtype=torch.float64)[:1].repeat(nodes, 1)
    data = NeighborSumData(vectors, keys)
    weighted = query.reads_edge_weights

    def edges(who: Coins) -> Adjacency:
        sources = np.repeat(center[who], leaves)
        targets = (center[who][:, None] + 1 + np.arange(leaves)).ravel()
        return Adjacency.from_edges(
            sources,
            targets,
            num_nodes=nodes,
            directed=isinstance(unit, DirectedEdge),
            weight=np.ones(len(sources)) if weighted else None,
            max_weight=1.0 if weighted else None,
        )

    public = groups if query.needs_groups else None
    sigma = np.array(query.sigma)[groups.numpy() if len(query.sigma) > 1 else np.zeros(nodes, dtype=int)]

    def query_rows(run: Any, who: Coins) -> Floats:
        rows: Floats = run(query, edges(who), public, data) / sigma[:, None]
        if isinstance(unit, NodeUnit):
            rows[center] = 0.0  # a node's own row is for it alone
        return rows

    return _of_rows(query, context, query_rows, count, np.arange(nodes) // (1 + leaves))


@insert_canaries.register
def _of_pushes(query: OutEdgeSumQuery, context: CanaryContext) -> CanaryResult | str:
    """Sources with separate lists that use the whole budget, and a vector at its bound."""
    level, group = int(np.argmax(query.levels)), context.group if query.groups > 1 else 0
    if not query.bounds[group]:
        return "records of this group send nothing"
    listed = max(1, math.ceil(16 * query.out_degree_bound / query.levels[level]))
    count = canaries_per_release(query.dim, 1 + listed)
    nodes, source = count * (1 + listed), np.arange(count) * (1 + listed)
    replaced = getattr(context.unit, "replace_one", False)
    groups = torch.full((nodes,), group) if query.needs_groups else None
    length, place = query.bounds[group] * (1 - 1e-9), torch.full((nodes,), level)

    def query_rows(run: Any, who: Coins) -> Floats:
        lists = np.ones(count, dtype=bool) if replaced else who
        targets = (source[lists][:, None] + 1 + np.arange(listed)).ravel()
        graph = Adjacency.from_edges(
            np.repeat(source[lists], listed), targets, num_nodes=nodes, directed=True
        )
        vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
        present, absent = length * query.opposite()
        absent = absent if replaced else torch.zeros_like(absent)
        vectors[torch.from_numpy(source)] = torch.where(torch.from_numpy(who)[:, None], present, absent)
        rows: Floats = run(query, graph, groups, OutEdgeSumData(vectors, place)) / query.sigma
        return rows

    return _of_rows(query, context, query_rows, count, np.arange(nodes) // (1 + listed))


def _of_rows(
    query: Query, context: CanaryContext, query_rows: RowQuery, count: int, owner: npt.NDArray[np.int64]
) -> CanaryResult:
    """Score each canary along what it moves, in noise units, and bound mu.

    ``query_rows`` returns rows in noise units for those canaries that are in. ``owner`` has the canary of
    each row.
    """
    none = query_rows(context.exact, np.zeros(count, dtype=bool))
    moved = query_rows(context.exact, np.ones(count, dtype=bool)) - none
    squares = np.bincount(owner, (moved * moved).sum(axis=1))

    def score(coins: Coins) -> Floats:
        seen = query_rows(context.noisy, coins) - none
        return np.asarray(np.bincount(owner, (moved * seen).sum(axis=1)) / np.sqrt(squares))

    rounds = context.rounds(count, float(np.sqrt(squares.mean())))
    return of_rounds(query, context, count, rounds, score)


# -- counts: each canary moves a count, a cell or a candidate of its own -----------------------------------

# More classes and candidates than the query has: the noise has the same law, and each canary its own count.
_CLASSES, _CANDIDATES = 64, 1 << 12


@insert_canaries.register
def _of_neighbor_counts(query: NeighborCountQuery, context: CanaryContext) -> CanaryResult:
    """Undirected edges of disjoint pairs: the count that one moves is at least one, or not."""
    narrow = replace(query, classes=1)  # the law of a count is the same
    count, moved = canaries_per_release(1, 2), query.sensitivity(context.unit) * query.epsilon
    open_pairs = HeldOutPairs(0.0, 0) if query.held_out is None else query.held_out
    first = _pairs(open_pairs, count, held=False)
    nodes, rounds = int(first[-1]) + 2, context.rounds(count, moved)
    data = NeighborCountData(torch.zeros(nodes, dtype=torch.int64))
    groups = torch.zeros(nodes, dtype=torch.int64) if query.needs_groups else None
    directed = isinstance(context.unit, DirectedEdge)

    def edges(who: Coins) -> Adjacency:
        return Adjacency.from_edges(first[who], first[who] + 1, num_nodes=nodes, directed=directed)

    ends = np.stack([first, first + 1], axis=1)
    reached = (context.exact(narrow, edges(np.ones(count, dtype=bool)), groups, data) > 0.5)[ends]
    present = context.coins(rounds * count).reshape(rounds, count)
    detected = np.empty_like(present)
    for number, coins in enumerate(present):
        seen = context.noisy(narrow, edges(coins), groups, data)
        above = (seen > 0.5)[ends] | ~reached
        detected[number] = above.reshape(count, -1).all(axis=1)  # in every count that it moves
    bound = context.counted(detected.ravel(), present.ravel())
    return planted(query, context, present.size, PureDP(bound.epsilon), bound)


@insert_canaries.register
def _of_edge_counts(query: EdgeCountQuery, context: CanaryContext) -> CanaryResult | str:
    """An edge for each cell, in a table of more classes."""
    pays = [group for group, counted in enumerate(query.labeled) if counted]
    here, there = context.pair
    if query.groups > 1 and not (query.labeled[here] and query.labeled[there]):
        return "the pair of groups with the largest privacy cost is not counted"
    directed = isinstance(context.unit, DirectedEdge)
    wide = replace(query, classes=_CLASSES)
    every = np.indices((_CLASSES, _CLASSES)).reshape(2, -1)
    cells = every if directed else every[:, every[0] <= every[1]]
    count = cells.shape[1]
    labels = torch.from_numpy(cells.T.ravel().copy())
    groups, first = torch.full((2 * count,), pays[0]), 2 * np.arange(count)

    def score(coins: Coins) -> Floats:
        edges = Adjacency.from_edges(first[coins], first[coins] + 1, num_nodes=2 * count, directed=directed)
        seen = context.noisy(wide, edges, groups, EdgeCountData(labels))
        return np.asarray(seen[cells[0], cells[1]] / query.sigma[0])

    return of_rounds(query, context, count, context.rounds(count, 1 / query.sigma[0]), score)


@insert_canaries.register
def _of_tallies(query: AccuracyCountQuery, context: CanaryContext) -> CanaryResult | str:
    """A record for each run of candidates, right about all of them, in a tally of more candidates."""
    if query.groups > 1 and not query.pays[context.group]:
        return "records of this group are not counted"
    each = query.candidates
    count = max(1, _CANDIDATES // each)
    wide = replace(query, candidates=count * each)
    graph = Adjacency.from_edges([], [], num_nodes=2, directed=True)  # which counts of records do not read
    groups = torch.full((2,), context.group) if query.groups > 1 else None

    def score(coins: Coins) -> Floats:
        correct = torch.from_numpy(np.kron(np.diag(coins), np.ones((1, each), dtype=bool)))
        seen = context.noisy(wide, graph, groups, AccuracyCountData(correct))
        return np.asarray(seen.reshape(count, each).sum(axis=1) / (query.sigma * math.sqrt(each)))

    return of_rounds(query, context, count, context.rounds(count, math.sqrt(each) / query.sigma), score)


# -- released graphs: every node pair, or one in every block, is an edge or not; public edges stay ---------

_NODES = 600  # of which every pair is a canary
_TREE_LEAVES = 2000  # of a tree, each block of which has one
_KEPT = 8  # one node pair in so many becomes an edge
_COUNTED = 1 << 17  # canaries in blocks


@dataclass(frozen=True, eq=False)
class _CanaryPairs:
    """Node pairs that belong to one canary each, and the public edges."""

    domain: Domain
    known: npt.NDArray[np.int64]  # public edges, (2, edges)
    slots: Integers

    @classmethod
    def for_unit(cls, nodes: int, unit: Unit) -> "_CanaryPairs":
        """Lay out all node pairs; under ``edge-subset`` a public path, and a tenth of nodes unlisted."""
        if not isinstance(unit, EdgeSubset):
            domain = Domain.whole(nodes, directed=isinstance(unit, DirectedEdge))
            return cls(domain, np.empty((2, 0), dtype=np.int64), np.arange(domain.slots.total))
        known = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
        path = Adjacency.from_edges(*known, num_nodes=nodes, directed=False)
        domain = Domain.within(path, torch.arange(nodes) < max(2, nodes - nodes // 10))
        return cls(domain, known, domain.keep_protected(np.arange(domain.slots.total)))

    def edges(self, slots: Integers) -> Adjacency:
        ends = np.concatenate([self.known, np.stack(self.domain.ends(slots))], axis=1)
        nodes, directed = len(self.domain.rank), self.domain.slots.directed
        return Adjacency.from_edges(*ends, num_nodes=nodes, directed=directed)


@insert_canaries.register
def _of_responses(query: EdgeResponseQuery, context: CanaryContext) -> CanaryResult:
    """Every node pair is reported as an edge, or not."""
    canary_pairs = _CanaryPairs.for_unit(_NODES, context.unit)
    present = context.coins(len(canary_pairs.slots))
    out = context.noisy(
        query, canary_pairs.edges(canary_pairs.slots[present]), None, EdgeResponseData(canary_pairs.domain)
    ).astype(np.int64)
    bound = context.counted(np.isin(canary_pairs.slots, out), present)
    return planted(query, context, len(present), PureDP(bound.epsilon), bound)


@insert_canaries.register
def _of_top_slots(query: TopNodePairsQuery, context: CanaryContext) -> CanaryResult:
    """Slots compete for places, so those that got one are guesses in a single run."""
    canary_pairs = _CanaryPairs.for_unit(_NODES, context.unit)
    present = context.coins(len(canary_pairs.slots))
    data = TopNodePairsData(canary_pairs.domain, len(present) // _KEPT)
    out = context.noisy(query, canary_pairs.edges(canary_pairs.slots[present]), None, data).astype(np.int64)
    detected = np.isin(canary_pairs.slots, out)
    right = int((detected & present).sum())
    bound = one_run(len(present), int(detected.sum()), right, confidence=context.confidence)
    return planted(query, context, len(present), PureDP(bound.epsilon), bound)


@insert_canaries.register
def _of_blocks(query: BlockCountQuery, context: CanaryContext) -> CanaryResult:
    """One edge per block, or none: disjoint blocks have separate counts."""
    canary_pairs = _CanaryPairs.for_unit(_TREE_LEAVES, context.unit)
    tree = Dendrogram.balanced(canary_pairs.domain.slots.nodes, context.rng)
    blocks = DendrogramBlocks.from_tree(tree, canary_pairs.domain.public, query.epsilon)
    tried = canary_pairs.slots[context.rng.permutation(len(canary_pairs.slots))]
    owner = blocks.owner[tree.lowest_common_ancestors(*canary_pairs.domain.slots.ends(tried))]
    held, first = np.unique(owner, return_index=True)
    slots, data = tried[first], BlockCountData(canary_pairs.domain, tree=tree)
    detected, present = [], []
    for _ in range(math.ceil(min(64, _COUNTED / len(slots)))):
        coins: Coins = context.coins(len(slots))
        seen = context.noisy(query, canary_pairs.edges(slots[coins]), None, data)
        detected.append(seen[held] > 0)
        present.append(coins)
    bound = context.counted(np.concatenate(detected), np.concatenate(present))
    return planted(query, context, sum(map(len, present)), PureDP(bound.epsilon), bound)


# -- training steps: gradients that are the axes, each with a coordinate of its own ------------------------

_COORDINATES, _MAX_SCORES = 1 << 11, 1 << 24  # canaries in one step, and in all steps that are drawn


@insert_canaries.register
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
    noise = wide.randomness(context.key().query_key(canonical({"audit": query.stage})))
    if isinstance(query, TreeStepsQuery):
        return _of_all(query, context, noise, query.sensitivity(context.unit) / query.clip)
    if query.sampling_rate == 1:
        own = 2 * query.reach + query.pays[context.group if query.groups > 1 else 0]
        return _of_all(query, context, noise, own * getattr(context.unit, "change", 1.0))
    relation: Relation = getattr(context.unit, "relation", "add_remove")
    claimed = PoissonGaussian(query.noise_multiplier, query.sampling_rate, query.steps, relation)
    return _of_samples(query, context, noise, claimed)


@insert_canaries.register
def _of_edges(query: EdgeAttentionQuery, context: CanaryContext) -> CanaryResult | str:
    """Targets whose clipped gradients are the axes, and the opposite ones with the edge."""
    wide = replace(query, dim=math.ceil(math.sqrt(_COORDINATES / 2)))  # the same law, with room
    noise = wide.randomness(context.key().query_key(canonical({"audit": query.stage})))
    claimed = query.event(context.unit)
    assert isinstance(claimed, PoissonGaussian)
    if claimed.steps > query.steps:
        return "both endpoints are training nodes, and the claim assumes that they are in separate batches"
    return _of_samples(query, context, noise, claimed)


def _of_all(query: Query, context: CanaryContext, noise: StepNoise, change: float) -> CanaryResult:
    """Every record is in every batch: one Gaussian, of ``change`` clipping norms a step."""
    steps: int = query.steps  # type: ignore[attr-defined]
    scores, present = _step_scores(query, context, noise, 1.0, change)
    bound = context.gaussian(scores.ravel(), present.ravel())
    whole = Gaussian((bound.mu or 0.0) * math.sqrt(steps))
    return _of_all_steps(query, context, scores.size, whole, replace(bound, mu=whole.mu))


def _of_samples(
    query: Query, context: CanaryContext, noise: StepNoise, claimed: PoissonGaussian
) -> CanaryResult:
    """Batches are samples: the largest multiplier that scores do not reject, composed as is claimed.

    Under REPLACE both neighbors are in the batch, and move it in opposite directions: the multiplier that
    is certified of one of them is that of both.
    """
    z, q = claimed.noise_multiplier, claimed.sampling_rate
    scores, present = _step_scores(query, context, noise, q)
    largest = largest_multiplier(scores[present], scores[~present], z, q, 1 - context.confidence)
    certified: Event = replace(claimed, noise_multiplier=largest) if math.isfinite(largest) else Gaussian(0.0)
    bound = LowerBound(
        epsilon=0.0,
        delta=context.plan.delta,
        confidence=context.confidence,
        max_certifiable=math.inf,
        method="likelihood ratio of steps",
    )
    return _of_all_steps(query, context, scores.size, certified, bound)


def _of_all_steps(
    query: Query, context: CanaryContext, count: int, certified: Event, bound: LowerBound
) -> CanaryResult:
    epsilon = privacy_curve(certified).epsilon(context.plan.delta)
    return planted(query, context, count, certified, replace(bound, epsilon=epsilon))


def _step_scores(
    query: Query, context: CanaryContext, noise: StepNoise, rate: float, change: float = 1.0
) -> tuple[Floats, Coins]:
    """Return scores of single steps in noise units, and which canaries are in: both (steps, coordinates).

    There are as many steps as a bound on the multiplier needs. A record moves its score by ``change`` norms.
    """
    mu_per_score = rate * math.sqrt(math.expm1(min((change / query.noise[0]) ** 2, 30.0)))
    needed = (2 * 3.5 / (BLUR * mu_per_score)) ** 2
    steps = math.ceil(min(max(needed, 1 << 16), _MAX_SCORES) / _COORDINATES)
    present = context.coins(steps * _COORDINATES).reshape(steps, -1)
    scores = np.empty((steps, _COORDINATES))
    for step in range(steps):
        inside = np.zeros(_COORDINATES)
        inside[noise.batch(step, _COORDINATES).numpy()] = 1.0
        drawn = np.asarray(noise.noise(step), dtype=np.float64)[:_COORDINATES]
        scores[step] = (inside * present[step] * change * noise.steps + drawn) / noise.sigma
    return scores, present


# -- features of node pairs: a canary is a group of edges, each of which has an equal part in its score -----

_SHIFT, _MAX_EDGES = 4.0, 1 << 13  # of a score, in standard deviations of the noise, and edges of a release
_DIM, _CELLS, _SCORES = 1 << 6, 1 << 8, 1 << 14  # canaries in a release, and in all of them
_RELEASES, _ANSWERS = 1 << 6, 1 << 6  # with one canary, and answers of each


def _pairs(held_out: HeldOutPairs, count: int, *, held: bool) -> npt.NDArray[np.int64]:
    """Return the smaller ids of disjoint pairs (i, i + 1) that are held out, or that are not."""
    share = held_out.share if held else 1 - held_out.share
    first = 2 * np.arange(math.ceil(4 * count / share) + 64)
    chosen: npt.NDArray[np.int64] = first[held_out.contains(first, first + 1) == held][:count]
    return chosen


def _pair_groups(
    query: EdgeProductQuery | PairHistogramQuery | PairSumQuery, count: int, *, held: bool = False
) -> npt.NDArray[np.int64]:
    """Return the smaller ids of the pairs of each group, shape (count, edges of a group).

    The group moves its score by a few standard deviations, so large noise needs no more canaries than small.
    """
    each = min(math.ceil(_SHIFT * query.sigma[0]), _MAX_EDGES // count)
    return _pairs(query.held_out, count * each, held=held).reshape(count, each)


def _of_pair_groups(
    query: EdgeProductQuery | PairHistogramQuery,
    context: CanaryContext,
    first: npt.NDArray[np.int64],
    data: QueryData[Tensor],
    score: Callable[[Floats], Floats],
) -> CanaryResult:
    """Insert the edges of each group, or none of them; ``score`` has one number per group."""
    (count, each), nodes, directed = first.shape, int(first.max()) + 2, not query.symmetric

    def released(coins: Coins) -> Floats:
        ends = first[coins].ravel()
        edges = Adjacency.from_edges(ends, ends + 1, num_nodes=nodes, directed=directed)
        return score(context.noisy(query, edges, None, data)) / query.sigma[0]

    return of_rounds(query, context, count, _SCORES // count, released, each)


@insert_canaries.register
def _of_edge_products(query: EdgeProductQuery, context: CanaryContext) -> CanaryResult:
    """Edges between nodes with equal unit vectors; those of each group have a column of their own."""
    first, wide = _pair_groups(query, _DIM), replace(query, dim=_DIM)
    vectors = torch.zeros(int(first.max()) + 2, _DIM)
    for column, group in enumerate(torch.from_numpy(first)):
        vectors[group, column] = vectors[group + 1, column] = 1.0
    return _of_pair_groups(wide, context, first, EdgeProductData(vectors), np.diagonal)


@insert_canaries.register
def _of_pair_histograms(query: PairHistogramQuery, context: CanaryContext) -> CanaryResult | str:
    """Held-out edges; those of each group have a cell of their own."""
    if not query.held_out.share:
        return "no pair is held out"
    first, wide = _pair_groups(query, _CELLS, held=True), replace(query, terms=1, cells=_CELLS)
    table = torch.zeros(int(first.max()) + 2, 1)
    for cell, group in enumerate(torch.from_numpy(first)):
        table[group] = table[group + 1] = cell
    one, ones = torch.ones(1).double(), torch.ones(len(table), 1)
    terms = PairTerms((table,), (ones,), torch.zeros(1).double(), one)
    data = PairHistogramData(terms, one, torch.arange(_CELLS - 1).double() + 0.5)
    return _of_pair_groups(wide, context, first, data, np.asarray)


@insert_canaries.register
def _of_pair_sums(query: PairSumQuery, context: CanaryContext) -> CanaryResult:
    """One group of edges, or none, with a single feature of size one: the largest possible contribution.

    Each moves the feature, its square, and the number of edges by 1 / sqrt(3).
    """
    first, wide = _pair_groups(query, 1)[0], replace(query, terms=1)
    nodes, directed = int(first.max()) + 2, not query.symmetric
    table, one = torch.ones(nodes, 1), torch.ones(1).double()
    data = PairSumData(PairTerms((table,), (table,), 0 * one, one))

    def released(inside: bool) -> Floats:
        ends = first if inside else first[:0]
        edges = Adjacency.from_edges(ends, ends + 1, num_nodes=nodes, directed=directed)
        seen = context.noisy(wide, edges, None, data, _ANSWERS)
        return np.asarray(seen.sum(axis=1) / (math.sqrt(3) * query.sigma[0]))

    present = context.coins(_RELEASES)
    scores = np.concatenate([released(bool(inside)) for inside in present])
    return of_scores(query, context, scores, present.repeat(_ANSWERS), len(first))


_LISTS = 256  # of a release
_LIST_RELEASES = 8  # between two looks at the number of canaries


@insert_canaries.register
def _of_list_products(query: ListProductQuery, context: CanaryContext) -> CanaryResult | str:
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

    def released(coins: Coins) -> Floats:
        inside, absent = np.flatnonzero(coins), np.flatnonzero(~coins) if replaced else own[:0]
        sources = np.concatenate([common[0], inside, absent])
        targets = np.concatenate([common[1], own[inside], own[absent] + users])
        edges = Adjacency.from_edges(sources, targets, num_nodes=nodes, directed=True)
        seen = unpack_products(torch.from_numpy(context.noisy(wide, edges, None, data)), wide.columns)
        scores = np.diagonal(seen)[shared:] + 2 * seen[:shared, shared:].sum(axis=0)
        scores = (scores[:users] - scores[users:]) / math.sqrt(2) if replaced else scores
        return np.asarray(scores / (math.sqrt(2 * shared + 1) * query.sigma))

    def several(coins: Coins) -> Floats:
        return np.concatenate([released(part) for part in coins.reshape(_LIST_RELEASES, users)])

    shift = math.sqrt(2) if replaced else math.sqrt(2 * shared + 1) / length
    count = _LIST_RELEASES * users
    return of_rounds(query, context, count, context.rounds(count, shift / query.sigma), several)
