"""A server whose run folder was moved, deleted or replaced answers with 503, and never with 500."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from graphveil.ledger import Ledger
from graphveil.serve import Keys, ReleaseBudget, Service
from serve.sockets import Client, get, listening, request
from serve.test_releases import PATH, UNIT, fit_into

KNOWN, FRESH = PATH, PATH | {"edges": [["a", "b"]]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = fit_into(tmp_path_factory.mktemp("trained") / "run")
    (run / "internal").mkdir()
    return run


class Moved:
    """A server that may make releases, and the requests of one key."""

    def __init__(self, port: int, run: Path, place: str, key: str) -> None:
        self.run, self.aside = run, run.with_name("aside")
        self._port, self._place, self._key = port, place, f"Authorization: Bearer {key}"

    def ask(self, question: object) -> tuple[int, dict[str, Any]]:
        with Client(self._port) as client:
            status, _, body = client.send(request(question, self._key)).response()
        return status, json.loads(body)

    def budget(self) -> int:
        return get(self._port, "/v1/privacy", self._key)[0]

    def charged(self) -> int:
        return len(Ledger(self._place).data_set("callers"))


@contextmanager
def serving(trained: Path, folder: Path) -> Iterator[Moved]:
    run, place, file = folder / "run", f"sqlite:///{folder}/team.sqlite", folder / "keys.json"
    shutil.copytree(trained, run)
    Ledger(place).init("callers", UNIT, epsilon="90", delta="1e-6")
    key = Keys.add(file, releases=True)
    budget = ReleaseBudget(epsilon=Decimal(90), ledger=f"{place}#callers")
    with listening(Service(runs=(run,), release_budget=budget, keys=file).app()) as port:
        yield Moved(port, run, place, key)


@pytest.fixture(scope="module")
def moved(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    with serving(trained, tmp_path_factory.mktemp("moved")) as found:
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
def test_a_missing_run_releases_nothing(
    moved: Moved, how: Callable[[Path, Path, str], None], part: str
) -> None:
    before, place = moved.charged(), moved.run / part
    how(moved.run, moved.aside, part)
    try:
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


def test_a_deleted_run_releases_nothing(trained: Path, tmp_path: Path) -> None:
    with serving(trained, tmp_path) as found:
        assert found.ask({"ids": [0]})[0] == 200
        shutil.rmtree(found.run)
        for question in (FRESH, KNOWN):
            status, body = found.ask(question)
            assert (status, body["error"]["kind"]) == (503, "Changed")
        assert found.ask({"ids": [0]})[0] == 200
        assert found.charged() == 0
