"""A ledger in each kind of database: a file, and a server where one answers or can be started."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphveil.ledger import Ledger

KINDS = ("sqlite", "postgresql")
_STANDING = "postgresql+psycopg://postgres@127.0.0.1:5432/test"
Place = Callable[[], str]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server: the one that is named, the one that stands here, or a throw-away cluster."""
    named = os.environ.get("GRAPHVEIL_TEST_DATABASE")
    if named or _answers(_STANDING):
        yield named or _STANDING
        return
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL answers on 127.0.0.1:5432, and initdb and pg_ctl are not here")
    folder = tmp_path_factory.mktemp("cluster")
    _call(programs / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust")
    options = f"-k {folder} -c listen_addresses=''"
    _call(programs / "pg_ctl", "-D", folder / "data", "-o", options, "-l", folder / "log", "-w", "start")
    try:
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        _call(programs / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")


@pytest.fixture
def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty ledger of this kind."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.sqlite'}"
        return
    import psycopg

    url, schema = request.getfixturevalue("server"), f"test_{uuid.uuid4().hex}"
    plain = url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as line:
        line.execute(f"CREATE SCHEMA {schema}")
    yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}"
    with psycopg.connect(plain, autocommit=True) as line:
        line.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    """An empty ledger."""
    made = Ledger(place)
    yield made
    made.close()


def _answers(url: str) -> bool:
    import psycopg

    try:
        psycopg.connect(url.replace("+psycopg", ""), connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _programs() -> Path | None:
    """Return the folder of the server's programs, which lie aside on some systems; a root cannot run them."""
    found = [Path(one).parent for one in [shutil.which("initdb")] if one]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    usable = [one for one in found if (one / "initdb").exists() and (one / "pg_ctl").exists()]
    return usable[0] if usable and os.getuid() != 0 else None


def _call(*words: object) -> None:
    subprocess.run(
        [str(word) for word in words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
