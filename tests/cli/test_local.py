"""Unit ``local-attributes``: train, explain, predict, calibrate, resume."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from command import NODES, Files, Invoke, read, rejected

import graphveil as gv
from graphveil.publish.results import SAME_REPORTS

UNIT = "--unit local-attributes"
LOCAL = f"lpgnn {UNIT} --set eps_x=1 --set eps_y=2 --set epochs=3"
RR = "--set features=feature-rr --theta theta.json"
PAGES = ("release/PRIVACY.md", "internal/report.html")


def test_a_run_reports_both_budgets(invoke: Invoke, files: Files) -> None:
    answer = invoke(f"train {LOCAL} --runs 2 --out run --json", *files.flags)
    record = answer.json
    assert (record["epsilon"], record["eps_x"], record["eps_y"], record["delta"]) == (3.0, 1.0, 2.0, 0.0)
    assert record["guarantee_all_runs"] == {"epsilon": 6.0, "delta": 0.0, "releases": 2}
    assert record["covered"] is record["guarantee"]["valid"] is True
    assert record["edges_stored"] > 0
    assert len(record["mlp_test_accuracy"]["values"]) == len(record["mlp_val_accuracy"]["values"]) == 2
    assert record["baseline_guarantee"] is None
    assert record["recipe"] == "lpgnn"
    assert len(record["test_accuracy"]["values"]) == 2
    for page in (answer.err, *(Path("run", name).read_text() for name in PAGES)):
        assert "Over all runs these may be the labels of all nodes" in " ".join(page.split())


def test_the_baseline_spends_no_additional_budget(invoke: Invoke, files: Files) -> None:
    answer = invoke(f"train {LOCAL} --out run", *files.flags)
    shown = " ".join((answer.out + answer.err).split())
    assert "mlp on the same LDP reports, which spends no additional budget" in shown
    assert SAME_REPORTS in shown
    assert SAME_REPORTS in " ".join(Path("run", PAGES[1]).read_text().split())
    assert re.search(r"^mlp \(no graph\) +\d+\.\d +3 ", answer.out, re.MULTILINE)
    assert {row[1] for row in read(Path("run/internal/history.csv"))[1:]} == {"lpgnn", "mlp"}
    alone = invoke(f"train {LOCAL} --no-baseline --json", *files.flags)
    assert alone.json["mlp_test_accuracy"] is None and "mlp" not in alone.err


def test_a_budget_may_be_infinite(invoke: Invoke, files: Files) -> None:
    command = [f"train lpgnn {UNIT} --set eps_x=1 --set eps_y=inf --set epochs=3 --out run", *files.flags]
    record = invoke(*command, "--json").json
    assert (record["epsilon"], record["eps_x"], record["eps_y"]) == (None, 1.0, None)
    again = invoke(*command, "--resume", "--json").json
    assert again["test_accuracy"] == record["test_accuracy"]
    assert "label at eps_y = inf" in invoke("explain run --json").json["statement"]
    shown = invoke(*command, "--resume").out
    assert "Publish: release/ only if its values that are not randomized are public" in shown


def test_the_folder_explains_and_predicts(invoke: Invoke, files: Files) -> None:
    narrow = "--set low=0.25 --set high=0.75"
    answer = invoke(f"train {LOCAL} {narrow} --set m=1 --out run --json", *files.flags)
    assert re.search(r"features +MultiBit, ", answer.err)
    assert "cut to [0.25, 0.75]" in answer.json["releases"][0]["words"]
    explained = invoke("explain run").out
    for words in ("eps_x = 1 and its label at eps_y = 2 (total 3", "randomized features", "randomized label"):
        assert words in explained
    record = invoke("explain run --json").json
    assert record["guarantee"]["eps_y"] == 2.0
    assert [row["kind"] for row in record["releases"]] == ["features", "label"]
    assert "prediction" in invoke("predict run").out
    rows = [[float(cell) for cell in row[1:3]] for row in read(files.nodes)[1:]]
    outside = sum(not 0.25 <= value <= 0.75 for row in rows for value in row)
    assert json.loads(Path("run/internal/clipped.json").read_text()) == {"clipped_values": outside}
    assert outside > 0 and "clipped" not in answer.out + answer.err

    def reject(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    for part in ("privacy.json", "model.json"):
        assert json.loads(Path("run/release", part).read_text(), parse_constant=reject)


def test_a_prediction_of_another_graph_is_charged(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    invoke(f"train {LOCAL} --out run", *files.flags)
    shutil.copytree("run", "fresh")
    (tmp_path / "other").mkdir()
    other = Files.written(tmp_path / "other", seed=1)
    flags = ["--nodes", other.nodes, "--edges", other.edges, "--json"]
    answer = invoke("predict run", *flags)
    record, shown = answer.json, " ".join(answer.err.split())
    assert "Privacy cost of querying another graph's records" in shown
    assert "privacy cost epsilon 1 at delta 0, on the records of this graph" in shown
    assert "total with training epsilon 4 at delta 0, since a person may be in both graphs" in shown
    assert (record["charged"]["eps_x"], record["charged"]["eps_y"]) == (1.0, 0.0)
    assert record["guarantee_with_predictions"]["epsilon"] == 4.0
    assert (record["nodes"], len(record["predictions"])) == (NODES, NODES)
    for run, words in (
        ("run", "has already predicted, so they are not disjoint"),
        ("fresh", "so they are not disjoint"),  # the same ids were trained on
    ):
        rejected(invoke(f"predict {run} --assume-disjoint-nodes", *flags[:-1]), words)
    rejected(invoke("predict run --assume-disjoint-edges", *flags[:-1]), "--assume-disjoint-nodes")
    rejected(invoke("predict run --assume-disjoint-nodes"), "does not use --assume-disjoint-nodes")


def test_calibrate_describes_the_reports_of_a_node(invoke: Invoke) -> None:
    answer = invoke(f"calibrate {LOCAL} --features-count 500 --classes-count 3 --json").json
    assert answer["epsilon"] == 3.0
    assert answer["reports"][0] == "features: MultiBit, 1 of 500 features reported, epsilon 1, cut to [0, 1]"
    assert answer["reports"][1].startswith("label: kept with probability 0.787, else")


def test_public_weights_come_from_a_file(invoke: Invoke, files: Files) -> None:
    Path("theta.json").write_text("[0.75, 0.25]")
    command = [f"train {LOCAL} {RR} --out run", *files.flags]
    answer = invoke(*command, "--json")
    assert "FeatureRR, 2 of 2 features reported by public weights" in answer.json["releases"][0]["words"]
    model = gv.load_model("run")
    assert model.theta == (0.75, 0.25)
    assert [law.epsilon for law in model.report_config().mechanism(2).features] == [0.75, 0.25]
    assert invoke(*command, "--resume").code == 0
    found = invoke(f"calibrate {LOCAL} {RR} --features-count 2 --classes-count 3 --json").json
    assert "by public weights, epsilon 1" in found["reports"][0]


def test_ranges_from_the_data_are_a_listed_deviation(invoke: Invoke, files: Files) -> None:
    columns = "--set scaling=columns --set data_dependent_bounds=true"
    record = invoke(f"train {LOCAL} {columns} --json", *files.flags).json
    assert record["deviations"] == ["bounds taken from the data"]
    assert record["statement"].startswith("No valid guarantee")


SIMGAT = f"simgat {UNIT} --set eps_x=1 --set eps_y=2 --set epochs=3"


@pytest.mark.parametrize(
    "similarity", ["multihop", "multihop(n=3, delta=0.1, transition=True)", "factorized(dim=8)"]
)
def test_a_similarity_is_one_setting(invoke: Invoke, files: Files, similarity: str) -> None:
    record = invoke(f"train {SIMGAT} --json", *files.flags, "--set", f"similarity={similarity}").json
    assert (record["method"], record["epsilon"], record["guarantee"]["valid"]) == ("simgat", 3.0, True)
    assert record["seconds"]["similarity"] > 0


def test_a_missing_package_is_an_error_before_the_plan(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, planned in (("gensim", False), ("gensim.models", True)):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            answer = invoke(f"train {SIMGAT} --set similarity=deepwalk --out run", *files.flags)
        rejected(answer, "graphveil[simgat]")
        assert ("Plan" in answer.err) is planned
        assert not Path("run").exists()


# -- misuse ------------------------------------------------------------------------------------------------

BOTH = "--set eps_x=1 --set eps_y=2"
MISUSE = {
    "lpgnn": "eps_x and eps_y are missing. Pass them (--set eps_x=1 --set eps_y=1; inf means no protection)",
    "lpgnn --set eps_x=1": "eps_y is missing. Pass it (--set eps_y=1; inf means no protection)",
    f"lpgnn {BOTH} --epsilon 1": "spends on features and on the label",
    "lpgnn --set eps_x=0 --set eps_y=2": "eps_x=0.0 must be a number above 0",
    f"lpgnn {BOTH} --set features=mbm": "is not one of 1bm, ",
    f"lpgnn {BOTH} --set features=feature-rr --set theta=0.5,0.6": "theta sums to 1.1 instead of 1",
    f"lpgnn {BOTH} --set features=feature-rr --set theta=1": "1 weights for 2 features",
    f"lpgnn {BOTH} --set low=3 --set high=1": "--set low=3.0 must be below --set high=1.0",
    f"lpgnn {BOTH} --set low=nan": "low=nan must be a finite number",
    f"lpgnn {BOTH} --set scaling=columns": "--set data_dependent_bounds=True must be set together",
    f"lpgnn {BOTH} --set features=feature-rr --theta none.json": "Cannot read a JSON list of weights",
    f"simgat {BOTH} --set similarity=deepwalks": "did you mean 'deepwalk'",
    f"simgat {BOTH} --set similarity=multihop(3)": "Write name=value pairs",
    f"simgat {BOTH} --set max_union_degree=10": "is only for --set combine=union",
}
WEIGHTS = {
    f"[0.5, 0.6] {RR}": "theta sums to 1.1 instead of 1",
    f"[1.0] {RR}": "theta has 1 weights for 2 features",
    f"[1.5, -0.5] {RR}": "finite numbers of at least 0",
    f"[NaN, 1] {RR}": "finite numbers of at least 0",
    f"[[0.5, 0.5], [1, 0]] {RR}": "one row per record",
    f'["0.5", "0.5"] {RR}': "must contain a JSON list of weights, one number per feature",
    f"[true, 0] {RR}": "must contain a JSON list of weights, one number per feature",
    f'{{"a": 1}} {RR}': "must contain a JSON list of weights, one number per feature",
    f"[0.5, 0.5 {RR}": "Cannot read a JSON list of weights",
    f"[1.0, 0.0] {RR}": "A feature of weight 0",
    "[1.0, 0.0] --set features=duchi --theta theta.json": "A feature of weight 0",
    f"[0.5, 0.5] {RR} --set theta=0.5,0.5": "theta is given twice",
    "[0.5, 0.5] --theta theta.json": "theta weights the features of lpm, ",
}


@pytest.mark.parametrize("words", MISUSE)
def test_misuse_is_one_line(invoke: Invoke, files: Files, words: str) -> None:
    rejected(invoke(f"train {words} {UNIT}", *files.flags), MISUSE[words])


@pytest.mark.parametrize("case", WEIGHTS)
def test_invalid_feature_weights_are_rejected(invoke: Invoke, files: Files, case: str) -> None:
    theta, _, flags = case.partition(" --")
    Path("theta.json").write_text(theta)
    rejected(invoke(f"train {LOCAL} --out run --{flags}", *files.flags), WEIGHTS[case])
    assert not Path("run").exists()


def test_feature_weights_are_for_local_methods(invoke: Invoke, files: Files) -> None:
    Path("theta.json").write_text("[0.5, 0.5]")
    flags = "train gap --unit undirected-edge --epsilon 1 --theta theta.json"
    rejected(invoke(flags, *files.flags), "Method gap does not use --theta.")
