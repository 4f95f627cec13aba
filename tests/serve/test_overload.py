"""Requests that a started server works on are bounded; a lock that the test holds keeps them under way."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from graphveil.ledger import Ledger
from graphveil.serve import Keys
from serve.sockets import Client, request, until
from serve.started import started
from serve.test_releases import PATH, UNIT, fit_into


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
    ("flags", "most", "others"), [(("--max-under-way", 2), 2, 429), ((), 4, 200)], ids=["all", "releases"]
)
def test_one_request_too_many_is_rejected_at_once_and_then_all_is_well(
    tmp_path: Path, flags: tuple[object, ...], most: int, others: int
) -> None:
    run, place, file = fit_into(tmp_path / "run"), f"sqlite:///{tmp_path}/team.sqlite", tmp_path / "keys.json"
    (run / "internal").mkdir()
    Ledger(place).init("callers", UNIT, epsilon="90", delta="1e-6")
    key = f"Authorization: Bearer {Keys.add(file, releases=True)}"
    more = ("--keys", file, "--allow-releases", 90, "--ledger", f"{place}#callers")
    with started(run, *more, *flags) as server, ExitStack() as stack:

        def get(page: str) -> tuple[int, str]:
            with Client(server.port) as client:
                status, _, body = client.say(f"GET {page} HTTP/1.1\r\nHost: here\r\n\r\n".encode()).response()
            return status, body.decode()

        def under_way() -> int:
            (found,) = re.findall(
                r"^graphveil_requests_under_way (\d+)\.0$", get("/metrics")[1], re.MULTILINE
            )
            return int(found)

        def status(question: object) -> int:
            with Client(server.port) as client:
                code, headers, _ = client.say(request(question, key)).response()
            assert code != 429 or int(headers["retry-after"]) >= 1
            return code

        with releases_wait(run):
            waiting = [stack.enter_context(Client(server.port)).say(request(PATH, key)) for _ in range(most)]
            until(lambda: under_way() == most, 60)
            assert status(PATH) == 429
            assert status({"ids": [0]}) == others
            assert get("/healthz")[0] == 200
        answers = [client.response() for client in waiting]
        assert [answer[0] for answer in answers] == [200] * most
        assert len({answer[2] for answer in answers}) == 1
        assert json.loads(answers[0][2])["predictions"]
        assert (status(PATH), status({"ids": [0]}), under_way()) == (200, 200, 0)
