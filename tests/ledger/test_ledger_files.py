"""Files and databases of a ledger: locations, copies and backups, its key and its version."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from graphveil.core.events import ApproximateDP
from graphveil.errors import ConfigError, GraphveilError, LedgerError
from graphveil.ledger import Ledger, database, locations, restore, split_name
from ledger.conftest import KINDS, TAGS, entry

FORK = multiprocessing.get_context("fork")
both = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with three releases."""
    file = tmp_path / "ledger.sqlite"
    ledger = Ledger(file)
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    for name in "abc":
        ledger.data_set("friends").record(entry(name))
    ledger.close()
    return file


def releases_in(place: Path, name: str = "friends") -> int:
    """Return the number of releases in a ledger, which must verify."""
    ledger = Ledger(place, create=False)
    try:
        assert ledger.verify() == []
        return len(ledger.data_set(name))
    finally:
        ledger.close()


# -- locations ---------------------------------------------------------------------------------------------

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
        (LedgerError, ConfigError), match=r"cannot be (used|read)|is invalid|not a supported ledger database"
    ) as error:
        Ledger(place or url)
    assert "xyzzy" not in str(error.value)


@pytest.mark.parametrize("name", ["a?b", "a%41b", "a#b", "a b", "ä"])
def test_a_ledger_uses_the_file_of_any_name_privately(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.init("friends", "undirected-edge")
    assert [one.name for one in tmp_path.iterdir()] == [name]
    assert path.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(path)) as line, line:
        assert line.execute("SELECT name FROM graphveil_data_sets").fetchall() == [("friends",)]
        assert line.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # of a new connection: no log
    assert Ledger(f"sqlite:///{quote(str(path))}").names() == ["friends"]
    ledger.close()


@pytest.mark.parametrize(
    "rest", ["", ":memory:", "ledger.sqlite?mode=memory&uri=true", "ledger.sqlite?nolock=1"]
)
def test_rejects_urls_without_a_file_or_with_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="URL does not support options"):
        Ledger(f"sqlite:///{rest}")
    assert list(tmp_path.iterdir()) == []


@both
def test_reading_does_not_create_a_ledger(place: str, kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no ledger at"):
        Ledger(place, create=False)
    assert list(tmp_path.iterdir()) == []
    Ledger(place).close()
    Ledger(place, create=False).close()


def test_rejects_files_of_other_programs(tmp_path: Path) -> None:
    database_of_others, no_database = tmp_path / "other.sqlite", tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(database_of_others)) as line, line:
        line.execute("CREATE TABLE things (name TEXT)")
    line.close()
    no_database.write_bytes(b"not a database" * 100)
    before = [file.read_bytes() for file in (database_of_others, no_database)]
    for file, words in ((database_of_others, "another program"), (no_database, "not a database")):
        for create in (True, False):
            with pytest.raises(LedgerError, match=words):
                Ledger(file, create=create)
    assert [file.read_bytes() for file in (database_of_others, no_database)] == before


@pytest.mark.parametrize("system", ["nfs4", "cifs", "9p"])
def test_rejects_network_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(locations, "_file_system", lambda folder: system)
    with pytest.raises(ConfigError, match=f"{system}.*does not support reliable file locks"):
        Ledger(tmp_path / "ledger.sqlite")


def test_rejects_file_systems_with_locks_that_exclude_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations.fcntl, "fcntl", lambda *given: 0)
    with pytest.raises(ConfigError, match="does not support reliable file locks"):
        Ledger(tmp_path / "ledger.sqlite")


def test_reports_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The name of the ledger fits into the longest path, and those of temporary files do not."""
    folder = tmp_path
    while (room := 4090 - len(str(folder))) > 2:  # root may write everywhere, so permissions cannot be used
        folder /= "d" * min(200, room - 1)
    folder.mkdir(parents=True)
    with pytest.raises(LedgerError, match=r"is not writable .File name too long"):
        Ledger(folder / "l")


@pytest.mark.parametrize("pragma", ["PRAGMA query_only = ON", "PRAGMA max_page_count = {pages}"])
def test_a_database_that_rejects_writes_records_nothing(path: Path, pragma: str) -> None:
    """A read-only database, and one on a full disk, which may not grow any more."""
    ledger = Ledger(path)
    friends = ledger.data_set("friends")
    engine = ledger._store._engine
    with engine.connect() as line:
        given = pragma.format(pages=line.exec_driver_sql("PRAGMA page_count").scalar_one())
    sa.event.listen(engine, "connect", lambda connection, _: connection.execute(given))
    recorded = len(friends)
    with pytest.raises(LedgerError, match=r"full|readonly|read-only"):
        for number in range(2000):
            friends.record(entry(f"r{number}", ApproximateDP(1e-6)))  # all of them are within the limit
            recorded += 1
    assert (len(friends), ledger.verify()) == (recorded, [])
    ledger.close()
    assert releases_in(path) == recorded


def test_the_driver_of_postgresql_is_optional_and_torch_is_not_loaded() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from graphveil.errors import MissingDependencyError\n"
        "from graphveil.ledger import Ledger\n"
        "assert 'torch' not in sys.modules\n"
        "try: Ledger('postgresql://somewhere/ledger')\n"
        "except MissingDependencyError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'graphveil[postgres]'" in done.stdout


# -- copies and older states -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "open", "killed"])
def test_a_plain_copy_of_the_file_has_every_release(path: Path, tmp_path: Path, how: str) -> None:
    """No release is in a log next to the file while its writer is active, or after it ended or was killed."""

    def write() -> None:
        Ledger(path).data_set("friends").record(entry("d"))
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)

    ledger = Ledger(path)
    if how == "open":
        ledger.data_set("friends").record(entry("d"))
    else:
        child = FORK.Process(target=write)
        child.start()
        child.join()
    assert not list(tmp_path.glob("*-wal")) + list(tmp_path.glob("*-shm"))
    shutil.copy(path, tmp_path / "copy.sqlite")
    assert releases_in(tmp_path / "copy.sqlite") == 4
    ledger.close()


def test_a_log_of_an_earlier_version_is_read_and_removed(path: Path, tmp_path: Path) -> None:
    line = sqlite3.connect(path)
    line.execute("PRAGMA journal_mode=WAL")
    line.execute("UPDATE graphveil_accounts SET epsilon = '2'")
    line.commit()
    for suffix in ("", "-wal"):  # as a killed process leaves them
        shutil.copy(f"{path}{suffix}", f"{tmp_path / 'left.sqlite'}{suffix}")
    line.close()
    ledger = Ledger(tmp_path / "left.sqlite")
    assert str(ledger.accounts()[0].limit.epsilon) == "2"  # type: ignore[union-attr]  # it has one
    ledger.close()
    assert not (tmp_path / "left.sqlite-wal").exists()


@pytest.mark.parametrize("how", ["renamed", "in place", "empty", "missing", "another"])
def test_rejects_an_older_copy_that_was_put_back(path: Path, tmp_path: Path, how: str) -> None:
    older = tmp_path / "older.sqlite"
    shutil.copy(path, older)
    ledger = Ledger(path)
    ledger.data_set("friends").record(entry("d"))
    ledger.close()
    if how == "renamed":
        older.replace(path)
    elif how == "in place":
        path.write_bytes(older.read_bytes())
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "missing":
        path.unlink()
    else:
        Ledger(tmp_path / "other.sqlite").close()
        (tmp_path / "other.sqlite").replace(path)
    for create in (True, False):
        with pytest.raises(GraphveilError, match=r"restore|There is no ledger"):
            Ledger(path, create=create)
    (tmp_path / "ledger.sqlite-mark").unlink()  # the owner decides to continue with it
    Ledger(path).close()


@pytest.mark.parametrize("how", ["older content", "removed", "replaced"])
def test_a_running_process_notices_that_its_file_changed(path: Path, tmp_path: Path, how: str) -> None:
    content, ledger = path.read_bytes(), Ledger(path)
    friends = ledger.data_set("friends")
    friends.record(entry("d"))
    words = "removed or replaced"
    if how == "older content":
        ledger.close()  # its connections
        path.write_bytes(content)
        words = "has 5 entries and had 6"
    else:
        path.rename(tmp_path / "away.sqlite")
        if how == "replaced":
            path.write_bytes(content)
    with pytest.raises(LedgerError, match=words):
        friends.record(entry("e"))
    if how != "older content":
        (tmp_path / "away.sqlite").replace(path)
        assert len(friends) == 4
    ledger.close()


def test_a_damaged_mark_is_written_again(path: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ledger.sqlite-mark"
    for content in (b"", b"\xff\xfe", b"one two three", b"a" * 99, b"a 5"):
        mark.write_bytes(content)
        assert releases_in(path) == 3
    Ledger(path).close()
    assert mark.stat().st_mode & 0o077 == 0


# -- backups -----------------------------------------------------------------------------------------------


def test_a_backup_is_consistent_while_others_write(path: Path, tmp_path: Path) -> None:
    ledger, stop = Ledger(path), threading.Event()
    ledger.init("more", "undirected-edge")

    def write(thread: int) -> None:
        number = 0
        while not stop.is_set():
            ledger.data_set("more").record(entry(f"{thread}-{number}"))
            number += 1

    writers = [threading.Thread(target=write, args=(thread,)) for thread in range(2)]
    for one in writers:
        one.start()
    try:
        counts = []
        for number in range(5):
            ledger.backup(tmp_path / f"backup-{number}")
            counts.append(releases_in(tmp_path / f"backup-{number}", "more"))
    finally:
        stop.set()
        for one in writers:
            one.join()
    assert counts == sorted(counts)
    assert (tmp_path / "backup-0").stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="backup-0 already exists"):
        ledger.backup(tmp_path / "backup-0")
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.backup(tmp_path / "no" / "folder")
    ledger.close()


def test_a_restored_backup_replaces_a_damaged_ledger(path: Path, tmp_path: Path) -> None:
    ledger = Ledger(path)
    ledger.backup(tmp_path / "backup")
    ledger.close()
    path.write_bytes(b"rubbish" * 100)
    with pytest.raises(LedgerError):
        Ledger(path)
    restore(tmp_path / "backup", path).close()
    restore(tmp_path / "backup", tmp_path / "new" / "ledger.sqlite").close()
    assert (tmp_path / "ledger.sqlite.replaced-1").read_bytes() == b"rubbish" * 100
    for place in (path, tmp_path / "new" / "ledger.sqlite", tmp_path / "backup"):
        assert releases_in(place) == 3


@pytest.mark.parametrize("known_by", ["the ledger", "a receipt", "another ledger"])
def test_an_older_backup_is_restored_with_force_only(path: Path, tmp_path: Path, known_by: str) -> None:
    ledger = Ledger(path)
    ledger.backup(tmp_path / "backup")
    friends = ledger.data_set("friends")
    friends.record(entry("d"))
    receipts = [vars(one) for one in friends.receipts] if known_by == "a receipt" else []
    ledger.close()
    if known_by != "the ledger":
        for file in (path, tmp_path / "ledger.sqlite-mark"):
            file.unlink()
    if known_by == "another ledger":
        Ledger(path).close()
    why = "backup of another ledger" if known_by == "another ledger" else "lacks releases of the ledger"
    with pytest.raises(ConfigError, match=why):
        restore(tmp_path / "backup", path, receipts=receipts)
    restore(tmp_path / "backup", path, receipts=receipts, force=True).close()
    assert releases_in(path) == 3


def test_receipts_of_another_ledger_are_never_restored_with_force(path: Path, tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other.sqlite")
    other.init("friends", "undirected-edge")
    friends = other.data_set("friends")
    friends.record(entry("d"))
    receipts = [vars(one) for one in friends.receipts]
    (found,) = Ledger(path).missing_receipts(receipts)
    assert found.other_ledger and found.why == "this release was recorded in another ledger"
    assert other.missing_receipts(receipts) == []
    other.close()
    ledger = Ledger(path)
    ledger.backup(tmp_path / "backup")
    ledger.close()
    for force in (False, True):
        with pytest.raises(ConfigError, match="belong to another ledger") as raised:
            restore(tmp_path / "backup", path, receipts=receipts, force=force)
        assert "force" not in str(raised.value)
    assert not list(tmp_path.glob("*replaced*"))


def test_a_damaged_backup_is_not_restored(path: Path, tmp_path: Path) -> None:
    before, backup = path.read_bytes(), tmp_path / "backup"
    shutil.copy(path, backup)
    with closing(sqlite3.connect(backup)) as line, line:
        line.execute("UPDATE graphveil_accounts SET releases = 1")
    line.close()
    with pytest.raises(LedgerError, match="not an intact ledger"):
        restore(backup, path, force=True)
    backup.write_bytes(b"no database" * 100)
    with pytest.raises(LedgerError, match="cannot be copied"):
        restore(backup, path, force=True)
    with pytest.raises(ConfigError, match="no backup at"):
        restore(tmp_path / "nothing", path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*replaced*")) + list(tmp_path.glob(".graphveil*"))


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_server_is_backed_up_with_its_own_tools(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pg_dump"):
        ledger.backup(tmp_path / "backup")
    with pytest.raises(ConfigError, match="pg_dump"):
        restore(tmp_path / "backup", ledger.location)


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
def test_a_lost_or_changed_key_is_detected(
    place: str, kind: str, fault: Callable[[sa.Connection], None]
) -> None:
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    friends = ledger.data_set("friends")
    friends.record(entry("a"))
    with ledger._store._engine.begin() as line:
        fault(line.execution_options(graphveil_writing=True))
    assert any("key" in found.why for found in ledger.verify())
    if fault is change_key_and_check and kind == "postgresql":
        return  # detected by `verify` alone: a ledger on a server has no mark next to it
    with pytest.raises(LedgerError, match=r"key|another one"):
        friends.record(entry("b"))
    if fault is not change_key_and_check:
        with pytest.raises(LedgerError, match="key"):
            ledger.fingerprints({"edges": [b"1"]})
    with pytest.raises(LedgerError, match=r"key|another one"):
        Ledger(place)
    assert len(friends) == 1


@both
@pytest.mark.parametrize(
    ("version", "words"), [("3", "has version 3"), ("99", "Update graphveil"), ("x", "cannot be read")]
)
def test_rejects_a_ledger_of_another_version(place: str, version: str, words: str) -> None:
    ledger = Ledger(place)
    where = database.about.c.name == "version"
    ledger._store.write(lambda line: line.execute(database.about.update().where(where).values(value=version)))
    for create in (True, False):
        with pytest.raises(LedgerError, match=words):
            Ledger(place, create=create)
    ledger.close()


@both
def test_a_ledger_of_the_first_version_is_upgraded(place: str, kind: str) -> None:
    """It had no table with its version, and in files a trigger less."""
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge")
    ledger.data_set("friends").record(entry("a"))
    dropped = ["TABLE graphveil_about"] + ["TRIGGER graphveil_no_REPLACE"] * (kind == "sqlite")
    with ledger._store._engine.begin() as line:
        for one in dropped:
            line.execute(sa.text(f"DROP {one}"))
    ledger.close()
    again = Ledger(place)
    again.data_set("friends").record(entry("b"))
    assert (len(again.data_set("friends")), again.verify()) == (2, [])
    again.close()
    if kind == "sqlite":
        with closing(sqlite3.connect(place.removeprefix("sqlite:///"))) as file, file:
            query = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'"
            assert file.execute(query).fetchone() == (3,)
