"""The release path: the only place where a private sum exists, and it never leaves its function.

A :class:`Release` books its whole plan first, then answers the plan's queries in order. Each answer is
computed block by block (:func:`_noisy_rows`, :func:`_noisy_cells`): contributions are truncated toward zero
to a grid, checked against their bound, summed exactly, and integer noise addressed by row is added before
anything is returned. Docs: ``docs/guarantees.md``, section 6.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._random import RowStream
from graphveil.aggregate.engine import Edges, Engine, blocks
from graphveil.aggregate.journal import Journal, MemoryJournal
from graphveil.aggregate.keys import ReleaseKey
from graphveil.aggregate.memory import InMemoryEngine
from graphveil.aggregate.plan import CellQuery, HopQuery, Query, ReleasePlan
from graphveil.errors import ConfigError, ReleaseError, UnitError
from graphveil.graph import Adjacency
from graphveil.mechanisms import IntegerNoise
from graphveil.privacy import Budget, Entry, UndirectedEdge, within_partition

_VERSION = 2
_FLOAT32_EXACT = 1 << 24  # float32 adds integers exactly up to here
_SIGMAS = 15  # no sampler draws noise beyond this many standard deviations
_NOISE_ENTRIES = 1 << 19  # of noise drawn at a time: it stays in the cache,
_SUM_ENTRIES = 1 << 18  # and so do the sums
_SUM_EDGES = 1 << 22
_GRID_ENTRIES = 1 << 17  # and the contributions that are truncated

Groups = npt.NDArray[np.int64]


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

    >>> from graphveil.aggregate.plan import hops
    >>> from graphveil.privacy import MemoryBudget, UndirectedEdge
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, 2), delta=1e-5)
    >>> release = Release(plan, path, budget=MemoryBudget())
    >>> release.rows(torch.eye(3)[:, :2]).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        plan: ReleasePlan,
        adjacency: Adjacency,
        groups: Tensor | None = None,
        *,
        budget: Budget,
        key: ReleaseKey | None = None,
        engine: Engine | None = None,
        journal: Journal | None = None,
        label: str = "rows",
    ) -> None:
        """Book the release, or resume the one in the journal."""
        _check_unit(plan, adjacency)
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
        self._edges_digest = self._digest(adjacency.indptr, adjacency.indices)

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

    def rows(self, vectors: Tensor) -> Tensor:
        """Answer the next query, a hop: float32 noisy rows, shape (N, d), for input rows of norm <= 1."""
        query = self._next()
        if not isinstance(query, HopQuery):
            raise ReleaseError("the plan's next query counts cells; ask for it with cells()")
        if tuple(vectors.shape) != (self._adjacency.num_nodes, query.dim):
            raise ReleaseError(
                f"the plan's hop takes rows of shape ({self._adjacency.num_nodes}, {query.dim}), got "
                f"{tuple(vectors.shape)}; the release stays booked"
            )
        return self._answer(vectors, partial(self._draw_rows, query, vectors))

    def cells(self, labels: Tensor) -> Tensor:
        """Answer the next query, counts by class pair: float64, shape (C, C), in the upper triangle.

        ``labels`` are class numbers, shape (N); those outside the labelled groups are not read. For a
        directed graph the row is the source's class, and every cell is filled.
        """
        query = self._next()
        if not isinstance(query, CellQuery) or self._groups is None:
            raise ReleaseError("the plan's next query is a hop; ask for it with rows()")
        inside = torch.tensor(query.labelled)[self._groups]
        if labels.shape != inside.shape or _outside(labels[inside], query.classes):
            raise ReleaseError(
                f"the counts take {len(inside)} labels, those of labelled groups from 0 to "
                f"{query.classes - 1}; the release stays booked"
            )
        return self._answer(labels, partial(self._draw_cells, query, labels, inside))

    def close(self) -> None:
        """Publish: every query must be answered; the noise key is erased."""
        if self._position != len(self._plan.queries):
            raise ReleaseError(
                f"{self._position} of {len(self._plan.queries)} queries are answered; a release is published "
                "whole"
            )
        self._journal.close()

    def _draw_rows(self, query: HopQuery, vectors: Tensor, stream: RowStream) -> Tensor:
        groups = self._groups if query.groups > 1 else None
        self._table = _grid_table(vectors, groups, query, self._table)
        block = partial(
            _noisy_rows,
            table=self._table,
            groups=groups,
            noise=tuple(self._plan.sampler(s * query.steps) for s in query.sigma),
            stream=stream,
            query=query,
        )
        return self._engine.map(self._adjacency, block)

    def _draw_cells(self, query: CellQuery, labels: Tensor, inside: Tensor, stream: RowStream) -> Tensor:
        noise = self._plan.sampler(query.sigma[0] * query.steps)
        return _noisy_cells(self._adjacency, labels, inside, query, noise, stream)

    def _next(self) -> Query:
        if self._position >= len(self._plan.queries):
            raise ReleaseError(
                "every query of this release is answered; asking the edges again is a new release, booked "
                "anew"
            )
        return self._plan.queries[self._position]

    def _answer(self, data: Tensor, draw: Callable[[RowStream], Tensor]) -> Tensor:
        """Commit the query's descriptor, draw under its key, and keep the noisy answer."""
        index, self._position = self._position, self._position + 1
        if self._key.erased:
            return self._published(index)
        descriptor = self._descriptor(index, data)
        self._journal.commit(index, descriptor)
        answer = self._journal.load(index)
        if answer is None:
            answer = draw(RowStream(self._key.query_key(descriptor)))
            self._journal.store(index, answer)
        return answer

    def _published(self, index: int) -> Tensor:
        """Return an answer of a closed release, which can be read again but never redrawn."""
        answer = self._journal.load(index)
        if answer is None:
            raise ReleaseError(
                "this release is closed and its noise key erased, but an answer is missing from the run's "
                "internal folder; start a new run in a new folder, which is a new release"
            )
        return answer

    def _book(self, budget: Budget, label: str) -> None:
        """Charge the budget; a resumed release may stand in it already, a new one never does."""
        if self._resumed and any(entry.release_id == self._key.release_id for entry in budget.entries):
            return
        event = self._plan.event
        if self._groups is not None:  # public, like the split that it comes from
            event = within_partition(event, hashlib.sha256(self._groups.numpy().tobytes()).hexdigest()[:16])
        budget.book(Entry(self._key.release_id, label, event, self._plan.slack))

    def _descriptor(self, index: int, data: Tensor) -> dict[str, object]:
        """Return everything that fixes the un-noised integers and their scale."""
        return {
            **self._promise,
            "index": index,
            "edges": self._edges_digest,
            "input": self._digest(data),
            "groups": "" if self._groups is None else self._digest(self._groups),
        }

    def _digest(self, *arrays: Tensor) -> str:
        """Return the keyed digest of what a query reads, wherever its key could meet anything else.

        A key that this object drew itself and that no journal keeps cannot: it lives and dies with one
        object, which is never copied and draws each query once.
        """
        return "" if self._alone or self._key.erased else self._key.digest(*arrays)


def _noisy_rows(
    edges: Edges,
    *,
    table: Tensor,
    groups: Tensor | None,
    noise: tuple[IntegerNoise, ...],
    stream: RowStream,
    query: HopQuery,
) -> Tensor:
    """Return the noisy sums of one block; the exact sums live and die here.

    Noise and sums are integers in a float type that holds each exactly, so the one rounding of their
    addition sees the exact noisy sum only: it is post-processing.
    """
    own = None if groups is None else groups[edges.start : edges.stop].numpy()
    rows = _noise_rows(edges, own, noise, stream, query.dim)
    for piece in edges.pieces(max(1, _SUM_ENTRIES // query.dim), _SUM_EDGES):
        part = slice(piece.start - edges.start, piece.stop - edges.start)
        total = _exact_sum(piece, table, None if own is None else own[part], query)
        rows[part].add_(total).mul_(1 / query.steps)
    return rows.to(torch.float32)


def _noise_rows(
    edges: Edges, own: Groups | None, noise: tuple[IntegerNoise, ...], stream: RowStream, dim: int
) -> Tensor:
    """Return the integer noise of a block's rows, each by the law of its group, in a float type."""
    fits = max(law.sigma for law in noise) * _SIGMAS < _FLOAT32_EXACT
    noisy = torch.empty((len(edges), dim), dtype=torch.float32 if fits else torch.float64)
    out = noisy.numpy()
    at_once = max(1, _NOISE_ENTRIES // dim)
    for law in set(noise):
        rows = np.arange(edges.start, edges.stop)
        chosen = None if own is None else np.flatnonzero(np.array([other == law for other in noise])[own])
        for first in range(0, len(rows) if chosen is None else len(chosen), at_once):
            some = slice(first, first + at_once) if chosen is None else chosen[first : first + at_once]
            out[some] = law.draw(stream, rows[some], dim)
    return noisy


def _exact_sum(edges: Edges, table: Tensor, own: Groups | None, query: HopQuery) -> Tensor:
    """Sum grid rows exactly: in float32, which adds integers up to 2^24; longer rows in chunks, in int64.

    ``table`` stacks one truncated copy of the rows for each destination group; a source's row in the copy
    of its destination's group stands at source + group * N.
    """
    degrees, sources = edges.degrees, edges.sources
    if own is not None:
        shift = (own * (len(table) // query.groups)).astype(np.int32)
        sources = sources + torch.from_numpy(np.repeat(shift, degrees.numpy()))
    longest = _FLOAT32_EXACT >> query.grid_bits
    if int(degrees.max()) <= longest:
        return embedding_bag(sources, table, edges.offsets, mode="sum", include_last_offset=True)
    cuts = degrees.div(longest, rounding_mode="floor") + 1  # chunks a row
    row = torch.arange(len(degrees)).repeat_interleave(cuts)
    within = torch.arange(len(row)) - (cuts.cumsum(0) - cuts).repeat_interleave(cuts)
    starts = edges.offsets[:-1].repeat_interleave(cuts) + (within * longest).to(torch.int32)
    parts = embedding_bag(sources, table, starts, mode="sum").to(torch.int64)
    total = torch.zeros(len(degrees), query.dim, dtype=torch.int64).index_add_(0, row, parts)
    return total.to(torch.float64)


def _grid_table(
    vectors: Tensor, groups: Tensor | None, query: HopQuery, used: Tensor | None = None
) -> Tensor:
    """Return the weighted contributions as integers in float32, one copy a destination group.

    Truncation toward zero never lengthens a row; a row still over its bound contributes nothing. The table
    of an earlier hop, if it has the shape, is overwritten: fresh memory costs as much as the truncation.
    """
    count, shape = len(vectors), (query.groups * len(vectors), query.dim)
    table = used if used is not None and used.shape == shape else torch.empty(shape)
    weights = np.array(query.weights.table) * query.steps
    at_once = max(1, _GRID_ENTRIES // query.dim)
    scratch = np.empty((min(count, at_once), query.dim))
    for first in range(0, count, at_once):
        some = slice(first, min(count, first + at_once))
        exact, grid = vectors[some].to(torch.float64).numpy(), scratch[: some.stop - first]
        from_group = weights if groups is None else weights[groups[some].numpy()]  # (1 or rows, into)
        for into in range(query.groups):
            bound = from_group[:, into, None]
            np.multiply(exact, bound, out=grid)
            np.trunc(grid, out=grid)
            fits = np.einsum("nd,nd->n", grid, grid) <= np.square(bound)[:, 0]
            out = table[into * count + some.start : into * count + some.stop].numpy()
            np.copyto(out, grid, casting="unsafe")
            out[~fits] = 0.0
    return table


def _noisy_cells(
    adjacency: Adjacency,
    labels: Tensor,
    inside: Tensor,
    query: CellQuery,
    noise: IntegerNoise,
    stream: RowStream,
) -> Tensor:
    """Return the noisy counts; the exact ones live and die here."""
    classes = query.classes
    code = torch.where(inside, labels, classes).numpy()  # one class more, for nodes that do not count
    counts = np.zeros((classes + 1, classes + 1), dtype=np.int64)
    for block in blocks(adjacency, adjacency.num_nodes):
        for piece in block.pieces(len(block), _SUM_EDGES):
            into = np.repeat(code[piece.start : piece.stop], piece.degrees.numpy())
            pairs = code[piece.sources.numpy()] * (classes + 1) + into
            counts += np.bincount(pairs, minlength=counts.size).reshape(counts.shape)
    counts = counts[:classes, :classes]
    if not adjacency.directed:  # each edge is stored in both directions
        counts = np.triu(counts + counts.T) // np.where(np.eye(classes, dtype=bool), 4, 2)
    cells = np.indices(counts.shape).reshape(2, -1) if adjacency.directed else np.triu_indices(classes)
    drawn = noise.draw(stream, np.arange(len(cells[0])), 1)[:, 0]
    noisy = np.zeros(counts.shape)
    noisy[cells[0], cells[1]] = (counts[cells[0], cells[1]] * int(query.steps) + drawn) / query.steps
    return torch.from_numpy(noisy)


def _check_unit(plan: ReleasePlan, adjacency: Adjacency) -> None:
    """Refuse to count friendships that are stored as two directed edges: one would move two cells."""
    counts = any(isinstance(query, CellQuery) for query in plan.queries)
    if counts and adjacency.directed and isinstance(plan.unit, UndirectedEdge):
        raise UnitError(
            "unit 'undirected-edge' counts friendships, and this graph stores directed edges; use unit "
            "'directed-edge', or build the graph with directed=False"
        )


def _checked_groups(plan: ReleasePlan, groups: Tensor | None, num_nodes: int) -> Tensor | None:
    """Refuse groups that do not fit the plan: a node outside every group would go without noise."""
    sizes = {query.groups for query in plan.queries if isinstance(query, CellQuery) or query.groups > 1}
    if not sizes:
        return None
    if groups is None or groups.is_floating_point() or groups.shape != (num_nodes,):
        raise ConfigError(f"the plan needs groups: whole numbers, one for each of {num_nodes} nodes")
    if len(sizes) > 1 or _outside(groups, min(sizes)):
        raise ConfigError(f"groups must lie between 0 and {min(sizes) - 1}, the groups of the plan's queries")
    return groups.to(torch.int64)


def _outside(values: Tensor, count: int) -> bool:
    """Whether a public value lies outside 0 .. count - 1."""
    return bool(((values < 0) | (values >= count)).any())


def _promise(plan: ReleasePlan, adjacency: Adjacency) -> dict[str, object]:
    """Return everything public that fixes a release."""
    return {
        "version": _VERSION,
        "unit": plan.unit.name,
        "queries": [_plain(query) for query in plan.queries],
        "sampler": plan.sampler.__name__,
        "nodes": adjacency.num_nodes,
        "directed": adjacency.directed,
    }


def _plain(query: Query) -> dict[str, object]:
    """Return a query's parameters, sigma as exact hexadecimal."""
    values = {k: v for k, v in asdict(query).items() if k != "sigma"}
    return {"query": type(query).__name__, **values, "sigma": [s.hex() for s in query.sigma]}
