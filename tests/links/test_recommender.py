"""The recommender: cost, neighbors, what is public, recommendations, folders, and rejected input."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from drawn import draw_otherwise
from torch import Tensor

import graphveil as gv
from graphveil.audit import audit_plan
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.ledger import MemoryLedger, attach_ledger, ledger_of
from graphveil.core.noise.random import PublicStreams
from graphveil.core.release import Release
from graphveil.core.view import unwrapped
from graphveil.data import Interactions
from graphveil.errors import ArtifactError, BudgetError, ConfigError, GraphError, ReleaseError, UnitError
from graphveil.links.recommender import Recommender

USERS, ITEMS = 300, 12
Table = npt.NDArray[np.bool_]
UNITS: list[dict[str, Any]] = [
    {"unit": "node-record"},
    {"unit": "node-record", "replace_one": True},
    {"unit": "node-record", "private_metrics": True},
    {"unit": "directed-edge"},
]


def drawn(users: int = USERS, items: int = ITEMS) -> Table:
    """Lists of two kinds of users, who have items of the first or second half."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=users)
    likely = np.where(np.arange(items) // (items // 2) == kind[:, None], 0.6, 0.1)
    return rng.random((users, items)) < likely


def model(**changed: Any) -> Recommender:
    return Recommender(**({"epsilon": 2.0, "delta": 1e-6} | changed))


class Answers:
    """The answers of releases without noise, and what later queries see instead of them."""

    def __init__(self) -> None:
        self.exact, self.seen = list[Tensor](), list[Tensor]()

    def of(self, fitted: Recommender, lists: Table) -> list[Tensor]:
        """Fit to lists, and return the answers."""
        self.exact.clear()
        fitted.fit(Interactions.from_matrix(lists))
        return [answer.double() for answer in self.exact]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Answer all releases without noise. Data of later queries follow from ``seen``, if it is set."""
    found, answer = Answers(), Release.answer

    def silent(self: Any, stream: Any, rows: Any, dim: int) -> npt.NDArray[np.int64]:
        return np.zeros((len(rows), dim), dtype=np.int64)

    def recorded(self: Release, data: Any) -> Any:
        found.exact.append(answer(self, data))
        return found.seen[len(found.exact) - 1] if found.seen else found.exact[-1]

    draw_otherwise(monkeypatch, silent)
    monkeypatch.setattr(Release, "answer", recorded)
    return found


# -- cost ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", UNITS)
def test_a_fit_charges_its_plan_once_and_uses_the_whole_budget(given: dict[str, Any]) -> None:
    table = Interactions.from_matrix(drawn())
    planned = model(**given).preview(table).guarantee
    assert not ledger_of(table.graph.edge_set).entries
    fitted = model(**given).fit(table)
    (entry,) = ledger_of(table.graph.edge_set).entries
    assert fitted.guarantee == planned and fitted.plan_ is not None
    assert entry.event == fitted.plan_.event == fitted.guarantee.event
    assert fitted.guarantee.valid and fitted.guarantee.epsilon == pytest.approx(2.0, rel=1e-4)
    assert fitted.guarantee.epsilon <= 2.0


@pytest.mark.parametrize("given", UNITS)
def test_neighbors_move_all_answers_together_by_at_most_mu(given: dict[str, Any], answers: Answers) -> None:
    """Change one list, or one entry, and compare the answers of the whole release with its mu."""
    lists, largest, place = drawn(), 0.0, np.arange(ITEMS)
    lists[3], lists[4] = False, place < 6
    others = [place < 0]
    if given.get("replace_one"):
        others += [place < 2, place >= 6, place >= 0]
    if given["unit"] == "directed-edge":
        changes = [(user, lists[user] ^ (place == item)) for user in (3, 4) for item in (0, 7)]
    else:
        changes = [(user, other) for user in (3, 4) for other in others]
    fitted = model(**given, unsafe_noise_seed=0)
    before = answers.of(fitted, lists)
    answers.seen = [answer.float() if k == 0 else answer for k, answer in enumerate(before)]
    assert fitted.plan_ is not None
    for user, other in changes:
        neighbor = lists.copy()
        neighbor[user] = other
        parts = zip(before, answers.of(fitted, neighbor), fitted.plan_.noise_std, strict=True)
        loss = math.hypot(*(float((x - y).norm()) / noise for x, y, noise in parts))
        largest = max(largest, loss / (total_mu(fitted.plan_.event) or 0.0))
    assert largest <= 1 + 1e-6
    least = 0.25 if given["unit"] == "directed-edge" else 0.8  # lists here are shorter than D = 20
    assert largest > least


def test_the_bound_of_one_mutual_edge_counts_both_sums() -> None:
    fitted = model().fit(Interactions.from_matrix(drawn()))
    assert fitted.plan_ is not None and fitted.guarantee is not None
    popularity, products = fitted.plan_.noise_std
    assert fitted.guarantee.edge_mu == pytest.approx(math.hypot(math.sqrt(2) / popularity, 2 / products))


def test_lists_of_held_out_users_move_the_hit_rate_only(answers: Answers) -> None:
    lists, rng, held_out = drawn(), np.random.default_rng(1), 0
    fitted = model(private_metrics=True, unsafe_noise_seed=0)
    before = answers.of(fitted, lists)
    hits, misses = before[2].tolist()
    assert 10 < hits + misses < 60
    assert fitted.private_metrics_["hit_rate_at_10"].value == pytest.approx(hits / (hits + misses))
    answers.seen = [answer.float() if k == 0 else answer for k, answer in enumerate(before)]
    for user in range(40):
        neighbor = lists.copy()
        neighbor[user] = rng.random(ITEMS) < 0.5
        after = answers.of(fitted, neighbor)
        fixed = [torch.equal(x, y) for x, y in zip(before, after, strict=True)]
        assert fixed[0] == fixed[1]  # a list is in both sums or in neither
        assert fixed[0] or fixed[2]  # and in one of fit and hit rate only
        held_out += fixed[0]
    assert 0 < held_out < 15


def test_a_hidden_item_is_not_among_the_fitted_lists(answers: Answers) -> None:
    """Each pair of items is on the list of one user only, so nothing but a leak finds a hidden item again."""
    own = np.eye(200, dtype=bool)
    fitted = model(private_metrics=True, unsafe_noise_seed=0, epsilon=100.0)
    fitted.fit(Interactions.from_matrix(own | np.roll(own, 1, axis=1)))
    assert len(fitted.items_.modeled) > 150
    assert fitted.private_metrics_["hit_rate_at_10"].value < 0.3


@pytest.mark.parametrize("given", UNITS)
def test_what_a_query_reads_of_a_user_depends_on_the_list_of_this_user(
    given: dict[str, Any], answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the same answers, one list moves one row of the data of each query; also empty and full ones."""
    read, answer = list[list[Tensor]](), Release.answer

    def recorded(self: Release, data: Any) -> Any:
        given = map(unwrapped, vars(data).values())
        read.append([one for one in given if isinstance(one, Tensor)])
        return answer(self, data)

    monkeypatch.setattr(Release, "answer", recorded)
    monkeypatch.setattr(
        "graphveil.links.recommender._TOP", 2
    )  # so that many removed items are not found again
    lists, rng = drawn(), np.random.default_rng(2)
    lists[::7], lists[1::7] = np.arange(ITEMS) < 1, np.arange(ITEMS) < 2  # too short, and just long enough
    fitted = model(unsafe_noise_seed=0, **given)
    answers.seen = answers.of(fitted, lists)
    answers.seen[0] = answers.seen[0].float()
    before, read[:] = list(read), []
    held_out = np.flatnonzero(PublicStreams(fitted.seed).numpy("held-out users").random(USERS) < 0.1)
    for user in [*held_out.tolist(), *range(0, 60, 3)]:
        neighbor = lists.copy()
        many = rng.random(ITEMS) < 0.5
        neighbor[user] = many if lists[user].sum() < 2 else np.arange(ITEMS) < user % 2  # from or to few
        answers.of(fitted, neighbor)
        for was, now in zip(before, read, strict=True):
            for one, other in zip(was, now, strict=True):
                moved = (one != other).reshape(len(one), -1).any(dim=1).nonzero()[:, 0]
                assert set(moved.tolist()) <= {user}
        read.clear()


def test_the_ledger_can_reject_a_fit_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Interactions.from_matrix(drawn())
    attach_ledger(table.graph.edge_set, MemoryLedger(epsilon=1.0, delta=1e-6))
    monkeypatch.setattr(Release, "answer", None)
    with pytest.raises(BudgetError):
        model().fit(table)


@pytest.mark.usefixtures("fewer_canaries")
@pytest.mark.parametrize(("given", "epsilon"), [*((unit, 4.0) for unit in UNITS), (UNITS[0], 1.0)])
def test_canaries_certify_most_of_a_claim_and_no_more(given: dict[str, Any], epsilon: float) -> None:
    plan = model(**given, epsilon=epsilon).preview(Interactions.from_matrix(drawn())).plan
    assert plan is not None
    found = audit_plan(plan, unsafe_noise_seed=3)
    assert found.is_valid and not found.without_canaries
    assert found.share > 0.8


# -- what is public ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", UNITS)
def test_everything_public_follows_from_the_answers(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Give another table the answers of the first one: the attributes and the folder are the same."""
    rng, folders = np.random.default_rng(5), []
    kept, answer = list[Any](), Release.answer

    def first(self: Release, data: Any) -> Any:
        kept.append(answer(self, data))
        return kept[-1]

    def again(self: Release, data: Any) -> Any:
        answer(self, data)
        return kept[self._position - 1]

    one, other = drawn(items=60), rng.random((USERS, 60)) < 0.4
    for number, (lists, how) in enumerate([(one, first), (other, again)]):
        monkeypatch.setattr(Release, "answer", how)
        fitted = model(**given, unsafe_noise_seed=1).fit(Interactions.from_matrix(lists))
        folders.append(fitted.save(tmp_path / str(number)))
    assert {path.name for path in folders[0].iterdir()} == {
        "model.safetensors",
        "recommender.json",
        "privacy.json",
        "PRIVACY.md",
        "README.md",
    }
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes()


def test_recommendations_for_a_user_depend_on_the_list_of_no_other_user() -> None:
    lists = drawn(items=60)
    lists[0], lists[7], lists[9] = np.arange(60) < 1, np.arange(60) < 9, True
    fitted = model(unsafe_noise_seed=0, max_items=4).fit(Interactions.from_matrix(lists))
    together = fitted.recommend(Interactions.from_matrix(lists), k=8)
    for user in (0, 7, 11):
        alone = fitted.recommend([np.flatnonzero(lists[user])], k=8)
        np.testing.assert_array_equal(alone.items[0], together.items[user])
        np.testing.assert_allclose(alone.scores[0], together.scores[user], rtol=1e-12)


# -- results -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [*UNITS, {"unit": "none", "epsilon": None}])
def test_users_get_items_of_their_own_kind(given: dict[str, Any]) -> None:
    fitted = model(**{"epsilon": 8.0, "unsafe_noise_seed": 0, **given}).fit(Interactions.from_matrix(drawn()))
    found = fitted.recommend([[0, 1], [6, 7], []], k=4)
    assert (found.items[0] < 6).all() and (found.items[1] >= 6).all()
    assert (np.diff(found.scores, axis=1) <= 0).all()
    assert fitted.items_.similarity.shape == (ITEMS, ITEMS)


def test_items_without_a_model_come_last_by_popularity(answers: Answers) -> None:
    lists = drawn()
    lists[:, 5] = False
    fitted = model(max_items=4).fit(Interactions.from_matrix(lists))
    assert len(fitted.items_.modeled) == 4
    found = fitted.recommend([[0]], k=ITEMS, omit_own=False).items[0]
    behind = np.setdiff1d(np.arange(ITEMS), fitted.items_.modeled)
    assert set(found[:4]) == set(fitted.items_.modeled) and set(found[4:]) == set(behind)
    popularity = fitted.items_.popularity
    assert found[4:].tolist() == sorted(behind, key=lambda item: -popularity[item])
    assert found[-1] == 5


def test_a_table_with_noise_only_is_ranked_by_popularity(tmp_path: Path) -> None:
    fitted = model(epsilon=0.01, unsafe_noise_seed=3).fit(Interactions.from_matrix(np.eye(6, 5)))
    assert not len(fitted.items_.modeled)
    found = fitted.recommend([[]], k=5).items[0]
    assert found.tolist() == np.argsort(-fitted.items_.popularity, kind="stable").tolist()
    loaded = Recommender.load(fitted.save(tmp_path / "model"))
    assert loaded.recommend([[]], k=5).items[0].tolist() == found.tolist()


def test_own_items_are_omitted_unless_they_are_wanted() -> None:
    fitted = model(unit="none", epsilon=None).fit(Interactions.from_matrix(drawn()))
    own = [0, 1, 2]
    assert not set(fitted.recommend([own], k=9).items[0]) & set(own)
    assert set(fitted.recommend([own], k=ITEMS, omit_own=False).items[0]) == set(range(ITEMS))
    rest = fitted.recommend([own], k=ITEMS)
    assert (
        rest.items.shape == (1, ITEMS) and rest.items.mask[0].tolist() == [False] * (ITEMS - 3) + [True] * 3
    )
    assert (
        set(rest.items[0].compressed()) == set(range(3, ITEMS))
        and np.isfinite(rest.scores.compressed()).all()
    )
    assert not set(rest.items.data[0, -3:].tolist()) & set(own)  # also where the mask is ignored


def test_lists_of_every_form_are_the_same() -> None:
    names = [f"item {number}" for number in range(ITEMS)]
    table = Interactions.from_matrix(drawn(), item_ids=names)
    fitted = model(unsafe_noise_seed=0).fit(table)
    from_table = fitted.recommend(table, k=3)
    lists = table.lists()
    named = [[names[item] for item in np.flatnonzero(row)] for row in lists.toarray()]
    for given in (lists, lists.toarray(), named):
        np.testing.assert_array_equal(fitted.recommend(given, k=3).items, from_table.items)
    assert fitted.recommend([], k=3).items.shape == (0, 3)


def test_the_same_noise_seed_gives_the_same_model_and_others_do_not() -> None:
    one, two, three = (
        model(unsafe_noise_seed=seed).fit(Interactions.from_matrix(drawn())).items_.similarity
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, two) and not np.array_equal(one, three)


# -- folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", UNITS)
def test_a_saved_model_gives_the_same_recommendations(given: dict[str, Any], tmp_path: Path) -> None:
    names = [f"item {number}" for number in range(ITEMS)]
    fitted = model(**given).fit(Interactions.from_matrix(drawn(), item_ids=names))
    loaded = gv.Recommender.load(fitted.save(tmp_path / "model"))
    assert loaded.guarantee == fitted.guarantee and repr(loaded) == repr(fitted)
    mine = [["item 1", "item 9"]]
    for one, other in zip(fitted.recommend(mine, k=3), loaded.recommend(mine, k=3), strict=True):
        np.testing.assert_array_equal(one, other)
    if given.get("private_metrics"):
        assert loaded.private_metrics_ == fitted.private_metrics_
    with pytest.raises(ConfigError, match="Choose another"):
        fitted.save(tmp_path / "model")


def test_a_damaged_folder_is_rejected(tmp_path: Path) -> None:
    folder = model().fit(Interactions.from_matrix(drawn())).save(tmp_path / "model")
    good = (folder / "recommender.json").read_text()
    wrong = {"item_ids": [1, 2], "users": 0, "parameters": {"unit": "node-record"}, "metrics": 1}
    for name, value in wrong.items():
        (folder / "recommender.json").write_text(json.dumps(json.loads(good) | {name: value}))
        with pytest.raises(ArtifactError):
            Recommender.load(folder)
    (folder / "recommender.json").write_text(good)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-9] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ArtifactError):
        Recommender.load(folder)


def test_an_interrupted_fit_is_resumed_without_another_charge(tmp_path: Path) -> None:
    table = Interactions.from_matrix(drawn(items=60))
    first, second = (model(private_metrics=True).fit(table, workspace=tmp_path / "run") for _ in range(2))
    assert np.array_equal(first.items_.similarity, second.items_.similarity)
    assert first.private_metrics_ == second.private_metrics_
    assert len(ledger_of(table.graph.edge_set).entries) == 1
    with pytest.raises(ReleaseError):
        model(private_metrics=True).fit(
            Interactions.from_matrix(~drawn(items=60)), workspace=tmp_path / "run"
        )


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"unit": "undirected-edge"}, UnitError),
        ({"unit": "directed-edge", "private_metrics": True}, UnitError),
        ({"unit": "directed-edge", "replace_one": True}, UnitError),
        ({"epsilon": None}, ConfigError),
        ({"epsilon": -1.0}, ConfigError),
        ({"epsilon": "1"}, ConfigError),
        ({"delta": 2.0}, ConfigError),
        ({"max_items": 0}, ConfigError),
        ({"max_items": 5000}, ConfigError),
        ({"seed": -1}, ConfigError),
        ({"private_metrics": 1}, ConfigError),
    ],
)
def test_unusable_parameters_are_rejected(given: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        model(**given)


def test_unusable_lists_are_rejected() -> None:
    fitted = model().fit(Interactions.from_matrix(drawn()))
    other = Interactions.from_matrix(drawn()[:, 1:])
    for lists in ([[99]], ["a"], 5, None, [1, 2], np.zeros((2, 3)), other, [["a"]]):
        with pytest.raises(GraphError):
            fitted.recommend(lists)
    for k in (0, ITEMS + 1, 1.5):
        with pytest.raises(ConfigError):
            fitted.recommend([[1]], k=k)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="from_columns"):
        model().fit(drawn())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="Call fit"):
        model().recommend([[1]])
    assert fitted.private_metrics_ is None


def test_nothing_without_a_guarantee_is_saved(tmp_path: Path) -> None:
    fitted = model(unit="none", epsilon=None).fit(Interactions.from_matrix(drawn()))
    with pytest.raises(ConfigError, match="exact sums cannot be saved"):
        fitted.save(tmp_path / "model")


@pytest.mark.parametrize("given", UNITS)
def test_the_guarantee_does_not_cover_recommendations(given: dict[str, Any]) -> None:
    planned = model(**given).preview(Interactions.from_matrix(drawn())).guarantee
    assert "exact list of this user: they are not covered" in planned.formal_statement()


def test_a_second_fit_replaces_the_first() -> None:
    table = Interactions.from_matrix(drawn())
    fitted = model(private_metrics=True).fit(table)
    fitted.private_metrics = False
    fitted.fit(table)
    assert fitted.private_metrics_ is None
    assert len(ledger_of(table.graph.edge_set).entries) == 2


def test_a_seeded_fit_has_no_valid_guarantee() -> None:
    fitted = model(unsafe_noise_seed=0).fit(Interactions.from_matrix(drawn()))
    assert fitted.guarantee is not None and not fitted.guarantee.valid
    planned = model().preview(Interactions.from_matrix(drawn())).guarantee
    assert replace(fitted.guarantee, deviations=()) == planned
