"""Restored backups: histories that went different ways, restores while others write, and foreign objects."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from graphveil.errors import ConfigError, GraphveilError, LedgerError
from graphveil.ledger import Ledger, database, restore, sql_ledger
from ledger.conftest import TAGS, entry

FORK = multiprocessing.get_context("fork")


def releases(place: Path) -> dict[str, set[str]]:
    """Return the releases in a ledger, which must verify."""
    ledger = Ledger(place, create=False)
    try:
        assert ledger.verify() == []
        return {name: {one.release_id for one in ledger.data_set(name).entries} for name in ledger.names()}
    finally:
        ledger.close()


def record(place: Path, **names: str) -> None:
    """Record releases in datasets, each a letter."""
    ledger = Ledger(place)
    for data_set, letters in names.items():
        if data_set not in ledger.names():
            ledger.init(data_set, "undirected-edge", epsilon="1", delta="1e-7")
        for letter in letters:
            ledger.data_set(data_set).record(entry(letter))
    ledger.close()


# -- branches of one history -------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A ledger of two datasets, and a copy of it with the same number of releases."""
    here, there = tmp_path / "ledger.sqlite", tmp_path / "there.sqlite"
    record(here, friends="ab", family="a")
    shutil.copy(here, there)
    return here, there


BRANCHES = {  # releases here, in the backup, and which entries of the datasets the backup lacks
    "equal length": ({"friends": "c"}, {"friends": "d"}, "friends, entry 4"),
    "the backup is longer": ({"friends": "c"}, {"friends": "def"}, "friends, entry 4"),
    "the backup is shorter": ({"friends": "cde"}, {"friends": "f"}, "friends, entry 4"),
    "equal sums in two data sets": ({"friends": "c"}, {"family": "d"}, "friends, entry 4"),
    "only the second data set": ({"family": "b"}, {"friends": "cd"}, "family, entry 3"),
    "a new data set": ({"work": "a"}, {"friends": "cdef"}, "work, entry 1"),
    "only older": ({"friends": "c", "family": "b"}, {}, "family, entry 3"),
    "only later": ({}, {"friends": "c", "family": "b"}, None),
    "the same": ({}, {}, None),
}


@pytest.mark.parametrize("mark", ["with a mark", "without a mark"])
@pytest.mark.parametrize("case", BRANCHES)
def test_a_backup_of_another_branch_is_restored_with_force_only(
    two: tuple[Path, Path], tmp_path: Path, case: str, mark: str
) -> None:
    (here, there), (mine, theirs, lost) = two, BRANCHES[case]
    record(here, **mine)
    record(there, **theirs)
    before, backup = releases(here), releases(there)
    if mark == "without a mark":
        here.with_name("ledger.sqlite-mark").unlink()
    if lost is not None:
        with pytest.raises(ConfigError, match=f"it lacks {lost}.*--force.*Nothing was replaced"):
            restore(there, here)
        assert releases(here) == before
        assert not list(tmp_path.glob("*replaced*")) + list(tmp_path.glob(".graphveil*"))
    restore(there, here, force=lost is not None).close()
    assert releases(here) == backup
    assert releases(tmp_path / "ledger.sqlite.replaced-1") == before


def test_a_limit_holds_over_restores_of_branches(two: tuple[Path, Path]) -> None:
    """Each branch alone is within the limit, and what was released in both together is not."""
    here, there = two
    record(here, friends="cdefg")
    record(there, friends="hijkl")
    with pytest.raises(ConfigError, match="lacks releases"):
        restore(there, here)
    assert len(releases(here)["friends"]) == 7


@pytest.mark.parametrize("step", ["exchange", "fsync", "killed"])
def test_a_restore_that_fails_leaves_one_of_the_two_ledgers(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    here, there = two
    record(there, friends="c")
    before, backup = releases(here), releases(there)
    if step == "killed":

        def kill(*given: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def run() -> None:
            sql_ledger.exchange = kill  # type: ignore[assignment]  # of this process alone
            restore(there, here)

        child = FORK.Process(target=run)
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    else:

        def fail(*given: object) -> None:
            raise OSError(5, "Input/output error")

        patch = (Path, "replace") if step == "exchange" else (database.os, "fsync")
        monkeypatch.setattr(*patch, fail)
        with pytest.raises((OSError, GraphveilError)):
            restore(there, here)
        monkeypatch.undo()
    assert releases(here) in (before, backup)
    record(here, friends="x")  # no lock is left
    with pytest.raises(ConfigError, match="it lacks friends, entry"):
        restore(there, here)


@pytest.mark.parametrize("how", ["rubbish", "a page is lost", "tables are missing"])
def test_what_can_be_read_of_a_damaged_ledger_has_to_be_in_the_backup(
    two: tuple[Path, Path], how: str
) -> None:
    here, there = two
    if how == "tables are missing":
        record(here, friends="c")
        with closing(sqlite3.connect(here)) as line:
            line.execute("DROP TABLE graphveil_secret")
        with pytest.raises(ConfigError, match="it lacks friends, entry 4"):
            restore(there, here)
        return
    data = bytearray(here.read_bytes())
    data[4096:] = b"x" * (len(data) - 4096)
    here.write_bytes(b"rubbish" * 999 if how == "rubbish" else data)
    restore(there, here).close()
    assert releases(here) == releases(there)


# -- restores while others write ---------------------------------------------------------------------------


Tasks = "multiprocessing.queues.SimpleQueue[tuple[str, float] | None]"
Answers = "multiprocessing.queues.SimpleQueue[bool]"


def spend(place: Path, tasks: Tasks, answers: Answers) -> None:
    """Record and commit releases, each after a delay; a process whose ledger was replaced opens it again."""
    ledger = None
    while task := tasks.get():
        name, delay = task
        time.sleep(delay)
        try:
            ledger = ledger or Ledger(place, create=False)
            ledger.data_set("friends").record(entry(name))
            ledger.data_set("friends").commit(name)
            answers.put(True)
        except GraphveilError:
            if ledger is not None:
                ledger.close()
            ledger = None
            answers.put(False)


@pytest.mark.parametrize("restores", [16, pytest.param(200, marks=pytest.mark.slow)])
def test_no_granted_release_is_lost_by_a_restore(tmp_path: Path, restores: int) -> None:
    place, began = tmp_path / "ledger.sqlite", time.monotonic()
    record(place, friends="")
    tasks, answers = FORK.SimpleQueue(), FORK.SimpleQueue()
    child = FORK.Process(target=spend, args=(place, tasks, answers))
    child.start()
    granted, results, seconds = set[str](), set[tuple[bool, bool]](), 0.1
    for number in range(restores):
        backup, name = tmp_path / "backup", f"r{number}"
        shutil.copy(place, backup)
        start = time.monotonic()
        tasks.put((name, 1.3 * seconds * ((number * 0.618) % 1)))
        try:
            restore(backup, place).close()
            restored = True
        except ConfigError:  # the release came first, and the backup lacks it
            restored = False
        seconds = min(1.0, time.monotonic() - start)
        if recorded := answers.get():
            granted.add(name)
        results.add((restored, recorded))
        if len(results) > 1 and time.monotonic() - began > 200:
            break
    tasks.put(None)
    child.join()
    rows = list(Ledger(place).export("friends"))
    assert granted <= {row["reference"] for row in rows if row["kind"] == "commit"}
    assert releases(place)["friends"] >= granted
    assert {restored for restored, _ in results} == {True, False}  # else the delays reach one side alone


def test_a_writer_that_waits_for_a_restore_does_not_write_into_the_replaced_file(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = two
    before = releases(here)
    first, waiting = FORK.Event(), FORK.Event()
    answers = FORK.SimpleQueue()

    def write() -> None:
        ledger = Ledger(here)
        friends = ledger.data_set("friends")
        friends.check(entry("x"))  # opens a connection
        first.set()
        waiting.wait(60)
        for name in "xy":
            try:
                friends.record(entry(name))
                answers.put("recorded")
            except LedgerError as error:
                answers.put(str(error))

    child = FORK.Process(target=write)
    child.start()
    assert first.wait(60)
    exchange = sql_ledger.exchange

    def exchange_slowly(*given: Path) -> None:
        waiting.set()
        time.sleep(0.5)  # the writer waits for the lock, which this process has
        exchange(*given)

    monkeypatch.setattr(sql_ledger, "exchange", exchange_slowly)
    restore(there, here).close()
    for _ in range(2):
        assert "removed or replaced" in answers.get()
    child.join()
    assert releases(here) == releases(tmp_path / "ledger.sqlite.replaced-1") == before
    assert not [
        one for one in tmp_path.iterdir() if one.name.startswith("ledger.sqlite-") and "mark" not in one.name
    ]


def test_a_ledger_that_another_process_makes_meanwhile_is_not_replaced(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, exchange = tmp_path / "new.sqlite", sql_ledger.exchange
    monkeypatch.setattr(sql_ledger, "exchange", lambda *given: [record(new, work="a"), exchange(*given)])
    real = Path.exists
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda path, **more: path.resolve() != new and real(path, **more))
        with pytest.raises(ConfigError, match="Another process created a ledger"):
            restore(two[1], new)
    assert releases(new) == {"work": {"a"}}


def test_the_file_behind_a_link_is_restored(two: tuple[Path, Path], tmp_path: Path) -> None:
    here, there = two
    link = tmp_path / "folder" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(here)
    record(there, friends="c")
    restore(there, link).close()
    assert link.is_symlink() and releases(here) == releases(there)


# -- objects that no ledger makes --------------------------------------------------------------------------

ON_UPDATE = "AFTER UPDATE ON graphveil_accounts WHEN NEW.total <> '{}' BEGIN UPDATE graphveil_accounts "
RESET = ON_UPDATE + "SET total = OLD.total; END"
FOREIGN = {
    "a trigger": f"CREATE TRIGGER statistics {RESET}",
    "a trigger with one of our names": "DROP TRIGGER graphveil_no_UPDATE; CREATE TRIGGER graphveil_no_UPDATE "
    + RESET,
    "a trigger on the chain": "CREATE TRIGGER keep BEFORE INSERT ON graphveil_entries WHEN NEW.kind = 'bind' "
    "BEGIN SELECT RAISE(IGNORE); END",
    "a view": "CREATE VIEW summary AS SELECT * FROM graphveil_accounts",
    "a view in place of a table": "ALTER TABLE graphveil_accounts RENAME TO kept; CREATE VIEW "
    "graphveil_accounts AS SELECT data_set, unit, '9' AS epsilon, delta, releases, total FROM kept",
    "a table": "CREATE TABLE graphveil_more (name TEXT)",
    "a table with another definition": "DROP TABLE graphveil_accounts; CREATE TABLE graphveil_accounts "
    "(data_set, unit, epsilon AS ('9'), delta, releases, total, PRIMARY KEY (data_set, unit))",
    "an index": "CREATE UNIQUE INDEX graphveil_twice ON graphveil_entries (hash)",
}


@pytest.mark.parametrize("how", FOREIGN)
def test_foreign_objects_are_rejected_when_a_ledger_is_opened_and_restored(
    two: tuple[Path, Path], tmp_path: Path, how: str
) -> None:
    here, there = two
    with closing(sqlite3.connect(there)) as line:
        line.executescript(FOREIGN[how])
    content = here.read_bytes()
    for force in (False, True):
        with pytest.raises(LedgerError, match=r"it contains the (trigger|view|table|index)") as raised:
            restore(there, here, force=force)
        assert str(there) in str(raised.value) and "ledger verify" not in str(raised.value)
    assert here.read_bytes() == content
    shutil.copy(there, here)
    for create in (True, False):
        with pytest.raises(LedgerError, match="which is not part of a ledger"):
            Ledger(here, create=create)


def test_statistics_of_sqlite_are_accepted(two: tuple[Path, Path]) -> None:
    with closing(sqlite3.connect(two[0])) as line:
        line.execute("ANALYZE")
    assert set(releases(two[0])) == {"friends", "family"}


ON_SERVER = {
    "trigger": "CREATE FUNCTION reset() RETURNS trigger AS "
    "$$ BEGIN NEW.total = OLD.total; RETURN NEW; END $$ LANGUAGE plpgsql; "
    "CREATE TRIGGER t BEFORE UPDATE ON graphveil_accounts FOR EACH ROW EXECUTE FUNCTION reset()",
    "trigger graphveil_no_change": "CREATE OR REPLACE FUNCTION graphveil_only_added() RETURNS trigger AS "
    "$$ BEGIN RETURN NULL; END $$ LANGUAGE plpgsql",
    "rule": "CREATE RULE r AS ON INSERT TO graphveil_entries DO INSTEAD NOTHING",
    "policy": "CREATE POLICY p ON graphveil_entries USING (false)",
}


@pytest.mark.parametrize("kind", ["postgresql"])
@pytest.mark.parametrize("how", ON_SERVER)
def test_foreign_objects_on_a_server_are_rejected(place: str, kind: str, how: str) -> None:
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge", epsilon="1", delta="1e-7", tags=TAGS)
    Ledger(place).close()
    with ledger._store._engine.begin() as line:
        line.execute(sa.text(ON_SERVER[how]))
    ledger.close()
    for create in (True, False):
        with pytest.raises(LedgerError, match=f"it contains the {how}.* not part of a ledger"):
            Ledger(place, create=create)
