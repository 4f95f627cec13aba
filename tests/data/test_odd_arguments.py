"""Constructors of graphs and tables take odd arguments as typed errors, never as raw ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import graphveil as gv
from graphveil.data.conversion import load_pyg
from graphveil.errors import ConfigError, GraphveilError, UnitError

ODD: dict[str, Any] = {
    "none": None,
    "integer": 5,
    "negative": -1,
    "nan": float("nan"),
    "text": "utf-8",
    "empty text": "",
    "numbers": [1, 2],
    "texts": ["a", "b"],
    "empty": [],
    "mapping": {},
    "array": np.zeros(3),
    "matrix": torch.zeros(2, 2),
    "frame": pd.DataFrame({"a": [1]}),
    "bool": True,
    "object": object(),
    "0-d": np.array(3),
    "sparse": torch.eye(3).to_sparse(),
}
ENDS = torch.tensor([[0, 1], [1, 2]])


def lists_of(ends: Any, users: Any = 3, items: Any = 3) -> Any:
    """Return a HeteroData of users and items."""
    data = load_pyg("data").HeteroData()
    data["user"].num_nodes, data["item"].num_nodes = users, items
    data["user", "likes", "item"].edge_index = ends
    return data


def odd(call: Callable[..., Any], known: dict[str, Any], names: str, without: str = "") -> None:
    """Call with each odd value in the place of each argument."""
    for name in names.split():
        for kind, value in ODD.items():
            if kind == without:
                continue
            try:
                call(**{**known, name: value})
            except (GraphveilError, UserWarning):  # torch_geometric warns about a missing number of nodes
                pass
            except Exception as error:
                raise AssertionError(f"{name}: {kind}: {error!r}") from error


def test_read_graph(tmp_path: Path) -> None:
    pd.DataFrame({"user": range(6), "age": range(6), "plan": list("ababab")}).to_csv(tmp_path / "n.csv")
    pd.DataFrame({"a": range(6), "b": [1, 2, 3, 4, 5, 0]}).to_csv(tmp_path / "e.csv")
    known = {"nodes": tmp_path / "n.csv", "edges": tmp_path / "e.csv", "id": "user", "label": "plan"}
    known |= {"source": "a", "target": "b"}
    names = "nodes edges id source target directed label split features drop categories missing unknown_ids"
    more = "null_values delimiter decimal node_ids encoding aside classes task weight max_weight"
    odd(gv.read_graph, known, f"{names} {more}")
    with pytest.raises(ConfigError, match="CSV files are read as UTF-8"):
        gv.read_graph(**known, encoding="utf-8")  # type: ignore[arg-type]  # what is tested


def test_interactions() -> None:
    columns = {"users": [1, 2], "items": [1, 2], "item_ids": [1, 2]}
    odd(gv.Interactions.from_columns, columns, "users items item_ids user_ids unknown_ids edge_set")
    odd(gv.Interactions.from_matrix, {"matrix": np.eye(3)}, "matrix user_ids item_ids edge_set")
    odd(gv.Interactions.from_pyg, {}, "data")
    odd(lambda ends: gv.Interactions.from_pyg(lists_of(ends)), {}, "ends")
    assert gv.Interactions.from_pyg(lists_of(ENDS.numpy())).num_items == 3
    with pytest.raises(GraphveilError, match="together must be at most"):
        gv.Interactions.from_pyg(lists_of(ENDS, 10**12))
    with pytest.raises(GraphveilError, match="different lengths") as caught:
        gv.Interactions.from_columns([1, 2, 1], [1, 2], item_ids=[1, 2])
    assert not any(letter.isdigit() for letter in str(caught.value))  # the number of rows is private


def test_graph() -> None:
    data = load_pyg("data").Data(x=torch.zeros(3, 2), y=torch.tensor(1), edge_index=ENDS)
    with pytest.raises(GraphveilError):
        gv.Graph.from_pyg(data)


def test_a_sweep_of_pairs_needs_a_budget_and_a_unit(tmp_path: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    for known, kind in (({"unit": "undirected-edge"}, ConfigError), ({"epsilon": [1.0]}, UnitError)):
        with pytest.raises(kind):
            gv.sweep(["links"], graph, out=tmp_path / "o", **known)  # type: ignore[arg-type]  # what is tested
