"""Malformed requests by the hundred, against started servers with their default limits. All by the socket."""

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest

from serve.folders import run_of
from serve.sockets import Client, request, until
from serve.started import started

GOOD = request({"ids": ["ann"]})
TIMES = 200  # more than the places of all workers of a server
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"


def raw(headers: str, body: str = "", page: str = "/v1/predict", method: str = "POST") -> bytes:
    return f"{method} {page} HTTP/1.1\r\nHost: here\r\n{JSON}\r\n{headers}\r\n\r\n{body}".encode()


CONTENT = '{"ids": ["ann"]}'
BODIES = {
    "both lengths": raw(f"Content-Length: 16\r\n{CHUNKED}", "0\r\n\r\n"),
    "both lengths, the other order": raw(f"{CHUNKED}\r\nContent-Length: 16", CONTENT),
    "two lengths that differ": raw("Content-Length: 16\r\nContent-Length: 17", CONTENT),
    "two lengths in one line": raw("Content-Length: 16, 17", CONTENT),
    "two lengths that agree": raw("Content-Length: 16\r\nContent-Length: 16", CONTENT),
    "negative length": raw("Content-Length: -16", CONTENT),
    "length with a sign": raw("Content-Length: +16", CONTENT),
    "length in words": raw("Content-Length: ten", CONTENT),
    "length of 30 digits": raw(f"Content-Length: {'9' * 30}", CONTENT),
    "no length": raw("X: y", CONTENT),
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
}
HOSTILE = (
    BODIES
    | {f"{name}, MLflow": text.replace(b"/v1/predict", b"/invocations", 1) for name, text in BODIES.items()}
    | {
        f"{method} {page}, {name}": raw(headers, page=page, method=method)
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS")
        for page in ("/v1/predict", "/invocations")
        for name, headers in (("plain", "X: y"), ("both lengths", f"Content-Length: 3\r\n{CHUNKED}"))
    }
)

QUICK = {  # one of each kind; the others are slow
    "both lengths",
    "two lengths that differ",
    "chunk of a huge size",
    "truncated body",
    "malformed JSON",
    "two requests at once, MLflow",
    "websocket",
    "GET /v1/predict, both lengths",
}


@pytest.fixture(scope="module", params=[1, 2])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    run = run_of("undirected-edge", tmp_path_factory.mktemp("hostile") / "run")
    with started(run, "--workers", request.param) as server:
        yield server.port


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE]
)
def test_requests_that_fail_leave_nothing_under_way(port: int, name: str) -> None:
    for _ in range(TIMES):
        with Client(port) as client, suppress(OSError):  # the server may close the connection
            client.say(HOSTILE[name])
    with Client(port) as client:
        assert client.say(GOOD).status() == 200

    def under_way() -> int:
        with Client(port) as client:
            text = client.say(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").response()[2].decode()
        (found,) = re.findall(r"^graphveil_requests_under_way (\d+)\.0$", text, re.MULTILINE)
        return int(found)

    until(lambda: under_way() == 0, 60)
