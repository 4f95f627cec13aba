"""The ends of edges as node indices: each edge is converted separately, so none affects another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.data.tables import files
from graphveil.data.tables.encoding import ADD, ERROR, matrix
from graphveil.data.tables.files import Column, TableSource
from graphveil.data.tables.ids import as_text, keys_like
from graphveil.errors import GraphError

NodePositions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Endpoints:
    """Each edge's two nodes by their places, its weight if it has one, and the ids of nodes to add."""

    tail: NodePositions
    head: NodePositions
    weight: npt.NDArray[np.float32] | None = None
    added: Column | None = None


@dataclass(frozen=True, eq=False)
class NodeIds:
    """The node ids, the name of their column, and its type before conversion.

    ``written`` marks ids from a CSV, which are text without a type.
    """

    ids: Column
    name: str
    type: Any
    written: bool

    @property
    def kind(self) -> str:
        """What the ids are, for messages."""
        import pyarrow as pa

        return "whole numbers" if pa.types.is_int64(self.ids.type) else "text"


def read_endpoints(
    given: TableSource, columns: list[str], nodes: NodeIds, unknown: str
) -> tuple[Endpoints, list[str], bool]:
    """Read a table of edges; return what is wrong with its ids, and whether dropping edges fixes it.

    With ``unknown="drop"`` an edge is dropped if one of its ends is not a node. This depends on the edge and
    on the list of nodes alone. The number of dropped edges is never reported.

    Args:
        given: The table.
        columns: Columns of the two ends, and of the weight if there is one.
        nodes: The node ids.
        unknown: ``"error"``, ``"drop"`` or ``"add"``.

    Raises:
        GraphError: The table cannot be read, its id type cannot match any node, or no edge is left.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = nodes.ids
    table = given.read(columns, dict(zip(columns, (ids.type, ids.type, pa.float64()), strict=False)))
    ends = [files.column(table, name) for name in columns[:2]]
    unlike = [_unlike(end, name, nodes, given) for name, end in zip(columns, ends, strict=False) if len(end)]
    if any(unlike):
        raise GraphError("; ".join(filter(None, unlike)))
    read = [
        keys_like(end, name, ids, each=True, written=given.written)
        for name, end in zip(columns, ends, strict=False)
    ]
    added = None
    if unknown == ADD:  # the ids at ends that no node has yet, in their order, each once
        every = pc.unique(pa.concat_arrays(read)).drop_null()
        new = every.filter(pc.invert(pc.is_in(every, value_set=ids)))
        added = new.take(pc.array_sort_indices(new))
    known = ids if added is None else pa.concat_arrays([ids, added])
    places = [
        np.asarray(pc.fill_null(pc.index_in(end, value_set=known), -1).to_numpy(zero_copy_only=False)).astype(
            np.int64
        )
        for end in read
    ]
    kept = (places[0] >= 0) & (places[1] >= 0)
    problems, dropping = list[str](), True
    if unknown == ERROR or (table.num_rows and not kept.any()):
        # Where no edge is left, a difference in writing is the likely reason, and nothing could be learned.
        for name, end, place in zip(columns, read, places, strict=False):
            words, mended = _problem(end, name, place, nodes, any_left=bool(kept.any()))
            problems += [words] if words else []
            dropping = dropping and mended
        dropping = dropping and bool(kept.any())
        if unknown != ERROR and problems:
            raise GraphError("; ".join(problems))
    weight = None
    if len(columns) > 2:  # weights of dropped edges are not looked at
        name = columns[2]
        values = files.column(table if kept.all() else table.filter(pa.array(kept)), name)
        if pa.types.is_large_string(values.type):
            try:
                values = pc.ascii_trim_whitespace(values).cast(pa.float64())
            except pa.ArrowInvalid:
                commas = given.written and files.decimal_commas(values)
                how = "add --decimal ','" if commas else "correct or drop it"
                raise GraphError(f"column {name!r} holds text that is not a number; {how}") from None
        if pa.types.is_nested(values.type):
            raise GraphError(f"column {name!r} is of type {values.type}; give one number per row")
        weight = matrix(pa.table({name: values}), [name])[:, 0]
    return Endpoints(places[0][kept], places[1][kept], weight, added), problems, dropping


def parts(names: list[str], columns: list[str]) -> list[tuple[str, str]]:
    """Return each column of the table with the part that it plays."""
    part = dict(zip(columns, ("source", "target", "weight"), strict=False))
    return [(name, part.get(name, "ignored")) for name in names]


def _problem(
    end: Column, name: str, places: NodePositions, nodes: NodeIds, *, any_left: bool
) -> tuple[str, bool]:
    """Return what is wrong with a column of ends, if anything, and whether dropping edges fixes it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unknown = places < 0
    if not unknown.any():
        return "", True
    strangers = pc.unique(end.filter(pa.array(unknown))).drop_null()
    difference = id_difference_hint(strangers, nodes.ids)
    if difference:
        return (
            f"column {name!r} of the edges holds ids that differ from those in column {nodes.name!r} of the "
            f"nodes only in {difference}; write the ids of both tables alike, for example "
            f"edges[{name!r}] = edges[{name!r}]{_FIXES[difference.partition(',')[0]]}",
            False,
        )
    if not any_left:
        return (
            f"column {name!r} of the edges holds ids that column {nodes.name!r} of the nodes ({nodes.kind}) "
            "lacks; add those nodes, or write the ids of both tables alike: no edge has both ends among the "
            "nodes. Check that --id, --source and --target name the right columns",
            False,
        )
    if end.null_count and not len(strangers):
        return f"column {name!r} has missing values; drop the rows that lack one (--unknown-ids drop)", True
    return (
        f"column {name!r} of the edges holds ids that column {nodes.name!r} of the nodes ({nodes.kind}) "
        "lacks; add those nodes (also nodes of a training graph, in a new graph) or drop those edges "
        "(--unknown-ids drop)",
        True,
    )


_BLANKS, _CASE = "blanks", "upper and lower case"
_NUMBERS = "how numbers are written (a sign, leading zeros, or a decimal point)"
_FIXES = {
    _BLANKS: ".str.strip()",
    _CASE: ".str.lower() and nodes alike",
    _NUMBERS.partition(",")[0]: ".astype(int) and nodes alike",
}


def id_difference_hint(strangers: Column, ids: Column) -> str:
    """Return in what alone some unknown ids differ from those of nodes; empty if that is not so.

    >>> import pyarrow as pa
    >>> id_difference_hint(pa.array(["ANN", "x"]), pa.array(["ann", "bob"]))
    'upper and lower case'
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(strangers) or pa.types.is_int64(ids.type):
        return ""
    steps = ((_BLANKS, pc.utf8_trim_whitespace), (_CASE, pc.utf8_lower), (_NUMBERS, _as_numbers))
    for name, step in steps:
        if pc.any(pc.is_in(step(strangers), value_set=step(ids))).as_py():
            return name
    first, second = (_as_numbers(pc.utf8_lower(pc.utf8_trim_whitespace(each))) for each in (strangers, ids))
    return f"{_BLANKS}, {_CASE}" if pc.any(pc.is_in(first, value_set=second)).as_py() else ""


def _as_numbers(texts: Column) -> Column:
    """Return integers as decimal text, other text unchanged."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(texts, r"^\+?0*([0-9]+?)(\.0*)?$", r"\1")


def _unlike(end: Column, name: str, nodes: NodeIds, given: TableSource) -> str:
    """Return that no value of a column can be an id, by the types of both tables alone."""
    import pyarrow as pa

    kind, types = end.type, pa.types
    if types.is_null(kind) or types.is_large_string(kind):
        return ""
    whole = types.is_integer(kind)
    if types.is_int64(nodes.ids.type) and whole:
        return ""
    if types.is_large_string(nodes.ids.type) and as_text(end.slice(0, 0)) is not None:
        numbers = types.is_integer(nodes.type) and whole
        if nodes.written or numbers or _family(kind) == _family(nodes.type) is not None:
            return ""
    to = "'int64'" if types.is_int64(nodes.ids.type) else "str"
    to = f"'int64').astype({to}" if types.is_floating(kind) and to == "str" else to
    return (
        f"column {name!r} of the edges is of type {kind} and column {nodes.name!r} of the nodes is "
        f"{nodes.kind}, so no edge has an end among the nodes; write both ids alike, for example "
        f"edges[{name!r}] = edges[{name!r}].astype({to})"
    )


def _family(kind: Any) -> str | None:
    """Return which types of ids are written alike as text."""
    import pyarrow as pa

    types = pa.types
    tests = (types.is_date, types.is_time, types.is_decimal, types.is_boolean, types.is_fixed_size_binary)
    return next((test.__name__ for test in tests if test(kind)), None)
