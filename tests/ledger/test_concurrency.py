"""Many processes, killed processes and lost connections: the ledger records at least what was released."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch
from command import Files, Invoke
from sqlalchemy.exc import OperationalError

from graphveil.cli import main
from graphveil.errors import BudgetError
from graphveil.ledger import Ledger, PrivacyCost
from ledger.conftest import KINDS, entry

FORK = multiprocessing.get_context("fork")
both = pytest.mark.parametrize("kind", KINDS)
on_server = pytest.mark.parametrize("kind", ["postgresql"])


def record_all(place: str, worker: int, tries: int) -> int:
    """Record from two threads until the budget is spent; return the number of granted releases."""
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
def test_processes_share_one_budget(place: str, workers: int) -> None:
    ledger, budget = Ledger(place), 3 * workers
    ledger.init("friends", "undirected-edge", epsilon=f"{budget / 10}", delta="1e-7")
    with FORK.Pool(workers) as pool:
        granted = pool.starmap(record_all, [(place, worker, 5) for worker in range(workers)])
    assert sum(granted) == budget == len(ledger.data_set("friends"))
    assert ledger.verify() == []


def command(words: list[str]) -> None:
    """Run a command in a copy of a process, which has none of its threads."""
    torch.set_num_threads(1)
    main(words)


@pytest.mark.parametrize(
    ("kind", "trainings"),
    [("sqlite", 2), *(pytest.param(kind, 8, marks=pytest.mark.slow) for kind in KINDS)],
)
def test_trainings_share_one_budget(place: str, invoke: Invoke, files: Files, trainings: int) -> None:
    """After one training, the limit has room for one less than are started at once."""
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge")
    flags = ("--unit", "undirected-edge", "--epsilon", "0.1", "--delta", "1e-7", "--no-baseline")
    flags += ("--set", "epochs=2", "--ledger", f"{place}#friends")
    words = ("train", "gap", *files.flags, *flags, "--out")
    assert invoke(*words, "first").code == 0
    (account,) = ledger.accounts("friends")
    fits, exceeds = (
        PrivacyCost().plus(account.total, count).epsilon(1e-7) for count in (trainings, trainings + 1)
    )
    limit = Decimal(f"{(fits + exceeds) / 2:.12f}")
    ledger.raise_limit("friends", "undirected-edge", epsilon=limit, delta="1e-7", reason="a study")
    runs = [FORK.Process(target=command, args=([*words, f"run-{number}"],)) for number in range(trainings)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(600)
    *accepted, rejected = sorted(run.exitcode or 0 for run in runs)
    assert accepted == [0] * (trainings - 1)
    assert rejected in (1, 2)  # 1 if another one was charged after its plan, else 2
    (account,) = ledger.accounts("friends")
    assert (account.releases, ledger.verify()) == (trainings, [])
    assert account.total.epsilon(1e-7) <= limit


def record_and_release(place: str, drawn: Path, name: str) -> None:
    """Do the steps of a release: record, commit, draw."""
    friends = Ledger(place).data_set("friends")
    friends.record(entry(name))
    friends.commit(name)
    with drawn.open("a") as file:
        file.write(f"{name}\n")


@both
@pytest.mark.parametrize("kills", [12, pytest.param(1800, marks=pytest.mark.slow)])
def test_killed_processes_have_recorded_what_they_released(place: str, tmp_path: Path, kills: int) -> None:
    ledger, drawn = Ledger(place), tmp_path / "drawn"
    ledger.init("friends", "undirected-edge")
    started = time.monotonic()
    record_and_release(place, drawn, "first")
    seconds = time.monotonic() - started
    for number in range(kills):
        name = f"r{number // 2}"  # each is tried twice: killed, and resumed
        child = FORK.Process(target=record_and_release, args=(place, drawn, name))
        child.start()
        time.sleep(1.5 * seconds * ((number * 0.618) % 1))
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        child.close()
    rows = list(ledger.export("friends"))
    committed = {row["reference"] for row in rows if row["kind"] == "commit"}
    reserved = [row["reference"] for row in rows if row["kind"] == "reserve"]
    assert set(drawn.read_text().split()) <= committed <= set(reserved)
    assert len(reserved) == len(set(reserved)) == len(ledger.data_set("friends"))
    assert ledger.verify() == []


def test_closing_a_second_connection_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    """Another process that closes the file is not the last one, and leaves the log of this one."""
    path = tmp_path / "ledger.sqlite"
    first = Ledger(path)
    first.init("friends", "undirected-edge")
    friends, second = first.data_set("friends"), Ledger(path)
    code = (
        "import sys; from graphveil.ledger import Ledger; print(len(Ledger(sys.argv[1]).data_set('friends')))"
    )
    for count in (1, 2):
        friends.record(entry(f"r{count}"))
        done = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
        assert done.stdout.strip() == str(count)
        assert not path.with_name("ledger.sqlite-wal").exists()
    assert (len(friends), first.verify(), second.verify()) == (2, [], [])


@on_server
def test_a_commit_with_a_lost_acknowledgement_is_charged_once(place: str) -> None:
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge", epsilon="0.1", delta="1e-7")
    friends, lost = ledger.data_set("friends"), list[int]()

    def lose_acknowledgement(connection: sa.Connection) -> None:
        if not lost:
            lost.append(1)
            connection.connection.commit()  # it succeeds, and the connection ends before the answer
            error = Exception("server closed the connection unexpectedly")
            raise OperationalError("COMMIT", {}, error)

    sa.event.listen(ledger._store._engine, "commit", lose_acknowledgement)
    friends.record(entry("a"))
    assert (lost, len(friends)) == ([1], 1)
    with pytest.raises(BudgetError):
        friends.record(entry("b"))


@on_server
def test_lost_connections_are_opened_again(place: str) -> None:
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge")
    friends = ledger.data_set("friends")
    with sa.create_engine(place, poolclass=sa.NullPool).connect() as line:
        for number in range(4):
            friends.record(entry(f"r{number}"))
            mine = "pid <> pg_backend_pid() AND query LIKE '%graphveil%'"
            line.execute(sa.text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}"))
            line.commit()
    assert (len(friends), ledger.verify()) == (4, [])


@on_server
def test_verify_reads_one_snapshot(place: str) -> None:
    """A release that is recorded in between does not break the chain: head, entries and totals agree."""
    ledger, numbers = Ledger(place), iter(range(100))
    ledger.init("friends", "undirected-edge", epsilon=100, delta="1e-7")
    friends, other = ledger.data_set("friends"), Ledger(place)
    engine = other._store._engine
    sa.event.listen(engine, "after_execute", lambda *given: friends.record(entry(f"r{next(numbers)}")))
    assert other.verify() == []
    assert next(numbers) > 2
