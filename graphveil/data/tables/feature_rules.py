"""Choose the feature columns, the rule of each, and the options that would pass if one is rejected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphveil.data.tables import files
from graphveil.data.tables.encoding import (
    CONSTANT,
    CONSTANT_FEATURE,
    DROP,
    ERROR,
    INDICATOR,
    MEDIAN,
    Category,
    ColumnRule,
    EncodingOptions,
    as_numbers,
    finite,
    kind_of,
    missing_in,
)
from graphveil.data.tables.files import Column, Table
from graphveil.data.tables.labels import text
from graphveil.errors import GraphError

MAX_VALUES = 1000  # of a column of categories that is read from its table
_FEW_VALUES = 40  # of a column of text that is worth a column of features each
_SMALLEST_ID = 1_000_000
_INDEX = re.compile(r"(?:Unnamed: \d+|__index_level_\d+__|)")
_ENCODE = "drop it (--drop), or encode it as numbers: one 0/1 column per category (--categories)"


class FeatureRuleBuilder:
    """The feature columns of one table of nodes: a rule for each, and the options that fix each problem."""

    def __init__(
        self,
        choices: EncodingOptions,
        rules: tuple[ColumnRule, ...] | None,
        *,
        private_records: bool,
        written: bool = False,
        ignored: tuple[str, ...] = (),
    ) -> None:
        """Store the caller's options, or the rules of another table, which then take precedence.

        ``written`` marks a table from a CSV, and ``ignored`` columns of the edges are dropped.
        """
        self._ignored = ignored
        self._written = written
        self._choices, self.private = choices, private_records
        self._given = None if rules is None else {rule.name: rule for rule in rules}
        categories = choices.categories if rules is None else [one for one in rules if one.kind == "category"]
        self._categories: dict[str, Category | ColumnRule] = {one.name: one for one in categories}
        self._wanted, self._dropped, self._encoded = list[str](), list[str](), list[str]()
        self._missing: str | None = None
        self._decimal: str | None = None
        self._unknown = False
        self.mended = 0  # problems that other options would fix

    def chosen(
        self, title: str, names: list[str], roles: list[str], taken: set[str], problems: list[str]
    ) -> list[str]:
        """Return the columns that are to be features; none where nodes get the constant feature.

        A name that cannot be used is left out, and recorded as a problem.
        """
        if self._given is not None:
            wanted = [name for name in self._given if name != CONSTANT_FEATURE.name]
        elif self._choices.features is not None:
            wanted = list(self._choices.features)
        else:
            left_out = {*taken, *self._choices.drop}
            wanted = [name for name in names if name not in left_out and not is_index(name)]
        categories = [category.name for category in self._choices.categories]
        unusable = set[str]()
        for name in dict.fromkeys([*wanted, *self._choices.drop, *categories]):
            if name not in names:
                problems.append(files.no_column(title, name, names))
            elif name in roles or wanted.count(name) > 1:
                problems.append(
                    f"column {name!r} is used for two different roles: twice among features and dropped "
                    "columns, or "
                    "also as id, label or split; remove it from one of them"
                )
            else:
                continue
            unusable.add(name)
        more = categories if self._given is None else []
        self._wanted = [name for name in dict.fromkeys([*wanted, *more]) if name not in unusable]
        return self._wanted

    def as_written(self, chosen: Sequence[str]) -> list[str]:
        """Return the columns whose values are read as text: categories."""
        return [name for name in chosen if name in self._categories]

    def named_values(self, name: str) -> tuple[str, ...]:
        """Return the category values that the caller listed for a column."""
        category = self._categories.get(name)
        return () if category is None else category.values or ()

    def rule(self, table: Table, name: str, problems: list[str]) -> ColumnRule | None:
        """Return the rule of a column, or None after recording what is wrong with it."""
        try:
            column = files.column(table, name)
            if self._given is not None:
                known = self._filled(self._given[name], column)
                known.write(column, np.empty((len(column), known.columns), dtype=np.float32))
                return known
            category = self._choices.category(name)
            return self._numeric(column, name) if category is None else self._category(column, category)
        except GraphError as error:
            problems.append(str(error))
            return None

    def _filled(self, rule: ColumnRule, column: Column) -> ColumnRule:
        """Return a rule of training, with the caller's fill value where training had none."""
        if rule.fill is not None or rule.kind == "category" or not missing_in(column).any():
            return rule
        value = self._choices.constant
        if value is None:
            self._missing, self.mended = f"{CONSTANT}0", self.mended + 1
            return rule
        return replace(rule, fill=(value,) * rule.width)

    def without_row(self, name: str) -> str:
        """Return the error message that nodes added from edges have no value in a column."""
        self._fill_missing()
        return (
            f"column {name!r} has no value for the nodes that edges alone name; state what a missing value "
            "becomes (--missing indicator)"
        )

    def ignore(self, name: str) -> None:
        """Note that a column of the edges is to be ignored."""
        self._ignored, self.mended = (*self._ignored, name), self.mended + 1

    def drop_unknown(self) -> None:
        """Note that the edges to unknown nodes are to be dropped."""
        self._unknown, self.mended = True, self.mended + 1

    def suggestion(self) -> EncodingOptions | None:
        """Return the choices that would pass, None if none of the features that the caller named is left."""
        old = self._choices
        if old.features is not None and set(self._wanted) <= set(self._dropped):
            return None
        kept = None
        if old.features is not None:
            kept = tuple(name for name in old.features if name not in self._dropped)
        dropped = [name for name in self._dropped if old.features is None]
        return replace(
            old,
            features=kept,
            drop=(*old.drop, *dropped, *self._ignored),
            categories=(
                *(category for category in old.categories if category.name not in self._dropped),
                *(Category(name=name) for name in self._encoded),
            ),
            missing=old.missing if self._missing is None else self._missing,
            unknown_ids=DROP if self._unknown else old.unknown_ids,
            decimal=self._decimal or old.decimal,
        )

    # -- columns of numbers --------------------------------------------------------------------------------

    def _numeric(self, column: Column, name: str) -> ColumnRule:
        """Return the rule of a column of numbers.

        Raises:
            GraphError: Another type, missing values without a replacement, or a median of private records.
        """
        import pyarrow as pa

        kind, how = kind_of(column.type), self._choices.missing
        if kind is None:
            raise GraphError(self._not_a_number(column, name))
        missing = missing_in(column)
        if len(column) and missing.all() and (kind == "list" or how == ERROR):
            self._drop(name)
            raise GraphError(f"column {name!r} is empty: no row has a value; drop it (--drop)")
        try:
            kept = column.filter(pa.array(~missing)) if missing.any() else column
            numbers = finite(as_numbers(kept, name), name)
        except GraphError:
            self._drop(name)
            raise
        if missing.any() and how == ERROR:
            self._fill_missing()
            raise GraphError(
                f"column {name!r} has missing values; fill them (--missing indicator, constant=V or median), "
                "or drop the column or the rows"
                if column.null_count
                else f"column {name!r} holds NaN, infinite or larger than float32 values; fill (--missing) "
                "or drop them"
            )
        if how == MEDIAN and self.private:
            self._fill_missing()
            raise GraphError(
                f"column {name!r}: a median would be computed from all records, but this unit protects "
                "each record. Use --missing indicator or --missing constant=V."
            )
        width = numbers.shape[1] if len(numbers) else 1
        fill: tuple[float, ...] | None = (self._choices.constant or 0.0,) * width
        if how == ERROR:
            fill = None
        elif how == MEDIAN and len(numbers):
            fill = tuple(map(float, np.median(numbers, axis=0)))
        return ColumnRule(
            name=name, kind=kind, width=width, fill=fill, indicator=how == INDICATOR, fitted=how == MEDIAN
        )

    def _fill_missing(self) -> None:
        self._missing, self.mended = INDICATOR, self.mended + 1

    def _drop(self, name: str) -> None:
        self._dropped.append(name)
        self.mended += 1

    def _not_a_number(self, column: Column, name: str) -> str:
        """Return what is wrong with a column that is not a number, and record options that would pass.

        A text column with few distinct, repeated values is classified as categories, any other one as free
        text or names. Under a unit that protects node records nothing may depend on the values of a column,
        so it is dropped unless its values are named.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        pointed = self._written and self._choices.decimal is None
        # A hint is for the owner of the table. What becomes of a column never depends on private values.
        if pointed and files.decimal_commas(column):
            if self.private:
                self._drop(name)
            else:
                self._decimal, self.mended = ",", self.mended + 1
            if column.null_count and self._choices.missing == ERROR:
                self._missing = INDICATOR  # which would be the next complaint
            return f"column {name!r} holds numbers with a decimal comma, read as text; add --decimal ','"
        if (how := files.number_hint(column, name)) is not None:
            if "dates" not in how:  # dates are worth a column: no command without them is suggested
                self._drop(name)
            return f"column {name!r} {how}, or drop it (--drop)"
        what = str(column.type).partition("[")[0].replace("large_string", "text").replace("string", "text")
        if pa.types.is_large_string(column.type) and not self.private:
            distinct, values = len(pc.unique(column).drop_null()), len(column) - column.null_count
            if 2 <= distinct <= _FEW_VALUES and 2 * distinct <= values:
                self._encoded.append(name)
                self.mended += 1
            else:
                self._drop(name)
                if distinct < 2:
                    return f"column {name!r} has one value only, which adds nothing; drop it (--drop)"
                return (
                    f"column {name!r} is of type {what}, not a number; drop it (--drop), or encode it as "
                    f"numbers: hashed (--categories {name}=hash:32), since few of its values repeat"
                )
        else:
            self._drop(name)
        return f"column {name!r} is of type {what}, not a number; {_ENCODE}"

    # -- columns of categories -----------------------------------------------------------------------------

    def _category(self, column: Column, category: Category) -> ColumnRule:
        import pyarrow as pa

        name = category.name
        if kind_of(column.type) in (None, "list") and not pa.types.is_large_string(column.type):
            self._drop(name)
            raise GraphError(
                f"column {name!r} is of type {column.type}, which cannot be used as categories. Drop it."
            )
        if category.values is not None and not self.private:
            self._check_listed(column, name, category.values)
        if category.values is not None or category.places is not None:
            return ColumnRule(name=name, kind="category", values=category.values, places=category.places)
        if self.private:
            self._drop(name)
            raise GraphError(
                f"column {name!r}: the list of categories would be read from all records, but this unit "
                f"protects each record. List them (--categories '{name}=a|b|c'), or hash them "
                f"(--categories {name}=hash:32)."
            )
        return ColumnRule(name=name, kind="category", values=self._values(column, name), fitted=True)

    def _check_listed(self, column: Column, name: str, listed: tuple[str, ...]) -> None:
        """Reject listed categories that differ from values of the table only in case or spelling.

        Raises:
            GraphError: A listed value occurs only in another case, or no row has a listed value.
        """
        import pyarrow.compute as pc

        found = {text(value).strip() for value in pc.unique(column.drop_null()).to_pylist()}
        other = {value.lower() for value in found - set(listed)}
        unlike = [value for value in listed if value not in found and value.lower() in other]
        if unlike:
            raise GraphError(
                f"column {name!r} has {unlike[0]!r} of the listed values only in another case; write the "
                "list as in the table"
            )
        if found and not found & set(listed):
            raise GraphError(
                f"column {name!r} has none of the listed values, so its features would all be 0; write the "
                f"list as in the table, or use the values that occur: categories={name!r} (--categories "
                f"{name})"
            )

    def _values(self, column: Column, name: str) -> tuple[str, ...]:
        """Return the distinct values of a column, sorted."""
        import pyarrow.compute as pc

        distinct = pc.unique(column).drop_null()
        if not 0 < len(distinct) <= MAX_VALUES:
            self._drop(name)
            how_many = f"more than {MAX_VALUES:,}" if len(distinct) else "no"
            raise GraphError(
                f"column {name!r} has {how_many} different values, which is too many for categories. Drop "
                f"it (--drop), or hash them (--categories {name}=hash:32)."
            )
        return tuple(sorted({text(value) for value in distinct.to_pylist()}))


def is_index(name: str) -> bool:
    """Whether a column is called as pandas calls an index without a name when it writes a table.

    >>> [is_index(name) for name in ("Unnamed: 0", "__index_level_0__", "", "index")]
    [True, True, True, False]
    """
    return _INDEX.fullmatch(name) is not None


def like_ids(column: Column) -> bool:
    """Whether a column of numbers looks like telephone or customer numbers: whole, large and all different.

    >>> import pyarrow as pa
    >>> like_ids(pa.array([491701234567, 491701234568])), like_ids(pa.array([35_000, 42_000]))
    (True, False)
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    values = column.drop_null()
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_float64(kind)) or len(values) < 2:
        return False
    numbers = values.to_numpy(zero_copy_only=False)
    if not (numbers >= _SMALLEST_ID).all() or not (np.floor(numbers) == numbers).all():
        return False
    return len(pc.unique(values)) == len(values)
