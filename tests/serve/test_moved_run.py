"""A started server whose run folder was moved, deleted or replaced: 503 where it is needed, and never 500."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphveil.ledger import Ledger
from graphveil.serve import Keys
from serve.sockets import Client, request
from serve.started import Started, started
from serve.test_releases import PATH, UNIT, fit_into

KNOWN, FRESH = PATH, PATH | {"edges": [["a", "b"]]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = fit_into(tmp_path_factory.mktemp("trained") / "run")
    (run / "internal").mkdir()
    return run


class Moved:
    """A server that may make releases, of a run that has answered one request for new records."""

    def __init__(self, server: Started, run: Path, place: str, key: str) -> None:
        self.run, self.aside = run, run.with_name("aside")
        self._port, self._place, self._key = server.port, place, f"Authorization: Bearer {key}"

    def ask(self, question: object) -> tuple[int, dict[str, Any]]:
        with Client(self._port) as client:
            status, _, body = client.say(request(question, self._key)).response()
        return status, json.loads(body)

    def budget(self) -> int:
        with Client(self._port) as client:
            head = f"GET /v1/privacy HTTP/1.1\r\nHost: here\r\n{self._key}\r\n\r\n"
            return client.say(head.encode()).status()

    def charged(self) -> int:
        return len(Ledger(self._place).data_set("callers"))


@pytest.fixture(scope="module", params=[1, 2])
def moved(request: pytest.FixtureRequest, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("moved")
    run, place, file = folder / "run", f"sqlite:///{folder}/team.sqlite", folder / "keys.json"
    shutil.copytree(trained, run)
    Ledger(place).init("callers", UNIT, epsilon="90", delta="1e-6")
    key = Keys.add(file, releases=True)
    flags = ("--keys", file, "--allow-releases", 90, "--ledger", f"{place}#callers")
    with started(run, *flags, "--workers", request.param) as server:
        found = Moved(server, run, place, key)
        assert found.ask(KNOWN)[0] == 200
        yield found


def put_aside(run: Path, aside: Path, part: str) -> None:
    (run / part).rename(aside)


def replace_by_a_file(run: Path, aside: Path, part: str) -> None:
    (run / part).rename(aside)
    (run / part).write_text("")


def empty(run: Path, aside: Path, part: str) -> None:
    (run / part).rename(aside)
    (run / part).mkdir()


@pytest.mark.parametrize("part", [".", "release", "internal", "release/model.json", "release/privacy.json"])
@pytest.mark.parametrize("how", [put_aside, replace_by_a_file, empty])
def test_a_run_that_is_not_there_releases_nothing(
    moved: Moved, how: Callable[[Path, Path, str], None], part: str
) -> None:
    before, place = moved.charged(), moved.run / part
    how(moved.run, moved.aside, part)
    try:
        for _ in range(6):  # of several workers, each
            status, body = moved.ask(FRESH)
            assert (status, body["error"]["kind"]) == (503, "Changed")
            assert moved.ask(KNOWN)[0] in (200, 503)  # which is stored in internal/
            assert moved.ask({"ids": [0]})[0] == 200
            assert moved.budget() in (200, 503)
        assert moved.charged() == before
    finally:
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        moved.aside.rename(place)
    assert moved.ask(KNOWN)[0] == 200
    assert moved.charged() == before


def test_a_run_that_was_deleted_releases_nothing(trained: Path, tmp_path: Path) -> None:
    """Last, as nothing comes back."""
    run, place, file = tmp_path / "run", f"sqlite:///{tmp_path}/team.sqlite", tmp_path / "keys.json"
    shutil.copytree(trained, run)
    Ledger(place).init("callers", UNIT, epsilon="90", delta="1e-6")
    key = Keys.add(file, releases=True)
    with started(run, "--keys", file, "--allow-releases", 90, "--ledger", f"{place}#callers") as server:
        found = Moved(server, run, place, key)
        assert found.ask({"ids": [0]})[0] == 200
        shutil.rmtree(run)
        for question in (FRESH, KNOWN):
            status, body = found.ask(question)
            assert (status, body["error"]["kind"]) == (503, "Changed")
        assert found.ask({"ids": [0]})[0] == 200
        assert found.charged() == 0
