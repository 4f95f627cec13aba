"""Labels as class numbers, each converted separately, so that none affects the others; split parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from graphveil.data.tables import files
from graphveil.data.tables.files import AS_WRITTEN, NULL_VALUES, Column, Table
from graphveil.data.tables.ids import too_long
from graphveil.errors import GraphError

__all__ = ["AS_WRITTEN", "CLASSES_FROM_LABELS", "UNLABELED", "class_codes", "listed", "text"]

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
    table: Table,
    name: str | None,
    classes: Sequence[str] | None,
    null_values: Sequence[str] = NULL_VALUES,
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return the class of every node, -1 if it has none, and the class names.

    Labels outside ``classes``, if these are given, are like missing ones. Text among ``null_values`` is a
    missing label, unless ``classes`` names it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    listed = tuple(dict.fromkeys(map(str, () if classes is None else classes)))
    if name is None:
        return np.full(table.num_rows, UNLABELED), listed
    words = [word for word in null_values if word not in listed]
    column = files.without_words(_labels(files.column(table, name), name), words)
    if classes is None and pa.types.is_large_string(column.type) and too_long(column):
        raise GraphError(
            f"column {name!r} contains a label of more than 1,000 bytes. Check that it is the label column."
        )
    # Distinct values alone go through Python: there are as many as classes, and not as many as nodes.
    found = [value for value in pc.unique(column).to_pylist() if value is not None]
    names = [text(value) for value in found]
    numbers = [name for name in dict.fromkeys(names) if name.strip().lower() != "nan"]
    if classes is not None:
        order = list(dict.fromkeys(map(str, classes)))
    elif all(_NUMBER.fullmatch(name) for name in numbers):
        order = sorted(numbers, key=lambda name: (Decimal(name), name))
    else:
        order = sorted(set(names))
    place = {name: number for number, name in enumerate(order)}
    codes = pc.index_in(column, value_set=pa.array(found, type=column.type))
    codes = pc.fill_null(codes, UNLABELED).to_numpy(zero_copy_only=False)
    if len(order) < 2:
        raise GraphError(
            f"column {name!r} has labels of fewer than two classes, so no classifier can be trained. "
            "Name another column (--label), or list all classes (--classes)."
        )
    # One place more than there are names, so that the code -1 stays -1.
    places = np.array([*(place.get(name, UNLABELED) for name in names), UNLABELED], dtype=np.int64)
    return places[codes], tuple(order)


def reject_numeric(name: str | None, names: Sequence[str]) -> None:
    """Reject a label column of numbers that look like a quantity, such as an age, and not like classes.

    Raises:
        GraphError: More than 100 distinct numbers, or more than 20 that are not all whole.

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
    """Return the number of every node, NaN if it has none. Text has this decimal separator.

    Raises:
        GraphError: Column that does not hold numbers.
    """
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
    """Return a column of text, integers, float32 or float64 without NaN, decimals or bools."""
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


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return the classes, the first of them where there are many.

    >>> listed(["blue", "red"])
    '2 classes: blue, red'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{len(names):,} class{'es' * (len(names) != 1)}: {', '.join(names[:most])}{more}"


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

    Args:
        members: the part of each node; None where the nodes that count are split at random.
        counts: which nodes count.

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
    """Return the error message for a part of the split without a labeled node."""
    return (
        f"the split has no labeled {part} nodes. Label more nodes, or choose another split (--split COLUMN). "
        "If classes are listed (--classes), spell them as the labels are spelled"
    )
