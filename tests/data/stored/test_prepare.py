"""Prepare tables as a folder: the same graph as in memory, resumed after interruptions, and typed errors."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from graphveil.core.edges.blocks import SOURCES
from graphveil.data import Graph, open_graph, prepare, read_graph, synthetic
from graphveil.data.graph_files import OFFSETS, manifest_of
from graphveil.data.preparation import (
    complete_manifest,
    create_manifest,
    describe_inputs,
    found_files,
    lock_folder,
    write_blocks,
)
from graphveil.errors import ConfigError, GraphError

pytest.importorskip("duckdb")

NODES, EDGES = 400, 3000
COLUMNS: dict[str, Any] = {"id": "user", "label": "team", "source": "a", "target": "b"}


def ids_of(kind: str) -> pa.Array:
    places = np.random.default_rng(1).permutation(NODES)
    if kind == "consecutive":
        return pa.array(np.arange(100, 100 + NODES))
    return pa.array(7 * places) if kind == "numbers" else pa.array([f"u'{place}" for place in places])


def write(table: pa.Table, path: Path) -> Path:
    (pa.parquet.write_table if path.suffix == ".parquet" else pa.csv.write_csv)(table, path)
    return path


def tables(
    folder: Path, kind: str = "consecutive", suffix: str = ".parquet", parts: int = 3
) -> tuple[Path, list[Path], pa.Table]:
    """Write a table of nodes and several of edges; return the former, a pattern, and all edges."""
    rng, ids = np.random.default_rng(0), ids_of(kind)
    nodes = {"user": ids, "team": rng.choice(["red", "blue"], NODES), "age": rng.normal(size=NODES)}
    ends = {
        name: ids.take(pa.array(end))
        for name, end in zip("ab", rng.integers(NODES, size=(2, EDGES)), strict=True)
    }
    edges = pa.table({"more": np.zeros(EDGES), **ends})
    for part in range(parts):
        write(edges.slice(part * EDGES // parts, EDGES // parts), folder / f"part-{part}{suffix}")
    return write(pa.table(nodes), folder / "nodes.parquet"), [folder / f"part-*{suffix}"], edges


def bytes_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / SOURCES).read_bytes(), (folder / OFFSETS).read_bytes()


def call_of(nodes: Path, edges: list[Path], out: Path, **options: Any) -> list[str]:
    """Return the command that prepares the tables in another process."""
    given = f"{str(nodes)!r}, {list(map(str, edges))!r}, {str(out)!r}, **{COLUMNS | options!r}"
    return [sys.executable, "-c", f"from graphveil.data import prepare; prepare({given})"]


# -- results ----


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("kind", ["consecutive", "numbers", "text"])
def test_prepared_graph_is_the_graph_that_is_read_into_memory(
    tmp_path: Path, kind: str, suffix: str, directed: bool
) -> None:
    nodes, parts, edges = tables(tmp_path, kind, suffix)
    made = prepare(nodes, parts, tmp_path / "g", directed=directed, block_rows=70, **COLUMNS)
    whole = write(edges, tmp_path / f"all{suffix}")
    found, plain = open_graph(tmp_path / "g"), read_graph(nodes, whole, directed=directed, **COLUMNS)
    assert all(map(torch.equal, found.adjacency.arrays, plain.adjacency.arrays))
    assert torch.equal(torch.as_tensor(found.x), torch.as_tensor(plain.x)) and torch.equal(found.y, plain.y)
    assert found.encoding is not None and plain.encoding is not None
    assert found.encoding.rules == plain.encoding.rules
    assert (found.notes, found.name) == (plain.notes, plain.name)
    assert made.nodes == NODES and made.edges == len(plain.adjacency.indices) // (1 if directed else 2)


def test_result_does_not_depend_on_memory_blocks_or_the_order_of_files(tmp_path: Path) -> None:
    nodes, _, _ = tables(tmp_path, "numbers")
    parts = [tmp_path / f"part-{part}.parquet" for part in range(3)]
    prepare(nodes, parts, tmp_path / "g", **COLUMNS)
    prepare(nodes, parts[::-1], tmp_path / "h", memory="64MB", block_rows=3, **COLUMNS)
    assert bytes_of(tmp_path / "g") == bytes_of(tmp_path / "h")
    # Patterns may overlap with names of files.
    assert found_files([tmp_path / "part-*.parquet", parts[1]]) == tuple(parts)


@pytest.mark.parametrize("kind", ["consecutive", "numbers", "text"])
def test_edges_to_unknown_ids_are_rejected_or_dropped(tmp_path: Path, kind: str) -> None:
    nodes, files, _ = tables(tmp_path, kind, parts=1)
    odd = pa.array(["stranger"] if kind == "text" else [10**9])
    more = {"a": pa.concat_arrays([odd, ids_of(kind)[:1]]), "b": pa.array([None, odd[0].as_py()], odd.type)}
    write(pa.table({"more": [0.0, 0.0], **more}), tmp_path / "part-1.parquet")
    with pytest.raises(GraphError, match="ids that are missing from the table of nodes") as error:
        prepare(nodes, files, tmp_path / "g", **COLUMNS)
    assert str(odd[0].as_py()) not in str(error.value) and not (tmp_path / "g").exists()
    prepare(nodes, files, tmp_path / "h", unknown_ids="drop", **COLUMNS)
    prepare(nodes, [tmp_path / "part-0.parquet"], tmp_path / "i", **COLUMNS)
    assert bytes_of(tmp_path / "h") == bytes_of(tmp_path / "i")


def test_text_ends_of_integer_ids_are_converted_one_by_one(tmp_path: Path) -> None:
    nodes, _, _ = tables(tmp_path, parts=1)
    text = write(
        pa.table({"a": ["100", " 101 ", "102", "100"], "b": ["101", "102", "1.0e2", "0102"]}),
        tmp_path / "t.parquet",
    )
    with pytest.raises(GraphError, match="ids that are missing from the table of nodes"):
        prepare(nodes, [text], tmp_path / "g", **COLUMNS)
    assert prepare(nodes, [text], tmp_path / "h", unknown_ids="drop", **COLUMNS).edges == 2


@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_columns_without_values_have_no_ids(tmp_path: Path, kind: str) -> None:
    nodes, _, _ = tables(tmp_path, kind)
    empty = write(pa.table({"a": pa.nulls(2), "b": pa.nulls(2)}), tmp_path / "none.parquet")
    with pytest.raises(GraphError, match="or empty ids"):
        prepare(nodes, [empty], tmp_path / "g", **COLUMNS)
    with pytest.raises(GraphError, match="No edge has both ends in the table of nodes"):
        prepare(nodes, [empty], tmp_path / "g", unknown_ids="drop", **COLUMNS)
    assert not (tmp_path / "g").exists()


# -- how files are read ----
PEOPLE = ["r0", "r1", "r2", "'r0'", "'r1'", "'r2'", "'r1'z", "x;y", "x|y", "x,y"]
NAMES = COLUMNS | {"directed": True}


def people(folder: Path, ids: list[Any] = PEOPLE) -> Path:
    teams = ["red" if place % 2 else "blue" for place in range(len(ids))]
    table = pa.table({"user": ids, "team": teams, "age": np.arange(len(ids)) / 2})
    return write(table, folder / "people.parquet")


def edges_of(graph: Graph) -> set[tuple[str, ...]]:
    assert graph.ids is not None
    ids = graph.ids
    return {tuple(str(ids[end]) for end in edge) for edge in graph.adjacency.edge_index().T.tolist()}


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n'r0','r1'\n'r1','r2'\n",  # quotes that belong to the ids
        "a,b\n'r0','r1'\n'r1','r2'\n'r1'z,r2\n",  # and an edge that would change an inferred format
        "a,b\nx;y,r1\nx|y,r2\n",
        'a,b\n"r0","x,y"\nr1,r2\n',
        "a,b\r\nr0,r1\r\nr1,r2\r\n",
        "a,b\nr0,r1",
        "since,a,more,b\n1,r0,2,r1\n",
    ],
)
def test_no_edge_affects_how_others_are_read(tmp_path: Path, content: str) -> None:
    nodes, edges = people(tmp_path), tmp_path / "edges.csv"
    edges.write_bytes(content.encode())
    prepare(nodes, [edges], tmp_path / "g", **NAMES)
    assert edges_of(open_graph(tmp_path / "g")) == edges_of(read_graph(nodes, edges, **NAMES))


@pytest.mark.parametrize("content", ["junk\na,b\nr0,r1\n", "a;b\nr0;r1\n", "a,b,a\nr0,r1,r2\n"])
def test_rejects_the_same_csv_as_read_graph(tmp_path: Path, content: str) -> None:
    nodes, edges = people(tmp_path), tmp_path / "edges.csv"
    edges.write_text(content)
    with pytest.raises(GraphError):
        prepare(nodes, [edges], tmp_path / "g", **NAMES)
    with pytest.raises(GraphError):
        read_graph(nodes, edges, **NAMES)


@pytest.mark.parametrize("name", ["e[1].csv", "e*.csv", "e?.csv", "r0=r2/e.csv", "a=r2/e.parquet"])
def test_names_of_files_are_neither_patterns_nor_values(tmp_path: Path, name: str) -> None:
    nodes, edges = people(tmp_path), tmp_path / name
    edges.parent.mkdir(exist_ok=True)
    (tmp_path / "e1.csv").write_text("a,b\nr2,r0\n")
    write(pa.table({"a": ["r0"], "b": ["r1"]}), edges)
    prepare(nodes, [edges], tmp_path / "g", **NAMES)
    assert edges_of(open_graph(tmp_path / "g")) == {("r0", "r1")}


def test_every_file_is_read_by_its_own_columns_and_types(tmp_path: Path) -> None:
    nodes = people(tmp_path, [7, 8, 9, 12])
    (tmp_path / "one.csv").write_text("a,b\n7,8\n")
    (tmp_path / "two.csv").write_text("b,a\n\t9 ,12\n")
    prepare(nodes, [tmp_path / "one.csv", tmp_path / "two.csv"], tmp_path / "g", **NAMES)
    assert edges_of(open_graph(tmp_path / "g")) == {("7", "8"), ("12", "9")}
    one = write(pa.table({"a": [7], "b": [8]}), tmp_path / "one.parquet")
    two = write(pa.table({"a": [8.6], "b": [12.0]}), tmp_path / "two.parquet")
    with pytest.raises(GraphError, match="'a' of the edges is of type double"):
        prepare(nodes, [one, two], tmp_path / "h", **NAMES)


# -- errors ----


@pytest.mark.parametrize(
    ("names", "changed", "message"),
    [
        (["none-*.parquet"], {}, "No file matches"),
        (["none**.parquet"], {}, "No file matches"),
        (["."], {}, "is a folder"),
        (["part-0.parquet", "edges.csv"], {}, "have the same format: Parquet"),
        (["broken.parquet"], {}, r"annot (be )?read"),
        (["floats.parquet"], {}, "column 'a' of the edges is of type double"),
        (["part-0.parquet"], {"source": "c"}, "no column 'c'"),
        *((["part-0.parquet"], {"memory": one}, "memory=") for one in ("abc", "0", "0GB", "-1GB", "1GB'")),
    ],
)
def test_rejects_invalid_arguments_and_leaves_no_folder(
    tmp_path: Path, names: list[str], changed: dict[str, Any], message: str
) -> None:
    nodes, _, edges = tables(tmp_path, parts=1)
    write(edges, tmp_path / "edges.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 xyzzy PAR1")
    write(pa.table({"a": [1.5], "b": [2.5]}), tmp_path / "floats.parquet")
    with pytest.raises((GraphError, ConfigError), match=message) as error:
        prepare(nodes, [tmp_path / name for name in names], tmp_path / "g", **{**COLUMNS, **changed})
    assert "xyzzy" not in str(error.value) and not (tmp_path / "g").exists()


def test_rejects_empty_names_and_missing_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, files, _ = tables(tmp_path)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ConfigError, match="--out"):
        prepare(nodes, files, "", **COLUMNS)
    for pattern, message in (
        ("", "No file matches"),
        ("/", "is a folder"),
        ("part**", "No file matches"),
    ):
        with pytest.raises(GraphError, match=message):
            prepare(nodes, [pattern], tmp_path / "g", **COLUMNS)
    with pytest.raises(GraphError, match=r"annot (be )?read"):
        prepare(tmp_path / "none.parquet", files, tmp_path / "g", **COLUMNS)
    with pytest.raises(GraphError, match="Cannot write to"):
        prepare(nodes, files, nodes / "g", **COLUMNS)
    assert not list((tmp_path / "empty").iterdir()) and not (tmp_path / "g").exists()


def test_missing_duckdb_is_reported_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, files, _ = tables(tmp_path)
    monkeypatch.setitem(sys.modules, "duckdb", None)  # as if it were missing
    with pytest.raises(ConfigError, match=r"graphveil\[disk\]"):
        prepare(nodes, files, tmp_path / "g", **COLUMNS)


@pytest.mark.parametrize(
    ("there", "message"),
    [
        ("g", "Cannot write to"),  # a file in place of the folder
        ("g/x.npy", "contains other files"),
        ("g/mine.parquet", "contains other files"),
        ("g/mine.txt", "contains other files"),
        ("x.npy", "lies in"),  # next to the tables
    ],
)
def test_other_files_are_not_overwritten(tmp_path: Path, there: str, message: str) -> None:
    nodes, files, _ = tables(tmp_path)
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_bytes(b"mine")
    out = tmp_path / there.partition("/")[0] if there.startswith("g") else tmp_path
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(GraphError, match=message):
        prepare(nodes, files, out, **COLUMNS)
    assert (tmp_path / there).read_bytes() == b"mine" and sorted(tmp_path.rglob("*")) == before


# -- repeated and interrupted calls ----


def test_finished_folders_are_kept_and_other_inputs_are_rejected(tmp_path: Path) -> None:
    nodes, files, _ = tables(tmp_path)
    folder, part = tmp_path / "g", tmp_path / "part-1.parquet"
    made = prepare(nodes, files, folder, **COLUMNS)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert prepare(nodes, files, folder, **COLUMNS) == made
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.glob("*.*")}
    assert modes.pop("manifest.json") == 0o600
    assert modes == dict.fromkeys((SOURCES, OFFSETS, "x.npy", "y.npy", "ids.parquet"), 0o400)
    for edges, options in (([part], {}), (files, {"directed": True})):
        with pytest.raises(GraphError, match="contains a graph of other tables"):
            prepare(nodes, edges, folder, **COLUMNS, **options)
    times = part.stat()
    part.write_bytes(part.read_bytes())
    os.utime(part, ns=(times.st_atime_ns, times.st_mtime_ns))  # noticed although size and time are the same
    with pytest.raises(GraphError, match="older versions"):
        prepare(nodes, files, folder, **COLUMNS)


def test_a_table_that_changes_during_the_call_leaves_no_graph(tmp_path: Path) -> None:
    nodes, _, _ = tables(tmp_path)
    folder = tmp_path / "g"

    def changing(row: int) -> Iterator[Any]:
        nodes.write_bytes(nodes.read_bytes())
        yield from ()

    with lock_folder(folder):
        manifest = create_manifest(folder, synthetic("tiny"), describe_inputs([nodes], []), 70, "")
        manifest = write_blocks(folder, manifest, changing)
        with pytest.raises(GraphError, match="A table changed while"):
            complete_manifest(folder, manifest, describe_inputs([nodes], []))
    with pytest.raises(GraphError, match="was interrupted"):
        open_graph(folder)


def test_a_folder_is_locked_until_it_is_finished(tmp_path: Path) -> None:
    nodes, files, _ = tables(tmp_path)
    with lock_folder(tmp_path / "g"), pytest.raises(GraphError, match="Another process uses"):
        prepare(nodes, files, tmp_path / "g", **COLUMNS)
    prepare(nodes, files, tmp_path / "g", **COLUMNS)
    with lock_folder(tmp_path / "g"):
        prepare(nodes, files, tmp_path / "g", **COLUMNS)


def test_a_killed_call_is_resumed_by_the_same_call(tmp_path: Path) -> None:
    nodes, files, _ = tables(tmp_path, "numbers")
    folder = tmp_path / "g"
    prepare(nodes, files, tmp_path / "whole", block_rows=2, **COLUMNS)
    rng = np.random.default_rng(int(time.time()))
    for _ in range(2):
        child = subprocess.Popen(call_of(nodes, files, folder, block_rows=2))
        while not folder.exists() and child.poll() is None:
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0, 0.3)))
        child.send_signal(signal.SIGKILL)
        child.wait()
    prepare(nodes, files, folder, block_rows=2, **COLUMNS)
    assert bytes_of(folder) == bytes_of(tmp_path / "whole")
    open_graph(folder)


@pytest.mark.parametrize("kib", [1, 40, 130])  # reached by a node array, the first blocks or a later one
def test_a_full_disk_is_reported_and_the_same_call_resumes(tmp_path: Path, kib: int) -> None:
    nodes, _, _ = tables(tmp_path)
    ends = np.random.default_rng(2).integers(100, 100 + NODES, size=(2, 60_000))
    files, folder = (
        [write(pa.table({"a": ends[0], "b": ends[1]}), tmp_path / "part-0.parquet")],
        tmp_path / "g",
    )
    ended = subprocess.run(
        call_of(nodes, files, folder, block_rows=50),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert f"GraphError: {folder} has too little free disk space" in last and "same command again" in last
    with pytest.raises(
        GraphError, match="was interrupted" if kib == 130 else "does not contain a prepared graph"
    ):
        open_graph(folder)
    for out in (folder, tmp_path / "whole"):
        prepare(nodes, files, out, block_rows=50, **COLUMNS)
    assert bytes_of(folder) == bytes_of(tmp_path / "whole")


def test_an_opened_graph_keeps_the_manifest_of_its_folder(tmp_path: Path) -> None:
    nodes = people(tmp_path)
    for name, edge in (("one", "r0,r1"), ("two", "r1,r2")):
        (tmp_path / f"{name}.csv").write_text(f"a,b\n{edge}\n")
        prepare(nodes, [tmp_path / f"{name}.csv"], tmp_path / name, **NAMES)
    opened = open_graph(tmp_path / "one")
    before = manifest_of(opened.adjacency)
    (tmp_path / "one").rename(tmp_path / "gone")
    (tmp_path / "two").rename(tmp_path / "one")
    assert manifest_of(opened.adjacency) == before != manifest_of(open_graph(tmp_path / "one").adjacency)
