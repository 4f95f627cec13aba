"""User-item tables: what is stored, from columns, matrices and torch_geometric, and what is rejected."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import graphveil as gv
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.ledger import ledger_of
from graphveil.data import Interactions
from graphveil.data.conversion import load_pyg
from graphveil.errors import ConfigError, GraphError

DENSE = np.array([[1, 0, 2], [0, 0, 0], [-1, 1, 0], [0, 1, 0]])


def test_a_matrix_a_frame_and_columns_give_the_same_lists() -> None:
    rows, columns = DENSE.nonzero()
    listed = (DENSE != 0).astype(int)
    frame = pd.DataFrame({"user": np.array(list("dbca"))[rows], "item": columns + 10})
    tables = [
        Interactions.from_matrix(listed),
        Interactions.from_matrix(sparse.coo_matrix(listed)),
        Interactions.from_matrix(DENSE, min_rating=-1),
        Interactions.from_columns(rows, columns.tolist(), user_ids=range(4), item_ids=np.arange(3)),
        Interactions.from_columns(frame["user"], frame["item"], user_ids=list("dbca"), item_ids=[10, 11, 12]),
    ]
    for table in tables:
        assert (table.num_users, table.num_items) == (4, 3)
        assert table.graph.num_nodes == 7 and table.graph.directed
        np.testing.assert_array_equal(table.lists().toarray(), DENSE != 0)


def test_duplicates_are_merged_and_numbers_of_entries_are_not_shown() -> None:
    table = Interactions.from_columns([1, 1, 1], [5, 5, 6], user_ids=[1, 2], item_ids=[6, 5])
    assert table.lists().toarray().astype(int).tolist() == [[1, 1], [0, 0]]
    doubled = sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(1, 2))
    assert Interactions.from_matrix(doubled).lists().toarray().tolist() == [[False, True]]
    assert repr(table) == "Interactions(users=2, items=2)"


def test_torch_geometric_data_with_one_relation() -> None:
    hetero = load_pyg("data").HeteroData()
    hetero["user"].num_nodes, hetero["item"].num_nodes = 4, 3
    hetero["user", "rates", "item"].edge_index = torch.from_numpy(np.stack(DENSE.nonzero()))
    found = Interactions.from_pyg(hetero)
    np.testing.assert_array_equal(found.lists().toarray(), DENSE != 0)
    hetero["item", "rated_by", "user"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(GraphError, match="such as the reverse"):
        Interactions.from_pyg(hetero)
    del hetero["item", "rated_by", "user"]
    hetero["item"].num_nodes = 2
    with pytest.raises(GraphError, match="too large for num_nodes"):
        Interactions.from_pyg(hetero)


def test_users_that_occur_are_noted_as_public() -> None:
    table = Interactions.from_columns(["b", "a", "b"], [1, 1, 2], item_ids=[1, 2])
    assert table.user_ids.tolist() == ["a", "b"]
    assert any("treated as public" in note for note in table.graph.notes)
    listed = Interactions.from_columns(["b"], [1], item_ids=[1], user_ids=["a", "b"])
    assert not listed.graph.notes


def test_unknown_ids_are_rejected_or_dropped() -> None:
    given: dict[str, Any] = {"user_ids": [1, 2], "item_ids": ["a", "b"]}
    with pytest.raises(GraphError, match="unknown_ids='drop'"):
        Interactions.from_columns([1, 3], ["a", "a"], **given)
    table = Interactions.from_columns([1, 3, 2], ["a", "a", "z"], **given, unknown_ids="drop")
    assert table.lists().toarray().tolist() == [[True, False], [False, False]]
    with pytest.raises(ConfigError, match="unknown_ids"):
        Interactions.from_columns([1], ["a"], **given, unknown_ids="keep")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"users": [1, 2]}, "one item for each user"),
        ({"user_ids": [1, 1]}, "an id twice"),
        ({"item_ids": []}, "is empty"),
        ({"items": [1.5]}, r"astype\(\{'items': 'int64'\}\)"),
        ({"items": ["a"]}, "no row has ids of the public lists"),
        ({"items": [None]}, "no row has ids of the public lists"),
        ({"items": 7}, "give a list"),
        ({"item_ids": [7, None]}, "missing values"),
        ({"users": [[1], [2, 3]]}, "list"),
    ],
)
def test_unusable_columns_are_rejected(changed: dict[str, Any], reason: str) -> None:
    given = {"users": [1], "items": [7], "user_ids": [1, 2], "item_ids": [7, 8]} | changed
    with pytest.raises(GraphError, match=reason):
        Interactions.from_columns(given.pop("users"), given.pop("items"), **given)


@pytest.mark.parametrize("matrix", [np.zeros(3), "text", [["a"]], [[1], [2, 3]], np.array([[np.nan]]), None])
def test_unusable_matrices_are_rejected(matrix: object) -> None:
    with pytest.raises(GraphError):
        Interactions.from_matrix(matrix)


def test_each_table_has_its_own_budget_unless_it_is_given_one() -> None:
    edges = EdgeSet("sales")
    listed = DENSE != 0
    first, second = Interactions.from_matrix(listed), Interactions.from_matrix(listed, edge_set=edges)
    assert second.graph.edge_set is edges
    assert ledger_of(first.graph.edge_set) is not ledger_of(edges)
    with pytest.raises(GraphError, match="one id per row"):
        Interactions.from_matrix(listed, item_ids=[1, 2])


SECRETS = ("secret-user-4711", "secret-item-4712")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            lambda: Interactions.from_columns([SECRETS[0]], ["a"], user_ids=["ann"], item_ids=["a"]),
            id="unknown user",
        ),
        lambda: Interactions.from_columns(["ann"], [SECRETS[1]], user_ids=["ann"], item_ids=["a"]),
        lambda: Interactions.from_columns(["ann", SECRETS[0]], ["a", "a"], user_ids=["ann"], item_ids=["a"]),
        lambda: Interactions.from_columns([SECRETS[0]], [SECRETS[1]], item_ids=["a"]),
        lambda: Interactions.from_columns([SECRETS[0]], [SECRETS[1]] * 2, item_ids=["a"]),
        lambda: Interactions.from_columns([SECRETS[0], None], ["a", "a"], item_ids=["a"]),
        lambda: Interactions.from_columns([SECRETS[0]], ["a"], user_ids=[4711], item_ids=["a"]),
        lambda: Interactions.from_columns([4711], ["a"], user_ids=[1], item_ids=["a"]),
        lambda: Interactions.from_columns([[SECRETS[0]]], ["a"], item_ids=["a"]),
        lambda: Interactions.from_matrix([[SECRETS[0]]]),
        lambda: Interactions.from_matrix([[4711.5, np.inf]]),
        lambda: TABLE.recommend([[SECRETS[1]]], k=1),
        lambda: TABLE.recommend([["a"], ["a", SECRETS[1]]], k=1),
        lambda: TABLE.recommend(SECRETS[1], k=1),
        lambda: TABLE.recommend([SECRETS[1]], k=1),
        lambda: TABLE.recommend([[4711]], k=1),
    ],
)
def test_errors_quote_no_protected_id(call: Callable[[], object]) -> None:
    with pytest.raises(GraphError) as error:
        call()
    assert not re.search(r"secret|471\d", f"{error.value} {error.value.__cause__}")


TABLE = gv.Recommender(unit="none").fit(
    Interactions.from_columns(["ann", "bob"], ["a", "b"], user_ids=["ann", "bob"], item_ids=["a", "b"])
)
