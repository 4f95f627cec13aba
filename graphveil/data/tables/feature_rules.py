"""Options for the feature columns of a table of nodes, the rule of each, and the options that would pass."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from graphveil._util import checks
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
from graphveil.data.tables.files import (
    COMMAS,
    DELIMITERS,
    NULL_VALUES,
    Column,
    CsvFormat,
    FixableError,
    Table,
)
from graphveil.errors import ConfigError, GraphError

ERROR, INDICATOR, MEDIAN, CONSTANT = "error", "indicator", "median", "constant="
DROP, ADD = "drop", "add"
UNKNOWN_IDS = (ERROR, DROP, ADD)
MAX_PLACES = 1 << 16
MAX_VALUES = 1000  # of a column of categories that is read from its table
_FEW_VALUES = 40  # of a column of text that is worth a column of features each
_SMALLEST_ID = 1_000_000
_INDEX = re.compile(r"(?:Unnamed: \d+|__index_level_\d+__|)")
_ENCODE = "drop it (--drop), or encode it as numbers: one 0/1 column per category (--categories)"
_QUOTES = "'\"`\u2018\u2019\u201c\u201d"

Named: TypeAlias = str | Sequence[str]
Categories: TypeAlias = str | Sequence[str] | Mapping[str, Sequence[str] | int | None]


# -- options ----


def check_spelling(argument: str, value: str, form: str) -> None:
    """Reject a value with a quote or backslash left over from a shell command.

    >>> check_spelling("classes", "it's", "a,b")
    >>> check_spelling("classes", "'yes", "yes,no")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: classes: "'yes" has a quote or backslash ...
    """
    bare = value.strip()
    if bare and (bare[0] in _QUOTES or bare.endswith("\\")):
        raise ConfigError(
            f"{argument}: {value!r} has a quote or backslash that would be part of the value. "
            f"Write {form}; in a shell, quote the whole argument."
        )


def category(name: str, values: Sequence[str] | None = None, places: int | None = None) -> ColumnRule:
    """Return the rule of a column of categories: listed values, hash buckets, or the values that occur.

    >>> str(category("plan", ["free", "pro"])), str(category("country", places=32))
    ('plan=free|pro', 'country=hash:32')
    """
    if values is not None:
        for value in (name, *values):
            check_spelling("categories", value, f"{name}=a|b|c")
        values = tuple(text(value.strip()) for value in values)
        if not all(values) or len(set(values)) < len(values):
            raise ConfigError(
                f"categories: the list of {name!r} has an empty value or names a value twice; write "
                f"{name}=a|b|c"
            )
    if places is not None:
        checks.within(2, MAX_PLACES, places=places)
    return ColumnRule(name=name, kind="category", values=values, places=places)


def parse_category(text: str) -> ColumnRule:
    name, equals, rest = text.partition("=")
    kind, colon, number = rest.partition(":")
    if not name or (equals and not rest):
        raise ConfigError(
            f"categories {text!r} cannot be read. Write column, column=a|b|c or column=hash:32."
        )
    if colon and kind == "hash":
        if not number.isascii() or not number.isdigit():
            raise ConfigError(f"categories {text!r} needs a number of hash buckets. Write {name}=hash:32.")
        return category(name, places=int(number))
    return category(name, rest.split("|") if equals else None)


def _category_item(name: str, how: Sequence[str] | int | None) -> ColumnRule:
    """Read an item of a mapping: a list of values, a number of hash buckets, or None."""
    if isinstance(how, str | bool) or not isinstance(how, Iterable | int | None):
        raise ConfigError(
            f"categories[{name!r}] must be a list of values, a number of hash buckets, or None."
        )
    if how is None or isinstance(how, int):
        return category(name, places=how)
    return category(name, [*map(str, how)])


@dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """Options for feature columns and for edges to unknown nodes.

    Args:
        missing: ``"error"``, ``"indicator"`` (0 and a column that marks it), ``"constant=V"`` or
            ``"median"`` (read from the table, so for edge-level privacy units only).
        null_values: Words for a missing label or feature; None for ``files.NULL_VALUES``. An empty field
            is always missing.
        delimiter, decimal: Column separator and decimal separator of both tables, if they are CSV files;
            None for a comma and a point.
    """

    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[ColumnRule, ...] = ()
    missing: str = ERROR
    unknown_ids: str = ERROR
    null_values: tuple[str, ...] | None = None
    delimiter: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _delimiter(self.delimiter))
        if self.decimal is not None:
            checks.one_of((".", ","), decimal=self.decimal)
        for name in ("missing", "unknown_ids"):
            if not isinstance(getattr(self, name), str):
                kind = type(getattr(self, name)).__name__
                raise ConfigError(f"{name}= must be a word such as 'error', not a {kind}")
        if not self.missing.startswith(CONSTANT):
            checks.one_of((ERROR, INDICATOR, MEDIAN, "constant=V"), missing=self.missing)
        _ = self.constant
        checks.one_of(UNKNOWN_IDS, unknown_ids=self.unknown_ids)
        encoded = [category.name for category in self.categories]
        listed = {"features": self.features or (), "drop": self.drop, "categories": encoded}
        for what, names in listed.items():
            if len(set(names)) < len(names):
                raise ConfigError(f"{what} names a column twice. Name each column once.")
        both = [name for name in self.drop if name in {*(self.features or ()), *encoded}]
        if both:
            raise ConfigError(
                f"column {both[0]!r} is listed both in the features and in the columns to drop. Remove it "
                "from one list."
            )

    @classmethod
    def from_arguments(cls, **given: Any) -> EncodingOptions:
        """Return options from names, comma lists, or a mapping of categories; None stands for a default.

        >>> EncodingOptions.from_arguments(drop="a,b", categories={"plan": ["free", "pro"],
        ...     "country": 32}).flags()
        ['--drop', 'a,b', '--categories', 'plan=free|pro,country=hash:32']
        """
        given = {name: value for name, value in given.items() if value is not None}
        categories = given.get("categories", ())
        if isinstance(categories, Mapping):
            given["categories"] = tuple(_category_item(*item) for item in categories.items())
        else:
            given["categories"] = tuple(map(parse_category, names(categories, "categories")))
        lists = given.keys() & {"features", "drop", "null_values"}
        return cls(**given | {name: names(given[name], name) for name in lists})

    @property
    def words(self) -> tuple[str, ...]:
        return NULL_VALUES if self.null_values is None else self.null_values

    @property
    def csv_format(self) -> CsvFormat:
        return CsvFormat(self.delimiter or COMMAS.delimiter, self.decimal or COMMAS.decimal)

    @property
    def constant(self) -> float | None:
        if not self.missing.startswith(CONSTANT):
            return None
        try:
            value = float(self.missing.removeprefix(CONSTANT))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(
                f"missing={self.missing!r} needs a finite number, for example missing='constant=0'."
            )
        return value

    def passing(self, fixes: Sequence[Mapping[str, str]], usable: Sequence[str]) -> EncodingOptions | None:
        """Return options without the problems that some fixes solve; None if no named feature is left."""
        fixed = {name: [fix[name] for fix in fixes if name in fix] for fix in fixes for name in fix}
        dropped, features = fixed.get("features", []), self.features
        if features is not None and set(usable) <= set(dropped):
            return None
        encoded = [category for category in self.categories if category.name not in dropped]
        more = fixed.get("drop", []) if features is not None else [*dropped, *fixed.get("drop", [])]
        last = ("missing", "unknown_ids", "decimal")
        changed: dict[str, Any] = {name: fixed[name][-1] for name in last if name in fixed}
        return replace(
            self,
            features=None if features is None else tuple(name for name in features if name not in dropped),
            drop=(*self.drop, *more),
            categories=(*encoded, *map(category, fixed.get("categories", []))),
            **changed,
        )

    def _chosen(self) -> dict[str, Any]:
        found = dict[str, Any]()
        for part in fields(self):
            value = getattr(self, part.name)
            plain = list(map(str, value)) if isinstance(value, tuple) else value
            if plain != part.default and (plain or part.name == "null_values"):
                found[part.name] = plain
        return found

    def flags(self) -> list[str]:
        words = self._chosen()
        if self.delimiter is not None:
            words["delimiter"] = DELIMITERS.get(self.delimiter, self.delimiter)
        texts = {name: value if isinstance(value, str) else ",".join(value) for name, value in words.items()}
        return [word for name, text in texts.items() for word in (f"--{name.replace('_', '-')}", text)]

    def keywords(self) -> str:
        """Return the equivalent keywords of ``read_graph``.

        >>> EncodingOptions.from_arguments(drop="a", missing="indicator").keywords()
        "drop=['a'], missing='indicator'"
        """
        words = {name: value or [""] for name, value in self._chosen().items()}
        return ", ".join(f"{name}={value!r}" for name, value in words.items())


def _delimiter(given: object) -> str:
    """Return the one character of a delimiter, which flags may call ``tab``.

    >>> _delimiter("tab"), _delimiter(";")
    ('\\t', ';')
    """
    text = {"tab": "\t", "\\t": "\t"}.get(given, given) if isinstance(given, str) else given
    plain = isinstance(text, str) and len(text) == 1 and text.isascii()
    if not isinstance(text, str) or not plain or text.isalnum() or text in "\"'\r\n.+-":
        raise ConfigError(
            f"delimiter={given!r} (--delimiter) is not a column separator. Use one character such as "
            "';' or '|', or 'tab'."
        )
    return text


def names(given: Named, what: str = "columns") -> tuple[str, ...]:
    if isinstance(given, str):
        found = tuple(name for part in given.split(",") if (name := part.strip()))
        if not found and given.strip():
            raise ConfigError(
                f"{what}={given!r} (--{what.replace('_', '-')}) is a list of empty items. Write a,b,c, or "
                "leave it out."
            )
        return found
    zero_dimensional = getattr(given, "ndim", None) == 0
    listed = tuple(given) if isinstance(given, Iterable) and not zero_dimensional else (None,)
    if not all(isinstance(name, str) for name in listed):
        raise ConfigError(
            f"{what} must be a list of text, or text separated by commas, not a {type(given).__name__}."
        )
    return tuple(map(str, listed))


# -- rules ----


class FeatureRules:
    """The feature columns of one table of nodes, and the rule of each."""

    def __init__(
        self,
        options: EncodingOptions,
        given: tuple[ColumnRule, ...] | None,
        *,
        private: bool,
        written: bool = False,
    ) -> None:
        """Store the caller's options, or the rules of another table, which then take precedence.

        ``private`` says that no rule may be read from the records, and ``written`` marks a CSV.
        """
        self._options, self.private, self._written = options, private, written
        self._given = None if given is None else {rule.name: rule for rule in given}
        categories = options.categories if given is None else [one for one in given if one.kind == "category"]
        self._categories = {one.name: one for one in categories}
        self.columns: list[str] = []  # that are to be features

    def choose(
        self, title: str, names: list[str], roles: list[str], taken: set[str], problems: list[str]
    ) -> None:
        """Set the columns that are to be features; none where nodes get the constant feature.

        A name that cannot be used is left out, and recorded as a problem.
        """
        options = self._options
        if self._given is not None:
            wanted = [name for name in self._given if name != CONSTANT_FEATURE.name]
        elif options.features is not None:
            wanted = list(options.features)
        else:
            left_out = {*taken, *options.drop}
            wanted = [name for name in names if name not in left_out and not is_index(name)]
        categories = [category.name for category in options.categories]
        unusable = set[str]()
        for name in dict.fromkeys([*wanted, *options.drop, *categories]):
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

        kind, how = kind_of(column.type), self._options.missing
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
            if column.null_count and options.missing == ERROR:
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
