"""The release path: booked as a whole, then answered query by query, each once.

A :class:`Release` books its plan first and then answers the plan's queries in order. Each answer is computed
block by block (``release/_blocks.py``): contributions are truncated toward zero to a grid, checked against
their bound, summed exactly, and integer noise addressed by row is added before anything is returned. Docs:
``docs/guarantees.md``, section 6.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import NoReturn, TypeGuard, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphveil._random import RowStream
from graphveil.errors import ConfigError, ReleaseError, UnitError
from graphveil.graph import Adjacency, Features
from graphveil.mechanisms import StepNoise
from graphveil.privacy import Entry, PrivacyLedger, UndirectedEdge, within_partition
from graphveil.privacy.unit import NodePromise
from graphveil.release import _blocks, _push
from graphveil.release._edge_gradients import Examples
from graphveil.release.accuracy_counts import AccuracyCountQuery, noisy_tally
from graphveil.release.edge_counts import EdgeCountQuery
from graphveil.release.edge_training import EdgeAttentionQuery
from graphveil.release.engines.base import Engine
from graphveil.release.engines.in_memory import InMemoryEngine
from graphveil.release.journal import Journal, MemoryJournal
from graphveil.release.keys import ReleaseKey
from graphveil.release.neighbor_sums import NeighborSumQuery
from graphveil.release.noisy_gradients import Descent, NoisyGradients
from graphveil.release.plan import ReleasePlan
from graphveil.release.pushes import PushQuery
from graphveil.release.query import FLOAT32_EXACT, Query
from graphveil.release.training_steps import DPSGDQuery
from graphveil.weights.compiled.fused_sum import VECTOR_BITS, fused_sum
from graphveil.weights.given import GivenWeight
from graphveil.weights.tables import PairWeights
from graphveil.weights.trusted import check_trusted

_VERSION = 2
Keys = Features | tuple[Tensor, ...]  # as the query's similarity says
_Asked = TypeVar("_Asked", bound=Query)
_ASK: dict[type[Query], str] = {
    NeighborSumQuery: "rows",
    PushQuery: "push",
    EdgeCountQuery: "cells",
    DPSGDQuery: "steps",
    EdgeAttentionQuery: "learn",
    AccuracyCountQuery: "tally",
}


class Release:
    """One release: booked as a whole, then answered query by query, each once.

    Args:
        plan: the calibrated plan.
        adjacency: the private in-edges.
        groups: the public group of each node, when a query weighs or counts by group.
        budget: the book that is charged before anything is computed.
        key: fresh by default; a reproducible one voids the guarantee.
        engine: how the destination blocks are scheduled; it does not change the result.
        journal: where a killed run resumes from; by default nowhere.
        label: what the budget book calls it.

    Raises:
        ConfigError, UnitError: the groups or the graph do not fit the plan; nothing is booked.
        BudgetError: the budget refuses; nothing is booked or computed.
        ReleaseError: the journal holds a release of another plan, or its key is lost.

    >>> from graphveil.release.plan import hops
    >>> from graphveil.privacy import MemoryLedger, UndirectedEdge
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, 2), delta=1e-5)
    >>> release = Release(plan, path, budget=MemoryLedger())
    >>> release.rows(torch.eye(3)[:, :2]).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        plan: ReleasePlan,
        adjacency: Adjacency,
        groups: Tensor | None = None,
        *,
        budget: PrivacyLedger,
        key: ReleaseKey | None = None,
        engine: Engine | None = None,
        journal: Journal | None = None,
        label: str = "rows",
    ) -> None:
        """Book the release, or resume the one in the journal."""
        _check_unit(plan, adjacency)
        check_weights(plan, adjacency)
        self._plan, self._adjacency = plan, adjacency
        self._groups = _checked_groups(plan, groups, adjacency.num_nodes)
        self._engine = engine or InMemoryEngine()
        self._journal = journal or MemoryJournal()
        self._position = 0
        self._table: Tensor | None = None  # of contributions, its memory reused by the next hop
        self._promise = _promise(plan, adjacency)
        resumed = self._journal.resume(self._promise)
        self._key = resumed or key or ReleaseKey.fresh()
        self._resumed = resumed is not None
        self._book(budget, label)
        if not self._resumed:
            self._journal.begin(self._key, self._promise)
        self._alone = key is None and not self._journal.durable
        self._edges_digest = self._digest(*adjacency.arrays)

    def __repr__(self) -> str:
        """Show public facts only."""
        return f"Release({self.release_id}, {self._position} of {len(self._plan.queries)} queries answered)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied: a copy could draw the same noise for other data."""
        raise ReleaseError("a release cannot be copied or stored; open a new one, which is booked anew")

    @property
    def release_id(self) -> str:
        """The id under which the release is booked."""
        return self._key.release_id

    @property
    def reproducible(self) -> bool:
        """Whether the noise comes from a seed, which voids the guarantee."""
        return self._key.reproducible

    def rows(self, vectors: Tensor, keys: Keys | None = None) -> Tensor:
        """Answer the next query, a hop: float32 noisy rows, shape (N, d), for input rows of norm <= 1.

        Args:
            vectors: c_u, shape (N, d).
            keys: what the query's similarity reads of each node, public or released earlier; by default the
                vectors.
        """
        query = self._next(NeighborSumQuery)
        self._check_rows(vectors, query.dim)
        pairs = self._pairs(query, vectors, keys)
        data = (vectors,) if pairs is None else (vectors, *pairs.tables)
        return self._answer(data, partial(self._draw_rows, query, vectors, pairs))

    def push(self, vectors: Tensor, levels: Tensor | None = None) -> Tensor:
        """Answer the next query, a push: float32 noisy rows, shape (N, d), for what each source writes.

        Args:
            vectors: c_u, of norm at most its group's bound, shape (N, d); a longer one counts as zero.
            levels: each row's place in the query's ``levels``, whole numbers of shape (N). They must be a
                public function of earlier answers. Not needed where there is one level.
        """
        query = self._next(PushQuery)
        self._check_rows(vectors, query.dim)
        nodes, count = self._adjacency.num_nodes, len(query.levels)
        chosen = torch.zeros(nodes, dtype=torch.int64) if levels is None and count == 1 else levels
        if not _are_numbers(chosen, nodes) or _outside(chosen, count):
            raise ReleaseError(
                f"the plan's push takes levels: whole numbers from 0 to {count - 1}, one for each of {nodes} "
                "rows; the release stays booked"
            )
        chosen = chosen.to(torch.int64)
        return self._answer((vectors, chosen), partial(self._draw_push, query, vectors, chosen))

    def cells(self, labels: Tensor) -> Tensor:
        """Answer the next query, counts by class pair: float64, shape (C, C), in the upper triangle.

        ``labels`` are class numbers, shape (N); those outside the labelled groups are not read. For a
        directed graph the row is the source's class, and every cell is filled.
        """
        query = self._next(EdgeCountQuery)
        inside = torch.tensor(query.labelled)[self._groups]
        if labels.shape != inside.shape or _outside(labels[inside], query.classes):
            raise ReleaseError(
                f"the counts take {len(inside)} labels, those of labelled groups from 0 to "
                f"{query.classes - 1}; the release stays booked"
            )
        return self._answer((labels,), partial(self._draw_cells, query, labels, inside))

    def steps(self, *data: Tensor) -> StepNoise:
        """Answer the next query, training steps: the keyed randomness of all of them.

        The descriptor is committed first and binds the key to the data. A resumed release returns the same
        randomness for the same data and refuses other data; one that is closed returns randomness that
        refuses to be drawn, since its training is over.

        Args:
            data: all that the steps read: the records of paying groups, and initial weights.
        """
        query = self._next(DPSGDQuery)
        if not data:
            raise ReleaseError("the noise of training steps is bound to data, and none were given")
        key = self._commit(data)[1]
        return query.randomness(key) if key else query.spent()

    def learn(self, rows: Tensor, labels: Tensor, targets: Tensor, start: Tensor, descend: Descent) -> Tensor:
        """Answer the next query, training on the targets' in-edges: the last weights, float64, shape (p).

        Args:
            rows: z, public or released earlier, shape (N, d).
            labels: class numbers, shape (N); only those of targets are read.
            targets: the nodes that are learned from, each once, shape (n).
            start: the weights to start from, public, shape (p).
            descend: maps the start and the noisy gradients to the last weights. It must do the same again
                for the same numbers: a resumed release draws the same noise.
        """
        query = self._next(EdgeAttentionQuery)
        self._check_rows(rows, query.dim)
        _check_examples(query, labels, targets, self._adjacency.num_nodes)
        data = (rows.to(torch.float64), targets, labels[targets], start)
        return self._answered(data, partial(self._draw_learned, query, data, descend))

    def tally(self, correct: Tensor) -> Tensor:
        """Answer the next query, counts of correct predictions: float64, shape (candidates).

        Args:
            correct: bool, shape (M, candidates), one row for each record of a paying group.
        """
        query = self._next(AccuracyCountQuery)
        if correct.dtype != torch.bool or correct.ndim != 2 or correct.shape[1] != query.candidates:
            raise ReleaseError(
                f"the plan's tally takes a table of bool with {query.candidates} columns, one for each "
                "candidate; the release stays booked"
            )
        return self._answer((correct,), partial(self._draw_tally, query, correct))

    def close(self) -> None:
        """Publish: every query must be answered; the noise key is erased."""
        if self._position != len(self._plan.queries):
            raise ReleaseError(
                f"{self._position} of {len(self._plan.queries)} queries are answered; a release is published "
                "whole"
            )
        self._journal.close()

    def _pairs(self, query: NeighborSumQuery, vectors: Tensor, keys: Keys | None) -> PairWeights | None:
        """Return the tables of the query's similarity, made of its keys before any edge is read."""
        if query.similarity is None:
            if keys is not None:
                raise ReleaseError("the plan's hop has no similarity to read keys; the release stays booked")
            return None
        pairs = query.similarity.prepare(vectors if keys is None else keys)
        check_trusted(pairs, self._adjacency.num_nodes)
        return pairs

    def _draw_rows(
        self, query: NeighborSumQuery, vectors: Tensor, pairs: PairWeights | None, stream: RowStream
    ) -> Tensor:
        groups = self._groups if query.groups > 1 else None
        self._table = table = _blocks.grid_table(vectors, groups, query, self._table)
        laws = _blocks.RowNoise(
            groups,
            tuple(self._plan.sampler(s * query.steps) for s in query.sigma),
            (1 / query.steps,) * query.groups,
        )
        # The table has a copy of its N rows for each group of destinations.
        longest = FLOAT32_EXACT >> query.contribution_bits
        fused = fused_sum(table, pairs) if query.grid_bits <= VECTOR_BITS else None
        sums = _blocks.Sums(table, longest, stride=len(vectors), pairs=pairs, fused=fused)
        return self._draw(sums, laws, stream)

    def _draw_push(self, query: PushQuery, vectors: Tensor, levels: Tensor, stream: RowStream) -> Tensor:
        squared = np.array(query.levels, dtype=np.int64)
        steered = len(squared) > 1
        listed = _push.own_sums(self._adjacency, squared[levels.numpy()] if steered else squared)
        groups = self._groups if query.groups > 1 else None
        self._table = table = _push.push_table(vectors, groups, listed, query, self._table)
        laws = _blocks.RowNoise(
            levels if steered else None,
            tuple(self._plan.sampler(query.sigma * query.steps / g) if g else None for g in query.weights),
            tuple(g / query.steps for g in query.weights),
        )
        try:
            return self._draw(_blocks.Sums(table, query.longest), laws, stream)
        finally:
            table.zero_()  # only its memory is kept: contributions tell how long their sources' lists are

    def _draw(self, sums: _blocks.Sums, laws: _blocks.RowNoise, stream: RowStream) -> Tensor:
        block = partial(_blocks.noisy_rows, sums=sums, laws=laws, stream=stream)
        return self._engine.map(self._adjacency, block)

    def _draw_cells(self, query: EdgeCountQuery, labels: Tensor, inside: Tensor, stream: RowStream) -> Tensor:
        noise = self._plan.sampler(query.sigma[0] * query.steps)
        return _blocks.noisy_cells(self._adjacency, labels, inside, query, noise, stream)

    def _draw_learned(
        self, query: EdgeAttentionQuery, data: tuple[Tensor, ...], descend: Descent, key: bytes
    ) -> Tensor:
        rows, targets, classes, start = data
        gradients = NoisyGradients(Examples(self._adjacency, rows, targets, classes), query, key)
        return descend(start.to(torch.float64), gradients).to(torch.float64)

    def _draw_tally(self, query: AccuracyCountQuery, correct: Tensor, stream: RowStream) -> Tensor:
        return noisy_tally(correct, query, self._plan.sampler(query.widest), stream)

    def _next(self, kind: type[_Asked]) -> _Asked:
        """Return the next query, which must be of the kind that is asked for."""
        if self._position >= len(self._plan.queries):
            raise ReleaseError(
                "every query of this release is answered; asking again is a new release, booked anew"
            )
        query = self._plan.queries[self._position]
        if not isinstance(query, kind):
            raise ReleaseError(
                f"the plan's next query is a {type(query).__name__}; ask for it with {_ASK[type(query)]}()"
            )
        return query

    def _check_rows(self, vectors: Tensor, dim: int) -> None:
        """Refuse vectors of another shape than the plan's."""
        if tuple(vectors.shape) != (self._adjacency.num_nodes, dim):
            raise ReleaseError(
                f"the plan's hop takes rows of shape ({self._adjacency.num_nodes}, {dim}), got "
                f"{tuple(vectors.shape)}; the release stays booked"
            )

    def _answer(self, data: tuple[Tensor, ...], draw: Callable[[RowStream], Tensor]) -> Tensor:
        """Answer from a stream that the query's key starts."""
        return self._answered(data, lambda key: draw(RowStream(key)))

    def _answered(self, data: tuple[Tensor, ...], draw: Callable[[bytes], Tensor]) -> Tensor:
        """Commit the query's descriptor, draw under its key, and keep the noisy answer."""
        index, key = self._commit(data)
        answer = self._journal.load(index)
        if answer is None:
            if not key:
                raise ReleaseError(
                    "this release is closed and its noise key erased, but an answer is missing from the "
                    "run's internal folder; start a new run in a new folder, which is a new release"
                )
            answer = draw(key)
            self._journal.store(index, answer)
        return answer

    def _commit(self, data: tuple[Tensor, ...]) -> tuple[int, bytes]:
        """Commit the next query's descriptor; return its place and its key, which a closed release lacks."""
        index, self._position = self._position, self._position + 1
        if self._key.erased:
            return index, b""
        descriptor = self._descriptor(index, data)
        self._journal.commit(index, descriptor)
        return index, self._key.query_key(descriptor)

    def _book(self, budget: PrivacyLedger, label: str) -> None:
        """Charge the budget; a resumed release may stand in it already, a new one never does."""
        if self._resumed and any(entry.release_id == self._key.release_id for entry in budget.entries):
            return
        event = self._plan.event
        if self._groups is not None:  # public, like the split that it comes from
            event = within_partition(event, hashlib.sha256(self._groups.numpy().tobytes()).hexdigest()[:16])
        budget.record(Entry(self._key.release_id, label, event, self._plan.slack, self._plan.unit))

    def _descriptor(self, index: int, data: tuple[Tensor, ...]) -> dict[str, object]:
        """Return everything that fixes the un-noised integers and their scale."""
        return {
            **self._promise,
            "index": index,
            "edges": self._edges_digest,
            "input": self._digest(*data),
            "groups": "" if self._groups is None else self._digest(self._groups),
        }

    def _digest(self, *arrays: Tensor) -> str:
        """Return the keyed digest of what a query reads, wherever its key could meet anything else.

        A key that this object drew itself and that no journal keeps cannot: it lives and dies with one
        object, which is never copied and draws each query once.
        """
        return "" if self._alone or self._key.erased else self._key.digest(*arrays)


def _check_unit(plan: ReleasePlan, adjacency: Adjacency) -> None:
    """Refuse a graph that the unit's bounds do not hold for; edges that nothing asks for are not read."""
    promised = plan.unit.max_degree if isinstance(plan.unit, NodePromise) and _of_edges(plan) else None
    if promised is not None and _push.passes(adjacency, promised):
        raise UnitError(
            "the graph breaks the promise of unit 'node-promise': a node has more edges than "
            "assured_max_degree (--assured-max-degree); promise a larger degree, or use unit 'node-owner'"
        )
    # One friendship that is stored as two directed edges would move two cells.
    counts = any(isinstance(query, EdgeCountQuery) for query in plan.queries)
    if counts and adjacency.directed and isinstance(plan.unit, UndirectedEdge):
        raise UnitError(
            "unit 'undirected-edge' counts friendships, and this graph stores directed edges; use unit "
            "'directed-edge', or build the graph with directed=False"
        )


def _of_edges(plan: ReleasePlan) -> list[Query]:
    """Return the queries that ask the edges; training steps and counts ask records alone."""
    return [query for query in plan.queries if not isinstance(query, DPSGDQuery | AccuracyCountQuery)]


def check_weights(plan: ReleasePlan, adjacency: Adjacency) -> None:
    """Refuse a plan that would ignore the weights of edges, and one that reads weights which are not there.

    Raises:
        ConfigError: the plan and the edges do not go together.
    """
    reads = {isinstance(getattr(query, "similarity", None), GivenWeight) for query in _of_edges(plan)}
    if adjacency.weights is not None and False in reads:
        raise ConfigError(
            "the graph's edges have weights, which this release would not read: use weights='given' where "
            "the method has it, or drop them (adjacency.without_weights(), or no --weight)"
        )
    if adjacency.weights is None and True in reads:
        raise ConfigError(
            "weights='given' reads the weights of edges, and the graph's edges have none; load it with "
            "weight= and max_weight= (--weight, --max-weight)"
        )


def _checked_groups(plan: ReleasePlan, groups: Tensor | None, num_nodes: int) -> Tensor | None:
    """Refuse groups that do not fit the plan: a node outside every group would go without noise."""
    sizes = {query.groups for query in plan.queries if isinstance(query, EdgeCountQuery) or query.groups > 1}
    if not sizes:
        return None
    if not _are_numbers(groups, num_nodes):
        raise ConfigError(f"the plan needs groups: whole numbers, one for each of {num_nodes} nodes")
    if len(sizes) > 1 or _outside(groups, min(sizes)):
        raise ConfigError(f"groups must lie between 0 and {min(sizes) - 1}, the groups of the plan's queries")
    return groups.to(torch.int64)


def _check_examples(query: EdgeAttentionQuery, labels: Tensor, targets: Tensor, num_nodes: int) -> None:
    """Refuse targets that are no nodes, have no class, or come twice: one edge would then move two."""
    nodes = _are_numbers(targets, len(targets)) and not _outside(targets, num_nodes)
    if not nodes or not len(targets) or len(torch.unique(targets)) < len(targets):
        raise ReleaseError("the targets of training are nodes, each once; the release stays booked")
    if not _are_numbers(labels, num_nodes) or _outside(labels[targets], query.classes):
        raise ReleaseError(
            f"training takes {num_nodes} labels, those of targets from 0 to {query.classes - 1}; the release "
            "stays booked"
        )


def _are_numbers(values: Tensor | None, count: int) -> TypeGuard[Tensor]:
    """Whether these are whole numbers, one per node."""
    whole = values is not None and not (values.is_floating_point() or values.is_complex())
    return whole and values is not None and values.shape == (count,)


def _outside(values: Tensor, count: int) -> bool:
    """Whether a public value lies outside 0 .. count - 1."""
    return bool(((values < 0) | (values >= count)).any())


def _promise(plan: ReleasePlan, adjacency: Adjacency) -> dict[str, object]:
    """Return everything public that fixes a release."""
    return {
        "version": _VERSION,
        "unit": plan.unit.name,
        **asdict(plan.unit),
        "queries": [_plain(query) for query in plan.queries],
        "sampler": plan.sampler.__name__,
        "nodes": adjacency.num_nodes,
        "directed": adjacency.directed,
        **({} if adjacency.max_weight is None else {"max_weight": adjacency.max_weight.hex()}),
    }


def _plain(query: Query) -> dict[str, object]:
    """Return a query's parameters, sigma as exact hexadecimal."""
    values = {k: v for k, v in asdict(query).items() if k not in ("sigma", "similarity")}
    similarity = getattr(query, "similarity", None)
    if similarity is not None:
        values["similarity"] = similarity.describe()
    return {"query": query.wire, **values, "sigma": [s.hex() for s in query.noise]}
