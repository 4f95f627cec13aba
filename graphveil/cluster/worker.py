"""What is done in a worker's process: open what is sent, work on a block, hand back what has noise.

A worker has one lock, made when it starts, and keeps the keys that it is sent in its own memory. It remembers
the blocks that it was sent, so that a later query about the same graph finds them there.
"""

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch

import graphveil
from graphveil._util.sealed import Bytes, RecipientKey, SecretBox
from graphveil.cluster.sealed_blobs import SealedBlob, open_value
from graphveil.data.blocks import EdgeBlock
from graphveil.data.stored.stored_edges import StoredEdges
from graphveil.errors import GraphveilError
from graphveil.release.backends import BlockWork

Rows = tuple[int, int]
_NO_WORK = "it was given no work for this query"
Result = npt.NDArray[Any] | str  # noisy numbers, or words that say why there are none


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
