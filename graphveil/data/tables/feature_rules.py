"""The feature columns of a table of nodes, the rule of each, and the options that would pass."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from graphveil.data.tables import files
from graphveil.data.tables.encoding import (
    CONSTANT_FEATURE,
    ColumnRule,
    as_numbers,
    finite,
    kind_of,
    missing_in,
    missing_words,
    text,
)
from graphveil.data.tables.files import Column, FixableError, Table
from graphveil.data.tables.options import CONSTANT, ERROR, INDICATOR, MEDIAN, TableOptions
from graphveil.errors import GraphError

MAX_VALUES = 1000  # of a column of categories that is read from its table
_FEW_VALUES = 40  # of a column of text that is worth a column of features each
_INDEX = re.compile(r"(?:Unnamed: \d+|__index_level_\d+__|)")
_ENCODE = "drop it (--drop), or encode it as numbers: one 0/1 column per category (--categories)"


class FeatureRules:
    """The feature columns of one table of nodes, and the rule of each."""

    def __init__(self, options: TableOptions, *, private: bool, written: bool = False) -> None:
        """Store the caller's options; the rules of another table, if there are any, take precedence.

        ``private`` says that no rule may be read from the records, and ``written`` marks a CSV.
        """
        self._options, self.private, self._written = options, private, written
        given = None if options.encoding is None else options.encoding.rules
        self._given = None if given is None else {rule.name: rule for rule in given}
        categories = options.category_rules if given is None else given
        self._categories = {one.name: one for one in categories if one.kind == "category"}
        self.columns: list[str] = []  # that are to be features

    def choose(
        self, title: str, names: list[str], roles: list[str], taken: set[str], problems: list[str]
    ) -> None:
        """Set the columns that are to be features; none where nodes get the constant feature.

        A name that cannot be used is left out, and recorded as a problem.
        """
        options, dropped = self._options, self._options.drop or ()
        if self._given is not None:
            wanted = [name for name in self._given if name != CONSTANT_FEATURE.name]
        elif options.features is not None:
            wanted = list(options.features)
        else:
            left_out = {*taken, *dropped}
            wanted = [name for name in names if name not in left_out and not is_index(name)]
        categories = [category.name for category in options.category_rules]
        unusable = set[str]()
        for name in dict.fromkeys([*wanted, *dropped, *categories]):
            if name not in names:
                problems.append(files.no_column(title, name, names))
            elif name in roles or wanted.count(name) > 1:
                problems.append(
                    f"column {name!r} is used for two different roles: twice among features and dropped "
                    "columns, or also as id, label or split; remove it from one of them"
                )
            else:
                continue
            unusable.add(name)
        more = categories if self._given is None else []
        self.columns = [name for name in dict.fromkeys([*wanted, *more]) if name not in unusable]

    @property
    def as_written(self) -> list[str]:
        """The columns whose values are read as text: categories."""
        return [name for name in self.columns if name in self._categories]

    def named_values(self, name: str) -> tuple[str, ...]:
        category = self._categories.get(name)
        return () if category is None else category.values or ()

    def rule(self, table: Table, name: str) -> ColumnRule:
        column = files.column(table, name)
        if self._given is not None:
            known = self._filled(self._given[name], column)
            known.write(column, np.empty((len(column), known.columns), dtype=np.float32))
            return known
        if name in self._categories:
            return self._category(column, self._categories[name])
        return self._numeric(column, name)

    def _filled(self, rule: ColumnRule, column: Column) -> ColumnRule:
        """Return a rule of training, with the caller's fill value where training had none."""
        if rule.fill is not None or rule.kind == "category" or not missing_in(column).any():
            return rule
        value = self._options.constant
        if value is None:
            raise FixableError(missing_words(column, rule.name), missing=f"{CONSTANT}0")
        return replace(rule, fill=(value,) * rule.width)

    def _numeric(self, column: Column, name: str) -> ColumnRule:
        import pyarrow as pa

        kind, how = kind_of(column.type), self._options.missing or ERROR
        if kind is None:
            raise self._not_a_number(column, name)
        missing = missing_in(column)
        if len(column) and missing.all() and (kind == "list" or how == ERROR):
            raise FixableError(
                f"column {name!r} is empty: no row has a value; drop it (--drop)", features=name
            )
        try:
            kept = column.filter(pa.array(~missing)) if missing.any() else column
            numbers = finite(as_numbers(kept, name), name)
        except GraphError as error:
            raise FixableError(str(error), features=name) from None
        if missing.any() and how == ERROR:
            raise FixableError(
                f"column {name!r} has missing values; fill them (--missing indicator, constant=V or median), "
                "or drop the column or the rows"
                if column.null_count
                else f"column {name!r} holds NaN, infinite or larger than float32 values; fill (--missing) "
                "or drop them",
                missing=INDICATOR,
            )
        if how == MEDIAN and self.private:
            raise FixableError(
                f"column {name!r}: a median would be computed from all records, but this unit protects "
                "each record. Use --missing indicator or --missing constant=V.",
                missing=INDICATOR,
            )
        width = numbers.shape[1] if len(numbers) else 1
        fill: tuple[float, ...] | None = (self._options.constant or 0.0,) * width
        if how == ERROR:
            fill = None
        elif how == MEDIAN and len(numbers):
            fill = tuple(map(float, np.median(numbers, axis=0)))
        return ColumnRule(
            name=name, kind=kind, width=width, fill=fill, indicator=how == INDICATOR, fitted=how == MEDIAN
        )

    def _not_a_number(self, column: Column, name: str) -> GraphError:
        """Return what is wrong with a column that is not a number, and options that would pass.

        A text column with few distinct, repeated values is classified as categories, any other one as free
        text or names. Under a unit that protects node records nothing may depend on the values of a column,
        so it is dropped unless its values are named.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        options = self._options
        # A hint is for the owner of the table. What becomes of a column never depends on private values.
        if self._written and options.decimal is None and files.decimal_commas(column):
            words = f"column {name!r} holds numbers with a decimal comma, read as text; add --decimal ','"
            fix = {"features": name} if self.private else {"decimal": ","}
            if column.null_count and options.missing in (None, ERROR):
                fix["missing"] = INDICATOR  # which would be the next complaint
            return FixableError(words, **fix)
        if (how := files.number_hint(column, name)) is not None:
            words = f"column {name!r} {how}, or drop it (--drop)"
            # Dates are worth a column: no command without them is suggested.
            return GraphError(words) if "dates" in how else FixableError(words, features=name)
        what = str(column.type).partition("[")[0].replace("large_string", "text").replace("string", "text")
        words = f"column {name!r} is of type {what}, not a number; {_ENCODE}"
        if pa.types.is_large_string(column.type) and not self.private:
            distinct, values = len(pc.unique(column).drop_null()), len(column) - column.null_count
            if 2 <= distinct <= _FEW_VALUES and 2 * distinct <= values:
                return FixableError(words, categories=name)
            words = (
                f"column {name!r} has one value only, which adds nothing; drop it (--drop)"
                if distinct < 2
                else f"column {name!r} is of type {what}, not a number; drop it (--drop), or encode it as "
                f"numbers: hashed (--categories {name}=hash:32), since few of its values repeat"
            )
        return FixableError(words, features=name)

    def _category(self, column: Column, category: ColumnRule) -> ColumnRule:
        import pyarrow as pa

        name = category.name
        if kind_of(column.type) in (None, "list") and not pa.types.is_large_string(column.type):
            raise FixableError(
                f"column {name!r} is of type {column.type}, which cannot be used as categories. Drop it.",
                features=name,
            )
        if category.values is not None and not self.private:
            _check_listed(column, name, category.values)
        if category.values is not None or category.places is not None:
            return category
        if self.private:
            raise FixableError(
                f"column {name!r}: the list of categories would be read from all records, but this unit "
                f"protects each record. List them (--categories '{name}=a|b|c'), or hash them "
                f"(--categories {name}=hash:32).",
                features=name,
            )
        return replace(category, values=_values(column, name), fitted=True)


def _check_listed(column: Column, name: str, listed: tuple[str, ...]) -> None:
    """Reject listed categories that differ from values of the table only in case or spelling."""
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


def _values(column: Column, name: str) -> tuple[str, ...]:
    import pyarrow.compute as pc

    distinct = pc.unique(column).drop_null()
    if not 0 < len(distinct) <= MAX_VALUES:
        how_many = f"more than {MAX_VALUES:,}" if len(distinct) else "no"
        raise FixableError(
            f"column {name!r} has {how_many} different values, which is too many for categories. Drop "
            f"it (--drop), or hash them (--categories {name}=hash:32).",
            features=name,
        )
    return tuple(sorted({text(value) for value in distinct.to_pylist()}))


def is_index(name: str) -> bool:
    """Whether a column is called as pandas calls an index without a name when it writes a table.

    >>> [is_index(name) for name in ("Unnamed: 0", "__index_level_0__", "", "index")]
    [True, True, True, False]
    """
    return _INDEX.fullmatch(name) is not None
