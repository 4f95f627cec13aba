"""Options for feature columns, and the frozen rule by which each column becomes features."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.memory import check_room
from graphveil.data.tables import files
from graphveil.data.tables.files import COMMAS, DELIMITERS, NULL_VALUES, Column, CsvFormat, Table
from graphveil.data.tables.labels import text
from graphveil.errors import ArtifactError, ConfigError, GraphError

ERROR, INDICATOR, MEDIAN, CONSTANT = "error", "indicator", "median", "constant="
DROP, ADD = "drop", "add"
UNKNOWN_IDS = (ERROR, DROP, ADD)
MAX_PLACES = 1 << 16

Named: TypeAlias = str | Sequence[str]
Categories: TypeAlias = str | Sequence[str] | Mapping[str, Sequence[str] | int | None]


_QUOTES = "'\"`\u2018\u2019\u201c\u201d"


def check_spelling(argument: str, value: str, form: str) -> None:
    """Reject a value with a quote or backslash left over from a shell command.

    Raises:
        ConfigError: A value that begins with a quote or ends with a backslash.

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


@dataclass(frozen=True, kw_only=True)
class Category:
    """A column of categories: listed values, hash buckets, or the values that occur in the table.

    >>> Category.parse("plan=free|pro"), str(Category.parse("country=hash:32"))
    (Category(name='plan', values=('free', 'pro'), places=None), 'country=hash:32')
    """

    name: str
    values: tuple[str, ...] | None = None
    places: int | None = None

    def __post_init__(self) -> None:
        """Validate the list of values, or the number of hash buckets."""
        if self.values is not None:
            for value in (self.name, *self.values):
                check_spelling("categories", value, f"{self.name}=a|b|c")
            object.__setattr__(self, "values", tuple(text(value.strip()) for value in self.values))
        if self.values is not None and (not all(self.values) or len(set(self.values)) < len(self.values)):
            raise ConfigError(
                f"categories: the list of {self.name!r} has an empty value or names a value twice; write "
                f"{self.name}=a|b|c"
            )
        if self.places is not None:
            checks.within(2, MAX_PLACES, places=self.places)

    @classmethod
    def parse(cls, text: str) -> Category:
        """Read ``name``, ``name=a|b|c`` or ``name=hash:N``."""
        name, equals, rest = text.partition("=")
        kind, colon, number = rest.partition(":")
        if not name or (equals and not rest):
            raise ConfigError(
                f"categories {text!r} cannot be read. Write column, column=a|b|c or column=hash:32."
            )
        if colon and kind == "hash":
            if not number.isascii() or not number.isdigit():
                raise ConfigError(
                    f"categories {text!r} needs a number of hash buckets. Write {name}=hash:32."
                )
            return cls(name=name, places=int(number))
        return cls(name=name, values=tuple(rest.split("|")) if equals else None)

    def __str__(self) -> str:
        """Return the text that ``parse`` reads."""
        if self.places is not None:
            return f"{self.name}=hash:{self.places}"
        return self.name if self.values is None else f"{self.name}={'|'.join(self.values)}"


@dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """Options for feature columns and for edges to unknown nodes.

    Args:
        features: Feature columns; None for all that have no other role.
        drop: Columns that are not features.
        categories: Columns to one-hot encode.
        missing: ``"error"``, ``"indicator"`` (0 and a column that marks it), ``"constant=V"`` or
            ``"median"`` (read from the table, so for edge-level privacy units only).
        unknown_ids: ``"error"``, ``"drop"`` such edges, or ``"add"`` their nodes.
        null_values: Words for a missing label or feature; None for ``files.NULL_VALUES``. An empty field
            is always missing.
        delimiter, decimal: Column separator and decimal separator of both tables, if they are CSV files;
            None for a comma and a point.
    """

    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[Category, ...] = ()
    missing: str = ERROR
    unknown_ids: str = ERROR
    null_values: tuple[str, ...] | None = None
    delimiter: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        """Validate the options, and raise an error for columns that are named twice."""
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
        for what, names in (
            ("features", self.features or ()),
            ("drop", self.drop),
            ("categories", [category.name for category in self.categories]),
        ):
            if len(set(names)) < len(names):
                raise ConfigError(f"{what} names a column twice. Name each column once.")
        both = [name for name in self.drop if name in {*(self.features or ()), *self._encoded}]
        if both:
            raise ConfigError(
                f"column {both[0]!r} is listed both in the features and in the columns to drop. Remove it "
                "from one list."
            )

    @classmethod
    def from_arguments(
        cls,
        features: Named | None = None,
        drop: Named = (),
        categories: Categories = (),
        missing: str = ERROR,
        unknown_ids: str = ERROR,
        null_values: Named | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> EncodingOptions:
        """Return choices from names, comma lists, or a mapping of categories.

        >>> EncodingOptions.from_arguments(drop="a,b", categories={"plan": ["free", "pro"],
        ...     "country": 32}).flags()
        ['--drop', 'a,b', '--categories', 'plan=free|pro,country=hash:32']
        """
        return cls(
            features=None if features is None else names(features, "features"),
            drop=names(drop, "drop"),
            categories=tuple(_category(name, how) for name, how in categories.items())
            if isinstance(categories, Mapping)
            else tuple(map(Category.parse, names(categories, "categories"))),
            missing=missing,
            unknown_ids=unknown_ids,
            null_values=None if null_values is None else names(null_values, "null_values"),
            delimiter=delimiter,
            decimal=decimal,
        )

    @property
    def words(self) -> tuple[str, ...]:
        """Words for a missing label or feature."""
        return NULL_VALUES if self.null_values is None else self.null_values

    @property
    def csv_format(self) -> CsvFormat:
        """How CSV files are read."""
        return CsvFormat(self.delimiter or COMMAS.delimiter, self.decimal or COMMAS.decimal)

    @property
    def constant(self) -> float | None:
        """Replacement of a missing number, if one was given."""
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

    @property
    def _encoded(self) -> dict[str, Category]:
        return {category.name: category for category in self.categories}

    def category(self, name: str) -> Category | None:
        """Return how a column is encoded, if it is one of categories."""
        return self._encoded.get(name)

    def _chosen(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as text and lists of text."""
        found = dict[str, Any]()
        for part in fields(self):
            value = getattr(self, part.name)
            plain = list(map(str, value)) if isinstance(value, tuple) else value
            if plain != part.default and (plain or part.name == "null_values"):
                found[part.name] = plain
        return found

    def flags(self) -> list[str]:
        """Return the equivalent command-line flags."""
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
    """Return names from a list of them, or from a text with commas."""
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


def _category(name: str, how: Sequence[str] | int | None) -> Category:
    if isinstance(how, str | bool) or not isinstance(how, Iterable | int | None):
        raise ConfigError(
            f"categories[{name!r}] must be a list of values, a number of hash buckets, or None."
        )
    if how is None or isinstance(how, int):
        return Category(name=name, places=how)
    return Category(name=name, values=tuple(map(str, how)))


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
        name: Name of the column.
        kind: Type of its values.
        width: Length of its lists.
        values: Values of a category.
        places: Number of hash buckets of a category, instead of values.
        fill: Replacement of a missing value, one number per column; with None a missing value is an error.
        indicator: Whether an additional column marks missing values.
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
        """Number of features that the column becomes."""
        own = self.width if self.kind != "category" else self.places or len(self.values or ())
        return own + self.indicator

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
        """Write a column's features into a matrix (rows, ``columns``).

        Raises:
            GraphError: Value that is missing without a replacement, not finite, or of another type.
        """
        import pyarrow as pa

        missing = missing_in(column)
        if self.kind == "category":
            out[:] = 0
            found = self._places_of(column)
            known = np.flatnonzero(found >= 0)
            out[known, found[known]] = 1
            return
        if missing.any() and self.fill is None:
            nulls = column.null_count
            words = "has missing values; fill them, or drop the column or the rows" if nulls else _NAN_WORDS
            raise GraphError(f"column {self.name!r} {words}")
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
        import pyarrow as pa
        import pyarrow.compute as pc

        distinct = [value for value in pc.unique(column).to_pylist() if value is not None]
        names = [text(value) for value in distinct]
        if self.places is None:
            order = {value: place for place, value in enumerate(self.values or ())}
            places = [order.get(name, order.get(name.strip(), -1)) for name in names]
        else:
            # The place of a value, which nothing but its text decides.
            texts = (name.encode("utf-8", "surrogatepass") for name in names)
            hashed = (hashlib.blake2b(one, digest_size=8).digest() for one in texts)
            places = [int.from_bytes(digest, "little") % self.places for digest in hashed]
        found = pc.index_in(column, value_set=pa.array(distinct, type=column.type))
        found = pc.fill_null(found, len(places)).to_numpy(zero_copy_only=False)
        looked_up: npt.NDArray[np.int64] = np.array([*places, -1], dtype=np.int64)[found]
        return looked_up


CONSTANT_FEATURE = ColumnRule(name="(constant)", kind="constant", fill=(1.0,))
NO_FEATURES = (
    "No feature columns: every node gets one constant feature, 1. Accuracy then comes from the edges only, "
    "and a model that reads no edges, such as the no-graph baseline, predicts the most frequent class."
)


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Encoding of a table of nodes as features, column by column.

    Args:
        rules: One rule for each feature column.
        ignored_nodes: Columns of the nodes that have no role.
        ignored_edges: Columns of the edges that are not read.
        unknown_ids: Treatment of edges to unknown nodes.
        nodes_from_edges: Whether nodes were added because an edge names them, which makes their number depend
            on the edges.
        null_values: Words for a missing value, None for the default ones.
        delimiter, decimal: CSV options, None for a comma and a point.
        like_ids: Feature columns that look like identifiers, such as telephone numbers.

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
    like_ids: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What to check about the columns, as sentences."""
        found = [NO_FEATURES] if self.constant else []
        if self.like_ids:
            names, drop = ", ".join(map(repr, self.like_ids)), f"--drop {','.join(self.like_ids)}"
            found.append(
                f"{names}: large whole numbers that all differ. If they are identifiers, add {drop}."
            )
        return tuple(found)

    @property
    def constant(self) -> bool:
        """Whether the nodes have no features but the constant one."""
        return self.rules == (CONSTANT_FEATURE,)

    @property
    def fitted(self) -> tuple[str, ...]:
        """The columns with encoding rules that were computed from all records of the table."""
        return tuple(rule.name for rule in self.rules if rule.fitted)

    def words(self, most: int = 12) -> str:
        """Return which columns are features, and how, for plans."""
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
        words = None if self.null_values is None else list(self.null_values)
        rules = [asdict(rule) for rule in self.rules]
        read = {"null_values": words, "delimiter": self.delimiter, "decimal": self.decimal}
        return {"format": "graphveil-columns", "rules": rules, **read}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Read the output of ``as_plain``.

        Raises:
            ArtifactError: Values of another form.
        """
        try:
            words = plain.get("null_values")
            rules: list[dict[str, Any]] = [
                {name: tuple(value) if isinstance(value, list) else value for name, value in rule.items()}
                for rule in plain["rules"]
            ]
            if any(rule["kind"] not in get_args(Kind) for rule in rules):
                raise ValueError("unknown kind of column")
            return cls(
                rules=tuple(ColumnRule(**rule) for rule in rules),
                null_values=None if words is None else tuple(map(str, words)),
                delimiter=plain.get("delimiter"),
                decimal=plain.get("decimal"),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
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
            raise GraphError(f"column {name!r} has missing values; fill them, or drop the column or the rows")
        parts.append(finite(as_numbers(column, name), name))
    return np.concatenate(parts, axis=1)


def kind_of(kind: Any) -> Kind | None:
    """Return the kind of values of an Arrow type, None if it is not numeric."""
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


def as_numbers(column: Column, name: str) -> npt.NDArray[Any]:
    """Return a column without missing values as a matrix, according to its type."""
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
        raise GraphError(f"column {name!r} has missing values; fill them, or drop the column or the rows")
    return as_numbers(flat, name).reshape(len(column), -1)
