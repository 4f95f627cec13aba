"""``prepare`` as it is called: one object, nothing that a table holds, and a graph that opens."""

from pathlib import Path

import pytest
from command import Files, Invoke

import graphveil as gv

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


def test_what_is_missing_is_misuse(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    done = invoke("prepare", "--nodes", files.nodes, "--out", tmp_path / "graph")
    assert done.code == 2 and "--edges" in done.err and not (tmp_path / "graph").exists()
    done = invoke("prepare", *files.flags, "--edges", "none-*.csv", "--out", tmp_path / "g")
    assert done.code != 0 and "no file is called" in done.err
