"""``check``: what each column of two tables will be, what would be refused, and the command that passes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.passing import passing_command
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.tables.look import ColumnFact

_BUDGET = {"undirected-edge": ["--epsilon", "1"], "directed-edge": ["--epsilon", "1"]}
_DEFAULT_UNIT = "undirected-edge"


def check(
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    id: options.Id = None,
    label: options.Label = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    weight: options.Weight = None,
    max_weight: options.MaxWeight = None,
    directed: options.Directed = False,
    split: options.Split = None,
    classes: options.Classes = None,
    features: options.Features = None,
    drop: options.Drop = None,
    categories: options.CategoryColumns = None,
    missing: options.Missing = None,
    unknown_ids: options.UnknownIds = None,
    node_ids: options.NodeIds = None,
    unit: options.Unit = None,
    json: options.Json = False,
) -> None:
    """Say what each column of two tables will be and what would be refused; nothing is trained or spent.

    Columns of ids and ends that are not named are guessed, and the guess is said.
    """
    from graphveil.experiment.parameters import parse_classes
    from graphveil.tables.choices import REFUSE, Choices
    from graphveil.tables.guess import guess_roles
    from graphveil.tables.look import look
    from graphveil.tables.pair import edges_file, given_files, listed_ids

    screen = Screen(as_json=json)
    if nodes is None or edges is None:
        raise ConfigError("check looks at two tables: add --nodes FILE and --edges FILE")
    choices = Choices.of(features, drop or (), categories or (), missing or REFUSE, unknown_ids or REFUSE)
    named = {"id": id, "label": label, "source": source, "target": target, "split": split, "weight": weight}
    pair = given_files(nodes, edges_file(edges))
    roles, guessed = guess_roles(*pair, named)
    found = look(
        *pair,
        roles,
        choices,
        classes=None if classes is None else parse_classes(classes),
        listed=listed_ids(node_ids, roles.id),
        private_records=(unit or "").startswith("node-"),
    )
    problems = [*found.problems, *([] if roles.label or classes else [_NO_LABEL])]
    command = None
    if not found.problems or found.suggestion is not None:
        words = _command(nodes, edges, roles, {"--weight": weight, "--max-weight": max_weight}, unit)
        words += ["--directed"] * directed + (["--classes", classes] if classes else [])
        words += ["--node-ids", str(node_ids)] if node_ids else []
        command = passing_command(words, (found.suggestion or choices).flags())
    _show(screen, found.columns, guessed, problems, command)


_NO_LABEL = "no column is known to hold the labels; name it with --label, where the command says COLUMN"


def _command(nodes: Path, edges: Path, roles: Any, extra: dict[str, Any], unit: str | None) -> list[str]:
    unit = unit or _DEFAULT_UNIT
    named = {"--id": roles.id, "--label": roles.label or "COLUMN", "--source": roles.source}
    named |= {"--target": roles.target, "--split": roles.split} | extra
    columns = [word for flag, value in named.items() if value is not None for word in (flag, str(value))]
    budget = _BUDGET.get(unit, ["--epsilon", "8"] if unit != "none" else [])
    method = "gcn" if unit == "none" else "classcode"
    return ["train", method, "--nodes", str(nodes), "--edges", str(edges), *columns, "--unit", unit, *budget]


def _show(
    screen: Screen,
    columns: "list[ColumnFact]",
    guessed: list[str],
    problems: list[str],
    command: str | None,
) -> None:
    screen.table(
        ("table", "column", "type", "will be"),
        [(fact.table, fact.name, fact.type or "-", fact.becomes) for fact in columns],
    )
    screen.say("")
    if guessed:
        screen.say(f"Guessed: {', '.join(guessed)}; name them with flags if that is wrong.")
    for number, words in enumerate(problems, start=1):
        screen.say(f"{number}. {words}")
    if not problems:
        screen.say("Nothing would be refused.")
    if command is not None:
        screen.say("This passes:" if problems else "The command:")
        screen.say(f"  {command}")
    screen.emit(
        {
            "columns": [vars(fact) for fact in columns],
            "guessed": guessed,
            "problems": problems,
            "command": command,
        }
    )
