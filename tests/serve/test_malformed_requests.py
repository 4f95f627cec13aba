"""Malformed requests on real sockets: they are rejected, repeat no value, and keep no place."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from graphveil.serve import Limits, create_app, read_runs
from serve.folders import SECRET, run_of
from serve.sockets import ANN, Client, answers, listening, raw, request, under_way, until

FEW = Limits(under_way=4, connections=16, head_seconds=2.0, body_seconds=2.0, grace_seconds=0.5)
GOOD, CHUNKED, CONTENT = request(ANN), "Transfer-Encoding: chunked", '{"ids": ["ann"]}'
MALFORMED = {
    "both lengths": raw(f"Content-Length: 3\r\n{CHUNKED}", "0\r\n\r\n"),
    "both lengths, the other order": raw(f"{CHUNKED}\r\nContent-Length: 16", CONTENT),
    "two lengths that differ": raw("Content-Length: 16\r\nContent-Length: 17", CONTENT),
    "two lengths in one line": raw("Content-Length: 16, 17", CONTENT),
    "two lengths that agree": raw("Content-Length: 16\r\nContent-Length: 16", CONTENT),
    "negative length": raw("Content-Length: -16", CONTENT),
    "length with a sign": raw("Content-Length: +16", CONTENT),
    "length in words": raw("Content-Length: ten", CONTENT),
    "length of 30 digits": raw(f"Content-Length: {'9' * 30}", CONTENT),
    "no length": raw("X: y", CONTENT),
    "too large": raw("Content-Length: 99999999"),
    "chunk without a size": raw(CHUNKED, "zz\r\n\r\n"),
    "chunk of a negative size": raw(CHUNKED, "-5\r\nhello\r\n0\r\n\r\n"),
    "chunk of a huge size": raw(CHUNKED, "f" * 30 + "\r\nhello"),
    "chunk without its end": raw(CHUNKED, "10\r\n" + CONTENT + "XX0\r\n\r\n"),
    "unknown coding": raw("Transfer-Encoding: gzip", CONTENT),
    "chunked twice": raw("Transfer-Encoding: chunked, chunked", "0\r\n\r\n"),
    "truncated body": raw("Content-Length: 100", CONTENT),
    "truncated chunk": raw(CHUNKED, "10\r\n{"),
    "no body": raw("Content-Length: 16"),
    "expects to continue": raw("Expect: 100-continue\r\nContent-Length: 16"),
    "malformed JSON": raw("Content-Length: 1", "{"),
    "two requests at once": GOOD + GOOD,
    "no type": GOOD.replace(b"application/json", b"text/plain"),
    "websocket": raw("Connection: Upgrade\r\nUpgrade: websocket", method="GET"),
    "no HTTP": b"\x16\x03\x01\x00\xff" * 20,
    "long head": raw(f"X: {'a' * 100_000}\r\nContent-Length: 2", "{}"),
    "both lengths, other page": raw(f"Content-Length: 3\r\n{CHUNKED}", "0\r\n\r\n", page="/healthz"),
    **{
        f"{method}, {name}": raw(headers, method=method)
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS")
        for name, headers in (("plain", ""), ("both lengths", f"Content-Length: 3\r\n{CHUNKED}"))
    },
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    run = run_of("undirected-edge", tmp_path_factory.mktemp("malformed") / "friends")
    with listening(create_app(read_runs([run]), limits=FEW)) as found:
        yield found


READ = ("both lengths", "malformed JSON", "no type", "too large", "two requests at once")


def send(port: int, name: str) -> None:
    """Send a request and close the connection, before or after its answer."""
    with Client(port) as client, suppress(OSError):  # the server may close the connection
        client.send(MALFORMED[name])
        if name in READ:
            client.response()


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_keeps_no_place(port: int, name: str) -> None:
    """One request more than the number of places: each must free its place."""
    for _ in range(FEW.under_way + 1):
        send(port, name)
    until(lambda: answers(port), 60)
    until(lambda: under_way(port) == 0, 60)


def test_malformed_requests_keep_no_place_of_a_server_with_default_limits(tmp_path: Path) -> None:
    """More of each kind than a worker has places."""
    run = run_of("undirected-edge", tmp_path / "run")
    with listening(create_app(read_runs([run]))) as port:
        for name in ("both lengths", "chunk of a huge size", "truncated body", "malformed JSON", "websocket"):
            for _ in range(Limits().under_way + 1):
                send(port, name)
            assert answers(port)
        until(lambda: under_way(port) == 0, 60)


@pytest.mark.parametrize(
    "text",
    [
        SECRET.encode() + b"\r\n\r\n",
        raw(f"X: {SECRET * 20_000}", page="/healthz", method="GET"),
        GOOD.replace(b"Content-Length: ", b"Content-Length: -"),
        GOOD.replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["text", "a huge head", "a negative length", "two lengths", "TLS"],
)
def test_invalid_http_gets_400_and_closes_the_connection(port: int, text: bytes) -> None:
    with Client(port) as client:
        try:
            status, _, body = client.send(text).response()
        except ConnectionResetError:
            return  # closed while a head was still being sent
        assert status == 400
        assert json.loads(body)["error"]["kind"] == "BadRequest"  # as all other errors
        assert SECRET.encode() not in body
        assert client.closed()


@pytest.mark.parametrize("size", [15_000, 17_000, 40_000, 100_000])
@pytest.mark.parametrize("where", ["header", "headers", "query"])
def test_heads_above_16_kib_are_rejected(port: int, size: int, where: str) -> None:
    many = "\r\n".join(f"X-{place}: {'a' * 91}" for place in range(size // 100))
    text = {
        "header": raw(f"X: {'a' * size}", page="/healthz", method="GET"),
        "headers": raw(many, page="/healthz", method="GET"),
        "query": raw("", page=f"/healthz?{'a' * size}", method="GET"),
    }[where]
    with Client(port) as client:
        try:
            status = client.send(text).status()
        except OSError:
            status = 400  # closed while the head was still being sent
        assert status == (200 if size < 16_384 else 400)


def test_a_health_check_may_use_head(port: int) -> None:
    with Client(port) as client:
        assert client.send(raw("", page="/healthz", method="HEAD")).head()[0] == 200
