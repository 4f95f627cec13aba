"""The command line under units of records: plans, folders, markers and refusals."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import (
    SECRET,
    Answer,
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
ALONE = ["--no-baseline"]
RELEASE = {
    "model.safetensors",
    "model.json",
    "privacy.json",
    "PRIVACY.md",
    "MODEL_CARD.md",
    "README.md",
    "MLmodel",
}
AGGREGATES, PREDICTIONS = "aggregates.safetensors", "predictions.parquet"

pytestmark = pytest.mark.usefixtures("double")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- the run folder ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "released", "withheld_files"),
    [(OWNER, {AGGREGATES}, {PREDICTIONS}), (BOUNDED, set(), {AGGREGATES, PREDICTIONS})],
)
def test_what_depends_on_its_own_record_is_not_released(
    invoke: Invoke, files: Files, flags: list[str], released: set[str], withheld_files: set[str]
) -> None:
    answer = invoke("train", "double", *files.flags, *flags, *ALONE, "--out", "first")
    assert answer.code == 0, answer.err
    assert names(Path("first")) == {"release", "internal", "per_node", "PRIVACY.md"}
    assert names(Path("first/release")) == RELEASE | released
    assert names(Path("first/per_node")) == withheld_files | {"README.md"}
    assert "per_node/: row v only for someone entitled to v's record" in answer.out
    modes = {folder.name: folder.stat().st_mode & 0o777 for folder in Path("first").iterdir()}
    assert modes == {"release": 0o755, "internal": 0o700, "per_node": 0o700, "PRIVACY.md": 0o600}
    assert names(Path("first/internal")) == {
        "config.lock.json",
        "metrics.json",
        "history.csv",
        "report.html",
        "graph_fingerprint.json",
        "receipts.json",
        "columns.json",
    }


def test_a_card_has_no_accuracy_but_a_recorded_noisy_count(invoke: Invoke, files: Files) -> None:
    base = ["train", "double", *files.flags, *OWNER, *ALONE]
    invoke(*base, "--out", "plain")
    invoke(*base, "--private-metrics", "--out", "counted")
    plain, counted = (Path(name, "release/MODEL_CARD.md").read_text() for name in ("plain", "counted"))
    assert "No accuracy: an exact one would depend on the records." in plain
    assert "%" not in plain.partition("## Privacy")[0]
    assert "* test accuracy of labeled nodes, from noisy counts: 50.0 %" in counted


def test_predictions_come_from_the_rows_next_to_the_release(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    invoke("train", "double", *files.flags, *OWNER, *ALONE, "--out", "first")
    answer = invoke("predict", "first", "--out", "p.csv")
    assert answer.code == 0, answer.err
    assert len(read(Path("p.csv"))) == 61
    assert "row v only for someone entitled to v's record" in answer.err
    shutil.rmtree("first/per_node")
    for alone in ("first", "first/release"):
        refused = invoke("predict", alone)
        assert refused.code == 2
        (line,) = refused.err.strip().splitlines()
        assert "holds no predictions" in line
        assert "per_node/" in line
    assert invoke("explain", "first").code == 0


def test_explain_describes_records(invoke: Invoke, files: Files) -> None:
    invoke("train", "double", *files.flags, *OWNER, *ALONE, "--out", "first")
    answer = invoke("explain", "first")
    for words in (
        "a particular person's record",
        "What was released about the records",
        "other runs on the same",
    ):
        assert words in answer.out
    assert "on the same edges" not in answer.out


def test_nothing_secret_reaches_the_release(invoke: Invoke, files: Files) -> None:
    secretive = files.nodes.with_name(f"{SECRET}.csv")
    files.nodes.rename(secretive)
    moved = Files(secretive, files.edges)
    assert invoke("train", "double", *moved.flags, *BOUNDED, *ALONE, "--out", "first").code == 0
    for part in ("release", "per_node"):
        for path in Path("first", part).iterdir():
            assert SECRET.encode() not in path.read_bytes()
            assert part == "per_node" or b"u17" not in path.read_bytes()  # a node's id


def test_a_stopped_run_resumes_to_the_same_bytes(invoke: Invoke, files: Files, progress: Progress) -> None:
    base = ["train", "double", *files.flags, *BOUNDED, *ALONE, "--unsafe-noise-seed", 3]
    invoke(*base, "--out", "whole")
    with progress.stopped_at("aggregate", 1):
        assert invoke(*base, "--out", "parts").code == 130
    assert names(Path("parts")) == {"internal"}
    assert invoke(*base, "--out", "parts", "--resume").code == 0
    for name in (f"per_node/{PREDICTIONS}", f"per_node/{AGGREGATES}", "release/privacy.json"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


# -- figures -----------------------------------------------------------------------------------------------


def test_the_figures_of_a_void_table_stay_on_one_line_of_a_narrow_screen(
    invoke: Invoke, files: Files
) -> None:
    flags = [*OWNER, "--unsafe-noise-seed", 1, "--runs", 2, "--baseline"]
    with environment(COLUMNS="80"):
        lines = invoke("train", "double", *files.flags, *flags, "--out", "r").out.splitlines()
    for name in ("double", r"mlp \(no graph\)"):
        row = rf"{name} +[\d.]+ \[[-\d.]+, [\d.]+\] +[\d.]+ \(not valid\) +1e-05 +at most [\d.]+ %"
        assert any(re.fullmatch(row, line.rstrip()) for line in lines)


def test_exact_accuracies_are_marked(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", "double", *files.flags, *OWNER, *ALONE, "--out", "first")
    assert "test accuracy, % (not covered: internal)" in answer.out
    assert "Exact accuracies depend on the records" in answer.out
    assert "--private-metrics" in answer.out
    record = json.loads(Path("first/internal/metrics.json").read_text())
    assert record["covered"] is False
    assert record["private_accuracy"] is None
    page = Path("first/internal/report.html").read_text()
    assert page.count("not covered: internal") >= 2
    assert "tests about records" in page


def test_noisy_counts_are_covered(invoke: Invoke, files: Files) -> None:
    flags = [*OWNER, *ALONE, "--private-metrics", "--runs", 2]
    answer = invoke("train", "double", *files.flags, *flags, "--out", "first", "--json")
    private = answer.json["private_accuracy"]
    assert private["covered"] is True
    assert private["test"]["values"] == [0.5, 0.5]
    assert private["mlp_test"] is None
    assert answer.json["covered"] is False
    assert "test accuracy from noisy counts, %" in answer.err
    assert re.search(r"^double +50\.0 \[", answer.err, re.MULTILINE)
    assert "Exact accuracies are in internal/metrics.json: not covered" in answer.err


def test_the_statement_states_what_is_treated_as_public(invoke: Invoke, files: Files) -> None:
    record = invoke("train", "double", *files.flags, *OWNER, *ALONE, "--json").json
    assert "classes, vocabulary and split are treated as public" in record["statement"]
    assert record["edges_stored"] is None


def test_the_plan_lists_each_release_and_who_pays(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", "double", *files.flags, *OWNER, *ALONE, "--json")
    plan = answer.err.partition("\ndouble ")[0]
    assert re.search(
        r"release +push along own edges: noise standard deviation 3\.731; paid by all; epsilon 1 alone", plan
    )
    (stage,) = answer.json["stages"]
    assert (stage["kind"], stage["pays"], stage["share"]) == ("push", ["all"], 1.0)


@pytest.mark.parametrize("flags", [OWNER, BOUNDED])
def test_delta_auto_states_which_bound_decided(invoke: Invoke, files: Files, flags: list[str]) -> None:
    auto = [flag for flag in flags if flag not in ("--delta", "1e-5")]
    answer = invoke("train", "double", *files.flags, *auto, *ALONE)
    assert answer.code == 0, answer.err
    assert f"at delta 1e-05 (auto: the default of {flags[1]}, below 1/(10 B) for B = 60 nodes)" in answer.err


def test_replacing_doubles_the_noise(invoke: Invoke, files: Files) -> None:
    base = ["train", "double", *files.flags, *OWNER, *ALONE, "--json"]
    nulled, replaced = invoke(*base).json, invoke(*base, "--replace-one").json
    assert replaced["noise_std"][0] == pytest.approx(2 * nulled["noise_std"][0], rel=1e-6)
    assert "two different records" in replaced["statement"]


# -- splits ------------------------------------------------------------------------------------------------


def split_of(monkeypatch: pytest.MonkeyPatch, invoke: Invoke, flags: list[Any]) -> list[Any]:
    """Return the training masks of the fits that a call makes."""
    from estimators.doubles import Double

    masks = []
    fit = Double.fit
    monkeypatch.setattr(
        Double,
        "fit",
        lambda self, given, **rest: (
            masks.append(getattr(given, "graph", given).train_mask),  # given a prepared fit, or a graph
            fit(self, given, **rest),
        )[1],
    )
    assert invoke("train", "double", *flags, *ALONE).code == 0
    return masks


def test_strict_splits_read_no_label(invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = split_of(monkeypatch, invoke, [*files.flags, *OWNER, "--runs", 2])
    assert not first.equal(second)  # each run has its own
    head, *rows = read(files.nodes)
    write(files.nodes, [head, *([*row[:3], "" if index < 9 else row[3]] for index, row in enumerate(rows))])
    again = split_of(monkeypatch, invoke, [*files.flags, *OWNER])[0]
    assert first.equal(again)


def test_paper_mode_keeps_the_papers_split(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mask,) = split_of(monkeypatch, invoke, [*files.flags, *OWNER, "--mode", "paper"])
    assert int(mask.sum()) == int(0.75 * len(mask))  # exact shares, of the nodes that paper mode keeps


# -- refusals ----------------------------------------------------------------------------------------------


REFUSED = {
    "no degree budget": (OWNER[:-2], "--out-degree-bound"),
    "zero degree budget": ([*OWNER[:-1], 0], "--out-degree-bound"),
    "a budget for edges": (
        ["--unit", "undirected-edge", "--epsilon", 1, "--out-degree-bound", 5],
        "drop it (--out-degree-bound)",
    ),
    "no promise": (BOUNDED[:-2], "--max-degree"),
    "a promise for edges": (
        ["--unit", "undirected-edge", "--epsilon", 1, "--max-degree", 5],
        "drop it (--max-degree)",
    ),
    "a promise to owners": ([*OWNER, "--max-degree", 5], "drop it (--max-degree)"),
    "a broken promise": ([*BOUNDED[:-1], 2], "violates the assumption that no node has a degree above 2,"),
    "replacing edges": (["--unit", "undirected-edge", "--epsilon", 1, "--replace-one"], "drop it"),
    "counts for edges": (
        ["--unit", "undirected-edge", "--epsilon", 1, "--private-metrics"],
        "drop it (--private-metrics)",
    ),
    "flag and key": ([*OWNER, "--set", "out_degree_bound=5"], "given twice"),
    "large delta": (
        changed(OWNER, "--set", "hidden=3", "--delta", 0.02),
        "is outside the range of the proofs",
    ),
    "no epsilon": (["--unit", "node-record", "--out-degree-bound", 5], "--epsilon"),
}


def assert_refused(answer: Answer, words: str) -> None:
    """One clear line, exit code 2, nothing printed, nothing spent or written."""
    assert answer.code == 2, answer.err
    (line,) = answer.err.strip().splitlines()
    assert line.startswith("graphveil: ")
    assert words in line
    assert (answer.out, recorded(), list(Path().iterdir())) == ("", [], [])


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_spent(
    invoke: Invoke, files: Files, case: str
) -> None:
    flags, words = REFUSED[case]
    assert_refused(invoke("train", "double", *files.flags, *flags, *ALONE), words)


# -- the shipped methods -----------------------------------------------------------------------------------


SHORT = ["--set", "epochs=3"]


def test_the_baseline_is_a_release_of_its_own(invoke: Invoke, files: Files) -> None:
    answer = invoke(
        "train", "gap", *files.flags, *OWNER, *SHORT, "--runs", 2, "--baseline", "--out", "first", "--json"
    )
    assert answer.code == 0, answer.err
    assert [row["label"] for row in recorded()] == ["gap", "mlp"] * 2
    record = answer.json
    one, every = record["guarantee"], record["guarantee_all_runs"]
    assert record["baseline_guarantee"]["epsilon"] == pytest.approx(1, rel=1e-3)
    assert every["releases"] == 2 * (one["releases"] + record["baseline_guarantee"]["releases"])
    together = re.search(r"all runs +together epsilon ([\d.]+) at delta 1e-05", answer.err)
    assert together is not None
    assert float(together[1]) == pytest.approx(every["epsilon"], rel=1e-3)
    assert every["epsilon"] > 2  # four releases at epsilon 1
    assert re.search(r"baseline +mlp, epsilon 1 at delta 1e-05 a run: .*--no-baseline", answer.err)
    assert re.search(r"^mlp \(no graph\) .* 1 +1e-05 ", answer.err, re.MULTILINE)
    page = Path("first/release/PRIVACY.md").read_text()
    assert "2 runs on the same records, and an MLP was trained next to each" in page


@pytest.mark.parametrize(("stage", "done"), [("classifier", 12), ("baseline classifier", 12)])
def test_a_run_that_was_stopped_while_training_resumes_to_the_same_bytes(
    invoke: Invoke, files: Files, progress: Progress, stage: str, done: int
) -> None:
    flags = [*OWNER, "--private-metrics", "--set", "epochs=20", "--unsafe-noise-seed", 3]
    base = ["train", "gap", *files.flags, *flags, "--baseline"]
    whole = invoke(*base, "--out", "whole", "--json").json
    with progress.stopped_at(stage, done):
        assert invoke(*base, "--out", "parts").code == 130
    parts = invoke(*base, "--out", "parts", "--resume", "--json").json
    assert parts["private_accuracy"] is not None
    assert parts["private_accuracy"] == whole["private_accuracy"]
    for name in ("release/model.safetensors", f"release/{AGGREGATES}", f"per_node/{PREDICTIONS}"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


def test_no_baseline_is_neither_trained_nor_charged(invoke: Invoke, files: Files) -> None:
    record = invoke("train", "gap", *files.flags, *OWNER, *SHORT, *ALONE, "--out", "first", "--json").json
    assert record["mlp_test_accuracy"] is record["baseline_guarantee"] is None
    assert record["guarantee_all_runs"]["epsilon"] == record["guarantee"]["epsilon"]
    assert "mlp" not in Path("first/internal/report.html").read_text()
    assert "--no-baseline" not in Path("first/release/PRIVACY.md").read_text()


def test_at_edge_level_the_baseline_stays_free(invoke: Invoke, files: Files) -> None:
    flags = ["--unit", "undirected-edge", "--epsilon", 1, *SHORT]
    record = invoke("train", "gap", *files.flags, *flags, "--json").json
    assert record["baseline_guarantee"] is None
    assert record["guarantee_all_runs"]["epsilon"] == record["guarantee"]["epsilon"]
    assert record["mlp_test_accuracy"]["mean"] > 0
    alone = invoke("train", "gap", *files.flags, *flags, *ALONE).out
    assert "mlp (no graph)" not in alone


def test_a_method_that_reads_no_edge_does_not_check_the_assumption(invoke: Invoke, files: Files) -> None:
    broken = [*BOUNDED[:-1], 1, *SHORT]
    assert invoke("train", "mlp", *files.flags, *broken, "--out", "blind").code == 0
    assert "violates the assumption" in invoke("train", "gap", *files.flags, *broken, "--out", "read").err


def test_a_private_accuracy_is_that_of_the_nodes_that_have_a_label(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_otherwise(monkeypatch, lambda self, stream, rows, dim: np.zeros((len(rows), dim)))
    head, *rows = read(files.nodes)
    write(files.nodes, [head, *([*row[:3], row[3] if n % 3 else ""] for n, row in enumerate(rows))])
    flags = ["--unit", "node-record", "--epsilon", 2, "--delta", "1e-5", *SHORT, "--private-metrics"]
    record = invoke("train", "mlp", *files.flags, *flags, "--json").json
    for part in ("test", "val"):
        exact = record[f"{part}_accuracy"]["mean"]
        assert record["private_accuracy"][part]["mean"] == pytest.approx(exact, abs=1e-6)


def test_private_metrics_cost_the_training_records_nothing(invoke: Invoke, files: Files) -> None:
    base = ["train", "mlp", *files.flags, "--unit", "node-record", "--epsilon", 2, "--delta", "1e-5", *SHORT]
    plain, counted = (invoke(*base, *more, "--json").json for more in ([], ["--private-metrics"]))
    assert plain["noise_std"][0] == pytest.approx(counted["noise_std"][0], rel=1e-3)
    assert counted["guarantee"]["epsilon"] == pytest.approx(2, rel=1e-3)
    assert [stage["pays"] for stage in counted["stages"]] == [["train"], ["val"], ["other"]]
    private = counted["private_accuracy"]
    assert private["covered"] is True
    assert private["mlp_test"] == private["test"]  # an MLP is its own baseline
    assert 0 <= private["test"]["mean"] <= 1


@pytest.mark.parametrize("flags", [OWNER, BOUNDED])
def test_another_graph_is_priced_and_recorded(invoke: Invoke, files: Files, flags: list[str]) -> None:
    base = ["train", "gap", *files.flags, *flags, *SHORT, *ALONE, "--set", "hops=1"]
    assert invoke(*base, "--out", "first").code == 0
    before = recorded()
    shutil.rmtree("first/per_node")  # nobody needs the old rows for new ones
    another = [*other_of(files), "--out", "p.csv", "--json"]
    answer = invoke("predict", "first", *another)
    assert answer.code == 0, answer.err
    # The same people are in both graphs, so one account is charged.
    assert len(recorded()) == len(before) + 1
    assert len(read(Path("p.csv"))) == 61
    assert "The privacy cost of querying another graph's records" in answer.err
    assert "as a person may be in both graphs" in " ".join(answer.err.split())
    assert 0 < answer.json["charged"]["epsilon"] < answer.json["guarantee"]["epsilon"]  # no training is asked


SHIPPED_REFUSED = {
    "batch norm": (["gap", *OWNER, "--set", "batch_norm=true"], "batch_norm mixes the records of a batch"),
    "batch above the data": (["mlp", *OWNER[:-2], "--set", "batch_size=5000"], "a batch of 5000 is larger"),
    "no share meets it": (
        ["gap", *changed(OWNER, "--set", "sgd_multiplier=0.7", "--epsilon", 0.3)],
        "epsilon 0.3",
    ),
    "no noise meets it": (
        ["mlp", *changed(OWNER[:-2], "--epsilon", 0.001, "--set", "epochs=10000000")],
        "take a larger epsilon",
    ),
    "a method for edges": (["gcn", *OWNER], "'none' only"),
    "another one": (["gat", *OWNER], "'none' only"),
}


@pytest.mark.parametrize("case", SHIPPED_REFUSED)
def test_the_shipped_methods_refuse_before_anything_is_spent(invoke: Invoke, files: Files, case: str) -> None:
    (method, *flags), words = SHIPPED_REFUSED[case]
    assert_refused(invoke("train", method, *files.flags, *flags), words)


def test_calibrate_shows_who_spends_what(invoke: Invoke) -> None:
    base = ["calibrate", "gap", *OWNER, "--nodes-count", 20_000, "--private-metrics"]
    printed = invoke(*base).out
    for words in ("training", "push x 2", "outcomes", "train", "val", "Rényi", "cross-check"):
        assert words in printed
    record = invoke(*base, "--json").json
    assert record["epsilon"] <= 1 < record["epsilon_renyi"]
    assert [stage["kind"] for stage in record["stages"]] == [
        *("training", "push", "training", "outcomes", "outcomes")
    ]
    train = [stage["share"] for stage in record["stages"][:3]]
    assert sum(train) == pytest.approx(1)
    assert {"noise_std", "mu", "delta", "sensitivity", "max_tpr_at_1pct_fpr"} <= set(record)


def test_calibrate_takes_public_sizes(invoke: Invoke) -> None:
    base = ["calibrate", "mlp", *OWNER[:-2], "--set", "batch_size=256", "--nodes-count", 20_000, "--json"]
    (guess,) = invoke(*base).json["stages"]
    (known,) = invoke(*base, "--training-count", 10_000, "--features-count", 50).json["stages"]
    assert guess["sampling_rate"] == pytest.approx(256 / 15_000, rel=1e-6)
    assert known["sampling_rate"] == pytest.approx(256 / 10_000, rel=1e-6)
    assert known["noise_multiplier"] > guess["noise_multiplier"]
