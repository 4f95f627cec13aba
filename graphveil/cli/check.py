"""``check``: how each column of two tables is used, all validation errors, and the suggested command."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import in_options, suggested_command
from graphveil.cli.options import ColumnOptions, TableOptions, grouped
from graphveil.data.tables.labels import (
    REGRESSION,
    SINGLE_TRAIN_NODE_MESSAGE,
    UNLABELED,
    Task,
    empty_part_message,
    empty_parts,
    has_single_train_node,
)
from graphveil.errors import ConfigError, GraphError

if TYPE_CHECKING:
    from graphveil.data.tables.encoding import EncodingOptions
    from graphveil.data.tables.files import TableSource
    from graphveil.data.tables.inspect_tables import ColumnFact, Roles, TableInspection

_BUDGET = {"undirected-edge": ["--epsilon", "1"], "directed-edge": ["--epsilon", "1"]}
_DEFAULT_UNIT = "undirected-edge"
_MOST_CLASSES = 20  # of a column that may be a label
_LABEL_WORDS = re.compile(
    "label|class|y|target|risk|churn(ed)?|fraud|outcome|segment|default(ed)?|status|group|team|community|"
    "category|department|topic|subject|illicit"
)
_MISSING_LABELS = re.compile(
    "unknown|unlabell?ed|undefined|missing|unspecified|unclassified|undetermined|na|n\\.?/?a\\.?|none|null|nil|"
    "nan|tbd|\\?+|-+|-1|-9+|9999?|not (available|known)|no label"
)


@grouped
def check(
    tables: TableOptions, columns: ColumnOptions, unit: options.Unit = None, json: options.Json = False
) -> None:
    """Show how the columns of two tables are used, and all errors in them.

    Id and end columns that are not named are guessed, and the guess is printed.
    """
    from graphveil.data.tables.edges import end_of_another_kind
    from graphveil.data.tables.encoding import ERROR, Encoding, EncodingOptions
    from graphveil.data.tables.files import FileSource
    from graphveil.data.tables.inspect_tables import edges_file, guess_roles, inspect_tables, listed_ids

    screen, nodes, edges = Screen(as_json=json), tables.nodes, tables.edges
    if nodes is None or edges is None:
        raise ConfigError("check needs two tables. Add --nodes FILE and --edges FILE.")
    choices = EncodingOptions.from_arguments(
        columns.features,
        columns.drop or (),
        columns.categories or (),
        columns.missing or ERROR,
        columns.unknown_ids or ERROR,
        columns.null_values,
        columns.delimiter,
        columns.decimal,
    )
    named = {name: getattr(columns, name) for name in ("id", "label", "source", "target", "split")}
    node_source = FileSource(nodes, choices.csv_format)
    edge_source = FileSource(edges_file(edges), choices.csv_format)
    roles, guessed = guess_roles(node_source, edge_source, {**named, "weight": tables.weight})
    roles = replace(roles, task=cast(Task | None, columns.task))
    roles.check(columns.class_names)

    def inspected(roles: "Roles") -> "TableInspection":
        return inspect_tables(
            node_source,
            edge_source,
            roles,
            choices,
            classes=columns.class_names,
            listed=listed_ids(tables.node_ids, roles.id, choices.csv_format),
            private_records=(unit or "").startswith("node-"),
        )

    found, unlabeled = inspected(roles), ""
    if not roles.label and not columns.classes:
        unlabeled = "No label column is given. Set --label, and replace COLUMN in the suggested command."
        likely = _likely_label(node_source, roles, choices)
        if likely is not None and (retried := inspected(replace(roles, label=likely))).class_names:
            found, roles = retried, replace(roles, label=likely)
            unlabeled = (
                f"No label column is given. The suggested command takes {likely!r}; set --label for another "
                "column."
            )
    problems = [*map(in_options, found.problems), *filter(None, [unlabeled])]
    unfit = [] if problems else _find_split_problems(found, unit or _DEFAULT_UNIT)
    problems += unfit
    command = None
    notes_on_labels = _missing_label_note(found.class_names, columns.classes is not None)
    private = (unit or "").startswith("node-")
    if columns.classes is not None and private:
        notes_on_labels.append(
            "Labels that are spelled otherwise than in --classes count as missing. Unit "
            f"{unit!r} protects labels, so this is not reported."
        )
    if end_of_another_kind(roles.id, node_source.title, roles.source, roles.target) is not None:
        command = suggested_command(_recommender_words(tables, roles, edge_source.names()), [])
    elif not unfit and (not found.problems or found.suggestion is not None):
        flags = (found.suggestion or choices).flags()
        command = suggested_command(_training_words(tables, columns, roles, unit), flags)
    notes = (*notes_on_labels, *Encoding(rules=found.rules, like_ids=tuple(found.like_ids)).notes)
    if not problems and (scaled := _scaled(found, private=private)):
        learned = " With enough training nodes a fit learns the ranges of columns instead." if private else ""
        notes = (*notes, f"Scaling: {scaled}.{learned}")
    _show(screen, found.columns, guessed, problems, notes, command)


def _likely_label(nodes: "TableSource", roles: "Roles", choices: "EncodingOptions") -> str | None:
    """Return the column that most looks like a label: a usual name, else text or bools of few values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from graphveil.data.tables.files import column

    taken = {*roles.of_nodes.values(), *choices.drop, *(choices.features or ())}
    taken |= {category.name for category in choices.categories}
    names = [name for name in nodes.names() if name not in taken]
    table = nodes.read(names, {}, choices.words)
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


def _missing_label_note(names: Sequence[str], named: bool) -> list[str]:
    """Return a note on a class that looks like a missing label."""
    odd = [name for name in names if _MISSING_LABELS.fullmatch(name.strip().lower())]
    if not odd or named or len(names) - len(odd) < 2:
        return []
    real = [name for name in names if name not in odd]
    how = f"--classes {','.join(real)}" if len(real) <= 8 else f"--null-values {','.join(odd)}"
    return [f"Label {odd[0]!r} is read as a class. If it means that the label is missing, add {how}."]


def _recommender_words(tables: TableOptions, roles: "Roles", names: Sequence[str]) -> list[str]:
    """Return the command that trains a recommender on the lists, as words."""
    from graphveil.data.interactions import RATING_NAMES

    rated = next((name for name in names if name.lower() in RATING_NAMES), None)
    words = ["train", "recommender", "--nodes", str(tables.nodes), "--id", roles.id]
    words += ["--edges", str(tables.edges), "--source", roles.source, "--target", roles.target]
    words += ["--items", "ITEMS.csv", "--unit", "node-record", "--epsilon", "4"]
    return words + (["--rating", rated, "--min-rating", "4"] if rated else [])


def _scaled(found: "TableInspection", *, private: bool) -> str:
    """Return which columns a fit scales, as shown in the plan."""
    import torch

    from graphveil.estimators.features.scaling import FeatureScaling

    names = [rule.name for rule in found.rules for _ in range(rule.columns)]
    if private:
        return FeatureScaling.from_public_ranges({}, dense=True).words(names)
    return FeatureScaling.from_public_features(torch.from_numpy(found.matrix())).words(names)


def _find_split_problems(found: "TableInspection", unit: str) -> list[str]:
    """Return why training would reject the split; for secret labels only the members are counted."""
    assert found.y is not None
    if not unit.startswith("node-"):
        labeled = found.y != UNLABELED
        empty = [empty_part_message(part) for part in empty_parts(found.parts, labeled)]
        return empty or [SINGLE_TRAIN_NODE_MESSAGE] * has_single_train_node(found.parts, labeled)
    if found.parts is None:
        return []  # ids decide, and a part without members is unlikely
    members = np.ones(found.rows, dtype=bool)
    return [empty_part_message(part) for part in empty_parts(found.parts, members) if part != "val"]


def _training_words(tables: TableOptions, columns: ColumnOptions, roles: Any, unit: str | None) -> list[str]:
    """Return the command that trains on two tables with these roles of columns, as words."""
    unit = unit or _DEFAULT_UNIT
    named = {
        "--id": roles.id,
        "--label": roles.label or "COLUMN",
        "--task": roles.task,
        "--source": roles.source,
        "--target": roles.target,
        "--split": roles.split,
        "--weight": tables.weight,
        "--max-weight": tables.max_weight,
    }
    method = "gap" if roles.task == REGRESSION else "gcn" if unit == "none" else "classcode"
    words = ["train", method]
    words += ["--nodes", str(tables.nodes), "--edges", str(tables.edges)]
    words += [word for flag, value in named.items() if value is not None for word in (flag, str(value))]
    words += ["--unit", unit, *_BUDGET.get(unit, ["--epsilon", "8"] if unit != "none" else [])]
    words += ["--directed"] * columns.directed
    words += ["--classes", columns.classes] if columns.classes else []
    words += ["--node-ids", str(tables.node_ids)] if tables.node_ids else []
    return words


def _show(
    screen: Screen,
    columns: "list[ColumnFact]",
    guessed: list[str],
    problems: list[str],
    notes: Sequence[str],
    command: str | None,
) -> None:
    screen.table(
        ("table", "column", "type", "use"),
        [(fact.table, fact.name, fact.type or "-", fact.becomes) for fact in columns],
    )
    screen.print_line("")
    if guessed:
        screen.print_line(f"Guessed: {', '.join(guessed)}. Set the options if a guess is wrong.")
    for note in notes:
        screen.print_paragraph(f"Note: {note}")
    for number, words in enumerate(problems, start=1):
        screen.print_paragraph(f"{number}. {words}")
    if not problems:
        screen.print_line("No errors found.")
    if command is not None:
        screen.print_line("Suggested command:")
        screen.print_line(f"  {command}")
    screen.emit_json(
        {
            "columns": [vars(fact) for fact in columns],
            "guessed": guessed,
            "problems": problems,
            "notes": list(notes),
            "command": command,
        }
    )
    if problems:
        raise typer.Exit(1)
