"""Columns as features, by a frozen rule for each, and as labels, each value by itself; parts of a split."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from graphveil._util.process import check_room
from graphveil.data.tables import files
from graphveil.data.tables.files import NULL_VALUES, Column, Table, too_long
from graphveil.errors import ArtifactError, GraphError

Kind = Literal["number", "list", "bool", "date", "duration", "category", "constant"]
Matrix = npt.NDArray[np.float32]

EPOCH_DAYS = 10957  # 2000-01-01
_YEAR_DAYS = 365.25
_MICROSECONDS_A_DAY = 86_400e6
_NAN_WORDS = "holds NaN, infinite or larger than float32 values; fill or drop them"


@dataclass(frozen=True, kw_only=True)
class ColumnRule:
    """One column of a table of nodes, and its encoding.

    Numbers stay as they are, bools become 0 and 1, a list becomes as many columns as it is long. A date
    becomes years since 2000-01-01 (UTC, 365.25 days), a duration days. A category becomes one column for each
    value, or for each hash bucket; a value that is unlisted or missing is 0 in all of them. A constant is not
    a column of the table: it is 1 for every node, if no column is a feature.

    Args:
        fill: Replacement of a missing value, one number per column; with None a missing value is an error.
        fitted: Whether values or fill were read from the table.
    """

    name: str
    kind: Kind
    width: int = 1
    values: tuple[str, ...] | None = None
    places: int | None = None
    fill: tuple[float, ...] | None = None
    indicator: bool = False
    fitted: bool = False

    @property
    def columns(self) -> int:
        own = self.width if self.kind != "category" else self.places or len(self.values or ())
        return own + self.indicator

    def __str__(self) -> str:
        """Return a rule of categories as an option names it."""
        if self.places is not None:
            return f"{self.name}=hash:{self.places}"
        return self.name if self.values is None else f"{self.name}={'|'.join(self.values)}"

    def words(self) -> str:
        """Return what the column becomes, for plans; no value of it."""
        how = {
            "number": "a number",
            "list": f"{self.width} number{'s' * (self.width != 1)}",
            "bool": "0 or 1",
            "date": "years since 2000",
            "duration": "days",
            "constant": "1 for every node, since no column is a feature",
            "category": f"{self.places} hashed places"
            if self.places
            else f"{len(self.values or ())} {'category' if len(self.values or ()) == 1 else 'categories'}",
        }[self.kind]
        if self.kind in ("category", "constant"):
            return how + (" (as in the table)" if self.fitted else "")
        if self.indicator:
            return f"{how}, and whether it is missing"
        if self.fitted:
            return f"{how}, missing ones the median"
        return how if self.fill is None else f"{how}, missing ones {self.fill[0]:g}"

    def write(self, column: Column, out: Matrix) -> None:
        import pyarrow as pa

        missing = missing_in(column)
        if self.kind == "category":
            out[:] = 0
            found = self._places_of(column)
            known = np.flatnonzero(found >= 0)
            out[known, found[known]] = 1
            return
        if missing.any() and self.fill is None:
            raise GraphError(missing_words(column, self.name))
        numbers = as_numbers(column.filter(pa.array(~missing)) if missing.any() else column, self.name)
        if numbers.shape[1] != self.width:
            raise GraphError(
                f"column {self.name!r} contains lists of {numbers.shape[1]} numbers, but the model was "
                f"trained on lists of {self.width}. Give every row that many."
            )
        own = out[:, : self.width]
        own[~missing] = finite(numbers, self.name)
        own[missing] = 0 if self.fill is None else np.array(self.fill, dtype=np.float32)
        if self.indicator:
            out[:, -1] = missing

    def _places_of(self, column: Column) -> npt.NDArray[np.int64]:
        """Return the feature column of each row's category, -1 for none."""
        distinct, names = distinct_texts(column)
        if self.places is None:
            order = {value: place for place, value in enumerate(self.values or ())}
            places = [order.get(name, order.get(name.strip(), -1)) for name in names]
        else:
            # The place of a value, which nothing but its text decides.
            texts = (name.encode("utf-8", "surrogatepass") for name in names)
            hashed = (hashlib.blake2b(one, digest_size=8).digest() for one in texts)
            places = [int.from_bytes(digest, "little") % self.places for digest in hashed]
        return places_in(column, distinct, places)


_STORED = ("rules", "null_values", "delimiter", "decimal")  # of an encoding, to read another table alike
CONSTANT_FEATURE = ColumnRule(name="(constant)", kind="constant", fill=(1.0,))
NO_FEATURES = (
    "No feature columns: every node gets one constant feature, 1. Accuracy then comes from the edges only, "
    "and a model that reads no edges, such as the no-graph baseline, predicts the most frequent class."
)


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Encoding of a table of nodes as features, column by column.

    Args:
        nodes_from_edges: Whether nodes were added because an edge names them, which makes their number depend
            on the edges.

    >>> Encoding(rules=(ColumnRule(name="age", kind="number"),)).words()
    'age'
    """

    rules: tuple[ColumnRule, ...]
    ignored_nodes: tuple[str, ...] = ()
    ignored_edges: tuple[str, ...] = ()
    unknown_ids: str = "error"
    nodes_from_edges: bool = False
    null_values: tuple[str, ...] | None = None
    delimiter: str | None = None
    decimal: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return (NO_FEATURES,) if self.constant else ()

    @property
    def constant(self) -> bool:
        return self.rules == (CONSTANT_FEATURE,)

    @property
    def fitted(self) -> tuple[str, ...]:
        """The columns with encoding rules that were computed from all records of the table."""
        return tuple(rule.name for rule in self.rules if rule.fitted)

    def words(self, most: int = 12) -> str:
        if self.constant:
            return f"none: {CONSTANT_FEATURE.words()}"
        plain = ("a number", "0 or 1")
        phrases = [
            rule.name if (how := rule.words()) in plain else f"{rule.name} ({how})" for rule in self.rules
        ]
        more = f", and {len(phrases) - most:,} more" if len(phrases) > most else ""
        return ", ".join(phrases[:most]) + more

    def as_plain(self) -> dict[str, Any]:
        """Return the encoding rules as plain values, for use on another table (``from_plain``)."""
        plain = asdict(self)
        stored = {name: plain[name] for name in _STORED}
        lists = {name: list(value) for name, value in stored.items() if isinstance(value, tuple)}
        return {"format": "graphveil-columns", **stored, **lists}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        from pydantic import TypeAdapter

        try:
            stored = {name: plain[name] for name in _STORED if name in plain}
            return TypeAdapter(cls).validate_python(stored)
        except (TypeError, ValueError):
            raise ArtifactError(
                "The column rules stored with the run are damaged. Name the columns with options."
            ) from None


def encode(columns: Iterable[Column], rules: tuple[ColumnRule, ...], rows: int) -> Matrix:
    """Return the features of a table, its columns in the order of the rules.

    Raises:
        GraphError: Features that take more memory than is free, or a value that cannot be read.
    """
    width = sum(rule.columns for rule in rules)
    check_room(
        4.0 * rows * width,
        f"{width:,} columns of features for {rows:,} nodes",
        "leave columns out (--drop), or hash categories into fewer places (--categories NAME=hash:32)",
    )
    out = np.empty((rows, width), dtype=np.float32)
    start = 0
    for rule, column in zip(rules, columns, strict=True):
        rule.write(column, out[:, start : start + rule.columns])
        start += rule.columns
    return out


def matrix(table: Table, names: Sequence[str]) -> Matrix:
    """Return columns of numbers side by side, float32 (rows, columns); a column of lists gives several.

    Unlike ``encode`` this has no rules: dates, text and missing values are errors.
    """
    import pyarrow as pa

    parts = []
    for name in names:
        column = files.column(table, name)
        kind = column.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            kind = kind.value_type
        if pa.types.is_null(kind) or kind_of(kind) not in ("number", "bool"):
            raise GraphError(
                f"column {name!r} is of type {column.type}, not a number. Drop it, or encode it as "
                "numbers (one 0/1 column per category)."
            )
        if column.null_count:
            raise GraphError(missing_words(column, name))
        parts.append(finite(as_numbers(column, name), name))
    return np.concatenate(parts, axis=1)


def kind_of(kind: Any) -> Kind | None:
    import pyarrow as pa

    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list" if kind_of(kind.value_type) in ("number", "bool") else None
    if types.is_boolean(kind):
        return "bool"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "date"
    if types.is_duration(kind):
        return "duration"
    numbers = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return "number" if any(test(kind) for test in numbers) else None


def missing_in(column: Column) -> npt.NDArray[np.bool_]:
    """Return where a value is missing; NaN is how frames write that in a column of numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    empty = pc.is_null(column, nan_is_null=pa.types.is_floating(kind))
    return np.asarray(empty.to_numpy(zero_copy_only=False))


def distinct_texts(column: Column) -> tuple[list[Any], list[str]]:
    """Return the distinct values of a column, and each as text: these alone go through Python."""
    import pyarrow.compute as pc

    distinct = pc.unique(column).drop_null().to_pylist()
    return distinct, [text(value) for value in distinct]


def places_in(column: Column, distinct: Sequence[Any], places: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the place of each row by its value, -1 for a missing value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.index_in(column, value_set=pa.array(distinct, type=column.type))
    found = pc.fill_null(found, len(places)).to_numpy(zero_copy_only=False)
    looked_up: npt.NDArray[np.int64] = np.array([*places, -1], dtype=np.int64)[found]
    return looked_up


def missing_words(column: Column, name: str) -> str:
    nulls = column.null_count
    how = "has missing values; fill them, or drop the column or the rows" if nulls else _NAN_WORDS
    return f"column {name!r} {how}"


def as_numbers(column: Column, name: str) -> npt.NDArray[Any]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, name)
    try:
        if pa.types.is_date(kind):
            whole = column.cast(pa.date32()).cast(pa.int32()).to_numpy(zero_copy_only=False)
            days = np.asarray(whole, dtype=np.float64)
            return ((days - EPOCH_DAYS) / _YEAR_DAYS).reshape(-1, 1)
        if pa.types.is_timestamp(kind):
            days = _microseconds(column, pa.timestamp("us", tz=kind.tz)) / _MICROSECONDS_A_DAY
            return ((days - EPOCH_DAYS) / _YEAR_DAYS).reshape(-1, 1)
        if pa.types.is_duration(kind):
            return (_microseconds(column, pa.duration("us")) / _MICROSECONDS_A_DAY).reshape(-1, 1)
        if pa.types.is_boolean(kind) or pa.types.is_null(kind):
            column = column.cast(pa.uint8())
        elif pa.types.is_decimal(kind) or pa.types.is_large_string(kind):
            column = column.cast(pa.float64())
    except pa.ArrowInvalid:
        raise GraphError(
            f"column {name!r} contains values that are neither numbers nor dates. Correct them, or "
            "drop the column."
        ) from None
    return np.asarray(column.to_numpy(zero_copy_only=False)).reshape(-1, 1)


def finite(numbers: npt.NDArray[Any], name: str) -> Matrix:
    """Return numbers as float32, all of them finite."""
    with np.errstate(over="ignore"):  # an overflow becomes infinite, which is rejected next
        narrow = numbers.astype(np.float32, copy=False)
    if not np.isfinite(narrow).all():
        raise GraphError(f"column {name!r} {_NAN_WORDS}")
    return narrow


def _microseconds(column: Column, kind: Any) -> npt.NDArray[np.float64]:
    import pyarrow as pa

    return np.asarray(column.cast(kind, safe=False).cast(pa.int64()).to_numpy(), dtype=np.float64)


def _lists(column: Column, name: str) -> npt.NDArray[Any]:
    import pyarrow.compute as pc

    widths = pc.unique(pc.list_value_length(column).drop_null())
    if len(widths) > 1:
        raise GraphError(
            f"column {name!r} contains lists of different lengths. Give every row the same number of values."
        )
    if len(widths) == 0 or widths[0].as_py() == 0:
        raise GraphError(f"column {name!r} contains only lists without numbers. Drop it (--drop).")
    flat = column.flatten()
    if flat.null_count:
        raise GraphError(missing_words(flat, name))
    return as_numbers(flat, name).reshape(len(column), -1)


# -- labels ----

UNLABELED = -1
CLASSES_FROM_LABELS = (
    "the list of classes was read from the labels and is treated as public: a class of one node alone shows "
    "that a node has its label, which classes named beforehand would not"
)

SEVERAL_LABELS = (
    "For several labels per node, keep one class per node as y and pass a 0/1 matrix as label_sets=, for "
    "example y=labels.argmax(1), label_sets=labels."
)
Task = Literal["classification", "regression"]
TASKS: tuple[Task, ...] = get_args(Task)
REGRESSION: Task = "regression"
_MAX_WHOLE, _MAX_FRACTIONS = 100, 20  # distinct numbers of a label column that may be classes

_WHOLE = re.compile(r"\s*([+-]?\d+)(?:\.0*)?\s*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")


def class_codes(
    table: Table, name: str | None, classes: Sequence[str] | None, null_values: Sequence[str] = NULL_VALUES
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the class of every node, -1 if it has none, and the class names.

    Labels outside ``classes``, if these are given, are like missing ones. Text among ``null_values`` is a
    missing label, unless ``classes`` names it.
    """
    import pyarrow as pa

    listed = tuple(dict.fromkeys(map(str, () if classes is None else classes)))
    if name is None:
        return np.full(table.num_rows, UNLABELED), listed
    words = [word for word in null_values if word not in listed]
    column = files.without_words(_labels(files.column(table, name), name), words)
    if classes is None and pa.types.is_large_string(column.type) and too_long(column):
        raise GraphError(
            f"column {name!r} contains a label of more than 1,000 bytes. Check that it is the label column."
        )
    distinct, names = distinct_texts(column)
    numbers = [name for name in dict.fromkeys(names) if name.strip().lower() != "nan"]
    if classes is not None:
        order = list(listed)
    elif all(_NUMBER.fullmatch(name) for name in numbers):
        order = sorted(numbers, key=lambda name: (Decimal(name), name))
    else:
        order = sorted(set(names))
    place = {name: number for number, name in enumerate(order)}
    if len(order) < 2:
        raise GraphError(
            f"column {name!r} has labels of fewer than two classes, so no classifier can be trained. "
            "Name another column (--label), or list all classes (--classes)."
        )
    places = [place.get(name, UNLABELED) for name in names]
    return places_in(column, distinct, places), tuple(order)


def reject_numeric(name: str | None, names: Sequence[str]) -> None:
    """Reject a label column of numbers that look like a quantity, such as an age, and not like classes.

    >>> reject_numeric("age", [str(year) for year in range(100)])
    >>> reject_numeric("price", [f"{cents}.5" for cents in range(21)])
    Traceback (most recent call last):
    graphveil.errors.GraphError: column 'price' has more than 20 different numbers, ...
    """
    if not all(_NUMBER.fullmatch(one) for one in names):
        return
    most = _MAX_WHOLE if all(_WHOLE.fullmatch(one) for one in names) else _MAX_FRACTIONS
    if len(names) > most:
        raise GraphError(
            f"column {name!r} has more than {most} different numbers, and each would be a class. To "
            "predict the number, set task='regression' (--task regression). If they are class "
            "numbers, set task='classification' (--task classification)."
        )


def numeric_targets(
    table: Table, name: str | None, null_values: Sequence[str], decimal: str
) -> npt.NDArray[np.float64]:
    """Return the number of every node, NaN if it has none. Text has this decimal separator."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name is None:
        return np.full(table.num_rows, np.nan)
    column = files.without_words(_labels(files.column(table, name), name), null_values)
    try:
        if pa.types.is_large_string(column.type):
            column = pc.utf8_trim_whitespace(column)
            column = pc.replace_substring(column, decimal, ".")
        numbers = np.array(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise GraphError(
            f"column {name!r} does not have a number in every row, but task='regression' needs one. "
            "Name a numeric column (--label), or remove the task to predict classes."
        ) from None
    if np.isinf(numbers).any():
        raise GraphError(f"column {name!r} contains infinite numbers. Leave these fields empty.")
    return numbers


def _labels(column: Column, name: str) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_date(kind):
        return column.cast(pa.large_string())
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(column), None, column)
    tests = (pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
    if not (pa.types.is_null(kind) or any(test(kind) for test in tests)):
        raise GraphError(
            f"column {name!r} is of type {str(kind).partition('[')[0]}, which cannot be a label; give one "
            f"number or text per node. {SEVERAL_LABELS}"
        )
    return column


def text(value: object) -> str:
    """Return a label as text; integers stored as floats next to missing values lose their decimal point."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    whole = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    return whole[1] if whole else str(value)


def listed_classes(names: Sequence[str], most: int = 12) -> str:
    """Return the classes, the first of them where there are many.

    >>> listed_classes(["blue", "red"])
    '2 classes: blue, red'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{len(names):,} class{'es' * (len(names) != 1)}: {', '.join(names[:most])}{more}"


# -- parts of a split ----
PARTS = ("train", "val", "test")
SHARES = (0.75, 0.10)  # of train and val, where a table names no split and no recipe was chosen
SINGLE_TRAIN_NODE_MESSAGE = (
    "the split has one labeled train node, and networks trained in the clear compare the nodes of a "
    "batch, which takes two; label more nodes, or choose a split that has more (--split COLUMN)"
)
_EXCESS = 1e-9  # undoes products such as 0.29 * 100 that fall just below a whole number


def part_bounds(count: int, train: float, val: float) -> npt.NDArray[np.int64]:
    """Return where val and test begin among the nodes; train and val are rounded down.

    >>> part_bounds(9, *SHARES).tolist()
    [6, 7]
    """
    return np.floor(np.array([train, train + val]) * count + _EXCESS).astype(np.int64)


def empty_parts(members: Sequence[str | None] | None, counts: npt.NDArray[np.bool_]) -> list[str]:
    """Return the parts that have no node.

    >>> empty_parts(["train", None, "val", "test"], np.array([True, True, False, True]))
    ['val']
    >>> empty_parts(None, np.ones(8, dtype=bool))
    ['val']
    """
    if members is not None:
        there = {part for part, one in zip(members, counts.tolist(), strict=True) if one}
        return [part for part in PARTS if part not in there]
    sizes = np.diff(part_bounds(int(counts.sum()), *SHARES), prepend=0, append=int(counts.sum()))
    return [part for part, size in zip(PARTS, sizes.tolist(), strict=True) if size == 0]


def has_single_train_node(members: Sequence[str | None] | None, counts: npt.NDArray[np.bool_]) -> bool:
    """Whether a given split leaves only one labeled training node.

    >>> has_single_train_node(["train", "train", "val"], np.array([True, False, True]))
    True
    """
    return members is not None and np.asarray(members, dtype=object)[counts].tolist().count("train") == 1


def empty_part_message(part: str) -> str:
    return (
        f"the split has no labeled {part} nodes. Label more nodes, or choose another split (--split COLUMN). "
        "If classes are listed (--classes), spell them as the labels are spelled"
    )
