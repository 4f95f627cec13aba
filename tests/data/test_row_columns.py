"""Each row of a CSV table is read by itself: no other row changes its value or its time."""

import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

import graphveil as gv
from graphveil.core.features import to_dense
from graphveil.data.conversion import load_pyg
from graphveil.errors import GraphError

PERSONS = {"user": ["a", "b"], "kind": ["x", "y"]}


def edges(table: Any, *, before: object = None, decimal: str | None = None, **columns: Any) -> list[Any]:
    rows = {"seen": gv.Rows(table, owner="user", **columns)}
    tables = gv.Tables(PERSONS, id="user", label="kind", rows=rows, before=before, decimal=decimal)
    return [end.tolist() for end in tables.graph.adjacency.edge_index()]


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        (("01", "02"), {"values": ["01", "02"]}),
        (("True", "False"), {"values": ["True", "False"]}),
        (("1.5", "2.5"), {"bins": [2]}),
    ],
)
@pytest.mark.parametrize("further", ["", "b,NA\n", "b,\n"])
def test_a_further_row_does_not_change_how_others_are_read(
    tmp_path: Path, values: tuple[str, str], columns: dict[str, Any], further: str
) -> None:
    path = tmp_path / "seen.csv"
    path.write_text(f"user,how\na,{values[0]}\nb,{values[1]}\n{further}")
    assert edges(path, value="how", **columns) == [[0, 1], [2, 3]]


def test_a_word_among_numbers_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    path.write_text("user,how\na,1\nb,two\n")
    with pytest.raises(GraphError, match="is not numeric"):
        edges(path, value="how", bins=[2])


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    path.write_text('user,how\na,"1,5"\nb,"2,5"\n')
    assert edges(path, value="how", bins=[2], decimal=",") == [[0, 1], [2, 3]]


@pytest.mark.parametrize("offset", ["", "T00:00:00Z", " 12:30"])
@pytest.mark.parametrize("before", ["2024-06-01", datetime.date(2024, 6, 1), datetime.datetime(2024, 6, 1)])
@pytest.mark.parametrize("file", [True, False])
def test_rows_before_a_date_are_kept(tmp_path: Path, offset: str, before: object, file: bool) -> None:
    times, path = [f"2024-01-01{offset}", f"2025-01-01{offset}"], tmp_path / "seen.csv"
    path.write_text(f"user,at\na,{times[0]}\nb,{times[1]}\nb,NA\n")
    table = path if file else {"user": ["a", "b"], "at": times}
    assert edges(table, time="at", before=before) == [[0], [2]]


def test_a_split_by_unit() -> None:
    persons = {"user": range(40), "kind": ["x", "y"] * 20}
    rows = {"seen": gv.Rows({"user": [1]}, owner="user")}
    tables = gv.Tables(persons, id="user", label="kind", rows=rows)
    for unit in ("row", "person"):
        made = gv.split(tables, 0.5, 0.25, unit=unit, seed=0)
        assert isinstance(made, gv.Tables) and made.graph.has_split
        assert made.graph.adjacency.edge_set is tables.graph.adjacency.edge_set


def test_attributes_of_a_catalog_are_scaled() -> None:
    data = load_pyg("data").HeteroData()
    data["user"].y, data["film"].x = torch.tensor([0, 1]), torch.tensor([[-50.0, 1.0], [50.0, 1.0]])
    data["user", "saw", "film"].edge_index = torch.tensor([[0, 1], [1, 0]])
    tables = gv.Tables.from_pyg(data, person="user", rows=[("user", "saw", "film")])
    assert torch.equal(to_dense(tables.graph.relations[0].features), torch.tensor([[0.0], [1.0]]))


def test_labels_may_be_numbers() -> None:
    persons = {"user": range(60), "spent": [None, *map(float, range(59))]}
    rows = {"seen": gv.Rows({"user": list(range(60)) * 2}, owner="user")}
    tables = gv.Tables(persons, id="user", label="spent", task="regression", rows=rows)
    tables = gv.split(tables, unit="person", seed=0)
    model = gv.RelationalClassifier(unit="person", epsilon=4.0, task="regression", target_range=(0, 59))
    predicted = model.fit(tables).predict(tables)
    assert predicted.shape == (60,) and 0 <= predicted.min() <= predicted.max() <= 59
    assert int(tables.graph.labeled.sum()) == 59
