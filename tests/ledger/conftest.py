"""A ledger in each kind of database: a file, and a server where one answers or can be started."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from graphveil.core.events import ApproximateDP, Event
from graphveil.core.ledger import Entry
from graphveil.core.unit import UndirectedEdge, Unit
from graphveil.ledger import Ledger

KINDS = ("sqlite", "postgresql")
EDGE = UndirectedEdge()
TAGS = {"edges": "e" * 64, "records": "r" * 64}
_STANDING = "postgresql+psycopg://postgres@127.0.0.1:5432/test"


def entry(name: str, event: Event | None = None, unit: Unit | None = EDGE) -> Entry:
    """Return a release, by default of epsilon 0.1."""
    return Entry(name, "rows", event or ApproximateDP(0.1), unit=unit)


def execute_unguarded(connection: sa.Connection, statement: str) -> None:
    """Change entries as the owner of the database can, without the triggers that forbid it."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("ALTER TABLE graphveil_entries DISABLE TRIGGER ALL"))
    else:
        for verb in ("UPDATE", "DELETE", "REPLACE"):
            connection.execute(sa.text(f"DROP TRIGGER IF EXISTS graphveil_no_{verb}"))
    connection.execute(sa.text(statement))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server: the named one, the one on this machine, or a temporary cluster."""
    import psycopg

    url = os.environ.get("GRAPHVEIL_TEST_DATABASE", _STANDING)
    try:
        psycopg.connect(url.replace("+psycopg", ""), connect_timeout=2).close()
        yield url
        return
    except psycopg.OperationalError:
        if url != _STANDING:
            raise
    found = [Path(one).parent for one in [shutil.which("initdb")] if one]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    programs = next((one for one in found if (one / "initdb").exists() and (one / "pg_ctl").exists()), None)
    if programs is None or os.getuid() == 0:  # root cannot run a server
        pytest.skip("no PostgreSQL answers on 127.0.0.1:5432, and initdb and pg_ctl cannot be run here")
    folder = tmp_path_factory.mktemp("cluster")
    options = f"-k {folder} -c listen_addresses=''"
    _call(programs / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust")
    _call(programs / "pg_ctl", "-D", folder / "data", "-o", options, "-l", folder / "log", "-w", "start")
    try:
        yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
    finally:
        _call(programs / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")


def _call(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


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
    yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}%20-csynchronous_commit%3Doff"
    with psycopg.connect(plain, autocommit=True) as line:
        line.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    """An empty ledger."""
    made = Ledger(place)
    yield made
    made.close()
