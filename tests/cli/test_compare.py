"""``compare``: statistics of two graphs, marked internal."""

from pathlib import Path

import pytest
from command import SECRET, Files, Invoke, read, write

import graphveil as gv

COLUMNS = ("--id", "user", "--source", "a", "--target", "b")


@pytest.fixture
def released(invoke: Invoke, files: Files, tmp_path: Path) -> Path:
    """The folder of a released graph."""
    out = tmp_path / "released"
    data = ["--nodes", files.nodes, "--edges", files.edges, *COLUMNS]
    budget = ["--unit", "undirected-edge", "--epsilon", 3, "--unsafe-noise-seed", 1]
    assert invoke("perturb edge-rand", *data, *budget, "--out", out).code == 0
    return out


def test_a_table_of_edges_and_a_released_folder(invoke: Invoke, files: Files, released: Path) -> None:
    done = invoke("compare", files.edges, released, "--nodes", files.nodes, *COLUMNS)
    assert done.code == 0, done.err
    assert done.out.startswith("Internal: exact values of the true graph")
    assert "released graph: edge-rand, unit undirected-edge, epsilon 3" in done.err
    assert "the guarantee is not valid" in done.err  # its noise has a seed
    assert len([line for line in done.out.splitlines() if "relative error" in line]) == 11
    assert SECRET not in done.out + done.err


def test_json_is_what_python_returns(invoke: Invoke, files: Files, released: Path) -> None:
    flags = ["--nodes", files.nodes, "--edges", files.edges, *COLUMNS]
    done = invoke("compare", released, *flags, "--json", "--sources", 9, "--seed", 2)
    columns = {"id": "user", "source": "a", "target": "b", "label": "team", "directed": False}
    true, noisy = (gv.read_graph(files.nodes, edges, **columns) for edges in (files.edges, released))
    assert done.json == gv.compare(true, noisy, sources=9, seed=2).as_dict()
    assert done.json["internal"] is True
    edges = next(query for query in done.json["queries"] if query["name"] == "edges")
    assert set(edges) == {"name", "true", "released", "error", "measure"}
    pairs = {frozenset(row[:2]) for row in read(files.edges)[1:] if row[0] != row[1]}
    assert edges["true"] == len(pairs)


def test_a_data_set_by_name(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "out"
    budget = ["--unit", "undirected-edge", "--epsilon", 4, "--unsafe-noise-seed", 1]
    assert invoke("perturb edge-rand --dataset synthetic/tiny", *budget, "--out", out).code == 0
    first = invoke("compare synthetic/tiny", out, "--json")
    assert first.code == 0, first.err
    assert first.json == invoke("compare", out, "--dataset", "synthetic/tiny", "--json").json
    assert first.json["queries"][0]["true"] == 300


def test_an_edge_table_between_the_same_nodes_is_compared(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    fewer = tmp_path / "fewer.csv"
    write(fewer, read(files.edges)[:100])
    done = invoke("compare", files.edges, fewer, "--nodes", files.nodes, *COLUMNS, "--directed", "--json")
    assert done.code == 0 and "not released by a mechanism" in done.err
    assert done.json["queries"][1]["released"] < done.json["queries"][1]["true"]


INVALID: dict[str, tuple[list[object], str]] = {
    "one graph": (["EDGES"], "compare needs a true and a released graph"),
    "three": (["EDGES", "OUT", "--dataset", "cora"], "Got 2 graph(s) in addition to it"),
    "no nodes": (["EDGES", "OUT"], "is an edge table. Add --nodes"),
    "no columns": (["EDGES", "OUT", "--nodes", "NODES"], "Add --id, --source, --target"),
    "no such data set": (["coar", "OUT"], "did you mean 'cora'"),
    "no such folder": (["EDGES", "nowhere", "--nodes", "NODES", *COLUMNS], "nowhere"),
}


@pytest.mark.parametrize("case", INVALID)
def test_misuse_is_rejected(invoke: Invoke, files: Files, released: Path, case: str) -> None:
    given, words = INVALID[case]
    places = {"EDGES": files.edges, "NODES": files.nodes, "OUT": released}
    done = invoke("compare", *(places.get(str(word), word) for word in given))
    assert (done.code, done.out) == (2, "")
    assert words in done.err
