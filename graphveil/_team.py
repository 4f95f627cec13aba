"""Threads that stay awake for a moment, for compiled work that is over in a millisecond.

To wake a thread takes a tenth of a millisecond, and one of Python's then waits for the interpreter besides:
more than half of the pass that it would share. So a thread that has done its part looks out for the next one
for a moment, in a compiled loop that leaves the interpreter to others, and begins within a microsecond. What
it looks at is a word: the number of the work, whether it is open, and how many have joined.

Nobody is waited for who has not joined. But where other processes want the processors, one that looks out
takes some of the caller's time, and one that has joined may lose its own. So when the caller's thread
computed for much less time than passed, threads sleep between works for many times as long (decision 092).
"""

import ctypes
import itertools
import os
import time
from collections.abc import Sequence
from functools import cache
from threading import local

import numpy as np

from graphveil._llvm import Code, Compiled, compile_for_host, host_features
from graphveil._util.threads import pool, run_in_all_threads

_LOOKS = 1 << 15  # for work, before a thread sleeps: half a millisecond, or longer where a pause is
_GLANCES = 1 << 14  # for those who have not ended, before the caller naps,
_SLEEP_MICROSECONDS = 100  # microseconds each time
_LOST, _HICCUP = 0.2, 2e-4  # of a work's time, and seconds: threads sleep if more than their sum is lost,
_PATIENCE = 10  # for so many times what was lost
_WORDS = 32  # of memory between threads; what is written often has a line of the cache for itself
_STATE, _RUN, _GIVEN, _MOST, _ENDED, _LEFT = 0, 8, 9, 10, 16, 24  # places in it
_OPEN, _NEXT = 1 << 31, 1 << 32  # of the state, whose lowest bits count who has joined


class _SpinningThreadTeam:
    """The threads that help one thread of Python's, and the memory between them."""

    def __init__(self) -> None:
        self._words, self._called, self._asleep_until = np.zeros(_WORDS, dtype=np.int64), 0, 0.0
        self._lead, self._help = _programs()

    def work(self, run: Compiled, given: int, threads: int) -> None:
        """Run a function of a seat and an address in at most so many threads, each once; then return."""
        start, computed = time.perf_counter(), time.thread_time()
        if start < self._asleep_until:
            seats = itertools.count()
            run_in_all_threads(lambda: run(next(seats), given), threads)
            return
        for _ in range(threads - 1 - (self._called - int(self._words[_LEFT]))):
            self._called += 1
            pool(threads).submit(self._join)
        self._lead(threads - 1, self._words.ctypes.data, run.address, given)
        now = time.perf_counter()
        lost = now - start - (time.thread_time() - computed)
        if lost > _LOST * (now - start) + _HICCUP:
            self._asleep_until = now + _PATIENCE * lost

    def _join(self) -> None:
        self._help(self._words.ctypes.data)


def in_threads(run: Compiled, given: Sequence[int], threads: int) -> None:
    """Call a function in several threads, each once, and return when all of them have.

    Args:
        run: takes a seat, from 0 on and below ``threads``, and the address of what is given. Fewer threads
            may come than there are seats: they share the work out among themselves.
        given: 64-bit numbers.
        threads: at most so many, the caller's among them.
    """
    numbers = np.array(given, dtype=np.int64)
    if threads == 1:
        run(0, numbers.ctypes.data)
        return
    if not hasattr(_own, "team"):
        _own.team = _SpinningThreadTeam()
    _own.team.work(run, numbers.ctypes.data, threads)


_own = local()


def _renew() -> None:
    """Forget threads that a forked process has not."""
    vars(_own).clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew)


@cache
def _programs() -> tuple[Compiled, Compiled]:
    """Return what the caller runs, and what those who help do."""
    lead, help_ = _leading(), _helping()
    return compile_for_host(lead, 1, 3), compile_for_host(help_, 0, 1)


def _leading() -> str:
    """Return a program that opens work, does it, too, closes it, and waits for those who joined."""
    code = Code("x")
    state, ended, most = (code.at("%words", "i64", place) for place in (_STATE, _ENDED, _MOST))
    for place, value in ((_RUN, "%work"), (_GIVEN, "%given")):
        code.do(f"store ptr {value}, ptr {code.at('%words', 'i64', place)}")
    for word, number in ((most, "%most"), (ended, "0")):
        code.do(f"store atomic i64 {number}, ptr {word} monotonic, align 8")
    number = code(f"and i64 {code(f'load atomic i64, ptr {state} monotonic, align 8')}, {-_NEXT}")
    opened = code(f"add i64 {number}, {_NEXT + _OPEN}")
    code.do(f"store atomic i64 {opened}, ptr {state} release, align 8")
    code.do("call void %work(i64 0, ptr %given)")
    last = code(f"atomicrmw sub ptr {state}, i64 {_OPEN} acq_rel")
    joined = code(f"and i64 {last}, {_OPEN - 1}")
    with code.loop("ult", joined, ("i64", code(_there(ended))), ("i64", "0")) as waiting:
        looks = code(f"add i64 {waiting.values[1]}, 1")
        patient = code(f"zext i1 {code(f'icmp ugt i64 {looks}, {_GLANCES}')} to i64")
        with code.loop("ult", patient, ("i64", "0")) as once:
            code(f"call i32 {code(f'inttoptr i64 {_nap()} to ptr')}(i32 {_SLEEP_MICROSECONDS})")
            once.then = ["1"]
        pause = _pause(code)
        waiting.then = [code(_there(ended)), looks]
    return f"""
{pause}
define void @run(i64 %most, ptr %words, ptr %work, ptr %given) {{
start:
  {code}
  ret void
}}
"""


def _there(ended: str) -> str:
    """Return the operation that reads how many have ended, and sees what they wrote."""
    return f"load atomic i64, ptr {ended} acquire, align 8"


def _nap() -> int:
    """Return where the system's function is that sleeps for some microseconds."""
    return ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value or 0


def _helping() -> str:
    """Return a program that looks out for work, joins each once, and leaves where there is none for long."""
    code = Code("x")
    state, ended, left = (code.at("%words", "i64", place) for place in (_STATE, _ENDED, _LEFT))
    with code.loop("ult", str(_LOOKS), ("i64", "0"), ("i64", "0")) as loop:
        looks, done = loop.values
        now = code(f"load atomic i64, ptr {state} acquire, align 8")
        number, joined = code(f"lshr i64 {now}, 32"), code(f"and i64 {now}, {_OPEN - 1}")
        is_open = code(f"icmp ne i64 {code(f'and i64 {now}, {_OPEN}')}, 0")
        most = code(f"load atomic i64, ptr {code.at('%words', 'i64', _MOST)} monotonic, align 8")
        wanted = code(f"and i1 {is_open}, {code(f'icmp ult i64 {joined}, {most}')}")
        wanted = code(f"and i1 {wanted}, {code(f'icmp ne i64 {number}, {done}')}")
        pause = _pause(code)
        with code.loop("ult", code(f"zext i1 {wanted} to i64"), ("i64", "0"), ("i64", "0")) as once:
            seat = code(f"add i64 {joined}, 1")
            tried = code(f"cmpxchg ptr {state}, i64 {now}, i64 {code(f'add i64 {now}, 1')} acq_rel monotonic")
            taken = code(f"zext i1 {code(f'extractvalue {{ i64, i1 }} {tried}, 1')} to i64")
            with code.loop("ult", taken, ("i64", "0")) as turn:
                work = code.load("ptr", code.at("%words", "i64", _RUN))
                given = code.load("ptr", code.at("%words", "i64", _GIVEN))
                code.do(f"call void {work}(i64 {seat}, ptr {given})")
                code(f"atomicrmw add ptr {ended}, i64 1 release")
                turn.then = ["1"]
            once.then = ["1", taken]
        worked = code(f"icmp ne i64 {once.values[1]}, 0")
        loop.then = [
            code(f"select i1 {worked}, i64 0, i64 {code(f'add i64 {looks}, 1')}"),
            code(f"select i1 {worked}, i64 {number}, i64 {done}"),
        ]
    code(f"atomicrmw add ptr {left}, i64 1 release")
    return f"""
{pause}
define void @run(ptr %words) {{
start:
  {code}
  ret void
}}
"""


def _pause(code: Code) -> str:
    """Let the processor rest a little, where it has a word for that; return the declaration of the word."""
    if not host_features().get("sse2"):
        return ""
    code.do("call void @llvm.x86.sse2.pause()")
    return "declare void @llvm.x86.sse2.pause()"
