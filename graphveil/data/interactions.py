"""The user-item table: which items are on each user's list, stored as edges from users to items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil.core.edges.adjacency import MAX_NODES, EdgeSet
from graphveil.data.graph import Graph
from graphveil.data.tables.files import COMMAS, Column, CsvFormat, FrameSource, column, is_csv
from graphveil.data.tables.ids import KnownIds, References, id_array, keys, match_ids, read_ids
from graphveil.errors import GraphError

Unknown = Literal["error", "drop"]
Lists = sparse.csr_array  # one row per user, one column per item
_ADD_OR_DROP = "add them to the public list, or drop their rows (unknown_ids='drop')"
_ALIKE = "no row has a user and an item of the public lists: write the ids of both alike"
_LARGEST = 1e12  # rating
_RATINGS = ("rating", "edge_label", "edge_attr", "edge_weight")  # of a relation of torch_geometric
RATING_NAMES = ("rating", "ratings", "stars", "score", "rate", "vote", "grade", "overall", "review_score")
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
        sources, targets = as_column("users", users), as_column("items", items)
        if len(sources) != len(targets):
            raise GraphError(
                "users and items have different lengths. Pass one item for each user, row by row."
            )
        public = _occurring(sources) if user_ids is None else as_column("user_ids", user_ids)
        people = _known_ids("user_ids", public, "user_ids")
        catalog = _known_ids("item_ids", as_column("item_ids", item_ids), "item_ids")
        return cls.from_tables(
            References(sources, "users", "users", people, written=False),
            References(targets, "items", "items", catalog, written=False),
            item_features=item_features,
            ratings=None if ratings is None else as_column("ratings", ratings),
            min_rating=min_rating,
            unknown_ids=unknown_ids,
            edge_set=edge_set,
            notes=() if user_ids is not None else (USERS_OCCUR,),
        )

    @classmethod
    def from_tables(
        cls,
        users: References,
        items: References,
        *,
        item_features: object = None,
        ratings: Column | None,
        min_rating: float | None,
        unknown_ids: str,
        edge_set: EdgeSet | None = None,
        notes: tuple[str, ...] = (),
    ) -> Interactions:
        """Build a table from two Arrow columns of references to public ids.

        Args:
            users, items: In each row, a user and an item of that user.
            item_features: As for ``from_columns``, in the order of the public ids.
            ratings, min_rating: As for ``from_columns``.
            unknown_ids: ``"error"`` or ``"drop"``.
            edge_set: Identity of the table for its budget.
            notes: Notes on the table.

        Returns:
            The table.

        Raises:
            GraphError: If an id is unknown, no row is left, or the features do not match the items.

        Privacy:
            Reads: all columns, exactly. Charges: nothing. The result is private.
        """
        import pyarrow as pa

        checks.one_of(get_args(Unknown), unknown_ids=unknown_ids)
        ends = [users, items]
        liked = _liked(ratings, min_rating, len(users.values))
        if liked is not None:
            ends = [replace(end, values=end.values.filter(pa.array(liked))) for end in ends]
        (rows, columns), _ = match_ids(ends, unknown_ids)
        kept = (rows >= 0) & (columns >= 0)
        ids = id_array(users.known.ids), id_array(items.known.ids)
        return cls._build(rows[kept], columns[kept], *ids, edge_set, item_features, notes)

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
        people = np.arange(found.shape[0]) if user_ids is None else _ids("user_ids", user_ids)
        catalog = np.arange(found.shape[1]) if item_ids is None else _ids("item_ids", item_ids)
        for name, ids in (("user_ids", people), ("item_ids", catalog)):
            if not len(ids):
                raise GraphError(f"{name} is empty; the matrix needs at least one user and one item")
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
        types = list(getattr(data, "edge_types", None) or [])
        if len(types) != 1 or types[0][0] == types[0][2]:
            raise GraphError(
                "from_pyg needs a HeteroData with exactly one edge type, from users to items. Remove the "
                "other edge types, such as the reverse edges."
            )
        source, _, target = types[0]
        sizes = [data[kind].num_nodes for kind in (source, target)]
        ends = getattr(data[types[0]], "edge_index", None)
        if ends is None or None in sizes:
            raise GraphError(
                "The HeteroData has no edge_index or no num_nodes. Set edge_index, and "
                "data[type].num_nodes for users and items."
            )
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes):
            raise GraphError("num_nodes must be an integer for users and for items.")
        _check_sizes(sum(sizes))
        dense = isinstance(ends, torch.Tensor) and ends.layout == torch.strided
        ends = np.asarray(ends.detach().cpu() if dense else () if isinstance(ends, torch.Tensor) else ends)
        if ends.ndim != 2 or len(ends) != 2 or (ends.size and ends.dtype.kind not in "iu"):
            raise GraphError(
                "edge_index must be an integer array with two rows, the first for users and the second "
                "for items."
            )
        users, items = ends.astype(np.int64)
        people, catalog = (np.arange(size) for size in sizes)
        for ids, used in ((people, users), (catalog, items)):
            if len(used) and (used.min() < 0 or used.max() >= len(ids)):
                raise GraphError(
                    "edge_index contains an index that is too large for num_nodes. Correct edge_index or "
                    "num_nodes."
                )
        liked = _liked(_ratings_of(data[types[0]], min_rating), min_rating, len(users))
        if liked is not None:
            users, items = users[liked], items[liked]
        features = getattr(data[target], "x", None) if item_features else None
        if item_features and features is None:
            raise GraphError(
                f"item_features=True, but the items have no x. Set data[{target!r}].x to a matrix with one "
                "row per item, or remove item_features."
            )
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


def _check_sizes(count: int) -> None:
    if count > MAX_NODES:
        raise GraphError(f"users and items together must be at most {MAX_NODES:,}. Split the table.")


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
    _some_left(liked, given.data != 0)
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


def _known_ids(name: str, values: Column, code: str, *, written: bool = False) -> KnownIds:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(values):
        raise GraphError(f"{name} is empty. List all users and all items, including those without entries.")
    if values.null_count or pa.types.is_floating(values.type):
        how = "" if not pa.types.is_floating(values.type) else ".astype('int64')"
        raise GraphError(
            f"{name} has missing values or numbers with a decimal point; ids are whole numbers or text: "
            f"{code} = {code}.dropna(){how}"
        )
    ids = keys(values, name)
    if len(pc.unique(ids)) < len(ids):
        raise GraphError(f"{name} has an id twice; list every id once: {code} = {code}.drop_duplicates()")
    return KnownIds(ids, name, code, values.type, written, _ADD_OR_DROP, _ALIKE)


def known_ids(path: Path, name: str, csv_format: CsvFormat = COMMAS) -> KnownIds:
    values = column(read_ids(path, [name], csv_format=csv_format), name)
    return _known_ids(f"column {name!r} of {path.name}", values, f"table[{name!r}]", written=is_csv(path))


def _ids(name: str, values: object) -> npt.NDArray[Any]:
    return id_array(_known_ids(name, as_column(name, values), name).ids)


def _lowest(min_rating: object) -> float | None:
    min_rating = checks.plain(min_rating)
    if min_rating is not None:
        checks.within(-_LARGEST, _LARGEST, min_rating=min_rating)  # type: ignore[arg-type]  # what it checks
    return None if min_rating is None else float(min_rating)  # type: ignore[arg-type]  # what was checked


def _liked(ratings: Column | None, min_rating: float | None, rows: int) -> npt.NDArray[np.bool_] | None:
    """Return the rows with a rating of at least ``min_rating``; None for a table without ratings."""
    lowest = _lowest(min_rating)
    if ratings is None and lowest is None:
        return None
    if ratings is None or lowest is None:
        given, lacking = ("min_rating", "ratings") if ratings is None else ("ratings", "min_rating")
        raise GraphError(
            f"{given} needs {lacking}: rows with a rating below min_rating are dropped; give both or neither"
        )
    import pyarrow as pa

    try:
        values = ratings.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise GraphError(
            "ratings must be a column of numbers, one per row; convert it: pandas.to_numeric(ratings)"
        ) from None
    numbers = np.array(values.to_numpy(zero_copy_only=False), dtype=np.float64)
    if len(numbers) != rows:
        raise GraphError("ratings has not one number for each row; pass a column of the same frame as users")
    liked = numbers >= lowest  # no rating is no like
    _some_left(liked, np.ones(rows, dtype=bool))
    return liked


def _ratings_of(relation: Any, min_rating: float | None) -> Column | None:
    name = next((one for one in _RATINGS if getattr(relation, one, None) is not None), None)
    if name is None:
        return None
    ratings = torch.as_tensor(relation[name]).detach().cpu()
    if min_rating is None and bool((ratings == 1).all()):
        return None
    if min_rating is None:
        raise GraphError(
            f"the relation has {name!r}, and lists hold liked items only, without ratings. Name the lowest "
            f"rating that counts as a like, for example min_rating=4, or delete {name!r} from the relation."
        )
    return as_column("ratings", ratings.reshape(len(ratings), -1)[:, 0])


def _some_left(liked: npt.NDArray[np.bool_], given: npt.NDArray[np.bool_]) -> None:
    if given.any() and not liked.any():
        raise GraphError("min_rating is above every rating, so that all lists are empty; choose a lower one")


def positions(ids: npt.NDArray[Any], values: object, name: str) -> npt.NDArray[np.int64]:
    """Return the index of each value among the ids of a catalog.

    >>> positions(np.array(["b", "a"]), ["a", "b"], "items").tolist()
    [1, 0]
    """
    catalog = as_column("item_ids", ids)
    advice = ("remove them",) * 2
    known = KnownIds(keys(catalog, "item_ids"), "the catalog", "item_ids", catalog.type, True, *advice)
    return match_ids([References(as_column(name, values), name, name, known, written=False)], "error")[0][0]
