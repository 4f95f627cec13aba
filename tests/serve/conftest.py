"""A run to serve without a training, clients of its server, and the log of the server."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from ledger.conftest import place, server

from graphveil.serve import Keys, Limits, create_app, read_runs
from serve.folders import IDS, SECRET, run_of

__all__ = ["place", "server"]  # fixtures of the ledger's tests: an empty ledger in each kind of database
Ask = Callable[..., TestClient]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run on edges, whose predictions are part of the release."""
    return run_of("undirected-edge", tmp_path / "friends")


@pytest.fixture
def client(folder: Path) -> TestClient:
    """A client of a server of that run, without keys."""
    return TestClient(create_app(read_runs([folder])))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log of the server, which never contains a value."""
    logging.getLogger("graphveil.serve").propagate = True
    caplog.set_level(logging.INFO, logger="graphveil.serve")
    yield caplog
    assert not any(text in caplog.text for text in (SECRET, *IDS))


@pytest.fixture
def ask() -> Ask:
    """Make a client of a server."""

    def made(*folders: Path, keys: Keys | None = None, limits: Limits | None = None) -> TestClient:
        return TestClient(create_app(read_runs(folders), keys, limits))

    return made
