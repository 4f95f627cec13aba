"""Help of commands, options that are repeated, and tables and texts on a terminal and in a pipe."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Invoke, environment

import graphveil as gv
from graphveil.cli import command
from graphveil.cli.console import ProgressBars, Screen
from graphveil.cli.help import parameters
from graphveil.core.unit import UNITS
from graphveil.data import datasets
from graphveil.data.recipes import RECIPES
from graphveil.estimators import METHODS


def commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    """Yield the words that name each command, and the command."""
    for name, member in group.commands.items():
        if hasattr(member, "commands"):
            yield from commands(member, *names, name)
        else:
            yield " ".join((*names, name)), member


COMMANDS = dict(commands(command()))


def words_of(text: str) -> str:
    """Return help without frames and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_options_and_ends_with_two_examples_that_the_command_accepts(
    invoke: Invoke, name: str
) -> None:
    answer, shown = invoke(*name.split(), "--help"), COMMANDS[name]
    assert answer.code == 0 and "--json" in answer.out
    assert len((shown.help or "").splitlines()[0]) <= 72
    assert re.search(
        r"[╯.]\n\nExamples:\n  graphveil .*\n(      .*\n)*  graphveil .*\n(      .*\n)*\n$", answer.out
    )
    assert len(shown.examples) == 2
    for example in shown.examples:
        assert example in answer.out.replace(" \\\n     ", "")
        words = shlex.split(example)
        assert words[1 : 1 + len(name.split())] == name.split()
        with shown.make_context(name, words[1 + len(name.split()) :]):  # raises an error for a bad option
            pass
    for parameter in shown.params:
        help_text = getattr(parameter, "help", None) or ""
        assert help_text and not re.search(r"(?<!\\)\[[a-z#/@]", help_text), parameter.name  # lost as markup
        assert not re.search(r"[\[\]]", parameter.metavar or ""), parameter.name


def test_the_list_of_commands_is_complete_and_the_version_is_printed(invoke: Invoke) -> None:
    groups = {"", "attack", "ledger", "collect"}
    for group in groups:
        listed = invoke(f"{group} --help").out
        assert "Examples:\n  graphveil " in listed
        inner = [name.removeprefix(group).split()[0] for name in COMMANDS if name.startswith(group)]
        assert inner and all(name in listed for name in inner)
    assert invoke("--version").out.strip() == f"graphveil {gv.__version__}"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, graphveil.cli; sys.exit(any(m in sys.modules for m in ('torch', 'scipy', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_help_of_training_begins_with_what_is_required(invoke: Invoke) -> None:
    for words in (["train"], ["train", "gap"], ["sweep"]):
        with environment(COLUMNS="100"):
            text = invoke(*words, "--help").out
        panels = re.findall(r"╭─ (.*?) ─", text)
        assert panels[:3] == ["Arguments", "Required", "Data"]
        required = text.partition("─ Required ─")[2].partition("─ Data ─")[0]
        assert re.findall(r"│ [* ]{0,6}(--[a-z]+)", required)[:3] == ["--unit", "--epsilon", "--dataset"]


def test_help_names_every_recipe_method_and_unit(invoke: Invoke) -> None:
    text = words_of(invoke("train --help").out)
    for name in [*RECIPES, *METHODS, *UNITS]:
        assert name in text
    for name in ("train", "calibrate"):
        text = words_of(invoke(name, "--help").out)
        for word in [*UNITS, "--out-degree-bound", "--max-degree", "--replace-one", "--private-metrics"]:
            assert word in text


def test_help_states_what_out_is_of_each_command(invoke: Invoke) -> None:
    assert "Run folder to write." in words_of(invoke("train --help").out)
    assert "Table of predictions and probabilities to write, .parquet or .csv" in words_of(
        invoke("predict --help").out
    )


def test_help_of_a_method_lists_its_parameters(invoke: Invoke) -> None:
    answer = invoke("train gap --help")
    assert answer.code == 0 and re.search(r"│ hops=2 +K, the number of aggregations\.", answer.out)
    assert "hops=2" not in invoke("train --help").out


@pytest.mark.parametrize("method", list(METHODS))
def test_every_parameter_is_described(method: str) -> None:
    found = parameters(method)
    assert found and all(found.values())


# -- terminals and pipes -----------------------------------------------------------------------------------


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


def test_tables_fit_on_a_narrow_screen(capsys: pytest.CaptureFixture[str]) -> None:
    head = ("method", "test accuracy, % [95 % CI]", "epsilon", "delta", "TPR at 1 % FPR")
    row = ("classcode", "71.23 [70.99, 71.47]", "1.0000", "1e-07", "at most 1.74 %")
    with environment(FORCE_COLOR="1", TERM="dumb", COLUMNS="60"):
        Screen(as_json=False).table(head, [row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 70  # the codes of colors
    for cell in (*head[1:], *row):
        assert any(cell in line for line in lines), cell  # none is broken


def test_a_table_in_a_pipe_has_its_full_width(capsys: pytest.CaptureFixture[str]) -> None:
    with environment(COLUMNS="40"):
        Screen(as_json=False).table(("a" * 30, "b" * 30, "c" * 30), [("x", "y", "z")])
    assert capsys.readouterr().out.splitlines()[0].split() == ["a" * 30, "b" * 30, "c" * 30]


def test_a_pipe_gets_a_progress_line_from_time_to_time(capsys: pytest.CaptureFixture[str]) -> None:
    bars = ProgressBars(Screen(as_json=False).notes, clock=iter(range(0, 100, 5)).__next__)
    for done in range(1, 9):
        bars("encoder", done, 8)
    printed = capsys.readouterr().err.splitlines()
    assert printed and len(printed) < 5 and all(re.fullmatch(r"encoder: \d of 8", line) for line in printed)


# -- options that are repeated -----------------------------------------------------------------------------


def valued(words: str) -> list[Any]:
    """Return the options of a command that take one value."""
    options = [one for one in COMMANDS[words].params if one.opts[0][:2] == "--"]
    return [one for one in options if not one.is_flag and not one.multiple]


FIRST_WITH = {one.opts[0]: words for words in reversed(COMMANDS) for one in valued(words)}


@pytest.mark.parametrize("words", [words for words in COMMANDS if valued(words)])
def test_an_option_of_one_value_is_not_given_twice(invoke: Invoke, words: str) -> None:
    """Each option is tried with the first command that has it, and one with each command."""
    first, *others = valued(words)
    for flag in [first, *(one for one in others if FIRST_WITH[one.opts[0]] == words)]:
        name, values = flag.opts[0], ["1"] * flag.nargs
        again = [f"{name}=2"] if flag.nargs == 1 else [name, *values]
        answer = invoke(*words.split(), name, *values, *again)
        assert (answer.code, answer.out) == (2, "")
        (line,) = answer.err.splitlines()
        assert line.startswith(f"graphveil: {name} is given more than once; keep one. See `graphveil")


def test_several_values_and_switches_may_be_repeated(invoke: Invoke) -> None:
    calibrate = ["calibrate", "gap", "--unit", "undirected-edge", "--epsilon", 1, "--delta", 1e-7]
    answer = invoke(*calibrate, "--set", "hops=1", "--set", "epochs=2", "--json", "--json")
    assert answer.code == 0, answer.err
    repeated = invoke(*calibrate, "--set", "hops=1", "--set", "hops=2")
    assert (repeated.code, "--set hops is given twice. Keep one" in repeated.err) == (2, True)


def test_default_folders_are_in_the_users_home(tmp_path: Path) -> None:
    with environment(GRAPHVEIL_DATA=None, XDG_CACHE_HOME=None, HOME=str(tmp_path)):
        assert datasets.dataset_folder(None) == tmp_path / ".cache" / "graphveil"
