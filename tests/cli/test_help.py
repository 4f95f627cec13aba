"""Help of commands: what it names, and that it is instant."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from command import Invoke, environment

import graphveil as gv
from graphveil.cli import app, console
from graphveil.cli.console import ProgressBars, Screen
from graphveil.cli.examples import EXAMPLES
from graphveil.cli.train import parameters_page
from graphveil.data import datasets
from graphveil.estimators import METHODS


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "datasets",
        "train",
        "sweep",
        "predict",
        "perturb",
        "compare",
        "calibrate",
        "explain",
        "prepare",
    ],
)
def test_help_finds_every_command(invoke: Invoke, command: str) -> None:
    assert command in invoke("--help").out
    answer = invoke(command, "--help")
    assert answer.code == 0
    assert "--json" in answer.out


def test_help_is_instant_because_nothing_heavy_is_imported() -> None:
    code = "import sys, graphveil.cli; sys.exit(any(m in sys.modules for m in ('torch', 'scipy', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_names_every_recipe_and_method(invoke: Invoke) -> None:
    from graphveil.data.recipes import RECIPES

    text = invoke("train", "--help").out
    for name in [*RECIPES, *gv.METHODS]:
        assert name in text


def test_help_names_every_unit_and_what_units_of_records_need(invoke: Invoke) -> None:
    from graphveil.privacy.unit import UNITS

    for command in ("train", "calibrate"):
        text = " ".join(invoke(command, "--help").out.split())
        for name in UNITS:
            assert name in text
        for flag in ("--out-degree-bound", "--max-degree", "--replace-one", "--private-metrics"):
            assert flag in text


def test_help_states_what_out_is_of_each_command(invoke: Invoke) -> None:
    assert "Run folder to write." in " ".join(invoke("train", "--help").out.split())
    text = " ".join(invoke("predict", "--help").out.replace("│", " ").split())
    assert "Table of predictions and probabilities to write, .parquet or .csv" in text
    assert "by default a new one" not in text


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").out.strip() == f"graphveil {gv.__version__}"


def test_sentences_break_between_words_on_a_terminal_and_nowhere_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentence = "Features and labels are treated as public."
    Screen(as_json=False).print_paragraph(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    with environment(FORCE_COLOR="1", COLUMNS="20"):  # the first makes a terminal of standard output
        Screen(as_json=False).print_paragraph(sentence)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["Features and labels", "are treated as", "public."]


def test_the_help_of_a_method_lists_its_parameters(invoke: Invoke) -> None:
    answer = invoke("train", "gap", "--help")
    assert answer.code == 0 and "--epsilon" in answer.out
    assert "  hops=2  K, the number of aggregations." in answer.out
    assert "hops=2" not in invoke("train", "--help").out


@pytest.mark.parametrize("method", list(METHODS))
def test_every_parameter_is_described(method: str) -> None:
    listed = [
        line for line in parameters_page(method).splitlines()[1:] if line.startswith("  ") and line[2] != " "
    ]
    assert listed and not [line for line in listed if "  " not in line.strip()]


def test_tables_hold_on_a_narrow_screen(capsys: pytest.CaptureFixture[str]) -> None:
    head = ("method", "test accuracy, % [95 % CI]", "epsilon", "delta", "TPR at 1 % FPR")
    row = ("classcode", "71.23 [70.99, 71.47]", "1.0000", "1e-07", "at most 1.74 %")
    with environment(FORCE_COLOR="1", TERM="dumb", COLUMNS="60"):
        Screen(as_json=False).table(head, [row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 70  # the codes of colors
    for cell in (*head[1:], *row):
        assert any(cell in line for line in lines), cell  # none is broken


def test_a_table_in_a_pipe_is_as_wide_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with environment(COLUMNS="40"):
        Screen(as_json=False).table(("a" * 30, "b" * 30, "c" * 30), [("x", "y", "z")])
    assert capsys.readouterr().out.splitlines()[0].split() == ["a" * 30, "b" * 30, "c" * 30]


def test_a_pipe_gets_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    bars = ProgressBars(Screen(as_json=False).notes)
    for done in range(1, 9):
        now[0] += 5
        bars("encoder", done, 8)
    assert capsys.readouterr().err.splitlines() == ["encoder: 4 of 8", "encoder: 8 of 8"]


# -- flags given twice -------------------------------------------------------------------------------------


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words that name each command, and the command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_flag_of_one_value_is_not_given_twice(invoke: Invoke, words: tuple[str, ...]) -> None:
    taking = [flag for flag in COMMANDS[words].params if flag.opts[0][:2] == "--" and not flag.is_flag]
    for name in [flag.opts[0] for flag in taking if not flag.multiple]:
        answer = invoke(*words, name, "1", f"{name}=2")
        assert (answer.code, answer.out) == (2, "")
        (line,) = answer.err.splitlines()
        assert line.startswith(f"graphveil: {name} is given more than once; keep one. See `graphveil")


def test_several_values_and_switches_may_be_repeated(invoke: Invoke) -> None:
    many = ["--set", "hops=1", "--set", "epochs=2", "--json", "--json"]
    answer = invoke("calibrate", "gap", "--unit", "undirected-edge", "--epsilon", 1, "--delta", 1e-7, *many)
    assert answer.code == 0, answer.err
    repeated = invoke("calibrate", "gap", "--unit", "undirected-edge", "--set", "hops=1", "--set", "hops=2")
    assert (repeated.code, "--set hops is given twice; keep one" in repeated.err) == (2, True)


# -- folders -----------------------------------------------------------------------------------------------


def test_no_default_lies_outside_of_the_users_folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("GRAPHVEIL_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert datasets.dataset_folders(None) == [tmp_path / ".cache" / "graphveil"]


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    members = getattr(command, "commands", None)
    if members is None:
        yield " ".join(path), command
    for name, member in (members or {}).items():
        yield from _commands(member, (*path, name))


def test_the_help_of_each_command_ends_with_two_examples_that_it_accepts(invoke: Invoke) -> None:
    commands = dict(_commands(typer.main.get_command(app)))
    assert set(commands) == set(EXAMPLES)
    for name, command in commands.items():
        shown = invoke(*name.split(), "--help").out.replace(" \\\n     ", "")
        assert len((command.help or "").splitlines()[0]) <= 72, name
        for example in EXAMPLES[name]:
            assert example in shown, name
            words = shlex.split(example)
            assert words[1 : 1 + len(name.split())] == name.split()
            with command.make_context(name, words[1 + len(name.split()) :]):  # raises an error for a bad flag
                pass


def test_no_help_text_is_lost_in_markup(invoke: Invoke) -> None:
    """Rich reads [..] as markup and prints nothing for it."""
    for name, command in _commands(typer.main.get_command(app)):
        for parameter in command.params:
            help_text = getattr(parameter, "help", None) or ""
            assert not re.search(r"(?<!\\)\[[a-z#/@]", help_text), (name, parameter.name, help_text)
