"""Tables to folders: what DuckDB sorts is what is read in memory, and where it is refused."""

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

from graphveil.data import open_graph, prepare, read_graph, synthetic
from graphveil.data.edge_sorting import found_files
from graphveil.data.preparation import (
    complete_manifest,
    create_manifest,
    describe_inputs,
    lock_folder,
    write_blocks,
)
from graphveil.data.stored_graph import OFFSETS, SOURCES, manifest_of
from graphveil.errors import ConfigError, GraphError

pytest.importorskip("duckdb")

NODES, EDGES = 400, 3000
COLUMNS: dict[str, Any] = {"id": "user", "label": "team", "source": "a", "target": "b"}


def ids_of(kind: str) -> pa.Array:
    places = np.random.default_rng(1).permutation(NODES)
    if kind == "run":
        return pa.array(np.arange(100, 100 + NODES))
    return pa.array(7 * places) if kind == "numbers" else pa.array([f"u'{place}" for place in places])


def tables(folder: Path, kind: str, suffix: str = ".parquet", parts: int = 3) -> tuple[Path, pa.Table]:
    """Write a table of nodes and some of edges; return the first, and all edges."""
    rng, ids = np.random.default_rng(0), ids_of(kind)
    nodes = {"user": ids, "team": rng.choice(["red", "blue"], NODES), "age": rng.normal(size=NODES)}
    ends = rng.integers(NODES, size=(2, EDGES))
    edges = pa.table(
        {"more": np.zeros(EDGES), "a": ids.take(pa.array(ends[0])), "b": ids.take(pa.array(ends[1]))}
    )
    pa.parquet.write_table(pa.table(nodes), folder / "nodes.parquet")
    for part in range(parts):
        write(edges.slice(part * EDGES // parts, EDGES // parts), folder / f"part-{part}{suffix}")
    return folder / "nodes.parquet", edges


def write(table: pa.Table, path: Path) -> None:
    (pa.parquet.write_table if path.suffix == ".parquet" else pa.csv.write_csv)(table, path)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("kind", ["run", "numbers", "text"])
def test_the_folder_is_the_graph_that_is_read_in_memory(
    tmp_path: Path, kind: str, suffix: str, directed: bool
) -> None:
    nodes, edges = tables(tmp_path, kind, suffix)
    write(edges, tmp_path / f"all{suffix}")
    made = prepare(
        nodes, [tmp_path / f"part-*{suffix}"], tmp_path / "g", directed=directed, block_rows=70, **COLUMNS
    )
    found, plain = (
        open_graph(tmp_path / "g"),
        read_graph(nodes, tmp_path / f"all{suffix}", directed=directed, **COLUMNS),
    )
    for one, other in zip(found.adjacency.arrays, plain.adjacency.arrays, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(torch.as_tensor(found.x), torch.as_tensor(plain.x)) and torch.equal(found.y, plain.y)
    assert found.encoding is not None and plain.encoding is not None
    assert (
        found.encoding.rules == plain.encoding.rules
        and found.notes == plain.notes
        and found.name == plain.name
    )
    assert made.nodes == NODES and made.edges == len(plain.adjacency.indices) // (1 if directed else 2)


def bytes_of(folder: Path) -> tuple[bytes, bytes]:
    return (folder / SOURCES).read_bytes(), (folder / OFFSETS).read_bytes()


def test_a_table_that_is_edited_is_noticed_whatever_its_time_says(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "run")
    part = tmp_path / "part-1.parquet"
    prepare(nodes, [part], tmp_path / "g", **COLUMNS)
    times = part.stat()
    part.write_bytes(part.read_bytes())
    os.utime(part, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert part.stat().st_mtime_ns == times.st_mtime_ns and part.stat().st_size == times.st_size
    with pytest.raises(GraphError, match="older versions"):
        prepare(nodes, [part], tmp_path / "g", **COLUMNS)


def test_a_table_that_changes_on_the_way_leaves_no_graph(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "run")
    folder = tmp_path / "g"

    def changing(row: int) -> Iterator[Any]:
        nodes.write_bytes(nodes.read_bytes())
        yield from ()

    with lock_folder(folder):
        manifest = create_manifest(folder, synthetic("tiny"), describe_inputs([nodes], []), 70, "")
        manifest = write_blocks(folder, manifest, changing)
        with pytest.raises(GraphError, match="a table has changed while"):
            complete_manifest(folder, manifest, describe_inputs([nodes], []))
    with pytest.raises(GraphError, match="is not finished"):
        open_graph(folder)


def test_two_calls_do_not_write_to_one_folder(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "run")
    files = [tmp_path / "part-*.parquet"]
    with lock_folder(tmp_path / "g"), pytest.raises(GraphError, match="another process is at work"):
        prepare(nodes, files, tmp_path / "g", **COLUMNS)
    prepare(nodes, files, tmp_path / "g", **COLUMNS)
    with lock_folder(tmp_path / "g"):  # a finished one is not written to
        prepare(nodes, files, tmp_path / "g", **COLUMNS)


def test_a_call_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "numbers")
    write(pa.table({"a": [10**9], "b": [10**9]}), tmp_path / "odd.parquet")
    with pytest.raises(GraphError, match="ids that no node has"):
        prepare(nodes, [tmp_path / "odd.parquet"], tmp_path / "g", **COLUMNS)
    assert not (tmp_path / "g").exists()
    with pytest.raises(GraphError, match="cannot be read"):
        prepare(tmp_path / "none.parquet", [tmp_path / "odd.parquet"], tmp_path / "g", **COLUMNS)
    assert not (tmp_path / "g").exists()
    with pytest.raises(GraphError, match="cannot write to"):
        prepare(nodes, [tmp_path / "part-*.parquet"], nodes / "g", **COLUMNS)


def test_neither_memory_nor_blocks_nor_the_order_of_files_change_a_byte(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "numbers")
    parts = [tmp_path / f"part-{part}.parquet" for part in range(3)]
    prepare(nodes, parts, tmp_path / "g", **COLUMNS)
    prepare(nodes, parts[::-1], tmp_path / "h", memory="64MB", block_rows=3, **COLUMNS)
    assert bytes_of(tmp_path / "g") == bytes_of(tmp_path / "h")


def test_a_finished_folder_is_left_alone_and_other_tables_are_refused(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "run")
    made = prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "g", **COLUMNS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "g").iterdir()}
    assert prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "g", **COLUMNS) == made
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "g").iterdir()} == before
    with pytest.raises(GraphError, match="holds a graph of other tables"):
        prepare(nodes, [tmp_path / "part-1.parquet"], tmp_path / "g", **COLUMNS)
    with pytest.raises(GraphError, match="holds a graph of other tables"):
        prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "g", directed=True, **COLUMNS)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(GraphError, match="holds other files"):
        prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "mine", **COLUMNS)


def test_nobody_writes_a_finished_file_in_passing(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "numbers")
    prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "g", **COLUMNS)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "g").glob("*.*")}
    assert modes.pop("manifest.json") == 0o600
    assert modes == dict.fromkeys((SOURCES, OFFSETS, "x.npy", "y.npy", "ids.parquet"), 0o400)


@pytest.mark.parametrize("kind", ["run", "numbers", "text"])
def test_an_unknown_end_is_refused_or_dropped(tmp_path: Path, kind: str) -> None:
    nodes, _ = tables(tmp_path, kind, parts=1)
    odd = pa.array(["nobody"] if kind == "text" else [10**9])
    more = pa.table(
        {
            "more": [0.0, 0.0],
            "a": pa.concat_arrays([odd, ids_of(kind)[:1]]),
            "b": pa.array([None, odd[0].as_py()], odd.type),
        }
    )
    write(more, tmp_path / "part-1.parquet")
    files = [tmp_path / "part-*.parquet"]
    with pytest.raises(GraphError, match="ids that no node has") as refused:
        prepare(nodes, files, tmp_path / "g", **COLUMNS)
    assert str(odd[0].as_py()) not in str(refused.value)
    prepare(nodes, files, tmp_path / "h", unknown_ids="drop", **COLUMNS)
    prepare(nodes, [tmp_path / "part-0.parquet"], tmp_path / "i", **COLUMNS)
    assert bytes_of(tmp_path / "h") == bytes_of(tmp_path / "i")


def test_text_beside_whole_numbers_is_read_value_by_value(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "run", parts=1)
    ends = {"a": ["100", " 101 ", "102"], "b": ["101", "102", "1.0e2"]}
    write(pa.table(ends), tmp_path / "text.parquet")
    with pytest.raises(GraphError, match="ids that no node has"):
        prepare(nodes, [tmp_path / "text.parquet"], tmp_path / "g", **COLUMNS)
    made = prepare(nodes, [tmp_path / "text.parquet"], tmp_path / "h", unknown_ids="drop", **COLUMNS)
    assert made.edges == 2


def test_what_cannot_be_read_is_refused_without_a_value(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path, "run", parts=1)
    write(edges, tmp_path / "edges.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 xyzzy PAR1")
    write(pa.table({"a": [1.5], "b": [2.5]}), tmp_path / "floats.parquet")
    cases: list[tuple[list[str], str, dict[str, Any]]] = [
        (["none-*.parquet"], "no file is called", {}),
        (["none**.parquet"], "no file is called", {}),
        (["."], "is a folder", {}),
        (["part-0.parquet", "edges.csv"], "all be parquet", {}),
        (["broken.parquet"], "cannot be read", {}),
        (["floats.parquet"], "column 'a' of the edges is DOUBLE", {}),
        (["part-0.parquet"], "no column 'c'", {"source": "c"}),
    ]
    for names, words, changed in cases:
        with pytest.raises(GraphError, match=words) as refused:
            prepare(nodes, [tmp_path / name for name in names], tmp_path / "g", **{**COLUMNS, **changed})
        assert "xyzzy" not in str(refused.value)
        assert not (tmp_path / "g" / "sorting").exists()


def test_without_duckdb_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, _ = tables(tmp_path, "run")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match=r"graphveil\[disk\]"):
        prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "g", **COLUMNS)


def test_a_process_that_is_killed_at_any_time_is_finished_by_the_same_call(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "numbers")
    files, folder = [str(tmp_path / "part-*.parquet")], tmp_path / "g"
    prepare(nodes, files, tmp_path / "whole", block_rows=2, **COLUMNS)
    given = f"{str(nodes)!r}, {files!r}, {str(folder)!r}, block_rows=2, **{COLUMNS!r}"
    call = f"from graphveil.data import prepare; prepare({given})"
    rng = np.random.default_rng(int(time.time()))
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", call], env=os.environ)
        while not folder.exists() and child.poll() is None:
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0, 0.3)))
        child.send_signal(signal.SIGKILL)
        child.wait()
    prepare(nodes, files, folder, block_rows=2, **COLUMNS)
    assert bytes_of(folder) == bytes_of(tmp_path / "whole")
    open_graph(folder)


@pytest.mark.parametrize("room", [1, 40, 130])
def test_a_disk_that_fills_up_is_named_and_the_same_call_goes_on(tmp_path: Path, room: int) -> None:
    """The system lets no file grow beyond a limit: it meets a node array, the first blocks or a later one."""
    tables(tmp_path, "run")
    ends = np.random.default_rng(2).integers(100, 100 + NODES, size=(2, 60_000))
    write(pa.table({"a": ends[0], "b": ends[1]}), tmp_path / "part-0.parquet")
    nodes, files = str(tmp_path / "nodes.parquet"), [str(tmp_path / "part-0.parquet")]
    given = f"{nodes!r}, {files!r}, {str(tmp_path / 'g')!r}, block_rows=50, **{COLUMNS!r}"
    code = f"from graphveil.data import prepare; prepare({given})"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room << 10, room << 10)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert f"GraphError: there is no room left for {tmp_path / 'g'}" in last and "same command again" in last
    with pytest.raises(GraphError, match="is not finished" if room == 130 else "holds no prepared graph"):
        open_graph(tmp_path / "g")
    prepare(nodes, files, tmp_path / "g", block_rows=50, **COLUMNS)
    prepare(nodes, files, tmp_path / "whole", block_rows=50, **COLUMNS)
    assert bytes_of(tmp_path / "g") == bytes_of(tmp_path / "whole")


def test_patterns_name_each_file_once(tmp_path: Path) -> None:
    tables(tmp_path, "run")
    found = found_files([tmp_path / "part-*.parquet", tmp_path / "part-1.parquet"])
    assert [path.name for path in found] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]


READ_ALIKE = {  # edges in CSV, of people whose ids may look like the marks of a CSV
    "quotes that are no quotes": "a,b\n'r0','r1'\n'r1','r2'\n",
    "one that would turn the guess": "a,b\n'r0','r1'\n'r1','r2'\n'r1'z,r2\n",
    "another mark between": "a,b\nx;y,r1\nx|y,r2\n",
    "quoted": 'a,b\n"r0","x,y"\nr1,r2\n',
    "windows": "a,b\r\nr0,r1\r\nr1,r2\r\n",
    "no last line": "a,b\nr0,r1",
    "other columns": "w,a,more,b\n1,r0,2,r1\n",
}
PEOPLE = ["r0", "r1", "r2", "'r0'", "'r1'", "'r2'", "'r1'z", "x;y", "x|y", "x,y"]
NAMES: dict[str, Any] = {"id": "user", "label": "team", "source": "a", "target": "b", "directed": True}


def people(folder: Path, ids: list[Any]) -> Path:
    teams = ["red" if place % 2 else "blue" for place in range(len(ids))]
    path = folder / "people.parquet"
    pa.parquet.write_table(pa.table({"user": ids, "team": teams, "age": np.arange(len(ids)) / 2}), path)
    return path


def edges_of(graph: Any) -> set[tuple[str, str]]:
    sources, targets = graph.adjacency.edge_index()
    return {
        (str(graph.ids[s]), str(graph.ids[t]))
        for s, t in zip(sources.tolist(), targets.tolist(), strict=True)
    }


@pytest.mark.parametrize("case", READ_ALIKE)
def test_no_edge_decides_how_another_is_read(tmp_path: Path, case: str) -> None:
    nodes, edges = people(tmp_path, PEOPLE), tmp_path / "edges.csv"
    edges.write_bytes(READ_ALIKE[case].encode())
    prepare(nodes, [edges], tmp_path / "g", **NAMES)
    assert edges_of(open_graph(tmp_path / "g")) == edges_of(read_graph(nodes, edges, **NAMES))


@pytest.mark.parametrize("content", ["junk\na,b\nr0,r1\n", "a;b\nr0;r1\n", "a,b,a\nr0,r1,r2\n"])
def test_what_is_no_such_table_is_refused_as_in_memory(tmp_path: Path, content: str) -> None:
    nodes, edges = people(tmp_path, PEOPLE), tmp_path / "edges.csv"
    edges.write_text(content)
    for reads in (
        lambda: prepare(nodes, [edges], tmp_path / "g", **NAMES),
        lambda: read_graph(nodes, edges, **NAMES),
    ):
        with pytest.raises(GraphError):
            reads()


@pytest.mark.parametrize("name", ["e[1].csv", "e*.csv", "e?.csv", "r0=r2/e.csv", "a=r2/e.parquet"])
def test_the_files_that_are_named_are_read_and_nothing_of_their_names(tmp_path: Path, name: str) -> None:
    nodes, edges = people(tmp_path, PEOPLE), tmp_path / name
    edges.parent.mkdir(exist_ok=True)
    (tmp_path / "e1.csv").write_text("a,b\nr2,r0\n")
    write(pa.table({"a": ["r0"], "b": ["r1"]}), edges)
    prepare(nodes, [edges], tmp_path / "g", **NAMES)
    assert edges_of(open_graph(tmp_path / "g")) == {("r0", "r1")}


def test_every_file_has_columns_of_its_own_and_a_kind_that_is_checked(tmp_path: Path) -> None:
    nodes = people(tmp_path, [7, 8, 9, 12])
    (tmp_path / "one.csv").write_text("a,b\n7,8\n")
    (tmp_path / "two.csv").write_text("b,a\n\t9 ,12\n")
    prepare(nodes, [tmp_path / "one.csv", tmp_path / "two.csv"], tmp_path / "g", **NAMES)
    assert edges_of(open_graph(tmp_path / "g")) == {("7", "8"), ("12", "9")}
    write(pa.table({"a": [7], "b": [8]}), tmp_path / "one.parquet")
    write(pa.table({"a": [8.6], "b": [12.0]}), tmp_path / "two.parquet")
    with pytest.raises(GraphError, match="'a' of the edges is DOUBLE"):
        prepare(nodes, [tmp_path / "one.parquet", tmp_path / "two.parquet"], tmp_path / "h", **NAMES)


def test_tables_are_not_written_over(tmp_path: Path) -> None:
    nodes, _ = tables(tmp_path, "run")
    (tmp_path / "x.npy").write_bytes(b"mine")
    with pytest.raises(GraphError, match="lies in"):
        prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path, **COLUMNS)
    assert (tmp_path / "x.npy").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ("g", "cannot write to"),  # a file where the folder is to be
        ("g/x.npy", "holds other files"),
        ("g/mine.parquet", "holds other files"),
        ("g/mine.txt", "holds other files"),
    ],
)
def test_other_files_are_not_written_over(tmp_path: Path, there: str, words: str) -> None:
    nodes, _ = tables(tmp_path, "run")
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_bytes(b"mine")
    with pytest.raises(GraphError, match=words):
        prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "g", **COLUMNS)
    assert (tmp_path / there).read_bytes() == b"mine"
    assert (tmp_path / "g").is_file() or len(list((tmp_path / "g").iterdir())) == 1


def test_no_name_is_not_taken_for_the_folder_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, _ = tables(tmp_path, "run")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ConfigError, match="--out"):
        prepare(nodes, [tmp_path / "part-*.parquet"], "", **COLUMNS)
    for pattern, words in (("", "no file is called"), ("/", "is a folder"), ("part**", "no file is called")):
        with pytest.raises(GraphError, match=words):
            prepare(nodes, [pattern], tmp_path / "g", **COLUMNS)
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_a_column_without_any_value_is_one_of_no_ids(tmp_path: Path, kind: str) -> None:
    nodes, _ = tables(tmp_path, kind)
    write(pa.table({"a": pa.nulls(2), "b": pa.nulls(2)}), tmp_path / "none.parquet")
    with pytest.raises(GraphError, match="ids that no node has, or none"):
        prepare(nodes, [tmp_path / "none.parquet"], tmp_path / "g", **COLUMNS)
    with pytest.raises(GraphError, match="no edge has both ends among the nodes"):
        prepare(nodes, [tmp_path / "none.parquet"], tmp_path / "g", unknown_ids="drop", **COLUMNS)
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("memory", ["abc", "0", "0GB", "-1GB", "1GB'"])
def test_a_size_of_memory_that_is_none_is_refused(tmp_path: Path, memory: str) -> None:
    nodes, _ = tables(tmp_path, "run")
    with pytest.raises(ConfigError, match="memory="):
        prepare(nodes, [tmp_path / "part-*.parquet"], tmp_path / "g", memory=memory, **COLUMNS)
    assert not (tmp_path / "g").exists()


def test_an_opened_graph_keeps_what_its_folder_said(tmp_path: Path) -> None:
    nodes = people(tmp_path, PEOPLE)
    for name, edge in (("one", "r0,r1"), ("two", "r1,r2")):
        (tmp_path / f"{name}.csv").write_text(f"a,b\n{edge}\n")
        prepare(nodes, [tmp_path / f"{name}.csv"], tmp_path / name, **NAMES)
    opened = open_graph(tmp_path / "one")
    said = manifest_of(opened.adjacency)
    (tmp_path / "one").rename(tmp_path / "gone")
    (tmp_path / "two").rename(tmp_path / "one")
    assert manifest_of(opened.adjacency) == said != manifest_of(open_graph(tmp_path / "one").adjacency)
