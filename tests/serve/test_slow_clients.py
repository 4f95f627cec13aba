"""Clients that send or read slowly, or too much: deadlines and limits, so that others are answered."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from graphveil.ledger import Ledger
from graphveil.serve import Keys, Limits, ReleaseBudget, Service, create_app, read_runs
from serve.folders import SECRET, run_of
from serve.sockets import ANN, Client, answers, get, listening, raw, request, under_way, until
from serve.test_releases import PATH, UNIT, fit_into

SHORT = Limits(head_seconds=0.3, body_seconds=0.3, grace_seconds=0.5, under_way=2, connections=6)
LARGE = Limits(body_bytes=2 << 20, ids=200_000, head_seconds=0.3)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server with short deadlines and few places."""
    run = run_of("undirected-edge", tmp_path_factory.mktemp("sockets") / "friends")
    with listening(create_app(read_runs([run]), limits=SHORT)) as found:
        yield found


# -- deadlines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "text", "status"),
    [
        (b"", b"", None),
        (b"", b"POST /v1/predict HTTP/1.1\r\nX: ", None),
        (b"", request(ANN)[:-3], 408),
        (request(ANN), b"POST /v1", None),
    ],
    ids=["silent", "half a head", "half a body", "half of a second request"],
)
def test_a_slow_client_is_disconnected(port: int, before: bytes, text: bytes, status: int | None) -> None:
    with Client(port) as slow, Client(port) as quick:
        assert not before or slow.send(before).status() == 200
        slow.send(text)
        assert quick.send(request(ANN)).status() == 200
        assert status is None or slow.status() == status
        assert slow.closed()


def test_a_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=LARGE)
    with listening(app) as port, Client(port, reads=4096) as client:
        client.send(request({"ids": ["ann"] * 150_000}))
        until(lambda: app.state.admission.metrics.under_way == 1)
        until(lambda: app.state.admission.metrics.under_way == 0)
        time.sleep(4 * LARGE.head_seconds)
        with pytest.raises(ConnectionError):
            client.response()


def test_requests_of_one_connection_are_answered_in_order(port: int, log: pytest.LogCaptureFixture) -> None:
    with Client(port) as client:
        client.send(request(ANN) + request({"ids": ["bob"], SECRET: 1}))
        first, second = client.response(), client.response()
        assert (first[0], json.loads(first[2])["predictions"][0]["node"]) == (200, "ann")
        assert (second[0], json.loads(second[2])["error"]["kind"]) == (422, "Malformed")

    def statuses() -> list[tuple[str, int]]:
        lines = [json.loads(one) for one in log.messages if one.startswith("{")]
        return [(line["page"], line["status"]) for line in lines]

    until(lambda: statuses() == [("/v1/predict", 200), ("/v1/predict", 422)])


def test_an_answer_does_not_wait_for_an_acknowledgement(port: int) -> None:
    with Client(port) as client:
        client.send(request(ANN)).response()
        seconds = []
        for _ in range(50):
            began = time.perf_counter()
            assert client.send(request(ANN)).status() == 200
            seconds.append(time.perf_counter() - began)
        assert min(seconds) < 0.035  # 40 ms each, where small packets wait; a busy machine slows some down


# -- limits ------------------------------------------------------------------------------------------------


def test_the_bytes_of_bodies_in_arrival_are_bounded(tmp_path: Path) -> None:
    """The oldest body is rejected at once, before its deadline."""
    limits = replace(SHORT, connections=20, body_bytes=1000, held_bytes=2500, body_seconds=60.0)
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=limits)
    whole = request(json.dumps(ANN).rjust(900))
    with listening(app) as port, ExitStack() as stack:
        for _ in range(5):
            old, *young = [stack.enter_context(Client(port)) for _ in range(3)]
            for one in (old, *young):
                one.send(whole[:-1])
                assert answers(port)  # after everything before it was read
            assert old.status() == 408
            for one in young:
                assert one.send(whole[-1:]).status() == 200


def test_large_answers_that_are_not_read_are_bounded_in_bytes(tmp_path: Path) -> None:
    """Another large answer is rejected until the deadline of the first; small ones are sent."""
    limits = replace(LARGE, head_seconds=4.0, held_bytes=10 << 20)
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=limits)

    def status(port: int, ids: int) -> int:
        with Client(port) as client:
            return client.send(request({"ids": ["ann"] * ids})).status()

    with listening(app) as port, Client(port, reads=4096) as client:
        client.send(request({"ids": ["ann"] * 100_000}))
        until(lambda: app.state.admission.metrics.under_way == 1)
        until(lambda: app.state.admission.metrics.under_way == 0)
        assert status(port, 100_000) == 429
        assert status(port, 1) == 200
        until(lambda: status(port, 100_000) == 200, 60)


def test_too_many_connections_close_the_oldest_idle_ones(tmp_path: Path) -> None:
    limits = replace(SHORT, head_seconds=200.0)  # so that no deadline closes them before
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=limits)
    with listening(app) as port, ExitStack() as stack:
        many = [stack.enter_context(Client(port)) for _ in range(SHORT.connections)]
        for one in many:
            one.send(request(ANN))
        statuses = {one.status() for one in many}
        assert 200 in statuses and statuses <= {200, 429}
        late = [stack.enter_context(Client(port)) for _ in range(2)]
        assert {one.send(request(ANN)).status() for one in late} <= {200, 429}
        assert many[0].closed()


def test_silent_connections_do_not_close_those_whose_bodies_arrive(tmp_path: Path) -> None:
    patient = replace(SHORT, head_seconds=60.0, body_seconds=60.0)  # so that no deadline closes any
    app = create_app(read_runs([run_of("undirected-edge", tmp_path / "run")]), limits=patient)
    head, _, body = request(ANN).partition(b"\r\n\r\n")
    with listening(app) as port, ExitStack() as stack:
        slow = [stack.enter_context(Client(port)).send(head + b"\r\n\r\n") for _ in range(2)]
        until(lambda: answers(port))
        for _ in range(5 * SHORT.connections):
            stack.enter_context(Client(port))
        until(lambda: answers(port))  # after all of them were accepted
        assert [one.send(body).status() for one in slow] == [200, 200]


def test_the_rate_of_one_key_does_not_limit_another(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    often, other = (f"Authorization: Bearer {Keys.add(file)}" for _ in range(2))
    runs = read_runs([run_of("undirected-edge", tmp_path / "run")])
    app = create_app(runs, Keys.read(file), Limits(rate=0.2, burst=2))
    with listening(app) as port, Client(port) as client:
        assert [client.send(request(ANN, often)).status() for _ in range(2)] == [200, 200]
        status, headers, body = client.send(request(ANN, often)).response()
        assert (status, json.loads(body)["error"]["kind"]) == (429, "RateLimit")
        assert 1 <= int(headers["retry-after"]) <= 5
        assert client.send(request(ANN, other)).status() == 200
        assert client.send(request(ANN, "Authorization: Bearer wrong")).status() == 401


# -- servers with their default limits -------------------------------------------------------------

SLOW = {
    "silent": b"",
    "half a head": b"POST /v1/predict HTTP/1.1\r\nHost: here\r\n",
    "a head without its body": raw("Content-Length: 16"),
    "half a body": request(ANN)[:-1],
    "half a chunk": raw("Transfer-Encoding: chunked", "10\r\n{"),
    "half a large body": raw("Content-Length: 1000000", " " * 600_000),
    "an answer, then nothing": request(ANN),
    "an answer that is not read": request({"ids": ["ann"] * 10_000}),
}


@pytest.fixture(scope="module", params=[Limits(), Limits(under_way=1000)], ids=["default", "many places"])
def default_port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    run = run_of("undirected-edge", tmp_path_factory.mktemp("slow") / "run")
    with listening(Service(runs=(run,), limits=request.param).app()) as port:
        yield port


@pytest.mark.parametrize("kind", SLOW)
def test_slow_clients_do_not_exclude_others(default_port: int, kind: str) -> None:
    """The slow ones are more than all places and connections of a server, and none of them leaves."""
    reads = 4096 if kind == "an answer that is not read" else None
    with ExitStack() as stack:
        for number in range(400):
            client = stack.enter_context(Client(default_port, reads))
            try:
                client.send(SLOW[kind])
                assert kind != "an answer, then nothing" or client.status() == 200
            except OSError:
                pass  # the server has closed it for others
            assert number % 20 or answers(default_port)


def test_clients_without_a_key_do_not_exclude_others(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = f"Authorization: Bearer {Keys.add(file)}"
    run = run_of("undirected-edge", tmp_path / "run")
    with listening(Service(runs=(run,), keys=file).app()) as port, ExitStack() as stack:
        for _ in range(400):
            client = stack.enter_context(Client(port)).send(request(ANN)[:-1])
            assert client.status() == 401
        with Client(port) as client:
            assert client.send(request(ANN, key)).status() == 200


@contextmanager
def releases_wait(run: Path) -> Iterator[None]:
    """Hold the lock under which a server makes its releases."""
    handle = os.open(run / "internal" / "served" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("limits", "most", "others"),
    [(Limits(under_way=2), 2, 429), (Limits(), 4, 200)],
    ids=["all", "releases"],
)
def test_a_request_above_the_limit_is_rejected_at_once(
    tmp_path: Path, limits: Limits, most: int, others: int
) -> None:
    run, place, file = fit_into(tmp_path / "run"), f"sqlite:///{tmp_path}/team.sqlite", tmp_path / "keys.json"
    (run / "internal").mkdir()
    Ledger(place).init("callers", UNIT, epsilon="90", delta="1e-6")
    key = f"Authorization: Bearer {Keys.add(file, releases=True)}"
    budget = ReleaseBudget(epsilon=Decimal(90), ledger=f"{place}#callers")
    app = Service(runs=(run,), keys=file, release_budget=budget, limits=limits).app()
    with listening(app) as port, ExitStack() as stack:

        def status(content: object) -> int:
            with Client(port) as client:
                code, headers, _ = client.send(request(content, key)).response()
            assert code != 429 or int(headers["retry-after"]) >= 1
            return code

        with releases_wait(run):
            waiting = [stack.enter_context(Client(port)).send(request(PATH, key)) for _ in range(most)]
            until(lambda: under_way(port) == most, 60)
            assert status(PATH) == 429
            assert status({"ids": [0]}) == others
            assert get(port, "/healthz")[0] == 200
        responses = [client.response() for client in waiting]
        assert [response[0] for response in responses] == [200] * most
        assert len({response[2] for response in responses}) == 1
        assert json.loads(responses[0][2])["predictions"]
        assert (status(PATH), status({"ids": [0]}), under_way(port)) == (200, 200, 0)
