"""The user-item table: which items are on each user's list, stored as edges from users to items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.data.graph import Graph
from graphveil.data.rows import Rows, check_sizes, pyg_rows, pyg_values, read_rows
from graphveil.data.tables.files import COMMAS, Column, CsvFormat, FrameSource, column
from graphveil.data.tables.ids import KnownIds, References, id_array, id_column, match_ids
from graphveil.errors import GraphError

Unknown = Literal["error", "drop"]
Lists = sparse.csr_array  # one row per user, one column per item
_LARGEST = 1e12  # rating
USERS_OCCUR = "the users are those that occur in the table, and are treated as public"


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """A user-item table: each user has a list of items, without order or ratings.

    Build one with ``from_columns``, ``from_matrix`` or ``from_pyg``.

    Args:
        graph: Directed graph of users, then items, with an edge from a user to each item on the user's list.
        user_ids: Id of each user (U).
        item_ids: Id of each item (I), the catalog.
        item_features: Public features of each item, float32 (I, d), or None.

    Privacy:
        The lists are protected. The ids of users and items and the features of items are public, and do not
        depend on the lists. The budget belongs to the edge set of ``graph``: keep the table, since each new
        one has a new budget.

    >>> Interactions.from_columns(["ann", "bob"], [1, 2], user_ids=["ann", "bob"], item_ids=[1, 2])
    Interactions(users=2, items=2)
    """

    graph: Graph
    user_ids: npt.NDArray[Any]
    item_ids: npt.NDArray[Any]
    item_features: npt.NDArray[np.float32] | None = None

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
        item_features: object = None,
        ratings: object = None,
        min_rating: float | None = None,
        unknown_ids: Unknown = "error",
        edge_set: EdgeSet | None = None,
    ) -> Interactions:
        """Build a table from two columns of equal length: in each row, a user and an item of that user.

        Duplicates are merged.

        Args:
            users, items: Columns of ids: lists, arrays, or columns of a frame.
            item_ids: Public catalog of all items. A list of the items that occur would reveal an item that
                is on one list only.
            user_ids: Public list of all users, including users without items. By default the users that
                occur, sorted, and every guarantee notes that they are treated as public.
            item_features: Public features, a matrix (I, d) of numbers with one row for each id of
                ``item_ids``, in the same order. They must not depend on the lists.
            ratings: Column of numbers, one per row, for ``min_rating``.
            min_rating: Lowest rating of an item on a list. Rows with a lower or missing rating are dropped.
            unknown_ids: ``"error"`` raises an error if an id is in neither list, ``"drop"`` drops its rows.
            edge_set: Identity of the table for its budget; a new one by default.

        Returns:
            The table.

        Raises:
            GraphError: If the columns do not match, ids repeat, an id is unknown, no row is left, or the
                features are not finite numbers with one row per item.

        Privacy:
            Reads: all columns, exactly. Charges: nothing. The result is private.

        >>> table = Interactions.from_columns([7, 7, 9], [1, 2, 1], user_ids=[7, 8, 9], item_ids=[1, 2, 3],
        ...     ratings=[5, 1, 4], min_rating=4)
        >>> table.lists().toarray().astype(int).tolist()
        [[1, 0, 0], [0, 0, 0], [1, 0, 0]]
        """
        lowest = _lowest(min_rating)
        if (ratings is None) != (lowest is None):
            given, lacking = ("min_rating", "ratings") if ratings is None else ("ratings", "min_rating")
            raise GraphError(
                f"{given} needs {lacking}: rows with a rating below min_rating are dropped; give both or "
                "neither"
            )
        named = {"users": users, "items": items} | ({} if ratings is None else {"ratings": ratings})
        columns = {name: as_column(name, values) for name, values in named.items()}
        if len({len(values) for values in columns.values()}) > 1:
            raise GraphError(
                "users, items and ratings have different lengths. Pass one item for each user, row by row."
            )
        rated: dict[str, Any] = {} if lowest is None else {"value": "ratings", "bins": [lowest]}
        return cls.from_rows(
            Rows(columns, owner="users", far="items", **rated),
            _public("user_ids", _occurring(columns["users"]) if user_ids is None else user_ids),
            _public("item_ids", item_ids),
            item_features=item_features,
            unknown_ids=unknown_ids,
            edge_set=edge_set,
            notes=() if user_ids is not None else (USERS_OCCUR,),
        )

    @classmethod
    def from_rows(
        cls,
        rows: Rows,
        users: KnownIds,
        items: KnownIds,
        *,
        item_features: object = None,
        unknown_ids: str = "error",
        edge_set: EdgeSet | None = None,
        notes: tuple[str, ...] = (),
        csv_format: CsvFormat = COMMAS,
    ) -> Interactions:
        """Build a table from rows, of which those with the highest value count, and from public ids.

        Args:
            rows: In each row, a user and an item of that user.
            users, items: Public ids.
            item_features, unknown_ids, edge_set: As for ``from_columns``.
            notes: Notes on the table.
            csv_format: Format of a CSV file.

        Returns:
            The table.

        Raises:
            GraphError: If an id is unknown, no row is left, or the features do not match the items.

        Privacy:
            Reads: all rows, exactly. Charges: nothing. The result is private.
        """
        owners, far, _ = read_rows(
            rows,
            "the rows",
            (users, items),
            unknown_ids=unknown_ids,
            least=rows.num_values - 1,
            csv_format=csv_format,
        )
        if rows.value is not None:
            _some_left(owners)
        ids = id_array(users.ids), id_array(items.ids)
        return cls._build(owners, far, *ids, edge_set, item_features, notes)

    @classmethod
    def from_matrix(
        cls,
        matrix: object,
        *,
        min_rating: float | None = None,
        user_ids: object = None,
        item_ids: object = None,
        item_features: object = None,
        edge_set: EdgeSet | None = None,
    ) -> Interactions:
        """Build a table from a user-item matrix, where 1 means that the item is on the user's list.

        Args:
            matrix: SciPy sparse matrix or dense array (U, I).
            min_rating: Lowest entry of an item on a list, for a matrix of ratings or counts. Lower entries
                and 0, which stands for no rating, are not listed.
            user_ids, item_ids: Public ids; by default the indices.
            item_features: Public features of items, a matrix (I, d) of numbers with one row for each column
                of ``matrix``. They must not depend on the lists.
            edge_set: Identity of the table for its budget; a new one by default.

        Returns:
            The table.

        Raises:
            GraphError: If it is no matrix, the ids or features do not fit its shape, or it has entries other
                than 0 and 1 without ``min_rating``: a dislike would count as a like.

        Privacy:
            Reads: the matrix, exactly. Charges: nothing. The result is private.

        >>> Interactions.from_matrix([[1, 0, 1], [0, 0, 0]])
        Interactions(users=2, items=3)
        >>> Interactions.from_matrix([[5, 0, 1], [0, -1, 4]], min_rating=4).lists().nnz
        2
        """
        found = as_lists(matrix, min_rating)
        if 0 in found.shape:
            raise GraphError("The matrix needs at least one user and one item.")
        given = {"user_ids": user_ids, "item_ids": item_ids}
        people, catalog = (
            np.arange(size) if ids is None else id_array(_public(name, ids).ids)
            for (name, ids), size in zip(given.items(), found.shape, strict=True)
        )
        if (len(people), len(catalog)) != found.shape:
            raise GraphError(
                f"The matrix has shape {found.shape}, but there are {len(people)} user_ids and "
                f"{len(catalog)} item_ids. Pass one id per row and one per column."
            )
        return cls._build(*found.nonzero(), people, catalog, edge_set, item_features)

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        item_features: bool = False,
        min_rating: float | None = None,
        edge_set: EdgeSet | None = None,
    ) -> Interactions:
        """Build a table from a torch_geometric ``HeteroData`` with one relation from users to items.

        Args:
            data: ``HeteroData`` with one edge type between two node types; its source type are the users.
            item_features: Whether ``x`` of the items is their public features. It must not depend on the
                lists.
            min_rating: Lowest rating of an item on a list, for a relation with ``rating``, ``edge_label``,
                ``edge_attr`` or ``edge_weight``, which are otherwise rejected.
            edge_set: Identity of the table for its budget; a new one by default.

        Returns:
            The table, with indices as ids.

        Raises:
            GraphError: If it has another form.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The result is private. Remove a reverse relation
            first: it would store every entry twice.
        """
        checks.switch(item_features=item_features)
        lowest = _lowest(min_rating)
        types = list(getattr(data, "edge_types", None) or [])
        if len(types) != 1 or types[0][0] == types[0][2]:
            raise GraphError(
                "from_pyg needs a HeteroData with exactly one edge type, from users to items. Remove the "
                "other edge types, such as the reverse edges."
            )
        target = types[0][2]
        users, items, values, sizes = pyg_rows(data, types[0], None if lowest is None else [lowest])
        name, ratings = pyg_values(data[types[0]])
        if lowest is None and (ratings != 1).any():
            raise GraphError(
                f"the relation has {name!r}, and lists hold liked items only, without ratings. Name the "
                "lowest rating that counts as a like, for example min_rating=4, or delete "
                f"{name!r} from the relation."
            )
        if lowest is not None:
            users, items = users[values > 0], items[values > 0]
            _some_left(users)
        features = getattr(data[target], "x", None) if item_features else None
        if item_features and features is None:
            raise GraphError(
                f"item_features=True, but the items have no x. Set data[{target!r}].x to a matrix with one "
                "row per item, or remove item_features."
            )
        people, catalog = map(np.arange, sizes)
        return cls._build(users, items, people, catalog, edge_set, features)

    @classmethod
    def _build(
        cls,
        rows: npt.NDArray[Any],
        columns: npt.NDArray[Any],
        people: npt.NDArray[Any],
        catalog: npt.NDArray[Any],
        edge_set: EdgeSet | None,
        item_features: object,
        notes: tuple[str, ...] = (),
    ) -> Interactions:
        edge_set = checks.fitting("edge_set", edge_set, EdgeSet | None)
        features = None if item_features is None else _features(item_features, len(catalog))
        check_sizes(len(people) + len(catalog))
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
        return cls(graph, people, catalog, features)

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


def as_lists(matrix: object, min_rating: float | None = None) -> Lists:
    lowest = _lowest(min_rating)
    try:
        found: Any = matrix if sparse.issparse(matrix) else np.asarray(matrix)
    except (ValueError, TypeError, RuntimeError):  # also of sparse tensors
        found = np.empty(0)
    if getattr(found, "ndim", 0) != 2 or getattr(found, "dtype", np.dtype(object)).kind not in "biuf":
        raise GraphError(
            "A user-item table must be a matrix of numbers with one row per user, not a "
            f"{type(matrix).__name__}. Pass a SciPy sparse matrix or a dense array (users, items)."
        )
    given = sparse.coo_array(found)
    if not np.isfinite(given.data).all():
        raise GraphError(
            "The matrix has entries that are not finite. Use 0 for an item that is not in a user's list."
        )
    if lowest is None and ((given.data != 0) & (given.data != 1)).any():
        raise GraphError(
            "the matrix has entries other than 0 and 1, and lists hold liked items only, without ratings. "
            "Name the lowest rating that counts as a like: min_rating=4, or min_rating=1 for counts."
        )
    liked = (given.data != 0) & (given.data >= (-np.inf if lowest is None else lowest))
    if (given.data != 0).any():
        _some_left(given.data[liked])
    rows, columns = given.coords
    return lists_of(rows[liked], columns[liked], given.shape)


def _features(given: object, items: int) -> npt.NDArray[np.float32]:
    """Return public features of items as a matrix of finite numbers."""
    try:
        values: Any = given.detach().cpu().to_dense() if isinstance(given, torch.Tensor) else given
        dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
    except (ValueError, TypeError, RuntimeError):
        dense = np.empty(0)
    if dense.ndim != 2 or not dense.shape[1] or dense.dtype.kind not in "biuf":
        raise GraphError(
            "item_features must be a matrix of numbers with one row per item and at least one column. "
            "Encode a column of categories first, for example with pandas.get_dummies."
        )
    if len(dense) != items:
        raise GraphError(
            f"item_features has {len(dense)} rows, but the catalog has {items} items. Pass one row per item, "
            "in the order of the catalog."
        )
    with np.errstate(over="ignore"):
        features: npt.NDArray[np.float32] = dense.astype(np.float32)
    if not np.isfinite(features).all():
        raise GraphError(
            "item_features has entries that are missing or not finite. Replace them, for example by the mean "
            "of their column."
        )
    return features


def lists_of(rows: npt.NDArray[Any], columns: npt.NDArray[Any], shape: tuple[int, int]) -> Lists:
    lists: Lists = sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape)
    return lists


def as_column(name: str, values: object) -> Column:
    import pyarrow as pa

    sparse_tensor = isinstance(values, torch.Tensor) and values.layout != torch.strided
    if sparse_tensor or getattr(values, "ndim", 1) != 1 or isinstance(values, dict):
        raise GraphError(f"{name} is a {type(values).__name__}; give one column of ids")
    if isinstance(values, torch.Tensor | range | set | frozenset):
        values = np.asarray(values if isinstance(values, torch.Tensor | range) else sorted(values, key=str))
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise GraphError(f"{name} is a {type(values).__name__}; give a list, an array or a column of a frame")
    table = FrameSource.from_frame({name: values}, "the table").table
    found = column(table, name)
    if pa.types.is_nested(found.type):
        raise GraphError(f"{name} must have one value per row, not a list; give a column of ids")
    return found


def _occurring(users: Column) -> Column:
    import pyarrow.compute as pc

    found = pc.unique(users)
    return found.take(pc.array_sort_indices(found))


def _public(name: str, ids: object) -> KnownIds:
    return KnownIds.read(FrameSource.from_frame({name: as_column(name, ids)}, "the public list"), name)


def _lowest(min_rating: object) -> float | None:
    min_rating = checks.plain(min_rating)
    if min_rating is not None:
        checks.within(-_LARGEST, _LARGEST, min_rating=min_rating)  # type: ignore[arg-type]  # what it checks
    return None if min_rating is None else float(min_rating)  # type: ignore[arg-type]  # what was checked


def _some_left(liked: npt.NDArray[Any]) -> None:
    if not len(liked):
        raise GraphError("min_rating is above every rating, so that all lists are empty; choose a lower one")


def positions(ids: npt.NDArray[Any], values: object, name: str) -> npt.NDArray[np.int64]:
    """Return the index of each value among the ids of a catalog.

    >>> positions(np.array(["b", "a"]), ["a", "b"], "items").tolist()
    [1, 0]
    """
    catalog = id_column(ids)
    known = KnownIds(catalog, "the catalog", "item_ids", catalog.type, True, *("remove them",) * 2)
    return match_ids(
        [References(as_column(name, values), name, f"table[{name!r}]", known, written=False)], "error"
    )[0][0]
