"""Ids, integers or text, and the ends of edges as node indices: each value is converted separately.

No value affects how another is read, so that one secret edge cannot change the others.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.data.tables import files
from graphveil.data.tables.encoding import matrix
from graphveil.data.tables.files import (
    AS_WRITTEN,
    MAX_ID_BYTES,
    Column,
    FixableError,
    Table,
    TableSource,
    column,
    column_names,
    too_long,
)
from graphveil.data.tables.options import ADD, DROP, ERROR
from graphveil.errors import GraphError


def distinct_ids(table: Table, name: str) -> Column:
    import pyarrow.compute as pc

    ids = keys(column(table, name), name)
    if len(pc.unique(ids)) < len(ids):
        raise GraphError(f"column {name!r} repeats ids. Keep one row per node.")
    return ids


def read_ids(source: TableSource, ids: Sequence[str], others: Sequence[str] = ()) -> Table:
    """Return columns of a table, those of ids as text if it is a CSV; each must have one role."""
    column_names(source, [*ids, *others])
    return source.read([*ids, *others], dict.fromkeys(ids, AS_WRITTEN))


def keys(array: Column, name: str) -> Column:
    """Return a column of ids as int64 or text, the two kinds that can be matched between files.

    Integers of up to 64 bits with a sign stay numbers. Larger ones, dates, times, decimals, bools and
    UUIDs become text.
    """
    import pyarrow as pa

    if array.null_count:
        raise GraphError(
            f"column {name!r} has missing values, but every row needs an id. Drop the rows without one."
        )
    if pa.types.is_null(array.type) or pa.types.is_integer(array.type):
        try:
            return array.cast(pa.int64())
        except pa.ArrowInvalid:  # of 64 bits without a sign
            return array.cast(pa.large_string())
    text = as_text(array)
    if text is None:
        change = f"table[{name!r}] = table[{name!r}].astype(str)"
        if pa.types.is_floating(array.type):
            change = f"table = table.dropna(subset=[{name!r}]).astype({{{name!r}: 'int64'}})"
        raise GraphError(
            f"column {name!r} is of type {array.type}; ids must be whole numbers or text. Convert it in both "
            f"tables alike, for example {change}"
        )
    if too_long(text):
        raise GraphError(
            f"column {name!r} contains an id of more than {MAX_ID_BYTES:,} bytes. Use shorter ids."
        )
    return text


def as_text(array: Column) -> Column | None:
    """Return ids as text, each value separately; None for a type without a unique text form.

    >>> import pyarrow as pa
    >>> as_text(pa.array([7, 12])).to_pylist(), as_text(pa.array([0.5]))
    (['7', '12'], None)
    """
    import pyarrow as pa

    kind, types = array.type, pa.types
    if types.is_large_string(kind):
        return array
    if types.is_fixed_size_binary(kind):
        texts = [None if one is None else str(uuid.UUID(bytes=one)) for one in array.to_pylist()]
        return pa.array(texts, pa.large_string())
    tests = (types.is_integer, types.is_decimal, types.is_boolean, types.is_date, types.is_time)
    if not any(test(kind) for test in tests):
        return None
    return array.cast(pa.date32() if types.is_date(kind) else kind).cast(pa.large_string())


def keys_like(array: Column, name: str, ids: Column, *, each: bool = False, written: bool = False) -> Column:
    """Convert a column of references to the type of the ids that they refer to; null where impossible.

    With ``each`` a missing or invalid value becomes null, for callers that drop such rows. ``written`` marks
    references from a CSV: surrounding blanks are significant only if some id has them.

    Each value is converted by itself, by the type of the ids alone. If the references determined the type,
    one secret edge could change how the others are read.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.null_count and not each:
        raise GraphError(f"column {name!r} has missing values; drop the rows that lack one")
    if not len(array):
        return pa.array([], ids.type)
    if pa.types.is_int64(ids.type):
        return _whole(array)
    text = as_text(array)
    if text is None:
        return pa.nulls(len(array), ids.type)
    return pc.utf8_trim_whitespace(text) if written and not has_blanks(ids) else text


def has_blanks(ids: Column) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(pc.not_equal(ids, pc.utf8_trim_whitespace(ids))).as_py())


def _whole(array: Column) -> Column:
    """Return integers as int64, null for an invalid value: no value affects another.

    Text is a whole number only as Python prints it: ``007`` is another id than ``7``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_large_string(array.type):
        trimmed = pc.ascii_trim_whitespace(array)
        digits = pc.ascii_ltrim(trimmed, "-")
        small = pc.or_(pc.less(pc.binary_length(digits), 19), pc.less_equal(digits, str(2**63 - 1)))
        whole = pc.and_(pc.match_substring_regex(trimmed, r"^(0|-?[1-9][0-9]{0,18})$"), small)
        array = pc.if_else(whole, trimmed, None)
    elif pa.types.is_uint64(array.type):
        array = pc.if_else(pc.less(array, pa.scalar(2**63, pa.uint64())), array, None)
    elif not pa.types.is_integer(array.type):
        return pa.nulls(len(array), pa.int64())
    return array.cast(pa.int64())


def id_array(ids: Column) -> npt.NDArray[Any]:
    """Return ids as an int64 array, or as text in an array of objects.

    NumPy's own text has one width for all, so that one long id would cost its length for every node, and it
    drops NULs at the end, which would make two ids one.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(ids.type):
        return np.asarray(ids.to_numpy(zero_copy_only=False))
    distinct = np.array(ids.dictionary.to_pylist(), dtype=object)
    texts: npt.NDArray[Any] = distinct[ids.indices.to_numpy(zero_copy_only=False)]
    return texts


def id_column(ids: npt.NDArray[Any]) -> Column:
    """Return ids in an array as a column: the inverse of ``id_array``."""
    import pyarrow as pa

    texts = ids.dtype == object or ids.dtype.kind == "U"
    return pa.array(ids.tolist(), pa.large_string()) if texts else pa.array(ids)


# -- references to known ids, such as the ends of edges ----
GRAPH_ADVICE = (
    "add those nodes (also nodes of a training graph, in a new graph) or drop those edges "
    "(--unknown-ids drop)",
    "add those nodes, or write the ids of both tables alike: no edge has both ends among the nodes. Check "
    "that --id, --source and --target name the right columns",
)
ROW_ADVICE = (
    "add them to the public list, or drop their rows (unknown_ids='drop')",
    "no row has ids of the public lists: write the ids of both tables alike",
)
NodePositions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Endpoints:
    """Edges as positions of their two nodes, with optional weights and the ids of nodes to add."""

    tail: NodePositions
    head: NodePositions
    weight: npt.NDArray[np.float32] | None = None
    added: Column | None = None


@dataclass(frozen=True, eq=False)
class KnownIds:
    """The ids that other columns refer to: their name in messages and as code, and type before conversion.

    ``written`` marks ids from a CSV, which are text without a type. ``advice`` is what to do about an unknown
    id, and ``none_left`` if every row has one.
    """

    ids: Column
    title: str
    code: str
    type: Any
    written: bool
    advice: str
    none_left: str

    @classmethod
    def read(cls, source: TableSource, name: str) -> KnownIds:
        """Read a public list of owners or of far ends of rows, each id once."""
        import pyarrow.compute as pc

        title, code = f"column {name!r} of {source.title}", f"table[{name!r}]"
        values = column(read_ids(source, [name]), name)
        ids = keys(values, name)
        if not len(ids):
            raise GraphError(f"{title} is empty. List all ids, including those without rows.")
        if len(pc.unique(ids)) < len(ids):
            raise GraphError(
                f"{title} has an id twice; list every id once: {code} = {code}.drop_duplicates()"
            )
        return cls(ids, title, code, values.type, source.written, *ROW_ADVICE)

    @property
    def kind(self) -> str:
        import pyarrow as pa

        return "whole numbers" if pa.types.is_int64(self.ids.type) else "text"


@dataclass(frozen=True, eq=False)
class References:
    """A column of references to known ids: its name in messages and as pandas code, and the ids.

    ``written`` marks references from a CSV.
    """

    values: Column
    title: str
    code: str
    known: KnownIds
    written: bool

    @classmethod
    def in_edges(cls, table: Table, name: str, nodes: KnownIds, *, written: bool) -> References:
        """Return one end of the edges of a table."""
        return cls(column(table, name), f"column {name!r} of the edges", f"edges[{name!r}]", nodes, written)

    def ids(self) -> Column:
        """Return the references as ids of the known type, null where impossible."""
        return keys_like(self.values, self.title, self.known.ids, each=True, written=self.written)

    def places(self, added: Column | None = None) -> tuple[Column, NodePositions]:
        """Return the references as ids, and their positions, -1 for unknown ones."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ids, read = self.known.ids, self.ids()
        known = ids if added is None else pa.concat_arrays([ids, added])
        found = pc.fill_null(pc.index_in(read, value_set=known), -1).to_numpy(zero_copy_only=False)
        return read, np.asarray(found).astype(np.int64)


def match_ids(ends: Sequence[References], unknown: str) -> tuple[list[NodePositions], Column | None]:
    places, problems, added = _matched(ends, unknown)
    if problems:
        raise GraphError("; ".join(map(str, problems)))
    return places, added


def reject_unlike(ends: Sequence[References]) -> None:
    """Raise an error if no value of a column can be a known id, by the types of both alone."""
    if any(unlike := [_unlike(end) for end in ends if len(end.values)]):
        raise GraphError("; ".join(filter(None, unlike)))


def _matched(
    ends: Sequence[References], unknown: str
) -> tuple[list[NodePositions], list[GraphError], Column | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    reject_unlike(ends)
    added = None
    if unknown == ADD:  # the ids at ends that no node has yet, in their order, each once
        every = pc.unique(pa.concat_arrays([end.places()[0] for end in ends])).drop_null()
        new = every.filter(pc.invert(pc.is_in(every, value_set=ends[0].known.ids)))
        added = new.take(pc.array_sort_indices(new))
    found = [end.places(added) for end in ends]
    places = [place for _, place in found]
    kept = np.logical_and.reduce([place >= 0 for place in places])
    problems = list[GraphError]()
    if unknown == ERROR or (len(kept) and not kept.any()):
        # Where no row is left, a difference in writing is the likely reason, and nothing could be learned.
        # Ids of another kind: one column is known as a whole, and the other is not.
        whole = sum(bool((place >= 0).all()) for place in places)
        alone = whole == 1 and len(ends) == 2 and ends[0].known is ends[1].known
        for end, (read, place) in zip(ends, found, strict=True):
            if (place < 0).any():
                problems.append(_problem(end, read, place, any_left=bool(kept.any()), alone=alone))
        if not problems and not kept.any() and len(kept):  # each row lacks one of its ids, but no column all
            problems = [GraphError(f"no row has known ids in both columns; {ends[0].known.none_left}")]
        if unknown != ERROR and problems:
            raise GraphError("; ".join(map(str, problems)))
    return places, problems, added


def read_endpoints(
    given: TableSource, columns: list[str], nodes: KnownIds, unknown: str
) -> tuple[Endpoints, list[GraphError]]:
    """Read a table of edges; return also what is wrong with its ids.

    With ``unknown="drop"`` an edge is dropped if one of its ends is not a node. This depends on the edge and
    on the list of nodes alone. The number of dropped edges is never reported.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table = given.read(columns, dict(zip(columns, (AS_WRITTEN, AS_WRITTEN, pa.float64()), strict=False)))
    ends = [References.in_edges(table, name, nodes, written=given.written) for name in columns[:2]]
    places, problems, added = _matched(ends, unknown)
    kept = (places[0] >= 0) & (places[1] >= 0)
    weight = None
    if len(columns) > 2:  # weights of dropped edges are not looked at
        name = columns[2]
        values = column(table if kept.all() else table.filter(pa.array(kept)), name)
        if pa.types.is_large_string(values.type):
            try:
                values = pc.ascii_trim_whitespace(values).cast(pa.float64())
            except pa.ArrowInvalid:
                commas = given.written and files.decimal_commas(values)
                how = "add --decimal ','" if commas else "correct or drop it"
                raise GraphError(f"column {name!r} holds text that is not a number; {how}") from None
        if pa.types.is_nested(values.type):
            raise GraphError(
                f"column {name!r} is of type {values.type}, but it must contain one number per row."
            )
        weight = matrix(pa.table({name: values}), [name])[:, 0]
    return Endpoints(places[0][kept], places[1][kept], weight, added), problems


RATING_NAMES = ("rating", "ratings", "stars", "score", "rate", "vote", "grade", "overall", "review_score")
_WEIGHTS = {
    *("weight", "weights", "edge_weight", "edgeweight", "w", "wt", "strength", "trust", "sign"),
    *RATING_NAMES[:3],
}


def reject_weights(names: Sequence[str], what: str, dropped: Sequence[str]) -> None:
    """Reject edges with a weight that would be ignored: a low or negative one would count like any other.

    >>> reject_weights(["since", "weight"], "column", ["weight"])
    """
    found = next((name for name in names if name.lower() in _WEIGHTS and name not in dropped), None)
    if found is not None:
        raise FixableError(
            f"{what} {found!r} of the edges would be ignored, and all edges would count alike. Use it with "
            f"weight={found!r} and max_weight=, a public bound (--weight {found} --max-weight BOUND), or "
            f"ignore it with drop={found!r} (--drop {found})",
            drop=found,
        )


_PARTS_OF_NAMES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ID_WORDS = re.compile(
    "ids?|key|uid|uuid|guid|no|nr|num|number|code|idx|index|nodes?|vert(ex|ices)|data|table|list|csv|parquet|"
    "gz|pq|name"
)
_ONE_KIND = re.compile(  # words for an end of an edge between nodes of one kind
    "[a-z]|from|to|src|dst|source|target|dest|head|tail|destination|origin|start|end|first|second|one|two|left|"
    "right|other|friend|follow(er|ee|ed|ing)?|neighbou?r|contact|partner|peer|colleague|coworker|manager|boss|"
    "supervisor|parent|child|spouse|mother|father|sibling|referr(er|ed|al)|sender|receiver|recipient|"
    "call(er|ee|ed)|pay(er|ee)|buyer|seller|trust(or|ee|er)|rate[rd]|ratee|citing|cited|reference|link(ed)?|"
    "related|similar|reply|replied|mention(ed)?|(co)?author|giver|taker|lender|borrower|donor|counterpart(y)?|"
    "connect(ion|ed)|near|upstream|downstream|invite[rde]|invitee|beneficiary|originator|mate|pair"
)
_THINGS = re.compile(  # words for items of a list
    "item|movie|film|product|book|song|track|album|artist|game|video|article|sku|isbn|asin|iid|business|"
    "restaurant|recipe|course|app|show|episode|anime|beer|hotel|playlist|podcast|merchant|shop|store|event"
)


def _words(name: str) -> frozenset[str]:
    """Return the words of a column or file name without those for an id, in the singular.

    >>> sorted(_words("userId")), sorted(_words("movies.csv")), sorted(_words("MOVIE_ID"))
    (['user'], ['movie'], ['movie'])
    """
    words = [word.lower() for word in _PARTS_OF_NAMES.findall(name)]
    single = [w[:-1] if w.endswith("s") and not w.endswith("ss") and len(w) > 3 else w for w in words]
    return frozenset(word for word in single if not _ID_WORDS.fullmatch(word))


def end_of_another_kind(id: str, title: str, source: str, target: str) -> str | None:
    """Return the end of the edges that, by its column name, does not refer to nodes.

    Users and films are both numbered from 1, so that numbers of films would be read as numbers of users.

    >>> end_of_another_kind("user_id", "users.csv", "user_id", "friend_id")
    >>> end_of_another_kind("id", "users.csv", "user_id", "movie_id")
    'movie_id'
    """
    own = _words(id) or _words(title)
    ends = {name: _words(name) for name in (source, target)}
    first, second = ends.values() if len(ends) == 2 else (frozenset(), frozenset())
    if not first or not second or first & second:
        return None
    things = [name for name, words in ends.items() if any(map(_THINGS.fullmatch, words - own))]
    if len(things) == 1:
        (rest,) = (words for name, words in ends.items() if name != things[0])
        return None if not own and any(map(_ONE_KIND.fullmatch, rest)) else things[0]
    others = [name for name, words in ends.items() if not words & own]
    if len(others) != 1 or any(map(_ONE_KIND.fullmatch, ends[others[0]])):
        return None
    return others[0]


def reject_two_kinds(id: str, title: str, source: str, target: str) -> None:
    other = end_of_another_kind(id, title, source, target)
    if other is not None:
        raise GraphError(
            f"columns {source!r} and {target!r} of the edges hold ids of two kinds, and both would be read "
            "as nodes. Train on several tables (gv.Tables, --persons and --rows), or a recommender on lists "
            f"of items (gv.Recommender). If {other!r} does name nodes, rename the column to 'target'"
        )


def _problem(
    end: References, read: Column, places: NodePositions, *, any_left: bool, alone: bool
) -> GraphError:
    """Return what is wrong with a column of ends that has unknown ids.

    ``alone`` says that every other column is known: the ids may then be of another kind, such as items.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    nodes = end.known
    text = as_text(end.values) if pa.types.is_int64(nodes.ids.type) else read
    strangers = pc.unique((read if text is None else text).filter(pa.array(places < 0))).drop_null()
    difference = id_difference_hint(strangers, nodes.ids)
    if difference:
        same = "" if pa.types.is_int64(nodes.ids.type) else f", and {nodes.code} in the same way"
        return GraphError(
            f"{end.title} holds ids that differ from those in {nodes.title} only in {difference}; write "
            f"both alike: {end.code} = {end.code}{_FIXES[difference.partition(',')[0]]}{same}"
        )
    lacking = f"{end.title} holds ids that {nodes.title} ({nodes.kind}) lacks"
    items = ITEMS_HINT if alone and 4 * len(strangers) > len(pc.unique(read)) else ""
    if not any_left:
        return GraphError(f"{lacking}; {nodes.none_left}{items}")
    words = f"{lacking}; {nodes.advice}{items}"
    if read.null_count and not len(strangers):
        words = f"{end.title} has missing values; drop the rows without one (--unknown-ids drop)"
    return FixableError(words, unknown_ids=DROP)


ITEMS_HINT = (
    ". If they are items and not nodes, train on several tables (gv.Tables, --persons and --rows), or a "
    "recommender (gv.Recommender)"
)
_BLANKS, _CASE = "blanks", "upper and lower case"
_NUMBERS = "how numbers are written (a sign, leading zeros, or a decimal point)"
_FIXES = {
    _BLANKS: ".str.strip()",
    _CASE: ".str.lower()",
    _NUMBERS.partition(",")[0]: r".str.replace(r'^\+?0*(\d+?)(\.0*)?$', r'\1', regex=True)",
}


def id_difference_hint(strangers: Column, ids: Column) -> str:
    """Return how unknown ids differ from node ids, such as in case only; empty if there is no such rule.

    >>> import pyarrow as pa
    >>> id_difference_hint(pa.array(["ANN", "x"]), pa.array(["ann", "bob"]))
    'upper and lower case'
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(strangers) or pa.types.is_int64(strangers.type):
        return ""
    ids = ids.cast(strangers.type)
    steps = ((_BLANKS, pc.utf8_trim_whitespace), (_CASE, pc.utf8_lower), (_NUMBERS, _as_numbers))
    for name, step in steps:
        if pc.any(pc.is_in(step(strangers), value_set=step(ids))).as_py():
            return name
    first, second = (_as_numbers(pc.utf8_lower(pc.utf8_trim_whitespace(each))) for each in (strangers, ids))
    return f"{_BLANKS}, {_CASE}" if pc.any(pc.is_in(first, value_set=second)).as_py() else ""


def _as_numbers(texts: Column) -> Column:
    import pyarrow.compute as pc

    return pc.replace_substring_regex(texts, r"^\+?0*([0-9]+?)(\.0*)?$", r"\1")


def _unlike(end: References) -> str:
    """Return that no value of a column can be an id, by the types of both tables alone."""
    import pyarrow as pa

    kind, types, nodes = end.values.type, pa.types, end.known
    if types.is_null(kind) or types.is_large_string(kind):
        return ""
    whole, numbers = types.is_integer(kind), types.is_int64(nodes.ids.type)
    if numbers and whole:
        return ""
    if not numbers and as_text(end.values.slice(0, 0)) is not None:
        both = types.is_integer(nodes.type) and whole
        if nodes.written or both or _family(kind) == _family(nodes.type) is not None:
            return ""
    if types.is_floating(kind):
        how = _from_floats(end, numbers)
    elif numbers:
        how = f"write both ids alike: {nodes.code} = {nodes.code}.astype(str), and {end.code} in the same way"
    else:
        how = f"write both ids alike: {end.code} = {end.code}.astype(str)"
    return f"{end.title} is of type {kind} and {nodes.title} is {nodes.kind}, so no row matches; {how}"


def _from_floats(end: References, numbers: bool) -> str:
    """Return pandas code that makes ids of floats, which one missing value makes of whole numbers."""
    frame, _, rest = end.code.partition("[")
    name = rest.rstrip("]")
    convert = f"{frame} = {frame}.dropna(subset=[{name}]).astype({{{name}: 'int64'}})"
    text = "" if numbers else f".astype({{{name}: str}})"
    return f"drop the rows without one, and convert it: {convert}{text}"


def _family(kind: Any) -> str | None:
    import pyarrow as pa

    types = pa.types
    tests = (types.is_date, types.is_time, types.is_decimal, types.is_boolean, types.is_fixed_size_binary)
    return next((test.__name__ for test in tests if test(kind)), None)
