"""The command with records that nodes randomize: train, explain, predict, calibrate, resume."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from command import NODES, Files, Invoke, read

import graphveil as gv
from graphveil.runs.results import SAME_REPORTS

LOCAL = ["lpgnn", "--unit", "local-attributes", "--set", "eps_x=1", "--set", "eps_y=2", "--set", "epochs=3"]


PAGES = ("release/PRIVACY.md", "internal/report.html")


def test_a_run_reports_both_budgets(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", *LOCAL, *files.flags, "--runs", 2, "--out", "run", "--json")
    record = answer.json
    assert (record["epsilon"], record["eps_x"], record["eps_y"], record["delta"]) == (3.0, 1.0, 2.0, 0.0)
    assert record["guarantee_all_runs"] == {"epsilon": 6.0, "delta": 0.0, "releases": 2}
    assert record["covered"] is record["guarantee"]["valid"] is True
    assert record["edges_stored"] > 0
    assert len(record["mlp_test_accuracy"]["values"]) == len(record["mlp_val_accuracy"]["values"]) == 2
    assert record["baseline_guarantee"] is None
    assert record["recipe"] == "lpgnn"
    assert len(record["test_accuracy"]["values"]) == 2


def test_the_baseline_costs_nothing_more(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", *LOCAL, *files.flags, "--out", "run")
    shown = " ".join((answer.out + answer.err).split())
    assert "mlp on the same reports, without edges: no further reports or charges" in shown
    assert SAME_REPORTS in shown
    assert SAME_REPORTS in " ".join(Path("run", PAGES[1]).read_text().split())
    assert re.search(r"^mlp \(no graph\) +\d+\.\d +3 ", answer.out, re.MULTILINE)
    names = {row[1] for row in read(Path("run/internal/history.csv"))[1:]}
    assert names == {"lpgnn", "mlp"}


def test_the_mlp_may_be_left_out(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", *LOCAL, *files.flags, "--no-baseline", "--out", "run", "--json")
    assert answer.json["mlp_test_accuracy"] is None
    assert "mlp" not in answer.err


def test_a_budget_may_be_infinite(invoke: Invoke, files: Files) -> None:
    command = ["train", *LOCAL[:-4], "--set", "eps_y=inf", "--set", "epochs=3", *files.flags, "--out", "run"]
    record = invoke(*command, "--json").json
    assert (record["epsilon"], record["eps_x"], record["eps_y"]) == (None, 1.0, None)
    again = invoke(*command, "--resume", "--json").json
    assert again["test_accuracy"] == record["test_accuracy"]
    assert "label at eps_y = inf" in invoke("explain", "run", "--json").json["statement"]


def test_several_runs_state_that_each_reads_test_labels_of_its_own(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", *LOCAL, *files.flags, "--runs", 2, "--out", "run")
    for page in (answer.out + answer.err, *(Path("run", p).read_text() for p in PAGES)):
        assert "over all runs these may be the labels of all nodes" in " ".join(page.split())


def test_what_is_not_randomized_is_not_called_publishable(invoke: Invoke, files: Files) -> None:
    answer = invoke("train", *LOCAL[:3], "--set", "eps_x=inf", *LOCAL[5:], *files.flags, "--out", "run")
    shown = " ".join((answer.out + answer.err).split())
    assert "publish it only if that may be known" in shown
    assert "may be published" not in shown


def test_the_folder_explains_and_predicts(invoke: Invoke, files: Files) -> None:
    shown = invoke("train", *LOCAL, *files.flags, "--out", "run")
    assert "features  MultiBit, " in shown.err
    explained = invoke("explain", "run")
    for words in ("eps_x = 1 and its label at eps_y = 2 (total 3", "randomized features", "randomized label"):
        assert words in explained.out
    record = invoke("explain", "run", "--json").json
    assert record["guarantee"]["eps_y"] == 2.0
    assert [row["kind"] for row in record["releases"]] == ["features", "label"]
    assert "prediction" in invoke("predict", "run").out


def test_another_graph_is_priced_and_queried(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    invoke("train", *LOCAL, *files.flags, "--out", "run")
    shutil.copytree("run", "fresh")
    (tmp_path / "other").mkdir()
    other = Files.written(tmp_path / "other", seed=1)
    flags = ["predict", "run", "--nodes", other.nodes, "--edges", other.edges, "--json"]
    answer = invoke(*flags)
    record, shown = answer.json, " ".join(answer.err.split())
    assert "The privacy cost of querying another graph's records" in shown
    assert "privacy cost epsilon 1 at delta 0, on the records of this graph" in shown
    assert "with the training epsilon 4 at delta 0, as a person may be in both graphs" in shown
    assert (record["charged"]["eps_x"], record["charged"]["eps_y"]) == (1.0, 0.0)
    assert record["guarantee_with_predictions"]["epsilon"] == 4.0
    assert (record["nodes"], len(record["predictions"])) == (NODES, NODES)
    known = invoke(*flags, "--assume-disjoint-nodes")
    assert (known.code, "has predicted before, so they are not disjoint" in known.err) == (2, True)
    apart = invoke("predict", "fresh", *flags[2:], "--assume-disjoint-nodes")
    assert (apart.code, "so they are not disjoint" in apart.err) == (2, True)  # the same ids were trained on
    refused = invoke(*flags, "--assume-disjoint-edges")
    assert (refused.code, "--assume-disjoint-nodes" in refused.err) == (2, True)
    alone = invoke("predict", "run", "--assume-disjoint-nodes")
    assert (alone.code, "about another" in alone.err) == (2, True)


@pytest.mark.parametrize("part", ["privacy.json", "model.json"])
def test_a_release_is_plain_json(invoke: Invoke, files: Files, part: str) -> None:
    invoke("train", *LOCAL, "--set", "m=1", *files.flags, "--out", "run")

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    assert json.loads(Path("run/release", part).read_text(), parse_constant=refuse)


def test_calibrate_states_what_a_node_does(invoke: Invoke) -> None:
    sizes = ["--features-count", 500, "--classes-count", 3]
    answer = invoke("calibrate", *LOCAL[:-2], *sizes, "--json").json
    assert answer["epsilon"] == 3.0
    assert answer["reports"][0] == "features: MultiBit, 1 of 500 features told, epsilon 1, cut to [0, 1]"
    assert answer["reports"][1].startswith("label: kept with probability 0.787, else")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "eps_x and eps_y are missing: pass them (--set eps_x=1 --set eps_y=1; inf for no protection)"),
        (["--set", "eps_x=1"], "eps_y is missing: pass it (--set eps_y=1; inf for no protection)"),
    ],
)
def test_each_budget_that_is_missing_is_named_with_its_flag(
    invoke: Invoke, files: Files, given: list[str], words: str
) -> None:
    answer = invoke("train", "lpgnn", "--unit", "local-attributes", *given, *files.flags)
    assert answer.code == 2
    assert words in answer.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epsilon", 1], "spends on features and on the label"),
        (["--set", "eps_x=0"], "eps_x=0.0 must be a number above 0"),
        (["--set", "features=mbm"], "is not one of 1bm, "),
        (["--set", "features=feature-rr", "--set", "theta=0.5,0.6"], "theta adds up to 1.1 instead of 1"),
        (["--set", "features=feature-rr", "--set", "theta=1"], "1 weights and there are 2 features"),
        (["--set", "low=3", "--set", "high=1"], "low=3.0 must be below high=1.0"),
        (["--set", "low=nan"], "low=nan must be a finite number"),
        (["--set", "scaling=columns"], "data_dependent_bounds=True go together"),
    ],
)
def test_misuse_is_one_line(invoke: Invoke, files: Files, flags: list[object], message: str) -> None:
    settings = LOCAL[:3] + (LOCAL[3:5] if "eps_x=0" not in flags else []) + LOCAL[5:7]
    answer = invoke("train", *settings, *flags, *files.flags)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err


RR = ["--set", "features=feature-rr"]


def test_public_weights_come_from_a_file(invoke: Invoke, files: Files) -> None:
    Path("theta.json").write_text("[0.75, 0.25]")
    answer = invoke("train", *LOCAL, *RR, "--theta", "theta.json", *files.flags, "--out", "run", "--json")
    assert "FeatureRR, 2 of 2 features told by public weights" in answer.json["releases"][0]["words"]
    model = gv.load_model("run")
    assert model.theta == (0.75, 0.25)
    assert [law.epsilon for law in model.mechanism(2).features] == [0.75, 0.25]
    assert (
        invoke("train", *LOCAL, *RR, "--theta", "theta.json", *files.flags, "--out", "run", "--resume").code
        == 0
    )
    sizes = ["--features-count", 2, "--classes-count", 3]
    found = invoke("calibrate", *LOCAL[:-2], *RR, "--theta", "theta.json", *sizes, "--json").json
    assert "by public weights, epsilon 1" in found["reports"][0]


@pytest.mark.parametrize(
    ("theta", "more", "why"),
    [
        ("[0.5, 0.6]", RR, "theta adds up to 1.1 instead of 1"),
        ("[1.0]", RR, "theta has 1 weights and there are 2 features"),
        ("[1.5, -0.5]", RR, "finite numbers of at least 0"),
        ("[NaN, 1]", RR, "finite numbers of at least 0"),
        ("[[0.5, 0.5], [1, 0]]", RR, "one row per record"),
        ('["0.5", "0.5"]', RR, "must hold a JSON list of weights, one number a feature"),
        ("[true, 0]", RR, "must hold a JSON list of weights, one number a feature"),
        ('{"a": 1}', RR, "must hold a JSON list of weights, one number a feature"),
        ("[0.5, 0.5", RR, "cannot read a JSON list of weights"),
        ("[1.0, 0.0]", RR, "a feature of weight 0"),
        ("[1.0, 0.0]", ["--set", "features=duchi"], "a feature of weight 0"),
        ("[0.5, 0.5]", [*RR, "--set", "theta=0.5,0.5"], "theta is given twice"),
        ("[0.5, 0.5]", [], "theta weighs the features of lpm, "),
    ],
)
def test_weights_that_are_not_public_and_normalized_are_refused(
    invoke: Invoke, files: Files, theta: str, more: list[str], why: str
) -> None:
    Path("theta.json").write_text(theta)
    answer = invoke("train", *LOCAL, *more, "--theta", "theta.json", *files.flags, "--out", "run")
    assert (answer.code, why in answer.err) == (2, True), answer.err
    assert not Path("run").exists()


def test_weights_are_for_methods_on_randomized_records(invoke: Invoke, files: Files) -> None:
    Path("theta.json").write_text("[0.5, 0.5]")
    answer = invoke(
        "train", "gap", "--unit", "undirected-edge", "--epsilon", 1, "--theta", "theta.json", *files.flags
    )
    assert (answer.code, "gap has no weights" in answer.err) == (2, True)
    missing = invoke("train", *LOCAL, *RR, "--theta", "none.json", *files.flags)
    assert (missing.code, "cannot read a JSON list of weights" in missing.err) == (2, True)


def test_values_outside_the_range_are_counted_inside_only(invoke: Invoke, files: Files) -> None:
    narrow = ["--set", "low=0.25", "--set", "high=0.75"]
    answer = invoke("train", *LOCAL, *narrow, *files.flags, "--out", "run", "--json")
    assert "cut to [0.25, 0.75]" in answer.json["releases"][0]["words"]
    rows = [[float(cell) for cell in row[1:3]] for row in read(files.nodes)[1:]]
    outside = sum(not 0.25 <= value <= 0.75 for row in rows for value in row)
    assert json.loads(Path("run/internal/clipped.json").read_text()) == {"clipped_values": outside}
    assert outside > 0
    assert "clipped" not in answer.out + answer.err


def test_ranges_from_the_data_are_a_listed_deviation(invoke: Invoke, files: Files) -> None:
    columns = ["--set", "scaling=columns", "--set", "data_dependent_bounds=true"]
    record = invoke("train", *LOCAL, *columns, *files.flags, "--out", "run", "--json").json
    assert record["deviations"] == ["bounds taken from the data"]
    assert record["statement"].startswith("NOT A VALID GUARANTEE")


SIMGAT = ["simgat", "--unit", "local-attributes", "--set", "eps_x=1", "--set", "eps_y=2", "--set", "epochs=3"]


@pytest.mark.parametrize(
    "similarity", ["multihop", "multihop(n=3, delta=0.1, transition=True)", "factorized(dim=8)"]
)
def test_a_similarity_is_one_flag(invoke: Invoke, files: Files, similarity: str) -> None:
    answer = invoke(
        "train", *SIMGAT, "--set", f"similarity={similarity}", *files.flags, "--out", "run", "--json"
    )
    record = answer.json
    assert (record["method"], record["epsilon"], record["guarantee"]["valid"]) == ("simgat", 3.0, True)
    assert record["seconds"]["similarity"] > 0


def test_a_missing_package_is_an_error_before_the_plan(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, planned in (("gensim", False), ("gensim.models", True)):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            answer = invoke("train", *SIMGAT, "--set", "similarity=deepwalk", *files.flags, "--out", "run")
        assert (answer.code, "graphveil[simgat]" in answer.err) == (2, True)
        assert ("Plan" in answer.err) is planned
        assert not Path("run").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "similarity=deepwalks"], "did you mean 'deepwalk'"),
        (["--set", "similarity=multihop(3)"], "write name=value pairs"),
        (["--set", "max_union_degree=10"], "is for combine='union'"),
    ],
)
def test_misuse_of_similarities_is_one_line(
    invoke: Invoke, files: Files, flags: list[str], message: str
) -> None:
    answer = invoke("train", *SIMGAT, *flags, *files.flags)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
