"""``train`` and ``demo``: what is printed, what is written, and what is rejected."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command import (
    PRIVATE,
    QUICK,
    RELEASE,
    SECRET,
    Files,
    Invoke,
    assert_rejected,
    edit,
    environment,
    read,
    rejected,
    write,
)

from graphveil._util.figures import format_upper_bound
from graphveil.data.tables.encoding import CLASSES_FROM_LABELS
from graphveil.training.metrics import METRICS

EDGES = "--unit undirected-edge"


@pytest.fixture
def base(files: Files) -> tuple[object, ...]:
    """The words of a quick run of GAP on the files."""
    return ("train gap", *files.flags, *PRIVATE, *QUICK)


@pytest.fixture
def mlp(files: Files) -> tuple[object, ...]:
    """The words of a quick run of the MLP on the files."""
    return ("train mlp", *files.flags, *PRIVATE, *QUICK)


# -- what is printed ---------------------------------------------------------------------------------------


def test_train_prints_plan_table_statement_and_folder(invoke: Invoke, base: tuple[object, ...]) -> None:
    answer = invoke(*base, "--out", "first")
    assert answer.code == 0
    assert re.search(r"delta 1e-07 \(as given\)", answer.err)
    assert "noise standard deviation" in answer.err
    assert re.search(r"^gap +\d", answer.out, re.MULTILINE)
    assert "at most 1.74 %" in answer.out  # 1.732 %, and never below
    assert "at most 1.74 %" in answer.err
    assert re.search(r"^mlp \(no graph\) +\d.* at most 1\.00 %", answer.out, re.MULTILINE)
    assert "≤ 1.74 %" in Path("first/internal/report.html").read_text()
    for words in (
        "Other runs on the same data add up: r equal releases have mu sqrt(r).",
        "Single run: the interval reflects test-set size only",
        "Run folder: first\nPublish: release/; keep internal/ private\n",
    ):
        assert words in answer.out


def test_train_json_is_one_object_with_the_documented_keys(invoke: Invoke, base: tuple[object, ...]) -> None:
    answer = invoke(*base, "--runs", 2, "--out", "first", "--json")
    record = answer.json
    expected = {"method": "gap", "unit": "undirected-edge", "runs": 2, "nodes": 60, "edges_stored": None}
    assert {key: record[key] for key in expected} == expected
    assert {"dataset", "epsilon", "delta", "mode", "val_accuracy", "covered"} <= set(record)
    assert set(record["test_accuracy"]) == {"mean", "std", "ci95", "values"}
    assert set(record["seconds"]) >= {"total", "calibrate", "encoder", "aggregate", "classifier"}
    assert {"valid", "epsilon", "delta", "unit", "releases"} <= set(record["guarantee"])
    assert (record["hops"], len(record["noise_std"]), record["guarantee"]["releases"]) == (2, 2, 1)
    assert record["covered"] is record["guarantee"]["valid"] is True
    assert len(record["test_accuracy"]["values"]) == len(record["mlp_test_accuracy"]["values"]) == 2
    assert record["peak_rss_mb"] > 0
    assert json.loads(Path("first/internal/metrics.json").read_text()) == record
    assert "Plan" in answer.err and "mlp (no graph)" in answer.err


def test_metrics_are_those_of_the_test_nodes(invoke: Invoke, base: tuple[object, ...]) -> None:
    record = invoke(*base, "--runs", 2, "--out", "first", "--json").json
    accuracies = record["test_metrics"]["accuracy"]["values"]
    assert accuracies == pytest.approx(record["test_accuracy"]["values"], abs=1e-6)
    assert set(record["test_metrics"]) == {*METRICS, "calibration_error"} == set(record["mlp_test_metrics"])
    counts = record["confusion_matrix"]
    assert [sum(row) for row in counts] == [one["tested"] for one in record["per_class"]]
    assert sum(counts[k][k] for k in range(3)) == round(
        record["test_accuracy"]["values"][0] * record["tested"]
    )
    page = Path("first/internal/report.html").read_text()
    assert "Confusion matrix" in page and "ROC-AUC" in page


def test_two_classes_have_a_table_of_metrics(
    invoke: Invoke, files: Files, mlp: tuple[object, ...], base: tuple[object, ...]
) -> None:
    assert "ROC-AUC" not in invoke(*base, "--out", "three").out
    rows = read(files.nodes)
    write(files.nodes, [rows[0], *([*row[:3], "yes" if row[3] == "t2" else "no"] for row in rows[1:])])
    answer = invoke(*base, "--out", "two")
    assert re.search(r"^metric +gap +mlp \(no graph\)$", answer.out.replace(" \n", "\n"), re.MULTILINE)
    assert re.search(
        r"^average precision \(positive class: yes\) +0\.\d{3} +0\.\d{3}", answer.out, re.MULTILINE
    )
    answer = invoke(*base, "--out", "named", "--positive", "no", "--json")
    assert answer.json["positive"] == "no"
    assert "average precision (positive class: no)" in Path("named/internal/report.html").read_text()
    assert "--positive nobody is not a class" in invoke(*base, "--out", "wrong", "--positive", "nobody").err


def test_metrics_of_protected_labels_are_not_computed(invoke: Invoke, files: Files) -> None:
    answer = invoke("train mlp --unit node-record --epsilon 4 --json --out first", *files.flags, *QUICK)
    assert answer.json["test_metrics"] == answer.json["mlp_test_metrics"] == {}
    assert answer.json["confusion_matrix"] == answer.json["per_class"] == []


def test_runs_compose(invoke: Invoke, files: Files) -> None:
    flags = [*files.flags, *QUICK, "--out", "r", "--json"]
    record = invoke(f"train gap {EDGES} --epsilon 4 --delta 1e-7 --runs 3", *flags).json
    assert record["guarantee"]["epsilon"] <= 4
    assert record["guarantee_all_runs"]["epsilon"] == pytest.approx(7.423, abs=1e-3)
    card = Path("r/release/PRIVACY.md").read_text()
    assert "one run" not in card and "of 3 runs" in card


def test_no_epsilon_is_printed_below_the_proved_one(invoke: Invoke, files: Files) -> None:
    flags = [*files.flags, *QUICK, "--out", "r", "--json"]
    answer = invoke(f"train gap {EDGES} --epsilon 4 --delta 1e-5 --runs 2", *flags)
    together = answer.json["guarantee_all_runs"]["epsilon"]
    assert together == pytest.approx(5.9923, abs=5e-5)  # in full here, and 5.992 to the nearest digit
    pages = [Path("r", page).read_text() for page in ("release/PRIVACY.md", "internal/report.html")]
    shown = [re.sub(r"<[^>]*>", " ", text) for text in (answer.err, *pages)]  # without coordinates of plots
    assert all("5.993" in text and not re.search(r"(?<![\d.])5\.992(?!\d)", text) for text in shown)
    assert "together epsilon 5.993 at delta" in answer.err  # the plan
    assert "together: epsilon 5.993 at delta" in answer.err  # and the outcome
    assert re.search(r"budget +epsilon 4 at delta", answer.err)  # as it was given
    assert "Epsilon 4, delta" in pages[0]


def test_unit_none_reads_the_edges_and_guarantees_nothing(invoke: Invoke, files: Files) -> None:
    answer = invoke("train gap --unit none", *files.flags, *QUICK, "--json")
    record = answer.json
    assert "Publish: nothing: there is no valid guarantee" in answer.err
    assert record["edges_stored"] > 0 and record["epsilon"] is None
    assert record["covered"] is record["guarantee"]["valid"] is False
    assert "No privacy" in record["statement"]
    plain = ["train gcn --unit none --dry-run", *files.flags]
    rejected(invoke(*plain, "--epsilon", 3), "Unit none does not use --epsilon")
    assert invoke(*plain).code == 0


@pytest.mark.parametrize(
    ("labels", "remarked"), [(lambda n: n % 3, False), (lambda n: n // 2, False), (lambda n: n, True)]
)
def test_a_label_that_looks_like_an_id_is_noted(
    invoke: Invoke, files: Files, mlp: tuple[object, ...], labels: Callable[[int], int], remarked: bool
) -> None:
    edit(
        files.nodes, lambda rows: [rows[0], *([*row[:3], f"t{labels(n)}"] for n, row in enumerate(rows[1:]))]
    )
    assert ("looks like an id" in invoke(*mlp, "--dry-run").err) is remarked


def test_the_mlp_spends_no_budget(invoke: Invoke, mlp: tuple[object, ...]) -> None:
    record = invoke(*mlp, "--json").json
    assert (record["epsilon"], record["noise_std"], record["guarantee"]["releases"]) == (0.0, [], 0)
    assert record["max_tpr_at_1pct_fpr"] == pytest.approx(0.01)
    (folder,) = Path("runs").iterdir()  # the default folder names method and data
    assert folder.name.startswith("mlp-nodes-")


def test_delta_auto_states_which_bound_decided(invoke: Invoke, files: Files) -> None:
    base = [f"train gap {EDGES} --epsilon 1", *files.flags, *QUICK]
    assert "B = 60 nodes" in invoke(*base, "--dry-run").err
    answer = invoke(*base, "--max-units", 2_000_000_000, "--json")
    assert "B = 2,000,000,000 (--max-units)" in answer.err
    assert answer.json["delta"] == 1e-11


def test_the_estimate_comes_from_the_expected_edges_alone(
    invoke: Invoke, files: Files, mlp: tuple[object, ...]
) -> None:
    assert "estimate" not in invoke(*mlp, "--dry-run").err
    first = invoke(*mlp, "--expect-edges", 10**9, "--dry-run").err
    write(files.edges, [["a", "b"]])
    estimate = re.search(r"estimate .*", first)
    assert estimate is not None and estimate[0] in invoke(*mlp, "--expect-edges", 10**9, "--dry-run").err


@pytest.mark.parametrize("method", ["gap", "mlp"])
def test_a_method_as_published_lists_the_recipe_once_for_the_method_and_its_baseline(
    invoke: Invoke, files: Files, method: str
) -> None:
    record = invoke(f"train {method}-paper --json", *files.flags, *PRIVATE, *QUICK).json
    assert record["guarantee"]["valid"] is False
    assert sum("isolated nodes" in deviation for deviation in record["deviations"]) == 1
    assert record["statement"].count("isolated nodes were dropped") == 1


def test_gap_as_published_on_directed_edges_lists_the_deviation(invoke: Invoke, files: Files) -> None:
    flags = ["train gap-paper --unit directed-edge --epsilon 1 --delta 1e-7", *files.flags, *QUICK]
    record = invoke(*flags, "--json").json
    assert record["guarantee"]["valid"] is False
    assert any("stored twice" in deviation for deviation in record["deviations"])
    assert record["statement"].startswith("No valid guarantee")
    shown = invoke(*flags).out
    (row,) = [line for line in shown.splitlines() if line.startswith("gap-paper ")]
    accounted = format_upper_bound(record["guarantee"]["epsilon"])
    assert f" {accounted} (not valid) " in row
    assert f"are ({accounted}, 1e-07)-indistinguishable" in shown
    assert "The paper's accounting calls this noise epsilon 1." in shown


def test_demo_ends_with_a_box_of_six_lines(invoke: Invoke) -> None:
    answer = invoke("demo --json")
    assert answer.code == 0, answer.err
    record = answer.json
    assert record["test_accuracy"]["mean"] > record["mlp_test_accuracy"]["mean"]
    assert record["guarantee"]["valid"] is True
    folder = Path(record["out"])
    top, *lines, bottom = answer.err[answer.err.index("╭") :].strip().splitlines()
    names = ["Trained", "Guarantee", "Accuracy", "Folder", "Publish", "Next"]
    assert [line.split()[1] for line in lines] == names and "demo" in top and bottom.startswith("╰")
    assert "no-graph baseline" in lines[2] and str(folder) in lines[3] and str(folder) in lines[5]
    page = (folder / "internal/report.html").read_text()
    assert not re.search(r'(src|href)=(?!"#)|@import|url\((?!#)|<script', page)


# -- what is written ---------------------------------------------------------------------------------------


def test_the_run_folder_holds_the_documented_files_and_no_others(invoke: Invoke, files: Files) -> None:
    secretive = files.nodes.rename(files.nodes.with_name(f"{SECRET}.csv"))
    flags = Files(secretive, files.edges).flags
    assert invoke("train gap", *flags, *PRIVATE, *QUICK, "--out", "first").code == 0
    assert {path.name for path in Path("first").iterdir()} == {"release", "internal", "PRIVACY.md"}
    assert {path.name for path in Path("first/release").iterdir()} == RELEASE
    internal = {path.name for path in Path("first/internal").iterdir()}
    figures = {"config.lock.json", "metrics.json", "history.csv", "report.html"}
    assert internal == figures | {"graph_fingerprint.json", "receipts.json", "columns.json"}
    assert not list(Path("../state").rglob("*.key"))
    assert not any(SECRET.encode() in path.read_bytes() for path in Path("first/release").iterdir())


def test_the_release_is_the_run_of_the_first_seed(invoke: Invoke, base: tuple[object, ...]) -> None:
    seeded = [*base, "--seed", 5, "--unsafe-noise-seed", 1, "--json"]
    two = invoke(*seeded, "--runs", 2, "--out", "two").json
    one = invoke(*seeded, "--out", "one").json
    assert one["guarantee"]["valid"] is two["guarantee"]["valid"] is False
    for name in ("model.safetensors", "predictions.parquet", "aggregates.safetensors"):
        assert Path("one/release", name).read_bytes() == Path("two/release", name).read_bytes()
    invoke(*seeded, "--out", "again")
    for name in RELEASE:
        assert Path("one/release", name).read_bytes() == Path("again/release", name).read_bytes()


def test_a_graph_without_edges_can_be_trained_on(
    invoke: Invoke, files: Files, base: tuple[object, ...]
) -> None:
    write(files.edges, [["a", "b"]])
    assert invoke(*base).code == 0


def test_a_split_column_fixes_the_split(invoke: Invoke, files: Files, mlp: tuple[object, ...]) -> None:
    head, *rows = read(files.nodes)
    parts = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    write(files.nodes, [[*head, "fold"], *([*row, part] for row, part in zip(rows, parts, strict=True))])
    record = invoke(*mlp, "--split", "fold", "--json").json
    assert record["recipe"] is None
    assert round(record["test_accuracy"]["mean"] * 10, 6).is_integer()


def test_settings_reach_the_constructor(invoke: Invoke, base: tuple[object, ...]) -> None:
    texts = ("hops=3", "batch_norm=false", "activation=tanh", "patience=none")
    settings = [word for text in texts for word in ("--set", text)]
    record = invoke(*base, *settings, "--json").json
    assert (record["hops"], len(record["noise_std"])) == (3, 3)


def test_classes_may_be_a_public_list(invoke: Invoke, files: Files, mlp: tuple[object, ...]) -> None:
    assert invoke(*mlp, "--classes", 't2,"t0, or none",t1,t0', "--out", "r", "--json").json["classes"] == 4
    names = json.loads(Path("r/release/model.json").read_text())["class_names"]
    assert names == ["t2", "t0, or none", "t1", "t0"]
    records = ["train mlp --unit node-record --epsilon 4 --json", *files.flags, *QUICK]
    for flags, stated in (([], True), (["--classes", "t0,t1,t2"], False)):
        assert (CLASSES_FROM_LABELS in invoke(*records, *flags).json["statement"]) is stated


def test_edge_weights_need_a_bound_and_are_not_ignored(
    invoke: Invoke, files: Files, base: tuple[object, ...]
) -> None:
    edit(files.edges, lambda rows: [[*rows[0], "hours"], *([*row, "2"] for row in rows[1:])])
    weighted = [*base, "--weight", "hours"]
    rejected(invoke(*weighted), "--weight and --max-weight must be given together")
    rejected(invoke(*weighted, "--max-weight", 3), "--set weights=given")
    blind = [f"train mlp {EDGES} --weight hours --max-weight 3", *files.flags, *QUICK]
    assert invoke(*blind).code == 0


# -- misuse ----------------------------------------------------------------------------------------------

Rows = list[list[str]]


def cell(row: int, column: int, value: str) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        rows[row][column] = value
        return rows

    return change


# tests/data/test_files.py has all errors of tables; these contain a secret, or are of the CSV reader.
BAD_TABLES: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "nodes: NaN feature": (cell(5, 1, "nan"), "'age' holds NaN"),
    "nodes: text feature": (cell(5, 2, SECRET), "'height' is of type"),
    "nodes: unequal rows": (lambda rows: [*rows, ["u99"]], "cannot be read as CSV"),
    "edges: unknown id": (cell(3, 1, SECRET), "'b' of the edges holds ids that"),
    "edges: numbers for text": (lambda rows: [rows[0], ["1", "2", ""]], "of the nodes (text) lacks"),
}
BAD_BUDGETS = {
    "--epsilon 1": "one of undirected-edge, directed-edge, row, node, node-record",
    "--unit undirected-edges --epsilon 1": "did you mean 'undirected-edge'",
    "--unit edge-subset --epsilon 1": "cannot separate private edges from public edges",
    "--unit local-attributes --epsilon 1": "Use method 'auto', 'lpgnn' or 'simgat'",
    EDGES: "--epsilon",
    f"{EDGES} --epsilon 0": "above 0",
    f"{EDGES} --epsilon -1": "above 0",
    f"{EDGES} --epsilon one": "--epsilon",
    f"{EDGES} --epsilon nan": "finite",
    f"{EDGES} --epsilon 1 --delta 0.02": "is outside the range of the proofs",
    f"{EDGES} --epsilon 1 --delta 1": "--delta 1 is too large. It must be far below 1/B for B protected",
    f"{EDGES} --epsilon 1 --delta tiny": "must be a number or 'auto'",
    f"{EDGES} --epsilon 1 --delta 0": "delta > 0",
    "--unit directed-edge --epsilon 1 --delta 1e-7": "1.448",
    "--unit directed-edge --epsilon 4 --delta 1e-5": "5.993",  # 5.992008, and never below
    "--unit directed-edge --epsilon 4": "--unit undirected-edge",
}
BAD_FLAGS = {
    "--directed": "directed-edge",
    "--set hoops=2": "did you mean 'hops'",
    "--set hops": "--set key=value",
    "--set hops=two": "hops is a whole number",
    "--set hops=0": "at least 1",
    "--set hops=1000000000000": "hops=1000000000000 must be at most 100",
    "--set activation=selo": "did you mean 'selu'",
    "--set hops=1 --set hops=2": "given twice",
    "--set epsilon=2": "given twice",
    "--set seed=2": "--seed",
    "--recipe gapp": "did you mean 'gap'",
    "--recipe planetoid": "no split",
    "--runs 0": "--runs 0",
    "--seed -1": "--seed -1",
    "--mode paper": "gap-paper for gap",
    "--epsilonn 2": "--epsilon",
    "--resume": "--out",
    "--classes t0": "--classes needs at least two different names",
    "--classes t0,t0": "--classes needs at least two different names",
    "--classes t0,,t1": "--classes needs at least two different names",
    "--classes=": "--classes needs at least two different names",
}
BAD_DATA = {
    "gapp": "did you mean 'gap'",
    "gap": "No data were given",
    "gap --dataset coara": "did you mean 'cora'",
    "gap --dataset cora --id user": "--dataset does not use --id",
    "gap --dataset synthetic/tiny --classes a,b": "--dataset does not use --classes",
    "gap --nodes n.csv --edges e.csv": "--id, --label, --source, --target",
    "gap --dataset synthetic/tiny --mode paper": "gap-paper",
    "": "METHOD",
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_an_invalid_table_is_rejected(invoke: Invoke, files: Files, case: str) -> None:
    change, words = BAD_TABLES[case]
    edit(getattr(files, case.partition(":")[0]), change)
    assert_rejected(invoke("train gap", *files.flags, *PRIVATE), words)


@pytest.mark.parametrize("flags", BAD_BUDGETS)
def test_an_invalid_budget_is_rejected(invoke: Invoke, files: Files, flags: str) -> None:
    assert_rejected(invoke(f"train gap {flags}", *files.flags), BAD_BUDGETS[flags])


@pytest.mark.parametrize("flags", BAD_FLAGS)
def test_an_invalid_option_is_rejected(invoke: Invoke, files: Files, flags: str) -> None:
    assert_rejected(invoke(f"train gap {flags}", *files.flags, *PRIVATE), BAD_FLAGS[flags])


@pytest.mark.parametrize("words", BAD_DATA)
def test_an_invalid_choice_of_method_or_data_is_rejected(invoke: Invoke, words: str) -> None:
    assert_rejected(invoke(f"train {words}", *PRIVATE), BAD_DATA[words])


def test_a_missing_file_is_rejected(invoke: Invoke, files: Files) -> None:
    files.edges.unlink()
    assert_rejected(invoke("train gap", *files.flags, *PRIVATE), "There is no file")
    answer = invoke("train gap --json")
    assert answer.code == answer.json["error"]["exit_code"] == 2


def test_a_folder_in_use_is_not_changed(invoke: Invoke, files: Files, mlp: tuple[object, ...]) -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear")
    rejected(invoke(*mlp, "--out", "mine"), "not an empty folder")
    assert invoke(*mlp, "--out", "mine", "--resume").code == 2
    assert [path.name for path in Path("mine").iterdir()] == ["letter.txt"]
    rejected(invoke(*mlp, "--out", files.nodes / "first"), "Choose another --out")


def test_resuming_with_other_options_names_what_differs(invoke: Invoke, files: Files) -> None:
    train = ["train mlp --out first", *files.flags, *PRIVATE]
    assert invoke(*train, *QUICK).code == 0
    rejected(invoke(*train, "--set", "epochs=4", "--runs", 2, "--resume"), "runs, epochs differ")


DATA = "--dataset synthetic/tiny"
OWNER = "--unit node-record --out-degree-bound 5"
COMMANDS = {
    "train": (f"train gap {DATA} {EDGES} --epsilon 1", 1.0),
    "train on node records": (f"train gap {DATA} {OWNER} --epsilon 8", 8.0),
    "classcode on records": (f"train classcode {DATA} {OWNER} --epsilon 8", 8.0),
    "sweep": (f"sweep mlp {DATA} --unit node-record --epsilon 1", 1.0),
    "perturb": (f"perturb edge-rr {DATA} {EDGES} --epsilon 1", 1.0),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_dry_run_prints_the_total_and_writes_nothing(name: str, invoke: Invoke, tmp_path: Path) -> None:
    command, budget = COMMANDS[name]
    with environment(XDG_DATA_HOME=str(tmp_path / "data"), HOME=str(tmp_path)):
        answer = invoke(command, "--out", "out", "--dry-run", "--json")
    assert answer.code == 0, answer.err
    assert 0.9 * budget < answer.json["total"]["epsilon"] <= budget
    assert "Dry run: no privacy budget was spent" in answer.err
    assert list(tmp_path.rglob("*")) == [Path.cwd()]


def test_a_baseline_on_records_is_trained_on_request(invoke: Invoke) -> None:
    answer = invoke(COMMANDS["train on node records"][0], "--baseline", "--dry-run", "--json")
    assert answer.json["total"]["epsilon"] > 8.0


def test_metric_and_class_weights_apply_to_the_method_and_its_baseline(
    invoke: Invoke, base: tuple[object, ...]
) -> None:
    answer = invoke(*base, "--metric", "macro_f1", "--class-weight", "t0=2, t1=0.5", "--out", "a", "--json")
    assert answer.code == 0
    saved = json.loads(Path("a/release/model.json").read_text())["parameters"]
    assert (saved["metric"], saved["class_weight"]) == ("macro_f1", {"t0": 2.0, "t1": 0.5})
    for words, message in (
        ("--class-weight t0=x", "neither 'balanced' nor a list of weights"),
        ("--class-weight t0=1,t0=2", "each class once"),
        ("--class-weight nobody=2", "names the class 'nobody'"),
        ("--positive t0", "two classes"),
        ("--metric auc", "--metric auc is not one of"),
        ("--set metric=roc_auc --metric roc_auc", "given twice"),
    ):
        failed = invoke(*base, *words.split(), "--out", "b")
        assert failed.code and message in failed.err


@pytest.mark.parametrize(("rare", "is_shown"), [(10, True), (2, False)])
def test_one_predicted_class_is_reported(rare: int, is_shown: bool, invoke: Invoke) -> None:
    y = np.arange(200) % rare == 0
    x = np.where(rare == 2, y, np.random.default_rng(0).integers(2, size=200))  # no signal for rare labels
    Path("nodes.csv").write_text("id,x,y\n" + "".join(f"{i},{x[i]:d},{y[i]:d}\n" for i in range(200)))
    Path("edges.csv").write_text("a,b\n" + "".join(f"{i},{(i + 1) % 200}\n" for i in range(200)))
    columns = "--nodes nodes.csv --edges edges.csv --id id --label y --source a --target b"
    answer = invoke("train mlp --unit undirected-edge", *columns.split(), "--out", "a")
    assert answer.code == 0, answer.err
    assert ("All test nodes are predicted as one class" in answer.out) is is_shown


def test_private_metrics_are_in_the_table_the_report_and_the_card(invoke: Invoke, files: Files) -> None:
    words = ("train mlp --unit node-record --epsilon 8 --private-metrics", *files.flags)
    answer = invoke(*words, "--out", "a")
    assert answer.code == 0, answer.err
    assert re.search(r"^metric from noisy counts \[95 % CI\]", answer.out, re.MULTILINE)
    assert re.search(r"^macro F1 +\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]", answer.out, re.MULTILINE)
    assert "Single run: intervals reflect the noise of the counts only" in answer.out
    (found,) = json.loads(Path("a/internal/metrics.json").read_text())["private_metrics"]
    assert set(found) == {"metrics", "classes", "confusion_matrix", "noise_std", "confidence", "positive"}
    assert "macro F1" in Path("a/internal/report.html").read_text()
    assert re.search(
        r"^\* test balanced accuracy: \d", Path("a/release/MODEL_CARD.md").read_text(), re.MULTILINE
    )


def test_the_card_of_public_labels_has_metrics(invoke: Invoke, base: tuple[object, ...]) -> None:
    record = invoke(*base, "--out", "a", "--json").json
    value = record["test_metrics"]["macro_f1"]["values"][0]
    assert f"* test macro F1: {value:.3f}" in Path("a/release/MODEL_CARD.md").read_text()
