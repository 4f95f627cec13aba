"""The hostile suite of the server: raw requests on real sockets, after which good requests must pass."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from graphveil.serve import Limits, create_app, read_runs
from serve.folders import run_of
from serve.sockets import Client, listening, request

FEW = Limits(under_way=4, connections=16, head_seconds=2.0, body_seconds=2.0, grace_seconds=0.5)
GOOD = request({"ids": ["ann"]})
BOTH = "Content-Length: 3\r\nTransfer-Encoding: chunked"


def raw(method: str, page: str, headers: str, body: str = "") -> bytes:
    return f"{method} {page} HTTP/1.1\r\nHost: here\r\n{headers}\r\n\r\n{body}".encode()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    run = run_of("undirected-edge", tmp_path_factory.mktemp("hostile") / "friends")
    with listening(create_app(read_runs([run]), limits=FEW)) as found:
        yield found


def answers(port: int) -> bool:
    with Client(port) as client:
        return client.say(GOOD).status() == 200


JSON = "Content-Type: application/json"
HOSTILE = {
    "two lengths": raw("POST", "/v1/predict", f"{JSON}\r\n{BOTH}", "0\r\n\r\n"),
    "two lengths, MLflow": raw("POST", "/invocations", f"{JSON}\r\n{BOTH}", "0\r\n\r\n"),
    "two lengths, GET": raw("GET", "/v1/predict", BOTH, "0\r\n\r\n"),
    "two lengths, other page": raw("POST", "/healthz", BOTH, "0\r\n\r\n"),
    "GET": raw("GET", "/v1/predict", JSON),
    "PUT": raw("PUT", "/invocations", JSON),
    "no type": raw("POST", "/v1/predict", "Content-Length: 2", "{}"),
    "too large": raw("POST", "/v1/predict", f"{JSON}\r\nContent-Length: 99999999"),
    "malformed JSON": raw("POST", "/v1/predict", f"{JSON}\r\nContent-Length: 1", "{"),
    "malformed chunk": raw("POST", "/v1/predict", f"{JSON}\r\nTransfer-Encoding: chunked", "zz\r\n\r\n"),
    "expects to continue": raw("POST", "/v1/predict", f"{JSON}\r\nExpect: 100-continue\r\nContent-Length: 9"),
    "half a body": raw("POST", "/v1/predict", f"{JSON}\r\nContent-Length: 50", "{"),
    "pipelined": GOOD + GOOD,
    "upgrade": raw("GET", "/v1/predict", "Connection: Upgrade\r\nUpgrade: websocket"),
    "no HTTP": b"\x16\x03\x01\x00\xff" * 20,
    "long head": raw("POST", "/v1/predict", f"{JSON}\r\nX: {'a' * 100_000}\r\nContent-Length: 2", "{}"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_requests_that_fail_take_no_place_for_ever(port: int, name: str) -> None:
    """One request more than may be under way: each must give its place back."""
    for _ in range(FEW.under_way + 1):
        with Client(port) as client:
            try:
                client.say(HOSTILE[name])
                if name not in ("half a body", "expects to continue", "no HTTP"):
                    client.response()
            except OSError:
                pass  # the server has closed the connection
    deadline = time.monotonic() + 60
    while not answers(port):
        assert time.monotonic() < deadline, "requests that failed are still counted"


@pytest.mark.parametrize("size", [15_000, 17_000, 40_000, 100_000])
@pytest.mark.parametrize("where", ["header", "headers", "query"])
def test_heads_above_16_kib_are_rejected(port: int, size: int, where: str) -> None:
    many = "\r\n".join(f"X-{place}: {'a' * 91}" for place in range(size // 100))
    text = {
        "header": raw("GET", "/healthz", f"X: {'a' * size}"),
        "headers": raw("GET", "/healthz", many),
        "query": raw("GET", f"/healthz?{'a' * size}", "X: y"),
    }[where]
    with Client(port) as client:
        try:
            status = client.say(text).status()
        except OSError:
            status = 400  # closed while the head was still being sent
        assert status == (200 if size < 16_384 else 400)


@pytest.mark.parametrize("said", [b"", b"POST /v1/predict HTTP/1.1\r\nX: "], ids=["silent", "slow"])
def test_connections_without_a_request_keep_nobody_out(port: int, said: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(3 * FEW.connections):
            stack.enter_context(Client(port)).say(said)
        for _ in range(5):
            assert answers(port)


def test_a_health_check_may_use_head(port: int) -> None:
    with Client(port) as client:
        client.say(raw("HEAD", "/healthz", "X: y") + b"")
        assert client._until(lambda heard: b"\r\n\r\n" in heard).startswith(b"HTTP/1.1 200")


def test_unknown_ids_are_named_by_position(port: int) -> None:
    with Client(port) as client:
        status, _, body = client.say(request({"ids": ["ann", "nobody", "ann", 7]})).response()
    assert status == 409
    message = json.loads(body)["error"]["message"]
    assert "positions 1, 3," in message
    assert "nobody" not in message


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_exits_with_0(tmp_path: Path, workers: int, number: int) -> None:
    run = run_of("undirected-edge", tmp_path / "friends")
    command = [sys.executable, "-m", "graphveil", "serve", str(run), "--port", "0", "--workers", str(workers)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    port = next(json.loads(line)["port"] for line in process.stderr if "listening" in line)
    assert answers(port)
    process.send_signal(number)
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("page", "body"),
    [
        ("/v1/predict", {}),
        ("/v1/predict", {"run": "friends"}),
        ("/v1/predict", {"ids": ["ann"], "records": [{"id": "a", "x": [0.5]}]}),
        ("/v1/predict", {"ids": ["ann"], "edges": [["a", "b"]]}),
        ("/v1/predict", {"edges": [["a", "b"]]}),
        ("/v1/predict", {"records": [1]}),
        ("/v1/predict", {"records": [{"id": "a", "x": [0.5]}], "edges": [["a"]]}),
        ("/invocations", {}),
        ("/invocations", {"dataframe_records": [{"x": 1}]}),
        ("/invocations", {"dataframe_split": {"columns": ["x"], "data": [[1]]}}),
        ("/invocations", {"dataframe_split": {"columns": ["id"], "data": [[1, 2]]}}),
        (
            "/invocations",
            {"dataframe_records": [{"id": 1}], "dataframe_split": {"columns": ["id"], "data": [[1]]}},
        ),
    ],
)
def test_bodies_that_are_rejected_do_not_fit_the_schema(tmp_path: Path, page: str, body: object) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    client = TestClient(
        create_app(read_runs([run_of("undirected-edge", tmp_path / "friends")]), limits=replace(FEW))
    )
    described = client.get("/openapi.json").json()
    schema = described["paths"][page]["post"]["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator({**schema, "components": described["components"]})
    assert client.post(page, json=body).status_code in (409, 422)
    assert not validator.is_valid(body)
    assert validator.is_valid(
        {"ids": ["ann"]} if page == "/v1/predict" else {"dataframe_records": [{"id": 1}]}
    )
