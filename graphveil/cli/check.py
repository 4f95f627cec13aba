"""``check``: how each column of two tables is used, all validation errors, and the suggested command."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphveil.cli.console import Screen
from graphveil.cli.failures import in_options, suggested_command
from graphveil.cli.findings import find_split_problems, likely_label, missing_label_note, show
from graphveil.cli.options import Tables
from graphveil.core.unit import Node, NodeRecord, is_node_level
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.data.tables.inspect_tables import TableFiles, TableInspection

_BUDGET = {"undirected-edge": ["--epsilon", "1"], "directed-edge": ["--epsilon", "1"]}
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


def check(*, data: Tables, unit: str | None = None, json: bool = False) -> None:
    """Show how the columns of tables are used, and all errors in them.

    Id and end columns that are not named are guessed, and the guess is printed.

    Examples:
        graphveil check --nodes nodes.csv --edges edges.csv --label plan
        graphveil check --nodes nodes.csv --edges edges.csv --label plan --unit node-record
    """
    from graphveil.data.tables.encoding import Encoding
    from graphveil.data.tables.files import FileSource
    from graphveil.data.tables.ids import ITEMS_HINT, end_of_another_kind
    from graphveil.data.tables.inspect_tables import edges_file, guess_roles, inspect_tables

    screen = Screen(as_json=json)
    if data.has_persons:
        from graphveil.cli.check_persons import check_persons

        check_persons(data, unit, screen)
        return
    if data.nodes is None or data.edges is None:
        raise ConfigError(
            "check needs two tables. Add --nodes FILE and --edges FILE, or --persons FILE and --rows FILE."
        )
    choices, private = data.choices, is_node_level(unit)
    paths = data.nodes, edges_file(data.edges)
    nodes, edges = (FileSource(path, choices.csv_format) for path in paths)
    columns, guessed = guess_roles(nodes, edges, replace(data, classes=data.class_names))
    found, unlabeled = inspect_tables(nodes, edges, columns, private_records=private), ""
    if not columns.label and not columns.classes:
        unlabeled = "No label column is given. Set --label, and replace COLUMN in the suggested command."
        likely = likely_label(nodes, columns.roles, choices)
        if likely is not None:
            labeled = replace(columns, label=likely)
            retried = inspect_tables(nodes, edges, labeled, private_records=private)
            if retried.class_names:
                found, columns = retried, labeled
                unlabeled = (
                    f"No label column is given. The suggested command takes {likely!r}; set --label for "
                    "another column."
                )
    roles = columns.roles
    problems = [*map(in_options, found.problems), *filter(None, [unlabeled])]
    unfit = [] if problems else find_split_problems(found, unit or _DEFAULT_UNIT)
    problems += unfit
    command = None
    in_two_records = unit == NodeRecord.name and not columns.directed
    notes_on_labels = missing_label_note(found.class_names, columns.classes is not None)
    if columns.classes is not None and private:
        notes_on_labels.append(
            "Labels that are spelled otherwise than in --classes count as missing. Unit "
            f"{unit!r} protects labels, so this is not reported."
        )
    other = end_of_another_kind(roles.id, nodes.title, roles.source, roles.target)
    if other is not None or any(ITEMS_HINT in problem for problem in found.problems):
        if not columns.label and not columns.classes:
            columns = replace(columns, label=likely_label(nodes, roles, choices))
        command = suggested_command(_items_words(columns, edges.names(), data.classes), [])
        notes_on_labels.append(_TWO_COMMANDS)
    elif not unfit and (not found.problems or found.suggestion is not None):
        flags = (found.suggestion or choices).flags()
        command = suggested_command(
            _training_words(columns, data.classes, Node.name if in_two_records else unit), flags
        )
        notes_on_labels += [_MUTUAL_EDGES] * in_two_records
    notes = (*notes_on_labels, *Encoding(rules=found.rules, like_ids=tuple(found.like_ids)).notes)
    if not problems and (scaled := _scaled(found, private=private)):
        learned = " With enough training nodes a fit learns the ranges of columns instead." if private else ""
        notes = (*notes, f"Scaling: {scaled}.{learned}")
    show(screen, found.columns, guessed, problems, notes, command)


def _items_words(columns: "TableFiles", names: Sequence[str], classes: Any) -> list[str]:
    """Return the command for users and items: of the label of a user, or else of the items of a user."""
    from graphveil.data.tables.ids import RATING_NAMES

    rated = next((name for name in names if name.lower() in RATING_NAMES), None)
    if columns.label is not None:
        value = "" if rated is None else f",value={rated},bins=3|4"
        words = ["train", "relational", "--persons", str(columns.nodes), "--id", str(columns.id)]
        words += ["--label", columns.label, *(["--classes", classes] if classes else [])]
        words += ["--rows", f"{columns.edges}:owner={columns.source},far={columns.target}{value}"]
        return [*words, "--public", f"ITEMS.csv:id={columns.target}", "--unit", "person", "--epsilon", "4"]
    words = ["train", "recommender", "--nodes", str(columns.nodes), "--id", str(columns.id)]
    words += ["--edges", str(columns.edges), "--source", str(columns.source), "--target", str(columns.target)]
    words += ["--items", "ITEMS.csv", "--unit", "node-record", "--epsilon", "4"]
    return words + (["--rating", rated, "--min-rating", "4"] if rated else [])


def _scaled(found: "TableInspection", *, private: bool) -> str:
    import torch

    from graphveil.estimators.features.scaling import FeatureScaling

    names = [rule.name for rule in found.rules for _ in range(rule.columns)]
    if private:
        return FeatureScaling.from_public_ranges({}, dense=True).words(names)
    return FeatureScaling.from_public_features(torch.from_numpy(found.matrix())).words(names)


def _training_words(columns: "TableFiles", classes: Any, unit: str | None) -> list[str]:
    unit = unit or _DEFAULT_UNIT
    named = ("id", "label", "task", "source", "target", "split", "weight", "max_weight")
    given = {name: getattr(columns, name) for name in named} | {"label": columns.label or "COLUMN"}
    method = "gap" if columns.task == REGRESSION else "gcn" if unit == "none" else "classcode"
    words = ["train", method]
    words += ["--nodes", str(columns.nodes), "--edges", str(columns.edges)]
    for name, value in given.items():
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    words += ["--unit", unit, *_BUDGET.get(unit, ["--epsilon", "8"] if unit != "none" else [])]
    words += ["--directed"] * columns.directed
    words += ["--classes", classes] if classes else []
    words += ["--node-ids", str(columns.node_ids)] if columns.node_ids else []
    return words
