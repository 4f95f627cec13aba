"""Whether the files that an open graph is mapped from are as they were when it was opened.

A mapped file is memory that others can change: what is cut off from it ends the process that reads it, and
compiled sums follow indices unchecked. So a pass over the edges asks the system before it begins, which
takes microseconds. It cannot see what happens within a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from graphveil.data.adjacency import Adjacency
from graphveil.errors import GraphError


class Stamp(NamedTuple):
    """A file and what the system says of it: which one it is, its size, and when it was last written."""

    path: Path
    facts: tuple[int, int, int, int] | None  # None: it is not there

    @classmethod
    def from_file(cls, path: Path) -> Stamp:
        """Look at a file."""
        try:
            found = path.stat()
        except OSError:
            return cls(path, None)
        return cls(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


_stamps: WeakKeyDictionary[Adjacency, tuple[Stamp, ...]] = WeakKeyDictionary()


def remember_stamps(adjacency: Adjacency, stamps: Iterable[Stamp]) -> None:
    """Remember the files that a graph is mapped from."""
    _stamps[adjacency] = tuple(stamps)


def check_unchanged(adjacency: Adjacency) -> None:
    """Refuse to read edges whose files have changed; edges in memory have none.

    Raises:
        GraphError: a file was written, replaced or removed since the graph was opened; it is named.
    """
    check_stamps(_stamps.get(adjacency, ()))


def check_stamps(stamps: Iterable[Stamp]) -> None:
    """Refuse files that are not as they were.

    Raises:
        GraphError: one was written, replaced or removed; it is named.
    """
    for stamp in stamps:
        if Stamp.from_file(stamp.path) != stamp:
            raise GraphError(
                f"{stamp.path} was changed, replaced or removed while its graph was open; leave prepared "
                "folders as they are, and open the graph again (gv.open_graph), which checks all of it"
            )
