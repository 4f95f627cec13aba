"""Every option of every command line is read by it, or rejected before data are read or budget is spent."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from command import Invoke
from typer.core import TyperOption

from graphveil.cli import command
from graphveil.cli import help as help_module
from graphveil.cli.help import Command
from graphveil.errors import ConfigError
from graphveil.estimators import METHODS

TABLES = "--nodes n.csv --edges e.csv --id id --source a --target b"
DATASET = "--dataset synthetic/demo"
PERSONS = "--persons p.csv --id id --rows r.csv:owner=id"
UNITS = {"auto": "local-attributes", "lpgnn": "local-attributes", "simgat": "local-attributes"}
# One line for each choice that decides what is read; other commands read all of their options.
LINES = [
    *(
        f"train {name} {DATASET} --unit {UNITS.get(name, 'undirected-edge')}"
        for name in METHODS
        if name != "relational"
    ),
    f"train relational {PERSONS} --label y --unit row",
    f"train relational {PERSONS} --label y --unit person --dry-run",
    f"train mlp {PERSONS} --label y --unit person",
    f"train gap {TABLES} --label y --unit none",
    "train gap --graph prepared --unit node-record --dry-run",
    f"train links {DATASET}",
    f"train links {TABLES} --unit none",
    f"train recommender {TABLES} --items i.csv --unit node-record",
    f"sweep gap,mlp {DATASET} --out o --unit undirected-edge",
    f"sweep relational,mlp {PERSONS} --out o --unit row",
    f"sweep links {TABLES} --out o --dry-run",
    f"sweep recommender {TABLES} --items i.csv --out o",
    "calibrate gap --unit undirected-edge",
    "calibrate gap --unit node-record",
    "calibrate relational --unit row",
    "calibrate relational --unit person",
    "calibrate links --unit undirected-edge",
    "calibrate recommender --unit node-record",
    "predict nodes-run",
    f"predict nodes-run {TABLES}",
    f"predict nodes-run {PERSONS}",
    "predict links-run --top-k 2",
    "predict links-run --pairs p.csv",
    "predict users-run --top-k 2",
    f"perturb edge-rand {DATASET} --out o --unit undirected-edge --dry-run",
    f"perturb edge-rand {TABLES} --out o --unit undirected-edge",
    "compare synthetic/demo noisy",
    f"compare noisy {DATASET}",
    f"compare noisy {TABLES}",
    "attack linkteller nodes-run",
    "attack topology tables-run",
    "attack membership nodes-run",
    "attack reconstruction nodes-run",
    "attack poisoning nodes-run",
    "ledger init users --unit undirected-edge",
    f"ledger init users --unit undirected-edge {TABLES}",
    f"ledger init users --unit undirected-edge {TABLES} --label y",
    f"ledger init users --unit undirected-edge {DATASET}",
    f"ledger init users --unit row {PERSONS} --label y",
    "reproduce list",
    "reproduce gap:table2",
    "serve nodes-run",
    "collect protocol --out p.json --eps-x 1",
    "collect protocol --out p.json --eps-y 1",
    "check --nodes n.csv --edges e.csv",
    f"check {PERSONS}",
]


def commands() -> Iterator[tuple[str, Any]]:
    """Return every command with its words."""
    found: list[tuple[str, Any]] = [("", command())]
    while found:
        words, one = found.pop()
        members = getattr(one, "commands", {})
        found += [(f"{words} {name}".strip(), member) for name, member in members.items()]
        if not members:
            yield words, one


COMMANDS = dict(commands())


def split(line: str) -> tuple[str, list[str]]:
    """Return the command of a line, and its arguments."""
    name = max((name for name in COMMANDS if f"{line} ".startswith(f"{name} ")), key=len)
    return name, line[len(name) :].split()


def with_option(name: str, words: list[str], option: Any) -> tuple[list[str], Any]:
    """Return the words with an option and a value that the parser accepts, and what it makes of them."""
    values = (
        ["0.5"],
        ["5"],
        ["0.5", "0.6"],
        *([choice] for choice in ("strict", "lo", "add", "mean", "target")),
    )
    for found in ([],) if option.is_flag else (*values, ["label"], ["rr"], ["multi-bit"]):
        more = [*words, option.opts[0], *found]
        try:
            return more, context(name, more)
        except Exception as error:
            assert hasattr(error, "format_message"), error
    raise AssertionError(f"no value fits {option.opts[0]}")


def context(name: str, words: list[str]) -> Any:
    """Parse the words of a command."""
    parsed = COMMANDS[name].make_context(name.split()[-1], [*words])
    parsed.info_name = f"graphveil {name}"
    return parsed


@pytest.fixture
def here(invoke: Invoke) -> Path:
    """A folder with the marks of each kind of run, and nothing that a command could read."""
    tmp_path = Path.cwd()
    for run, mark in (("links-run", "links"), ("users-run", "recommender"), ("nodes-run", "model")):
        (tmp_path / run).mkdir()
        (tmp_path / run / f"{mark}.json").write_text("{}")
    for run, data in (("nodes-run", {"data.dataset": "x"}), ("tables-run", {"data.nodes": "x"})):
        (tmp_path / run / "internal").mkdir(parents=True)
        (tmp_path / run / "internal" / "config.lock.json").write_text(json.dumps({"configuration": data}))
    return tmp_path


def rejected(parsed: Any) -> str | None:
    """Return why an option of a command line is rejected as unread; None if all are read."""
    try:
        help_module.check_options(parsed)
    except ConfigError as error:
        assert "does not use" in str(error)
        return str(error)
    return None


@pytest.mark.parametrize("line", LINES)
def test_an_option_that_a_choice_does_not_declare_is_rejected(line: str, here: Path, invoke: Invoke) -> None:
    name, words = split(line)
    assert rejected(context(name, words)) is None
    before, last = sorted(here.rglob("*")), None
    for option in COMMANDS[name].params:
        flag = option.opts[0]
        if not isinstance(option, TyperOption) or {*option.opts, *option.secondary_opts} & {*words}:
            continue
        more, parsed = with_option(name, words, option)
        declared = all(
            option.name in choice.reads or (choice.among is not None and option.name not in choice.among)
            for choice in help_module.choices(name, parsed.params)
        )
        if declared:
            assert flag not in (rejected(parsed) or "").partition("does not use")[2], flag
            continue
        message = rejected(parsed)
        assert message is not None and flag in message, (flag, message)
        last = (more, message)
    if last is not None:  # the command itself prints it, and ends
        answer = invoke(name, *last[0])
        assert answer.code == 2 and answer.err == f"graphveil: {last[1]}\n"
    assert sorted(here.rglob("*")) == before


def test_every_command_with_choices_is_in_the_table() -> None:
    assert help_module._CHOICES.keys() <= COMMANDS.keys()
    assert help_module._CHOICES.keys() <= {split(line)[0] for line in LINES}
    for one in COMMANDS.values():
        assert isinstance(one, Command)  # whose invoke() checks the options


def test_a_command_uses_each_of_its_parameters() -> None:
    for name, each in COMMANDS.items():
        function = inspect.unwrap(each.callback)
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
        loaded = {node.id for part in tree.body for node in ast.walk(part) if isinstance(node, ast.Name)}
        for one in (*tree.args.args, *tree.args.kwonlyargs):
            assert one.arg in loaded, (name, one.arg)


def test_a_new_option_is_rejected_until_a_method_declares_it() -> None:
    def train(
        method: Annotated[str, typer.Argument()],
        novel: Annotated[str | None, typer.Option("--novel")] = None,
        unit: Annotated[str | None, typer.Option("--unit")] = None,
    ) -> None:
        """Train with an option that no declaration names."""

    small = typer.Typer()
    small.command(cls=Command)(train)
    small.command(cls=Command, name="other")(train)
    group: Any = typer.main.get_command(small)
    for method in ("links", "recommender", "gap"):
        parsed = group.commands["train"].make_context("graphveil train", [method, "--novel", "x"])
        with pytest.raises(ConfigError, match=f"^Method {method} does not use --novel. Remove it.$"):
            help_module.check_options(parsed)


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("predict links-run --top-k 2 --nodes n.csv", ["--nodes"]),
        ("predict links-run --top-k 2 --edges e.csv --allow-spend", ["--edges", "--allow-spend"]),
        ("predict links-run --top-k 2 --ledger nosuch", ["--ledger"]),
        ("predict links-run --pairs p.csv --ledger nosuch", ["--ledger"]),
        ("predict users-run --top-k 2 --allow-spend", ["--allow-spend"]),
        ("predict nodes-run --top-k 2", ["--top-k"]),
        (f"train links {DATASET} --unit undirected-edge --epsilon 1 --theta t.json", ["--theta"]),
        (f"train links {DATASET} --unit undirected-edge --epsilon 1 --no-baseline", ["--no-baseline"]),
        (f"train recommender {TABLES} --items i.csv --weight r --max-weight 5", ["--weight", "--max-weight"]),
        (f"train recommender {TABLES} --items i.csv --directed --label y", ["--label", "--directed"]),
        (f"train gap {DATASET} --dry-run --ledger nosuch --track mlflow", ["--ledger", "--track"]),
        (f"train gap {DATASET} --unit none --epsilon 1", ["--epsilon"]),
        (f"train gap {TABLES} --label y --root data", ["--root"]),
        (f"train mlp {DATASET} --baseline", ["--baseline"]),
        (f"sweep links {DATASET} --out o --theta t.json", ["--theta"]),
        (f"sweep gap {DATASET} --out o --dry-run --ledger nosuch", ["--ledger"]),
        (f"perturb edge-rand {DATASET} --out o --dry-run --ledger nosuch", ["--ledger"]),
        ("calibrate recommender --unit node-record --module sage", ["--module"]),
        ("attack linkteller nodes-run --edges e.csv --cutoff 3", ["--edges"]),
        ("serve nodes-run --burst 3", ["--burst"]),
        ("reproduce list --runs 5 --quick", ["--runs", "--quick"]),
        ("ledger init users --unit undirected-edge --weight w", ["--weight"]),
        (f"train gap {PERSONS} --label y --unit row", ["--persons", "--rows"]),
        (f"train relational {PERSONS} --label y --recipe gap --directed", ["--recipe", "--directed"]),
        (f"predict nodes-run {PERSONS} --ledger nosuch", ["--ledger"]),
    ],
)
def test_these_options_were_ignored_before(
    line: str, flags: list[str], here: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHVEIL_DATA", str(here))  # an option of the environment is not one of the line
    answer = invoke(line)
    it = "it" if len(flags) == 1 else "them"
    assert answer.code == 2
    assert all(flag in answer.err for flag in flags) and f"Remove {it}." in answer.err, answer.err
