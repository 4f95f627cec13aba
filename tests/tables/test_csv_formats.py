"""CSV files with other delimiters and decimal separators: read with an option, which errors suggest."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.data import open_graph, prepare, read_graph
from graphveil.errors import GraphError, TableError
from tests.command import Invoke, calling, read

NODES = 80
COLUMNS: dict[str, Any] = {"id": "user", "label": "team", "source": "a", "target": "b"}
FLAGS = ["--id", "user", "--label", "team", "--source", "a", "--target", "b"]
NAMES = {",": ",", ";": ";", "\t": "tab", "|": "|", "^": "^"}
PRIVATE = ["--unit", "undirected-edge", "--epsilon", 1, "--delta", 1e-6, "--no-baseline"]
QUICK = ["--set", "epochs=1", "--set", "encoder_epochs=1"]


def written(
    folder: Path, delimiter: str = ",", decimal: str = ".", *, null: str = "", suffix: str = ".csv"
) -> tuple[Path, Path]:
    """Write two tables: a number with decimals, one with missing values, text, and weights."""
    rng = np.random.default_rng(0)
    team = rng.integers(0, 2, NODES)
    nodes = [["user", "age", "money", "note", "team"]]
    for one in range(NODES):
        money = null if one % 7 == 0 else f"{rng.normal():.3f}"
        nodes.append([f"{one:03d}", f"{team[one] + rng.normal():.3f}", money, "x", f"t{team[one]}"])
    edges = [["a", "b", "since"]]
    edges += [[f"{u:03d}", f"{v:03d}", f"{rng.random():.3f}"] for u, v in rng.integers(0, NODES, (300, 2))]
    paths = folder / f"nodes{suffix}", folder / f"edges{suffix}"
    for path, rows in zip(paths, (nodes, edges), strict=True):
        numbers = {"age", "money", "since"}
        kept = [name in numbers for name in rows[0]]
        rows = [
            [cell.replace(".", decimal) if number else cell for cell, number in zip(row, kept, strict=True)]
            for row in rows
        ]
        if decimal == delimiter:
            rows = [[f'"{cell}"' for cell in row] for row in rows]
        path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    return paths


def same(one: gv.Graph, other: gv.Graph) -> bool:
    pairs = zip(
        (one.x, one.y, *one.adjacency.arrays), (other.x, other.y, *other.adjacency.arrays), strict=True
    )
    return all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs)


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("delimiter", NAMES)
@pytest.mark.parametrize("null", ["", "NULL"])
def test_other_formats_give_the_same_graph(tmp_path: Path, delimiter: str, decimal: str, null: str) -> None:
    choice: dict[str, Any] = COLUMNS | {
        "drop": "note",
        "missing": "indicator",
        "weight": "since",
        "max_weight": 1,
    }
    plain = read_graph(*written(tmp_path, null=null), **choice)
    (tmp_path / "other").mkdir()
    paths = written(tmp_path / "other", delimiter, decimal, null=null)
    other = read_graph(*paths, **choice, delimiter=NAMES[delimiter], decimal=decimal)
    assert same(plain, other)
    assert other.ids is not None and other.ids[7] == "007"
    assert other.encoding is not None  # which also stores the format
    again = {name: value for name, value in choice.items() if name not in ("drop", "missing")}
    assert same(other, read_graph(*paths, **again, encoding=other.encoding))
    restored = type(other.encoding).from_plain(other.encoding.as_plain())
    assert (restored.delimiter, restored.decimal) == (delimiter, decimal)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_weights_of_dropped_edges_do_not_affect_others(tmp_path: Path, delimiter: str) -> None:
    nodes, edges = written(tmp_path, delimiter, ",")
    choice: dict[str, Any] = COLUMNS | {"features": "age", "weight": "since", "max_weight": 1.0}
    how = {"delimiter": delimiter, "decimal": ",", "unknown_ids": "drop"}
    before = read_graph(nodes, edges, **choice, **how)
    with edges.open("a") as file:
        file.write(delimiter.join(["000", "unknown", "much"]) + "\n")
    assert same(before, read_graph(nodes, edges, **choice, **how))


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("table", ["nodes", "edges", "both"])
def test_errors_suggest_the_delimiter(tmp_path: Path, delimiter: str, decimal: str, table: str) -> None:
    plain = written(tmp_path)
    (tmp_path / "other").mkdir()
    other = written(tmp_path / "other", delimiter, decimal)
    nodes = plain[0] if table == "edges" else other[0]
    edges = plain[1] if table == "nodes" else other[1]
    with pytest.raises(GraphError) as error:
        read_graph(nodes, edges, **COLUMNS)
    assert f"add --delimiter {shlex.quote(NAMES[delimiter])}" in str(error.value)
    with pytest.raises(GraphError) as error:
        read_graph(*plain, **COLUMNS, delimiter=delimiter)
    assert "add --delimiter ," in str(error.value)


def test_errors_suggest_the_decimal_separator(tmp_path: Path) -> None:
    nodes, edges = written(tmp_path, ";", ",")
    with pytest.raises(TableError) as error:
        read_graph(nodes, edges, **COLUMNS, delimiter=";", missing="indicator")
    problems = error.value.problems
    assert sum("decimal comma" in one and "--decimal ','" in one for one in problems) == 2
    assert error.value.flags is not None
    assert list(error.value.flags[-4:]) == ["--delimiter", ";", "--decimal", ","]
    with pytest.raises(GraphError, match="column 'since' holds text that is not a number; add --decimal ','"):
        note = {"features": "note", "categories": "note"}
        read_graph(nodes, edges, **COLUMNS, **note, delimiter=";", weight="since", max_weight=1)


def test_decimal_commas_in_typed_columns_are_text(tmp_path: Path) -> None:
    people = {"user": [1, 2, 3, 4], "team": ["a", "b", "a", "b"], "age": ["1,5", "2,5", "1,5", "2,5"]}
    with pytest.raises(TableError) as error:
        gv.Graph.from_frames(people, {"a": [1], "b": [2]}, **COLUMNS)
    assert "--decimal" not in str(error.value) and "--categories" in " ".join(error.value.flags or [])


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_prepare_reads_other_formats(tmp_path: Path, delimiter: str) -> None:
    pytest.importorskip("duckdb")
    nodes, edges = written(tmp_path, delimiter, ",")
    how: dict[str, Any] = COLUMNS | {"features": "age", "delimiter": delimiter, "decimal": ","}
    prepare(nodes, [edges], tmp_path / "graph", **how)
    assert same(open_graph(tmp_path / "graph"), read_graph(nodes, edges, **how))


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    monkeypatch.chdir(tmp_path)
    return calling(capsys)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_check_train_and_predict_use_the_same_format(invoke: Invoke, delimiter: str) -> None:
    word = NAMES[delimiter]
    written(Path(), delimiter, ",")
    tables = ["--nodes", "nodes.csv", "--edges", "edges.csv"]
    failed = invoke("check", *tables, *FLAGS)
    assert failed.code in (1, 2) and f"add --delimiter {shlex.quote(word)}" in failed.out + failed.err
    checked = invoke("check", *tables, *FLAGS, "--delimiter", word, "--json")
    assert checked.code == 1
    words = shlex.split(checked.json["command"])[1:]
    assert words[words.index("--delimiter") + 1] == word and words[words.index("--decimal") + 1] == ","
    words[words.index("classcode")] = "gap"
    trained = invoke(*words, *QUICK, "--no-baseline", "--out", "run")
    assert trained.code == 0, trained.err
    Path("more").mkdir()
    written(Path("more"), delimiter, ",")
    edges = Path("more/edges.csv").read_text().splitlines(keepends=True)
    Path("more/edges.csv").write_text("".join(edges[:-1]))
    other = ["--nodes", "more/nodes.csv", "--edges", "more/edges.csv"]
    answer = invoke("predict", "run", *other, "--out", "other.csv")
    assert answer.code == 0, answer.err
    assert [row[0] for row in read(Path("other.csv"))[1:]] == [f"{one:03d}" for one in range(NODES)]
    Path("commas").mkdir()
    written(Path("commas"))
    commas = ["--nodes", "commas/nodes.csv", "--edges", "commas/edges.csv"]
    wrong = invoke("predict", "run", *commas, "--out", "third.csv")
    assert wrong.code == 2 and "--delimiter ," in wrong.err
    flags = ["--delimiter", ",", "--decimal", "."]
    assert invoke("predict", "run", *commas, *flags, "--out", "third.csv").code == 0


def test_further_tables_of_a_command_have_the_same_format(invoke: Invoke) -> None:
    written(Path(), ";", ",")
    how = ["--delimiter", ";", "--decimal", ",", "--features", "age"]
    tables = ["--nodes", "nodes.csv", "--edges", "edges.csv", *FLAGS]
    Path("ids.csv").write_text("since;user\n1;000\n2;new\n")
    listed = invoke("check", *tables, *how, "--missing", "indicator", "--node-ids", "ids.csv", "--json")
    assert listed.code == 0, listed.out
    ledger = ["ledger", "init", "team", "--unit", "undirected-edge", "--epsilon", 5, "--delta", 1e-6]
    for label in ([], ["--label", "team", "--features", "age"]):
        named = [word for word in FLAGS if word not in ("--label", "team")]
        given = ["--nodes", "nodes.csv", "--edges", "edges.csv", *named, "--delimiter", ";", "--decimal", ","]
        made = invoke(*ledger, *given, *label)
        assert made.code == 0, made.err
    Path("public.csv").write_text("".join(Path("edges.csv").read_text().splitlines(keepends=True)[:100]))
    Path("some.csv").write_text("n;user\n1;001\n2;002\n3;003\n")
    unit = ["--unit", "edge-subset", "--public-edges", "public.csv", "--private-nodes", "some.csv"]
    budget = ["--set", "eps_x=inf", "--epsilon", 2]
    plan = invoke("train", "heterorr", *tables, *how, *unit, *budget, "--dry-run")
    assert plan.code == 0, plan.err


@pytest.mark.parametrize("option", ["features", "drop", "categories", "null-values"])
def test_lists_without_an_item_are_rejected(invoke: Invoke, option: str) -> None:
    written(Path())
    answer = invoke("check", "--nodes", "nodes.csv", "--edges", "edges.csv", *FLAGS, f"--{option}", " , ,")
    assert answer.code == 2 and f"--{option}" in answer.err


@pytest.mark.parametrize("flag", ["--columns", "--classes"])
@pytest.mark.parametrize("text", [",", "a,,b", ""])
def test_protocols_reject_empty_items(invoke: Invoke, flag: str, text: str) -> None:
    budget = ["--eps-x", 1] if flag == "--columns" else ["--eps-y", 1]
    answer = invoke("collect", "protocol", flag, text, *budget, "--out", "protocol.json")
    assert answer.code == 2 and f"{flag} {text!r} has an empty item" in " ".join(answer.err.split())
