"""Requests about pairs: scores and candidates of released models, and items for the lists of a request."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

import graphveil as gv
from graphveil.errors import ConfigError
from graphveil.serve import Keys, Limits, Service, create_app, read_runs
from graphveil.serve.access import ReleaseBudget
from serve.folders import run_of

IDS, ITEMS = tuple(f"u{number}" for number in range(60)), tuple(f"g{number}" for number in range(12))


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a link predictor."""
    rng = np.random.default_rng(0)
    ends = rng.integers(60, size=(2, 400))
    graph = gv.Graph.from_edges(
        torch.from_numpy(rng.normal(size=(60, 5)).astype(np.float32)),
        torch.zeros(60, dtype=torch.int64),
        *ends[:, ends[0] != ends[1]],
        directed=False,
        num_classes=2,
        ids=np.array(IDS),
    )
    model = gv.LinkPredictor(unit="undirected-edge", epsilon=4.0, delta=1e-6, seed=0).fit(graph)
    return model.save(tmp_path_factory.mktemp("served") / "links")


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recommender."""
    lists = np.random.default_rng(0).random((200, 12)) < 0.4
    table = gv.Interactions.from_matrix(lists, item_ids=list(ITEMS))
    model = gv.Recommender(unit="node-record", epsilon=4.0, delta=1e-6).fit(table)
    return model.save(tmp_path_factory.mktemp("served") / "items")


@pytest.fixture
def client(links: Path, items: Path) -> TestClient:
    return TestClient(create_app(read_runs([links, items])))


def test_scores_and_candidates_are_those_of_the_model(client: TestClient, links: Path) -> None:
    model = gv.LinkPredictor.load(links)
    found = client.post("/v1/pairs", json={"run": "links", "pairs": [["u3", "u4"], ["u4", "u3"]]})
    assert found.status_code == 200 and found.headers["cache-control"] == "no-store"
    one, other = found.json()["probabilities"]
    assert one == other == pytest.approx(float(model.predict_proba([[3], [4]])[0]), abs=1e-6)
    nodes, scores = model.top_k([7], 3)
    (best,) = client.post("/v1/pairs", json={"run": "links", "ids": ["u7"], "k": 3}).json()["candidates"]
    assert [one["id"] for one in best] == [IDS[place] for place in nodes[0]]
    assert [one["score"] for one in best] == pytest.approx(scores[0].tolist(), abs=1e-5)


def test_items_are_recommended_for_the_lists_of_the_request(client: TestClient, items: Path) -> None:
    lists = [["g0", "g5"], [], list(ITEMS)]
    found = client.post("/v1/pairs", json={"run": "items", "lists": lists, "k": 12}).json()["candidates"]
    expected = gv.Recommender.load(items).recommend([["g0", "g5"]], k=3).items[0].tolist()
    assert [one["id"] for one in found[0]][:3] == expected
    assert not {one["id"] for one in found[0]} & {"g0", "g5"}
    assert [len(some) for some in found] == [10, 12, 0]  # nothing is left for a user of all items


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"run": "links", "lists": [["g0"]]}, 422, "OtherModel"),
        ({"run": "items", "pairs": [["g0", "g1"]]}, 422, "OtherModel"),
        ({"run": "links"}, 422, "Malformed"),
        ({"run": "links", "ids": ["u1"], "pairs": [["u1", "u2"]]}, 422, "Malformed"),
        ({"run": "links", "pairs": [["u1"]]}, 422, "Malformed"),
        ({"run": "links", "ids": ["u1"], "k": 0}, 422, "Malformed"),
        ({"run": "links", "ids": ["secret"]}, 409, "NeedsRelease"),
        ({"run": "items", "lists": [["g0", "secret"]]}, 409, "NeedsRelease"),
        ({"run": "links", "ids": ["u1"] * 101}, 413, "TooLarge"),
        ({"run": "links", "pairs": [["u1", "u2"]] * 6}, 413, "TooLarge"),
        ({"run": "items", "lists": [["g0"]] * 101}, 413, "TooLarge"),
        ({"ids": ["u1"]}, 404, "NotFound"),
        ({"run": "secret", "ids": ["u1"]}, 404, "NotFound"),
    ],
)
def test_other_requests_are_rejected_without_a_value(
    links: Path, items: Path, body: dict[str, Any], status: int, kind: str
) -> None:
    client = TestClient(create_app(read_runs([links, items]), limits=Limits(ids=10)))
    found = client.post("/v1/pairs", json=body)
    assert (found.status_code, found.json()["error"]["kind"]) == (status, kind)
    assert "secret" not in found.text
    if status == 413:
        (named,) = [name for name in ("ids", "lists", "pairs") if name in body]
        assert ("may have 100 lists" in found.text) == (named == "lists")


def test_models_of_pairs_stand_next_to_classifiers(links: Path, tmp_path: Path) -> None:
    friends = run_of("undirected-edge", tmp_path / "friends")
    client = TestClient(create_app(read_runs([links, friends])))
    assert client.post("/v1/predict", json={"ids": ["ann"]}).status_code == 200
    assert client.post("/v1/pairs", json={"ids": ["u1"]}).status_code == 200
    wrong = client.post("/v1/predict", json={"run": "links", "ids": ["u1"]})
    assert wrong.status_code == 404 and "/v1/pairs" in wrong.text
    names = [one["run"] for one in client.get("/v1/privacy").json()["runs"]]
    assert names == ["links", "friends"]
    assert "/v1/pairs" in client.get("/docs").text
    alone = TestClient(create_app(read_runs([friends])))
    assert alone.post("/v1/pairs", json={"ids": ["u1"]}).status_code == 404


def test_keys_are_required_if_there_are_any(links: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = Keys.add(file, ())
    client = TestClient(create_app(read_runs([links]), Keys.read(file)))
    assert client.post("/v1/pairs", json={"ids": ["u1"]}).status_code == 401
    headers = {"Authorization": f"Bearer {key}"}
    assert client.post("/v1/pairs", json={"ids": ["u1"]}, headers=headers).status_code == 200


def test_a_model_of_pairs_makes_no_new_release(links: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    Keys.add(file, (), releases=True)
    budget = ReleaseBudget(epsilon=Decimal(1), ledger="none")
    with pytest.raises(ConfigError, match="--allow-releases is only for classifiers"):
        Service(runs=(links,), keys=file, release_budget=budget).app()
