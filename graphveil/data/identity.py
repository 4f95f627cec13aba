"""Who a set of edges is, and which state of a graph: identities that hold no edge.

A budget hangs on an :class:`EdgeSet` and kept answers on a :class:`AdjacencyVersion`. Both are compared as
objects, because any digest of the edges would tell neighboring graphs apart.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from graphveil.errors import GraphError


class EdgeSet:
    """The identity of one protected set of edges, on which a privacy budget can be kept.

    Two edge sets are equal only if they are the same object: a hash of the edges would tell neighboring
    graphs apart. Copies are the same object too, so that copying a graph does not copy its budget. Pickling
    is refused, because a budget does not leave its process.

    Args:
        id: a public name such as ``"dataset:cora"``; by default a random one.
        parts: the sets of which this one is the union, as of a graph that has grown; none share an edge.
        released: the guarantee of these edges, as text, where they came out of a mechanism and are public;
            empty for protected ones.

    >>> import copy
    >>> edges = EdgeSet("dataset:cora")
    >>> copy.deepcopy(edges) is edges, edges == EdgeSet("dataset:cora")
    (True, False)
    >>> EdgeSet(parts=(edges, EdgeSet())).parts[0] is edges, edges.parts == (edges,)
    (True, True)
    """

    __slots__ = ("__weakref__", "_parts", "id", "released")

    id: str
    released: str

    def __init__(self, id: str | None = None, *, parts: Sequence[EdgeSet] = (), released: str = "") -> None:
        """Take a public name, or draw a random one."""
        self.id = secrets.token_hex(16) if id is None else id
        self.released = released
        # A part's own parts take its place, each once.
        self._parts = tuple(dict.fromkeys(piece for part in parts for piece in part.parts))

    @property
    def parts(self) -> tuple[EdgeSet, ...]:
        """The sets that each have a budget of their own: this one, unless it is a union."""
        return self._parts or (self,)

    def __copy__(self) -> EdgeSet:
        """Return the same edge set."""
        return self

    def __deepcopy__(self, memo: object) -> EdgeSet:
        """Return the same edge set."""
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        """Refuse to be pickled, unless the edges are released: what comes out would have an empty budget."""
        if self.released and not self._parts:
            return EdgeSet, (self.id,), (None, {"released": self.released})
        raise GraphError(
            "an edge set cannot be pickled or sent to another process: its budget would not go with it; load "
            "the graph where it is used, and add up what all processes spend"
        )

    def __repr__(self) -> str:
        """Show the public name."""
        return f"EdgeSet({self.id!r})"


class AdjacencyVersion:
    """The identity of one state of in-edges, for whoever keeps answers about it; it holds no edge."""

    __slots__ = ("__weakref__",)
