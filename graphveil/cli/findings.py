"""What ``check`` finds in a table of nodes or persons, and how it is printed."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import typer

from graphveil.cli.console import Screen
from graphveil.core.unit import is_node_level
from graphveil.data.tables.encoding import (
    SINGLE_TRAIN_NODE_MESSAGE,
    UNLABELED,
    empty_part_message,
    empty_parts,
    has_single_train_node,
)
from graphveil.errors import GraphError

if TYPE_CHECKING:
    from graphveil.data.tables.feature_rules import EncodingOptions
    from graphveil.data.tables.files import TableSource
    from graphveil.data.tables.inspect_tables import ColumnFact, Roles, TableInspection

_MOST_CLASSES = 20  # of a column that may be a label
_LABEL_WORDS = re.compile(
    "label|class|y|target|risk|churn(ed)?|fraud|outcome|segment|default(ed)?|status|group|team|community|"
    "category|department|topic|subject|illicit"
)
_MISSING_LABELS = re.compile(
    "unknown|unlabell?ed|undefined|missing|unspecified|unclassified|undetermined|na|n\\.?/?a\\.?|none|null|nil|"
    "nan|tbd|\\?+|-+|-1|-9+|9999?|not (available|known)|no label"
)


def likely_label(nodes: "TableSource", roles: "Roles", choices: "EncodingOptions") -> str | None:
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


def missing_label_note(names: Sequence[str], named: bool) -> list[str]:
    odd = [name for name in names if _MISSING_LABELS.fullmatch(name.strip().lower())]
    if not odd or named or len(names) - len(odd) < 2:
        return []
    real = [name for name in names if name not in odd]
    how = f"--classes {','.join(real)}" if len(real) <= 8 else f"--null-values {','.join(odd)}"
    return [f"Label {odd[0]!r} is read as a class. If it means that the label is missing, add {how}."]


def find_split_problems(found: "TableInspection", unit: str) -> list[str]:
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


def show(
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
