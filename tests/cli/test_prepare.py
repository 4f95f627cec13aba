"""``prepare``: one JSON object, and a graph that can be opened."""

from pathlib import Path

import pytest
from command import Files, Invoke

import graphveil as gv
from graphveil.data.fingerprint import fingerprint_parts

pytest.importorskip("duckdb")


def test_prepare_writes_a_graph_that_opens(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "graph"
    done = invoke("prepare", *files.flags, "--out", out, "--json")
    assert done.code == 0 and set(done.json) == {
        "internal",
        "nodes",
        "edges",
        "path",
        "seconds",
        "peak_rss_mb",
    }
    graph = gv.open_graph(out)
    plain = gv.read_graph(files.nodes, files.edges, id="user", label="team", source="a", target="b")
    assert done.json["internal"] is True and done.json["path"] == str(out)
    assert done.json["nodes"] == graph.num_nodes == plain.num_nodes
    assert done.json["edges"] == len(plain.adjacency.indices) // 2
    assert (graph.adjacency.indices == plain.adjacency.indices).all()
    again = invoke("prepare", *files.flags, "--out", out)
    assert again.code == 0 and "as private as the tables" in again.out


def test_missing_options_are_rejected(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    done = invoke("prepare --nodes", files.nodes, "--out", tmp_path / "graph")
    assert done.code == 2 and "--edges" in done.err and not (tmp_path / "graph").exists()
    done = invoke("prepare", *files.flags, "--edges", "none-*.csv", "--out", tmp_path / "g")
    assert done.code != 0 and "No file matches" in done.err


def test_training_on_the_folder_equals_training_on_the_tables(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "graph"
    assert invoke("prepare", *files.flags, "--out", out).code == 0
    shared = (
        "--unit",
        "undirected-edge",
        "--epsilon",
        2,
        "--unsafe-noise-seed",
        1,
        "--no-baseline",
        "--set",
        "epochs=5",
    )
    runs = {
        name: invoke("train gap", *data, *shared, "--json", "--out", tmp_path / name)
        for name, data in (
            ("tables", files.flags),
            ("folder", ("--graph", out)),
            ("disk", ("--graph", out, "--backend", "disk")),
            ("memory", ("--graph", out, "--backend", "memory")),
        )
    }
    assert {name: (run.code, run.err if run.code else "") for name, run in runs.items()} == dict.fromkeys(
        runs, (0, "")
    )
    first = runs["tables"].json
    for run in runs.values():
        assert run.json["test_accuracy"] == first["test_accuracy"]
    graphs = (
        gv.open_graph(out),
        gv.read_graph(files.nodes, files.edges, id="user", label="team", source="a", target="b"),
    )
    tags = [{name: b"".join(part) for name, part in fingerprint_parts(graph).items()} for graph in graphs]
    assert tags[0] == tags[1] and {"edges", "records", "people"} <= set(tags[0])  # one account in a ledger


def test_a_folder_excludes_tables_and_needs_a_backend_that_reads_it(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    out, unit = tmp_path / "graph", ("--unit", "undirected-edge", "--epsilon", 2)
    done = invoke("train gap", *files.flags, *unit, "--backend", "disk", "--out", tmp_path / "run")
    assert done.code == 2 and "graphveil prepare" in done.err and not (tmp_path / "run").exists()
    assert invoke("prepare", *files.flags, "--out", out).code == 0
    done = invoke("train gap --graph", out, *files.flags, *unit)
    assert done.code == 2 and "--graph does not use --nodes" in done.err
    done = invoke("train gap --graph", tmp_path, *unit)
    assert done.code != 0 and "does not contain a prepared graph" in done.err
