"""The release path: the only place where a private sum exists, and it never leaves its function.

A :class:`Release` books its whole plan first, then answers the plan's queries in order. Each answer is
computed block by block (:func:`_noisy_rows`, :func:`_noisy_cells`): contributions are truncated toward zero
to a grid, checked against their bound, summed exactly, and integer noise addressed by row is added before
anything is returned. Docs: ``docs/guarantees.md``, section 6.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._files import write_atomic
from graphveil._random import RowStream
from graphveil.aggregate.engine import Edges, Engine
from graphveil.aggregate.keys import KeyStore, ReleaseKey, canonical
from graphveil.aggregate.memory import InMemoryEngine
from graphveil.aggregate.plan import CellQuery, HopQuery, Query, ReleasePlan
from graphveil.errors import ReleaseError
from graphveil.graph import Adjacency
from graphveil.mechanisms import IntegerNoise
from graphveil.privacy import Budget, Entry

_VERSION = 1
_FLOAT32_EXACT = 1 << 24  # float32 adds integers exactly up to here


class Journal(ABC):
    """Remembers what a release has committed to, so that a resumed run finishes it instead of redrawing."""

    @abstractmethod
    def open(self, key: ReleaseKey) -> ReleaseKey:
        """Return the unfinished release's key if there is one; otherwise commit to this one."""

    @abstractmethod
    def commit(self, index: int, descriptor: Mapping[str, object]) -> None:
        """Record a query's descriptor before its first draw; refuse a different one."""

    @abstractmethod
    def load(self, index: int) -> Tensor | None:
        """Return a finished query's noisy answer, if it has one."""

    @abstractmethod
    def store(self, index: int, answer: Tensor) -> None:
        """Keep a finished query's noisy answer."""

    @abstractmethod
    def close(self) -> None:
        """All answers are out: forget the key."""


@dataclass
class MemoryJournal(Journal):
    """A journal that lives as long as its process."""

    _descriptors: dict[int, bytes] = field(default_factory=dict)

    def open(self, key: ReleaseKey) -> ReleaseKey:
        """Return the key: there is nothing to resume."""
        return key

    def commit(self, index: int, descriptor: Mapping[str, object]) -> None:
        """Record the descriptor; one key serves one descriptor."""
        _same(self._descriptors.setdefault(index, canonical(descriptor)), descriptor)

    def load(self, index: int) -> Tensor | None:
        """Return None: nothing is kept."""
        return None

    def store(self, index: int, answer: Tensor) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing: the key dies with the process."""


class FolderJournal(Journal):
    """A journal in a run's internal folder; the master key stays in the key store until publication."""

    def __init__(self, folder: Path, keys: KeyStore | None = None) -> None:
        self._folder = folder
        self._keys = keys or KeyStore()

    def open(self, key: ReleaseKey) -> ReleaseKey:
        """Resume the release that the folder holds, or commit id, nonce and key of a new one."""
        if self._record.exists():
            record = json.loads(self._record.read_text())
            master = self._keys.load(record["release_id"]) if not record["closed"] else b""
            return ReleaseKey(record["release_id"], bytes.fromhex(record["nonce"]), master, key.reproducible)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._keys.save(key)
        self._write({"release_id": key.release_id, "nonce": key.nonce.hex(), "closed": False, "descriptors": {}})
        return key

    def commit(self, index: int, descriptor: Mapping[str, object]) -> None:
        """Record the descriptor on disk before the first draw."""
        record = json.loads(self._record.read_text())
        known = record["descriptors"].setdefault(str(index), canonical(descriptor).decode())
        _same(known.encode(), descriptor)
        self._write(record)

    def load(self, index: int) -> Tensor | None:
        """Return the answer on disk, if the query was finished."""
        from safetensors.torch import load_file

        path = self._answer(index)
        return load_file(path)["answer"] if path.exists() else None

    def store(self, index: int, answer: Tensor) -> None:
        """Write the noisy answer; a killed run leaves a whole file or none."""
        from safetensors.torch import save

        write_atomic(self._answer(index), save({"answer": answer.contiguous()}))

    def close(self) -> None:
        """Erase the master key: the release can never be redrawn."""
        record = json.loads(self._record.read_text())
        self._keys.erase(record["release_id"])
        self._write({**record, "closed": True})

    @property
    def _record(self) -> Path:
        return self._folder / "release.json"

    def _answer(self, index: int) -> Path:
        return self._folder / f"answer-{index}.safetensors"

    def _write(self, record: Mapping[str, object]) -> None:
        write_atomic(self._record, json.dumps(record, indent=1).encode())


class Release:
    """One release: booked as a whole, then answered query by query, each once.

    Args:
        plan: the calibrated plan.
        adjacency: the private in-edges.
        groups: the public group of each node, when a query weighs by group.
        budget: the book that is charged before anything is computed.
        key: fresh by default; a reproducible one voids the guarantee.
        label: what the budget book calls it.

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
        self._plan, self._adjacency, self._groups = plan, adjacency, groups
        self._engine = engine or InMemoryEngine()
        self._journal = journal or MemoryJournal()
        self._key = self._journal.open(key or ReleaseKey.fresh())
        self._position = 0
        if all(entry.release_id != self._key.release_id for entry in budget.entries):
            budget.book(Entry(self._key.release_id, label, plan.event))
        self._edges_digest = "" if not self._key.master else self._key.digest(adjacency.indptr, adjacency.indices)

    @property
    def release_id(self) -> str:
        """The id under which the release is booked."""
        return self._key.release_id

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
        groups = self._groups if self._groups is not None else torch.zeros(len(vectors), dtype=torch.int64)
        return self._answer(query, vectors, partial(self._draw_rows, query, vectors, groups))

    def cells(self, labels: Tensor) -> Tensor:
        """Answer the next query, counts by class pair: float64, shape (C, C), in the upper triangle."""
        query = self._next()
        if not isinstance(query, CellQuery) or self._groups is None:
            raise ReleaseError("the plan's next query is a hop, or there are no groups; ask for it with rows()")
        inside = torch.tensor(query.labelled)[self._groups]
        return self._answer(query, labels, partial(self._draw_cells, query, labels, inside))

    def close(self) -> None:
        """Publish: every query must be answered; the noise key is erased."""
        if self._position != len(self._plan.queries):
            raise ReleaseError(
                f"{self._position} of {len(self._plan.queries)} queries are answered; a release is published whole"
            )
        self._journal.close()

    def _draw_rows(self, query: HopQuery, vectors: Tensor, groups: Tensor, stream: RowStream) -> Tensor:
        block = partial(
            _noisy_rows,
            table=_grid_table(vectors, groups, query),
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
                "every query of this release is answered; asking the edges again is a new release, booked anew"
            )
        return self._plan.queries[self._position]

    def _answer(self, query: Query, data: Tensor, draw: Callable[[RowStream], Tensor]) -> Tensor:
        """Commit the query's descriptor, draw under its key, and keep the noisy answer."""
        index, self._position = self._position, self._position + 1
        finished = self._journal.load(index)
        if finished is not None:
            return finished
        descriptor = self._descriptor(index, query, data)
        self._journal.commit(index, descriptor)
        answer = draw(RowStream(self._key.query_key(descriptor)))
        self._journal.store(index, answer)
        return answer

    def _descriptor(self, index: int, query: Query, data: Tensor) -> dict[str, object]:
        """Return everything that fixes the un-noised integers and their scale."""
        return {
            "version": _VERSION,
            "index": index,
            "unit": self._plan.unit.name,
            "query": type(query).__name__,
            "parameters": _plain(query),
            "nodes": self._adjacency.num_nodes,
            "directed": self._adjacency.directed,
            "sampler": self._plan.sampler.__name__,
            "edges": self._edges_digest,
            "input": self._key.digest(data),
            "groups": "" if self._groups is None else self._key.digest(self._groups),
        }


def _noisy_rows(
    edges: Edges,
    *,
    table: Tensor,
    groups: Tensor,
    noise: tuple[IntegerNoise, ...],
    stream: RowStream,
    query: HopQuery,
) -> Tensor:
    """Return the noisy sums of one block; the exact sums live and die here."""
    own = groups[edges.start : edges.stop]
    total = _exact_sum(edges, table, own, query)
    for group, law in enumerate(noise):
        members = torch.nonzero(own == group).flatten() if len(noise) > 1 else torch.arange(len(own))
        drawn = law.draw(stream, (members + edges.start).numpy(), query.dim)
        total.index_add_(0, members, torch.from_numpy(drawn))
    return (total.to(torch.float64) / query.steps).to(torch.float32)


def _exact_sum(edges: Edges, table: Tensor, own: Tensor, query: HopQuery) -> Tensor:
    """Sum grid rows exactly, in int64: float32 adds integers up to 2^24, so long rows go in chunks.

    ``table`` stacks one truncated copy of the rows for each destination group; a source's row in the copy
    of its destination's group stands at source + group * N.
    """
    degrees = edges.offsets.diff()
    sources = edges.sources
    if len(query.sigma) > 1:
        sources = sources + (own * (len(table) // len(query.sigma))).repeat_interleave(degrees).to(torch.int32)
    longest = _FLOAT32_EXACT // 2 ** query.grid_bits
    if not len(degrees) or int(degrees.max()) <= longest:
        return embedding_bag(sources, table, edges.offsets, mode="sum", include_last_offset=True).to(torch.int64)
    cuts = degrees.div(longest, rounding_mode="floor") + 1  # chunks a row
    row = torch.arange(len(degrees)).repeat_interleave(cuts)
    within = torch.arange(len(row)) - (cuts.cumsum(0) - cuts).repeat_interleave(cuts)
    starts = edges.offsets[:-1].repeat_interleave(cuts) + (within * longest).to(torch.int32)
    parts = embedding_bag(sources, table, starts, mode="sum")
    return torch.zeros(len(degrees), query.dim, dtype=torch.int64).index_add_(0, row, parts.to(torch.int64))


def _grid_table(vectors: Tensor, groups: Tensor, query: HopQuery) -> Tensor:
    """Return the weighted contributions as integers in float32, one copy a destination group.

    Truncation toward zero never lengthens a row; a row still over its bound contributes nothing.
    """
    exact = vectors.to(torch.float64)
    copies = []
    for into in range(len(query.sigma)):
        weight = torch.tensor([row[into] for row in query.weights.table], dtype=torch.float64)[groups] * query.steps
        grid = (exact * weight[:, None]).trunc_()
        squared = grid.square().sum(dim=1)
        copies.append(torch.where((squared <= weight.square())[:, None], grid, 0.0).to(torch.float32))
    return torch.cat(copies)


def _noisy_cells(
    adjacency: Adjacency, labels: Tensor, inside: Tensor, query: CellQuery, noise: IntegerNoise, stream: RowStream
) -> Tensor:
    """Return the noisy counts; the exact ones live and die here."""
    classes = query.classes
    counts = np.zeros((classes, classes), dtype=np.int64)
    label, member = labels.numpy(), inside.numpy()
    degrees = np.diff(adjacency.indptr.numpy())
    source, target = adjacency.indices.numpy(), np.repeat(np.arange(len(degrees), dtype=np.int32), degrees)
    both = member[source] & member[target]
    pairs = label[source[both]] * classes + label[target[both]]
    counts += np.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    if not adjacency.directed:  # each edge is stored in both directions
        counts = np.triu(counts + counts.T) // np.where(np.eye(classes, dtype=bool), 4, 2)
    cells = np.triu_indices(classes) if not adjacency.directed else np.indices(counts.shape).reshape(2, -1)
    drawn = noise.draw(stream, np.arange(len(cells[0])), 1)[:, 0]
    noisy = np.zeros(counts.shape)
    noisy[cells[0], cells[1]] = (counts[cells[0], cells[1]] * int(query.steps) + drawn) / query.steps
    return torch.from_numpy(noisy)


def _plain(query: Query) -> dict[str, object]:
    """Return a query's parameters for a descriptor, sigma as exact hexadecimal."""
    values = {k: v for k, v in asdict(query).items() if k != "sigma"}
    return {**values, "sigma": [s.hex() for s in query.sigma]}


def _same(known: bytes, descriptor: Mapping[str, object]) -> None:
    if known != canonical(descriptor):
        raise ReleaseError(
            "a resumed release would draw the same noise for different data or parameters, and refuses: resume "
            "with the configuration and files of the first run, or start a new run in a new folder (the "
            "abandoned release stays charged)"
        )
