"""Worker process: open sealed values, compute a block, return noisy results.

A worker creates one key pair when it starts. It stores the keys and blocks that it receives in its own
memory, so that a later query on the same graph reuses the blocks.

Values are sealed in parts of at most 64 MiB. A process that transports, stores or spills them sees only
their lengths. Arrays and tensors follow the pickle, so that neither side holds a second copy of a large
table. Every part is authenticated under the key before anything is unpickled. The length of a block would
reveal its number of edges. So a value is padded with zeros to the next quarter step between powers of two.
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
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.data.stored_graph import StoredEdges
from graphveil.errors import GraphveilError, ReleaseError

Rows = tuple[int, int]
Result = npt.NDArray[Any] | str  # noisy values, or an error text
_NO_WORK = "it was given no work for this query"
PART = 1 << 26  # bytes
MIN_BYTES = 1 << 16  # minimum size of a value: up to about ten thousand edges look like none
_LENGTH = np.dtype("<i8")
_ALIGN = 64  # arrays begin at multiples: rows of a table then span the fewest cache lines


class SealedBlob(NamedTuple):
    """Name of a value, its padded number of bytes, and its sealed parts or references to them."""

    name: str
    size: int
    parts: tuple[Any, ...]


class Worker:
    """One worker. The process that owns the release calls its methods sequentially.

    ``fetch`` returns one part of a sealed value from its storage. Errors are returned as text without data
    values, because Ray would log a raised exception with its whole context.
    """

    def __init__(self, threads: int, fetch: Callable[[Any], Bytes]) -> None:
        """Create a key pair, and set the number of threads of this process."""
        torch.set_num_threads(threads)
        self._fetch, self._recipient_key, self._box = fetch, RecipientKey(), SecretBox(b"")
        self._graph: tuple[str, StoredEdges | None] = ("", None)
        self._kept: dict[Rows, EdgeBlock] = {}
        self._work: tuple[str, BlockWork] | None = None  # with the name of its query
        self._wrong = _NO_WORK

    def handshake(self) -> tuple[str, bytes]:
        """Return the version of the library in this process, and the public key."""
        return graphveil.__version__, self._recipient_key.public

    def take_key(self, sealed: bytes) -> None:
        """Receive the key that sealed values are encrypted under."""
        self._box = SecretBox(self._recipient_key.open(sealed))

    def set_graph(self, name: str, stored: SealedBlob | None) -> str:
        """Switch to another graph and discard the blocks of the last one; return an error text, or "".

        Args:
            name: Name of the graph.
            stored: Where its blocks are read; None if each block is sent.
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
        """Receive the work of a query, named like the query, for the current graph."""
        self._work = None  # free the table of the last query first
        try:
            self._wrong = "it cannot read the graph"
            if self._graph[0] == graph:
                self._work = work.name, self._opened(work)
        except Exception as error:
            self._wrong = _words(error)

    def block(self, query: str, rows: Rows, edges: SealedBlob | None) -> Result:
        """Return the result of a query for a block of rows, or an error text if its work was replaced."""
        if self._work is None:
            return self._wrong
        if self._work[0] != query:
            return _NO_WORK
        try:
            stored = self._graph[1]
            if stored is not None:
                found = stored.rows(*rows)
            else:
                if rows not in self._kept:  # a block is sent once
                    assert edges is not None
                    self._kept[rows] = self._opened(edges)
                found = self._kept[rows]
            return self._work[1](found).numpy()
        except Exception as error:
            return _words(error)

    def end(self, query: str) -> None:
        """Discard the work, tables and key of a query; the work of a later query is kept."""
        if self._work is not None and self._work[0] == query:
            self._work, self._wrong = None, _NO_WORK

    def _opened(self, sealed_blob: SealedBlob) -> Any:
        return open_value(sealed_blob, self._box, map(self._fetch, sealed_blob.parts))


def _words(error: Exception) -> str:
    """Return a publishable error text: the message of a library error, or the exception type only."""
    return str(error) if isinstance(error, GraphveilError) else f"a worker failed with {type(error).__name__}"


# -- values as sealed parts ----


def seal_value(name: str, value: object, box: SecretBox) -> tuple[int, Iterator[Bytes]]:
    """Return the padded number of bytes of a value, and an iterator over its sealed parts."""
    pieces = _pieces(value)
    pieces.insert(0, np.array([len(pieces), *map(len, pieces)], _LENGTH).view(np.uint8))
    size = _coarse(sum(_filled(len(piece)) for piece in pieces))
    parts = (box.seal(f"{name}/{number}", *part) for number, part in enumerate(_parts(pieces, size)))
    return size, parts


def open_value(sealed_blob: SealedBlob, box: SecretBox, parts: Iterable[Bytes]) -> Any:
    """Return the value, whose arrays are adjacent in memory.

    Raises:
        ReleaseError: A part is missing or fails authentication.
    """
    from ray import cloudpickle

    memory, place = torch.empty(sealed_blob.size + SLACK, dtype=torch.uint8).numpy(), 0
    for number, part in enumerate(parts):
        place += box.open_into(memory[place:], f"{sealed_blob.name}/{number}", part)
    if place != sealed_blob.size:
        raise ReleaseError(DAMAGED)
    # The pieces follow their lengths, which follow the number of pieces.
    width, pieces = _LENGTH.itemsize, list[Bytes]()
    count = int(memory[:width].view(_LENGTH)[0])
    place = _filled(width * (1 + count))
    for length in memory[width : width * (1 + count)].view(_LENGTH).tolist():
        pieces.append(memory[place : place + length])
        place += _filled(length)
    return cloudpickle.loads(pieces[0], buffers=pieces[1:])


def _pieces(value: object) -> list[Bytes]:
    """Return the pickle of a value, and the memory of its arrays."""
    from ray import cloudpickle

    class Apart(cloudpickle.Pickler):  # type: ignore[misc]
        """Pickler that leaves the memory of tensors out of band, like that of arrays."""

        def reducer_override(self, one: Any) -> Any:
            if type(one) is Tensor:
                return torch.from_numpy, (np.ascontiguousarray(one.numpy()),)
            return super().reducer_override(one)

    written, arrays = BytesIO(), list[Any]()
    Apart(written, protocol=5, buffer_callback=arrays.append).dump(value)
    return [np.frombuffer(each, np.uint8) for each in (written.getbuffer(), *(one.raw() for one in arrays))]


def _parts(pieces: list[Bytes], size: int) -> Iterator[list[Bytes]]:
    """Yield parts of pieces, each piece padded to 64 bytes, all pieces to ``size``; nothing is copied."""
    part, room = list[Bytes](), PART
    fill = [_filled(len(piece)) - len(piece) for piece in pieces]
    fill[-1] += size - sum(len(piece) for piece in pieces) - sum(fill)
    for piece, zeros in zip(pieces, fill, strict=True):
        for left in (piece, np.zeros(zeros, dtype=np.uint8)):  # untouched zero pages use no memory
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
    """Return the next size that is 1, 5/4, 6/4 or 7/4 of a power of two, and at least ``MIN_BYTES``."""
    step = max(MIN_BYTES, 1 << (size - 1).bit_length()) >> 3
    return max(MIN_BYTES, -(-size // step) * step)
