"""``sweep``: the privacy cost first, one JSON object, and the ledger limit."""

import csv
from pathlib import Path

import pytest
from command import Files, Invoke, recorded

SWEEP = ["--unit", "undirected-edge", "--delta", "1e-7", "--set", "epochs=2"]


@pytest.fixture
def sweep(files: Files) -> list[str]:
    return ["sweep", "gap,mlp", *files.flags, *SWEEP]


def test_a_sweep_shows_its_privacy_cost_first_and_prints_its_cells(invoke: Invoke, sweep: list[str]) -> None:
    done = invoke(*sweep, "--epsilon", "1,4", "--runs", 2, "--include-nonprivate", "--out", "s", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert [(cell["method"], cell["unit"], cell["epsilon"]) for cell in found["cells"]] == [
        ("gap", "undirected-edge", 1.0),
        ("gap", "undirected-edge", 4.0),
        ("mlp", "undirected-edge", 0.0),
        ("gap", "none", None),
    ]
    assert all(len(cell["test_accuracy"]["values"]) == 2 for cell in found["cells"])
    total = found["total"]
    assert total["releases"] == 4  # two cells, two runs
    privacy_cost, table = done.err.index("total privacy cost"), done.err.index("test accuracy")
    assert privacy_cost < table
    assert "do not publish the table or the figure" in done.err  # the reference is not private
    ledger = found["cells"][1]["ledger"]
    assert ledger["epsilon"] == pytest.approx(total["epsilon"], rel=1e-6)
    assert [len(cell["ledger"]["receipts"]) for cell in found["cells"][:2]] == [2, 2]
    assert {path.name for path in Path("s").iterdir()} == {
        "cells",
        "internal",
        "sweep.csv",
        "curve.svg",
        "curve.pdf",
    }
    again = invoke(
        *sweep, "--epsilon", "1,4", "--runs", 2, "--include-nonprivate", "--out", "s", "--resume", "--json"
    )
    assert again.json == found


def test_a_grid_beyond_the_ledger_limit_is_rejected(invoke: Invoke, sweep: list[str]) -> None:
    budget = ("--unit", "undirected-edge", "--epsilon", "1.3", "--delta", "1e-7")
    assert invoke("ledger init friends", *budget).code == 0
    rejected = invoke(*sweep, "--epsilon", "1,1.2", "--ledger", "friends", "--out", "s")
    assert (rejected.code, Path("s").exists(), recorded()) == (2, False, [])
    assert "of epsilon 1.3" in rejected.err
    assert invoke(*sweep, "--epsilon", "1.2", "--ledger", "friends", "--out", "s").code == 0
    resumed = invoke(*sweep, "--epsilon", "1.2", "--ledger", "friends", "--out", "s", "--resume")
    assert resumed.code == 0  # what is done needs no more room


INVALID = {
    "unknown method": (["gaap"], "gaap"),
    "unknown setting": (["gap", "--set", "hoops=1,2"], "hoops"),
    "no value": (["gap", "--set", "hops"], "name=a,b,c"),
    "a setting twice": (["gap", "--set", "hops=1", "--set", "hops=2"], "given twice"),
    "no number": (["gap", "--epsilon", "1,x"], "epsilon"),
    "no method": ([","], "empty item"),
    "a flag and a setting": (["gcn", "--perturb", "edge-rand", "--set", "perturb=lap-graph"], "given twice"),
    "weights of nobody": (["gap", "--theta", "theta.json"], "theta"),
    "a release that no method trains on": (["gap", "--perturb", "edge-rand"], "perturb"),
    "public edges of another unit": (["gap", "--private-fraction", "0.3"], "edge-subset"),
    "the seed": (["gap", "--set", "seed=1,2"], "separate argument of a sweep"),
}


@pytest.mark.parametrize("case", INVALID)
def test_misuse_is_rejected_before_anything_is_read(case: str, invoke: Invoke, files: Files) -> None:
    (method, *flags), words = INVALID[case]
    budget = [] if "--epsilon" in flags else ["--epsilon", "1"]
    Path("theta.json").write_text("[0.5, 0.5]")
    done = invoke("sweep", method, *files.flags, "--unit", "undirected-edge", *budget, *flags, "--out", "s")
    assert (done.code, Path("s").exists()) == (2, False)
    assert words in done.err


def test_methods_on_released_graphs_are_swept_with_a_baseline(invoke: Invoke, files: Files) -> None:
    grid = [
        "sweep",
        "gcn,mlp",
        *files.flags,
        "--unit",
        "undirected-edge",
        "--epsilon",
        "1,4",
        "--include-nonprivate",
    ]
    done = invoke(*grid, "--perturb", "edge-rand", "--set", "epochs=2", "--out", "s", "--json")
    assert done.code == 0, done.err
    assert [(cell["method"], cell["unit"], cell["epsilon"]) for cell in done.json["cells"]] == [
        ("gcn", "undirected-edge", 1.0),
        ("gcn", "undirected-edge", 4.0),
        ("mlp", "undirected-edge", 0.0),
        ("gcn", "none", None),  # on the true graph
    ]
    assert done.json["total"]["epsilon"] == pytest.approx(5.0)


def test_every_cell_of_a_sweep_has_the_same_public_edges(invoke: Invoke, files: Files) -> None:
    public = ["--unit", "edge-subset", "--private-fraction", "0.3", "--private-nodes", "all"]
    grid = ["sweep", "gcn", *files.flags, *public, "--epsilon", "1,4", "--perturb", "edge-rand"]
    done = invoke(*grid, "--set", "epochs=2", "--out", "s", "--json")
    assert done.code == 0, done.err
    units = [(cell["unit"], cell["epsilon"]) for cell in done.json["cells"]]
    assert units == [("edge-subset", 1.0), ("edge-subset", 4.0)]


def test_public_weights_of_features_reach_every_cell(invoke: Invoke, files: Files) -> None:
    Path("theta.json").write_text("[0.25, 0.75]")  # age and height
    grid = [
        "sweep",
        "lpgnn",
        *files.flags,
        "--unit",
        "local-attributes",
        "--set",
        "eps_x=1,2",
        "--set",
        "eps_y=1",
    ]
    more = ["--set", "features=feature-rr", "--set", "epochs=2", "--theta", "theta.json"]
    done = invoke(*grid, *more, "--out", "s", "--json")
    assert done.code == 0, done.err
    assert len(done.json["cells"]) == 2
    reported = [path.read_text() for path in Path("s/cells").glob("*/**/*.json")]
    assert sum("0.75" in text for text in reported) >= 2


def test_the_metric_that_selects_is_a_column_of_table_and_file(invoke: Invoke, sweep: list[str]) -> None:
    done = invoke(*sweep, "--epsilon", "1", "--metric", "macro_f1", "--out", "s", "--json")
    assert done.code == 0, done.err
    value = done.json["cells"][0]["test_metrics"]["macro_f1"]["mean"]
    assert f"{value:.3f}" in done.err and "macro F1" in done.err
    head, row, *_ = (line.split(",") for line in Path("s/sweep.csv").read_text().splitlines())
    found = dict(zip(head, row, strict=True))
    assert (found["metric"], float(found["metric_value"])) == ("macro_f1", pytest.approx(value))


def test_private_metrics_are_a_column_with_the_interval_of_the_noise(invoke: Invoke) -> None:
    words = "sweep mlp --dataset synthetic/tiny --unit node-record --epsilon 4,8 --private-metrics --out s"
    done = invoke(*words.split(), "--json")
    assert "macro F1 [95 % CI]" in done.err
    with Path("s/sweep.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    private = [cell["private_metrics"][0]["metrics"]["macro_f1"] for cell in done.json["cells"]]
    assert [row["metric"] for row in found] == ["macro_f1", "macro_f1"]
    for name in ("value", "low", "high"):
        assert [float(row[f"metric_{name}"]) for row in found] == pytest.approx(
            [one[name] for one in private]
        )
    assert "macro F1" in Path("s/metric.svg").read_text(encoding="utf-8")
