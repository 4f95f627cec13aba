"""Several tables: what each row becomes, what is public, and what is rejected."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import graphveil as gv
from graphveil.data.relational import RelationalGraph, check_tables
from graphveil.errors import ConfigError, GraphError, UnitError

PEOPLE = {"user": ["ann", "bob", "cat", "dan"], "age": [30, 40, 50, 60], "churn": ["no", "yes", "no", None]}
SEEN = {
    "who": ["ann", "ann", "bob", "ann", "cat"],
    "movie": [1, 2, 2, 1, 3],
    "stars": [5.0, 2.0, 3.0, 5.0, None],
    "at": [10, 20, 30, 10, 5],
}
MOVIES = {"movie": [1, 2, 3], "year": [1990, 2000, 2010], "kind": ["a", "b", "a"]}


def tables(rows: gv.Rows | None = None, **keywords: Any) -> gv.Tables:
    rows = rows or gv.Rows(SEEN, owner="who", far="movie")
    given: dict[str, Any] = {"public": {"movie": MOVIES}, "label": "churn", "classes": ["no", "yes"]}
    return gv.Tables(PEOPLE, id="user", rows={"seen": rows}, **(given | keywords))


def pairs(given: gv.Tables) -> list[tuple[int, int]]:
    """Return owner and far end of every stored row; far ends are counted after the persons."""
    sources, targets = given.graph.adjacency.edge_index().tolist()
    return sorted(zip(sources, (far - given.graph.num_nodes for far in targets), strict=True))


def test_a_row_is_an_edge_from_its_owner_to_its_far_end_and_duplicates_are_merged() -> None:
    assert pairs(tables()) == [(0, 0), (0, 1), (1, 1), (2, 2)]


def test_a_value_is_one_far_end_and_a_missing_one_drops_the_row() -> None:
    rows = gv.Rows(SEEN, owner="who", far="movie", value="stars", bins=[3, 5])
    assert pairs(tables(rows)) == [(0, 2), (0, 3), (1, 4)]  # 3 values for each movie
    assert tables(rows).graph.relations[0].values == 3


def test_kinds_that_are_not_listed_are_dropped() -> None:
    seen = {"who": ["ann", "bob"], "movie": [1, 2], "kind": ["view", "buy"]}
    rows = gv.Rows(seen, owner="who", far="movie", value="kind", values=["buy", "return"])
    assert pairs(tables(rows)) == [(1, 2)]


@pytest.mark.parametrize(
    ("at", "before"),
    [
        ([10, 20, 30, 10, 5], 20),
        ([datetime.date(2024, 1, day) for day in (1, 2, 3, 1, 1)], "2024-01-02"),
        (["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-01", "2023-12-31"], "2024-01-02"),
    ],
)
def test_only_earlier_rows_are_used(at: list[Any], before: Any) -> None:
    rows = gv.Rows({**SEEN, "at": at}, owner="who", far="movie", time="at")
    assert pairs(tables(rows, before=before)) == [(0, 0), (2, 2)]
    assert len(pairs(tables(rows))) == 4


def test_rows_without_a_far_end_count_by_their_value() -> None:
    rows = gv.Rows(SEEN, owner="who", value="stars", bins=[3])
    assert pairs(tables(rows, public={})) == [(0, 0), (0, 1), (1, 1)]


def test_several_tables_may_share_a_catalog_and_one_may_be_empty() -> None:
    nothing = {"who": pa.array([], pa.string()), "film": pa.array([], pa.int64())}
    rows = {
        "seen": gv.Rows(SEEN, owner="who", far="movie"),
        "liked": gv.Rows(nothing, owner="who", far="film", catalog="movie"),
    }
    found = gv.Tables(
        PEOPLE, id="user", label="churn", rows=rows, public={"movie": MOVIES}, classes=["no", "yes"]
    )
    first, second = found.graph.relations
    assert (first.first, first.stop, second.first, second.stop) == (4, 7, 7, 10)
    assert len(pairs(found)) == 4


def test_attributes_of_a_catalog_are_numbers_and_few_texts_scaled_to_one() -> None:
    (relation,) = tables().graph.relations
    assert relation.columns == ("year", "kind")
    assert torch.as_tensor(relation.features).tolist() == [[0.0, 1.0, 0.0], [0.5, 0.0, 1.0], [1.0, 1.0, 0.0]]
    assert tables(public={"movie": [1, 2, 3]}).graph.relations[0].features is None


def test_files_frames_and_databases_give_the_same_tables(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pq.write_table(pa.table(SEEN), tmp_path / "seen.parquet")
    (tmp_path / "seen.csv").write_text(
        "who,movie,stars,at\n"
        + "".join(
            f"{a},{b},{'' if c is None else c},{d}\n" for a, b, c, d in zip(*SEEN.values(), strict=True)
        )
    )
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("create table seen (who text, movie integer, stars real, at integer)")
        )
        for row in zip(*SEEN.values(), strict=True):
            named = dict(zip(SEEN, row, strict=True))
            connection.execute(sqlalchemy.text("insert into seen values (:who, :movie, :stars, :at)"), named)
    engine.dispose()
    sources = (
        tmp_path / "seen.parquet",
        str(tmp_path / "seen.csv"),
        f"sqlite:///{tmp_path / 'shop.db'}#seen",
    )
    wanted = pairs(tables(gv.Rows(SEEN, owner="who", far="movie", value="stars", bins=[3])))
    for source in sources:
        assert pairs(tables(gv.Rows(source, owner="who", far="movie", value="stars", bins=[3]))) == wanted, (
            source
        )


def test_a_hetero_data_gives_the_same_rows() -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data["user"].y, data["user"].num_nodes = torch.tensor([0, 1, 0]), 3
    data["movie"].x = torch.eye(2)
    data["user", "rates", "movie"].edge_index = torch.tensor([[0, 1, 2], [1, 0, 1]])
    data["user", "rates", "movie"].rating = torch.tensor([1.0, 4.0, 5.0])
    kind = ("user", "rates", "movie")
    found = gv.Tables.from_pyg(data, person="user", rows=[kind], bins={kind: [3]})
    assert pairs(found) == [(0, 2), (1, 1), (2, 3)]
    data["user", "knows", "user"].edge_index = torch.tensor([[0], [1]])
    with pytest.raises(GraphError, match="persons='one-sided'"):
        gv.Tables.from_pyg(data, person="user", rows=[("user", "knows", "user")])
    data["user", "rates", "movie"].edge_index = torch.tensor([[0], [7]])
    with pytest.raises(GraphError, match="too large"):
        gv.Tables.from_pyg(data, person="user", rows=[kind])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"owner": "who", "far": "who"}, "different"),
        ({"owner": "who", "value": "stars"}, "bins="),
        ({"owner": "who", "value": "stars", "bins": [3], "values": ["a"]}, "bins="),
        ({"owner": "who", "bins": [3]}, "need value="),
        ({"owner": "who", "value": "stars", "bins": [4, 3]}, "increasing"),
        ({"owner": "who", "value": "stars", "bins": [float("nan")]}, "increasing"),
        ({"owner": "who", "value": "kind", "values": "buy"}, "list"),
        ({"owner": "who", "persons": "mutual"}, "far="),
        ({"owner": "who", "far": "movie", "persons": "both"}, "persons"),
    ],
)
def test_a_table_is_declared_completely(rows: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        gv.Rows(SEEN, **rows)


def test_a_far_end_needs_a_public_list() -> None:
    with pytest.raises(GraphError, match="must be public"):
        tables(public={})
    with pytest.raises(ConfigError, match="No table of rows uses"):
        tables(public={"movie": [1, 2, 3], "shop": [1]})


def test_ids_of_persons_at_far_ends_must_be_declared() -> None:
    knows = {"a": ["ann"], "b": ["bob"]}
    for catalog in (None, "friends"):
        with pytest.raises(GraphError, match="persons='one-sided'"):
            tables(
                gv.Rows(knows, owner="a", far="b", catalog=catalog),
                public={catalog or "b": ["ann", "bob", "cat"]},
            )
    declared = tables(gv.Rows(knows, owner="a", far="b", persons="mutual"), public={})
    assert pairs(declared) == [(0, 1)]


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize(("people", "catalog", "same"), [
    (range(1, 9), range(1, 5), False),  # both are counted
    (range(1, 9), range(1, 9), True),
    (range(100, 900, 100), [100, 200, 7], True),
    (range(100, 900, 100), [100, 7, 8], False),
])  # fmt: skip
def test_numbers_are_ids_of_persons_only_if_they_are_not_merely_counted(
    kind: Any, people: Any, catalog: Any, same: bool
) -> None:
    persons = {"id": [kind(n) for n in people], "label": ["a", "b"] * 4}
    ids = [kind(n) for n in catalog]
    seen = {"who": persons["id"][:1], "what": ids[:1]}

    def build(**named: str) -> gv.Tables:
        rows = {"seen": gv.Rows(seen, owner="who", far="what", **named)}
        return gv.Tables(
            persons, id="id", label="label", rows=rows, public={named.get("catalog", "what"): ids}
        )

    if same:
        with pytest.raises(GraphError, match="persons='one-sided'"):
            build()
    else:
        build()
    assert build(catalog="films").graph.num_far_ends == len(ids)


def test_mutual_tables_are_rejected_under_person_and_units_of_graphs_for_tables() -> None:
    knows = gv.Rows({"a": ["ann"], "b": ["bob"]}, owner="a", far="b", persons="mutual")
    mutual = tables(knows, public={}).graph
    check_tables(mutual, "row")
    with pytest.raises(UnitError, match="mutual"):
        check_tables(mutual, "person")
    with pytest.raises(UnitError, match="one graph"):
        check_tables(mutual, "directed-edge")
    with pytest.raises(UnitError, match="several tables"):
        check_tables(gv.load_dataset("synthetic/tiny"), "row")


def test_methods_and_mechanisms_of_one_graph_reject_tables_before_a_charge() -> None:
    given = tables()
    for call in (
        lambda: gv.GCN(unit="none").fit(given),
        lambda: gv.private_hops(given.graph, unit="row", epsilon=1.0),
        lambda: gv.perturb.edge_rand(given.graph, epsilon=1.0, unit="row"),
    ):
        with pytest.raises(GraphError, match="one graph is needed"):
            call()
    assert not gv.ledger_of(given.graph.edge_set).entries


def test_unknown_ids_are_an_error_or_dropped() -> None:
    seen = {"who": ["ann", "zoe", "bob"], "movie": [1, 2, 9]}
    rows = gv.Rows(seen, owner="who", far="movie")
    with pytest.raises(GraphError) as error:
        tables(rows)
    assert "zoe" not in str(error.value)
    assert pairs(tables(rows, unknown_ids="drop")) == [(0, 0)]


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"labels": "churn"}, ConfigError, "label"),
        ({"label": None, "classes": None}, GraphError, "label"),
        ({"before": "soon"}, ConfigError, "before"),
        ({"rows": {}}, ConfigError, "rows="),
        ({"rows": {"seen": SEEN}}, ConfigError, "gv.Rows"),
    ],
)
def test_wrong_arguments_name_their_fix(keywords: dict[str, Any], error: type[Exception], words: str) -> None:
    given: dict[str, Any] = {
        "id": "user",
        "label": "churn",
        "rows": {"seen": gv.Rows(SEEN, owner="who", far="movie", time="at")},
        "public": {"movie": MOVIES},
    }
    with pytest.raises(error, match=words):
        gv.Tables(PEOPLE, **(given | keywords))


def test_lists_of_items_and_graphs_of_persons_have_the_budget_of_the_tables() -> None:
    rated = tables(gv.Rows(SEEN, owner="who", far="movie", value="stars", bins=[3, 5]))
    liked = rated.interactions(min_rating=5)
    assert liked.lists().toarray().astype(int).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert liked.graph.edge_set is rated.graph.edge_set and liked.item_ids.tolist() == [1, 2, 3]
    for wrong in ({}, {"min_rating": 4}, {"values": ["buy"]}, {"min_rating": 5, "values": ["buy"]}):
        with pytest.raises(ConfigError, match="min_rating"):
            rated.interactions(**wrong)
    seen = {"who": ["ann", "bob", "cat"], "movie": [1, 2, 3], "kind": ["view", "buy", "back"]}
    kinds = tables(gv.Rows(seen, owner="who", far="movie", value="kind", values=["view", "buy", "back"]))
    assert kinds.interactions(values=["buy", "back"]).lists().toarray().sum(axis=0).tolist() == [0, 1, 1]
    for wrong in ({}, {"min_rating": 4}, {"values": ["sell"]}):
        with pytest.raises(ConfigError, match="values"):
            kinds.interactions(**wrong)
    with pytest.raises(ConfigError, match="no values"):
        tables().interactions(min_rating=4)
    with pytest.raises(ConfigError, match="between persons"):
        rated.person_graph()
    calls = tables(
        gv.Rows({"a": ["ann", "cat"], "b": ["bob", "ann"]}, owner="a", far="b", persons="one-sided"),
        public={},
    )
    graph = calls.person_graph()
    assert graph.directed and graph.edge_index().T.tolist() == [[2, 0], [0, 1]]
    assert graph.edge_set is calls.graph.edge_set
    with pytest.raises(ConfigError, match="with a catalog"):
        calls.interactions()


def test_a_split_keeps_the_data_and_their_budget() -> None:
    whole = tables()
    parts = gv.split(whole, unit="person", seed=1)
    assert parts.graph.has_split and parts.graph.edge_set is whole.graph.edge_set
    assert isinstance(parts.graph, RelationalGraph) and parts.graph.relations == whole.graph.relations
    for wrong in (
        whole.graph.grow,
        whole.graph.to_pyg,
        lambda: whole.graph.subgraph(torch.ones(4, dtype=torch.bool)),
    ):
        with pytest.raises(GraphError):
            wrong()


def test_a_representation_shows_public_sizes_only() -> None:
    shown = f"{tables()!r} {tables().graph!r}"
    assert "persons=4" in shown and "3 far ends" in shown
    assert np.array_equal(tables().graph.ids, np.array(PEOPLE["user"], dtype=object))


@pytest.mark.parametrize("far", [None, "to"])
def test_one_table_with_two_owners_is_rejected(far: str | None) -> None:
    """Each row would be in the records of two persons."""
    paid = {"from": ["ann", "bob"], "to": ["bob", "cat"]}
    kind = None if far is None else "one-sided"
    rows = {
        "sent": gv.Rows(paid, owner="from", far=far, persons=kind),  # type: ignore[arg-type]
        "received": gv.Rows(paid, owner="to", far=far and "from", persons=kind),  # type: ignore[arg-type]
    }
    with pytest.raises(ConfigError, match="the same table with two owners"):
        gv.Tables(PEOPLE, id="user", label="churn", classes=["no", "yes"], rows=rows)
    assert gv.Tables(PEOPLE, id="user", label="churn", classes=["no", "yes"], rows={"sent": rows["sent"]})


def test_one_file_with_two_owners_is_rejected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"from": ["ann"], "to": ["bob"]}), path := tmp_path / "paid.parquet")
    rows = {"sent": gv.Rows(path, owner="from"), "received": gv.Rows(str(path), owner="to")}
    with pytest.raises(ConfigError, match="the same table with two owners"):
        gv.Tables(PEOPLE, id="user", label="churn", classes=["no", "yes"], rows=rows)
