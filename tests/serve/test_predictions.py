"""Requests for released rows: byte-identical answers, and errors that repeat no value."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import torch
from fastapi.testclient import TestClient

from graphveil.errors import ArtifactError, ConfigError
from graphveil.publish.release_folder import PREDICTIONS, read_guarantee
from graphveil.serve import Keys, Limits, create_app, read_runs
from serve.conftest import Ask
from serve.folders import IDS, PROBA, SECRET, run_of

# -- answers -----------------------------------------------------------------------------------------------


def test_rows_are_those_of_the_release(client: TestClient) -> None:
    answer = client.post("/v1/predict", json={"ids": ["cem", "ann", "cem"]})
    rows = answer.json()["predictions"]
    assert answer.json()["run"] == "friends"
    assert [(row["node"], row["prediction"]) for row in rows] == [
        ("cem", "no"),
        ("ann", "yes"),
        ("cem", "no"),
    ]
    assert torch.equal(torch.tensor([[row["p_no"], row["p_yes"]] for row in rows]), PROBA[[2, 0, 2]])
    assert answer.headers["cache-control"] == "no-store"  # a row may be for its subject alone


def test_equal_requests_have_identical_answers_in_every_process(client: TestClient, folder: Path) -> None:
    again = TestClient(create_app(read_runs([folder / "release"])))
    answers = [one.post("/v1/predict", json={"ids": list(IDS)}).content for one in (client, client, again)]
    assert len(set(answers)) == 1


@pytest.mark.parametrize(
    ("ids", "requested", "found"),
    [
        (None, 1, 1),
        (None, "1", None),
        (None, -1, None),
        (("0", "1", "2"), "1", "1"),
        (("0", "1", "2"), 1, "1"),
        (("7", "007", "07"), 7, "7"),
        (("7", "007", "07"), "007", "007"),
        (("007", "07", "x"), 7, None),
        (("7.0", " 7", "+7"), 7, None),
        (("-7", "a", "b"), -7, "-7"),
        ((f"{2**64 - 1}", "a", "b"), 2**64 - 1, f"{2**64 - 1}"),
        (("1", "a", "b"), True, None),
    ],
)
def test_a_number_means_the_id_with_the_same_digits(
    ask: Ask, tmp_path: Path, ids: tuple[str, ...] | None, requested: object, found: object
) -> None:
    """CSV files have only text: the number 7 means "7" and no other text. Without ids, rows are numbered."""
    client = ask(run_of("undirected-edge", tmp_path / "run", ids=ids))
    answer = client.post("/v1/predict", json={"ids": [requested]})
    if found is None:
        assert answer.status_code == (422 if requested is True else 409)
        assert ("The ids of this run are numbers" in answer.text) == (ids is None and requested == "1")
    else:
        assert answer.json()["predictions"][0]["node"] == found


def test_one_of_several_runs_is_named(ask: Ask, folder: Path, tmp_path: Path) -> None:
    client = ask(folder, run_of("undirected-edge", tmp_path / "others", ids=("dan", "eve", "fay")))
    assert client.post("/v1/predict", json={"ids": ["dan"]}).status_code == 404
    assert client.post("/v1/predict", json={"ids": ["dan"], "run": "others"}).status_code == 200
    unknown = client.post("/v1/predict", json={"ids": ["dan"], "run": SECRET})
    assert (unknown.status_code, SECRET in unknown.text) == (404, False)


def test_the_privacy_endpoint_returns_the_guarantee_of_the_release(client: TestClient, folder: Path) -> None:
    answer, guarantee = client.get("/v1/privacy").json(), read_guarantee(folder).guarantee
    assert answer["new_releases"] is False
    assert answer["runs"] == [{"run": "friends", "guarantee": guarantee.as_dict()}]
    assert answer["runs"][0]["guarantee"]["statement"] == guarantee.formal_statement()


def test_health_metrics_and_documentation(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    client.post("/v1/predict", json={"ids": ["ann"]})
    client.get(f"/{SECRET}")
    metrics = client.get("/metrics").text
    assert 'graphveil_requests_total{page="/v1/predict",status="200"} 1' in metrics
    assert 'graphveil_requests_total{page="other",status="404"} 1' in metrics
    assert "graphveil_requests_under_way 0" in metrics
    assert not any(text in metrics for text in (SECRET, *IDS))
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/predict", "/v1/privacy", "/healthz", "/metrics"} == paths.keys()
    page = client.get("/docs")
    assert all(path in page.text for path in paths)
    assert "http:" not in page.text.replace("http://json", "")
    assert page.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"<script|\bon\w+=|src=|@import|<link", page.text)


def test_rejects_runs_that_cannot_be_served(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the same folder name"):
        read_runs([folder, run_of("undirected-edge", tmp_path / "other" / "friends")])
    with pytest.raises(ArtifactError, match="twice"):
        read_runs([run_of("undirected-edge", tmp_path / "twice", ids=("ann", "ann", "bob"))])
    withheld = run_of("node-record", tmp_path / "owner")
    (withheld / "per_node" / PREDICTIONS).rename(tmp_path / "kept.parquet")
    with pytest.raises(ArtifactError):
        read_runs([withheld])
    with pytest.raises(ArtifactError, match="no predictions"):
        read_runs([withheld / "release"])
    with pytest.raises(ConfigError, match="No run"):
        create_app([], Keys())


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [{"ids": ["ann", SECRET]}, {"records": [{"age": SECRET}]}])
def test_requests_that_need_a_new_release_are_rejected(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post("/v1/predict", json=body)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (409, "NeedsRelease")
    assert "new release" in answer.text and SECRET not in answer.text


def test_unknown_ids_are_named_by_position(client: TestClient) -> None:
    message = client.post("/v1/predict", json={"ids": ["ann", SECRET, "ann", 7]}).json()["error"]["message"]
    assert "at indices 1, 3 of" in message and SECRET not in message


MALFORMED = {
    "nothing": b"",
    "no JSON": SECRET.encode(),
    "half": b'{"ids": ["' + SECRET.encode(),
    "a list": json.dumps([SECRET]).encode(),
    "another field": json.dumps({"ids": ["ann"], SECRET: 1}).encode(),
    "no ids": b"{}",
    "empty": b'{"ids": []}',
    "a truth value": b'{"ids": [true]}',
    "a fraction": b'{"ids": [1.5]}',
    "null in a list": b'{"ids": [null]}',
    "a list in a list": json.dumps({"ids": [[SECRET]]}).encode(),
    "a long text": json.dumps({"ids": [SECRET * 200]}).encode(),
    "a long number": b'{"ids": [' + b"7" * 5000 + b"]}",
    "a large number": b'{"ids": [' + b"7" * 25 + b"]}",
    "deep": b'{"ids": ' + b"[" * 90_000,
    "not in UTF-8": b'{"ids": ["\xff"]}',
    "half a letter": b'{"ids": ["\\ud800"]}',
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_bodies_are_rejected(client: TestClient, log: pytest.LogCaptureFixture, case: str) -> None:
    answer = client.post("/v1/predict", content=MALFORMED[case], headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["kind"]) == (422, "Malformed")
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("method", "page", "status"),
    [
        ("GET", "/v1/predict", 405),
        ("POST", "/v1/privacy", 405),
        ("GET", f"/{SECRET}", 404),
        ("POST", "/v1/predict/", 404),
    ],
)
def test_other_endpoints_and_methods_are_rejected(
    client: TestClient, method: str, page: str, status: int
) -> None:
    answer = client.request(method, page)
    assert (answer.status_code, SECRET in answer.text) == (status, False)


def test_large_requests_are_rejected(ask: Ask, folder: Path) -> None:
    client = ask(folder, limits=Limits(body_bytes=100, ids=3))
    assert client.post("/v1/predict", json={"ids": ["ann"] * 3}).status_code == 200
    for body in ({"ids": ["ann"] * 4}, {"ids": [SECRET * 20]}):
        answer = client.post("/v1/predict", json=body)
        assert (answer.status_code, SECRET in answer.text) == (413, False)
    in_pieces = client.post("/v1/predict", content=(b" " * 60 for _ in range(2)))  # without a length
    assert in_pieces.status_code == 413
    with pytest.raises(ConfigError, match="under_way"):
        Limits(under_way=0)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_body_in_arrival_takes_no_place_among_requests(folder: Path, arrives: bool) -> None:
    async def run() -> None:
        seconds = 60.0 if arrives else 0.05
        app = create_app(read_runs([folder]), limits=Limits(under_way=2, body_seconds=seconds))
        rest, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def body() -> AsyncIterator[bytes]:
            yield b"{"
            begun.release()
            await rest.wait()
            yield b'"ids": ["ann"]}'

        kind = {"Content-Type": "application/json"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            waiting = [
                asyncio.create_task(client.post("/v1/predict", content=body(), headers=kind))
                for _ in range(5)
            ]
            for _ in waiting:
                await begun.acquire()
            assert (await client.post("/v1/predict", json={"ids": ["ann"]})).status_code == 200
            assert "graphveil_requests_under_way 0" in (await client.get("/metrics")).text
            if arrives:
                rest.set()
            statuses = {answer.status_code for answer in await asyncio.gather(*waiting)}
            assert statuses == {200 if arrives else 408}

    asyncio.run(run())


class Broken(Mapping[Any, int]):
    """Places of ids that cannot be read."""

    def __getitem__(self, key: object) -> int:
        raise RuntimeError(SECRET)

    def __iter__(self) -> Iterator[Any]:
        return iter(IDS)

    def __len__(self) -> int:
        return len(IDS)


def test_a_failure_is_logged_by_its_class_only(folder: Path, log: pytest.LogCaptureFixture) -> None:
    (run,) = read_runs([folder])
    client = TestClient(create_app([replace(run, places=Broken())]))
    answer = client.post("/v1/predict", json={"ids": ["ann"]})
    assert (answer.status_code, SECRET in answer.text) == (500, False)
    assert json.loads(log.messages[-1])["fault"] == "RuntimeError"


def test_log_lines_have_endpoint_status_and_time_only(
    client: TestClient, log: pytest.LogCaptureFixture
) -> None:
    client.post(f"/v1/predict?run={SECRET}", json={"ids": ["ann"]})
    client.get(f"/{SECRET}")
    lines = [json.loads(one) for one in log.messages if one.startswith("{")]
    assert [(line["page"], line["status"]) for line in lines] == [("/v1/predict", 200), ("other", 404)]
    assert all(line.keys() == {"page", "status", "seconds"} for line in lines)
