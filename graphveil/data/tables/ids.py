"""Columns of ids: integers or text, matched between tables, each value converted separately."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.data.tables.files import AS_WRITTEN, Column, Table, column, is_csv
from graphveil.errors import GraphError


def distinct_ids(table: Table, name: str) -> Column:
    """Return a column of ids, none of which may occur twice."""
    import pyarrow.compute as pc

    ids = keys(column(table, name), name)
    if len(pc.unique(ids)) < len(ids):
        raise GraphError(f"column {name!r} repeats ids. Keep one row per node.")
    return ids


MAX_ID_BYTES = 1000


def id_types(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return column types that keep ids of a CSV as text; none for parquet, which has types."""
    return dict.fromkeys(names, AS_WRITTEN) if is_csv(path) else {}


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
    """Whether an id begins or ends with a blank."""
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


def too_long(ids: Column) -> bool:
    """Whether one of the texts is longer than an id may be."""
    import pyarrow.compute as pc

    return (pc.max(pc.binary_length(ids)).as_py() or 0) > MAX_ID_BYTES


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
