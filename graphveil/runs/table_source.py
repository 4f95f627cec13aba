"""Tables of persons and of their rows on the command line: ``ratings.csv:owner=user,far=movie``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil._util import checks
from graphveil._util.escape import without_password
from graphveil.errors import ConfigError, GraphError

if TYPE_CHECKING:
    from graphveil.data.rows import Rows

_COLUMNS = ("owner", "far", "catalog", "value", "bins", "values", "time", "persons")
_SPECS = {"--rows": (*_COLUMNS, "name"), "--public": ("id",)}
EXAMPLES = {
    "--rows": "--rows ratings.csv:owner=user,far=movie,value=stars,bins=3|4",
    "--public": "--public movies.csv:id=movie",
}
_FIRST_KEY = re.compile(r":(?=[\w-]*=)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# How Python writes what a table is given with; the first is that of another option.
_IN_PYTHON = re.compile(
    r"public=\{'(?P<public>[^']*)': ids\}"
    rf"|\b(?P<key>{'|'.join(_COLUMNS)})=(?P<value>'[^']*'|\[[^\]]*\])?(?=[ ,.])"
)


@dataclass(frozen=True)
class TableSpec:
    """One table of rows, or one catalog, as it is written on the command line.

    Args:
        flag: Option that it is a value of.
        table: File, or ``URL#TABLE`` of a database.
        keys: Column or value of each key.

    >>> TableSpec.parse("--rows", "shop/ratings.csv:owner=user,bins=3|4")
    TableSpec(flag='--rows', table='shop/ratings.csv', keys={'owner': 'user', 'bins': '3|4'})
    >>> TableSpec.parse("--rows", "sqlite:///shop.db#orders:owner=user").name
    'orders'
    """

    flag: str
    table: str
    keys: Mapping[str, str]

    @classmethod
    def parse(cls, flag: str, text: str) -> "TableSpec":
        """Read one value; an error names the part that is wrong."""
        start = max(0, text.find("#")) if "://" in text else 0  # a URL has colons of its own
        colon = _FIRST_KEY.search(text, start)
        table, rest = (text, "") if colon is None else (text[: colon.start()], text[colon.end() :])
        spec, example = without_password(f"{flag} {table}"), f"Example: {EXAMPLES[flag]}."
        keys = dict[str, str]()
        for part in rest.split(",") if rest else ():
            key, _, value = part.partition("=")
            if not value:
                raise ConfigError(f"{spec}: {part!r} has no value. Write KEY=VALUE. {example}")
            if key not in _SPECS[flag]:
                near = checks.suggestion(key, _SPECS[flag]) or "."
                raise ConfigError(f"{spec}: {key!r} is no key{near} Keys: {', '.join(_SPECS[flag])}.")
            if key in keys:
                raise ConfigError(f"{spec}: {key!r} is given twice. Keep one.")
            keys[key] = value
        if not table:
            raise ConfigError(f"{flag} {text!r} has no file before the colon. {example}")
        if "://" in table and not table.partition("#")[2]:
            raise ConfigError(f"{spec} names no table of the database. Write URL#TABLE:{rest}.")
        return cls(flag, table, keys)

    def __str__(self) -> str:
        keys = ",".join(f"{key}={value}" for key, value in self.keys.items())
        return f"{self.table}:{keys}" if keys else self.table

    @property
    def name(self) -> str:
        """The name of a table of rows, or of a catalog."""
        own = self.keys.get("name") if self.flag == "--rows" else self.keys.get("id", "id")
        if own is not None and (self.flag, own) != ("--public", "id"):
            return own
        return table_name(self.table)

    def rows(self) -> "Rows":
        """Return the table with its columns.

        Raises:
            ConfigError: If a key is missing, or its value is invalid.
        """
        from graphveil.data.rows import Rows

        keys: dict[str, Any] = {key: value for key, value in self.keys.items() if key != "name"}
        if "owner" not in keys:
            raise ConfigError(
                f"{without_password(f'{self.flag} {self.table}')} does not state who owns a row. Add "
                f"owner=COLUMN. Example: {EXAMPLES[self.flag]}."
            )
        if "bins" in keys:
            try:
                keys["bins"] = [float(number) for number in keys["bins"].split("|")]
            except ValueError:
                raise ConfigError(
                    f"--rows {self.table}: 'bins={keys['bins']}' must be numbers between bars. "
                    "Example: 'bins=3|4'."
                ) from None
        if "values" in keys:
            keys["values"] = keys["values"].split("|")
        with in_keys(f"Table {self.name!r}: "):
            return Rows(self.table, **keys)


def table_name(table: str) -> str:
    """Return the stem of a file, or the name of a table of a database.

    >>> table_name("shop/ratings.csv.gz"), table_name("sqlite:///shop.db#orders")
    ('ratings', 'orders')
    """
    return table.rpartition("#")[2] if "://" in table else Path(table).name.partition(".")[0]


@contextmanager
def in_keys(prefix: str = "") -> Iterator[None]:
    """Write keys of tables in error messages as on the command line, and not as in Python.

    >>> with in_keys("Table 'a': "): raise ConfigError("Pass bins=[3, 4], or public={'movie': ids}.")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: Table 'a': Pass 'bins=3|4', or --public FILE:id=movie.
    """

    def spelled(match: re.Match[str]) -> str:
        if match["public"] is not None:
            return f"--public FILE:id={match['public']}"
        items = (item.strip().strip("'") for item in (match["value"] or "").strip("[]").split(","))
        return f"'{match['key']}={'|'.join(items)}'"

    try:
        yield
    except (ConfigError, GraphError) as error:
        if type(error) not in (ConfigError, GraphError):
            raise
        raise type(error)(prefix + _IN_PYTHON.sub(spelled, str(error))) from None


def specs_by_name(flag: str, texts: Sequence[str]) -> dict[str, TableSpec]:
    """Return tables by name.

    Raises:
        ConfigError: If two have the same name.
    """
    found = dict[str, TableSpec]()
    for text in texts:
        spec = TableSpec.parse(flag, text)
        if spec.name in found:
            own = "Add name=NAME to one" if flag == "--rows" else "Rename the id column of one"
            raise ConfigError(f"{flag}: two tables are called {spec.name!r}. {own}.")
        found[spec.name] = spec
    return found


def with_keys_of(trained: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return tables of rows in the order of the training; keys that are not given are those of the training.

    >>> with_keys_of(["a.csv:owner=x", "b.csv:owner=y,far=z"], ["new/b.csv:far=w", "new/a.csv"])
    ['new/a.csv:owner=x', 'new/b.csv:owner=y,far=w']
    """
    known, found = specs_by_name("--rows", trained), specs_by_name("--rows", texts)
    order = sorted(found, key=lambda name: [*known].index(name) if name in known else len(known))
    keys = {
        name: {**known[name].keys, **one.keys} if name in known else one.keys for name, one in found.items()
    }
    return [str(replace(found[name], keys=keys[name])) for name in order]


def date_or_number(text: str | None) -> str | int | float | None:
    """Return a date as text, and a number, such as a time stamp, as a number.

    >>> date_or_number("2024-06-01"), date_or_number("978300760"), date_or_number(None)
    ('2024-06-01', 978300760, None)
    """
    if text is None or not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)
