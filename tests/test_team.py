"""Compiled work that threads share: each turn once, nobody waited for who has not joined."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from graphveil import _team
from graphveil._llvm import Code, Compiled, compile_for_host
from graphveil._row_pass import RowPass, row_pass
from graphveil._team import in_threads

pytest.importorskip("llvmlite", minversion="0.45")

TURNS, SEATS = 200, 8


@pytest.fixture(autouse=True)
def _own_team() -> Iterator[None]:
    """Let every test begin with a team of its own."""
    _team._renew()
    yield
    _team._renew()


@cache
def counting(lasts: int) -> Compiled:
    """Return work that counts its seats and takes turns, each of which lasts for so many steps."""
    code = Code("x")
    begun, done, spare = (code.load("ptr", code.at("%given", "i64", place)) for place in (1, 2, 3))
    code(f"atomicrmw add ptr {code.at(begun, 'i64', '%seat')}, i64 1 monotonic")
    take = "atomicrmw add ptr %given, i64 1 monotonic"
    with code.loop("ult", str(TURNS), ("i64", code(take))) as turn:
        with code.each(str(lasts)) as step:
            code.do(f"store volatile i64 {step}, ptr {spare}")
        code(f"atomicrmw add ptr {code.at(done, 'i64', turn.values[0])}, i64 1 monotonic")
        turn.then = [code(take)]
    program = f"define void @run(i64 %seat, ptr %given) {{\nstart:\n  {code}\n  ret void\n}}\n"
    return compile_for_host(program, 1, 1)


def counted(threads: int, lasts: int) -> tuple[list[int], list[int]]:
    """Return how often each seat began, and how often each turn was done."""
    begun, done, spare = (np.zeros(size, dtype=np.int64) for size in (SEATS, TURNS, 1))
    in_threads(counting(lasts), [0, *(array.ctypes.data for array in (begun, done, spare))], threads)
    return begun.tolist(), done.tolist()


@pytest.mark.parametrize("lasts", [0, 1000])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_turn_is_done_once_and_nobody_takes_a_seat_twice(threads: int, lasts: int) -> None:
    for _ in range(50):
        begun, done = counted(threads, lasts)
        assert done == [1] * TURNS
        assert begun[0] == 1 and max(begun) == 1 and not any(begun[threads:])


def test_a_second_thread_takes_part() -> None:
    """It may take a while on a busy machine."""
    end = time.monotonic() + 300
    while not counted(2, 10_000)[0][1]:
        assert time.monotonic() < end, "no second thread took part"


def test_fewer_threads_than_are_awake_take_fewer_seats() -> None:
    for threads in (7, 2) * 20:
        begun, done = counted(threads, 100)
        assert done == [1] * TURNS and not any(begun[threads:])


@pytest.mark.parametrize(("most", "joined", "joins"), [(1, 0, 1), (1, 1, 1), (3, 0, 1), (3, 2, 3), (3, 3, 3)])
def test_who_looks_out_joins_a_work_once_and_takes_no_seat_too_many(
    most: int, joined: int, joins: int
) -> None:
    begun, done, spare = (np.zeros(size, dtype=np.int64) for size in (SEATS, TURNS, 1))
    given = np.array([0, *(array.ctypes.data for array in (begun, done, spare))])
    words = np.zeros(_team._WORDS, dtype=np.int64)
    words[_team._STATE] = _team._NEXT + _team._OPEN + joined
    words[_team._RUN], words[_team._GIVEN] = counting(10).address, given.ctypes.data
    words[_team._MOST] = most
    _team._programs()[1](words.ctypes.data)  # looks for a while, and leaves
    assert words[_team._STATE] == _team._NEXT + _team._OPEN + joins
    assert np.flatnonzero(begun).tolist() == ([joined + 1] if joins > joined else [])
    assert (words[_team._ENDED], words[_team._LEFT]) == (joins - joined, 1)


@cache
def slow_to_end() -> Compiled:
    """Return work of two seats: the caller waits for the other to begin, who goes on for milliseconds."""
    code = Code("x")
    begun, ended, spare = (code.load("ptr", code.at("%given", "i64", place)) for place in (0, 1, 2))
    is_caller = code("icmp eq i64 %seat, 0")
    with code.loop("ult", code(f"select i1 {is_caller}, i64 {1 << 22}, i64 0"), ("i64", "0")) as looks:
        there = code(f"icmp ne i64 {code(f'load atomic i64, ptr {begun} acquire, align 8')}, 0")
        more = code(f"add i64 {looks.values[0]}, 1")
        looks.then = [code(f"select i1 {there}, i64 {1 << 22}, i64 {more}")]
    code(f"atomicrmw add ptr {begun}, i64 %seat release")
    with code.each(code(f"mul i64 %seat, {1 << 23}")) as step:
        code.do(f"store volatile i64 {step}, ptr {spare}")
    code(f"atomicrmw add ptr {ended}, i64 %seat release")
    program = f"define void @run(i64 %seat, ptr %given) {{\nstart:\n  {code}\n  ret void\n}}\n"
    return compile_for_host(program, 1, 1)


def test_who_has_joined_is_waited_for() -> None:
    """It may take a while until a second thread gets a processor."""
    joined, end = 0, time.monotonic() + 300
    while not joined:
        assert time.monotonic() < end, "no second thread began"
        begun, ended, spare = (np.zeros(1, dtype=np.int64) for _ in range(3))
        in_threads(slow_to_end(), [array.ctypes.data for array in (begun, ended, spare)], 2)
        assert ended.tolist() == begun.tolist()
        joined += int(begun[0])


def test_threads_leave_when_nothing_comes_and_are_called_again() -> None:
    for _ in range(3):
        assert counted(2, 10)[1] == [1] * TURNS
        team = _team._own.team
        for _ in range(30_000):
            if int(team._words[_team._LEFT]) == team._called:
                break
            time.sleep(0.01)
        assert int(team._words[_team._LEFT]) == team._called  # what is called next time is one thread more


def test_the_caller_does_it_alone_where_nobody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_team, "pool", lambda threads: ThreadPoolExecutor(1))
    monkeypatch.setattr(ThreadPoolExecutor, "submit", lambda self, work: None)
    assert counted(2, 10) == ([1] + [0] * (SEATS - 1), [1] * TURNS)


@pytest.mark.parametrize(
    ("passed", "computed", "asleep"),
    [(1.0, 1.0, False), (1.0, 0.81, False), (1.0, 0.75, True), (2e-4, 0.0, False), (1e-3, 5e-4, True)],
)
def test_threads_sleep_between_works_for_ten_times_what_was_lost(
    passed: float, computed: float, asleep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[int] = []
    now, processor = iter([0.0, passed, passed, 100 * passed, 100 * passed]), iter([0.0, computed] * 3)
    clocks = SimpleNamespace(perf_counter=lambda: next(now), thread_time=lambda: next(processor))
    monkeypatch.setattr(_team, "time", clocks)
    run_in_all_threads = _team.run_in_all_threads
    monkeypatch.setattr(
        _team, "run_in_all_threads", lambda work, most: slept.append(most) or run_in_all_threads(work, most)
    )
    counted(2, 10)
    if asleep:
        assert _team._own.team._asleep_until == pytest.approx(passed + 10 * (passed - computed))
        begun, done = counted(2, 10)  # at the time when the first one ended
        assert slept == [2] and done == [1] * TURNS and max(begun) == 1
        counted(2, 10)  # much later
    assert slept == [2] * asleep


def test_threads_of_python_have_teams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(_: int) -> list[int]:
        rows = np.zeros(50_000, dtype=np.int64)
        for _ in range(50):
            ones()(len(rows), (), ((rows.ctypes.data, 8),), 3)
        return sorted(set(rows.tolist()))

    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    ones()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(many, range(4))) == [[50]] * 4


@cache
def ones() -> RowPass:
    """Return a pass that adds one to each row."""
    code = Code("x")
    with code.each("%rows") as row:
        place = code.at("%table", "i64", row)
        more = code(f"add i64 {code.load('i64', place)}, 1")
        code.do(f"store i64 {more}, ptr {place}")
    return row_pass(f"define void @run(i64 %rows, ptr %table) {{\nstart:\n  {code}\n  ret void\n}}\n", 1, 1)


@pytest.mark.parametrize("rows", [0, 1, 1023, 1024, 1025, 100_003])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_pass_goes_over_every_row_once(threads: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    table = np.zeros(rows + 1, dtype=np.int64)
    ones()(rows, (), ((table.ctypes.data, 8),), 5)
    assert table.tolist() == [1] * rows + [0]


FORKED = """
import os, torch
from graphveil import _team
from graphveil.propagation import shrink_unit

torch.set_num_threads(2)
rows = torch.ones(20_000, 4)
before = shrink_unit(rows, 0.1).numpy().tobytes()  # torch's own operations may hang in a forked process
team = _team._own.team
child = os.fork()
if not child:
    same = all(shrink_unit(rows, 0.1).numpy().tobytes() == before for _ in range(20))
    os._exit(0 if same and _team._own.team is not team else 1)
assert shrink_unit(rows, 0.1).numpy().tobytes() == before
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_forked_process_has_a_team_of_its_own() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], check=True, timeout=120)
