"""Copies, backups and older states of a ledger, its key, its version, and forks of one in memory."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from graphveil.errors import BudgetError, ConfigError, GraphveilError, LedgerError
from graphveil.ledger import Entry, Ledger, MemoryLedger, database, locations, restore
from graphveil.privacy import UndirectedEdge
from graphveil.privacy.events import ApproximateDP, Gaussian
from ledger.conftest import KINDS

FORK = multiprocessing.get_context("fork")
TAGS = {"edges": "e" * 64, "records": "r" * 64}
both = pytest.mark.parametrize("kind", KINDS)


def entry(name: str) -> Entry:
    return Entry(name, "rows", ApproximateDP(0.1), unit=UndirectedEdge())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with three releases."""
    file = tmp_path / "ledger.sqlite"
    book = Ledger(file)
    book.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    for name in "abc":
        book.data_set("friends").record(entry(name))
    book.close()
    return file


def released(place: Path) -> int:
    book = Ledger(place, create=False)
    try:
        assert book.verify() == []
        return len(book.data_set("friends"))
    finally:
        book.close()


# -- copies and older states -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "open", "killed"])
def test_a_plain_copy_of_the_file_has_every_release(path: Path, tmp_path: Path, how: str) -> None:
    """No release lies in a log beside the file, whether its writer is at work, has ended, or was killed."""

    def write() -> None:
        Ledger(path).data_set("friends").record(entry("d"))
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)

    held = Ledger(path)
    if how == "open":
        held.data_set("friends").record(entry("d"))
    else:
        child = FORK.Process(target=write)
        child.start()
        child.join()
    assert not list(tmp_path.glob("*-wal")) + list(tmp_path.glob("*-shm"))
    shutil.copy(path, tmp_path / "copy.sqlite")
    assert released(tmp_path / "copy.sqlite") == 4
    held.close()


def test_a_file_with_a_log_of_an_earlier_version_is_read_with_it(path: Path, tmp_path: Path) -> None:
    line = sqlite3.connect(path)
    line.execute("PRAGMA journal_mode=WAL")
    line.execute("UPDATE graphveil_accounts SET epsilon = '2'")
    line.commit()
    for suffix in ("", "-wal"):  # as a killed process leaves them
        shutil.copy(f"{path}{suffix}", f"{tmp_path / 'left.sqlite'}{suffix}")
    line.close()
    book = Ledger(tmp_path / "left.sqlite")
    assert str(book.accounts()[0].limit.epsilon) == "2"  # type: ignore[union-attr]  # it has one
    book.close()
    assert not (tmp_path / "left.sqlite-wal").exists()


@pytest.mark.parametrize("how", ["renamed", "in place", "empty", "gone", "another"])
def test_an_older_copy_that_is_put_back_is_noticed(path: Path, tmp_path: Path, how: str) -> None:
    older = tmp_path / "older.sqlite"
    shutil.copy(path, older)
    book = Ledger(path)
    book.data_set("friends").record(entry("d"))
    book.close()
    if how == "renamed":
        older.replace(path)
    elif how == "in place":
        path.write_bytes(older.read_bytes())
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "gone":
        path.unlink()
    else:
        Ledger(tmp_path / "other.sqlite").close()
        (tmp_path / "other.sqlite").replace(path)
    for create in (True, False):
        with pytest.raises(GraphveilError, match=r"restore|there is no ledger"):
            Ledger(path, create=create)
    (tmp_path / "ledger.sqlite-mark").unlink()  # the owner decides to go on with it
    Ledger(path).close()


def test_an_older_copy_in_a_running_process_takes_no_release(path: Path) -> None:
    older, book = path.read_bytes(), Ledger(path)
    friends = book.data_set("friends")
    friends.record(entry("d"))
    book.close()  # its connections
    path.write_bytes(older)
    with pytest.raises(LedgerError, match="has 5 entries and had 6"):
        friends.record(entry("e"))


def test_a_damaged_mark_is_written_again(path: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ledger.sqlite-mark"
    for content in (b"", b"\xff\xfe", b"one two three", b"a" * 99, b"a 5"):
        mark.write_bytes(content)
        book = Ledger(path)
        assert len(book.data_set("friends")) == 3
        book.close()
    assert mark.stat().st_mode & 0o077 == 0


# -- backups -----------------------------------------------------------------------------------------------


def test_a_backup_is_of_one_moment_under_writers(path: Path, tmp_path: Path) -> None:
    book, stop = Ledger(path), threading.Event()
    book.init("more", "undirected-edge")

    def write(thread: int) -> None:
        number = 0
        while not stop.is_set():
            book.data_set("more").record(entry(f"{thread}-{number}"))
            number += 1

    writers = [threading.Thread(target=write, args=(thread,)) for thread in range(2)]
    for one in writers:
        one.start()
    try:
        counts = []
        for number in range(5):
            book.backup(tmp_path / f"backup-{number}")
            counts.append(released_in(tmp_path / f"backup-{number}"))
    finally:
        stop.set()
        for one in writers:
            one.join()
    assert counts == sorted(counts)
    assert (tmp_path / "backup-0").stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="backup-0 exists"):
        book.backup(tmp_path / "backup-0")
    with pytest.raises(LedgerError, match="cannot be written"):
        book.backup(tmp_path / "no" / "folder")
    book.close()


def released_in(place: Path) -> int:
    book = Ledger(place, create=False)
    try:
        assert book.verify() == []
        return len(book.data_set("more"))
    finally:
        book.close()


def test_a_restored_backup_replaces_a_lost_ledger(path: Path, tmp_path: Path) -> None:
    book = Ledger(path)
    book.backup(tmp_path / "backup")
    book.close()
    path.write_bytes(b"rubbish" * 100)
    with pytest.raises(LedgerError):
        Ledger(path)
    restore(tmp_path / "backup", path).close()
    assert released(path) == 3
    assert (tmp_path / "ledger.sqlite.replaced-1").read_bytes() == b"rubbish" * 100
    restore(tmp_path / "backup", tmp_path / "new" / "ledger.sqlite").close()
    assert released(tmp_path / "new" / "ledger.sqlite") == 3
    assert released(tmp_path / "backup") == 3


@pytest.mark.parametrize("known_by", ["the ledger", "a receipt", "another ledger"])
def test_an_older_backup_is_restored_by_force_alone(path: Path, tmp_path: Path, known_by: str) -> None:
    book = Ledger(path)
    book.backup(tmp_path / "backup")
    friends = book.data_set("friends")
    friends.record(entry("d"))
    receipts = [vars(one) for one in friends.receipts] if known_by == "a receipt" else []
    book.close()
    if known_by == "a receipt":
        for file in (path, tmp_path / "ledger.sqlite-mark"):
            file.unlink()
    elif known_by == "another ledger":
        for file in (path, tmp_path / "ledger.sqlite-mark"):
            file.unlink()
        Ledger(path).close()
    with pytest.raises(ConfigError, match="older than the ledger was"):
        restore(tmp_path / "backup", path, receipts=receipts)
    restore(tmp_path / "backup", path, receipts=receipts, force=True).close()
    assert released(path) == 3


def test_a_broken_backup_is_not_restored(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    backup = tmp_path / "backup"
    shutil.copy(path, backup)
    with sqlite3.connect(backup) as line:
        line.execute("UPDATE graphveil_accounts SET releases = 1")
    line.close()
    with pytest.raises(LedgerError, match="no whole ledger"):
        restore(backup, path, force=True)
    backup.write_bytes(b"no database" * 100)
    with pytest.raises(LedgerError, match="cannot be copied"):
        restore(backup, path, force=True)
    with pytest.raises(ConfigError, match="no backup at"):
        restore(tmp_path / "nothing", path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*replaced*")) + list(tmp_path.glob(".graphveil*"))


@both
def test_a_server_has_tools_of_its_own(ledger: Ledger, kind: str, tmp_path: Path) -> None:
    if kind == "postgresql":
        with pytest.raises(ConfigError, match="pg_dump"):
            ledger.backup(tmp_path / "backup")
        with pytest.raises(ConfigError, match="pg_dump"):
            restore(tmp_path / "backup", ledger.location)


@both
def test_receipts_are_compared_with_the_ledger(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    (known,) = (vars(one) for one in friends.receipts)
    assert ledger.missing_receipts([known]) == []
    for change, words in (
        ({"entry": 9}, "no such entry"),
        ({"entry": 0}, "no such entry"),
        ({"data_set": "foes"}, "no such entry"),
        ({"head": "f" * 64}, "another entry"),
        ({"release": "b"}, "another entry"),
    ):
        (found,) = ledger.missing_receipts([known | change])
        assert words in found.why
    for wrong in ({"entry": "2"}, {"head": None}, {"entry": True}):
        with pytest.raises(GraphveilError, match="receipt is damaged"):
            ledger.missing_receipts([known | wrong])


# -- key and version ---------------------------------------------------------------------------------------


def change_key(line: sa.Connection) -> None:
    line.execute(database.secret.update().values(key="f" * 64))


def lose_key(line: sa.Connection) -> None:
    line.execute(database.secret.delete())


def damage_key(line: sa.Connection) -> None:
    line.execute(database.secret.update().values(key="nothing"))


def change_key_and_check(line: sa.Connection) -> None:
    change_key(line)
    where = database.about.c.name == "key_check"
    line.execute(database.about.update().where(where).values(value=database.key_check("f" * 64)))


@both
@pytest.mark.parametrize("fault", [change_key, lose_key, damage_key, change_key_and_check])
def test_a_key_that_was_lost_or_changed_is_found(
    place: str, kind: str, fault: Callable[[sa.Connection], None]
) -> None:
    book = Ledger(place)
    book.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    friends = book.data_set("friends")
    friends.record(entry("a"))
    with book._store._connections.engine().begin() as line:
        fault(line.execution_options(graphveil_writing=True))
    assert any("key" in found.why for found in book.verify())
    if fault is change_key_and_check and kind == "postgresql":
        return  # found by `verify` alone: a server's ledger has no mark beside it
    with pytest.raises(LedgerError, match=r"key|another one"):
        friends.record(entry("b"))
    if fault is not change_key_and_check:
        with pytest.raises(LedgerError, match="key"):
            book.fingerprints({"edges": [b"1"]})
    with pytest.raises(LedgerError, match=r"key|another one"):
        Ledger(place)
    assert len(friends) == 1


@both
@pytest.mark.parametrize(
    ("version", "words"), [("3", "of version 3"), ("99", "Update graphveil"), ("x", "cannot be read")]
)
def test_a_ledger_of_another_version_is_refused(place: str, version: str, words: str) -> None:
    book = Ledger(place)
    book.init("friends", "undirected-edge")
    where = database.about.c.name == "version"
    book._store.write(lambda line: line.execute(database.about.update().where(where).values(value=version)))
    for create in (True, False):
        with pytest.raises(LedgerError, match=words):
            Ledger(place, create=create)
    book.close()


@both
def test_a_ledger_of_the_first_version_is_taken_over(place: str) -> None:
    book = Ledger(place)
    book.init("friends", "undirected-edge")
    book.data_set("friends").record(entry("a"))
    with book._store._connections.engine().begin() as line:
        line.execute(sa.text("DROP TABLE graphveil_about"))
    book.close()
    again = Ledger(place)
    again.data_set("friends").record(entry("b"))
    assert (len(again.data_set("friends")), again.verify()) == (2, [])
    again.close()


@both
def test_no_ledger_is_made_where_one_is_read(place: str, kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no ledger at"):
        Ledger(place, create=False)
    assert list(tmp_path.iterdir()) == []
    Ledger(place).close()
    Ledger(place, create=False).close()


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as line:
        line.execute("CREATE TABLE things (name TEXT)")
    line.close()
    for create in (True, False):
        with pytest.raises(LedgerError, match="another program"):
            Ledger(path, create=create)


@both
def test_an_entry_of_an_unknown_kind_does_not_verify(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge")
    from graphveil.ledger.chain import HashChain

    ledger._store.write(lambda line: HashChain.locked(line, "friends").add("gift", {"reference": "x"}))
    (found,) = ledger.verify()
    assert (found.entry, "unknown kind 'gift'" in found.why) == (2, True)
    with pytest.raises(LedgerError, match="damaged"):
        list(ledger.export("friends"))


def test_a_folder_that_cannot_be_written_is_said_to_be_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(locations.tempfile, "mkstemp", refused)
    with pytest.raises(LedgerError, match=r"cannot be written .Permission denied"):
        Ledger(tmp_path / "ledger.sqlite")


# -- names that are bound with the first release -----------------------------------------------------------


@both
def test_a_name_is_bound_with_the_first_release(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", epsilon="0.3", delta="1e-7")
    friends = ledger.data_set("friends", TAGS)
    friends.check(entry("a"))
    with pytest.raises(BudgetError):
        friends.record(Entry("a", "rows", ApproximateDP(0.4), unit=UndirectedEdge()))
    ledger.data_set("friends", {"edges": "x" * 64})  # no data are those of the name yet
    friends.record(entry("a"))
    with pytest.raises(ConfigError, match="not the data"):
        ledger.data_set("friends", {"edges": "x" * 64})
    assert [row["kind"] for row in ledger.export("friends")] == ["init", "bind", "reserve"]


@both
def test_data_are_registered_with_the_first_release(ledger: Ledger) -> None:
    one, other = ledger.find_or_create(TAGS), ledger.find_or_create({"edges": "x" * 64})
    one.check(entry("a"))
    assert (ledger.names(), len(one), one.contains("a")) == ([], 0, False)
    other.record(entry("a"))
    one.record(entry("a"))  # its name has been taken meanwhile
    assert (one.name, other.name, ledger.names()) == ("data-2", "data-1", ["data-1", "data-2"])
    assert [receipt.data_set for receipt in one.receipts] == ["data-2"]
    again = ledger.find_or_create(TAGS)
    again.record(entry("b"))
    assert (again.name, len(again), ledger.verify()) == ("data-2", 2, [])


@both
def test_the_same_data_in_two_processes_get_one_name(ledger: Ledger) -> None:
    first, second = ledger.find_or_create(TAGS), ledger.find_or_create(TAGS)
    first.record(entry("a"))
    second.record(entry("b"))
    assert (first.name, second.name, len(first)) == ("data-1", "data-1", 2)


@both
def test_a_name_without_releases_can_be_unbound(ledger: Ledger) -> None:
    ledger.init("friends", "undirected-edge", tags=TAGS)
    friends = ledger.data_set("friends", TAGS)
    friends.record(entry("a"))
    with pytest.raises(ConfigError, match="has releases"):
        ledger.unbind("friends")
    friends.refund("a")
    ledger.unbind("friends")
    with pytest.raises(ConfigError, match="bound to no data"):
        ledger.unbind("friends")
    assert ledger.other_names("", TAGS) == []
    ledger.data_set("friends", {"edges": "x" * 64}).record(entry("b"))
    with pytest.raises(ConfigError, match="not the data"):
        ledger.bind("friends", TAGS)
    assert (len(friends), ledger.verify()) == (1, [])


@both
def test_a_limit_that_was_lowered_does_not_verify(ledger: Ledger) -> None:
    from graphveil.ledger.chain import HashChain, update_account

    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7")

    def lower(line: sa.Connection) -> None:
        limit = {"epsilon": "0.5", "delta": "1e-7"}
        HashChain.locked(line, "friends").add("raise", limit | {"unit": "undirected-edge", "reason": "none"})
        update_account(line, "friends", "undirected-edge", **limit)

    ledger._store.write(lower)
    assert [found.why for found in ledger.verify()] == ["a limit is lowered"]


# -- in memory, after a fork -------------------------------------------------------------------------------


CALLS: dict[str, Callable[[MemoryLedger], object]] = {
    "record": lambda ledger: ledger.record(Entry("b", "rows", Gaussian(0.1))),
    "check": lambda ledger: ledger.check(Entry("b", "rows", Gaussian(0.1))),
    "commit": lambda ledger: ledger.commit("a"),
    "refund": lambda ledger: ledger.refund("a"),
}


@pytest.mark.parametrize("limit", [{}, {"epsilon": 1.0, "delta": 1e-7}], ids=["without", "limited"])
@pytest.mark.parametrize("name", CALLS)
def test_a_fork_of_a_ledger_in_memory_is_refused(name: str, limit: dict[str, float]) -> None:
    ledger = MemoryLedger(**limit)
    ledger.record(Entry("a", "rows", Gaussian(0.1)))
    reading, writing = FORK.Pipe(duplex=False)

    def child() -> None:
        try:
            CALLS[name](ledger)
        except BudgetError as error:
            writing.send(str(error))
        else:
            writing.send("granted")

    process = FORK.Process(target=child)
    process.start()
    said = reading.recv()
    process.join()
    assert "forked process" in said, said
    ledger.record(Entry("c", "rows", Gaussian(0.1)))
    assert len(ledger) == 2
