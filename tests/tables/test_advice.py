"""Advice in errors runs: every piece of code that an error suggests is executed, and then the call passes."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import graphveil as gv
from graphveil.data.conversion import load_pyg
from graphveil.data.tables.ids import end_of_another_kind
from graphveil.errors import ConfigError, GraphError, UnitError

N = 40
ROLES = {"id": "id", "label": "team", "source": "a", "target": "b"}


def nodes(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": range(N), "team": ["a", "b"] * (N // 2), "x": range(N), **columns})


def edges(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": range(N), "b": list(range(N))[::-1], **columns})


def advice(error: pytest.ExceptionInfo[Exception], start: str) -> list[str]:
    """Return the statement that an error suggests, and the same one for the nodes where it says so."""
    found = start + str(error.value).rsplit(start, 1)[1].partition(". The tables are accepted")[0]
    code, same, _ = found.partition(", and nodes['id'] in the same way")
    code = code.removesuffix(", or drop it (--drop)")
    return [code, code.replace("edges['a']", "nodes['id']")] if same else [code]


TABLES: dict[str, tuple[pd.DataFrame, pd.DataFrame, str]] = {
    "floats": (nodes(), edges(a=[np.nan, *range(1, N)]), "edges = "),
    "floats of text": (
        nodes(id=list(map(str, range(N)))),
        edges(a=np.arange(N) * 1.0, b=["1"] * N),
        "edges = ",
    ),
    "blanks": (
        nodes(id=[f"u{n}" for n in range(N)]),
        edges(a=[f"u{n} " for n in range(N)], b=["u1"] * N),
        "edges['a'] = ",
    ),
    "case": (
        nodes(id=["7", *(f"U{n}" for n in range(1, N))]),
        edges(a=["7", *(f"u{n}" for n in range(1, N))], b=["7"] * N),
        "edges['a'] = ",
    ),
    "decimal points": (nodes(), edges(a=[f"{n}.0" for n in range(N)]), "edges['a'] = "),
    "zeros": (nodes(), edges(a=[f"{n:07d}" for n in range(N)]), "edges['a'] = "),
    "intervals": (nodes(band=pd.cut(pd.Series(range(N)), 3)), edges(), "table['band'] = "),
    "amounts": (nodes(paid=[f"${n},234.50" for n in range(1, N + 1)]), edges(), "table['paid'] = "),
    "percent": (nodes(part=[f"{n}%" for n in range(N)]), edges(), "table['part'] = "),
    "dates": (nodes(day=[f"{1 + n % 12:02d}/13/2024 10:15" for n in range(N)]), edges(), "table['day'] = "),
}


@pytest.mark.parametrize("kind", TABLES)
def test_code_in_errors_on_tables_makes_the_tables_readable(kind: str) -> None:
    people, knows, start = TABLES[kind]
    options = {"categories": ["band"]} if kind == "intervals" else {}
    with pytest.raises(GraphError) as error:
        gv.Graph.from_frames(people, knows, **ROLES, **options)
    names = {"nodes": people.copy(), "edges": knows.copy(), "table": people.copy(), "pandas": pd}
    for code in advice(error, start):
        exec(code, names)
    changed = names["table"] if start.startswith("table") else names["nodes"]
    assert gv.Graph.from_frames(changed, names["edges"], **ROLES, **options).num_nodes == N


def test_whole_numbers_do_not_match_text_with_zeros_in_silence() -> None:
    for unknown in ("error", "drop"):
        with pytest.raises(GraphError, match="how numbers are written"):
            gv.Graph.from_frames(
                nodes(), edges(a=[f"{n:07d}" for n in range(N)]), **ROLES, unknown_ids=unknown
            )


@pytest.mark.parametrize(
    ("users", "items", "ids", "reason"),
    [
        ([1, 2], ["a ", "b "], ["a", "b"], "blanks"),
        ([1, 2], ["A", "B"], ["a", "b"], "case"),
        ([1, 2], ["1.0", "2.0"], ["1", "2"], "how numbers"),
        ([1, 2], ["0000001", "2.0"], [1, 2], "how numbers"),
        ([1, 2], [1.0, np.nan], [1, 2], "of type double"),
        ([1, 2], ["x", "y"], ["a", "b"], "no row"),
    ],
)
def test_a_table_of_which_no_row_matches_is_rejected(users: Any, items: Any, ids: Any, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        gv.Interactions.from_columns(users, items, item_ids=ids, unknown_ids="drop")


def test_low_ratings_and_dislikes_are_no_likes() -> None:
    matrix = np.array([[5, 1, 0], [-1, 4, 0]])
    for given in (matrix, matrix.clip(0), -np.eye(3)):
        with pytest.raises(GraphError, match="min_rating=4"):
            gv.Interactions.from_matrix(given)
    expected = [[True, False, False], [False, True, False]]
    assert gv.Interactions.from_matrix(matrix, min_rating=4).lists().toarray().tolist() == expected
    rows, columns = matrix.nonzero()
    common: dict[str, Any] = {"item_ids": range(3), "ratings": matrix[rows, columns]}
    table = gv.Interactions.from_columns(rows, columns, **common, min_rating=4)
    assert table.lists().toarray().tolist() == expected
    with pytest.raises(GraphError, match="needs min_rating"):
        gv.Interactions.from_columns(rows, columns, **common)
    with pytest.raises(GraphError, match="above every rating"):
        gv.Interactions.from_columns(rows, columns, **common, min_rating=6)
    hetero = load_pyg("data").HeteroData()
    hetero["user"].num_nodes, hetero["item"].num_nodes = 2, 3
    hetero["user", "rates", "item"].edge_index = torch.from_numpy(np.stack([rows, columns]))
    hetero["user", "rates", "item"].rating = torch.from_numpy(matrix[rows, columns])
    with pytest.raises(GraphError, match="min_rating=4"):
        gv.Interactions.from_pyg(hetero)
    assert gv.Interactions.from_pyg(hetero, min_rating=4).lists().toarray().tolist() == expected


@pytest.mark.parametrize(
    ("names", "other"),
    [
        (("userId", "users.csv", "userId", "movieId"), "movieId"),
        (("id", "users.csv", "user_id", "movie_id"), "movie_id"),
        (("id", "users.csv", "movie_id", "user_id"), "movie_id"),
        (("customer_id", "nodes", "customer_id", "device_id"), "device_id"),
        (("user", "nodes", "user", "item"), "item"),
        (("id", "nodes", "user_id", "film_id"), "film_id"),
        (("id", "nodes.csv", "source", "target"), None),
        (("user_id", "users.csv", "user_id", "friend_id"), None),
        (("user_id", "users.csv", "user_id_1", "user_id_2"), None),
        (("id", "accounts.csv", "sender_id", "receiver_id"), None),
        (("paper_id", "papers.csv", "citing", "cited"), None),
        (("movie_id", "movies.csv", "movie_id", "similar_movie"), None),
        (("cust", "c.csv", "from", "to"), None),
        (("user", "n.csv", "a", "b"), None),
    ],
)
def test_ids_of_two_kinds_are_recognized_by_names_of_columns(names: Any, other: str | None) -> None:
    assert end_of_another_kind(*names) == other


def test_edges_between_users_and_films_are_rejected() -> None:
    ends = edges().rename(columns={"a": "user_id", "b": "movie_id"})
    with pytest.raises(GraphError, match="two kinds"):
        gv.Graph.from_frames(nodes(), ends, id="id", label="team", source="user_id", target="movie_id")


def test_weights_that_would_be_ignored_are_rejected_and_can_be_dropped() -> None:
    rated = edges(weight=[-3.0, 5.0] * (N // 2))
    with pytest.raises(GraphError, match=r"max_weight=.*accepted with drop=\['weight'\]"):
        gv.Graph.from_frames(nodes(), rated, **ROLES)
    assert gv.Graph.from_frames(nodes(), rated, **ROLES, drop=["weight"]).num_features == 1
    with pytest.raises(GraphError, match="weak trust"):
        gv.Graph.from_frames(nodes(), rated, **ROLES, weight="weight", max_weight=5.0)
    import networkx as nx

    graph = nx.path_graph(N)
    nx.set_node_attributes(graph, {v: {"x": float(v), "team": "ab"[v % 2]} for v in graph})
    nx.set_edge_attributes(graph, 1.0, "weight")  # as networkx writes edges without weights
    assert gv.Graph.from_networkx(graph, label="team").num_features == 1
    nx.set_edge_attributes(graph, 2.0, "weight")
    with pytest.raises(GraphError, match="drop='weight'"):
        gv.Graph.from_networkx(graph, label="team")
    assert gv.Graph.from_networkx(graph, label="team", drop="weight").num_features == 1


SPELLINGS = [
    "plan='free|pro'",
    'plan="free|pro"',
    "plan=free\\|pro",
    "plan=Free|Pro",
    "plan=free|",
    "plan=x|y",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_listed_values_that_no_row_can_have_are_rejected(text: str) -> None:
    people = nodes(plan=["free", "pro"] * (N // 2))
    with pytest.raises((ConfigError, GraphError), match="plan"):
        gv.Graph.from_frames(people, edges(), **ROLES, categories=[text])
    spaced = gv.Graph.from_frames(people, edges(), **ROLES, categories=["plan=free| pro"])
    assert spaced.x.sum(0)[-2:].tolist() == [N / 2, N / 2]


def test_several_labels_per_node_are_sent_to_label_sets() -> None:
    x, labels = torch.eye(N), torch.eye(4, dtype=torch.int64).repeat(N // 4, 1)
    with pytest.raises(GraphError, match=r"y=labels\.argmax"):
        gv.Graph.from_edges(x, labels, [0], [1], directed=False)
    graph = gv.Graph.from_edges(x, labels.argmax(1), [0], [1], directed=False, label_sets=labels)
    assert graph.label_sets is not None


@pytest.mark.parametrize("estimator", [gv.Recommender, gv.LinkPredictor])
def test_no_advice_names_an_argument_that_the_model_lacks(estimator: Any) -> None:
    with pytest.raises(UnitError) as error:
        estimator(unit="node-bounded-degree", epsilon=4.0)
    assert "max_degree" not in str(error.value)


def test_undefined_metrics_have_a_reason() -> None:
    from graphveil.training.metrics import evaluate, evaluate_numbers

    shown = str(evaluate(torch.tensor([1, 1]), torch.tensor([[0.2, 0.8], [0.6, 0.4]])))
    assert "nan" not in shown and "labels of one class only" in shown
    assert "all have the same number" in str(evaluate_numbers(torch.ones(2), torch.tensor([1.0, 2.0])))
