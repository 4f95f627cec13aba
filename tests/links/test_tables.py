"""Recommendations and links from tables of rows, under their units and with their budget."""

import numpy as np
import pytest

import graphveil as gv
from graphveil.errors import ConfigError, GraphError, UnitError

RNG = np.random.default_rng(0)
USERS, FILMS = 300, 20
KIND, OWNER = RNG.integers(2, size=USERS), RNG.integers(USERS, size=4000)
FILM = np.where(RNG.random(4000) < 0.8, 10 * KIND[OWNER], 0) + RNG.integers(10, size=4000)
PEOPLE = {"user": np.arange(USERS), "kind": np.where(KIND, "a", "b")}


def tables(persons: str | None = None) -> gv.Tables:
    far = (OWNER + 1 + FILM) % USERS if persons else FILM
    rows = gv.Rows({"user": OWNER, "far": far}, owner="user", far="far", persons=persons)  # type: ignore[arg-type]  # any text
    public = {} if persons else {"far": np.arange(FILMS)}
    return gv.Tables(PEOPLE, id="user", label="kind", classes=["a", "b"], rows={"seen": rows}, public=public)


@pytest.mark.parametrize(("unit", "same"), [("person", "node-record"), ("row", "directed-edge")])
def test_a_recommender_of_tables_is_that_of_their_lists(unit: str, same: str) -> None:
    given = tables()
    model = gv.Recommender(unit=unit, epsilon=4.0, delta=1e-6, unsafe_noise_seed=0).fit(given)
    lists = gv.Interactions.from_columns(OWNER, FILM, user_ids=np.arange(USERS), item_ids=np.arange(FILMS))
    other = gv.Recommender(unit=same, epsilon=4.0, delta=1e-6, unsafe_noise_seed=0).fit(lists)
    assert model.guarantee.unit == unit and model.guarantee.epsilon == other.guarantee.epsilon
    assert model.plan_ is not None and other.plan_ is not None
    assert model.plan_.queries == other.plan_.queries
    assert np.isfinite(model.recommend(given, k=3).scores.compressed()).all()
    assert len(gv.ledger_of(given.graph.edge_set).entries) == 1


def test_tables_have_their_own_units() -> None:
    for unit in ("node-record", "directed-edge"):
        with pytest.raises(UnitError, match="tables"):
            gv.Recommender(unit=unit, epsilon=1.0).fit(tables())
    with pytest.raises(UnitError, match="tables"):
        gv.LinkPredictor(unit="directed-edge", epsilon=1.0).fit(tables("mutual"))
    with pytest.raises(UnitError, match="mutual"):
        gv.Recommender(unit="person", epsilon=1.0).fit(tables("mutual"))
    with pytest.raises(ConfigError, match="between persons"):
        gv.LinkPredictor(unit="row", epsilon=1.0).fit(tables())
    with pytest.raises(GraphError, match="user-item table"):
        gv.Recommender(unit="person", epsilon=1.0).fit(PEOPLE)  # type: ignore[arg-type]  # the point


def test_links_between_persons_are_protected_row_by_row() -> None:
    given = tables("mutual")
    model = gv.LinkPredictor(unit="row", epsilon=4.0, delta=1e-6, seed=0).fit(given)
    assert model.guarantee.unit == "row" and model.guarantee.epsilon <= 4.0
    assert model.predict_proba([[0, 1], [2, 3]]).shape == (2,)
    assert len(gv.ledger_of(given.graph.edge_set).entries) == 1
