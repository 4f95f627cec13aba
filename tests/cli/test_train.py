"""``train`` and ``demo`` as a user meets them: what is printed, what is written, and what is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command import (
    PRIVATE,
    QUICK,
    RELEASE,
    SECRET,
    Files,
    Invoke,
    assert_refused,
    edit,
    environment,
    read,
    write,
)

from graphveil.data.tables.labels import CLASSES_FROM_LABELS
from graphveil.privacy.statements import format_upper_bound


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


def test_train_json_is_one_object_with_the_documented_keys(invoke: Invoke, files: Files) -> None:
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
    shown = [re.sub(r"<[^>]*>", " ", text) for text in (answer.err, *pages)]  # without coordinates of plots
    assert all("5.993" in text and not re.search(r"(?<![\d.])5\.992(?!\d)", text) for text in shown)
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


def test_the_run_folder_holds_what_is_documented_and_nothing_else(invoke: Invoke, files: Files) -> None:
    invoke("train", "gap", *files.flags, *PRIVATE, *QUICK, "--out", "first")
    assert {path.name for path in Path("first").iterdir()} == {"release", "internal", "PRIVACY.md"}
    assert {path.name for path in Path("first/release").iterdir()} == RELEASE
    internal = {path.name for path in Path("first/internal").iterdir()}
    figures = {"config.lock.json", "metrics.json", "history.csv", "report.html"}
    assert internal == figures | {"graph_fingerprint.json", "receipts.json", "columns.json"}
    assert not list(Path("../state").rglob("*.key"))


def test_the_default_folder_states_method_and_data(invoke: Invoke, files: Files) -> None:
    invoke("train", "mlp", *files.flags, "--unit", "undirected-edge", *QUICK)
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("mlp-nodes-")


def test_without_a_unit_to_protect_the_edges_are_counted_and_nothing_is_guaranteed(
    invoke: Invoke, files: Files
) -> None:
    answer = invoke("train", "gap", *files.flags, "--unit", "none", *QUICK, "--out", "first", "--json")
    record = answer.json
    assert "publish none of it" in answer.err
    assert record["edges_stored"] > 0
    assert record["epsilon"] is None
    assert record["covered"] is record["guarantee"]["valid"] is False
    assert "No privacy" in record["statement"]


def test_a_budget_without_a_unit_to_protect_is_reported_to_have_no_effect(
    invoke: Invoke, files: Files
) -> None:
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


def test_delta_auto_states_which_bound_decided(invoke: Invoke, files: Files) -> None:
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


def test_demo_ends_with_table_statement_and_report(invoke: Invoke) -> None:
    answer = invoke("demo", "--out", "demo", "--json")
    assert answer.code == 0, answer.err
    record = answer.json
    assert record["test_accuracy"]["mean"] > record["mlp_test_accuracy"]["mean"]
    assert record["guarantee"]["valid"] is True
    assert "mlp (no graph)" in answer.err
    page = Path("demo/internal/report.html").read_text()
    assert not re.search(r'(src|href)=(?!"#)|@import|url\((?!#)|<script', page)


# -- misuse ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("case", BAD_NODES)
def test_a_bad_table_of_nodes_is_refused(invoke: Invoke, files: Files, case: str) -> None:
    change, words = BAD_NODES[case]
    edit(files.nodes, change)
    assert_refused(invoke("train", "gap", *files.flags, *PRIVATE), words)


@pytest.mark.parametrize("case", BAD_EDGES)
def test_a_bad_table_of_edges_is_refused(invoke: Invoke, files: Files, case: str) -> None:
    change, words = BAD_EDGES[case]
    edit(files.edges, change)
    assert_refused(invoke("train", "gap", *files.flags, *PRIVATE), words)


@pytest.mark.parametrize("case", BAD_FLAGS)
def test_bad_flags_are_refused(invoke: Invoke, files: Files, case: str) -> None:
    flags, words = BAD_FLAGS[case]
    assert_refused(invoke("train", "gap", *files.flags, *flags), words)


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
    for flags, stated in (([], True), (["--classes", "t0,t1,t2"], False)):
        assert (CLASSES_FROM_LABELS in invoke(*records, *flags).json["statement"]) is stated


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


DATA = ["--dataset", "synthetic/tiny"]
OWNER = ["--unit", "node-record", "--out-degree-bound", 5]
COMMANDS = {
    "train": (["train", "gap", *DATA, "--unit", "undirected-edge", "--epsilon", 1], 1.0),
    "train on records": (["train", "gap", *DATA, *OWNER, "--epsilon", 8], 8.0),
    "classcode on records": (["train", "classcode", *DATA, *OWNER, "--epsilon", 8], 8.0),
    "sweep": (["sweep", "mlp", *DATA, "--unit", "node-record", "--epsilon", "1"], 1.0),
    "perturb": (["perturb", "edge-rr", *DATA, "--unit", "undirected-edge", "--epsilon", 1], 1.0),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_prints_the_total_and_writes_nothing(name: str, invoke: Invoke, tmp_path: Path) -> None:
    command, budget = COMMANDS[name]
    with environment(XDG_DATA_HOME=str(tmp_path / "data"), HOME=str(tmp_path)):
        answer = invoke(*command, "--out", "out", "--dry-run", "--json")
    assert answer.code == 0, answer.err
    assert 0.9 * budget < answer.json["total"]["epsilon"] <= budget
    assert "Dry run: no privacy budget was spent" in answer.err
    assert list(tmp_path.rglob("*")) == [Path.cwd()]


def test_a_baseline_on_records_is_trained_where_it_is_requested(invoke: Invoke) -> None:
    answer = invoke(*COMMANDS["train on records"][0], "--baseline", "--dry-run", "--json")
    assert answer.json["total"]["epsilon"] > 8.0
