"""Clients that send or read slowly, against a started server with its default limits. All by its socket."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from graphveil.serve import Keys
from serve.folders import run_of
from serve.sockets import Client, request
from serve.started import started

GOOD = request({"ids": ["ann"]})
MANY = request({"ids": ["ann"] * 10_000})
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
SLOW = {
    "silent": b"",
    "half a head": HEAD,
    "a head without its body": HEAD + b"Content-Length: 16\r\n\r\n",
    "half a body": GOOD[:-1],
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n10\r\n{",
    "half a large body": HEAD + b"Content-Length: 1000000\r\n\r\n" + b" " * 600_000,
    "half a body, MLflow": GOOD.replace(b"/v1/predict", b"/invocations")[:-1],
    "an answer, then nothing": GOOD,
    "an answer that is not read": MANY,
}


@pytest.fixture(scope="module", params=[(), ("--max-under-way", 1000)], ids=["default", "many places"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    run = run_of("undirected-edge", tmp_path_factory.mktemp("slow") / "run")
    with started(run, *request.param) as server:
        yield server.port


def crowd(stack: ExitStack, port: int, kind: str, count: int) -> None:
    """Open connections that stay, each with something unfinished."""
    for _ in range(count):
        client = stack.enter_context(
            Client(port, reads=4096 if kind == "an answer that is not read" else None)
        )
        try:
            client.say(SLOW[kind])
            if kind == "an answer, then nothing":
                assert client.status() == 200
        except OSError:
            pass  # the server has closed it for others


@pytest.mark.parametrize("kind", SLOW)
def test_clients_that_are_slow_keep_nobody_out(port: int, kind: str) -> None:
    """The slow ones are more than all places and connections of a server, and none of them goes away."""
    with ExitStack() as stack:
        for _ in range(4):
            crowd(stack, port, kind, 100)
            for _ in range(5):
                with Client(port) as client:
                    assert client.say(GOOD).status() == 200


def test_clients_without_a_key_keep_nobody_out(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = f"Authorization: Bearer {Keys.add(file)}"
    run = run_of("undirected-edge", tmp_path / "run")
    with started(run, "--keys", file) as server, ExitStack() as stack:
        for _ in range(400):
            client = stack.enter_context(Client(server.port)).say(GOOD[:-1])
            assert client.status() == 401
        with Client(server.port) as client:
            assert client.say(request({"ids": ["ann"]}, key)).status() == 200
