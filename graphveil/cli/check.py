"""``check``: how each column of tables is used, all validation errors, and the suggested command."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from graphveil.cli.console import Screen
from graphveil.cli.failures import in_options, suggested_command
from graphveil.cli.options import Tables
from graphveil.core.unit import UNITS, Node, NodeRecord, Person, Row, is_node_level
from graphveil.data.tables.encoding import (
    REGRESSION,
    SINGLE_TRAIN_NODE_MESSAGE,
    UNLABELED,
    Encoding,
    empty_part_message,
    empty_parts,
    has_single_train_node,
)
from graphveil.data.tables.files import FileSource, TableSource, as_source, column
from graphveil.data.tables.ids import ITEMS_HINT, RATING_NAMES, end_of_another_kind
from graphveil.data.tables.inspect_tables import (
    ColumnFact,
    TableInspection,
    edges_file,
    guess_roles,
    inspect_persons,
    inspect_tables,
)
from graphveil.errors import ConfigError, GraphError, UnitError
from graphveil.runs.source import DataOptions
from graphveil.runs.table_source import TableSpec, date_or_number, in_keys, specs_by_name

if TYPE_CHECKING:
    from graphveil.data.relational import Relation

_BUDGETS = {"undirected-edge": "1", "directed-edge": "1", Row.name: "1", Person.name: "4"}
_DEFAULT_UNIT = "undirected-edge"
_MUTUAL_EDGES = (
    "Edges have no direction, so each edge is in the records of both of its nodes, and unit 'node-record' "
    "protects it in one of them. The suggested command has --unit node, which protects a node with all its "
    "edges. If each row is an edge that its source declares, add --directed."
)
_TWO_COMMANDS = (
    "The two ends of a row are of different kinds, such as users and items. To predict labels of users, use "
    "--persons, --rows and --public; `graphveil check` with these options shows how each column is used. To "
    "recommend items, use method recommender. ITEMS.csv is a public table of all items."
)
_EVENTS = (
    "Unit row protects one row of one table. An event that is stored in k rows costs k times epsilon, so "
    "keep one row for each event, in one table. Rows of one person with the same far end and value "
    "count once."
)


@dataclass(frozen=True)
class Findings:
    """What is found in tables: the use of each column, guessed options, errors, notes, and a command."""

    columns: Sequence[ColumnFact]
    guessed: Sequence[str]
    problems: Sequence[str]
    notes: Sequence[str]
    command: str | None


def check(*, data: Tables, unit: str | None = None, json: bool = False) -> None:
    """Show how the columns of tables are used, and all errors in them.

    Id and end columns that are not named are guessed, and the guess is printed.

    Examples:
        graphveil check --nodes nodes.csv --edges edges.csv --label plan
        graphveil check --nodes nodes.csv --edges edges.csv --label plan --unit node-record
    """
    screen = Screen(as_json=json)
    found = _check_persons(data, unit) if data.has_persons else _check_graph(data, unit)
    screen.table(
        ("table", "column", "type", "use"),
        [(fact.table, fact.name, fact.type or "-", fact.becomes) for fact in found.columns],
    )
    screen.print_line("")
    if found.guessed:
        screen.print_line(f"Guessed: {', '.join(found.guessed)}. Set the options if a guess is wrong.")
    for note in found.notes:
        screen.print_paragraph(f"Note: {note}")
    for number, words in enumerate(found.problems, start=1):
        screen.print_paragraph(f"{number}. {words}")
    if not found.problems:
        screen.print_line("No errors found.")
    if found.command is not None:
        screen.print_line("Suggested command:")
        screen.print_line(f"  {found.command}")
    screen.emit_json(vars(found) | {"columns": [vars(fact) for fact in found.columns]})
    if found.problems:
        raise typer.Exit(1)


# -- a graph ---------------------------------------------------------------------------------------------


def _check_graph(data: DataOptions, unit: str | None) -> Findings:
    if data.nodes is None or data.edges is None:
        raise ConfigError(
            "check needs two tables. Add --nodes FILE and --edges FILE, or --persons FILE and --rows FILE."
        )
    private, csv_format = is_node_level(unit), data.csv_format
    nodes = FileSource(data.nodes, csv_format)
    edges = FileSource(edges_file(data.edges), csv_format)
    columns, guessed = guess_roles(nodes, edges, replace(data, classes=data.class_names))
    columns, found, problems = _inspect_labeled(
        nodes, columns, lambda options: inspect_tables(nodes, edges, options, private_records=private)
    )
    unfit = [] if problems else _split_problems(found, unit or _DEFAULT_UNIT)
    problems += unfit
    command, notes = None, _label_notes(found, columns)
    in_two_records = unit == NodeRecord.name and not columns.directed
    if columns.classes is not None and private:
        notes.append(
            "Labels that are spelled otherwise than in --classes count as missing. Unit "
            f"{unit!r} protects labels, so this is not reported."
        )
    as_written = replace(columns, classes=data.classes)
    id, source, target = map(str, (columns.id, columns.source, columns.target))
    other = end_of_another_kind(id, nodes.title, source, target)
    if other is not None or any(ITEMS_HINT in problem for problem in found.problems):
        command = suggested_command(_items_words(as_written, edges.names()), [])
        notes.append(_TWO_COMMANDS)
    elif not unfit and (not found.problems or found.suggestion is not None):
        flags = (found.suggestion or data).flags()
        command = suggested_command(_training_words(as_written, Node.name if in_two_records else unit), flags)
        notes += [_MUTUAL_EDGES] * in_two_records
    notes += Encoding(rules=found.rules).notes
    if not problems and (scaled := _scaled(found, private=private)):
        learned = " With enough training nodes a fit learns the ranges of columns instead." if private else ""
        notes.append(f"Scaling: {scaled}.{learned}")
    return Findings(found.columns, guessed, problems, notes, command)


def _items_words(columns: DataOptions, names: Sequence[str]) -> list[str]:
    """Return the command for users and items: of the label of a user, or else of the items of a user."""
    rated = next((name for name in names if name.lower() in RATING_NAMES), None)
    if columns.label is None:
        words = ["train", "recommender", *_flags(columns, "nodes", "id", "edges", "source", "target")]
        words += ["--items", "ITEMS.csv", "--unit", "node-record", "--epsilon", "4"]
        return words + (["--rating", rated, "--min-rating", "4"] if rated else [])
    value = "" if rated is None else f",value={rated},bins=3|4"
    words = [
        "train",
        "relational",
        "--persons",
        str(columns.nodes),
        *_flags(columns, "id", "label", "classes"),
    ]
    words += ["--rows", f"{columns.edges}:owner={columns.source},far={columns.target}{value}"]
    return [*words, "--public", f"ITEMS.csv:id={columns.target}", "--unit", "person", "--epsilon", "4"]


def _training_words(columns: DataOptions, unit: str | None) -> list[str]:
    unit = unit or _DEFAULT_UNIT
    method = "gap" if columns.task == REGRESSION else "gcn" if unit == "none" else "classcode"
    named = ("nodes", "edges", "id", "label", "task", "source", "target", "split", "weight", "max_weight")
    words = ["train", method, *_flags(replace(columns, label=columns.label or "COLUMN"), *named)]
    words += ["--unit", unit, *(["--epsilon", _BUDGETS.get(unit, "8")] if unit != "none" else [])]
    return words + ["--directed"] * columns.directed + _flags(columns, "classes", "node_ids")


def _flags(columns: DataOptions, *names: str) -> list[str]:
    given = {name: getattr(columns, name) for name in names}
    pairs = (
        (f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None
    )
    return [word for pair in pairs for word in pair]


def _scaled(found: TableInspection, *, private: bool) -> str:
    import torch

    from graphveil.estimators.features.scaling import FeatureScaling

    names = [rule.name for rule in found.rules for _ in range(rule.columns)]
    if private:
        return FeatureScaling.from_public_ranges({}, dense=True).words(names)
    return FeatureScaling.from_public_features(torch.from_numpy(found.matrix())).words(names)


# -- labels and parts of a table of nodes or persons -----------------------------------------------------

_MOST_CLASSES = 20  # of a column that may be a label
_LABEL_WORDS = re.compile(
    "label|class|y|target|risk|churn(ed)?|fraud|outcome|segment|default(ed)?|status|group|team|community|"
    "category|department|topic|subject|illicit"
)
_MISSING_LABELS = re.compile(
    "unknown|unlabell?ed|undefined|missing|unspecified|unclassified|undetermined|na|n\\.?/?a\\.?|none|null|nil|"
    "nan|tbd|\\?+|-+|-1|-9+|9999?|not (available|known)|no label"
)


def _inspect_labeled(
    table: TableSource, columns: DataOptions, inspect: Callable[[DataOptions], TableInspection]
) -> tuple[DataOptions, TableInspection, list[str]]:
    """Inspect tables, with the most likely column of labels if none is named; return also all errors."""
    if columns.label or columns.classes:
        found = inspect(columns)
        return columns, found, [*map(in_options, found.problems)]
    columns = replace(columns, label=_likely_label(table, columns))
    found = inspect(columns)
    words = "Set --label, and replace COLUMN in the suggested command."
    if columns.label is not None:
        words = f"The suggested command takes {columns.label!r}; set --label for another column."
    return columns, found, [*map(in_options, found.problems), f"No label column is given. {words}"]


def _likely_label(nodes: TableSource, columns: DataOptions) -> str | None:
    """Return the column that most looks like a label: a usual name, else text or bools of few values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    taken = {columns.id, columns.split, *(columns.drop or ()), *(columns.features or ())}
    taken |= {category.name for category in columns.category_rules}
    names = [name for name in nodes.names() if name not in taken]
    table = nodes.read(names, {}, columns.words)
    found = []
    for name in names:
        try:
            values = column(table, name).drop_null()
        except GraphError:
            continue
        kind, distinct = values.type, len(pc.unique(values))
        text, whole = pa.types.is_large_string(kind), pa.types.is_integer(kind)
        if not 2 <= distinct <= _MOST_CLASSES or 2 * distinct > len(values):
            continue
        if not (text or pa.types.is_boolean(kind) or whole):
            continue
        words = set(re.findall("[a-z]+", name.lower()))
        rank = 0 if any(map(_LABEL_WORDS.fullmatch, words)) else 1 if text else 2 if distinct == 2 else 3
        if rank < 3:
            found.append((rank, name))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _label_notes(found: TableInspection, columns: DataOptions) -> list[str]:
    """Return a note on a class that is named like a missing label."""
    names = found.class_names
    odd = [name for name in names if _MISSING_LABELS.fullmatch(name.strip().lower())]
    if not odd or columns.classes is not None or len(names) - len(odd) < 2:
        return []
    real = [name for name in names if name not in odd]
    how = f"--classes {','.join(real)}" if len(real) <= 8 else f"--null-values {','.join(odd)}"
    return [f"Label {odd[0]!r} is read as a class. If it means that the label is missing, add {how}."]


def _split_problems(found: TableInspection, unit: str) -> list[str]:
    """Return why training would reject the split; for secret labels only the members are counted."""
    assert found.y is not None
    if not is_node_level(unit):
        labeled = found.y != UNLABELED
        empty = [empty_part_message(part) for part in empty_parts(found.parts, labeled)]
        return empty or [SINGLE_TRAIN_NODE_MESSAGE] * has_single_train_node(found.parts, labeled)
    if found.parts is None:
        return []  # ids decide, and a part without members is unlikely
    members = np.ones(found.rows, dtype=bool)
    return [empty_part_message(part) for part in empty_parts(found.parts, members) if part != "val"]


# -- several tables --------------------------------------------------------------------------------------


def _check_persons(data: DataOptions, unit: str | None) -> Findings:
    if data.persons is None or not data.rows:
        raise ConfigError("check needs --persons FILE and --rows FILE to check several tables. Add both.")
    persons = as_source(data.persons, "persons", data.csv_format)
    columns, guessed = guess_roles(persons, None, replace(data, classes=data.class_names))
    specs, catalogs = specs_by_name("--rows", data.rows), specs_by_name("--public", data.public or ())
    for name, spec in specs.items():
        guesses = _guessed_keys(spec, str(columns.id), catalogs, data)
        specs[name] = replace(spec, keys={**spec.keys, **guesses})
        guessed += [f"{key} of {name} = {value}" for key, value in guesses.items()]
    mutual = [name for name, spec in specs.items() if spec.keys.get("persons") == "mutual"]
    chosen = unit or (Row.name if mutual else Person.name)
    private = is_node_level(chosen)
    columns, found, problems = _inspect_labeled(
        persons, columns, lambda options: inspect_persons(persons, options, private_records=private)
    )
    if not problems:
        problems += _split_problems(found, chosen)
    facts, tables = list(found.columns), list["Relation"]()
    for name, spec in specs.items():
        facts += _rows_facts(spec, data)
        try:
            tables.append(_read(name, spec, catalogs, columns, unit))
        except (ConfigError, GraphError, UnitError) as error:
            problems.append(in_options(str(error)))
    if data.before is not None and not any("time" in spec.keys for spec in specs.values()):
        problems.append("--before has no effect, because no table names a column with 'time=COLUMN'. Add it.")
    for name, spec in catalogs.items():
        attributes = {
            one for table in tables if _catalog_of(specs[table.name]) == name for one in table.columns
        }
        for one in _names(spec, data):
            becomes = "public attribute of far ends" if one in attributes else "ignored"
            facts.append(ColumnFact(name, one, "", "public id" if one in (name, "id") else becomes))
        if not any(_catalog_of(one) == name for one in specs.values()):
            problems.append(
                f"No table of rows uses the catalog {name!r}. Write 'far={name}' or 'catalog={name}'."
            )
    notes = [
        *_label_notes(found, columns),
        *Encoding(rules=found.rules).notes,
        *_notes(specs, mutual, data),
    ]
    command = None
    if not found.problems or found.suggestion is not None:
        named = ("persons", "id", "label", "classes", "task", "split", "before")
        as_written = replace(columns, classes=data.classes, label=columns.label or "COLUMN")
        words = ["graphveil", "train", "relational", *_flags(as_written, *named)]
        words += [word for spec in specs.values() for word in ("--rows", str(spec))]
        words += [word for text in data.public or () for word in ("--public", text)]
        words += ["--unit", chosen, *(["--epsilon", _BUDGETS.get(chosen, "1")] if chosen in UNITS else [])]
        command = shlex.join([*words, *(found.suggestion or data).flags()])
    return Findings(facts, guessed, problems, notes, command)


def _guessed_keys(
    spec: TableSpec, id: str, catalogs: Mapping[str, TableSpec], data: DataOptions
) -> dict[str, str]:
    """Return guessed columns of a table of rows, by their names alone."""
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
    return guesses


def _names(spec: TableSpec, data: DataOptions) -> list[str]:
    return as_source(spec.table, f"table {spec.name!r}", data.csv_format).names()


def _catalog_of(spec: TableSpec) -> str | None:
    return None if "persons" in spec.keys else spec.keys.get("catalog", spec.keys.get("far"))


def _read(
    name: str, spec: TableSpec, catalogs: Mapping[str, TableSpec], data: DataOptions, unit: str | None
) -> "Relation":
    """Read one table of rows, with nothing of the persons but their ids."""
    from graphveil.data import Tables as PersonTables
    from graphveil.data.relational import check_tables

    rows = spec.rows()
    own = {key: one.table for key, one in catalogs.items() if key == _catalog_of(spec)}
    only_ids: dict[str, Any] = {
        "id": data.id,
        "features": (),
        "classes": ("0", "1"),
        "delimiter": data.delimiter,
    }
    before = None if rows.time is None else date_or_number(data.before)
    with in_keys():
        unknown = data.unknown_ids or "error"
        graph = PersonTables(
            data.persons, rows={name: rows}, public=own, before=before, unknown_ids=unknown, **only_ids
        ).graph
    check_tables(graph, unit)
    return graph.relations[0]


def _rows_facts(spec: TableSpec, data: DataOptions) -> Iterable[ColumnFact]:
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


def _notes(specs: Mapping[str, TableSpec], mutual: Sequence[str], data: DataOptions) -> Iterable[str]:
    for unit in (Row, Person):
        if unit is Person and mutual:
            yield (
                f"Unit person does not fit: table {mutual[0]!r} has mutual rows, which are in the records of "
                "two persons. Leave the table out to use unit person."
            )
        else:
            yield f"Unit {unit.name} fits. It protects {unit.covers}. Not protected: {unit.not_covered}."
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
