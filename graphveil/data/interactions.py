"""The user-item table: which items are on each user's list, stored as edges from users to items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil.data.adjacency import MAX_NODES, EdgeSet
from graphveil.data.graph import Graph
from graphveil.errors import GraphError

Unknown = Literal["error", "drop"]
Lists = sparse.csr_array  # one row per user, one column per item
USERS_OCCUR = "the users are those that occur in the table, and are treated as public"


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """A user-item table: each user has a list of items, without order or ratings.

    Build one with ``from_columns``, ``from_matrix`` or ``from_pyg``.

    Args:
        graph: Directed graph of users, then items, with an edge from a user to each item on the user's list.
        user_ids: Id of each user (U).
        item_ids: Id of each item (I), the catalog.

    Privacy:
        The lists are protected. The ids of users and items are public, and do not depend on the lists. The
        budget belongs to the edge set of ``graph``: keep the table, since each new one has a new budget.

    >>> Interactions.from_columns(["ann", "bob"], [1, 2], user_ids=["ann", "bob"], item_ids=[1, 2])
    Interactions(users=2, items=2)
    """

    graph: Graph
    user_ids: npt.NDArray[Any]
    item_ids: npt.NDArray[Any]

    def __repr__(self) -> str:
        """Show public sizes only, never a number of list entries."""
        return f"Interactions(users={self.num_users}, items={self.num_items})"

    @property
    def num_users(self) -> int:
        """The number of users U."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """The number of items I."""
        return len(self.item_ids)

    @classmethod
    def from_columns(
        cls,
        users: object,
        items: object,
        *,
        item_ids: object,
        user_ids: object = None,
        unknown_ids: Unknown = "error",
        edge_set: EdgeSet | None = None,
    ) -> Interactions:
        """Build a table from two columns of equal length: a user, and an item on the user's list.

        Duplicates are merged.

        Args:
            users, items: Columns of ids: lists, arrays, or columns of a frame.
            item_ids: Public catalog of all items. A list of the items that occur would reveal an item that
                is on one list only.
            user_ids: Public list of all users, including users without items. By default the users that
                occur, sorted, and every guarantee notes that they are treated as public.
            unknown_ids: ``"error"`` raises an error if an id is in neither list, ``"drop"`` drops its rows.
            edge_set: Identity of the table for its budget; a new one by default.

        Returns:
            The table.

        Raises:
            GraphError: If the columns do not match, ids repeat, or an id is unknown.

        Privacy:
            Reads: both columns, exactly. Charges: nothing. The result is private.

        >>> table = Interactions.from_columns([7, 7, 9], [1, 2, 1], user_ids=[7, 8, 9], item_ids=[1, 2, 3])
        >>> table.lists().toarray().astype(int).tolist()
        [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
        """
        checks.one_of(get_args(Unknown), unknown_ids=unknown_ids)
        sources, targets = as_column("users", users), as_column("items", items)
        people = _ids("user_ids", np.unique(sources) if user_ids is None else user_ids)
        catalog, notes = _ids("item_ids", item_ids), () if user_ids is not None else (USERS_OCCUR,)
        if len(sources) != len(targets):
            raise GraphError(
                "users and items have different numbers of rows; give one item for each user, row by row"
            )
        rows, columns = positions(people, sources, "users"), positions(catalog, targets, "items")
        known = (rows >= 0) & (columns >= 0)
        if unknown_ids == "error" and not known.all():
            raise GraphError(
                "users or items has an id that is not in user_ids or item_ids; add it to the public list, "
                "or use unknown_ids='drop'"
            )
        return cls._build(rows[known], columns[known], people, catalog, edge_set, notes)

    @classmethod
    def from_matrix(
        cls,
        matrix: object,
        *,
        user_ids: object = None,
        item_ids: object = None,
        edge_set: EdgeSet | None = None,
    ) -> Interactions:
        """Build a table from a matrix of users and items, where entries other than 0 are items on a list.

        Args:
            matrix: SciPy sparse matrix or dense array (U, I).
            user_ids, item_ids: Public ids; by default the indices.
            edge_set: Identity of the table for its budget; a new one by default.

        Returns:
            The table.

        Raises:
            GraphError: If it is no matrix, or the ids do not fit its shape.

        Privacy:
            Reads: the matrix, exactly. Charges: nothing. The result is private.

        >>> Interactions.from_matrix([[1, 0, 1], [0, 0, 0]])
        Interactions(users=2, items=3)
        """
        found = as_lists(matrix)
        people = _ids("user_ids", np.arange(found.shape[0]) if user_ids is None else user_ids)
        catalog = _ids("item_ids", np.arange(found.shape[1]) if item_ids is None else item_ids)
        if (len(people), len(catalog)) != found.shape:
            raise GraphError(
                f"the matrix has shape {found.shape}, and there are {len(people)} user_ids and "
                f"{len(catalog)} item_ids; give one id per row and one per column"
            )
        return cls._build(*found.nonzero(), people, catalog, edge_set)

    @classmethod
    def from_pyg(cls, data: Any, *, edge_set: EdgeSet | None = None) -> Interactions:
        """Build a table from a torch_geometric ``HeteroData`` with one relation from users to items.

        Args:
            data: ``HeteroData`` with one edge type between two node types; its source type are the users.
            edge_set: Identity of the table for its budget; a new one by default.

        Returns:
            The table, with indices as ids.

        Raises:
            GraphError: If it has another form.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private. Remove a reverse relation
            first: it would store every entry twice.
        """
        types = list(getattr(data, "edge_types", None) or [])
        if len(types) != 1 or types[0][0] == types[0][2]:
            raise GraphError(
                "from_pyg takes a HeteroData with one edge type between two node types, from users to items; "
                "remove other types, such as the reverse of this one"
            )
        source, _, target = types[0]
        sizes = [data[kind].num_nodes for kind in (source, target)]
        ends = getattr(data[types[0]], "edge_index", None)
        if ends is None or None in sizes:
            raise GraphError(
                "the HeteroData lacks edge_index or num_nodes; set data[type].num_nodes for users and items"
            )
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes):
            raise GraphError("num_nodes must be a whole number of users, and of items")
        _check_sizes(sum(sizes))
        ends = np.asarray(ends.detach().cpu() if isinstance(ends, torch.Tensor) else ends)
        if ends.ndim != 2 or len(ends) != 2 or (ends.size and ends.dtype.kind not in "iu"):
            raise GraphError("edge_index must be an array of whole numbers with two rows, users and items")
        users, items = ends.astype(np.int64)
        people, catalog = (np.arange(size) for size in sizes)
        for ids, used in ((people, users), (catalog, items)):
            if len(used) and (used.min() < 0 or used.max() >= len(ids)):
                raise GraphError("edge_index has an index beyond num_nodes; correct one of them")
        return cls._build(users, items, people, catalog, edge_set)

    @classmethod
    def _build(
        cls,
        rows: npt.NDArray[Any],
        columns: npt.NDArray[Any],
        people: npt.NDArray[Any],
        catalog: npt.NDArray[Any],
        edge_set: EdgeSet | None,
        notes: tuple[str, ...] = (),
    ) -> Interactions:
        """Return the table of these entries, by index."""
        edge_set = checks.fitting("edge_set", edge_set, EdgeSet | None)
        _check_sizes(len(people) + len(catalog))
        graph = Graph.from_edges(
            None,
            torch.zeros(len(people) + len(catalog), dtype=torch.int64),
            rows.astype(np.int64),
            columns.astype(np.int64) + len(people),
            directed=True,
            num_classes=2,
            edge_set=edge_set,
            name="interactions",
            notes=notes,
        )
        return cls(graph, people, catalog)

    def lists(self) -> Lists:
        """Return every user's list, bool (U, I).

        Returns:
            Sparse matrix with one row per user and one column per item.

        Privacy:
            Reads: all lists, exactly. Charges: nothing. The result is private: do not publish it.
        """
        sources, targets = self.graph.adjacency.edge_index()
        shape = self.num_users, self.num_items
        return lists_of(sources.numpy(), targets.numpy() - self.num_users, shape)


def _check_sizes(count: int) -> None:
    """Raise an error for more users and items than a table may have."""
    if count > MAX_NODES:
        raise GraphError(f"users and items together must be at most {MAX_NODES:,}; split the table")


def as_lists(matrix: object) -> Lists:
    """Return a sparse or dense matrix as bool rows of lists.

    Raises:
        GraphError: If it is no finite matrix of numbers.
    """
    try:
        found: Any = matrix if sparse.issparse(matrix) else np.asarray(matrix)
    except (ValueError, TypeError, RuntimeError):  # also of sparse tensors
        found = np.empty(0)
    if getattr(found, "ndim", 0) != 2 or getattr(found, "dtype", np.dtype(object)).kind not in "biuf":
        raise GraphError(
            f"a user-item table is a matrix of numbers with one row per user, not a {type(matrix).__name__}; "
            "give a SciPy sparse matrix or a dense array (users, items)"
        )
    given = sparse.coo_array(found)
    if not np.isfinite(given.data).all():
        raise GraphError("the matrix has entries that are not finite; use 0 for items that are not listed")
    rows, columns = (part[given.data != 0] for part in given.coords)
    return lists_of(rows, columns, given.shape)


def lists_of(rows: npt.NDArray[Any], columns: npt.NDArray[Any], shape: tuple[int, int]) -> Lists:
    """Return the lists of these entries, each once."""
    lists: Lists = sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape)
    return lists


def as_column(name: str, values: object) -> npt.NDArray[Any]:
    """Return a column of ids as a vector of integers or text.

    Raises:
        GraphError: If it is no such column.
    """
    try:
        found = np.asarray(values)
    except ValueError:
        found = np.empty((0, 0))
    if found.dtype.kind == "O" and found.ndim == 1 and all(isinstance(one, str) for one in found.tolist()):
        found = found.astype(str)
    if found.ndim == 1 and not len(found):
        return np.empty(0, dtype=np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iuU":
        raise GraphError(
            f"{name} must be a column of whole numbers or of text, without missing values; convert it with "
            "astype(str), for example"
        )
    return found


def _ids(name: str, values: object) -> npt.NDArray[Any]:
    """Return public ids.

    Raises:
        GraphError: If they are no ids, or one repeats.
    """
    found = as_column(name, values)
    if not len(found):
        raise GraphError(f"{name} is empty; list all users and all items, including those without entries")
    if len(np.unique(found)) < len(found):
        raise GraphError(f"{name} has an id twice; list every id once")
    return found


def positions(ids: npt.NDArray[Any], values: npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
    """Return the index of each value among the ids, -1 for unknown ones.

    Raises:
        GraphError: If one is text and the other is not.

    >>> positions(np.array(["b", "a"]), np.array(["a", "c"]), "items").tolist()
    [1, -1]
    """
    if len(values) and (ids.dtype.kind == "U") != (values.dtype.kind == "U"):
        raise GraphError(
            f"{name} and its list of ids must both be text or both be whole numbers; convert one of them"
        )
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids, values, sorter=order), len(ids) - 1)
    found = order[place]
    return np.where(ids[found] == values, found, -1) if len(values) else np.empty(0, dtype=np.int64)
