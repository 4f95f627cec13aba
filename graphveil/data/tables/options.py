"""The options of tables: how a table of nodes and one of edges are read, from keywords, flags or a fix."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypeAlias, cast

from graphveil._util import checks
from graphveil.data.tables.encoding import REGRESSION, TASKS, ColumnRule, Encoding, text
from graphveil.data.tables.files import COMMAS, DELIMITERS, NULL_VALUES, CsvFormat
from graphveil.errors import ConfigError, GraphError

ERROR, INDICATOR, MEDIAN, CONSTANT = "error", "indicator", "median", "constant="
DROP, ADD = "drop", "add"
UNKNOWN_IDS = (ERROR, DROP, ADD)
MAX_PLACES = 1 << 16
ROLES = ("id", "label", "source", "target", "split", "weight")
CHOICES = ("features", "drop", "categories", "missing", "unknown_ids", "null_values", "delimiter", "decimal")
NOT_OF_PERSONS = ("source", "target", "directed", "node_ids", "weight", "max_weight", "unknown_ids")
NOT_OF_PREPARE = ("node_ids", "weight", "max_weight", "task", "encoding", "aside")
_QUOTES = "'\"`\u2018\u2019\u201c\u201d"

Named: TypeAlias = str | Sequence[str]
Categories: TypeAlias = str | Sequence[str | ColumnRule] | Mapping[str, Sequence[str] | int | None]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    r"""How a table of nodes and a table of edges are read: the keywords of ``read_graph``.

    Lists may be given as text with commas, as on the command line, whose help shows these texts.

    Data:
        id (COLUMN): Column of the node table with node ids.
        label (COLUMN): Column of the node table with labels.
        source (COLUMN): Column of the edge table with the source nodes.
        target (COLUMN): Column of the edge table with the target nodes.
        node_ids (FILE): Table with the public list of node ids, including nodes without a record.
        directed: Treat edges as directed.

    Table columns:
        weight (COLUMN): Column of the edge table with edge weights.
        max_weight: Public upper bound on edge weights. Larger weights are clipped.
        features (COLUMN,...): Comma-separated feature columns. Default: all other columns of the node table.
        drop (COLUMN,...): Comma-separated columns of the node table to ignore.
        categories (COLUMN,...): Comma-separated categorical columns, each with an encoding: NAME='A|B'
            (one-hot, public list of values), NAME=hash:32 (feature hashing), or NAME (one-hot, values from
            the data; not for node-level units).
        missing (RULE): Imputation of missing features: error (default), indicator (0 and an indicator
            column), constant=V, or median (not for node-level units).
        unknown_ids (RULE): Handling of edges with an id that is not in the node table: error (default), drop
            the edge, or add the node (requires --unit none or --node-ids; not for `prepare`).
        null_values (TEXT,...): Comma-separated strings that mark missing values. Default: those of pandas
            (NA, NULL, NaN, None, ...), \N, ? and -.
        delimiter (TEXT): Column separator of CSV files, such as ; or tab. Default: a comma.
        decimal (TEXT): Decimal separator of CSV files, a period (default) or a comma.
        split (COLUMN): Column of the node table with the values train, val and test.
        classes (NAME,...): Comma-separated class labels in order, which are public. Default: the labels in
            the data, which then become public.
        task (TASK): classification, or regression to predict the numbers in the label column. Default:
            classification; a numeric label with many values is then rejected.

    Args:
        encoding: Encoding of another graph to apply to the columns.
        aside: Columns of nodes to leave out of all other roles, if they are there.
    """

    id: str | None = None
    label: str | None = None
    source: str | None = None
    target: str | None = None
    directed: bool = False
    node_ids: Path | None = None
    weight: str | None = None
    max_weight: float | None = None
    features: Named | None = None
    drop: Named | None = None
    categories: Categories | None = None
    missing: str | None = None
    unknown_ids: str | None = None
    null_values: Named | None = None
    delimiter: str | None = None
    decimal: str | None = None
    split: str | None = None
    classes: Named | None = None
    task: str | None = None
    encoding: Encoding | None = None
    aside: Named = ()

    def __post_init__(self) -> None:
        """Read lists, categories and the delimiter, and check each choice."""
        if not isinstance(self.encoding, Encoding | None):
            raise ConfigError(
                "encoding must be the encoding of another graph (graph.encoding). CSV files are read as "
                "UTF-8.",
                parameters=("encoding",),
            )
        parsed: dict[str, Any] = {"aside": names(self.aside, "aside")}
        for name in ("features", "drop", "null_values"):
            if (given := getattr(self, name)) is not None:
                parsed[name] = names(given, name)
        if self.categories is not None:
            parsed["categories"] = _category_rules(self.categories)
        if self.delimiter is not None:
            parsed["delimiter"] = _delimiter(self.delimiter)
        for name, value in parsed.items():
            object.__setattr__(self, name, value)
        if self.decimal is not None:
            checks.one_of((".", ","), decimal=self.decimal)
        for name in ("missing", "unknown_ids"):
            if not isinstance(getattr(self, name), str | None):
                kind = type(getattr(self, name)).__name__
                raise ConfigError(f"{name}= must be a word such as 'error', not a {kind}")
        if self.missing is not None and not self.missing.startswith(CONSTANT):
            checks.one_of((ERROR, INDICATOR, MEDIAN, "constant=V"), missing=self.missing)
        _ = self.constant
        if self.unknown_ids is not None:
            checks.one_of(UNKNOWN_IDS, unknown_ids=self.unknown_ids)
        encoded = [category.name for category in self.category_rules]
        listed = {"features": self.features or (), "drop": self.drop or (), "categories": encoded}
        for what, columns in listed.items():
            if len(set(columns)) < len(columns):
                raise ConfigError(f"{what} names a column twice. Name each column once.")
        both = [name for name in listed["drop"] if name in {*listed["features"], *encoded}]
        if both:
            raise ConfigError(
                f"column {both[0]!r} is listed both in the features and in the columns to drop. Remove it "
                "from one list."
            )

    @classmethod
    def from_keywords(cls, reader: str, given: Mapping[str, Any], others: Collection[str] = ()) -> Self:
        """Return options from the keywords of a reader, which does not have ``others``."""
        known = {part.name for part in fields(cls)} - set(others)
        for name in given:
            if name not in known:
                near = checks.suggestion(name, sorted(known)) or "."
                raise ConfigError(f"{name!r} is no option of {reader}{near}", parameters=(name,))
        for name in ("drop", "categories", "missing", "unknown_ids"):
            if given.get(name, "") is None:
                raise ConfigError(f"{name}= must not be None. Remove it to use its default.")
        return cls(**given)

    def resolved(self) -> TableOptions:
        """Return these options alone; file options that are not set are those of ``encoding``."""
        own = {part.name: getattr(self, part.name) for part in fields(TableOptions)}
        if self.encoding is not None:
            unset = [name for name in ("null_values", "delimiter", "decimal") if own[name] is None]
            own |= {name: getattr(self.encoding, name) for name in unset}
        return TableOptions(**own)

    @property
    def category_rules(self) -> tuple[ColumnRule, ...]:
        return cast(tuple[ColumnRule, ...], self.categories or ())

    @property
    def words(self) -> Sequence[str]:
        """The words for a missing label or feature."""
        return NULL_VALUES if self.null_values is None else self.null_values

    @property
    def csv_format(self) -> CsvFormat:
        """How CSV files are read: as specified, or as those of ``encoding`` were."""
        own = self.resolved()
        return CsvFormat(own.delimiter or COMMAS.delimiter, own.decimal or COMMAS.decimal)

    @property
    def constant(self) -> float | None:
        """The number that replaces missing values, if one was given."""
        if self.missing is None or not self.missing.startswith(CONSTANT):
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

    def of_nodes(self) -> dict[str, str]:
        """Return the columns of nodes by role."""
        named = {"id": self.id, "label": self.label, "split": self.split}
        return {role: name for role, name in named.items() if name is not None}

    def of_edges(self) -> list[str]:
        """Return the columns of edges: the two ends, and the weight if there is one."""
        return [name for name in (self.source, self.target, self.weight) if name is not None]

    def require_labels(self) -> None:
        """Raise an error if there are neither labels nor names of classes."""
        if self.label is None and self.classes is None:
            raise GraphError(
                "The label column is missing. Name it with label= (--label). If the graph is only used "
                "for prediction, pass classes= instead."
            )

    def check_roles(self, required: Collection[str] = ("id", "source", "target")) -> None:
        """Raise an error for a role without the name of a column, and for wrong classes or a wrong task."""
        for role in ROLES:
            name = getattr(self, role)
            if not isinstance(name, str if role in required else str | None):
                raise ConfigError(
                    f"{role}= must be the name of a column (text), not a {type(name).__name__}."
                )
        classes = self.classes
        several = isinstance(classes, Iterable) and getattr(classes, "ndim", 1) == 1
        if classes is not None and (isinstance(classes, str) or not several):
            raise ConfigError(f"classes= must be a list of labels, not a {type(classes).__name__}")
        checks.switch(directed=self.directed)
        if self.task is not None:
            checks.one_of(TASKS, task=self.task)
        if self.task == REGRESSION and classes is not None:
            raise ConfigError(
                "task='regression' predicts a number, so there are no classes. Remove classes=."
            )

    # -- choices as text ----

    def passing(self, fixes: Sequence[Mapping[str, str]], usable: Sequence[str]) -> TableOptions | None:
        """Return options without the problems that some fixes solve; None if no named feature is left."""
        fixed = {name: [fix[name] for fix in fixes if name in fix] for fix in fixes for name in fix}
        dropped, features = fixed.get("features", []), self.features
        if features is not None and set(usable) <= set(dropped):
            return None
        encoded = [category for category in self.category_rules if category.name not in dropped]
        more = fixed.get("drop", []) if features is not None else [*dropped, *fixed.get("drop", [])]
        last = ("missing", "unknown_ids", "decimal")
        changed: dict[str, Any] = {name: fixed[name][-1] for name in last if name in fixed}
        return replace(
            self,
            features=None if features is None else tuple(name for name in features if name not in dropped),
            drop=(*(self.drop or ()), *more),
            categories=(*encoded, *map(category, fixed.get("categories", []))),
            **changed,
        )

    def _chosen(self) -> dict[str, Any]:
        """Return the choices that are not the defaults, each as a text or a list of texts."""
        found = dict[str, Any]()
        for name in CHOICES:
            value = getattr(self, name)
            plain = list(map(str, value)) if isinstance(value, tuple) else value
            if plain not in (None, ERROR) and (plain or name in ("features", "null_values")):
                found[name] = plain
        return found

    def choice_texts(self) -> dict[str, str]:
        """Return the choices as the command line names them.

        >>> TableOptions(drop="a,b", categories={"plan": ["free", "pro"], "country": 32}).choice_texts()
        {'drop': 'a,b', 'categories': 'plan=free|pro,country=hash:32'}
        """
        words = self._chosen()
        if self.delimiter is not None:
            words["delimiter"] = DELIMITERS.get(self.delimiter, self.delimiter)
        return {name: value if isinstance(value, str) else ",".join(value) for name, value in words.items()}

    def flags(self) -> list[str]:
        """Return the choices as flags."""
        texts = self.choice_texts().items()
        return [word for name, text in texts for word in (f"--{name.replace('_', '-')}", text)]

    def keywords(self) -> str:
        """Return the choices as keywords of ``read_graph``.

        >>> TableOptions(drop="a", missing="indicator").keywords()
        "drop=['a'], missing='indicator'"
        """
        return ", ".join(f"{name}={value!r}" for name, value in self._chosen().items())


# -- values of options ----


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


def _category_rules(given: Categories) -> tuple[ColumnRule, ...]:
    if isinstance(given, Mapping):
        return tuple(_category_item(*item) for item in given.items())
    if isinstance(given, tuple) and all(isinstance(one, ColumnRule) for one in given):
        return cast(tuple[ColumnRule, ...], given)
    return tuple(map(parse_category, names(cast(Named, given), "categories")))


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
