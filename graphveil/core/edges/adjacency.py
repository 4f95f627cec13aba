"""The in-edges of every node, their weights, and the identity of the edge set that they come from.

In-edges are stored in compressed rows, one row per target, because every aggregation reads them in that
order. A budget hangs on an ``EdgeSet`` and stored answers on an ``AdjacencyVersion``. Both are
compared as objects, because any digest of the edges would distinguish neighboring graphs. Nothing here
prints, logs or raises anything from which an edge or an edge count can be computed.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.csr import Pattern, check_rows, mirrored, pattern
from graphveil.errors import GraphError, ProtectedDataError

Ids: TypeAlias = Tensor | npt.NDArray[np.integer] | Sequence[int]
_Ids32: TypeAlias = npt.NDArray[np.int32]
_Offsets: TypeAlias = npt.NDArray[np.int64]
MAX_NODES = 2**31 - 1  # node ids are stored as int32
Weighted = sparse.csr_array[np.float64]


class EdgeSet:
    """The identity of one protected set of edges, to which a privacy budget is attached.

    Two edge sets are equal only if they are the same object: a hash of the edges would distinguish
    neighboring graphs. Copies return the same object, so copying a graph does not copy its budget. Pickling
    raises an error, because a budget does not leave its process.

    Args:
        id: Public name such as ``"dataset:cora"``; random by default.
        parts: Disjoint edge sets whose union this is, for example after ``Graph.grow``.
        released: Guarantee of these edges, as text, if a mechanism released them and they are public.
            Empty for protected edges.

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
        self.id = secrets.token_hex(16) if id is None else id
        self.released = released
        # A part's own parts take its place, each once.
        self._parts = tuple(dict.fromkeys(piece for part in parts for piece in part.parts))

    @property
    def parts(self) -> tuple[EdgeSet, ...]:
        """The sets that each have their own budget: this one, or the parts of a union."""
        return self._parts or (self,)

    def __copy__(self) -> EdgeSet:
        return self

    def __deepcopy__(self, memo: object) -> EdgeSet:
        return self

    def __reduce_ex__(self, protocol: object) -> Any:
        if self.released and not self._parts:
            return EdgeSet, (self.id,), (None, {"released": self.released})
        raise GraphError(
            "An edge set cannot be pickled or sent to another process, because its privacy budget "
            "would not be sent with it. Load the graph in the process that uses it, and add up the "
            "budgets that all processes spend."
        )

    def __repr__(self) -> str:
        return f"EdgeSet({self.id!r})"


class AdjacencyVersion:
    """The identity of one version of the in-edges, used as a cache key; it stores no edge."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, eq=False, repr=False)
class GrowthStep:
    """One step of growth: ``base`` is the previous graph, ``added`` contains only the new edges.

    Nodes below ``base_nodes`` existed before. ``apart`` lists the edge sets that are disjoint from the new
    edges: those of ``base``, except if the new edges have the name of another edge set that may overlap.
    """

    base: AdjacencyVersion
    base_nodes: int
    added: Adjacency
    apart: tuple[EdgeSet, ...] = ()

    def __repr__(self) -> str:
        """Show public sizes only."""
        return f"Step({self.base_nodes} to {self.added.num_nodes} nodes)"


@dataclass(frozen=True, eq=False, repr=False)
class Adjacency:
    """In-edges in CSR format: ``indices[indptr[v]:indptr[v + 1]]`` are the sources of the edges to ``v``.

    Build one with ``from_edges``. Sources are distinct and ascending within a row, and there are no
    self-loops; rows passed directly are checked and sorted. An undirected graph must store both directions
    of every edge. This is not checked, because one edge would change the result of the check.

    Shapes: ``indptr`` int64 (N + 1), ``indices`` int32 (stored edges), ``weights`` float32 (stored edges).

    If the edges have weights, ``weights`` are their shares of the public bound ``max_weight``, in [0, 1].

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> path
    Adjacency(nodes=3, directed=False)
    >>> path.indices[path.indptr[1] : path.indptr[2]]
    tensor([0, 2], dtype=torch.int32)
    """

    indptr: Tensor
    indices: Tensor
    directed: bool
    edge_set: EdgeSet
    history: tuple[GrowthStep, ...] = ()  # how it grew, oldest step first
    weights: Tensor | None = None
    max_weight: float | None = None
    folder: Path | None = None  # of a prepared graph, whose edges are mapped and not loaded
    version: AdjacencyVersion = field(default_factory=AdjacencyVersion, init=False)

    def __post_init__(self) -> None:
        if self.indptr.dtype != torch.int64 or self.indptr.ndim != 1 or len(self.indptr) < 1:
            raise GraphError("indptr must be an int64 vector with one entry more than there are nodes.")
        if self.indices.dtype != torch.int32 or self.indices.ndim != 1:
            raise GraphError("indices must be an int32 vector.")
        _check_num_nodes(self.num_nodes)
        check_rows(self.indptr.numpy(), self.indices.numpy(), self.num_nodes, "an adjacency")
        self._check_weights()
        sources, targets = self.indices.numpy(), self._targets()
        proper = sources != targets
        tail, head = sources[proper], targets[proper]
        ordered: Any
        if self.weights is None:
            ordered = _by_target(tail, head, self.num_nodes)
        else:
            shares = self.weights.numpy()[proper].astype(np.float64)
            ordered = weighted_rows(tail, head, shares, self.num_nodes, directed=True, max_weight=1.0)
        object.__setattr__(self, "indptr", torch.from_numpy(ordered.indptr.astype(np.int64)))
        object.__setattr__(self, "indices", torch.from_numpy(ordered.indices.astype(np.int32)))
        if self.weights is not None:
            object.__setattr__(self, "weights", torch.from_numpy(ordered.data.astype(np.float32)))

    def _check_weights(self) -> None:
        if (self.weights is None) != (self.max_weight is None):
            raise GraphError("weights and max_weight must be given together. Give both or neither.")
        if self.weights is None:
            return
        if self.weights.dtype != torch.float32 or self.weights.shape != self.indices.shape:
            raise GraphError("weights must be a float32 vector of the same length as indices.")
        if not bool(((self.weights >= 0) & (self.weights <= 1)).all()):  # NaN is neither
            raise GraphError("weights must be between 0 and 1. Divide them by max_weight.")
        check_max_weight(self.max_weight)

    @classmethod
    def _in_order(
        cls, indptr: Tensor, indices: Tensor, directed: bool, edge_set: EdgeSet, **others: Any
    ) -> Adjacency:
        """Return rows that are known to be sorted, without checking them again."""
        made = object.__new__(cls)
        named = {"indptr": indptr, "indices": indices, "directed": directed, "edge_set": edge_set}
        vars(made).update(named, **others, version=AdjacencyVersion())
        return made

    def __repr__(self) -> str:
        """Show public sizes only, never an edge count."""
        return f"{type(self).__name__}(nodes={self.num_nodes}, directed={self.directed})"

    @property
    def num_nodes(self) -> int:
        """The number of nodes N.

        Privacy:
            The number of nodes is public. Edges are not read.
        """
        return self.indptr.shape[0] - 1

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """All arrays that contain the edges.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private.
        """
        edges = self.indptr, self.indices
        return edges if self.weights is None else (*edges, self.weights)

    @classmethod
    def from_edges(
        cls,
        source: Ids,
        target: Ids,
        *,
        num_nodes: int,
        directed: bool,
        edge_set: EdgeSet | None = None,
        weight: object = None,
        max_weight: float | None = None,
    ) -> Adjacency:
        """Build an adjacency from edges ``source[i] -> target[i]`` in any order; duplicates are merged.

        Self-loops are dropped. With ``directed=False`` each edge is stored in both directions, whether the
        input lists one of them or both.

        Args:
            weight: Weight of at least 0 for each edge, if the edges are weighted. The largest weight is used
                for duplicates, and for both directions of an undirected edge. Weight 0 means no edge.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private.

        >>> edges = Adjacency.from_edges(
        ...     [0, 0, 2], [1, 1, 1], num_nodes=3, directed=True, weight=[1.0, 0.5, 9.0], max_weight=2.0
        ... )
        >>> edges.indices, edges.weights
        (tensor([0, 2], dtype=torch.int32), tensor([0.5000, 1.0000]))
        """
        _check_num_nodes(num_nodes)
        directed = checks.plain(directed)
        checks.switch(directed=directed)
        tail, head = _node_ids(source, num_nodes), _node_ids(target, num_nodes)
        if tail.shape != head.shape:
            raise GraphError(
                "source and target have different lengths. Give one source and one target per edge."
            )
        # Weights go by place, so they are checked before loops are dropped.
        weights = checked_weights(weight, max_weight, len(tail))
        proper = tail != head
        if not proper.all():
            tail, head = tail[proper], head[proper]
        if weights is not None:
            values, bound = weights
            rows = weighted_rows(tail, head, values[proper], num_nodes, directed=directed, max_weight=bound)
            return cls._from_matrix(rows, directed, edge_set, bound)
        matrix = _by_target(tail, head, num_nodes) if directed else _symmetric(tail, head, num_nodes)
        return cls._from_matrix(matrix, directed, edge_set, None)

    @classmethod
    def from_rows(
        cls, indptr: _Offsets, sources: _Ids32, *, directed: bool, edge_set: EdgeSet | None = None
    ) -> Adjacency:
        """Build an adjacency from sorted CSR rows: ``sources[indptr[v]:indptr[v + 1]]`` are the sources of v.

        Of an undirected edge only the larger end lists the other. Node pairs that are drawn in their order
        have this form.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private.

        >>> indptr, sources = np.array([0, 0, 1, 2]), np.array([0, 1], dtype=np.int32)
        >>> Adjacency.from_rows(indptr, sources, directed=False).indices
        tensor([1, 0, 2, 1], dtype=torch.int32)
        """
        _check_num_nodes(len(indptr) - 1)
        check_rows(indptr, sources, len(indptr) - 1, "an adjacency")
        falls = sources[1:] <= sources[:-1]
        begins = indptr[(indptr > 0) & (indptr < len(sources))]
        falls[begins - 1] = False  # the first source of a row may be below the last one of the row before
        rows = np.flatnonzero(np.diff(indptr))
        if directed:
            wrong = sources == np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
        else:
            wrong = sources[indptr[rows + 1] - 1] >= rows
        if falls.any() or wrong.any():
            raise GraphError(
                "Rows must list their sources in ascending order, without duplicates and without the "
                "node itself. An undirected edge must be listed only in the row of its larger node id."
            )
        offsets, indices = (indptr, sources) if directed else mirrored(indptr, sources)
        stored = torch.from_numpy(offsets), torch.from_numpy(indices)
        return cls._in_order(*stored, directed, edge_set or EdgeSet())

    @classmethod
    def _from_matrix(
        cls,
        matrix: Any,
        directed: bool,
        edge_set: EdgeSet | None,
        max_weight: float | None,
        history: tuple[GrowthStep, ...] = (),
    ) -> Adjacency:
        """Return the edges of a matrix with ascending columns; entries are weights, if they have a bound."""
        indptr = torch.from_numpy(matrix.indptr.astype(np.int64))
        indices = torch.from_numpy(matrix.indices.astype(np.int32, copy=False))
        weights = None if max_weight is None else torch.from_numpy(matrix.data.astype(np.float32))
        kept = edge_set or EdgeSet()
        return cls._in_order(
            indptr, indices, directed, kept, history=history, weights=weights, max_weight=max_weight
        )

    def _unwrap(self) -> Adjacency:
        """Return edges that can be read. Only queries call it."""
        return self

    def without_weights(self) -> Adjacency:
        """Return the same edges without weights.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private, and shares the budget.
        """
        return Adjacency._in_order(self.indptr, self.indices, self.directed, self.edge_set)

    def edge_index(self) -> Tensor:
        """Return the stored edges as an int64 tensor of shape (2, stored edges): sources above targets.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private.

        >>> Adjacency.from_edges([0], [1], num_nodes=2, directed=False).edge_index()
        tensor([[1, 0],
                [0, 1]])
        """
        out = torch.empty((2, len(self.indices)), dtype=torch.int64)
        out[0] = self.indices
        out[1] = torch.from_numpy(self._targets())
        return out

    def subgraph(self, keep: Tensor) -> Adjacency:
        """Return the edges between the kept nodes, which are renumbered from 0 in the same order.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private, and shares the budget. The
            mask is treated as public, so it must not be computed from protected data.

        >>> path = Adjacency.from_edges([0, 1, 2], [1, 2, 3], num_nodes=4, directed=False)
        >>> path.subgraph(torch.tensor([True, False, True, True])).edge_index()
        tensor([[2, 1],
                [1, 2]])
        """
        nodes = self._node_mask(keep)
        sources, targets = self.indices.numpy(), self._targets()
        stays = nodes[sources]
        stays &= nodes[targets]
        renumbered = (np.cumsum(nodes) - 1).astype(np.int32)  # keeps the order, so that rows stay ascending
        return self._rows_from(
            renumbered[sources[stays]], renumbered[targets[stays]], int(nodes.sum()), stays
        )

    def without_crossing(self, side: Tensor) -> Adjacency:
        """Return the edges whose two ends are both inside ``side`` or both outside.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private, and shares the budget. The
            mask is treated as public, so it must not be computed from protected data.

        >>> path = Adjacency.from_edges([0, 1, 2], [1, 2, 3], num_nodes=4, directed=True)
        >>> path.without_crossing(torch.tensor([True, True, False, False])).edge_index()
        tensor([[0, 2],
                [1, 3]])
        """
        nodes = self._node_mask(side)
        sources, targets = self.indices.numpy(), self._targets()
        stays = nodes[sources] == nodes[targets]
        return self._rows_from(sources[stays], targets[stays], self.num_nodes, stays)

    def _targets(self) -> _Ids32:
        return np.repeat(np.arange(self.num_nodes, dtype=np.int32), np.diff(self.indptr.numpy()))

    def _node_mask(self, mask: Tensor) -> npt.NDArray[np.bool_]:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (self.num_nodes,):
            raise GraphError(f"A node mask must be a bool array of shape ({self.num_nodes},).")
        return mask.numpy()

    def _rows_from(
        self, sources: _Ids32, targets: _Ids32, num_nodes: int, stays: npt.NDArray[np.bool_]
    ) -> Adjacency:
        """Return a subset of the edges, already in row order, with the same edge set."""
        indptr = np.zeros(num_nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(targets, minlength=num_nodes), out=indptr[1:])
        return Adjacency._in_order(
            torch.from_numpy(indptr),
            torch.from_numpy(sources),
            self.directed,
            self.edge_set,
            weights=None if self.weights is None else self.weights[torch.from_numpy(stays)],
            max_weight=self.max_weight,
        )


def _protected(name: str) -> Any:
    return property(lambda edges: edges._refuse(name))


class ProtectedEdges(Adjacency):
    """A handle of protected edges for methods: queries accept it, and nothing else reads it.

    Public are the number of nodes, the direction, the bound of weights, and the identity of the edges. This
    stops accidents. Python code that wants to read the edges can.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> ProtectedEdges(path, "undirected-edge").indices
    Traceback (most recent call last):
    graphveil.errors.ProtectedDataError: Unit 'undirected-edge' protects the edges, so indices cannot be \
read. Query them: session.open(graph) and release.answer(...). Their noisy answers are public.
    """

    indptr, indices = _protected("indptr"), _protected("indices")
    weights, history = _protected("weights"), _protected("history")

    def __init__(self, edges: Adjacency, unit: str) -> None:
        public = ("directed", "edge_set", "max_weight", "folder", "version")
        vars(self).update({name: getattr(edges, name) for name in public}, _unit=unit)
        vars(self)["<edges>"] = edges._unwrap()  # not an attribute: no line reads it by mistake

    @property
    def num_nodes(self) -> int:
        return self._unwrap().num_nodes

    @property
    def unit(self) -> str:
        return str(vars(self)["_unit"])

    def _unwrap(self) -> Adjacency:
        edges: Adjacency = vars(self)["<edges>"]
        return edges

    def _refuse(self, name: str) -> NoReturn:
        raise ProtectedDataError(
            f"Unit {self.unit!r} protects the edges, so {name} cannot be read. Query them: "
            "session.open(graph) and release.answer(...). Their noisy answers are public."
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise ``ProtectedDataError``: a copy or a file of the handle would contain the edges."""
        self._refuse("a copy")


def _check_num_nodes(num_nodes: int) -> None:
    if not 0 <= num_nodes <= MAX_NODES:
        raise GraphError(f"num_nodes={num_nodes} must lie between 0 and {MAX_NODES}")


def _node_ids(ids: Ids, num_nodes: int) -> _Ids32:
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, dtype=np.int32)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise GraphError(
            "Edges must be given as two vectors of integers, for example source=[0, 1] and target=[1, 2]."
        )
    if array.min() < 0 or array.max() >= num_nodes:
        raise GraphError(
            "An edge names a node that does not exist. Ids must be between 0 and num_nodes - 1 = "
            f"{num_nodes - 1}."
        )
    return array.astype(np.int32, copy=False)


def _by_target(tail: _Ids32, head: _Ids32, num_nodes: int) -> Pattern:
    """Return the matrix with rows = targets and ascending, distinct columns = sources.

    Two stable counting sorts: by source, then by target. The second one leaves the sources ascending.
    """
    # SciPy's conversion of a column format with one entry per column is such a sort: row k of the result
    # lists the targets of source k in input order. The targets ride along as data.
    count = len(tail)
    one_each = np.arange(count + 1, dtype=np.int64 if count >= MAX_NODES else np.int32)
    entries: Any = (head, tail, one_each)
    rows = sparse.csc_array(entries, shape=(num_nodes, count)).tocsr()
    transposed = pattern(rows.indptr, rows.data, num_nodes).tocsc()
    matrix = pattern(transposed.indptr, transposed.indices, num_nodes)
    matrix.has_sorted_indices = True  # so that equal neighbors are merged without another sort
    matrix.sum_duplicates()
    return matrix


def _symmetric(tail: _Ids32, head: _Ids32, num_nodes: int) -> Pattern:
    """Return the symmetric matrix of the pairs {tail, head}.

    Only one triangle is sorted; the other is its transpose. That halves time and memory when the input lists
    both directions, as public files do.
    """
    lower = _by_target(np.minimum(tail, head), np.maximum(tail, head), num_nodes)
    indptr, indices = mirrored(lower.indptr.astype(np.int64), lower.indices)
    return pattern(indptr, indices, num_nodes)


def checked_weights(
    weight: Any, max_weight: float | None, edges: int
) -> tuple[npt.NDArray[np.float64], float] | None:
    if weight is None and max_weight is None:
        return None
    if weight is None or max_weight is None:
        raise GraphError(
            "Edge weights need both the weights and max_weight= (--max-weight), the public bound to "
            "which larger weights are clipped. It limits what one edge can change. Give both."
        )
    check_max_weight(max_weight)
    try:
        values = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise GraphError("Edge weights must be numbers, one per edge.") from None
    if values.shape != (edges,):
        raise GraphError("Edge weights must be a vector with one number per edge.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise GraphError(
            "Edge weights must be finite and at least 0. Leave out edges with a negative weight, such as "
            "distrust: edges = edges[weight > 0]. Do not shift weights: distrust would become weak trust."
        )
    return values, float(max_weight)


def check_max_weight(max_weight: float | None) -> None:
    number = isinstance(max_weight, int | float | np.number) and not isinstance(max_weight, bool)
    if max_weight is None or not (number and np.isfinite(max_weight) and max_weight > 0):
        raise GraphError(f"max_weight={max_weight} must be a positive number")


def weighted_rows(
    tail: npt.NDArray[np.int32],
    head: npt.NDArray[np.int32],
    weight: npt.NDArray[np.float64],
    num_nodes: int,
    *,
    directed: bool,
    max_weight: float,
) -> Weighted:
    """Return the edge weights divided by ``max_weight`` as a sparse matrix with one row per target.

    An edge that is listed several times counts once, with its largest weight; an undirected one has that in
    both directions, whichever is listed. What passes ``max_weight`` is cut. Weight zero is no edge.
    """
    # Not the sum, so that how often an edge is listed changes neither its count nor its weight.
    order = np.lexsort((weight, tail, head))
    tail, head, weight = tail[order], head[order], weight[order]
    last = np.append((np.diff(head) != 0) | (np.diff(tail) != 0), np.ones(min(1, len(head)), dtype=bool))
    listed = sparse.coo_array((weight[last], (head[last], tail[last])), shape=(num_nodes, num_nodes))
    matrix: Any = listed.tocsr()
    if not directed:
        matrix = matrix.maximum(matrix.T.tocsr())
    # Shares of the bound, so that every row of a hop has the same bound, 1, whatever unit weights are in.
    matrix.data = np.minimum(matrix.data, max_weight) / max_weight
    # An edge of weight zero adds nothing to any sum, and must be stored like a missing edge.
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return sparse.csr_array(matrix)


# -- growth ----


def grow_adjacency(
    adjacency: Adjacency,
    source: Ids,
    target: Ids,
    num_nodes: int,
    edge_set: EdgeSet | None = None,
    weight: object = None,
) -> Adjacency:
    """Return in-edges with more nodes and new edges; each new edge has at least one new node.

    >>> pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=False)
    >>> grow_adjacency(pair, [2], [1], 3).edge_index()
    tensor([[1, 0, 2, 1],
            [0, 1, 1, 2]])
    """
    old = adjacency.num_nodes
    bound = adjacency.max_weight
    if bound is None and weight is not None:
        raise GraphError(
            "The edges of this graph have no weights, so new edges cannot have weights. Remove weight=."
        )
    added = Adjacency.from_edges(
        source,
        target,
        num_nodes=num_nodes,
        directed=adjacency.directed,
        edge_set=edge_set,
        weight=weight,
        max_weight=bound,
    )
    # Earlier answers, under the old budget, already depend on whether two old nodes are joined: a row below
    # `old` that lists another one.
    if bool((added.indices[: int(added.indptr[old])] < old).any()):
        raise GraphError(
            "A new edge joins two existing nodes, but a graph can only grow by edges of new nodes. "
            "Build a new graph with all edges. Predictions on it are a new release."
        )
    # A set that the caller named may contain old edges elsewhere, so it may overlap.
    apart = adjacency.edge_set.parts if edge_set is None else ()
    # The two share no entry, each new one having a new end, so that their sum adds up no two weights.
    matrix = _padded(adjacency, num_nodes) + _padded(added, num_nodes)
    whole = EdgeSet(parts=(adjacency.edge_set, added.edge_set))
    history = (*adjacency.history, GrowthStep(adjacency.version, old, added, apart))
    return Adjacency._from_matrix(matrix, adjacency.directed, whole, bound, history)


def _padded(adjacency: Adjacency, num_nodes: int) -> Any:
    beyond = num_nodes - adjacency.num_nodes
    indptr = np.pad(adjacency.indptr.numpy(), (0, beyond), mode="edge")
    plain = np.ones(len(adjacency.indices), dtype=np.bool_)
    entries = plain if adjacency.weights is None else adjacency.weights.numpy()
    return sparse.csr_array((entries, adjacency.indices.numpy(), indptr), shape=(num_nodes, num_nodes))
