"""Every seeded bug still applies to the source, and its test fails with it.

The default suite runs a few rows of the table. `pytest -m slow` or `python benchmarks/mutations.py` runs all.
"""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import COLLECTED

from contracts.checks import CHECKS
from contracts.mutations import ROOT, StaleMutationError, rows_of
from contracts.pairs import CHECKS as PAIR_CHECKS
from contracts.seeded_bugs import BUGS

ROWS = list(rows_of(BUGS))
KINDS = {  # kinds of bugs that an outside reader once found past the tests, and an entry of each
    "a decision of the default fit reads exact degrees": "a_decision_is_surer_where_friends_are_many",
    "noisy counts that were charged are ignored": "released_accuracies_are_exact",
    "what others send follows from a record": "messages_are_scaled_by_exact_in_degrees",
    "weighted hops have less noise": "weighted_hops_have_four_percent_less_noise",
    "what is published follows from more than answers": "the_model_card_says_how_many_edges_there_are",
    "keys come from a bad source": "keys_of_releases_come_from_48_bits",
    "a method trains on test labels": "methods_on_edges_train_on_all_labels",
    "counts have less noise": "counts_have_four_percent_less_noise",
    "the plan is shown after the run": "the_plan_is_shown_after_the_run",
    "a row may be a little over its bound": "a_row_may_be_a_ten_thousandth_over_its_bound",
    "a digest is compared in two bytes": "a_journal_compares_two_bytes_of_a_digest",
}
SAMPLE = "a_resume_compares_nothing"
RUNNER = str(ROOT / "benchmarks" / "mutations.py")
PLACE = "graphveil.core.unit:UndirectedEdge.pair_sensitivity"
CHECK = "tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_charged]"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUNNER, *arguments], capture_output=True, text=True, check=False)


def test_each_row_applies_and_names_what_exists(tmp_path: Path) -> None:
    stale = dict[str, str]()
    for row in {row.name: row for row in ROWS}.values():
        try:
            for path, text in row.sources(ROOT).items():
                (tmp_path / f"{row.name}-{path.name}").write_text(text)
        except StaleMutationError as error:
            stale[row.name] = str(error)
    assert stale == {}
    # A NameError would end the test before the bug does anything.
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    found = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_names_are_unique() -> None:
    assert not [name for name, count in Counter(bug["name"] for bug in BUGS).items() if count > 1]


def test_no_seeded_bug_is_lost() -> None:
    assert len(BUGS) >= 416


def test_each_kind_has_an_entry() -> None:
    assert set(KINDS.values()) <= {bug["name"] for bug in BUGS}


def test_tests_exist() -> None:
    names = dict[str, set[str]]()
    for row in ROWS:
        file, _, function = row.test.partition("::")
        if file not in names:
            tree = ast.parse((ROOT / file).read_text())
            names[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function.partition("[")[0] in names[file], row


def test_parametrized_tests_exist(pytestconfig: pytest.Config) -> None:
    """A run of all tests has collected them; any other run does so here."""
    collected = pytestconfig.stash[COLLECTED]
    files = {name.partition("::")[0] for name in collected}
    tests = sorted({row.test for row in ROWS} - collected)
    if files >= {row.test.partition("::")[0] for row in ROWS}:
        assert tests == []
        return
    flags = ["--collect-only", "-q", "-o", "addopts=", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    command = [sys.executable, "-m", "pytest", *flags, *tests]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert set(found.stdout.splitlines()) >= set(tests), found.stdout[-2000:] + found.stderr[-2000:]


def test_each_check_of_a_release_catches_a_bug() -> None:
    used = {row.test.partition("[")[2].rstrip("]") for row in ROWS if row.test.startswith("tests/contracts/")}
    assert {check.__name__ for check in (*CHECKS, *PAIR_CHECKS)} <= used


def test_old_text_must_occur_once(tmp_path: Path) -> None:
    for edit in ((PLACE, "no such text", "x"), (PLACE, "forward", "x"), (PLACE + "s", "forward", "x")):
        (row,) = rows_of([{"name": "stale", "edits": [edit], "test": CHECK}])
        with pytest.raises(StaleMutationError, match="exactly once"):
            row.sources(ROOT)
    (row,) = rows_of([{"name": "broken", "edits": [(PLACE, "math.hypot(", "math.hypot((")], "test": CHECK}])
    with pytest.raises(StaleMutationError, match="does not parse"):
        row.sources(ROOT)


@pytest.mark.slow
def test_the_runner_distinguishes_caught_bugs_from_others(tmp_path: Path) -> None:
    old = "return math.hypot(forward, backward)"
    cases = {
        "caught": old.replace("math.hypot", "max"),
        "harmless": "return math.hypot(backward, forward)",
        "name_error": "return math.hypotenuse(forward, backward)",
    }
    bugs = [{"name": name, "edits": [(PLACE, old, new)], "test": CHECK} for name, new in cases.items()]
    imports = (PLACE.partition(":")[0] + ":", "import math\n", "import maths\n")
    bugs.append({"name": "import_error", "edits": [imports], "test": CHECK})
    bugs.append({**bugs[0], "name": "other_reason", "reason": "no such words"})
    bugs.append({**bugs[0], "name": "no_test", "test": CHECK[:-1] + "x]"})
    table, out = tmp_path / "table.py", tmp_path / "out.csv"
    table.write_text(f"BUGS = {bugs!r}\n")
    ended = run("--table", str(table), "--out", str(out))
    assert ended.returncode == 1, ended.stderr
    assert f"1 of {len(bugs)} rows were caught" in ended.stdout
    assert run("--table", str(table), "--out", str(out), "--only", "caught").returncode == 0


def test_a_seeded_bug_is_caught(tmp_path: Path) -> None:
    ended = run("--only", SAMPLE, "--workers", "1", "--out", str(tmp_path / "out.csv"))
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.slow
def test_all_seeded_bugs_are_caught(tmp_path: Path) -> None:
    ended = run("--out", str(tmp_path / "out.csv"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
