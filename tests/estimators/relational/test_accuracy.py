"""Accuracy with the default settings: where rows are informative, where they are not, and on real tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphveil as gv

PERSONS, FILMS, ROWS = 2000, 60, 30_000
EPSILON = {"row": 1.0, "person": 4.0}


def drawn_tables(*, informative: bool) -> gv.Tables:
    """Return persons of two classes with one weak attribute, and films that the classes like unequally."""
    rng = np.random.default_rng(0)
    kind, owner = rng.integers(2, size=PERSONS), rng.integers(PERSONS, size=ROWS)
    likes = kind[owner] if informative else rng.integers(2, size=ROWS)
    film = np.where(rng.random(ROWS) < 0.2, FILMS // 2 * likes, 0) + rng.integers(FILMS // 2, size=ROWS)
    people = {
        "user": np.arange(PERSONS),
        "age": kind + 3 * rng.normal(size=PERSONS),
        "kind": kind.astype(str),
    }
    rows = {"seen": gv.Rows({"user": owner, "film": film}, owner="user", far="film")}
    public = {"film": np.arange(FILMS)}
    return gv.Tables(people, id="user", label="kind", classes=["0", "1"], rows=rows, public=public)


def roc_auc(model: gv.Estimator, tables: gv.Tables) -> float:
    return model.fit(tables).score(tables, metric="roc_auc")


@pytest.mark.parametrize(("unit", "control"), [("row", {"codes": 1}), ("person", {"items": False})])
def test_informative_far_ends_add_much_to_attributes_and_numbers_of_rows(
    unit: str, control: dict[str, Any]
) -> None:
    tables = drawn_tables(informative=True)
    given: dict[str, Any] = {"unit": unit, "epsilon": EPSILON[unit], "seed": 0, "unsafe_noise_seed": 0}
    assert roc_auc(gv.RelationalClassifier(**given), tables) > 0.82
    for other in (gv.MLP(**given), gv.RelationalClassifier(**given, **control)):
        assert roc_auc(other, tables) < 0.7


def test_rows_without_information_cost_little_under_unit_row() -> None:
    tables = drawn_tables(informative=False)
    given: dict[str, Any] = {"unit": "row", "epsilon": 1.0, "seed": 0, "unsafe_noise_seed": 0}
    assert roc_auc(gv.RelationalClassifier(**given), tables) > roc_auc(gv.MLP(**given), tables) - 0.02


@pytest.mark.parametrize(("unit", "train", "least"), [("row", 0.42, 0.785), ("person", 0.68, 0.81)])
def test_movielens_has_the_documented_accuracy(
    data_root: Path, unit: str, train: float, least: float
) -> None:
    found = np.load(data_root / "tables" / "movielens_1m_five_stars.npz")
    films = np.arange(len(found["film_genres"]))
    genres = {f"g{k}": column for k, column in enumerate(found["film_genres"].T)}
    people = {f"a{k}": column for k, column in enumerate(found["attributes"].T)}
    people |= {"user": np.arange(len(found["gender"])), "gender": found["gender"].astype(str)}
    rows = gv.Rows({"user": found["user"], "film": found["film"]}, owner="user", far="film")
    tables = gv.Tables(
        people,
        id="user",
        label="gender",
        classes=["0", "1"],
        rows={"liked": rows},
        public={"film": {"film": films, **genres}},
    )
    tables = gv.split(tables, train, 0.1, unit=unit, seed=0)
    model = gv.RelationalClassifier(unit=unit, epsilon=EPSILON[unit], seed=0, unsafe_noise_seed=0)
    assert roc_auc(model, tables) > least
