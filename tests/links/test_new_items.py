"""Public features of items order items without a model. They cost nothing and move no other item."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from scipy import sparse

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.data import Interactions
from graphveil.data.conversion import load_pyg
from graphveil.errors import ArtifactError, ConfigError, GraphError
from graphveil.links.recommender import ItemModel, Recommender, _penalty

USERS, OLD, NEW = 400, 20, 10
ITEMS = OLD + NEW
KIND = np.concatenate([np.arange(OLD) % 2, np.arange(NEW) % 2])  # of each item
FEATURES = np.column_stack([KIND == 0, KIND == 1, np.arange(ITEMS) % 3 == 0]).astype(np.float32)
UNITS: list[dict[str, Any]] = [
    {"unit": "node-record"},
    {"unit": "directed-edge"},
    {"unit": "none", "epsilon": None},
]


def drawn() -> npt.NDArray[np.bool_]:
    """Lists of two kinds of users, without a row for any new item."""
    rng = np.random.default_rng(0)
    lists = rng.random((USERS, ITEMS)) < np.where(rng.integers(2, size=(USERS, 1)) == KIND, 0.5, 0.05)
    lists[:, OLD:] = False
    return lists


def fitted(features: Any = FEATURES, lists: Any = None, **changed: Any) -> Recommender:
    table = Interactions.from_matrix(drawn() if lists is None else lists, item_features=features)
    return Recommender(**({"epsilon": 8.0, "delta": 1e-6, "unsafe_noise_seed": 2} | changed)).fit(table)


def new_of(model: Recommender) -> npt.NDArray[np.int64]:
    """New items that are not modeled: noise models one in fifty."""
    return np.setdiff1d(np.arange(OLD, ITEMS), model.items_.modeled)


# -- what features change ------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", UNITS)
def test_new_items_of_the_kind_of_a_user_come_first(given: dict[str, Any]) -> None:
    model = fitted(**given)
    new = new_of(model)
    assert len(new) >= NEW - 1
    found = model.recommend([[0, 2], [1, 3]], k=len(new), items=new).items
    for kind in (0, 1):
        own = int((KIND[new] == kind).sum())
        assert set(KIND[found[kind, :own]]) == {kind} and set(KIND[found[kind, own:]]) == {1 - kind}


@pytest.mark.parametrize("given", UNITS)
def test_features_move_no_modeled_item(given: dict[str, Any]) -> None:
    """Scores and order of modeled items are bit-identical, and the better half of them comes first."""
    without, model = fitted(None, **given), fitted(**given)
    lists = Interactions.from_matrix(drawn())
    modeled = model.items_.modeled
    half = len(modeled) // 2
    assert 0 < len(modeled) < ITEMS
    for k in (1, half, ITEMS):
        one, other = (found.recommend(lists, k=k, omit_own=False) for found in (without, model))
        np.testing.assert_array_equal(one.items[:, :half], other.items[:, :half])
        assert (np.diff(other.scores, axis=1) <= 0).all()
    for name in ("items", "scores"):
        kept = [getattr(found, name)[np.isin(found.items, modeled)] for found in (one, other)]
        np.testing.assert_array_equal(*kept)
    assert not np.array_equal(one.items, other.items)


@pytest.mark.parametrize("private_metrics", [False, True])
def test_features_cost_nothing_and_do_not_affect_the_release(private_metrics: bool) -> None:
    one, other = (fitted(known, private_metrics=private_metrics) for known in (None, FEATURES))
    assert one.guarantee == other.guarantee and one.plan_ == other.plan_
    assert other.fitted.guarantee.event == one.fitted.guarantee.event
    for name in ("popularity", "modeled", "similarity"):
        np.testing.assert_array_equal(getattr(one.items_, name), getattr(other.items_, name))
    table = Interactions.from_matrix(drawn(), item_features=FEATURES)
    Recommender(epsilon=1.0).fit(table).recommend(table, items=[25, 26], k=1)
    assert len(ledger_of(table.graph.edge_set).entries) == 1


def test_a_user_without_a_list_gets_popular_items_and_new_items_like_them() -> None:
    lists = drawn()
    lists[:, KIND == 0] &= np.random.default_rng(1).random((USERS, 1)) < 0.3  # kind 1 is more popular
    model = fitted(lists=lists)
    assert model.recommend([[]], k=3).items[0].tolist() == model.items_.modeled[:3].tolist()
    new = new_of(model)
    best = model.recommend([[]], k=3, items=new).items[0]
    assert (KIND[best] == 1).all()


def test_recommendations_of_new_items_depend_on_no_other_list() -> None:
    model, lists = fitted(), drawn()
    lists[0], lists[1] = True, False
    together = model.recommend(Interactions.from_matrix(lists), k=ITEMS, omit_own=False)
    for user in (0, 1, 7):
        alone = model.recommend(lists[[user]], k=ITEMS, omit_own=False)
        np.testing.assert_array_equal(alone.items[0], together.items[user])
        np.testing.assert_allclose(alone.scores[0], together.scores[user], rtol=1e-9)


# -- instances in which features say nothing -----------------------------------------------------------------


@pytest.mark.parametrize(
    "features", [np.ones((ITEMS, 2)), np.zeros((ITEMS, 1)), np.repeat([[0.0], [1.0]], [OLD, NEW], axis=0)]
)
def test_features_that_are_equal_for_all_modeled_items_leave_the_order_by_popularity(features: Any) -> None:
    given: dict[str, Any] = {"unit": "none", "epsilon": None}  # no new item is modeled
    one, other = (
        fitted(known, **given).recommend([[0], []], k=ITEMS, omit_own=False) for known in (None, features)
    )
    np.testing.assert_array_equal(one.items, other.items)


def test_without_a_modeled_item_popularity_decides() -> None:
    model = Recommender(epsilon=0.01, delta=1e-6, unsafe_noise_seed=3).fit(
        Interactions.from_matrix(np.eye(6, 5), item_features=FEATURES[:5])
    )
    assert not len(model.items_.modeled)
    found = model.recommend([[], [2]], k=5, omit_own=False).items
    assert (found == np.argsort(-model.items_.popularity, kind="stable")).all()


@pytest.mark.parametrize("max_items", [1, 2])
def test_one_and_two_modeled_items_are_enough(max_items: int) -> None:
    found = fitted(max_items=max_items).recommend([[0], [1], []], k=ITEMS, omit_own=False)
    assert all(sorted(row) == list(range(ITEMS)) for row in found.items)
    assert np.isfinite(found.scores).all()


def test_a_catalog_without_an_item_that_is_not_modeled() -> None:
    lists, features = drawn()[:, :OLD], FEATURES[:OLD]
    one, other = (fitted(known, lists, unit="none", epsilon=None) for known in (None, features))
    assert len(other.items_.modeled) == OLD
    np.testing.assert_array_equal(one.recommend(lists, k=OLD).items, other.recommend(lists, k=OLD).items)


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_the_scale_of_features_does_not_matter(scale: float) -> None:
    one, other = (fitted(FEATURES * factor).recommend([[0], [1]], k=ITEMS) for factor in (1.0, scale))
    np.testing.assert_array_equal(one.items, other.items)


def test_features_outside_the_range_of_modeled_items_are_clipped() -> None:
    far = FEATURES.copy()
    far[OLD:, :2] = np.where(far[OLD:, :2] > 0, 1e6, -1e6)
    given: dict[str, Any] = {"unit": "none", "epsilon": None}
    one, other = (fitted(known, **given).recommend([[0]], k=ITEMS) for known in (FEATURES, far))
    np.testing.assert_array_equal(one.items, other.items)
    np.testing.assert_allclose(one.scores, other.scores)


# -- a choice of items ---------------------------------------------------------------------------------------


def test_items_to_choose_from() -> None:
    model = fitted()
    some = [3, 25, 7, 21]
    found = model.recommend([[0], [25, 3]], k=4, items=some)
    assert set(found.items[0]) == set(some) and set(found.items[1].compressed()) == {7, 21}
    ranked = model.recommend([[0]], k=ITEMS, omit_own=False)
    chosen = np.isin(ranked.items[0], some)  # a choice affects no score
    np.testing.assert_array_equal(found.items[0], ranked.items[0, chosen])
    np.testing.assert_allclose(found.scores[0], ranked.scores[0, chosen], rtol=1e-12)
    assert fitted(None).recommend([[0]], k=4, items=some).items.shape == (1, 4)
    for wrong in ([], [99], ["a"], 5, [[1]]):
        with pytest.raises(GraphError):
            model.recommend([[0]], k=1, items=wrong)
    with pytest.raises(ConfigError, match="k="):
        model.recommend([[0]], k=5, items=some)


# -- folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", UNITS[:2])
def test_a_saved_model_ranks_new_items_in_the_same_way(given: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(**given)
    loaded = gv.Recommender.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.items_.features, FEATURES)
    assert "ranked by public features" in (tmp_path / "model" / "README.md").read_text()
    for one, other in zip(
        model.recommend([[0], [1]], k=ITEMS), loaded.recommend([[0], [1]], k=ITEMS), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_features_of_another_catalog_are_a_damaged_folder(tmp_path: Path, monkeypatch: Any) -> None:
    for number, wrong in enumerate([FEATURES[1:], FEATURES[:, 0].copy()]):
        model = fitted()
        state = model.items_.state() | {"features": torch.from_numpy(wrong)}
        monkeypatch.setattr(ItemModel, "state", lambda self, state=state: state)
        with pytest.raises(ArtifactError):
            Recommender.load(model.save(tmp_path / str(number)))


def test_a_folder_without_features_has_none(tmp_path: Path) -> None:
    folder = fitted(None).save(tmp_path / "model")
    assert Recommender.load(folder).items_.features is None
    assert "features" not in (folder / "README.md").read_text()


# -- tables --------------------------------------------------------------------------------------------------


def test_features_of_every_form_are_the_same() -> None:
    frame = pd.DataFrame({"even": KIND == 0, "odd": KIND == 1, "third": np.arange(ITEMS) % 3 == 0})
    forms = [FEATURES, FEATURES.tolist(), torch.from_numpy(FEATURES), sparse.csr_matrix(FEATURES), frame]
    forms += [torch.from_numpy(FEATURES).to_sparse(), FEATURES.astype(bool), FEATURES.astype(np.int8)]
    for form in forms:
        found = Interactions.from_matrix(drawn(), item_features=form).item_features
        assert found is not None and found.dtype == np.float32
        np.testing.assert_array_equal(found, FEATURES)
    assert Interactions.from_matrix(drawn()).item_features is None


def test_features_follow_the_catalog_of_columns() -> None:
    table = Interactions.from_columns(
        [1, 2], ["b", "a"], user_ids=[1, 2], item_ids=["b", "a", "new"], item_features=[[1], [2], [3]]
    )
    assert table.item_ids.tolist() == ["b", "a", "new"]
    assert table.item_features is not None and table.item_features.ravel().tolist() == [1, 2, 3]


def test_torch_geometric_data_uses_x_only_if_the_caller_wants_it() -> None:
    hetero = load_pyg("data").HeteroData()
    hetero["user"].num_nodes, hetero["item"].num_nodes = 2, 3
    hetero["user", "rates", "item"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(GraphError, match=r"data\['item'\].x"):
        Interactions.from_pyg(hetero, item_features=True)
    hetero["item"].x = torch.eye(3)
    assert Interactions.from_pyg(hetero).item_features is None
    found = Interactions.from_pyg(hetero, item_features=True).item_features
    np.testing.assert_array_equal(found, np.eye(3))
    with pytest.raises(ConfigError, match="item_features"):
        Interactions.from_pyg(hetero, item_features=np.eye(3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (np.full((ITEMS, 2), np.nan), "not finite"),
        (np.where(np.arange(ITEMS)[:, None] == OLD, np.inf, 0.0), "not finite"),
        (np.full((ITEMS, 1), 1e300), "not finite"),
        (FEATURES[:OLD], "20 rows, but the catalog has 30 items"),
        (FEATURES.T, "one row per item"),
        (FEATURES[:, 0], "matrix of numbers"),
        (FEATURES[:, :0], "at least one column"),
        ([["a"]] * ITEMS, "get_dummies"),
        ([[1], [2, 3]], "matrix of numbers"),
        (pd.DataFrame({"kind": ["a"] * ITEMS}), "get_dummies"),
        (FEATURES * 1j, "matrix of numbers"),
        (7, "matrix of numbers"),
        ("text", "matrix of numbers"),
    ],
)
def test_unusable_features_are_rejected(features: Any, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        Interactions.from_matrix(drawn(), item_features=features)


# -- the penalty ---------------------------------------------------------------------------------------------


def noisy(products: npt.NDArray[Any], sigma: float) -> npt.NDArray[Any]:
    noise = np.random.default_rng(5).normal(scale=sigma, size=products.shape)
    return products + (noise + noise.T) / 2


def test_the_penalty_is_small_for_clear_products_and_large_for_noise() -> None:
    count, sigma = 60, 5.0
    largest = sigma * np.sqrt(2 * count)
    pairs = np.kron(np.eye(count // 2), [[1.0, 0.95], [0.95, 1.0]])
    clear = _penalty(noisy(500 * pairs, sigma), sigma, np.random.default_rng(0))
    faint = _penalty(noisy(30 * np.eye(count), sigma), sigma, np.random.default_rng(0))
    assert clear / largest < 1 and faint / largest == pytest.approx(3.0)
    assert _penalty(np.zeros((0, 0)), sigma, np.random.default_rng(0)) == 3.0


def test_few_items_above_the_noise_are_modeled_from_two_standard_deviations() -> None:
    """With 200 items only two standard deviations above zero, the first hundred are modeled."""
    model = Recommender(epsilon=1.0)._build_method()
    assert len(model._modeled(np.full(200, 2.5), 1.0)) == 100
    assert len(model._modeled(np.full(200, 3.5), 1.0)) == 200
    assert len(model._modeled(np.full(200, 1.5), 1.0)) == 0
    assert len(model._modeled(np.r_[np.full(150, 4.0), np.full(50, 2.5)], 1.0)) == 150
