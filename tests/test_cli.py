"""The command line as a user meets it: what is printed, what is written, and what is refused."""

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import NODES, SECRET, Answer, Files, Invoke, bookings, other_of, read, spend_nothing, write

import graphveil as gv
from graphveil.cli.console import ProgressBars, Screen
from graphveil.data.tables.labels import CLASSES_FROM_LABELS
from graphveil.estimators.classcode.edge_plan import EdgeReleaseConfig
from graphveil.estimators.gap.method import TrainedGap
from graphveil.privacy.formatting import format_upper_bound

PRIVATE = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7"]
QUICK = ["--set", "epochs=3"]
RELEASE = {
    "model.safetensors",
    "model.json",
    "aggregates.safetensors",
    "predictions.parquet",
    "privacy.json",
    "PRIVACY.md",
    "MODEL_CARD.md",
    "README.md",
    "MLmodel",
}


# -- help --------------------------------------------------------------------------------------------------


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


def test_help_says_what_out_is_of_each_command(invoke: Invoke) -> None:
    assert "run folder; by default" in " ".join(invoke("train", "--help").out.split())
    text = " ".join(invoke("predict", "--help").out.replace("│", " ").split())
    assert "A table with probabilities, .parquet or .csv" in text
    assert "by default a new one" not in text


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").out.strip() == f"graphveil {gv.__version__}"


def test_sentences_break_between_words_on_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "Features and labels are treated as public."
    Screen(as_json=False).print_paragraph(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # which makes a terminal of standard output
    monkeypatch.setenv("COLUMNS", "20")
    Screen(as_json=False).print_paragraph(sentence)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["Features and labels", "are treated as", "public."]


# -- train -------------------------------------------------------------------------------------------------


def test_train_prints_plan_table_statement_and_folder(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    assert answer.code == 0
    assert re.search(r"delta 1e-07 \(as given\)", answer.err)
    assert "noise standard deviation" in answer.err
    assert re.search(r"^gap +\d", answer.out, re.MULTILINE)
    assert re.search(r"^mlp \(no graph\) +\d", answer.out, re.MULTILINE)
    assert "at most 1.74 %" in answer.out  # 1.732 %, and never below
    assert "at most 1.74 %" in answer.err
    assert re.search(r"mlp \(no graph\).* at most 1\.00 %", answer.out)
    assert "≤ 1.74 %" in Path("first/internal/report.html").read_text()
    assert "Other runs on the same data add up: r equal releases have mu sqrt(r)." in answer.out
    assert "first" in answer.out
    assert "Single run: an interval reflects test-set size only" in answer.out


def test_train_json_is_one_object_with_the_promised_keys(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, "--runs", 2, "--out", "first", "--json")
    record = answer.json
    assert {
        "method",
        "dataset",
        "unit",
        "epsilon",
        "delta",
        "mode",
        "runs",
        "val_accuracy",
        "covered",
    } <= set(record)
    assert set(record["test_accuracy"]) == {"mean", "std", "ci95", "values"}
    assert set(record["seconds"]) >= {"total", "calibrate", "encoder", "aggregate", "classifier"}
    assert {"valid", "epsilon", "delta", "unit", "releases"} <= set(record["guarantee"])
    assert (record["method"], record["unit"], record["runs"], record["nodes"]) == (
        "gap",
        "undirected-edge",
        2,
        60,
    )
    assert record["edges_stored"] is None
    assert (record["hops"], len(record["noise_std"]), record["guarantee"]["releases"]) == (2, 2, 1)
    assert record["covered"] is record["guarantee"]["valid"] is True
    assert len(record["test_accuracy"]["values"]) == len(record["mlp_test_accuracy"]["values"]) == 2
    assert record["peak_rss_mb"] > 0
    assert json.loads(Path("first/internal/metrics.json").read_text()) == record
    assert "Plan" in answer.err
    assert "mlp (no graph)" in answer.err


def test_runs_compose(invoke: Invoke, files: Files) -> None:
    flags = ["--unit", "undirected-edge", "--epsilon", 4, "--delta", 1e-7, "--runs", 3]
    record = invoke("train", "gap", *files.flags, *flags, *QUICK, "--out", "r", "--json").json
    assert record["guarantee"]["epsilon"] <= 4
    assert record["guarantee_all_runs"]["epsilon"] == pytest.approx(7.423, abs=1e-3)
    card = Path("r/release/PRIVACY.md").read_text()
    assert "one run" not in card
    assert "of 3 runs" in card


def test_no_epsilon_is_printed_below_the_proved_one(invoke: Invoke, files: Files) -> None:
    flags = ["--unit", "undirected-edge", "--epsilon", 4, "--delta", 1e-5, "--runs", 2]
    answer = invoke("train", "gap", *files.flags, *flags, *QUICK, "--out", "r", "--json")
    together = answer.json["guarantee_all_runs"]["epsilon"]
    assert together == pytest.approx(5.9923, abs=5e-5)  # in full here, and 5.992 to the nearest digit
    pages = [Path("r", page).read_text() for page in ("release/PRIVACY.md", "internal/report.html")]
    assert all("5.993" in text and "5.992" not in text for text in (answer.err, *pages))
    assert "together epsilon 5.993 at delta" in answer.err  # the plan
    assert "together: epsilon 5.993 at delta" in answer.err  # and the outcome
    assert re.search(r"budget +epsilon 4 at delta", answer.err)  # as it was asked for
    assert "Epsilon 4, delta" in pages[0]


def test_the_release_is_the_run_of_the_first_seed(invoke: Invoke, files: Files) -> None:
    common = ["train", "gap", *files.flags, *PRIVATE, *QUICK, "--seed", 5, "--unsafe-noise-seed", 1]
    invoke(*common, "--runs", 2, "--out", "two")
    invoke(*common, "--out", "one")
    for name in ("model.safetensors", "predictions.parquet", "aggregates.safetensors"):
        assert Path("one/release", name).read_bytes() == Path("two/release", name).read_bytes()


def test_the_run_folder_holds_what_is_promised_and_nothing_else(invoke: Invoke, files: Files) -> None:
    invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    assert {path.name for path in Path("first").iterdir()} == {"release", "internal", "PRIVACY.md"}
    assert {path.name for path in Path("first/release").iterdir()} == RELEASE
    internal = {path.name for path in Path("first/internal").iterdir()}
    figures = {"config.lock.json", "metrics.json", "history.csv", "report.html"}
    assert internal == figures | {"graph_fingerprint.json", "receipts.json", "columns.json"}
    assert not list(Path("../state").rglob("*.key"))


def test_the_default_folder_says_method_and_data(invoke: Invoke, files: Files) -> None:
    invoke("train", "mlp", *files.flags, "--unit", "undirected-edge", *QUICK)
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("mlp-nodes-")


def test_without_a_unit_to_protect_the_edges_are_counted_and_nothing_is_promised(
    invoke: Invoke, files: Files
) -> None:
    answer = invoke("train", "gap", *files.flags, "--unit", "none", *QUICK, "--out", "first", "--json")
    record = answer.json
    assert "publish none of it" in answer.err
    assert record["edges_stored"] > 0
    assert record["epsilon"] is None
    assert record["covered"] is record["guarantee"]["valid"] is False
    assert "No privacy" in record["statement"]


def test_a_budget_without_a_unit_to_protect_is_said_to_have_no_effect(invoke: Invoke, files: Files) -> None:
    base = ["train", "gcn", *files.flags, "--unit", "none", *QUICK]
    assert "epsilon 3 has no effect" in invoke(*base, "--epsilon", 3, "--out", "a").err
    assert "has no effect" not in invoke(*base, "--out", "b").err


def test_a_label_that_looks_like_an_id_is_remarked(invoke: Invoke, files: Files) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK]
    assert "looks like an id" not in invoke(*base, "--out", "a").err
    edit(files.nodes, lambda rows: [rows[0], *([*row[:3], f"t{n // 2}"] for n, row in enumerate(rows[1:]))])
    assert "looks like an id" not in invoke(*base, "--out", "b").err
    edit(files.nodes, lambda rows: [rows[0], *([*row[:3], row[0]] for row in rows[1:])])
    assert "looks like an id" in invoke(*base, "--out", "c").err


def test_the_mlp_costs_nothing(invoke: Invoke, files: Files) -> None:
    record = invoke("train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", "first", "--json").json
    assert (record["epsilon"], record["noise_std"], record["guarantee"]["releases"]) == (0.0, [], 0)
    assert record["max_tpr_at_1pct_fpr"] == pytest.approx(0.01)


def test_a_graph_without_edges_runs_the_same_code(invoke: Invoke, files: Files) -> None:
    write(files.edges, [["a", "b"]])
    assert invoke("train", "gap", *files.flags, *PRIVATE, *QUICK).code == 0


def test_a_split_column_fixes_the_split(invoke: Invoke, files: Files) -> None:
    head, *rows = read(files.nodes)
    parts = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    write(files.nodes, [[*head, "fold"], *([*row, part] for row, part in zip(rows, parts, strict=True))])
    record = invoke("train", "mlp", *files.flags, *PRIVATE, "--split", "fold", *QUICK, "--json").json
    assert record["recipe"] is None
    assert round(record["test_accuracy"]["mean"] * 10, 6).is_integer()


def test_set_reaches_the_constructor(invoke: Invoke, files: Files) -> None:
    settings = [
        "--set",
        "hops=3",
        "--set",
        "batch_norm=false",
        "--set",
        "combine=sum",
        "--set",
        "patience=none",
    ]
    record = invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, *settings, "--json").json
    assert (record["hops"], len(record["noise_std"])) == (3, 3)


def test_delta_auto_says_which_bound_decided(invoke: Invoke, files: Files) -> None:
    base = ["train", "gap", *files.flags, "--unit", "undirected-edge", "--epsilon", 1, *QUICK]
    assert "B = 60 nodes" in invoke(*base).err
    answer = invoke(*base, "--max-units", 2_000_000_000, "--json")
    assert "B = 2,000,000,000 (--max-units)" in answer.err
    assert answer.json["delta"] == 1e-11


def test_the_estimate_comes_from_the_callers_guess_alone(invoke: Invoke, files: Files) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK]
    assert "estimate" not in invoke(*base).err
    first = invoke(*base, "--expect-edges", 10**9).err
    write(files.edges, [["a", "b"]])
    estimate = re.search(r"estimate .*", first)
    assert estimate is not None
    assert estimate[0] in invoke(*base, "--expect-edges", 10**9).err


def test_paper_mode_on_directed_edges_runs_and_lists_the_deviation(invoke: Invoke, files: Files) -> None:
    flags = ["--unit", "directed-edge", "--epsilon", 1, "--delta", 1e-7, "--mode", "paper", *QUICK]
    record = invoke("train", "gap", *files.flags, *flags, "--json").json
    assert record["guarantee"]["valid"] is False
    assert any("stored twice" in deviation for deviation in record["deviations"])
    assert record["statement"].startswith("NOT A VALID GUARANTEE")
    shown = invoke("train", "gap", *files.flags, *flags).out
    (row,) = [line for line in shown.splitlines() if line.startswith("gap ")]
    accounted = format_upper_bound(record["guarantee"]["epsilon"])
    assert f" {accounted} (not valid) " in row
    assert f"are ({accounted}, 1e-07)-indistinguishable" in shown
    assert "The paper's accounting calls this noise epsilon 1." in shown


def test_paper_mode_lists_the_recipe_once_for_the_method_and_its_baseline(
    invoke: Invoke, files: Files
) -> None:
    for method in ("gap", "mlp"):
        flags = [*PRIVATE, "--mode", "paper", *QUICK]
        record = invoke("train", method, *files.flags, *flags, "--json").json
        assert record["guarantee"]["valid"] is False
        assert sum("isolated nodes" in deviation for deviation in record["deviations"]) == 1
        assert record["statement"].count("isolated nodes were dropped") == 1


def test_fixed_noise_gives_the_same_bytes_and_no_guarantee(invoke: Invoke, files: Files) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, *QUICK, "--unsafe-noise-seed", 3]
    first, second = (invoke(*base, "--out", name, "--json").json for name in ("one", "two"))
    assert first["guarantee"]["valid"] is second["guarantee"]["valid"] is False
    for name in RELEASE:
        assert Path("one/release", name).read_bytes() == Path("two/release", name).read_bytes()


# -- interruptions -----------------------------------------------------------------------------------------


def interrupt_at(monkeypatch: pytest.MonkeyPatch, stage: str, done: int) -> None:
    def watch(self: ProgressBars, name: str, position: int, total: int) -> None:
        if name.endswith(stage) and position == done:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBars, "__call__", watch)


@pytest.mark.parametrize(("stage", "done"), [("encoder", 15), ("aggregate", 1), ("classifier", 12)])
def test_a_stopped_run_resumes_to_the_same_bytes(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch, stage: str, done: int
) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, "--set", "epochs=20", "--unsafe-noise-seed", 3]
    invoke(*base, "--out", "whole")
    with monkeypatch.context() as patch:
        interrupt_at(patch, stage, done)
        stopped = invoke(*base, "--out", "parts")
        again = invoke(*base, "--out=parts", "--resume")
    assert stopped.code == again.code == 130
    assert "stopped; to finish it: graphveil train gap" in stopped.err
    assert "--out parts --resume" in stopped.err
    assert again.err.rstrip().endswith("--out=parts --resume")  # a flag is not given twice
    assert not Path("parts/release").exists()
    assert invoke(*base, "--out", "parts", "--resume").code == 0
    for name in RELEASE:
        assert Path("whole/release", name).read_bytes() == Path("parts/release", name).read_bytes()


def test_finished_runs_are_not_run_again(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["train", "gap", *files.flags, *PRIVATE, *QUICK, "--runs", 2, "--out", "r"]
    with monkeypatch.context() as patch:
        interrupt_at(patch, "run 2/2 aggregate", 1)
        assert invoke(*base).code == 130
    seen: list[str] = []
    monkeypatch.setattr(ProgressBars, "__call__", lambda self, name, done, total: seen.append(name))
    record = invoke(*base, "--resume", "--json").json
    assert not any("run 1/2" in name for name in seen)
    assert len(record["test_accuracy"]["values"]) == 2


@pytest.mark.parametrize("table", ["nodes", "edges"])
def test_resumed_runs_have_the_data_of_the_first(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table: str
) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK, "--runs", 2, "--out", "r"]
    with monkeypatch.context() as patch:
        interrupt_at(patch, "run 2/2 classifier", 1)
        assert invoke(*base).code == 130
    path = getattr(files, table)
    whole = read(path)
    write(path, [*whole[:-1], [*whole[-1][:1], *whole[-2][1:]]])
    refused = invoke(*base, "--resume")
    assert refused.code == 2
    assert "runs on other data" in refused.err
    write(path, whole)
    assert invoke(*base, "--resume").code == 0
    assert not list((tmp_path / "state" / "graphveil" / "keys").iterdir())


def test_where_the_key_of_the_data_is_gone_nothing_is_resumed(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", "r"]
    with monkeypatch.context() as patch:
        interrupt_at(patch, "classifier", 1)
        assert invoke(*base).code == 130
    (key,) = (tmp_path / "state" / "graphveil" / "keys").iterdir()
    key.unlink()
    refused = invoke(*base, "--resume")
    assert refused.code == 2
    assert "is gone, so its runs cannot be resumed" in refused.err


def test_a_run_that_is_stopped_while_it_is_shown_is_not_called_unspent(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    base = ["train", "gap", *files.flags, *PRIVATE, *QUICK, "--out", "first"]
    with monkeypatch.context() as patch:
        patch.setattr(Screen, "table", stop)
        stopped = invoke(*base)
    assert stopped.code == 130
    assert "nothing was spent" not in stopped.err
    assert "--resume" in stopped.err
    assert invoke(*base, "--resume").code == 0


def test_an_interrupt_after_the_end_changes_nothing() -> None:
    late = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
    ended = subprocess.run(
        [sys.executable, "-c", f"{late}; from graphveil.cli import main; main(['--version'])"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("graphveil ")


def test_a_complete_run_is_shown_again(invoke: Invoke, files: Files) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", "first", "--json"]
    assert invoke(*base).json == invoke(*base, "--resume").json


def test_a_failure_is_one_line_with_a_log_and_a_way_on(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: ProgressBars, name: str, position: int, total: int) -> None:
        if name == "aggregate":
            raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(ProgressBars, "__call__", fail)
    answer = invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    assert answer.code == 1
    (line,) = [line for line in answer.err.splitlines() if line.startswith("graphveil: ")]
    assert "ZeroDivisionError" in line
    assert "--resume" in line
    assert SECRET not in answer.err
    assert "Traceback" not in answer.err
    assert "Traceback" in Path("first/internal/error.log").read_text()


def test_a_full_disk_is_called_that(invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphveil.artifacts import release_folder as storage

    def full(path: Path, _: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(storage, "write_atomic", full)
    answer = invoke("train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    assert answer.code == 1
    assert "the run failed: No space left on device: " in answer.err
    assert "model.safetensors" in answer.err


# -- misuse ------------------------------------------------------------------------------------------------


def edit(path: Path, change: Callable[[list[list[str]]], list[list[str]]]) -> None:
    write(path, change(read(path)))


def cell(row: int, column: int, value: str) -> Callable[[list[list[str]]], list[list[str]]]:
    def change(rows: list[list[str]]) -> list[list[str]]:
        rows[row][column] = value
        return rows

    return change


BAD_NODES = {
    "missing column": (lambda rows: [[row[0], row[1], row[2]] for row in rows], "no column 'team'"),
    "duplicate column": (lambda rows: [[*row, row[3]] for row in rows], "more than one column 'team'"),
    "repeated id": (lambda rows: [*rows, rows[1]], "'user' repeats ids"),
    "NaN feature": (cell(5, 1, "nan"), "'age' holds NaN"),
    "infinite feature": (cell(5, 2, "inf"), "'height' holds NaN, infinite"),
    "text feature": (cell(5, 2, SECRET), "'height' is of type"),
    "no nodes": (lambda rows: rows[:1], "no nodes"),
    "one class": (lambda rows: [rows[0], *([*row[:3], "t0"] for row in rows[1:])], "fewer than two classes"),
    "unequal rows": (lambda rows: [*rows, ["u99"]], "cannot be read as CSV"),
}
BAD_EDGES = {
    "missing column": (lambda rows: [[row[0]] for row in rows], "no column 'b'"),
    "unknown id": (cell(3, 1, SECRET), "'b' of the edges holds ids that"),
    "empty id": (cell(3, 1, ""), "'b' has missing values"),
    "numbers for text": (lambda rows: [rows[0], ["1", "2", ""]], "of the nodes (text) lacks"),
}
BAD_FLAGS = {
    "no unit": (["--epsilon", 1], "as one of undirected-edge, directed-edge, node-record"),
    "unknown unit": (["--unit", "undirected-edges", "--epsilon", 1], "did you mean 'undirected-edge'"),
    "later unit": (["--unit", "edge-subset", "--epsilon", 1], "is not available for it: train 'gcn'"),
    "local unit": (["--unit", "local-attributes", "--epsilon", 1], "use 'lpgnn' or 'simgat'"),
    "no epsilon": (["--unit", "undirected-edge"], "--epsilon"),
    "zero epsilon": (["--unit", "undirected-edge", "--epsilon", 0], "above 0"),
    "negative epsilon": (["--unit", "undirected-edge", "--epsilon", -1], "above 0"),
    "text epsilon": (["--unit", "undirected-edge", "--epsilon", "one"], "--epsilon"),
    "NaN epsilon": (["--unit", "undirected-edge", "--epsilon", "nan"], "finite"),
    "large delta": ([*PRIVATE[:4], "--delta", 0.02], "is outside the range of the proofs"),
    "delta of one": ([*PRIVATE[:4], "--delta", 1], "delta=1 must be far below 1, below 1/B for B protected"),
    "text delta": ([*PRIVATE[:4], "--delta", "tiny"], "must be a number or 'auto'"),
    "zero delta": ([*PRIVATE[:4], "--delta", 0], "delta > 0"),
    "undirected graph, directed unit": (["--unit", "directed-edge", *PRIVATE[2:]], "1.448"),
    "directed graph, undirected unit": ([*PRIVATE, "--directed"], "directed-edge"),
    "unknown key": ([*PRIVATE, "--set", "hoops=2"], "did you mean 'hops'"),
    "no value": ([*PRIVATE, "--set", "hops"], "--set key=value"),
    "wrong type": ([*PRIVATE, "--set", "hops=two"], "hops is a whole number"),
    "out of range": ([*PRIVATE, "--set", "hops=0"], "at least 1"),
    "too many": ([*PRIVATE, "--set", "hops=1000000000000"], "hops=1000000000000 must be at most 100"),
    "wrong choice": ([*PRIVATE, "--set", "combine=conct"], "did you mean 'concat'"),
    "repeated key": ([*PRIVATE, "--set", "hops=1", "--set", "hops=2"], "given twice"),
    "flag and key": ([*PRIVATE, "--set", "epsilon=2"], "given twice"),
    "seed as key": ([*PRIVATE, "--set", "seed=2"], "--seed"),
    "unknown recipe": ([*PRIVATE, "--recipe", "gapp"], "did you mean 'gap'"),
    "no split": ([*PRIVATE, "--recipe", "planetoid"], "no split"),
    "no runs": ([*PRIVATE, "--runs", 0], "runs=0"),
    "negative seed": ([*PRIVATE, "--seed", -1], "seed=-1"),
    "unknown mode": ([*PRIVATE, "--mode", "loose"], "--mode"),
    "unknown flag": ([*PRIVATE, "--epsilonn", 2], "--epsilon"),
    "resume without folder": ([*PRIVATE, "--resume"], "--out"),
}


@pytest.fixture
def nothing_spent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a release is booked."""
    booked = bookings(monkeypatch)
    yield
    assert not booked


def assert_refused(answer: Answer, words: str) -> None:
    """One clear line, exit code 2, no traceback, nothing written, nothing secret repeated."""
    assert answer.code == 2, answer.err
    line = answer.err.strip().splitlines()[-1]
    assert line.startswith("graphveil: ")
    assert words in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert SECRET not in answer.err
    assert not list(Path().iterdir())


@pytest.mark.usefixtures("nothing_spent")
@pytest.mark.parametrize("case", BAD_NODES)
def test_a_bad_table_of_nodes_is_refused(invoke: Invoke, files: Files, case: str) -> None:
    change, words = BAD_NODES[case]
    edit(files.nodes, change)
    assert_refused(invoke("train", "gap", *files.flags, *PRIVATE), words)


@pytest.mark.usefixtures("nothing_spent")
@pytest.mark.parametrize("case", BAD_EDGES)
def test_a_bad_table_of_edges_is_refused(invoke: Invoke, files: Files, case: str) -> None:
    change, words = BAD_EDGES[case]
    edit(files.edges, change)
    assert_refused(invoke("train", "gap", *files.flags, *PRIVATE), words)


@pytest.mark.usefixtures("nothing_spent")
@pytest.mark.parametrize("case", BAD_FLAGS)
def test_bad_flags_are_refused(invoke: Invoke, files: Files, case: str) -> None:
    flags, words = BAD_FLAGS[case]
    assert_refused(invoke("train", "gap", *files.flags, *flags), words)


@pytest.mark.usefixtures("nothing_spent")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gapp", *PRIVATE], "did you mean 'gap'"),
        (["gap", *PRIVATE], "no data were given"),
        (["gap", "--dataset", "coara", *PRIVATE], "did you mean 'cora'"),
        (["gap", "--dataset", "cora", "--id", "user", *PRIVATE], "exclude each other"),
        (["gap", "--nodes", "n.csv", "--edges", "e.csv", *PRIVATE], "--id, --label, --source, --target"),
        (["classcode", "--dataset", "synthetic/tiny", "--mode", "paper", *PRIVATE], "--mode strict"),
        ([*PRIVATE], "METHOD"),
    ],
)
def test_a_bad_choice_of_method_or_data_is_refused(invoke: Invoke, arguments: list[str], words: str) -> None:
    assert_refused(invoke("train", *arguments), words)


@pytest.mark.usefixtures("nothing_spent")
def test_a_missing_file_is_refused(invoke: Invoke, files: Files) -> None:
    files.edges.unlink()
    assert_refused(invoke("train", "gap", *files.flags, *PRIVATE), "there is no file")


def test_misuse_with_json_is_an_object_too(invoke: Invoke) -> None:
    answer = invoke("train", "gap", "--json")
    assert answer.code == 2
    assert answer.json["error"]["exit_code"] == 2


def test_classes_may_be_a_public_list(invoke: Invoke, files: Files) -> None:
    base = ["train", "mlp", *files.flags, *PRIVATE, *QUICK]
    assert invoke(*base, "--classes", 't2,"t0, or none",t1,t0', "--out", "r", "--json").json["classes"] == 4
    assert json.loads(Path("r/release/model.json").read_text())["class_names"] == [
        *("t2", "t0, or none", "t1", "t0")
    ]
    records = ["train", "mlp", *files.flags, "--unit", "node-record", "--epsilon", 4, *QUICK, "--json"]
    for flags, said in (([], True), (["--classes", "t0,t1,t2"], False)):
        assert (CLASSES_FROM_LABELS in invoke(*records, *flags).json["statement"]) is said


@pytest.mark.parametrize("classes", ["", "t0", "t0,t0", "t0,,t1"])
def test_a_list_of_classes_has_two_names_or_more(invoke: Invoke, files: Files, classes: str) -> None:
    answer = invoke("train", "mlp", *files.flags, *PRIVATE, "--classes", classes)
    assert_refused(answer, "--classes needs two or more names")


def test_a_named_data_set_knows_its_classes(invoke: Invoke) -> None:
    answer = invoke("train", "mlp", "--dataset", "synthetic/tiny", *PRIVATE, "--classes", "a,b")
    assert_refused(answer, "--classes exclude each other")


def test_the_refusal_of_directed_edges_names_the_unit_and_the_price(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", "gap", *files.flags, "--unit", "directed-edge", "--epsilon", 4, "--delta", 1e-5)
    assert_refused(answer, "--unit undirected-edge")
    assert "5.993" in answer.err  # 5.992008, and never below


def test_a_folder_in_use_is_left_alone(invoke: Invoke, files: Files) -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    answer = invoke("train", "mlp", *files.flags, *PRIVATE, "--out", "mine")
    assert answer.code == 2
    assert "not an empty folder" in answer.err
    assert invoke("train", "mlp", *files.flags, *PRIVATE, "--out", "mine", "--resume").code == 2
    assert [path.name for path in Path("mine").iterdir()] == ["letter.txt"]


def test_an_output_that_cannot_be_written_is_misuse(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", files.nodes / "first")
    assert answer.code == 2
    assert "choose another --out" in answer.err


def test_resuming_with_other_flags_names_what_differs(invoke: Invoke, files: Files) -> None:
    invoke("train", "mlp", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    answer = invoke(
        "train", "mlp", *files.flags, *PRIVATE, "--set", "epochs=4", "--runs", 2, "--out", "first", "--resume"
    )
    assert answer.code == 2
    assert "runs, epochs differ" in answer.err


def test_nothing_secret_reaches_the_release(invoke: Invoke, files: Files) -> None:
    secretive = files.nodes.with_name(f"{SECRET}.csv")
    files.nodes.rename(secretive)
    moved = Files(secretive, files.edges)
    assert invoke("train", "gap", *moved.flags, *PRIVATE, *QUICK, "--out", "first").code == 0
    for path in Path("first/release").iterdir():
        assert SECRET.encode() not in path.read_bytes()


def test_weights_of_edges_have_a_bound_and_are_not_ignored(invoke: Invoke, files: Files) -> None:
    edit(files.edges, lambda rows: [[*rows[0], "hours"], *([*row, "2"] for row in rows[1:])])
    base = ["train", "gap", *files.flags, *PRIVATE, *QUICK, "--weight", "hours"]
    alone = invoke(*base, "--out", "r")
    assert (alone.code, "--weight and --max-weight go together" in alone.err) == (2, True)
    ignored = invoke(*base, "--max-weight", 3, "--out", "r")
    assert (ignored.code, "weights='given'" in ignored.err) == (2, True)
    blind = ["train", "mlp", *files.flags, "--unit", "undirected-edge", *QUICK]
    assert invoke(*blind, "--weight", "hours", "--max-weight", 3, "--out", "r").code == 0


# -- predict and explain -----------------------------------------------------------------------------------


@pytest.fixture
def trained(invoke: Invoke, files: Files) -> Path:
    """A finished run of GAP."""
    assert invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, "--out", "first").code == 0
    return Path("first")


def test_saved_predictions_are_free_and_always_the_same(
    invoke: Invoke, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend_nothing(monkeypatch)
    for name in ("one.csv", "two.csv", "one.parquet", "two.parquet"):
        assert invoke("predict", trained, "--out", name).code == 0
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()
    assert Path("one.parquet").read_bytes() == Path("two.parquet").read_bytes()
    rows = read(Path("one.csv"))
    assert rows[0] == ["node", "prediction", "p_t0", "p_t1", "p_t2"]
    assert [row[0] for row in rows[1:]] == [f"u{i}" for i in range(NODES)]
    printed = invoke("predict", trained).out.splitlines()
    assert len(printed) == NODES + 1


def test_predictions_are_not_written_over_what_is_there(invoke: Invoke, trained: Path) -> None:
    Path("p.csv").write_text("mine")
    answer = invoke("predict", trained, "--out", "p.csv")
    assert (answer.code, "p.csv is there already" in answer.err) == (2, True)
    assert Path("p.csv").read_text() == "mine"


def test_predictions_as_json(invoke: Invoke, trained: Path) -> None:
    record = invoke("predict", trained / "release", "--json").json
    assert record["nodes"] == len(record["predictions"]) == NODES
    assert record["charged"] is None


def test_another_graph_is_priced_and_booked(
    invoke: Invoke, trained: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    booked = bookings(monkeypatch)
    edit(files.edges, lambda rows: rows[:50])
    answer = invoke("predict", trained, *other_of(files), "--out", "p.csv", "--json")
    assert answer.code == 0, answer.err
    assert len({entry.release_id for entry in booked}) == 1
    assert "epsilon 1 at delta 1e-07" in answer.err
    assert "epsilon 1.448 at delta 1e-07, as the two graphs may share edges" in " ".join(answer.err.split())
    assert answer.json["charged"]["epsilon"] == pytest.approx(1, abs=1e-3)
    assert answer.json["guarantee_with_predictions"]["epsilon"] == pytest.approx(1.448, abs=2e-3)
    assert len(read(Path("p.csv"))) == NODES + 1


def test_disjoint_edges_count_with_the_larger_figure(invoke: Invoke, trained: Path, files: Files) -> None:
    another = ["predict", trained, *other_of(files), "--json"]
    answer = invoke(*another, "--assume-disjoint-edges")
    assert answer.code == 0, answer.err
    assert "on your word that the graphs share no edge" in " ".join(answer.err.split())
    whole = answer.json["guarantee_with_predictions"]
    assert whole["epsilon"] == pytest.approx(1, abs=1e-3)
    assert "asserted to share no edge" in whole["statement"]
    refused = invoke("predict", trained, "--assume-disjoint-edges")
    assert refused.code == 2
    assert "--allow-spend, --ledger and --backend are about another graph" in refused.err


def test_the_flagship_predicts_another_graph_too(invoke: Invoke, files: Files) -> None:
    flags = [*PRIVATE, "--set", "weights=half_cos"]
    assert invoke("train", "classcode", *files.flags, *flags, "--no-baseline", "--out", "code").code == 0
    another = ["predict", "code", *other_of(files), "--json"]
    answer = invoke(*another, "--assume-disjoint-edges")
    assert answer.code == 0, answer.err
    assert len(answer.json["predictions"]) == NODES
    assert answer.json["charged"]["releases"] == 1
    assert answer.json["guarantee_with_predictions"]["epsilon"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("labels", ["as in training, but empty", "none", "none, release alone"])
def test_another_graph_needs_no_labels(
    invoke: Invoke, trained: Path, files: Files, tmp_path: Path, labels: str
) -> None:
    another = [trained, *other_of(files), "--out", "p.csv"]
    if labels.startswith("as in training"):
        edit(files.nodes, lambda rows: [rows[0], *([*row[:3], ""] for row in rows[1:])])
    if labels.startswith("none"):
        edit(files.nodes, lambda rows: [row[:3] for row in rows])
    if labels == "none, release alone":
        (trained / "release").rename(tmp_path / "alone")
        another = [tmp_path / "alone", *another[1:], "--allow-spend"]
        another += ["--id", "user", "--source", "a", "--target", "b"]
    answer = invoke("predict", *another)
    assert answer.code == 0, answer.err
    head, *rows = read(Path("p.csv"))
    assert head == ["node", "prediction", "p_t0", "p_t1", "p_t2"]
    assert len(rows) == NODES


@pytest.mark.parametrize("kept", [[], ["fold"], ["team", "fold"]])
def test_columns_that_were_no_features_in_training_are_none_in_another_graph(
    invoke: Invoke, files: Files, kept: list[str]
) -> None:
    head, *rows = read(files.nodes)
    parts = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    write(files.nodes, [[*head, "fold"], *([*row, part] for row, part in zip(rows, parts, strict=True))])
    base = ["train", "gap", *files.flags, *PRIVATE, "--split", "fold", *QUICK]
    assert invoke(*base, "--out", "first").code == 0
    columns = [read(files.nodes)[0].index(name) for name in ("user", "age", "height", *kept)]
    edit(files.nodes, lambda rows: [[row[column] for column in columns] for row in rows])
    answer = invoke("predict", "first", *other_of(files), "--out", "p.csv")
    assert answer.code == 0, answer.err
    assert "60 nodes, 2 features" in answer.err
    assert len(read(Path("p.csv"))) == NODES + 1


def test_labels_of_another_graph_may_be_of_classes_that_training_never_saw(
    invoke: Invoke, trained: Path, files: Files
) -> None:
    edit(files.nodes, lambda rows: [rows[0], *([*row[:3], "t9"] for row in rows[1:])])
    assert invoke("predict", trained, *other_of(files)).code == 0


def test_columns_of_another_graph_that_nobody_named_are_asked_for(invoke: Invoke, files: Files) -> None:
    assert invoke("train", "gap", "--dataset", "synthetic/tiny", *PRIVATE, *QUICK, "--out", "t").code == 0
    answer = invoke("predict", "t", *other_of(files))
    assert answer.code == 2
    assert answer.err.strip().endswith("add --id, --source, --target")


def test_another_graph_that_cannot_be_predicted_is_refused_before_a_price_is_shown(
    invoke: Invoke, trained: Path, files: Files
) -> None:
    records = ["--unit", "node-record", "--epsilon", 4, "--delta", 1e-5, "--no-baseline"]
    assert invoke("train", "classcode", *files.flags, *records, "--out", "code").code == 0
    another = [*other_of(files)]
    refusals = {"code": invoke("predict", "code", *another)}
    edit(files.nodes, lambda rows: [[*row[:2], *row[3:]] for row in rows])
    refusals["narrow"] = invoke("predict", trained, *another)
    for words, answer in zip(("use gap", "no column 'height'"), refusals.values(), strict=True):
        assert answer.code == 2
        (line,) = answer.err.strip().splitlines()  # and no table of the price above it
        assert words in line


@pytest.mark.parametrize("flags", [["--unsafe-noise-seed", 3], ["--mode", "paper"]])
def test_what_is_charged_is_no_more_valid_than_the_model(
    invoke: Invoke, files: Files, flags: list[object]
) -> None:
    assert invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, *flags, "--out", "first").code == 0
    answer = invoke("predict", "first", *other_of(files), "--json")
    assert answer.json["charged"]["valid"] is False
    assert answer.json["charged"]["deviations"] == answer.json["guarantee"]["deviations"]
    assert all(deviation in answer.err for deviation in answer.json["charged"]["deviations"])


@pytest.mark.parametrize(
    ("error", "code", "words"), [(KeyboardInterrupt, 130, "stopped; "), (ZeroDivisionError, 1, "failure")]
)
def test_a_prediction_that_ends_early_says_what_it_has_cost(
    invoke: Invoke,
    trained: Path,
    files: Files,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    code: int,
    words: str,
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    another = ["predict", trained, *other_of(files)]
    for owner, place, spent in ((gv.GAP, "privacy_cost", False), (TrainedGap, "proba", True)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, place, stop)
            answer = invoke(*another)
        line = answer.err.strip().splitlines()[-1]
        assert (answer.code, answer.out) == (code, "")
        assert words in line
        assert ("was recorded and stays charged" in line) is spent
        assert ("nothing was spent" in line) is (code == 130 and not spent)


@pytest.mark.parametrize("name", ["letter.txt/p.csv", "folder.csv"])
def test_predictions_that_cannot_be_written_cost_nothing(
    invoke: Invoke, trained: Path, files: Files, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Path("letter.txt").write_text("dear")
    Path("folder.csv").mkdir()
    spend_nothing(monkeypatch)
    answer = invoke("predict", trained, *other_of(files), "--out", name)
    assert answer.code == 2
    assert "choose another --out" in answer.err


def test_predictions_need_a_known_suffix(invoke: Invoke, trained: Path) -> None:
    answer = invoke("predict", trained, "--out", "p.xlsx")
    assert answer.code == 2
    assert ".parquet or .csv" in answer.err


def test_explain_needs_the_release_alone(invoke: Invoke, trained: Path, tmp_path: Path) -> None:
    alone = tmp_path / "published"
    (trained / "release").rename(alone)
    answer = invoke("explain", alone)
    assert answer.code == 0
    for words in ("1.74 in 100", "at most 1.74 %", "rows", "Not covered", "add up"):
        assert words in answer.out
    record = invoke("explain", alone, "--json").json
    assert record["guarantee"]["epsilon"] <= 1
    assert len(record["releases"]) == 2


def test_releases_that_cost_more_than_the_budget_when_added_up_are_explained(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        EdgeReleaseConfig, "counts_neighbors", lambda *sizes: False
    )  # sums, and counts beside them
    calibrated = invoke("calibrate", "classcode", *PRIVATE).out
    planned = invoke("train", "classcode", *files.flags, *PRIVATE, "--expect-edges", 1, "--out", "r").err
    other = invoke("calibrate", "gap", *PRIVATE).out
    assert ["o edge pays for all of these in full" in text for text in (calibrated, planned, other)] == [
        True,
        True,
        False,
    ]


def test_explain_refuses_anything_else(invoke: Invoke) -> None:
    assert_refused(invoke("explain", "nowhere"), "holds no saved model")


def test_a_budget_that_a_plan_does_not_use_up_is_said_to_be_left(invoke: Invoke, files: Files) -> None:
    flags = ["--unit", "undirected-edge", "--delta", 1e-5]
    planned = ["train", "classcode", *files.flags, *flags, "--expect-edges", 1, "--out", "r"]
    for epsilon, left in ((20, True), (8, False)):
        for call in (["calibrate", "classcode", *flags], planned):
            answer = invoke(*call, "--epsilon", epsilon)
            words = " ".join((answer.out + answer.err).split())
            assert ("no use for all of the epsilon 20 that was given" in words) == left


# -- calibrate, datasets, demo -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta", "hops", "sigma"),
    [
        (1, 1e-5, 2, 5.2759),
        (1, 1e-7, 1, 4.6787),
        (4, 1e-7, 3, 2.2479),
        (8, 1e-6, 5, 1.4600),
        (0.5, 1e-5, 1, 7.0318),
    ],
)
def test_calibrate_prints_the_golden_noise(
    invoke: Invoke, epsilon: float, delta: float, hops: int, sigma: float
) -> None:
    base = ["calibrate", "gap", "--epsilon", epsilon, "--delta", delta, "--set", f"hops={hops}", "--json"]
    directed = invoke(*base, "--unit", "directed-edge").json
    undirected = invoke(*base, "--unit", "undirected-edge").json
    assert directed["noise_std"] == pytest.approx([sigma] * hops, rel=1e-4)
    assert undirected["noise_std"] == pytest.approx([sigma * 2**0.5] * hops, rel=1e-4)
    assert directed["sensitivity"] == 1
    assert directed["epsilon"] <= epsilon
    printed = re.search(r"at most ([\d.]+) %", invoke(*base[:-1], "--unit", "directed-edge").out)
    assert printed is not None
    assert 0 <= float(printed[1]) - 100 * directed["max_tpr_at_1pct_fpr"] <= 0.01
    assert {"mu", "delta", "max_tpr_at_1pct_fpr", "releases"} <= set(directed)


def test_calibrate_answers_the_budget_of_a_noise(invoke: Invoke) -> None:
    base = ["calibrate", "gap", "--unit", "directed-edge", "--delta", 1e-5, "--set", "hops=2"]
    assert invoke(*base, "--noise-std", 5.2760, "--json").json["epsilon"] == pytest.approx(1, rel=1e-3)


def test_no_other_command_prints_an_epsilon_below_the_proved_one(invoke: Invoke, files: Files) -> None:
    base = ["calibrate", "gap", "--unit", "directed-edge", "--delta", 1e-5, "--set", "hops=2"]
    printed = invoke(*base, "--noise-std", 5.2760).out  # mu 0.26804654, epsilon 1.0000473
    assert "epsilon 1.001 at delta 1e-05, mu 0.268047" in printed
    flags = ["--unit", "undirected-edge", "--epsilon", 5.99241, "--delta", 1e-5, *QUICK]
    answer = invoke("train", "gap", *files.flags, *flags, "--out", "first")
    assert "epsilon 5.993 at delta" in answer.err
    assert re.search(r"^gap .* 5\.993 ", answer.out, re.MULTILINE)
    assert "epsilon 5.993, delta 1e-05" in invoke("explain", "first").out
    another = [*other_of(files)]
    assert "epsilon 5.993 at delta 1e-05" in invoke("predict", "first", *another).err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", 1, "--delta", 1e-5], "--unit"),
        (["--unit", "undirected-edge", "--delta", 1e-5], "--noise-std"),
        (["--unit", "undirected-edge", "--epsilon", 1], "--max-units"),
        (["--unit", "none"], "nothing to calibrate"),
        (["--unit", "undirected-edge", "--noise-std", 1e-9, "--delta", 1e-5], "choose another noise"),
    ],
)
def test_calibrate_refuses(invoke: Invoke, flags: list[str], words: str) -> None:
    assert_refused(invoke("calibrate", "gap", *flags), words)


def test_datasets_lists_and_describes(invoke: Invoke) -> None:
    listed = invoke("datasets", "--json").json["datasets"]
    assert {"name", "nodes", "features", "classes", "local"} <= set(listed[0])
    assert "synthetic/demo" in invoke("datasets").out
    assert invoke("datasets", "synthetic/tiny", "--json").json["nodes"] == 300
    assert_refused(invoke("datasets", "synthetic/tony"), "did you mean")


def test_demo_ends_with_table_statement_and_report(invoke: Invoke) -> None:
    answer = invoke("demo", "--out", "demo", "--json")
    assert answer.code == 0, answer.err
    record = answer.json
    assert record["test_accuracy"]["mean"] > record["mlp_test_accuracy"]["mean"]
    assert record["guarantee"]["valid"] is True
    assert "mlp (no graph)" in answer.err
    page = Path("demo/internal/report.html").read_text()
    assert not re.search(r'(src|href)=(?!"#)|@import|url\((?!#)|<script', page)
