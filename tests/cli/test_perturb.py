"""``perturb``: the plan, and the folder of the released graph."""

import json
import re
from pathlib import Path

import pytest
from command import Files, Invoke, changed, environment, recorded

UNIT = ("--unit", "undirected-edge")


def request(files: Files, out: Path, *more: object, epsilon: object = 5) -> list[object]:
    columns = ["--id", "user", "--source", "a", "--target", "b"]
    data = ["--nodes", files.nodes, "--edges", files.edges, *columns]
    return changed(["perturb", "edge-rand", *data, *UNIT, "--epsilon", epsilon, "--out", out], *more)


def test_the_plan_is_shown_before_and_the_statement_after(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    done = invoke(*request(files, tmp_path / "out"))
    assert done.code == 0, done.err
    assert "Plan (no privacy budget has been spent)" in done.err
    assert "each of 1,770 slots is flipped with probability 0.00669285" in done.err
    assert "12 edges from noise alone" in done.err
    assert "the released graph and everything computed from it" in done.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "RELEASED.md",
        "edges.parquet",
        "guarantee.json",
    ]


def test_a_release_that_uses_all_of_delta_is_marked(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    tree = request(files, tmp_path / "out")
    tree[1] = "priv-hrg"
    done = invoke(*tree)
    assert done.code == 0, done.err
    assert "this release uses all of its delta" in " ".join(done.err.split())
    assert "r times the epsilon, at r times the delta." in " ".join(done.out.split())
    other = invoke(*request(files, tmp_path / "other"))
    assert "uses all of its delta" not in other.err and "times the delta" not in other.out


def test_json_has_the_documented_keys(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    done = invoke(*request(files, tmp_path / "out", "--json"))
    assert done.json["path"] == str(tmp_path / "out")
    assert done.json["guarantee"]["epsilon"] == 5.0
    assert done.json["guarantee"]["delta"] == 0.0
    record = json.loads((tmp_path / "out" / "guarantee.json").read_text())
    assert done.json["edges"] == record["edges"]


def test_the_same_seed_writes_the_same_edges(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert invoke(*request(files, tmp_path / name, "--unsafe-noise-seed", 1)).code == 0
    first, second = (json.loads((tmp_path / name / "guarantee.json").read_text()) for name in ("a", "b"))
    assert first["edges"] == second["edges"] and not first["valid"]
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "a/edges.parquet").equals(pq.read_table(tmp_path / "b/edges.parquet"))


INVALID: dict[str, tuple[list[object], str]] = {
    "no unit": (["--unit", ""], "is not a privacy unit"),
    "unit of records": (["--unit", "node-record"], "no guarantee under unit 'node-record'"),
    "guard": (
        ["--max-edges", 3],
        "would add about 12 edges to a graph of 60 nodes, which is above --max-edges 3",
    ),
    "two sources": (["--dataset", "cora"], "--dataset does not use --nodes"),
    "no list": (["--unit", "edge-subset"], "needs the public list of nodes"),
    "no unit for a list": (["--private-nodes", "all"], "need unit 'edge-subset'"),
    "setting": (["--set", "fraction=1"], "edge-rand has no such parameter"),
    "budget": (["--epsilon", -1], "--epsilon -1.0 must be a finite number above 0"),
}


@pytest.mark.parametrize("case", INVALID)
def test_misuse_is_rejected_before_anything_is_spent(
    invoke: Invoke, files: Files, tmp_path: Path, case: str
) -> None:
    flags, words = INVALID[case]
    done = invoke(*request(files, tmp_path / "out", *flags))
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert not (tmp_path / "out").exists()


def test_an_unknown_mechanism_is_rejected(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("perturb edge-rnd --dataset cora", *UNIT, "--epsilon", 1, "--out", tmp_path / "out")
    assert done.code == 2 and "edge-rand" in done.err


def test_an_unusable_folder_is_rejected_before_anything_is_spent(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    rejected = [("out", "already exists")]
    rejected += [(str(place), "Cannot create") for place in (files.nodes / "out", "o" * 250)]
    for out, words in rejected:
        done = invoke(*request(files, tmp_path / out))
        assert done.code == 2 and words in done.err and not recorded()


def test_help_names_every_mechanism(invoke: Invoke) -> None:
    from graphveil.perturb import MECHANISMS

    for words in ("perturb", "train"):
        text = " ".join(re.sub("[│╭╮╰╯─]", " ", invoke(words, "--help").out).split())
        assert ", ".join(MECHANISMS) in text


def test_neighboring_graphs_have_the_same_plan(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    plans = []
    for name in ("a", "b"):
        with environment(GRAPHVEIL_LEDGER=str(tmp_path / f"{name}.sqlite")):  # each its owner's first data
            done = invoke(*request(files, tmp_path / name))
        plans.append(done.err.replace(str(tmp_path / name), "OUT"))
        files.edges.write_text("a,b\n", encoding="utf-8")  # all edges are gone
    assert plans[0] == plans[1]


def test_train_on_a_released_graph_prints_its_plan_and_statement(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    flags = [*files.flags, *UNIT, "--epsilon", 4, "--perturb", "arr", "--set", "epochs=3"]
    done = invoke("train gcn", *flags, "--runs", 2, "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert "epsilon 4 at delta 0 (a released graph needs none)" in done.err
    assert "number of edges: noise standard deviation" in done.err
    assert done.json["guarantee_all_runs"]["epsilon"] == pytest.approx(8)
    assert done.json["edges_stored"] is None
    explained = invoke("explain", tmp_path / "run")
    assert "a noisy graph        randomized at epsilon 3.6" in explained.out
    assert "no prediction reads a true edge" in explained.out


def test_published_code_lists_its_deviations(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    command = request(files, tmp_path / "out", "--set", "chunk=30", "--json")
    command[1] = "arr-paper"
    done = invoke(*command)
    assert done.code == 0, done.err
    assert "of each 30 rows" in done.err
    assert "the source calls this epsilon 5" in done.err
    assert done.json["guarantee"]["epsilon"] == pytest.approx(1.8 * 5 + 2 * 2 * 0.5)  # two chunks of 60 nodes
    assert not done.json["guarantee"]["valid"]
    strict = [*request(files, tmp_path / "strict", "--set", "chunk=30")]
    assert "has no such parameter" in invoke(*strict).err


def test_a_graph_released_as_published_is_trained_on(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    flags = [*files.flags, *UNIT, "--epsilon", 4, "--perturb", "arr", "--set", "epochs=3"]
    done = invoke("train sage-paper", *flags, "--out", tmp_path / "run", "--json", "--no-baseline")
    assert done.code == 0, done.err
    assert not done.json["guarantee"]["valid"] and done.json["guarantee"]["epsilon"] == pytest.approx(8)
    explained = invoke("explain", tmp_path / "run")
    assert "both directions of an undirected edge are randomized on their own" in explained.out


def test_private_methods_take_no_released_graph(invoke: Invoke, files: Files) -> None:
    done = invoke("train gap", *files.flags, *UNIT, "--epsilon", 4, "--perturb", "arr")
    assert done.code == 2 and "Method gap does not use --perturb" in done.err


def test_training_on_a_released_graph_spends_no_budget(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    assert invoke(*request(files, tmp_path / "out")).code == 0
    flags = ["--nodes", files.nodes, "--edges", tmp_path / "out", *files.flags[4:], "--unit", "none"]
    done = invoke("train gcn", *flags, "--set", "epochs=3", "--out", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    assert "not charged: the edges were already released at epsilon 5" in done.err
    assert done.json["guarantee"]["epsilon"] == 5 and done.json["guarantee"]["valid"]
