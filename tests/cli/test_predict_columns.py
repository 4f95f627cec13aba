"""A release folder predicts another table by the names of its columns, as training encoded them."""

import shlex

import numpy as np
import pandas as pd
import pytest
from command import Answer, Invoke

import graphveil as gv
from graphveil.errors import GraphError

N = 300
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N)
NODES = pd.DataFrame(
    {
        "id": [f"u{i}" for i in range(N)],
        "team": np.array(["a", "b"])[Y],
        "p": 2.0 * Y - 1 + RNG.normal(0, 0.3, N),
        "q": RNG.normal(0, 3, N),
    }
)
EDGES = pd.DataFrame({"a": NODES.id.sample(900, replace=True, random_state=1).values})
EDGES["b"] = NODES.id.sample(900, replace=True, random_state=2).values
ROLES = ["--nodes", "n.parquet", "--edges", "e.parquet", "--id", "id", "--source", "a", "--target", "b"]
TABLES = {
    "same": NODES[["id", "p", "q"]],
    "swapped": NODES[["id", "q", "p"]],
    "with the label": NODES,
    "with a city": NODES[["id", "p", "q"]].assign(city="x"),
    "one value missing": NODES[["id", "p", "q"]].assign(p=NODES.p.where(NODES.index != 3)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    graph = gv.Graph.from_frames(NODES, EDGES, id="id", label="team", source="a", target="b", directed=False)
    model = gv.MLP(unit="undirected-edge", epsilon=1.0)
    folder = tmp_path_factory.mktemp("release") / "release"
    model.fit(gv.data.split(graph, unit="undirected-edge")).save(folder)
    return folder


@pytest.mark.parametrize("name", TABLES)
def test_a_release_matches_columns_by_name(name, folder, invoke: Invoke) -> None:
    TABLES[name].to_parquet("n.parquet")
    EDGES.to_parquet("e.parquet")
    answer: Answer = invoke("predict", folder, *ROLES, "--allow-spend", "--out", "out.csv")
    if answer.code != 0:
        words = answer.err.strip().splitlines()[-1]
        assert "missing values" in words
        assert invoke(*shlex.split(words.split("Suggested command: graphveil ")[1])).code == 0
    assert (pd.read_csv("out.csv").prediction.values == NODES.team.values).mean() > 0.98


def _graph(table, **more):
    return gv.Graph.from_frames(table, EDGES, id="id", source="a", target="b", classes=["a", "b"], **more)


@pytest.mark.parametrize("name", ["same", "swapped", "with a number"])
def test_a_graph_in_python_is_aligned_by_name(name, folder):
    model = gv.load_model(folder)
    table = {**TABLES, "with a number": NODES[["id", "q", "p"]].assign(r=7.0)}[name]
    expected = model.predict_proba(_graph(TABLES["same"]), allow_spend=True)
    assert (model.predict_proba(_graph(table), allow_spend=True) == expected).all()


def test_a_missing_column_is_an_error(folder):
    model = gv.load_model(folder)
    with pytest.raises(GraphError, match=r"has no feature column 'p'.*No privacy budget was spent"):
        model.predict_proba(_graph(NODES[["id", "q"]].assign(z=1.0)), allow_spend=True)
