"""A worker's process: open the values that are sent, work on a block, return what has noise.

A worker has one key pair, made when it starts, and keeps the keys that it is sent in its own memory. It
keeps the blocks that it was sent, so that a later query about the same graph finds them there.

Values are sealed in parts of at most 64 MiB: a process that carries, stores or spills them sees their
lengths alone. Arrays and tensors follow the pickle, so that neither side holds a second copy of a large
table. A part is opened, which proves that it comes from a holder of the key, before anything is unpickled.
The length of a block would say how many edges it has. So a value is filled up with zeros to the next
quarter step between powers of two.
"""

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import graphveil
from graphveil._util.sealed import DAMAGED, SLACK, Bytes, RecipientKey, SecretBox
from graphveil.data.blocks import EdgeBlock
from graphveil.data.stored_graph import StoredEdges
from graphveil.errors import GraphveilError, ReleaseError
from graphveil.release.backends import BlockWork

Rows = tuple[int, int]
Result = npt.NDArray[Any] | str  # noisy numbers, or words that say why there are none
_NO_WORK = "it was given no work for this query"
PART = 1 << 26  # bytes
MIN_BYTES = 1 << 16  # bytes of a value: edges by the ten thousand look like none
_LENGTH = np.dtype("<i8")
_ALIGN = 64  # arrays begin at multiples: rows of a table then lie in as few lines of the cache as they can


class SealedBlob(NamedTuple):
    """A value's name, the bytes that it takes filled up, and its sealed parts, or what stands for them."""

    name: str
    size: int
    parts: tuple[Any, ...]


class Worker:
    """One worker. Its methods are called one after the other, by the process that has the release.

    ``fetch`` returns a part of a parcel from where it is kept. What goes wrong is returned as words without a
    value of the data: what is raised would be written down, with all that led to it.
    """

    def __init__(self, threads: int, fetch: Callable[[Any], Bytes]) -> None:
        """Make a lock; how many threads a block's sums may take is for the whole process."""
        torch.set_num_threads(threads)
        self._fetch, self._recipient_key, self._box = fetch, RecipientKey(), SecretBox(b"")
        self._graph: tuple[str, StoredEdges | None] = ("", None)
        self._kept: dict[Rows, EdgeBlock] = {}
        self._work: tuple[str, BlockWork] | None = None  # and the name of the query that it is of
        self._wrong = _NO_WORK

    def handshake(self) -> tuple[str, bytes]:
        """Return the version that works here, and the public half of the lock."""
        return graphveil.__version__, self._recipient_key.public

    def take_key(self, sealed: bytes) -> None:
        """Take the key that parcels are sealed under."""
        self._box = SecretBox(self._recipient_key.open(sealed))

    def set_graph(self, name: str, stored: SealedBlob | None) -> str:
        """Take another graph, and forget the last one's blocks; return what is wrong with it, if anything is.

        Args:
            name: of the graph.
            stored: where its blocks are read; None if each is sent.
        """
        if self._graph[0] == name:
            return ""
        self._graph, self._kept, self._work, self._wrong = ("", None), {}, None, _NO_WORK
        try:
            found: StoredEdges | None = None if stored is None else self._opened(stored)
            if found is not None:
                found.map_files()
        except Exception as error:
            return _words(error)
        self._graph = (name, found)
        return ""

    def begin(self, graph: str, work: SealedBlob) -> None:
        """Take the work, named like its query, that is done from now on about the graph seen last."""
        self._work = None  # the last one's table goes before there is memory for another
        try:
            self._wrong = "it cannot read the graph"
            if self._graph[0] == graph:
                self._work = work.name, self._opened(work)
        except Exception as error:
            self._wrong = _words(error)

    def block(self, query: str, rows: Rows, edges: SealedBlob | None) -> Result:
        """Return what a query's work makes of some rows, if no other work was given since."""
        if self._work is None:
            return self._wrong
        if self._work[0] != query:
            return _NO_WORK
        try:
            return self._work[1](self._edges(rows, edges)).numpy()
        except Exception as error:
            return _words(error)

    def end(self, query: str) -> None:
        """Forget a query's work, its tables and its key; what was given for a later one stays."""
        if self._work is not None and self._work[0] == query:
            self._work, self._wrong = None, _NO_WORK

    def _edges(self, rows: Rows, edges: SealedBlob | None) -> EdgeBlock:
        """Return a block: read from shared storage, or sent, now or before."""
        stored = self._graph[1]
        if stored is not None:
            return stored.rows(*rows)
        if rows not in self._kept:
            assert edges is not None
            self._kept[rows] = self._opened(edges)
        return self._kept[rows]

    def _opened(self, sealed_blob: SealedBlob) -> Any:
        return open_value(sealed_blob, self._box, map(self._fetch, sealed_blob.parts))


def _words(error: Exception) -> str:
    """Return what may be said of a failure: our own words, which hold no value, or what kind it is."""
    return str(error) if isinstance(error, GraphveilError) else f"it failed with {type(error).__name__}"


# -- values as sealed parts ----


def seal_value(name: str, value: object, box: SecretBox) -> tuple[int, Iterator[Bytes]]:
    """Return how many bytes a value takes, filled up, and its sealed parts one by one."""
    pieces = _pieces(value)
    pieces.insert(0, np.array([len(pieces), *map(len, pieces)], _LENGTH).view(np.uint8))
    size = _coarse(sum(_filled(len(piece)) for piece in pieces))
    parts = (box.seal(f"{name}/{number}", *part) for number, part in enumerate(_parts(pieces, size)))
    return size, parts


def open_value(sealed_blob: SealedBlob, box: SecretBox, parts: Iterable[Bytes]) -> Any:
    """Return the value, whose arrays lie side by side.

    Raises:
        ReleaseError: a part is not what was packed, or is missing.
    """
    from ray import cloudpickle

    memory, place = torch.empty(sealed_blob.size + SLACK, dtype=torch.uint8).numpy(), 0
    for number, part in enumerate(parts):
        place += box.open_into(memory[place:], f"{sealed_blob.name}/{number}", part)
    if place != sealed_blob.size:
        raise ReleaseError(DAMAGED)
    first, *buffers = _pieces_in(memory)
    return cloudpickle.loads(first, buffers=buffers)


def _pieces_in(memory: Bytes) -> Iterator[Bytes]:
    """Yield the pieces that were laid side by side behind their lengths."""
    width = _LENGTH.itemsize
    count = int(memory[:width].view(_LENGTH)[0])
    place = _filled(width * (1 + count))
    for length in memory[width : width * (1 + count)].view(_LENGTH).tolist():
        yield memory[place : place + length]
        place += _filled(length)


def _pieces(value: object) -> list[Bytes]:
    """Return a value's pickle, and the memory of its arrays."""
    from ray import cloudpickle

    class Apart(cloudpickle.Pickler):  # type: ignore[misc]
        """Leaves the memory of tensors where it is, as that of arrays is left."""

        def reducer_override(self, one: Any) -> Any:
            if type(one) is Tensor:
                return torch.from_numpy, (np.ascontiguousarray(one.numpy()),)
            return super().reducer_override(one)

    written, arrays = BytesIO(), list[Any]()
    Apart(written, protocol=5, buffer_callback=arrays.append).dump(value)
    return [np.frombuffer(each, np.uint8) for each in (written.getbuffer(), *(one.raw() for one in arrays))]


def _parts(pieces: list[Bytes], size: int) -> Iterator[list[Bytes]]:
    """Yield the pieces in parts, each filled up to a multiple of 64 bytes, all to a size; none is copied."""
    part, room = list[Bytes](), PART
    fill = [_filled(len(piece)) - len(piece) for piece in pieces]
    fill[-1] += size - sum(len(piece) for piece in pieces) - sum(fill)
    for piece, zeros in zip(pieces, fill, strict=True):
        for left in (piece, np.zeros(zeros, dtype=np.uint8)):  # the system gives zeros no memory
            while len(left):
                some, left = left[:room], left[room:]
                part.append(some)
                room -= len(some)
                if not room:
                    yield part
                    part, room = [], PART
    if part:
        yield part


def _filled(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _coarse(size: int) -> int:
    """Return the next of all sizes that are 1, 5/4, 6/4 or 7/4 of a power of two, and not small."""
    step = max(MIN_BYTES, 1 << (size - 1).bit_length()) >> 3
    return max(MIN_BYTES, -(-size // step) * step)
