"""The server on a real socket, and clients that are slow, early, many, or no clients at all."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from graphveil.serve import Keys, Limits, create_app, read_runs
from serve.folders import IDS, SECRET, run_of
from serve.sockets import Client, listening, request, until

ANN = {"ids": ["ann"]}
SHORT = Limits(head_seconds=0.3, body_seconds=0.3, grace_seconds=0.5, under_way=2, connections=6)
LARGE = Limits(body_bytes=2 << 20, ids=200_000, head_seconds=0.3)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logging.getLogger("graphveil.serve").propagate = True
    caplog.set_level(logging.INFO, logger="graphveil.serve")
    yield caplog
    assert not any(text in caplog.text for text in (SECRET, *IDS))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    run = run_of("undirected-edge", tmp_path_factory.mktemp("sockets") / "friends")
    with listening(create_app(read_runs([run]), limits=SHORT)) as found:
        yield found


def statuses(lines: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    noted = [json.loads(one) for one in lines.messages if one.startswith("{")]
    return [(one["page"], one["status"]) for one in noted]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"", None),
        (b"POST /v1/predict HTTP/1.1\r\nX: " + SECRET.encode(), None),
        (request(ANN)[:-3], 408),
    ],
    ids=["silent", "half a head", "half a body"],
)
def test_who_is_slow_is_not_waited_for(
    port: int, lines: pytest.LogCaptureFixture, said: bytes, status: int | None
) -> None:
    with Client(port) as slow, Client(port) as quick:
        slow.say(said)
        assert quick.say(request(ANN)).status() == 200
        assert status is None or slow.status() == status
        assert slow.closed()


def test_the_second_request_of_a_connection_has_a_deadline_too(port: int) -> None:
    with Client(port) as client:
        assert client.say(request(ANN)).status() == 200
        assert client.say(b"POST /v1").closed()


def test_who_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=LARGE)
    with listening(app) as port, Client(port, reads=4096) as deaf:
        deaf.say(request({"ids": ["ann"] * 150_000}))
        until(lambda: app.state.admission.metrics.under_way == 1)
        until(lambda: app.state.admission.metrics.under_way == 0)
        time.sleep(4 * LARGE.head_seconds)
        with pytest.raises(ConnectionError):
            deaf.response()


def test_requests_that_arrive_together_are_answered_one_after_the_other(
    port: int, lines: pytest.LogCaptureFixture
) -> None:
    with Client(port) as client:
        client.say(request(ANN) + request({"ids": ["bob"], SECRET: 1}))
        first, second = client.response(), client.response()
        assert (first[0], json.loads(first[2])["predictions"][0]["node"]) == (200, "ann")
        assert (second[0], json.loads(second[2])["error"]["kind"]) == (422, "Malformed")
    until(lambda: statuses(lines) == [("/v1/predict", 200), ("/v1/predict", 422)])


@pytest.mark.parametrize(
    "said",
    [
        SECRET.encode() + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: here\r\n" + b"X: " + SECRET.encode() * 20_000 + b"\r\n\r\n",
        request(ANN).replace(b"Content-Length: ", b"Content-Length: -"),
        request(ANN).replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["words", "a huge head", "a negative length", "two lengths", "TLS"],
)
def test_what_is_no_request(port: int, lines: pytest.LogCaptureFixture, said: bytes) -> None:
    with Client(port) as client:
        try:
            status, _, body = client.say(said).response()
        except ConnectionResetError:
            return  # closed while a head was still being sent
        assert status == 400
        assert SECRET.encode() not in body
        assert client.closed()


def test_the_bytes_of_bodies_in_arrival_are_bounded(tmp_path: Path) -> None:
    """The oldest gives way at once, whatever time it has left."""
    limits = replace(SHORT, connections=20, body_bytes=1000, held_bytes=2500, body_seconds=60.0)
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=limits)
    body = json.dumps(ANN).encode().rjust(900)
    whole = request(body.decode())
    with listening(app) as port, ExitStack() as stack:
        for _ in range(5):
            old, *young = [stack.enter_context(Client(port)) for _ in range(3)]
            for one in (old, *young):
                one.say(whole[:-1])
                with Client(port) as other:  # which is answered after what came before it was read
                    assert other.say(request(ANN)).status() == 200
            assert old.status() == 408
            for one in young:
                assert one.say(whole[-1:]).status() == 200


def test_a_crowd_is_answered_or_refused_and_nothing_else(port: int) -> None:
    with ExitStack() as stack:
        crowd = [stack.enter_context(Client(port)) for _ in range(SHORT.connections)]
        for one in crowd:
            one.say(request(ANN))
        told = [one.status() for one in crowd]
        assert set(told) <= {200, 429}
        assert 200 in told
        late = [stack.enter_context(Client(port)) for _ in range(2)]  # in the place of idle connections
        assert {one.say(request(ANN)).status() for one in late} <= {200, 429}
        assert crowd[0].closed()
    until(lambda: answers(port))


def answers(port: int) -> bool:
    with Client(port) as client:
        return client.say(request(ANN)).status() == 200


def test_large_answers_that_are_not_read_are_bounded_in_bytes(tmp_path: Path) -> None:
    """Small answers go on; another large one is rejected until its deadline has closed the first."""
    limits = replace(LARGE, head_seconds=4.0, held_bytes=10 << 20)
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=limits)

    def status(port: int, ids: int) -> int:
        with Client(port) as client:
            return client.say(request({"ids": ["ann"] * ids})).status()

    with listening(app) as port, Client(port, reads=4096) as deaf:
        deaf.say(request({"ids": ["ann"] * 100_000}))
        until(lambda: app.state.admission.metrics.under_way == 1)
        until(lambda: app.state.admission.metrics.under_way == 0)
        assert status(port, 100_000) == 429
        assert status(port, 1) == 200
        until(lambda: status(port, 100_000) == 200, 60)


def test_a_key_that_asks_too_often_does_not_stop_another(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    often, other = (f"Authorization: Bearer {Keys.add(file)}" for _ in range(2))
    runs = read_runs([run_of("undirected-edge", tmp_path / "run")])
    limits = Limits(rate=0.2, burst=2)
    with listening(create_app(runs, Keys.read(file), limits)) as port, Client(port) as client:
        assert [client.say(request(ANN, often)).status() for _ in range(2)] == [200, 200]
        status, headers, body = client.say(request(ANN, often)).response()
        assert (status, json.loads(body)["error"]["kind"]) == (429, "RateLimit")
        assert 1 <= int(headers["retry-after"]) <= 5
        assert client.say(request(ANN, other)).status() == 200
        assert client.say(request(ANN, "Authorization: Bearer wrong")).status() == 401


def test_an_answer_does_not_wait_for_an_acknowledgement(port: int) -> None:
    with Client(port) as client:
        client.say(request(ANN)).response()
        seconds = []
        for _ in range(50):
            began = time.perf_counter()
            assert client.say(request(ANN)).status() == 200
            seconds.append(time.perf_counter() - began)
        assert min(seconds) < 0.035  # 40 ms each, where small packets wait; a busy machine slows some down
