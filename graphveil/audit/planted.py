"""Canaries in single mechanisms: the worst neighbours that a query has, many of them, asked by the real path.

Each canary has rows, slots or coordinates of its own, so one release holds thousands of independent ones.
What they would move without noise is asked by the same path with noise that is zero; the bound is about the
noise. As many releases are made as the claim needs for a bound of some nine tenths of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor

from graphveil.audit.bounds import LowerBound, repeated_runs
from graphveil.audit.silence import alone, silent
from graphveil.audit.summed import largest_multiplier, summed_gaussian
from graphveil.graph import Adjacency
from graphveil.graph.domain import Domain
from graphveil.privacy import (
    DirectedEdge,
    Event,
    Gaussian,
    MemoryLedger,
    NodePromise,
    PoissonGaussian,
    PureDP,
    UndirectedEdge,
    Unit,
    privacy_curve,
)
from graphveil.privacy.events import Relation
from graphveil.privacy.unit import NodeUnit
from graphveil.release import (
    DPSGDQuery,
    EdgeResponseData,
    EdgeResponseQuery,
    NeighborCountData,
    NeighborCountQuery,
    NeighborSumData,
    NeighborSumQuery,
    PushData,
    PushQuery,
    Release,
    ReleaseKey,
    ReleasePlan,
)
from graphveil.release.query import Query

NUMBERS = 1 << 21  # that a release of canaries may have: seconds
_NODES = 1 << 17  # and at most so many nodes
_SLOT_NODES = 600  # of which every pair is a canary
_COORDINATES = 1 << 11  # of steps: records whose gradients are the axes
_MOST_SCORES = 1 << 24
_MOST_ROUNDS = 64
_BLUR = 0.08  # how far below mu its bound may lie on average, relative

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Asking:
    """What canaries are planted in: how one query is asked, by whom, and with what chance.

    Args:
        plan: whose query, unit, sampler and delta are meant.
        confidence: of each bound.
        rng: of the coins.
        group: the public group of the records that are planted.
        pair: the public groups of the two ends of an edge.
        seed: of reproducible noise, for tests; fresh noise by default.
    """

    plan: ReleasePlan
    confidence: float
    rng: np.random.Generator
    group: int = 0
    pair: tuple[int, int] = (0, 0)
    seed: int | None = None

    @property
    def unit(self) -> Unit:
        """What is protected."""
        return self.plan.unit

    def coins(self, count: int) -> npt.NDArray[np.bool_]:
        """Return who is in."""
        return self.rng.random(count) < 0.5

    def key(self) -> ReleaseKey:
        """Return a key for one release."""
        if self.seed is None:
            return ReleaseKey.fresh()
        return ReleaseKey.from_seed(self.seed + int(self.rng.integers(1 << 30)), "audit")

    def noisy(self, query: Query, edges: Adjacency, groups: Tensor | None, data: Any) -> Floats:
        """Ask the query as the plan does."""
        return _asked(alone(self.plan, query), edges, groups, data, self.key())

    def rounds(self, count: int, mu: float) -> int:
        """Return how many releases of so many canaries a bound on mu needs."""
        needed = (2 * float(ndtri(self.confidence)) / (_BLUR * max(mu, 1e-3))) ** 2
        return max(1, min(_MOST_ROUNDS, math.ceil(needed / count)))

    def exact(self, query: Query, edges: Adjacency, groups: Tensor | None, data: Any) -> Floats:
        """Ask it without noise."""
        return _asked(silent(self.unit, query), edges, groups, data, None)

    def gaussian(self, scores: Floats, present: npt.NDArray[np.bool_]) -> LowerBound:
        """Return the bound from scores of canaries that are in and out."""
        return summed_gaussian(
            scores[present], scores[~present], delta=self.plan.delta, confidence=self.confidence
        )


def _asked(
    plan: ReleasePlan, edges: Adjacency, groups: Tensor | None, data: Any, key: ReleaseKey | None
) -> Floats:
    answer = Release(plan, edges, groups, budget=MemoryLedger(), key=key, label="audit").ask(data)
    return np.asarray(answer.to(torch.float64).numpy())


@dataclass(frozen=True, eq=False)
class Planted:
    """What canaries say of one query: its name, its event as certified, the bound, and what was claimed."""

    stage: str
    canaries: int
    certified: Event
    claimed: float
    bound: LowerBound


@singledispatch
def plant(query: Query, asking: Asking) -> Planted | None:
    """Return what canaries in a query say; None where no canary has a place of its own."""
    return None


# -- rows ---------------------------------------------------------------------------------------------------


@plant.register
def _of_hops(query: NeighborSumQuery, asking: Asking) -> Planted | None:
    """Stars whose centres send a vector of norm one: a friendship, a stored edge, or all edges of a node."""
    if query.similarity is not None and query.similarity.reads in ("attention", "given"):
        return None  # no two nodes are known to be as alike as its bound
    unit = asking.unit
    here, there = asking.pair if query.groups > 1 else (0, 0)
    leaves = min(unit.max_degree, 64) if isinstance(unit, NodePromise) else 1
    count = _count(query.dim, 1 + leaves)
    nodes, centre = count * (1 + leaves), np.arange(count) * (1 + leaves)
    groups = torch.full((nodes,), there)
    groups[torch.from_numpy(centre)] = here
    vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
    vectors[:, 0] = 1.0
    keys = None if query.similarity is None else torch.eye(3, dtype=torch.float64)[:1].repeat(nodes, 1)
    data = NeighborSumData(vectors, keys)

    def edges(who: npt.NDArray[np.bool_]) -> Adjacency:
        sources = np.repeat(centre[who], leaves)
        targets = (centre[who][:, None] + 1 + np.arange(leaves)).ravel()
        return _edges(sources, targets, nodes, unit)

    public = groups if query.needs_groups else None
    sigma = np.array(query.sigma)[groups.numpy() if len(query.sigma) > 1 else np.zeros(nodes, dtype=int)]

    def ask(how: Any, who: npt.NDArray[np.bool_]) -> Floats:
        rows: Floats = how(query, edges(who), public, data) / sigma[:, None]
        if isinstance(unit, NodeUnit):
            rows[centre] = 0.0  # a node's own row is for it alone
        return rows

    return _of_rows(query, asking, ask, count, np.arange(nodes) // (1 + leaves))


@plant.register
def _of_pushes(query: PushQuery, asking: Asking) -> Planted | None:
    """Sources with a list of their own that takes the whole budget, and a vector at its bound."""
    level, group = int(np.argmax(query.levels)), asking.group if query.groups > 1 else 0
    if not query.bounds[group]:
        return None
    listed = max(1, math.ceil(16 * query.degree_budget / query.levels[level]))
    count = _count(query.dim, 1 + listed)
    nodes, source = count * (1 + listed), np.arange(count) * (1 + listed)
    replaced = getattr(asking.unit, "replace_one", False)
    groups = torch.full((nodes,), group) if query.needs_groups else None
    length, place = query.bounds[group] * (1 - 1e-9), torch.full((nodes,), level)

    def ask(how: Any, who: npt.NDArray[np.bool_]) -> Floats:
        lists = np.ones(count, dtype=bool) if replaced else who
        targets = (source[lists][:, None] + 1 + np.arange(listed)).ravel()
        graph = Adjacency.from_edges(
            np.repeat(source[lists], listed), targets, num_nodes=nodes, directed=True
        )
        vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
        sent = np.where(who, length, -length if replaced else 0.0)
        vectors[torch.from_numpy(source), 0] = torch.from_numpy(sent)
        rows: Floats = how(query, graph, groups, PushData(vectors, place)) / query.sigma
        return rows

    return _of_rows(query, asking, ask, count, np.arange(nodes) // (1 + listed))


Ask = Callable[[Any, npt.NDArray[np.bool_]], Floats]


def _of_rows(query: Query, asking: Asking, ask: Ask, count: int, owner: npt.NDArray[np.int64]) -> Planted:
    """Score each canary along what it moves, in noise units, and bound mu.

    ``ask`` returns rows in noise units for those canaries that are in; ``owner`` says whose row each is.
    """
    none = ask(asking.exact, np.zeros(count, dtype=bool))
    moved = ask(asking.exact, np.ones(count, dtype=bool)) - none
    squares = np.bincount(owner, (moved * moved).sum(axis=1))
    mu = float(np.sqrt(squares.mean()))
    scores, present = [], []
    for _ in range(asking.rounds(count, mu)):
        coins = asking.coins(count)
        seen = ask(asking.noisy, coins) - none
        scores.append(np.bincount(owner, (moved * seen).sum(axis=1)) / np.sqrt(squares))
        present.append(coins)
    bound = asking.gaussian(np.concatenate(scores), np.concatenate(present))
    return _planted(query, asking, count * len(scores), Gaussian(bound.mu or 0.0), bound)


def _planted(query: Query, asking: Asking, count: int, certified: Event, bound: LowerBound) -> Planted:
    claimed = privacy_curve(query.event(asking.unit)).epsilon(asking.plan.delta)
    return Planted(query.stage, count, certified, claimed, bound)


def _count(dim: int, nodes_each: int) -> int:
    """Return how many canaries a release of a few million numbers holds."""
    return max(16, min(NUMBERS // dim, _NODES) // nodes_each)


def _edges(sources: Any, targets: Any, nodes: int, unit: Unit) -> Adjacency:
    directed = isinstance(unit, DirectedEdge)
    return Adjacency.from_edges(sources, targets, num_nodes=nodes, directed=directed)


# -- exact counts -------------------------------------------------------------------------------------------


@plant.register
def _of_counts(query: NeighborCountQuery, asking: Asking) -> Planted:
    """Friendships of disjoint pairs: the count that one moves is at least one, or not."""
    count = _count(query.classes, 2)
    first, nodes, present = np.arange(count) * 2, 2 * count, asking.coins(count)
    data = NeighborCountData(torch.zeros(nodes, dtype=torch.int64))
    groups = torch.zeros(nodes, dtype=torch.int64) if query.needs_groups else None

    def edges(who: npt.NDArray[np.bool_]) -> Adjacency:
        return _edges(first[who], first[who] + 1, nodes, asking.unit)

    moved = asking.exact(query, edges(np.ones(count, dtype=bool)), groups, data)
    seen = asking.noisy(query, edges(present), groups, data)
    heard = ((moved > 0.5) & (seen > 0.5)).any(axis=1).reshape(count, 2).any(axis=1)
    bound = _counted(asking, heard, present)
    return _planted(query, asking, count, PureDP(bound.epsilon), bound)


@plant.register
def _of_responses(query: EdgeResponseQuery, asking: Asking) -> Planted | None:
    """Every slot is a canary: it says that it is an edge, or not."""
    if not isinstance(asking.unit, UndirectedEdge | DirectedEdge):
        return None
    n, directed = _SLOT_NODES, isinstance(asking.unit, DirectedEdge)
    domain = Domain.whole(n, directed=directed)
    u, v = np.triu_indices(n, 1)
    present = asking.coins(len(u))
    graph = Adjacency.from_edges(u[present], v[present], num_nodes=n, directed=directed)
    out = asking.noisy(query, graph, None, EdgeResponseData(domain)).astype(np.int64)
    every = Adjacency.from_edges(u, v, num_nodes=n, directed=directed)
    certain = replace(query, epsilon=_CERTAIN)
    all_slots = asking.noisy(certain, every, None, EdgeResponseData(domain)).astype(np.int64)
    there = asking.noisy(certain, graph, None, EdgeResponseData(domain)).astype(np.int64)
    heard, present = np.isin(all_slots, out), np.isin(all_slots, there)
    bound = _counted(asking, heard, present)
    return _planted(query, asking, len(all_slots), PureDP(bound.epsilon), bound)


_CERTAIN = 40.0  # an epsilon at which a slot tells the truth but once in e^40


def _counted(asking: Asking, heard: Any, present: npt.NDArray[np.bool_]) -> LowerBound:
    hits, alarms = int(heard[present].sum()), int(heard[~present].sum())
    inside = int(present.sum())
    return repeated_runs(hits, inside, alarms, len(present) - inside, confidence=asking.confidence)


# -- training steps -----------------------------------------------------------------------------------------


@plant.register
def _of_steps(query: DPSGDQuery, asking: Asking) -> Planted | None:
    """Records whose clipped gradients are the axes: each has a coordinate of its own in every step."""
    if query.reach:
        return None  # counted as if all were in every batch; what a batch holds is less
    if query.groups > 1 and not query.pays[asking.group]:
        return None
    wide = replace(query, parameters=_COORDINATES)  # the same law, with room for canaries
    noise = wide.randomness(asking.key().query_key({"audit": query.stage}))
    z, q = query.noise_multiplier, query.sampling_rate
    told = q * math.sqrt(math.expm1(min(1 / z**2, 30.0)))  # by one score, as a mu
    needed = (2 * 3.5 / (_BLUR * told)) ** 2
    steps = math.ceil(min(max(needed, 1 << 16), _MOST_SCORES) / _COORDINATES)
    present = asking.coins(steps * _COORDINATES).reshape(steps, -1)
    scores = np.empty((steps, _COORDINATES))
    for step in range(steps):
        inside = np.zeros(_COORDINATES)
        inside[noise.batch(step, _COORDINATES).numpy()] = 1.0
        drawn = np.asarray(noise.noise(step), dtype=np.float64)
        scores[step] = (inside * present[step] * noise.steps + drawn) / noise.sigma
    if q == 1:
        bound = asking.gaussian(scores.ravel(), present.ravel())
        change = getattr(asking.unit, "change", 1.0) * math.sqrt(query.steps)
        whole = Gaussian((bound.mu or 0.0) * change)
        return _restated(query, asking, scores.size, whole, replace(bound, mu=whole.mu))
    largest = largest_multiplier(scores[present], scores[~present], z, q, 1 - asking.confidence)
    relation: Relation = getattr(asking.unit, "relation", "add_remove")
    certified: Event = (
        PoissonGaussian(largest, q, query.steps, relation) if math.isfinite(largest) else Gaussian(0.0)
    )
    bound = LowerBound(
        epsilon=0.0,
        delta=asking.plan.delta,
        confidence=asking.confidence,
        ceiling=math.inf,
        how="likelihood ratio of steps",
    )
    return _restated(query, asking, scores.size, certified, bound)


def _restated(query: Query, asking: Asking, count: int, certified: Event, bound: LowerBound) -> Planted:
    """Return it with epsilon for all steps."""
    epsilon = privacy_curve(certified).epsilon(asking.plan.delta)
    return _planted(query, asking, count, certified, replace(bound, epsilon=epsilon))
