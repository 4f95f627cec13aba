"""What is not answered: malformed, large, slow and too many; neither the answer nor the log has a value."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest
from fastapi.testclient import TestClient

from graphveil.errors import ConfigError
from graphveil.serve import Limits, ServedRun, create_app, read_runs
from serve.conftest import Ask
from serve.folders import SECRET

MALFORMED = {
    "nothing": b"",
    "no JSON": SECRET.encode(),
    "half": b'{"ids": ["' + SECRET.encode(),
    "another shape": json.dumps([SECRET]).encode(),
    "another field": json.dumps({"ids": ["ann"], SECRET: 1}).encode(),
    "no ids": b"{}",
    "empty": b'{"ids": []}',
    "a truth value": b'{"ids": [true]}',
    "a number with a point": b'{"ids": [1.5]}',
    "nothing in a list": b'{"ids": [null]}',
    "a list in a list": json.dumps({"ids": [[SECRET]]}).encode(),
    "long": json.dumps({"ids": [SECRET * 200]}).encode(),
    "a long number": b'{"ids": [' + b"7" * 5000 + b"]}",
    "a large number": b'{"ids": [' + b"7" * 25 + b"]}",
    "deep": b'{"ids": ' + b"[" * 90_000,
    "not in UTF-8": b'{"ids": ["\xff"]}',
    "half a letter": b'{"ids": ["\\ud800"]}',
}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    logger = logging.getLogger("graphveil.serve")
    logger.propagate = True
    caplog.set_level(logging.INFO, logger="graphveil.serve")
    return caplog


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("page", ["/v1/predict", "/invocations"])
def test_malformed_questions(client: TestClient, log: pytest.LogCaptureFixture, page: str, case: str) -> None:
    answer = client.post(page, content=MALFORMED[case], headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["kind"]) == (422, "Malformed")
    assert SECRET not in answer.text
    assert SECRET not in log.text


@pytest.mark.parametrize(
    "table",
    [
        {"dataframe_split": {"columns": ["id", "id"], "data": [["ann", "bob"]]}},
        {"dataframe_split": {"columns": ["id"], "data": [["ann", "bob"]]}},
        {"dataframe_split": {"columns": ["id"], "data": []}},
        {"dataframe_records": []},
        {"dataframe_records": [{"id": "ann"}], "dataframe_split": {"columns": ["id"], "data": [["ann"]]}},
        {"instances": ["ann"]},
    ],
)
def test_tables_that_are_none(client: TestClient, table: object) -> None:
    assert client.post("/invocations", json=table).status_code == 422


def test_other_pages_and_methods(client: TestClient) -> None:
    for method, page, status in (
        ("GET", "/v1/predict", 405),
        ("POST", "/v1/privacy", 405),
        ("GET", f"/{SECRET}", 404),
        ("POST", "/v1/predict/", 404),
    ):
        answer = client.request(method, page)
        assert (answer.status_code, SECRET in answer.text) == (status, False)


def test_large_questions(ask: Ask, folder: Path) -> None:
    client = ask(folder, limits=Limits(body_bytes=100, ids=3))
    assert client.post("/v1/predict", json={"ids": ["ann"] * 3}).status_code == 200
    for status, question in ((413, {"ids": ["ann"] * 4}), (413, {"ids": [SECRET * 20]})):
        answer = client.post("/v1/predict", json=question)
        assert (answer.status_code, SECRET in answer.text) == (status, False)
    in_pieces = client.post("/v1/predict", content=(b" " * 60 for _ in range(2)))  # says no length before
    assert in_pieces.status_code == 413


def test_limits_let_something_through() -> None:
    with pytest.raises(ConfigError, match="under_way"):
        Limits(under_way=0)


def test_a_body_in_arrival_takes_no_place(folder: Path) -> None:
    asyncio.run(_in_arrival(folder))


async def _in_arrival(folder: Path) -> None:
    app = create_app(read_runs([folder]), limits=Limits(under_way=2))
    released, begun = asyncio.Event(), asyncio.Semaphore(0)

    async def held() -> AsyncIterator[bytes]:
        begun.release()
        await released.wait()
        yield b'{"ids": ["ann"]}'

    json_body = {"Content-Type": "application/json"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        waiting = [
            asyncio.create_task(client.post("/v1/predict", content=held(), headers=json_body))
            for _ in range(5)
        ]
        for _ in waiting:
            await begun.acquire()
        assert (await client.post("/v1/predict", json={"ids": ["ann"]})).status_code == 200
        assert "graphveil_requests_under_way 0" in (await client.get("/metrics")).text
        released.set()
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 5


def test_a_body_that_does_not_come_is_not_waited_for(folder: Path) -> None:
    asyncio.run(_slow(folder))


async def _slow(folder: Path) -> None:
    app = create_app(read_runs([folder]), limits=Limits(body_seconds=0.05, under_way=1))

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        assert (await client.post("/v1/predict", content=never())).status_code == 408
        assert (await client.post("/v1/predict", json={"ids": ["ann"]})).status_code == 200


def test_a_fault_is_told_without_its_text(
    client: TestClient, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: ServedRun, ids: object) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(ServedRun, "rows", broken)
    answer = client.post("/v1/predict", json={"ids": ["ann"]})
    assert (answer.status_code, SECRET in answer.text, SECRET in log.text) == (500, False, False)
    assert json.loads(log.messages[-1])["fault"] == "RuntimeError"


def test_a_line_of_the_log_has_no_value(client: TestClient, log: pytest.LogCaptureFixture) -> None:
    client.post(f"/v1/predict?run={SECRET}", json={"ids": ["ann"]})
    client.get(f"/{SECRET}")
    lines = [json.loads(one) for one in log.messages if one.startswith("{")]
    assert [(line["page"], line["status"]) for line in lines] == [("/v1/predict", 200), ("other", 404)]
    assert all(line.keys() == {"page", "status", "seconds"} for line in lines)
