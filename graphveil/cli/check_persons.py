"""``check`` of several tables: who owns a row, what each column is used for, and which unit fits."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphveil.cli.console import Screen
from graphveil.cli.failures import in_options
from graphveil.cli.findings import find_split_problems, likely_label, missing_label_note, show
from graphveil.core.unit import UNITS, Person, Row, is_node_level
from graphveil.data.relational import Tables, check_tables, inspect_persons
from graphveil.data.tables.encoding import Encoding
from graphveil.data.tables.files import as_source
from graphveil.data.tables.ids import RATING_NAMES
from graphveil.data.tables.inspect_tables import ColumnFact, Roles, TableOptions, guess_person_roles
from graphveil.errors import ConfigError, GraphError, UnitError
from graphveil.runs.table_source import TableSpec, date_or_number, in_keys, specs_by_name

if TYPE_CHECKING:
    from graphveil.cli.options import DataOptions
    from graphveil.data.relational import Relation
    from graphveil.data.rows import Rows

_BUDGETS = {Row.name: "1", Person.name: "4"}
_EVENTS = (
    "Unit row protects one row of one table. An event that is stored in k rows costs k times epsilon, so "
    "keep one row for each event, in one table. Rows of one person with the same far end and value "
    "count once."
)


def check_persons(data: "DataOptions", unit: str | None, screen: Screen) -> None:
    """Show how several tables are used, all errors in them, and the suggested command."""
    if data.persons is None or not data.rows:
        raise ConfigError("check needs --persons FILE and --rows FILE to check several tables. Add both.")
    persons = as_source(data.persons, "persons", data.csv_format)
    columns, guessed = guess_person_roles(persons, data)
    specs, catalogs = specs_by_name("--rows", data.rows), specs_by_name("--public", data.public or ())
    for name, spec in specs.items():
        specs[name], guesses = _completed(spec, str(columns.id), catalogs, data)
        guessed += [f"{key} of {name} = {value}" for key, value in guesses.items()]
    mutual = [name for name, spec in specs.items() if spec.keys.get("persons") == "mutual"]
    fits = Row.name if mutual else Person.name
    private = is_node_level(unit or fits)
    given = TableOptions(**_options(columns, classes=data.class_names))
    found = inspect_persons(persons, given, private_records=private)
    problems = list[str]()
    if not given.label and not given.classes:
        roles = Roles(id=str(given.id), source="", target="", split=given.split)
        label = likely_label(persons, roles, data.choices)
        problems = ["No label column is given. Set --label, and replace COLUMN in the suggested command."]
        if label is not None:
            columns, given = replace(columns, label=label), replace(given, label=label)
            found = inspect_persons(persons, given, private_records=private)
            problems = [f"No label column is given. The suggested command takes {label!r}; set --label."]
    problems = [*map(in_options, found.problems), *problems]
    if not problems:
        problems += find_split_problems(found, unit or fits)
    facts, tables = list(found.columns), list["Relation"]()
    for name, spec in specs.items():
        facts += _rows_facts(spec, data)
        try:
            tables.append(_read(name, spec, catalogs, columns, data, unit))
        except (ConfigError, GraphError, UnitError) as error:
            problems.append(in_options(str(error)))
    if data.before is not None and not any("time" in spec.keys for spec in specs.values()):
        problems.append("--before has no effect, because no table names a column with 'time=COLUMN'. Add it.")
    for name, spec in catalogs.items():
        used = [one for one in tables if _catalog_of(specs[one.name]) == name]
        facts += _catalog_facts(spec, name, used, data)
        if not any(_catalog_of(one) == name for one in specs.values()):
            problems.append(
                f"No table of rows uses the catalog {name!r}. Write 'far={name}' or 'catalog={name}'."
            )
    notes = [
        *missing_label_note(found.class_names, columns.classes is not None),
        *Encoding(rules=found.rules, like_ids=tuple(found.like_ids)).notes,
        *_unit_notes(mutual),
        *_notes(specs, data),
    ]
    flags = (found.suggestion or data.choices).flags()
    passes = not found.problems or found.suggestion is not None
    command = shlex.join([*_words(columns, data, specs, unit or fits), *flags]) if passes else None
    show(screen, facts, guessed, problems, notes, command)


def _options(columns: "DataOptions", **more: Any) -> dict[str, Any]:
    names = ("id", "label", "split", "features", "drop", "categories", "missing", "null_values", "delimiter")
    given = {name: getattr(columns, name) for name in (*names, "decimal", "task")} | more
    return {name: value for name, value in given.items() if value is not None}


def _completed(
    spec: TableSpec, id: str, catalogs: Mapping[str, TableSpec], data: "DataOptions"
) -> tuple[TableSpec, dict[str, str]]:
    """Return a table of rows with guessed columns, by their names alone, and the guesses."""
    free = [name for name in _names(spec, data) if name not in spec.keys.values()]
    guesses = dict[str, str]()
    if "owner" not in spec.keys and id in free:
        guesses["owner"] = id
    if "far" not in spec.keys:
        known = [name for name in catalogs if name in free and name != guesses.get("owner")]
        guesses |= {"far": known[0]} if known else {}
    rated = next((name for name in free if name.lower() in RATING_NAMES), None)
    if "value" not in spec.keys and rated is not None:
        guesses |= {"value": rated, "bins": "3|4"}
    return replace(spec, keys={**spec.keys, **guesses}), guesses


def _names(spec: TableSpec, data: "DataOptions") -> list[str]:
    return as_source(spec.table, f"table {spec.name!r}", data.csv_format).names()


def _catalog_of(spec: TableSpec) -> str | None:
    return None if "persons" in spec.keys else spec.keys.get("catalog", spec.keys.get("far"))


def _read(
    name: str,
    spec: TableSpec,
    catalogs: Mapping[str, TableSpec],
    columns: "DataOptions",
    data: "DataOptions",
    unit: str | None,
) -> "Relation":
    """Read one table of rows, with nothing of the persons but their ids."""
    rows: Rows = spec.rows()
    own = {key: one.table for key, one in catalogs.items() if key == _catalog_of(spec)}
    only_ids: dict[str, Any] = {
        "id": columns.id,
        "features": (),
        "classes": ("0", "1"),
        "delimiter": columns.delimiter,
    }
    before = None if rows.time is None else date_or_number(data.before)
    with in_keys():
        unknown = data.unknown_ids or "error"
        graph = Tables(
            data.persons, rows={name: rows}, public=own, before=before, unknown_ids=unknown, **only_ids
        ).graph
    check_tables(graph, unit)
    return graph.relations[0]


def _rows_facts(spec: TableSpec, data: "DataOptions") -> Iterable[ColumnFact]:
    keys = spec.keys
    values = (
        "bins from " + keys["bins"].replace("|", ", ")
        if "bins" in keys
        else "one of " + ", ".join(keys.get("values", "").split("|"))
    )
    far = {"one-sided": "far end: a person, who does not own the row", "mutual": "far end: a person, too"}
    used = {
        keys.get("owner"): "owner: the person whose row it is",
        keys.get("far"): far.get(keys.get("persons", ""), f"far end: an id of catalog {_catalog_of(spec)!r}"),
        keys.get("value"): f"value: {values}",
        keys.get("time"): "time: ignored without --before"
        if data.before is None
        else f"time: before {data.before}",
    }
    for name in _names(spec, data):
        yield ColumnFact(spec.name, name, "", used.get(name, "ignored"))


def _catalog_facts(
    spec: TableSpec, name: str, used: "Iterable[Relation]", data: "DataOptions"
) -> Iterable[ColumnFact]:
    attributes = {column for one in used for column in one.columns}
    for column in _names(spec, data):
        becomes = "public attribute of far ends" if column in attributes else "ignored"
        yield ColumnFact(name, column, "", "public id" if column in (name, "id") else becomes)


def _unit_notes(mutual: list[str]) -> Iterable[str]:
    for unit in (Row, Person):
        if unit is Person and mutual:
            yield (
                f"Unit person does not fit: table {mutual[0]!r} has mutual rows, which are in the records of "
                "two persons. Leave the table out to use unit person."
            )
        else:
            yield f"Unit {unit.name} fits. It protects {unit.covers}. Not protected: {unit.not_covered}."


def _notes(specs: Mapping[str, TableSpec], data: "DataOptions") -> Iterable[str]:
    yield _EVENTS
    shared = Counter(catalog for spec in specs.values() if (catalog := _catalog_of(spec)) is not None)
    for catalog in (name for name, count in shared.items() if count > 1):
        names = " and ".join(repr(name) for name, spec in specs.items() if _catalog_of(spec) == catalog)
        yield f"Tables {names} have the same far ends. If one event is stored in both, leave one table out."
    for name, spec in specs.items():
        if spec.keys.get("persons") == "one-sided":
            yield f"Table {name!r}: you assert that only the owner can enter or remove a row."
        if "far" not in spec.keys:
            yield (
                f"Table {name!r} has no far end, so rows are only counted. To use what they are about, add "
                "'far=COLUMN' and its public list, --public FILE:id=COLUMN."
            )
        if data.before is not None and "time" not in spec.keys:
            yield f"Table {name!r} has no 'time=COLUMN', so --before keeps all of its rows."


def _words(
    columns: "DataOptions", data: "DataOptions", specs: Mapping[str, TableSpec], unit: str
) -> list[str]:
    words = ["graphveil", "train", "relational", "--persons", str(data.persons), "--id", str(columns.id)]
    words += ["--label", columns.label or "COLUMN"]
    for name in ("classes", "task", "split", "before"):
        value = getattr(columns, name)
        words += [] if value is None else [f"--{name}", str(value)]
    words += [word for spec in specs.values() for word in ("--rows", str(spec))]
    words += [word for text in data.public or () for word in ("--public", text)]
    return [*words, "--unit", unit, *(["--epsilon", _BUDGETS.get(unit, "1")] if unit in UNITS else [])]
