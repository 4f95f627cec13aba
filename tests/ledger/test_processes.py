"""Many processes, killed processes and failing databases: recorded is never less than released."""

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from graphveil.errors import BudgetError, ConfigError, LedgerError, MissingDependencyError
from graphveil.ledger import Entry, Ledger, database, locations, split_name
from graphveil.privacy import UndirectedEdge
from graphveil.privacy.events import ApproximateDP
from ledger.conftest import KINDS

EDGES = UndirectedEdge()
FORK = multiprocessing.get_context("fork")
both = pytest.mark.parametrize("kind", KINDS)


def entry(name: str) -> Entry:
    return Entry(name, "rows", ApproximateDP(0.1), unit=EDGES)


def book_all(place: str, worker: int, tries: int) -> int:
    """Book from several threads until the budget is spent; how often it was granted."""
    friends, granted = Ledger(place).data_set("friends"), list[int]()

    def task(thread: int) -> None:
        for number in range(tries):
            try:
                friends.record(entry(f"{worker}-{thread}-{number}"))
                granted.append(1)
            except BudgetError:
                return

    threads = [threading.Thread(target=task, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(granted)


@both
@pytest.mark.parametrize("workers", [4, pytest.param(64, marks=pytest.mark.slow)])
def test_a_budget_for_n_releases_grants_n(place: str, workers: int) -> None:
    ledger, budget = Ledger(place), 3 * workers
    ledger.init("friends", "undirected-edge", epsilon=f"{budget / 10}", delta="1e-7")
    with FORK.Pool(workers) as pool:
        granted = pool.starmap(book_all, [(place, worker, 5) for worker in range(workers)])
    assert sum(granted) == budget == len(ledger.data_set("friends"))
    assert ledger.verify() == []


def book_and_release(place: str, drawn: Path, name: str) -> None:
    """Do what a release does: reserve, commit, draw."""
    friends = Ledger(place).data_set("friends")
    friends.record(entry(name))
    friends.commit(name)
    with drawn.open("a") as file:
        file.write(f"{name}\n")


@both
@pytest.mark.parametrize("kills", [12, pytest.param(1800, marks=pytest.mark.slow)])
def test_whoever_is_killed_has_recorded_what_was_released(place: str, tmp_path: Path, kills: int) -> None:
    ledger, drawn = Ledger(place), tmp_path / "drawn"
    ledger.init("friends", "undirected-edge")
    started = time.monotonic()
    book_and_release(place, drawn, "first")
    whole = time.monotonic() - started
    for number in range(kills):
        name = f"r{number // 2}"  # each is tried twice: killed, and resumed
        child = FORK.Process(target=book_and_release, args=(place, drawn, name))
        child.start()
        time.sleep(1.5 * whole * ((number * 0.618) % 1))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        child.close()
    released = set(drawn.read_text().split())
    rows = list(ledger.export("friends"))
    committed = {row["reference"] for row in rows if row["kind"] == "commit"}
    reserved = [row["reference"] for row in rows if row["kind"] == "reserve"]
    assert released <= committed <= set(reserved)
    assert len(reserved) == len(set(reserved)) == len(ledger.data_set("friends"))
    assert ledger.verify() == []


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_commit_whose_answer_was_lost_is_paid_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends, lost = ledger.data_set("friends"), list[int]()
    whole = database.Store._run_once

    def losing(self: database.Store, task: object, *, writing: bool) -> object:
        found = whole(self, task, writing=writing)  # type: ignore[arg-type]
        if writing and not lost:  # the commit went through, and the server is gone before it says so
            lost.append(1)
            raise database.OperationalError(
                "COMMIT", {}, Exception("server closed the connection unexpectedly")
            )
        return found

    monkeypatch.setattr(database.Store, "_run_once", losing)
    friends.record(entry("a"))
    assert (lost, len(friends)) == ([1], 1)
    with pytest.raises(BudgetError):
        friends.record(entry("b"))


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_server_that_drops_its_lines_is_asked_again(place: str) -> None:
    import sqlalchemy as sa

    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge")
    friends, number = ledger.data_set("friends"), iter(range(100))
    other = sa.create_engine(place, poolclass=sa.NullPool)
    with other.connect() as line:
        for _ in range(3):
            friends.record(entry(f"r{next(number)}"))
            mine = "pid <> pg_backend_pid() AND query LIKE '%graphveil%'"
            line.execute(sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}"))
            line.commit()
    friends.record(entry(f"r{next(number)}"))
    assert (len(friends), ledger.verify()) == (4, [])


@pytest.mark.parametrize("kind", ["postgresql"])
def test_what_is_verified_is_of_one_moment(place: str) -> None:
    """Whoever books in between makes no break: head, entries and totals are read as they stood together."""
    ledger, number = Ledger(place), iter(range(100))
    ledger.init("friends", "undirected-edge", epsilon=100, delta="1e-7")
    friends = ledger.data_set("friends")
    other = Ledger(place)

    def book_meanwhile(*_: object) -> None:
        friends.record(entry(f"r{next(number)}"))

    database.sa.event.listen(other._store._connections.engine(), "after_execute", book_meanwhile)
    assert other.verify() == []
    assert next(number) > 2


SERVER = "@127.0.0.1:1/none?connect_timeout=1"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://nobody:xyzzy{SERVER}",
        f"postgresql://nobody:xy#xyzzy{SERVER}",
        f"postgresql://nobody:xy@xyzzy{SERVER}",
        f"postgresql://nobody{SERVER}&password=xyzzy",
        f"postgresql://nobody{SERVER}&sslpassword=xyzzy",
        "postgresql://nobody@127.0.0.1:xyzzy/none",
        "postgresql:/nobody:xyzzy@127.0.0.1/none",
        "mysql://nobody:xyzzy@127.0.0.1/none",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    place, name = split_name(url)
    assert name is None
    with pytest.raises(
        (LedgerError, ConfigError), match=r"cannot be (used|read)|SQLite or PostgreSQL"
    ) as refused:
        Ledger(place or url)
    assert "xyzzy" not in str(refused.value)


@pytest.mark.parametrize("name", ["a?b", "a%41b", "a#b", "a b", "ä"])
def test_a_file_of_any_name_is_the_one_that_is_used(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.init("friends", "undirected-edge")
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert path.stat().st_mode & 0o077 == 0
    with sqlite3.connect(path) as line:
        assert line.execute("SELECT name FROM graphveil_data_sets").fetchall() == [("friends",)]
    assert Ledger(f"sqlite:///{quote(str(path))}").names() == ["friends"]
    ledger.close()


@pytest.mark.parametrize("rest", ["", ":memory:", "book.sqlite?mode=memory&uri=true", "book.sqlite?nolock=1"])
def test_a_book_that_would_forget_or_not_be_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="lies in a file, and its URL takes no options"):
        Ledger(f"sqlite:///{rest}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_went_away_takes_no_more_bookings(tmp_path: Path, replaced: bool) -> None:
    """A process that has it open could go on in a file that no other process sees."""
    path, other = tmp_path / "ledger.sqlite", tmp_path / "other.sqlite"
    for ledger in (Ledger(other), Ledger(path)):
        ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    path.rename(tmp_path / "away.sqlite")
    if replaced:
        other.rename(path)
    with pytest.raises(LedgerError, match="removed or replaced"):
        friends.record(entry("b"))
    (tmp_path / "away.sqlite").replace(path)
    assert len(friends) == 1
    ledger.close()


def test_a_file_of_an_earlier_version_gets_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    with sqlite3.connect(path) as line:
        line.execute("DROP TRIGGER graphveil_no_REPLACE")
    Ledger(path).close()
    with sqlite3.connect(path) as line:
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'"
        assert line.execute(query).fetchone() == (3,)


def test_a_full_disk_books_nothing(tmp_path: Path) -> None:
    """The database may not grow any more: a booking fails, and the book holds what it held."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    with ledger._store._connections.engine().connect() as line:
        pages = line.exec_driver_sql("PRAGMA page_count").scalar_one()
        line.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        line.rollback()
    booked = 0
    with pytest.raises(LedgerError, match="full"):
        for number in range(2000):
            friends.record(entry(f"r{number}"))
            booked += 1
    assert (len(friends), ledger.verify()) == (booked + 1, [])


def test_a_book_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    with ledger._store._connections.engine().connect() as line:
        line.exec_driver_sql("PRAGMA query_only = ON")
        line.rollback()
    with pytest.raises(LedgerError, match=r"readonly|read-only"):
        friends.record(entry("a"))
    ledger.close()
    assert len(Ledger(path).data_set("friends")) == 0


def test_a_file_that_is_no_book_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger(path)
    assert path.read_bytes() == b"not a database" * 100


def test_a_second_ledger_drops_no_lock_of_the_first(tmp_path: Path) -> None:
    """Another process that closes the file is not the last one, and leaves the log of this one alone."""
    path = tmp_path / "ledger.sqlite"
    first = Ledger(path)
    first.init("friends", "undirected-edge")
    friends, second = first.data_set("friends"), Ledger(path)
    code = (
        "import sys; from graphveil.ledger import Ledger; print(len(Ledger(sys.argv[1]).data_set('friends')))"
    )
    for count in (1, 2, 3):
        friends.record(entry(f"r{count}"))
        told = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
        assert told.stdout.strip() == str(count)
        assert not path.with_name("ledger.sqlite-wal").exists()
    assert (len(friends), first.verify(), second.verify()) == (3, [], [])


def test_the_file_is_its_owners(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "deep" / "ledger.sqlite")
    assert (tmp_path / "deep" / "ledger.sqlite").stat().st_mode & 0o077 == 0
    with sqlite3.connect(tmp_path / "deep" / "ledger.sqlite") as line:
        assert line.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # of a new connection: no log
    ledger.close()


@pytest.mark.parametrize("system", ["nfs4", "cifs", "9p"])
def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(locations, "_file_system", lambda folder: system)
    with pytest.raises(ConfigError, match=f"{system}.*no locks"):
        Ledger(tmp_path / "ledger.sqlite")


def test_locks_that_keep_nobody_out_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locations._lock_excludes(tmp_path)
    monkeypatch.setattr(locations.fcntl, "fcntl", lambda *given: 0)
    assert not locations._lock_excludes(tmp_path)


def test_other_databases_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="SQLite or PostgreSQL"):
        Ledger("mysql://somewhere/book")
    monkeypatch.setattr(database.sa, "create_engine", _no_driver)
    with pytest.raises(MissingDependencyError, match=r"graphveil\[postgres\]"):
        Ledger("postgresql://somewhere/book")


def _no_driver(*given: object, **named: object) -> None:
    raise ModuleNotFoundError("psycopg")


def test_the_ledger_alone_loads_no_torch() -> None:
    code = "import sys, graphveil.ledger; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
