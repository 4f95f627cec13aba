"""The protected edges of a release: one object reads them, block by block, and returns no block.

Places where exact numbers about private data exist are declared (``forms_private_sum``), and listed in
``proofs/noise.md``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util import checks
from graphveil._util.threads import all_threads, parallel_for
from graphveil.core.backends import AggregationBackend, BlockWork, backend_for
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock, Ids
from graphveil.core.keys import keyed_digest
from graphveil.core.noise import _kernels

Site = TypeVar("Site", bound=Callable[..., Any])


@dataclass(frozen=True)
class PrivateSumSite:
    """A place where exact numbers about private data exist, and are returned only with noise."""

    queries: tuple[str, ...]
    place: str  # module:qualified name
    note: str


PRIVATE_SUM_SITES: list[PrivateSumSite] = []


def forms_private_sum(*queries: str, note: str = "") -> Callable[[Site], Site]:
    """Declare that a function or class forms the exact numbers of some queries, and adds their noise.

    ``docs/privacy/proofs/noise.md`` lists all of these places, and a test finds other code of this kind.
    """

    def declare(site: Site) -> Site:
        PRIVATE_SUM_SITES.append(PrivateSumSite(queries, f"{site.__module__}:{site.__qualname__}", note))
        return site

    return declare


_ROWS_A_THREAD = 1 << 16
_EDGES = 1 << 22  # edges of a piece, unless a query takes fewer

Counts = npt.NDArray[np.int64]
Exact = Callable[[EdgeBlock], npt.NDArray[np.integer[Any]]]


@dataclass(frozen=True, eq=False, repr=False)
class CompactRows:
    """Contributions as integers: int16 (count + 1, width), padded with columns and a row of zeros.

    A sum over neighbors is bound by memory access. Contributions are integers of at most 2^14, so a source's
    row in 16-bit integers is half as long as in float32. Twice as many rows fit into the cache, and one cache
    line holds two rows of sixteen columns.
    """

    rows: Tensor
    dim: int
    bits: int

    @classmethod
    def empty(cls, count: int, dim: int, bits: int) -> "CompactRows":
        rows = _kernels.empty_rows(count + 1, dim)
        rows[-1] = 0
        return cls(rows, dim, bits)

    @property
    def plain(self) -> Tensor:
        return self.rows[:-1, : self.dim].to(torch.float32)


class PrivateEdges:
    """Give queries access to a graph: compute on its blocks, through a backend.

    ``rows`` and ``pieces`` return results that already include noise. ``rows`` computes those from
    ``first_row`` on. They keep their indices, so each has the same noise as in the full release. The other
    methods return exact numbers about the edges. These stay in the release path: the caller adds noise before
    anything is returned.
    """

    def __init__(
        self, adjacency: Adjacency, backend: AggregationBackend | None = None, first_row: int = 0
    ) -> None:
        checks.integer_at_least(0, first_row=first_row)
        self._adjacency, self._backend = adjacency._unwrap(), backend_for(backend, adjacency)
        self._first_row = first_row
        self._memory: Tensor | CompactRows | None = None

    def __repr__(self) -> str:
        """Show public sizes only."""
        return f"PrivateEdges(nodes={self.num_nodes}, directed={self.directed})"

    @property
    def num_nodes(self) -> int:
        """The number of nodes N, which is public."""
        return self._adjacency.num_nodes

    @property
    def directed(self) -> bool:
        """Whether an edge is stored in one direction only, which is public."""
        return self._adjacency.directed

    @all_threads()
    def rows(self, work: BlockWork) -> Tensor:
        """Return the work's results for the blocks, stacked in node order: noisy aggregates."""
        backend = self._backend
        count, place = self.num_nodes - self._first_row, 0
        out: Tensor | None = None
        for part in backend.run(work, self._adjacency, self._first_row):
            if len(part) == count and not backend.yields_borrowed_memory:
                return part
            if out is None:
                out = part.new_empty((count, *part.shape[1:]))
            given, taken = part.numpy(), out[place : place + len(part)].numpy()

            def copy(first: int, last: int, given: Any = given, taken: Any = taken) -> None:
                np.copyto(taken[first:last], given[first:last])

            # Use the threads that also sum: torch's threads stay busy for a while and would compete.
            parallel_for(copy, len(part), _ROWS_A_THREAD)
            place += len(part)
        return torch.empty(0) if out is None else out

    def pieces(self, work: BlockWork) -> Tensor:
        """Return the work's results for the blocks, concatenated, of any length: noisy numbers."""
        backend = self._backend
        parts = backend.run(work, self._adjacency)
        return _joined([part.clone() if backend.yields_borrowed_memory else part for part in parts])

    def total(
        self,
        exact: Exact | Callable[[EdgeBlock], int],
        shape: tuple[int, ...],
        *,
        rows: int | None = None,
        edges: int | None = None,
    ) -> Counts:
        """Return the exact sum of a function over all pieces of at most so many rows and edges.

        Exact numbers are not sent to other processes, so every backend computes them here.
        """
        total: Counts = np.zeros(shape, dtype=np.int64)
        for piece in self._pieces(rows, edges):
            total += exact(piece)
        return total

    def count(self, cells_of: Exact, cells: int) -> Counts:
        """Return the exact number of edges in each cell, from a function that returns the edges' cells."""
        return self.total(lambda piece: np.bincount(cells_of(piece), minlength=cells), (cells,))

    def exact(self, exact: Exact, *, rows: int | None = None, edges: int | None = None) -> Counts:
        """Return the exact results of a function for all pieces, concatenated."""
        return np.concatenate([np.empty(0, np.int64), *map(exact, self._pieces(rows, edges))])

    def _pieces(self, rows: int | None, edges: int | None) -> Iterator[EdgeBlock]:
        for block in self._backend.blocks(self._adjacency):
            yield from block.pieces(rows or len(block), edges or _EDGES)

    def in_edges(self, nodes: Ids) -> tuple[Ids, Ids]:
        """Return the in-neighbors of the nodes, concatenated node by node, and their number per node."""
        return self._backend.in_edges(self._adjacency, nodes)

    def out_neighbors(self) -> tuple[Tensor, Tensor]:
        """Return every node's own list, concatenated, and the start of each, int64.

        For undirected graphs, too, lists are defined by sources. If a record is nulled, the records of its
        neighbors still list it.
        """
        blocks = list(self._backend.blocks(self._adjacency))
        sources = np.concatenate([block.sources.numpy() for block in blocks] or [np.empty(0, np.int32)])
        degrees = np.concatenate([block.degrees.numpy() for block in blocks] or [np.empty(0, np.int64)])
        starts = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
        parts = np.ones(len(sources), dtype=bool), sources, starts
        lists = sparse.csr_array(parts, shape=(self.num_nodes,) * 2).tocsc()
        listed = torch.from_numpy(lists.indices.astype(np.int64))
        return listed, torch.from_numpy(lists.indptr.astype(np.int64))

    def digest(self, key: bytes) -> str:
        """Return the keyed digest of the edges; an unkeyed one would distinguish neighboring datasets."""
        return keyed_digest(key, *self._adjacency.arrays)

    def memory(self, rows: int, dim: int) -> Tensor:
        """Return memory for a table of contributions: the last one, if it has the shape.

        Allocating new memory costs as much time as filling it.
        """
        if not isinstance(self._memory, Tensor) or self._memory.shape != (rows, dim):
            self._memory = torch.empty(rows, dim)
        return self._memory

    def compact_memory(self, rows: int, dim: int, bits: int) -> CompactRows:
        kept, size = self._memory, (rows + 1, dim, bits)
        if not isinstance(kept, CompactRows) or (len(kept.rows), kept.dim, kept.bits) != size:
            kept = self._memory = CompactRows.empty(rows, dim, bits)
        return kept


def _joined(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
