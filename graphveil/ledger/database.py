"""The database: five tables, and transactions that are atomic even if the connection is lost.

Entries are append-only; triggers of the database reject changes and deletions. All other tables (the head
of each chain, the totals) follow from the entries, and ``verify`` recomputes them.
"""

import errno
import fcntl
import hmac
import os
import secrets
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.schema import CreateTable

from graphveil.errors import (
    ArtifactError,
    ConfigError,
    GraphveilError,
    LedgerError,
    MissingDependencyError,
)
from graphveil.ledger.locations import HighWaterMark, check_locks, file_of

Result = TypeVar("Result")

_WAIT = 120  # seconds that a transaction waits for others before it fails
_TRIES = 6  # attempts at a transaction whose connection was lost
_SETUP, _NAMES = 0x67726170, 0x67726171  # the server's locks under which tables, and names, are made
# Reads have to be from one snapshot; a reservation has to see those committed while it waited.
_ISOLATION = {False: "REPEATABLE READ", True: "READ COMMITTED"}
VERSION = 2  # version of the tables; 1 had no version table, and no check of the key
# Errors that reading a manually edited value may raise.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_SECRETS = ("password", "secret", "_key")  # in the names of options, as libpq calls them

_METADATA = sa.MetaData()
secret = sa.Table(
    "graphveil_secret",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(64), nullable=False),  # of the fingerprints, against dictionary attacks
)
about = sa.Table(
    "graphveil_about",
    _METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.String(200), nullable=False),
)
_VERSION, _KEY_CHECK = "version", "key_check"  # names in it
_ID_LENGTH = 16  # characters of the key's check value that identify a ledger
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
_STATE = sa.select(
    sa.select(secret.c.key).scalar_subquery().label("key"),
    sa.select(about.c.value).where(about.c.name == _KEY_CHECK).scalar_subquery().label("checked"),
    sa.select(sa.func.coalesce(sa.func.sum(data_sets.c.length), 0)).scalar_subquery().label("size"),
)
_REJECT = " BEGIN RAISE EXCEPTION 'entries are only ever added'; END "
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
                "INSERT ON graphveil_entries WHEN EXISTS (SELECT 1 FROM graphveil_entries WHERE data_set = "
                "NEW.data_set AND (number = NEW.number OR (reference = NEW.reference AND kind = NEW.kind)))",
            ),
        )
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION graphveil_only_added() RETURNS trigger AS "
        f"$${_REJECT}$$ LANGUAGE plpgsql",
        "DROP TRIGGER IF EXISTS graphveil_no_change ON graphveil_entries",
        "CREATE TRIGGER graphveil_no_change BEFORE UPDATE OR DELETE ON graphveil_entries "
        "FOR EACH ROW EXECUTE FUNCTION graphveil_only_added()",
        "DROP TRIGGER IF EXISTS graphveil_no_truncate ON graphveil_entries",
        "CREATE TRIGGER graphveil_no_truncate BEFORE TRUNCATE ON graphveil_entries "
        "FOR EACH STATEMENT EXECUTE FUNCTION graphveil_only_added()",
    ],
}
# What would run with each write, or hide rows, of the tables that a name on the search path means.
_FOREIGN_ON_SERVER = sa.text(
    "WITH ours AS (SELECT to_regclass(name)::oid AS id FROM unnest(CAST(:tables AS text[])) AS name) "
    "SELECT 'trigger ' || tgname FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid, ours "
    "WHERE tgrelid = id AND NOT tgisinternal AND NOT (tgname LIKE 'graphveil\\_no\\_%' AND prosrc = :reject) "
    "UNION ALL SELECT 'rule ' || rulename FROM pg_rewrite, ours WHERE ev_class = id "
    "UNION ALL SELECT 'policy ' || polname FROM pg_policy, ours WHERE polrelid = id"
)


class Store:
    """A database with a ledger's tables. Connections belong to one process: a fork opens its own."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        self._location, self._file, self._url = url, file_of(url), _parsed(url)
        self._engine = _engine(self._url)
        self._high_water_mark = None if self._file is None else HighWaterMark(self._file)
        weakref.finalize(self, self._engine.dispose)
        if self._file is not None:
            size = 0
            with suppress(OSError):
                size = self._file.stat().st_size
            if not create and not size:
                raise self._missing()
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _create_private_file(self._file)
            except OSError as error:
                raise LedgerError(
                    f"The ledger at {self.display_url} cannot be opened ({error.strerror}). Use a file or "
                    "database that is writable: export GRAPHVEIL_LEDGER=/path/to/ledger.db"
                ) from None
            check_locks(self._file)
            self._identity = _identity(self._file)
        # Before the tables are checked, a transaction cannot read the key and the number of entries.
        self._prepared = False
        self.ledger_id = ""
        self.write(lambda connection: self._prepare(connection, create=create))
        self._prepared = True

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Open the same database in another process, which receives its URL with the password."""
        return partial(type(self), create=False), (self._location,)

    def _prepare(self, connection: sa.Connection, *, create: bool) -> None:
        """Make the tables, or check that those that are there are a ledger's of a known version."""
        if self.shared:  # of two processes that open a new schema, one creates the tables
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_SETUP})"))
        there = set(sa.inspect(connection).get_table_names())
        ours = there & set(_METADATA.tables)
        if about.name in ours:
            self._check_version(connection)
        if ours and (foreign := _foreign_object(connection)):
            raise self.corruption_error(f"it contains the {foreign}, which is not part of a ledger")
        if not ours:
            if there and not self.shared:
                raise LedgerError(
                    f"{self.display_url} is a database of another program. Pass another --ledger."
                )
            if not create:
                raise self._missing()
            if self._high_water_mark is not None:
                self._high_water_mark.check("", -1)
            _METADATA.create_all(connection)
            connection.execute(secret.insert().values(id=1, key=secrets.token_hex(32)))
        elif ours != set(_METADATA.tables) - ({about.name} - there):
            raise self.corruption_error(
                f"it lacks {', '.join(sorted(set(_METADATA.tables) - ours - {about.name}))}"
            )
        if about.name not in ours:
            late = entries.c.body.like('%"key":%')  # what the first version did not write
            if ours and connection.execute(sa.select(entries.c.number).where(late).limit(1)).first():
                raise self.corruption_error(f"it lacks {about.name}")
            _METADATA.create_all(connection, tables=[about])
            check = key_check(connection.execute(sa.select(secret.c.key)).scalar_one())
            for name, value in ((_VERSION, str(VERSION)), (_KEY_CHECK, check)):
                connection.execute(about.insert().values(name=name, value=value))
        # Also in a file of an earlier version; on a server, a role need not own the tables.
        if not self.shared or not ours:
            for statement in _APPEND_ONLY[connection.dialect.name]:
                connection.execute(sa.text(statement))
        self.ledger_id = str(self._checked(connection).checked)[:_ID_LENGTH]
        for table in _METADATA.sorted_tables:
            connection.execute(sa.select(table).limit(1))  # which fails where columns are lacking

    def _check_version(self, connection: sa.Connection) -> None:
        content = connection.execute(
            sa.select(about.c.value).where(about.c.name == _VERSION)
        ).scalar_one_or_none()
        if content != str(VERSION):
            newer = isinstance(content, str) and content.isdecimal() and int(content) > VERSION
            if not newer:
                raise self.corruption_error("its version cannot be read")
            raise LedgerError(
                f"The ledger at {self.display_url} has version {str(content)[:20]}, but this program "
                f"supports versions up to {VERSION}. Update graphveil. No privacy budget was spent."
            )

    def _missing(self) -> ConfigError:
        return ConfigError(
            f"There is no ledger at {self.display_url}. Correct --ledger, or create one with "
            "`graphveil ledger init NAME --unit UNIT --epsilon E --delta D`."
        )

    def corruption_error(self, why: str) -> LedgerError:
        return LedgerError(
            f"The ledger at {self.display_url} is damaged: {why}. Restore an intact backup: graphveil "
            "ledger restore FILE. No privacy budget was spent."
        )

    def key(self, connection: sa.Connection) -> bytes:
        """Return the key of the fingerprints, which never leaves the ledger."""
        return bytes.fromhex(self._checked(connection).key)

    def _checked(self, connection: sa.Connection) -> sa.Row[Any]:
        """Return the key, its check value and the number of entries; raise an error if entries were lost."""
        state = state_of(connection)
        if fault := key_fault(state):
            raise self.corruption_error(fault)
        if self._high_water_mark is not None:
            self._high_water_mark.check(state.checked, int(state.size))
        return state

    @property
    def size(self) -> tuple[str, int]:
        """The id of the ledger, as in its mark, and the number of its entries."""
        state = self.read(state_of)
        return str(state.checked)[:_ID_LENGTH], int(state.size)

    def back_up(self, file: Path) -> None:
        """Copy a ledger in SQLite to a new file, of one moment, while others may write."""
        if self._file is None:
            raise ConfigError(
                "graphveil cannot back up or restore a ledger in PostgreSQL. Use pg_dump and pg_restore."
            )
        self._check_not_replaced()
        part = file.with_name(f".{file.name}-{os.getpid()}")
        try:
            if file.exists():
                raise FileExistsError
            copy_file(self._file, part)
            os.link(part, file)  # which fails if another process was quicker
        except FileExistsError:
            raise ConfigError(
                f"{file} already exists, and backups are never overwritten. Choose another file name."
            ) from None
        except OSError as error:
            raise LedgerError(f"The backup {file} cannot be written ({error.strerror}).") from None
        finally:
            part.unlink(missing_ok=True)

    @property
    def display_url(self) -> str:
        """The location with every password in the URL removed."""
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
        return self._run_with_retries(task, writing=False)

    def write(self, task: Callable[[sa.Connection], Result]) -> Result:
        """Run a task in one transaction, without concurrent transactions.

        A task whose connection was lost is run again, because its commit may or may not have arrived. The
        task has to recognize what it has done already.
        """
        return self._run_with_retries(task, writing=True)

    def _run_with_retries(self, task: Callable[[sa.Connection], Result], *, writing: bool) -> Result:
        for attempt in range(_TRIES):
            try:
                return self._run_once(task, writing=writing)
            except DBAPIError as error:
                # The server went away, or chose a victim: the same task may succeed.
                state = getattr(error.orig, "sqlstate", None) or ""
                transient = state[:2] in ("08", "40", "57") or "connection" in str(error.orig)
                lost = error.connection_invalidated or (isinstance(error, OperationalError) and transient)
                if not lost or attempt == _TRIES - 1:
                    raise LedgerError(_database_message(error, self)) from None
                time.sleep(0.05 * 2**attempt)
            except sqlite3.Error as error:  # of a connection that is being made
                raise LedgerError(_database_message(error, self)) from None
            except SQLAlchemyError as error:
                raise LedgerError(
                    f"The ledger at {self.display_url} cannot be used: {type(error).__name__}"
                ) from None
            except ArtifactError:
                raise self.corruption_error("an event cannot be read") from None
            except GraphveilError:
                raise
            except UNREADABLE as error:
                raise self.corruption_error(f"a value cannot be read ({type(error).__name__})") from None
        raise AssertionError("the last attempt must return or raise")

    def _run_once(self, task: Callable[[sa.Connection], Result], *, writing: bool) -> Result:
        self._check_not_replaced()
        with self._engine.connect() as connection:
            connection = connection.execution_options(graphveil_writing=writing)
            if self.shared:
                connection = connection.execution_options(isolation_level=_ISOLATION[writing])
            with connection.begin():
                # Again: a restore may have replaced the file while this process waited for its lock.
                self._check_not_replaced()
                if not writing:
                    return task(connection)
                before = self._checked(connection).size if self._prepared else -1
                result = task(connection)
                state = state_of(connection)
            # After the commit: a mark that is ahead of its ledger would reject the ledger.
            if self._high_water_mark is not None and state.size != before and not self._replaced:
                self._high_water_mark.set(state.checked, state.size)
            return result

    @property
    def _replaced(self) -> bool:
        return self._file is not None and _identity(self._file) != self._identity

    def _check_not_replaced(self) -> None:
        """Raise an error for a removed or replaced file: open connections would continue on it unseen."""
        if self._replaced:
            raise LedgerError(
                f"The ledger at {self.display_url} was removed or replaced while it was in use, so this "
                "step was not recorded and nothing was released. Restore the file and run the command "
                "again."
            )

    def close(self) -> None:
        """Close this process's connections; the next question opens new ones."""
        self._engine.dispose()


def lock_names(connection: sa.Connection) -> None:
    """Keep others from naming a dataset until the transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_NAMES})"))


def key_check(key: str) -> str:
    """Return a check value that identifies a key and does not reveal it."""
    return hmac.new(key.encode(), b"the key of a graphveil ledger", "sha256").hexdigest()


def key_fault(state: sa.Row[Any]) -> str | None:
    key = state.key
    if not isinstance(key, str) or len(key) != 64 or not set(key) <= set("0123456789abcdef"):
        return "the key of its fingerprints is lost, so no data would be recognized"
    if state.checked != key_check(key):
        return "the key of its fingerprints was changed, so no data would be recognized"
    return None


def state_of(connection: sa.Connection) -> sa.Row[Any]:
    """Return the key of the fingerprints, its check value, and how many entries all chains have."""
    return cast("sa.Row[Any]", connection.execute(_STATE).one())


def _parsed(url: str) -> sa.URL:
    """Parse a URL; errors do not include the URL, which may contain a password."""
    file = file_of(url)
    if file is not None:
        return sa.URL.create("sqlite", database=str(file))  # its path to the letter
    try:
        found = sa.make_url(url)
    except (ArgumentError, ValueError):
        found = None
    if found is None or "@" in (found.host or ""):
        raise ConfigError(
            "The URL of the ledger is invalid. Use postgresql+psycopg://user@host:port/database. In "
            "a password, write @ : / ? # and % as %40 %3A %2F %3F %23 and %25."
        )
    return found


# A fork opens its own connections, and leaves those of its parent open.
_SERVERS = weakref.WeakSet[sa.Engine]()


def _forget_connections() -> None:
    for server in _SERVERS:
        server.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() == "postgresql":
        try:
            # one connection per process: reservations are serialized anyway, and servers limit connections
            found = sa.create_engine(url, pool_pre_ping=True, pool_size=1, max_overflow=0, pool_timeout=_WAIT)
        except (ModuleNotFoundError, NoSuchModuleError):
            raise MissingDependencyError(
                "A ledger in PostgreSQL needs a driver. Install it with `pip install 'graphveil[postgres]'`."
            ) from None
        _SERVERS.add(found)
        return found
    # Each connection is closed after its task: to open a file is cheap, and no ledger has to be closed.
    arguments = {"timeout": _WAIT, "isolation_level": None}
    engine = sa.create_engine(url, connect_args=arguments, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def _durable(connection: "sa.engine.interfaces.DBAPIConnection", _: object) -> None:
        # One file contains all commits: a plain copy of it would omit a log file (WAL), which is three times
        # as fast, but a release takes far longer than its two transactions of 20 to 40 ms. With TRUNCATE and
        # FULL, SQLite syncs the journal, the file, and the end of the journal, so a commit survives a power
        # loss; with DELETE it does not sync the folder, and the journal could come back and undo the commit.
        try:
            for pragma in ("journal_mode=TRUNCATE", "synchronous=FULL", "fullfsync=ON"):
                connection.cursor().execute(f"PRAGMA {pragma}")
        except sqlite3.Error:  # such as of a file that is no database
            connection.close()
            raise

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writing = connection.get_execution_options().get("graphveil_writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def copy_file(source: Path, target: Path) -> None:
    """Copy an SQLite database, including its journal or log, to a new file readable by its owner only."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with (
            closing(sqlite3.connect(source, timeout=_WAIT)) as one,
            closing(sqlite3.connect(target)) as other,
        ):
            one.backup(other)
            other.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise LedgerError(f"{source} cannot be copied: {error}") from None
    held = os.open(target, os.O_RDWR)
    try:
        os.fsync(held)
    finally:
        os.close(held)


@contextmanager
def writers_excluded(file: Path) -> Iterator[sa.Connection | None]:
    """Hold the write lock of a ledger's file, and that of its folder against other restores.

    Yields a connection to it; None if there is no such file, or it is not a database, which no other process
    can write either.
    """
    with ExitStack() as held:
        folder = os.open(file.parent, os.O_RDONLY)
        held.callback(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        connection = None
        if file.exists():
            engine = _engine(_parsed(f"sqlite:///{file}"))
            held.callback(engine.dispose)
            try:
                connection = held.enter_context(engine.connect()).execution_options(graphveil_writing=True)
                connection.begin()
                connection.execute(sa.text("SELECT count(*) FROM sqlite_master"))
            except (DBAPIError, sqlite3.DatabaseError) as error:
                origin = error.orig if isinstance(error, DBAPIError) else error
                if getattr(origin, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                    raise LedgerError(f"{file} cannot be locked ({origin}). Nothing was replaced.") from None
                connection = None
        yield connection


def exchange(file: Path, fresh: Path) -> None:
    """Put another ledger in the place of a file in one step; the old one is kept under another name."""
    number = next(n for n in count(1) if not file.with_name(f"{file.name}.replaced-{n}").exists())
    for suffix in ("-journal", "-wal", "-shm"):  # SQLite would apply them to the new file
        part = file.with_name(f"{file.name}{suffix}")
        if part.exists():
            part.replace(file.with_name(f"{file.name}.replaced-{number}{suffix}"))
    if file.exists():
        os.link(file, file.with_name(f"{file.name}.replaced-{number}"))
        fresh.replace(file)  # never without a file in its place, where others would begin an empty ledger
    else:
        os.link(fresh, file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # of a power loss the new file is left, or the old one
    finally:
        os.close(folder)


def _foreign_object(connection: sa.Connection) -> str | None:
    """Return a trigger, view, table or index that no ledger makes: a trigger can change totals unseen."""
    if connection.dialect.name == "postgresql":
        known = {"tables": list(_METADATA.tables), "reject": _REJECT}
        return connection.execute(_FOREIGN_ON_SERVER, known).scalars().first()
    stored = connection.execute(sa.text("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    for kind, name, statement in stored:
        if _plain(statement) not in _own_statements() and not (
            kind == "table" and name.startswith("sqlite_stat")  # of ANALYZE
        ):
            return f"{kind} {name!r}"
    return None


@cache
def _own_statements() -> frozenset[str]:
    tables = [
        str(CreateTable(table).compile(dialect=sqlite.dialect())) for table in _METADATA.tables.values()
    ]
    return frozenset(map(_plain, tables + _APPEND_ONLY["sqlite"]))


def _plain(statement: str) -> str:
    return " ".join(statement.replace("IF NOT EXISTS ", "").split())


def _identity(file: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, which change if it is replaced; None if it is missing."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create_private_file(file: Path) -> None:
    """Create a file that only its owner can read, because it contains a key; keep an existing file.

    Opening and closing the file would drop every lock that this process has on it (POSIX). Another process
    would then assume that it is the last one, and delete the log that connections of this one still write.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if not os.access(file, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _database_message(error: DBAPIError | sqlite3.Error, store: Store) -> str:
    """Return the database's own error text without the statement and its values."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    words = str(origin).strip().splitlines()
    content = words[0] if words else type(origin).__name__
    return (
        f"the ledger at {store.display_url} cannot be used: {content}; nothing was recorded by this step, so "
        "nothing may be released. Mend the database, or name another ledger (--ledger)"
    )


def now() -> str:
    """Return the time of an entry, which is shown only: the order of entries is the chain's."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
