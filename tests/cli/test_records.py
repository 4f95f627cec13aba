"""The command line under node-level privacy units: plans, folders, markers and rejections."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import (
    SECRET,
    Files,
    Invoke,
    Progress,
    changed,
    environment,
    other_of,
    read,
    recorded,
    write,
)
from drawn import draw_otherwise

OWNER = ["--unit", "node-record", "--epsilon", "1", "--delta", "1e-5", "--out-degree-bound", "5"]
BOUNDED = ["--unit", "node-bounded-degree", "--epsilon", "1", "--delta", "1e-5", "--max-degree", "59"]
SHORT = ["--set", "epochs=3"]
AGGREGATES, PREDICTIONS = "aggregates.safetensors", "predictions.parquet"
RELEASE = {
    *("model.safetensors", "model.json", "privacy.json", "MLmodel"),
    *("PRIVACY.md", "MODEL_CARD.md", "README.md"),
}

pytestmark = pytest.mark.usefixtures("double")


@pytest.fixture
def owner(files: Files) -> list[object]:
    """The words of a quick run with unit node-record, without a baseline."""
    return ["train double --no-baseline", *files.flags, *OWNER]


def names(folder: str) -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


# -- the run folder ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "released", "withheld"),
    [(OWNER, {AGGREGATES}, {PREDICTIONS}), (BOUNDED, set(), {AGGREGATES, PREDICTIONS})],
)
def test_values_that_depend_on_their_own_record_are_not_released(
    invoke: Invoke, files: Files, flags: list[str], released: set[str], withheld: set[str]
) -> None:
    secretive = files.nodes.rename(files.nodes.with_name(f"{SECRET}.csv"))
    tables = Files(secretive, files.edges).flags
    answer = invoke("train double --no-baseline --out first", *tables, *flags)
    assert answer.code == 0, answer.err
    assert names("first") == {"release", "internal", "per_node", "PRIVACY.md"}
    assert names("first/release") == RELEASE | released
    assert names("first/per_node") == withheld | {"README.md"}
    assert "per_node/: row v only for someone authorized to access v's record" in answer.out
    modes = {folder.name: folder.stat().st_mode & 0o777 for folder in Path("first").iterdir()}
    assert modes == {"release": 0o755, "internal": 0o700, "per_node": 0o700, "PRIVACY.md": 0o600}
    assert names("first/internal") == {
        *("config.lock.json", "metrics.json", "history.csv", "report.html"),
        *("graph_fingerprint.json", "receipts.json", "columns.json"),
    }
    for part in ("release", "per_node"):
        for path in Path("first", part).iterdir():
            assert SECRET.encode() not in path.read_bytes()
            assert part == "per_node" or b"u17" not in path.read_bytes()  # a node's id


def test_a_card_states_only_accuracies_from_noisy_counts(invoke: Invoke, owner: list[object]) -> None:
    invoke(*owner, "--out", "plain")
    answer = invoke(*owner, "--private-metrics", "--runs", 2, "--out", "counted", "--json")
    plain, counted = (Path(name, "release/MODEL_CARD.md").read_text() for name in ("plain", "counted"))
    assert "No accuracy is published, because an exact one depends on the records." in plain
    assert "%" not in plain.partition("## Privacy")[0]
    assert "* test accuracy of labeled nodes, from noisy counts: 50.0 %" in counted
    private = answer.json["private_accuracy"]
    assert private["covered"] is True and answer.json["covered"] is False
    assert private["test"]["values"] == [0.5, 0.5] and private["mlp_test"] is None
    assert "test accuracy from noisy counts, %" in answer.err
    assert re.search(r"^double +50\.0 \[", answer.err, re.MULTILINE)
    assert "Exact accuracies are in internal/metrics.json. They are not covered" in answer.err


def test_exact_accuracies_are_marked(invoke: Invoke, owner: list[object]) -> None:
    answer = invoke(*owner, "--out", "first")
    assert "test accuracy, % (not covered: internal)" in answer.out
    assert "Exact accuracies depend on protected records" in answer.out
    assert "--private-metrics" in answer.out
    record = json.loads(Path("first/internal/metrics.json").read_text())
    assert record["covered"] is False and record["private_accuracy"] is record["edges_stored"] is None
    assert "classes, vocabulary and split are treated as public" in record["statement"]
    page = Path("first/internal/report.html").read_text()
    assert page.count("not covered: internal") >= 2
    assert "tests about records" in page


def test_predictions_come_from_the_folder_per_node(invoke: Invoke, owner: list[object]) -> None:
    invoke(*owner, "--out", "first")
    answer = invoke("predict first --out p.csv")
    assert answer.code == 0, answer.err
    assert len(read(Path("p.csv"))) == 61
    assert "row v only to someone authorized to access v's record" in answer.err
    shutil.rmtree("first/per_node")
    for alone in ("first", "first/release"):
        rejected = invoke("predict", alone)
        (line,) = rejected.err.strip().splitlines()
        assert rejected.code == 2 and "contains no predictions" in line and "per_node/" in line
    explained = invoke("explain first")
    assert explained.code == 0
    for words in ("a particular person's record", "Queries of the records"):
        assert words in explained.out
    assert "other runs on the same records" in explained.out and "on the same edges" not in explained.out


def test_an_interrupted_run_resumes_to_the_same_bytes(
    invoke: Invoke, files: Files, progress: Progress
) -> None:
    base = ["train double --no-baseline --unsafe-noise-seed 3", *files.flags, *BOUNDED]
    invoke(*base, "--out", "whole")
    with progress.stopped_at("aggregate", 1):
        assert invoke(*base, "--out", "parts").code == 130
    assert names("parts") == {"internal"}
    assert invoke(*base, "--out", "parts", "--resume").code == 0
    for name in (f"per_node/{PREDICTIONS}", f"per_node/{AGGREGATES}", "release/privacy.json"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


# -- plans and tables --------------------------------------------------------------------------------------


def test_rows_without_a_valid_guarantee_fit_on_a_narrow_screen(invoke: Invoke, files: Files) -> None:
    with environment(COLUMNS="80"):
        flags = "train double --unsafe-noise-seed 1 --runs 2 --baseline"
        lines = invoke(flags, *files.flags, *OWNER).out.splitlines()
    for name in ("double", r"mlp \(no graph\)"):
        row = rf"{name} +[\d.]+ \[[-\d.]+, [\d.]+\] +[\d.]+ \(not valid\) +1e-05 +at most [\d.]+ %"
        assert any(re.fullmatch(row, line.rstrip()) for line in lines)


def test_the_plan_lists_each_release_and_what_is_charged(invoke: Invoke, owner: list[object]) -> None:
    answer = invoke(*owner, "--json")
    plan = answer.err.partition("\ndouble ")[0]
    stage = r"release +out-edge aggregation: noise standard deviation 3\.731; charged to all; epsilon 1 alone"
    assert re.search(stage, plan)
    (stated,) = answer.json["stages"]
    assert (stated["kind"], stated["pays"], stated["share"]) == ("push", ["all"], 1.0)
    replaced = invoke(*owner, "--replace-one", "--json").json
    assert replaced["noise_std"][0] == pytest.approx(2 * answer.json["noise_std"][0], rel=1e-6)
    assert "two different records" in replaced["statement"]


@pytest.mark.parametrize("flags", [OWNER, BOUNDED])
def test_delta_auto_states_which_bound_decided(invoke: Invoke, files: Files, flags: list[str]) -> None:
    auto = [flag for flag in flags if flag not in ("--delta", "1e-5")]
    answer = invoke("train double --no-baseline", *files.flags, *auto)
    assert answer.code == 0, answer.err
    assert f"at delta 1e-05 (auto: the default of {flags[1]}, below 1/(10 B) for B = 60 nodes)" in answer.err


# -- splits ------------------------------------------------------------------------------------------------


def splits(monkeypatch: pytest.MonkeyPatch, invoke: Invoke, *words: object) -> list[Any]:
    """Return the training masks of the fits that a call makes."""
    from estimators.doubles import Double

    masks, fit = list[Any](), Double.fit

    def watched(self: Double, given: Any, **rest: Any) -> Any:
        masks.append(getattr(given, "graph", given).train_mask)  # given a prepared fit, or a graph
        return fit(self, given, **rest)

    monkeypatch.setattr(Double, "fit", watched)
    assert invoke(*map(str, words)).code == 0
    return masks


def test_strict_splits_read_no_label(
    invoke: Invoke, files: Files, owner: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = splits(monkeypatch, invoke, *owner, "--runs", 2)
    assert not first.equal(second)  # each run has its own
    head, *rows = read(files.nodes)
    write(files.nodes, [head, *([*row[:3], "" if index < 9 else row[3]] for index, row in enumerate(rows))])
    assert first.equal(splits(monkeypatch, invoke, *owner)[0])


def test_a_method_as_published_keeps_the_papers_split(
    invoke: Invoke, owner: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from estimators.doubles import Double

    monkeypatch.setattr(Double, "as_published", True)
    (mask,) = splits(monkeypatch, invoke, *owner)
    assert int(mask.sum()) == int(0.75 * len(mask))  # exact shares, of the nodes that the paper keeps


# -- misuse ------------------------------------------------------------------------------------------------

EDGES = ["--unit", "undirected-edge", "--epsilon", 1]
REJECTED: dict[str, tuple[list[object], str]] = {
    "no out-degree bound": (["double", *OWNER[:-2]], "--out-degree-bound"),
    "zero out-degree bound": (["double", *OWNER[:-1], 0], "--out-degree-bound"),
    "a bound for edges": (["double", *EDGES, "--out-degree-bound", 5], "Omit it (--out-degree-bound)"),
    "no assumption": (["double", *BOUNDED[:-2]], "--max-degree"),
    "an assumption for edges": (["double", *EDGES, "--max-degree", 5], "Omit it (--max-degree)"),
    "an assumption for records": (["double", *OWNER, "--max-degree", 5], "Omit it (--max-degree)"),
    "a violated assumption": (
        ["double", *BOUNDED[:-1], 2],
        "A node has a degree above",
    ),
    "replacing edges": (["double", *EDGES, "--replace-one"], "Omit it"),
    "counts for edges": (["double", *EDGES, "--private-metrics"], "Omit it (--private-metrics)"),
    "option and setting": (["double", *OWNER, "--set", "out_degree_bound=5"], "given twice"),
    "large delta": (["double", *changed(OWNER, "--delta", 0.02)], "is outside the range of the proofs"),
    "no epsilon": (["double", *OWNER[:2], *OWNER[-2:]], "--epsilon"),
    "batch norm": (["gap", *OWNER, "--set", "batch_norm=true"], "mixes the records of a batch"),
    "batch above the data": (["mlp", *OWNER[:-2], "--set", "batch_size=5000"], "batch size 5000 is larger"),
    "no noise meets it": (
        ["mlp", *changed(OWNER[:-2], "--epsilon", 0.001, "--set", "epochs=10000000")],
        "Use a larger epsilon",
    ),
    "a method for edges": (["gcn", *OWNER], "'none' only"),
    "another one": (["gat", *OWNER], "'none' only"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_misuse_is_rejected_before_anything_is_spent(invoke: Invoke, files: Files, case: str) -> None:
    (method, *flags), words = REJECTED[case]
    alone = ["--no-baseline"] if method == "double" else []
    answer = invoke(f"train {method}", *files.flags, *flags, *alone)
    (line,) = answer.err.strip().splitlines()
    assert line.startswith("graphveil: ") and words in line
    assert (answer.code, answer.out, recorded(), list(Path().iterdir())) == (2, "", [], [])


# -- the shipped methods -----------------------------------------------------------------------------------


def test_a_baseline_is_a_release_of_its_own(invoke: Invoke, files: Files) -> None:
    train = "train gap --runs 2 --baseline --out first --json"
    answer = invoke(train, *files.flags, *OWNER, *SHORT)
    assert answer.code == 0, answer.err
    assert [row["label"] for row in recorded()] == ["gap", "mlp"] * 2
    record = answer.json
    one, every = record["guarantee"], record["guarantee_all_runs"]
    assert record["baseline_guarantee"]["epsilon"] == pytest.approx(1, rel=1e-3)
    assert every["releases"] == 2 * (one["releases"] + record["baseline_guarantee"]["releases"])
    together = re.search(r"all runs +together epsilon ([\d.]+) at delta 1e-05", answer.err)
    assert together is not None and float(together[1]) == pytest.approx(every["epsilon"], rel=1e-3)
    assert every["epsilon"] > 2  # four releases at epsilon 1
    assert re.search(r"baseline +mlp, epsilon 1 at delta 1e-05 per run, .*--no-baseline", answer.err)
    assert re.search(r"^mlp \(no graph\) .* 1 +1e-05 ", answer.err, re.MULTILINE)
    page = Path("first/release/PRIVACY.md").read_text()
    assert "2 runs on the same records, and an MLP was trained next to each" in page


@pytest.mark.parametrize("stage", ["classifier", "baseline classifier"])
def test_a_run_that_is_interrupted_in_training_resumes_to_the_same_bytes(
    invoke: Invoke, files: Files, progress: Progress, stage: str
) -> None:
    flags = "train gap --baseline --private-metrics --set epochs=20 --unsafe-noise-seed 3"
    base = [flags, *files.flags, *OWNER]
    whole = invoke(*base, "--out", "whole", "--json").json
    with progress.stopped_at(stage, 12):
        assert invoke(*base, "--out", "parts").code == 130
    parts = invoke(*base, "--out", "parts", "--resume", "--json").json
    assert parts["private_accuracy"] is not None
    assert parts["private_accuracy"] == whole["private_accuracy"]
    for name in ("release/model.safetensors", f"release/{AGGREGATES}", f"per_node/{PREDICTIONS}"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


def test_no_baseline_is_neither_trained_nor_charged(invoke: Invoke, files: Files) -> None:
    record = invoke("train gap --no-baseline --out first --json", *files.flags, *OWNER, *SHORT).json
    assert record["mlp_test_accuracy"] is record["baseline_guarantee"] is None
    assert record["guarantee_all_runs"]["epsilon"] == record["guarantee"]["epsilon"]
    assert "mlp" not in Path("first/internal/report.html").read_text()
    assert "--no-baseline" not in Path("first/release/PRIVACY.md").read_text()


def test_at_edge_level_the_baseline_spends_no_budget(invoke: Invoke, files: Files) -> None:
    base = ["train gap --unit undirected-edge --epsilon 1", *files.flags, *SHORT]
    record = invoke(*base, "--json").json
    assert record["baseline_guarantee"] is None
    assert record["guarantee_all_runs"]["epsilon"] == record["guarantee"]["epsilon"]
    assert record["mlp_test_accuracy"]["mean"] > 0
    assert "mlp (no graph)" not in invoke(*base, "--no-baseline").out


def test_a_method_that_reads_no_edge_does_not_check_the_assumption(invoke: Invoke, files: Files) -> None:
    violated = [*files.flags, *BOUNDED[:-1], 1, *SHORT]
    assert invoke("train mlp --out blind", *violated).code == 0
    assert (
        "the assumption of unit 'node-bounded-degree' is violated"
        in invoke("train gap --out read", *violated).err
    )


def test_a_private_accuracy_is_that_of_the_nodes_that_have_a_label(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_otherwise(monkeypatch, lambda self, stream, rows, dim: np.zeros((len(rows), dim)))
    head, *rows = read(files.nodes)
    write(files.nodes, [head, *([*row[:3], row[3] if n % 3 else ""] for n, row in enumerate(rows))])
    train = "train mlp --unit node-record --epsilon 2 --delta 1e-5 --private-metrics --json"
    record = invoke(train, *files.flags, *SHORT).json
    for part in ("test", "val"):
        exact = record[f"{part}_accuracy"]["mean"]
        assert record["private_accuracy"][part]["mean"] == pytest.approx(exact, abs=1e-6)


def test_private_metrics_are_not_charged_to_training_records(invoke: Invoke, files: Files) -> None:
    base = ["train mlp --unit node-record --epsilon 2 --delta 1e-5 --json", *files.flags, *SHORT]
    plain, counted = invoke(*base).json, invoke(*base, "--private-metrics").json
    assert plain["noise_std"][0] == pytest.approx(counted["noise_std"][0], rel=1e-3)
    assert counted["guarantee"]["epsilon"] == pytest.approx(2, rel=1e-3)
    stages = [["train"], ["val"], ["other"], ["other"]]  # of test nodes: accuracy and histogram
    assert [stage["pays"] for stage in counted["stages"]] == stages
    private = counted["private_accuracy"]
    assert private["covered"] is True
    assert private["mlp_test"] == private["test"]  # an MLP is its own baseline
    assert 0 <= private["test"]["mean"] <= 1


@pytest.mark.parametrize("flags", [OWNER, BOUNDED])
def test_a_prediction_of_another_graph_is_charged(invoke: Invoke, files: Files, flags: list[str]) -> None:
    train = "train gap --no-baseline --set hops=1 --out first"
    assert invoke(train, *files.flags, *flags, *SHORT).code == 0
    before = recorded()
    shutil.rmtree("first/per_node")  # the rows of the training graph are not needed
    answer = invoke("predict first --out p.csv --json", *other_of(files))
    assert answer.code == 0, answer.err
    # The same people are in both graphs, so one account is charged.
    assert len(recorded()) == len(before) + 1
    assert len(read(Path("p.csv"))) == 61
    assert "Privacy cost of querying another graph's records" in answer.err
    assert "since a person may be in both graphs" in " ".join(answer.err.split())
    assert 0 < answer.json["charged"]["epsilon"] < answer.json["guarantee"]["epsilon"]  # without training


def test_calibrate_shows_the_share_of_each_group(invoke: Invoke) -> None:
    base = ["calibrate gap --nodes-count 20000 --private-metrics", *OWNER]
    printed = invoke(*base).out
    for words in (
        "training",
        "out-edge aggregation x 2",
        "counts of correct and wrong predictions",
        "train",
        "val",
    ):
        assert words in printed
    record = invoke(*base, "--json").json
    assert record["epsilon"] <= 1
    kinds = [stage["kind"] for stage in record["stages"]]
    assert kinds == ["training", "push", "training", "outcomes", "outcomes", "histogram"]
    assert sum(stage["share"] for stage in record["stages"][:3]) == pytest.approx(1)
    assert {"noise_std", "mu", "delta", "sensitivity", "max_tpr_at_1pct_fpr"} <= set(record)


def test_calibrate_takes_public_sizes(invoke: Invoke) -> None:
    base = ["calibrate mlp --set batch_size=256 --nodes-count 20000 --json", *OWNER[:-2]]
    (guess,) = invoke(*base).json["stages"]
    ranges, known = invoke(*base, "--training-count", 10_000, "--features-count", 50).json["stages"]
    assert ranges["kind"] == "ranges"  # learned per column, so that their number is needed
    assert guess["sampling_rate"] == pytest.approx(256 / 15_000, rel=1e-6)
    assert known["sampling_rate"] == pytest.approx(256 / 10_000, rel=1e-6)
    assert known["noise_multiplier"] > guess["noise_multiplier"]
