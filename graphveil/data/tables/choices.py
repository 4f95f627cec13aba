"""What a caller chooses about the columns of two tables: public, frozen, and spelt as the command's flags."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphveil._util import checks
from graphveil.data.tables.files import COMMAS, DELIMITERS, NULL_VALUES, CsvFormat
from graphveil.errors import ConfigError

REFUSE, INDICATOR, MEDIAN, CONSTANT = "refuse", "indicator", "median", "constant="
DROP, ADD = "drop", "add"
UNKNOWN_IDS = (REFUSE, DROP, ADD)
MAX_PLACES = 1 << 16

Named: TypeAlias = str | Sequence[str]
Categories: TypeAlias = str | Sequence[str] | Mapping[str, Sequence[str] | int | None]


@dataclass(frozen=True, kw_only=True)
class Category:
    """A column of categories: its values one by one, hashed into places, or as they occur in the table.

    >>> Category.parse("plan=free|pro"), str(Category.parse("country=hash:32"))
    (Category(name='plan', values=('free', 'pro'), places=None), 'country=hash:32')
    """

    name: str
    values: tuple[str, ...] | None = None
    places: int | None = None

    def __post_init__(self) -> None:
        """Refuse an empty or repeated list, and a number of places that is none."""
        if self.values is not None and (not self.values or len(set(self.values)) < len(self.values)):
            raise ConfigError(
                f"categories: the list of {self.name!r} is empty or names a value twice; write "
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
                f"categories {text!r} is not understood; write column, column=a|b|c or column=hash:32"
            )
        if colon and kind == "hash":
            if not number.isascii() or not number.isdigit():
                raise ConfigError(f"categories {text!r} needs a number of places; write {name}=hash:32")
            return cls(name=name, places=int(number))
        return cls(name=name, values=tuple(rest.split("|")) if equals else None)

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        if self.places is not None:
            return f"{self.name}=hash:{self.places}"
        return self.name if self.values is None else f"{self.name}={'|'.join(self.values)}"


@dataclass(frozen=True, kw_only=True)
class EncodingOptions:
    """Which columns become features, how, and what becomes of edges to unknown nodes.

    Args:
        features: the feature columns; None for all that have no other role.
        drop: columns that are no features.
        categories: columns that are one-hot.
        missing: ``"refuse"``, ``"indicator"`` (0 and a column that says so), ``"constant=V"`` or ``"median"``
            (read from the table, so for edge units alone).
        unknown_ids: ``"refuse"``, ``"drop"`` such edges, or ``"add"`` their nodes.
        null_values: the words for a missing label or feature; None for ``files.NULL_VALUES``. An empty field
            is always missing.
        delimiter, decimal: what stands between the columns of both tables, if they are CSV files, and before
            the decimals of a number; None for a comma and a point.
    """

    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    categories: tuple[Category, ...] = ()
    missing: str = REFUSE
    unknown_ids: str = REFUSE
    null_values: tuple[str, ...] | None = None
    delimiter: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        """Refuse words that are not known, and columns that are named twice."""
        if self.delimiter is not None:
            object.__setattr__(self, "delimiter", _delimiter(self.delimiter))
        if self.decimal is not None:
            checks.one_of((".", ","), decimal=self.decimal)
        for name in ("missing", "unknown_ids"):
            if not isinstance(getattr(self, name), str):
                kind = type(getattr(self, name)).__name__
                raise ConfigError(f"{name}= must be a word such as 'refuse', not a {kind}")
        if not self.missing.startswith(CONSTANT):
            checks.one_of((REFUSE, INDICATOR, MEDIAN, "constant=V"), missing=self.missing)
        _ = self.constant
        checks.one_of(UNKNOWN_IDS, unknown_ids=self.unknown_ids)
        for what, names in (
            ("features", self.features or ()),
            ("drop", self.drop),
            ("categories", [category.name for category in self.categories]),
        ):
            if len(set(names)) < len(names):
                raise ConfigError(f"{what} names a column twice; name each once")
        both = [name for name in self.drop if name in {*(self.features or ()), *self._encoded}]
        if both:
            raise ConfigError(f"column {both[0]!r} is dropped and wanted; keep it in one list")

    @classmethod
    def from_arguments(
        cls,
        features: Named | None = None,
        drop: Named = (),
        categories: Categories = (),
        missing: str = REFUSE,
        unknown_ids: str = REFUSE,
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
            features=None if features is None else _names(features, "features"),
            drop=_names(drop, "drop"),
            categories=_categories(categories),
            missing=missing,
            unknown_ids=unknown_ids,
            null_values=None if null_values is None else _names(null_values, "null_values"),
            delimiter=delimiter,
            decimal=decimal,
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The words for a missing label or feature."""
        return NULL_VALUES if self.null_values is None else self.null_values

    @property
    def csv_format(self) -> CsvFormat:
        """How CSV files are read."""
        return CsvFormat(self.delimiter or COMMAS.delimiter, self.decimal or COMMAS.decimal)

    @property
    def constant(self) -> float | None:
        """What takes the place of a missing number, where that was said."""
        if not self.missing.startswith(CONSTANT):
            return None
        try:
            value = float(self.missing.removeprefix(CONSTANT))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(f"missing={self.missing!r} needs a finite number: missing='constant=0'")
        return value

    @property
    def _encoded(self) -> dict[str, Category]:
        return {category.name: category for category in self.categories}

    def category(self, name: str) -> Category | None:
        """Return how a column is encoded, if it is one of categories."""
        return self._encoded.get(name)

    def flags(self) -> list[str]:
        """Return the flags that say this."""
        words = {
            "--features": None if self.features is None else ",".join(self.features),
            "--drop": ",".join(self.drop),
            "--categories": ",".join(map(str, self.categories)),
            "--missing": "" if self.missing == REFUSE else self.missing,
            "--unknown-ids": "" if self.unknown_ids == REFUSE else self.unknown_ids,
            "--delimiter": self.delimiter and DELIMITERS.get(self.delimiter, self.delimiter),
            "--decimal": self.decimal,
        }
        given = [word for flag, value in words.items() if value for word in (flag, value)]
        return given if self.null_values is None else [*given, "--null-values", ",".join(self.null_values)]

    def keywords(self) -> str:
        """Return the keywords of ``read_graph`` that say this.

        >>> EncodingOptions.from_arguments(drop="a", missing="indicator").keywords()
        "drop=['a'], missing='indicator'"
        """
        words: dict[str, object] = {
            "features": None if self.features is None else list(self.features),
            "drop": list(self.drop),
            "categories": list(map(str, self.categories)),
            "missing": "" if self.missing == REFUSE else self.missing,
            "unknown_ids": "" if self.unknown_ids == REFUSE else self.unknown_ids,
            "delimiter": self.delimiter,
            "decimal": self.decimal,
        }
        if self.null_values is not None:
            words["null_values"] = [*self.null_values] or [""]
        return ", ".join(f"{name}={value!r}" for name, value in words.items() if value)


def _delimiter(given: object) -> str:
    """Return the one character of a delimiter, which flags may call ``tab``.

    >>> _delimiter("tab"), _delimiter(";")
    ('\\t', ';')
    """
    text = {"tab": "\t", "\\t": "\t"}.get(given, given) if isinstance(given, str) else given
    plain = isinstance(text, str) and len(text) == 1 and text.isascii()
    if not isinstance(text, str) or not plain or text.isalnum() or text in "\"'\r\n.+-":
        raise ConfigError(
            f"delimiter={given!r} (--delimiter) is no separator of columns: use one character such as ';' or "
            "'|', or 'tab'"
        )
    return text


def _names(given: Named, what: str = "columns") -> tuple[str, ...]:
    """Return names from a list of them, or from a text with commas."""
    if isinstance(given, str):
        found = tuple(name for part in given.split(",") if (name := part.strip()))
        if not found and given.strip():
            raise ConfigError(
                f"{what}={given!r} (--{what.replace('_', '-')}) is a list of empty items. Write a,b,c, or "
                "leave it out."
            )
        return found
    names = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{what} must be text with commas, or a list of text; got {type(given).__name__}")
    return tuple(map(str, names))


def _categories(given: Categories) -> tuple[Category, ...]:
    if isinstance(given, Mapping):
        return tuple(_category(name, how) for name, how in given.items())
    return tuple(map(Category.parse, _names(given, "categories")))


def _category(name: str, how: Sequence[str] | int | None) -> Category:
    if isinstance(how, str | bool) or not isinstance(how, Iterable | int | None):
        raise ConfigError(f"categories[{name!r}] must be a list of values, a number of places, or None")
    if how is None or isinstance(how, int):
        return Category(name=name, places=how)
    return Category(name=name, values=tuple(map(str, how)))
