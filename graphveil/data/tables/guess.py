"""Which columns are ids and ends of edges, where nobody said: by their names, and by what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphveil.data.tables import files
from graphveil.data.tables.features import is_index
from graphveil.data.tables.files import Column
from graphveil.data.tables.inspect_tables import Roles
from graphveil.data.tables.roles import distinct_ids
from graphveil.data.tables.table_source import TableSource
from graphveil.errors import GraphError

_IDS = ("id", "node", "node_id", "user", "user_id", "uid", "key", "name")
_ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("a", "b"),
    ("u", "v"),
    ("head", "tail"),
    ("sender", "receiver"),
)
_LABELS = ("label", "class", "target", "y", "segment", "category")
_SPLITS = ("split", "fold")


def guess_roles(
    nodes: TableSource, edges: TableSource, named: Mapping[str, str | None]
) -> tuple[Roles, list[str]]:
    """Return the roles that were named, and guesses for the others, which are said as ``role = column``.

    Raises:
        GraphError: a table cannot be read, or has too few columns to be one.
    """
    names, ends = nodes.names(), edges.names()
    given = {role: name for role, name in named.items() if name is not None}
    found = dict(given)
    if "id" not in found:
        found["id"] = _id_of(
            nodes, names, [name for role, name in given.items() if role in ("label", "split")]
        )
    if "source" not in found or "target" not in found:
        pair = _ends_of(edges.title, ends, [name for role, name in given.items() if role == "weight"])
        found = {"source": pair[0], "target": pair[1]} | found
    free = [name for name in names if name not in found.values()]
    for role, words in (("label", _LABELS), ("split", _SPLITS)):
        guess = _called(words, free)
        if role not in found and guess is not None:
            found[role] = guess
    roles = Roles(**found)  # type: ignore[arg-type]
    return roles, [f"{role} = {found[role]}" for role in found if role not in given]


def _id_of(nodes: TableSource, names: Sequence[str], taken: Sequence[str]) -> str:
    """Return the column that is called like ids, or else the first whose values are distinct."""
    free = [name for name in names if name not in taken and not is_index(name)]
    called = _called(_IDS, free)
    types = {called: files.AS_WRITTEN} if nodes.written and called is not None else {}
    table = nodes.read(free, types, ("",))
    order = [called, *free] if called is not None else free
    for name in order:
        if _distinct(files.column(table, name), name):
            return name
    if called is not None:
        distinct_ids(table, called)  # which says what is wrong with it
    raise GraphError(f"{nodes.title} has no column of distinct ids; name the ids with --id")


def _distinct(column: Column, name: str) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (pa.types.is_integer(column.type) or pa.types.is_large_string(column.type)):
        return False
    try:
        return len(pc.unique(files.keys(column, name))) == len(column)
    except GraphError:
        return False


def _ends_of(title: str, names: Sequence[str], taken: Sequence[str]) -> tuple[str, str]:
    free = [name for name in names if name not in taken]
    for first, second in _ENDS:
        pair = _called((first,), free), _called((second,), free)
        if pair[0] is not None and pair[1] is not None:
            return pair[0], pair[1]
    if len(free) < 2:
        how = files.commas(title, names) or "name its ends with --source, --target"
        raise GraphError(f"the table of edges has fewer than two columns; {how}")
    return free[0], free[1]


def _called(words: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first name that is one of the words, in their order, whatever its case."""
    lower = {name.lower().strip(): name for name in reversed(names)}
    return next((lower[word] for word in words if word in lower), None)
