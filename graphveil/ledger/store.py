"""The database: three tables, and transactions that happen whole or not at all, even if the line breaks.

Entries are only ever added; the database itself refuses to change or delete one. What else is kept (the head
of each chain, the totals) follows from the entries, and ``verify`` computes it anew.
"""

import errno
import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from graphveil.errors import ConfigError, LedgerError, MissingDependencyError
from graphveil.ledger.places import check_locks, file_of

Result = TypeVar("Result")

_WAIT = 120  # seconds that a booking waits for others before it gives up
_TRIES = 6  # of a transaction whose connection was lost
_SETUP, _NAMES = 0x67726170, 0x67726171  # the server's locks under which tables, and names, are made
# What several questions read has to be of one moment; a booking has to see what was booked while it waited.
_ISOLATION = {False: "REPEATABLE READ", True: "READ COMMITTED"}
_SECRETS = ("password", "secret", "_key")  # in the names of options, as libpq calls them

_METADATA = sa.MetaData()
secret = sa.Table(
    "graphveil_secret",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(64), nullable=False),  # of the fingerprints: neighbours must not be told apart
)
data_sets = sa.Table(
    "graphveil_data_sets",
    _METADATA,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("length", sa.Integer, nullable=False),
    sa.Column("head", sa.String(64), nullable=False),
)
accounts = sa.Table(
    "graphveil_accounts",
    _METADATA,
    sa.Column("data_set", sa.String(200), primary_key=True),
    sa.Column("unit", sa.String(60), primary_key=True),
    sa.Column("epsilon", sa.String(60)),
    sa.Column("delta", sa.String(60)),
    sa.Column("releases", sa.Integer, nullable=False),
    sa.Column("total", sa.Text, nullable=False),
)
entries = sa.Table(
    "graphveil_entries",
    _METADATA,
    sa.Column("data_set", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("reference", sa.String(120), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.UniqueConstraint("data_set", "reference", "kind", name="graphveil_once"),
)
_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER IF NOT EXISTS graphveil_no_{verb} BEFORE {event} "
        "BEGIN SELECT RAISE(ABORT, 'entries are only ever added'); END"
        for verb, event in (
            ("UPDATE", "UPDATE ON graphveil_entries"),
            ("DELETE", "DELETE ON graphveil_entries"),
            # INSERT OR REPLACE deletes without a word to the trigger above
            (
                "REPLACE",
                "INSERT ON graphveil_entries WHEN EXISTS (SELECT 1 FROM graphveil_entries "
                "WHERE data_set = NEW.data_set "
                "AND (number = NEW.number OR (reference = NEW.reference AND kind = NEW.kind)))",
            ),
        )
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION graphveil_only_added() RETURNS trigger AS "
        "$$ BEGIN RAISE EXCEPTION 'entries are only ever added'; END $$ LANGUAGE plpgsql",
        "DROP TRIGGER IF EXISTS graphveil_no_change ON graphveil_entries",
        "CREATE TRIGGER graphveil_no_change BEFORE UPDATE OR DELETE ON graphveil_entries "
        "FOR EACH ROW EXECUTE FUNCTION graphveil_only_added()",
        "DROP TRIGGER IF EXISTS graphveil_no_truncate ON graphveil_entries",
        "CREATE TRIGGER graphveil_no_truncate BEFORE TRUNCATE ON graphveil_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION graphveil_only_added()",
    ],
}


class Store:
    """A database with a ledger's tables. Connections belong to one process: a fork opens its own.

    Args:
        url: where it lies, as :func:`~graphveil.ledger.places.url_of` writes it.

    Raises:
        ConfigError: the file lies where locks do not hold, or the URL cannot be read.
        LedgerError: the database cannot be opened.
        MissingDependencyError: the driver of PostgreSQL is not installed.
    """

    def __init__(self, url: str) -> None:
        """Open the database, and make its tables if it has none."""
        self._file, self._url = file_of(url), _parsed(url)
        self._lines = _Lines(self._url)
        weakref.finalize(self, self._lines.close)
        if self._file is not None:
            _make_folder(self)
            check_locks(self._file)
            self._identity = _identity(self._file)
        self.write(lambda line: _make_tables(line))

    @property
    def shown(self) -> str:
        """The place without a password, wherever in the URL it stands."""
        if self._file is not None:
            return str(self._file)
        hidden = {name: "***" for name in self._url.query if any(word in name for word in _SECRETS)}
        return self._url.update_query_dict(hidden).render_as_string().replace("=%2A%2A%2A", "=***")

    @property
    def shared(self) -> bool:
        """Whether a server keeps it, for several machines."""
        return self._file is None

    def read(self, task: Callable[[sa.Connection], Result]) -> Result:
        """Run a task that changes nothing, on one state of the database."""
        return self._tried(task, writing=False)

    def write(self, task: Callable[[sa.Connection], Result]) -> Result:
        """Run a task in one transaction, alone.

        A task whose connection was lost is run again, for nobody knows whether its commit arrived: it has to
        recognise what it has done already.
        """
        return self._tried(task, writing=True)

    def _tried(self, task: Callable[[sa.Connection], Result], *, writing: bool) -> Result:
        for attempt in range(_TRIES):
            try:
                return self._once(task, writing=writing)
            except DBAPIError as error:
                lost = error.connection_invalidated or _transient(error)
                if not lost or attempt == _TRIES - 1:
                    raise LedgerError(_why(error, self)) from None
                time.sleep(0.05 * 2**attempt)
            except SQLAlchemyError as error:
                raise LedgerError(
                    f"the ledger at {self.shown} cannot be used: {type(error).__name__}"
                ) from None
        raise AssertionError("the last try returns or raises")

    def _once(self, task: Callable[[sa.Connection], Result], *, writing: bool) -> Result:
        self._check_there()
        with self._lines.engine().connect() as line:
            line = line.execution_options(graphveil_writing=writing)
            if self.shared:
                line = line.execution_options(isolation_level=_ISOLATION[writing])
            with line.begin():
                return task(line)

    def _check_there(self) -> None:
        """Refuse a file that was removed or replaced: who has it open would go on in it unseen."""
        if self._file is not None and _identity(self._file) != self._identity:
            raise LedgerError(
                f"the ledger at {self.shown} was removed or replaced by another file while it was in use; "
                "nothing was booked by this step, so nothing may be released. Bring it back, and start again"
            )

    def close(self) -> None:
        """Close this process's connections; the next question opens new ones."""
        self._lines.close()


class _Lines:
    """The connections of one process; a fork makes its own and leaves the parent's alone."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self._opening = threading.Lock()
        self._process = 0
        self._engine: sa.Engine | None = None

    def engine(self) -> sa.Engine:
        """Return what opens connections in this process."""
        with self._opening:
            if self._engine is None or self._process != os.getpid():
                if self._engine is not None:
                    self._engine.dispose(close=False)
                self._process, self._engine = os.getpid(), _engine(self._url)
            return self._engine

    def close(self) -> None:
        """Close the connections of this process."""
        with self._opening:
            if self._engine is not None:
                self._engine.dispose(close=self._process == os.getpid())
            self._engine = None


def lock_names(line: sa.Connection) -> None:
    """Keep others from naming a data set until the transaction ends; SQLite has one writer anyway."""
    if line.dialect.name == "postgresql":
        line.execute(sa.text(f"SELECT pg_advisory_xact_lock({_NAMES})"))


def key_of(line: sa.Connection) -> bytes:
    """Return the key of the fingerprints, which never leaves the ledger."""
    return bytes.fromhex(line.execute(sa.select(secret.c.key)).scalar_one())


def _parsed(url: str) -> sa.URL:
    """Return a URL in its parts; what is wrong with it is said without it, for a password may be inside."""
    file = file_of(url)
    if file is not None:
        return sa.URL.create("sqlite", database=str(file))  # its path to the letter
    try:
        found = sa.make_url(url)
    except (ArgumentError, ValueError):
        found = None
    if found is None or "@" in (found.host or ""):
        raise ConfigError(
            "the ledger's URL cannot be read; it is postgresql+psycopg://user@host:port/database, and in a "
            "password @ : / ? # and % are written as %40 %3A %2F %3F %23 and %25"
        )
    return found


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "postgresql":
        try:
            # one line a process: bookings wait for each other anyway, and a server has few lines
            return sa.create_engine(url, pool_pre_ping=True, pool_size=1, max_overflow=0, pool_timeout=_WAIT)
        except (ModuleNotFoundError, NoSuchModuleError):
            raise MissingDependencyError(
                "a ledger in PostgreSQL needs its driver; install it with `pip install 'graphveil[postgres]'`"
            ) from None
    engine = sa.create_engine(url, connect_args={"timeout": _WAIT, "isolation_level": None})

    @sa.event.listens_for(engine, "connect")
    def _durable(connection: "sa.engine.interfaces.DBAPIConnection", _: object) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON"):
            connection.cursor().execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(line: sa.Connection) -> None:
        writing = line.get_execution_options().get("graphveil_writing", False)
        line.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _make_tables(line: sa.Connection) -> None:
    dialect = line.dialect.name
    if dialect == "postgresql":
        line.execute(sa.text(f"SELECT pg_advisory_xact_lock({_SETUP})"))
    known = sa.inspect(line).has_table(secret.name)
    if known and dialect == "postgresql":
        return  # a role that may add and read need not own the tables
    if not known:
        _METADATA.create_all(line)
        line.execute(secret.insert().values(id=1, key=secrets.token_hex(32)))
    for statement in _APPEND_ONLY[dialect]:  # in a file of an earlier version, too
        line.execute(sa.text(statement))


def _make_folder(store: Store) -> None:
    assert store._file is not None
    try:
        store._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_file(store._file)
    except OSError as error:
        raise LedgerError(
            f"the ledger at {store.shown} cannot be opened ({error.strerror}); let GRAPHVEIL_LEDGER name a "
            "file or a database that may be written"
        ) from None


def _identity(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of its name; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make_file(file: Path) -> None:
    """Make a file that is its owner's, for a key is inside; leave alone one that is there.

    To open and close it would drop every lock that this process has on it (POSIX): another process would take
    itself for the last one, and clear away the log that connections of this one go on writing to.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if not os.access(file, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _transient(error: DBAPIError) -> bool:
    """Whether it may go through if it is tried again: the server went away, or chose a victim."""
    state = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(error, OperationalError) and (
        state[:2] in ("08", "40", "57") or "connection" in str(error.orig)
    )


def _why(error: DBAPIError, store: Store) -> str:
    """Say what the database refused, in its own words without the statement and its values."""
    words = str(error.orig).strip().splitlines()
    said = words[0] if words else type(error.orig).__name__
    return (
        f"the ledger at {store.shown} cannot be used: {said}; nothing was booked by this step, so nothing "
        "may be released. Mend the database, or name another ledger (--ledger)"
    )
