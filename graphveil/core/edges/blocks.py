"""Destination blocks: consecutive rows of a graph with all their in-edges, as values that can be pickled.

A block may be a view of a memory-mapped file. If another process truncates that file, reading it kills this
process, and compiled sums do not check indices. Each pass over the edges therefore first checks that the
files have not changed since the graph was opened. Changes during a pass are not detected.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.errors import GraphError

SOURCES = "sources.bin"  # the file in the folder of a prepared graph that edges are mapped from
MAX_EDGES = 2**31 - 1  # what a 32-bit offset can address
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class EdgeBlock:
    """The in-edges of destination rows ``start`` to ``stop``, as CSR with block-local offsets."""

    start: int
    stop: int
    offsets: Tensor  # int32, (stop - start + 1)
    sources: Tensor  # int32
    weights: Tensor | None = None  # float32, where the graph's edges have weights

    def __repr__(self) -> str:
        """Show the rows only: the edges are private, and so is their number."""
        return f"Edges(rows {self.start} to {self.stop})"

    def __len__(self) -> int:
        return self.stop - self.start

    def __getstate__(self) -> dict[str, object]:
        return {name: part.clone() if isinstance(part, Tensor) else part for name, part in vars(self).items()}

    @property
    def degrees(self) -> Tensor:
        return self.offsets.diff()

    @cached_property
    def most(self) -> int:
        """The largest in-degree of a row: as private as the edges.

        NumPy computes it, because threads of torch would stay awake and slow down the sums that follow.
        """
        return int(np.diff(self.offsets.numpy()).max()) if len(self) else 0

    def pieces(self, rows: int, edges: int) -> Iterator[EdgeBlock]:
        """Yield the block in pieces of at most ``rows`` rows and ``edges`` edges, or of one row."""
        for first, last in _cuts(self.offsets, rows, edges):
            yield self.rows(first, last)

    def rows(self, first: int, last: int) -> EdgeBlock:
        if (first, last) == (0, len(self)):
            return self
        bounds = self.offsets[first : last + 1]
        begin, end = int(bounds[0]), int(bounds[-1])
        weights = None if self.weights is None else self.weights[begin:end]
        local = bounds - begin if begin else bounds
        return EdgeBlock(self.start + first, self.start + last, local, self.sources[begin:end], weights)


_whole: WeakKeyDictionary[Adjacency, EdgeBlock] = WeakKeyDictionary()  # a graph that is one block is cut once


def blocks(adjacency: Adjacency, rows: int, first: int = 0) -> Iterator[EdgeBlock]:
    check_unchanged(adjacency)
    if not first and rows >= adjacency.num_nodes and (whole := _whole.get(adjacency)) is not None:
        yield whole
        return
    for start, stop in ranges(adjacency, rows, first):
        yield block_of(adjacency, start, stop)


def ranges(adjacency: Adjacency, rows: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the first and last row of each block in order, starting at row ``first``.

    Each has ``rows`` rows, or fewer where 32-bit offsets would overflow.
    """
    check_unchanged(adjacency)
    for start, stop in _cuts(adjacency.indptr[first:], rows, MAX_EDGES):
        yield first + start, first + stop


def block_of(adjacency: Adjacency, start: int, stop: int) -> EdgeBlock:
    """Return the edges into some rows as views, at most ``MAX_EDGES`` of them."""
    whole = stop - start == adjacency.num_nodes
    if whole and (known := _whole.get(adjacency)) is not None:
        return known
    bounds = adjacency.indptr[start : stop + 1].numpy()
    some = slice(int(bounds[0]), int(bounds[-1]))
    offsets = torch.empty(len(bounds), dtype=torch.int32)
    np.subtract(bounds, bounds[0], out=offsets.numpy(), casting="unsafe")  # at most MAX_EDGES, so they fit
    weights = None if adjacency.weights is None else adjacency.weights[some]
    block = EdgeBlock(start, stop, offsets, adjacency.indices[some], weights)
    if whole:
        _whole[adjacency] = block
    return block


def in_edges(adjacency: Adjacency, nodes: Ids) -> tuple[Ids, Ids]:
    """Return the sources of the edges into some nodes, in the order of the nodes, and their in-degrees.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> sources, counts = in_edges(path, np.array([2, 1]))
    >>> sources.tolist(), counts.tolist()
    ([1, 0, 2], [1, 2])
    """
    check_unchanged(adjacency)
    indptr, indices = adjacency.indptr.numpy(), adjacency.indices.numpy()
    starts, counts = indptr[nodes], np.diff(indptr)[nodes]
    within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    return indices[np.repeat(starts, counts) + within].astype(np.int64), counts


def _cuts(offsets: Tensor, rows: int, edges: int) -> Iterator[tuple[int, int]]:
    bounds = offsets.numpy()
    first, count = 0, len(bounds) - 1
    while first < count:
        last = min(count, first + rows)
        if bounds[last] - bounds[first] > edges:
            most = bounds.dtype.type(bounds[first] + edges)  # below the last, so it fits the type
            last = max(first + 1, int(np.searchsorted(bounds, most, side="right")) - 1)
        yield first, last
        first = last


# -- files that a graph is mapped from ----


class Stamp(NamedTuple):
    """Identity of a file: its inode, its size, and the time of its last modification."""

    path: Path
    facts: tuple[int, int, int, int] | None  # None: it does not exist

    @classmethod
    def from_file(cls, path: Path) -> Stamp:
        try:
            found = path.stat()
        except OSError:
            return cls(path, None)
        return cls(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


_stamps: WeakKeyDictionary[Adjacency, tuple[Stamp, ...]] = WeakKeyDictionary()


def remember_stamps(adjacency: Adjacency, stamps: Iterable[Stamp]) -> None:
    _stamps[adjacency] = tuple(stamps)


def check_unchanged(adjacency: Adjacency) -> None:
    check_stamps(_stamps.get(adjacency, ()))


def check_stamps(stamps: Iterable[Stamp]) -> None:
    for stamp in stamps:
        if Stamp.from_file(stamp.path) != stamp:
            raise GraphError(
                f"{stamp.path} was changed, replaced or removed while its graph was open. Restore the "
                "prepared folder, and open the graph again with gv.open_graph, which checks all files."
            )


def sources_of(adjacency: Adjacency) -> BinaryIO:
    assert adjacency.folder is not None
    return (adjacency.folder / SOURCES).open("rb")


def read_ahead(file: BinaryIO, adjacency: Adjacency, row: int, rows: int) -> None:
    """Request prefetching of the edges into some rows, if the operating system supports it."""
    if hasattr(os, "posix_fadvise"):
        start, stop = (int(adjacency.indptr[min(end, adjacency.num_nodes)]) for end in (row, row + rows))
        os.posix_fadvise(file.fileno(), 4 * start, 4 * (stop - start), os.POSIX_FADV_WILLNEED)
