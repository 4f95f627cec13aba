"""One thread where floating-point sums are rounded, all of them where sums are whole numbers.

A product of matrices that several threads share is added up in parts, and how it is cut depends on their
number: two machines would learn other weights from the same seed. Most trainings here are so small that
threads do not pay either. So a fit and a prediction run in :func:`one_thread`; the sums over edges, which are
exact, return to :func:`all_threads` inside it.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock, local

import torch

_SHARES = 8  # of a thread at most, since some rows are longer than others,
_ROWS = 1 << 13  # and of so many rows at least: beginning a share takes as long as hundreds of rows


class _ThreadState(local):
    """What one thread of Python's has outside of all calls, and how many calls it is inside of."""

    def __init__(self) -> None:
        self.number, self.inside = 0, 0


class _Threads:
    """The number of torch's threads, which every thread of Python's has for itself.

    A thread that is inside computes with one, whatever the others do, and has its own number back. Exact sums
    may use the most that any thread inside had: one that began meanwhile was born with a single one.
    """

    def __init__(self) -> None:
        self._own, self._lock = _ThreadState(), Lock()
        self._outside: list[int] = []

    @property
    def outside(self) -> int:
        """The most that a thread inside had before; 0 if none is inside."""
        with self._lock:
            return max(self._outside, default=0)

    def enter(self) -> None:
        own = self._own
        if not own.inside:
            own.number = torch.get_num_threads()
            with self._lock:
                self._outside.append(own.number)
            torch.set_num_threads(1)
        own.inside += 1

    def leave(self) -> None:
        own = self._own
        own.inside -= 1
        if not own.inside:
            torch.set_num_threads(own.number)
            with self._lock:
                self._outside.remove(own.number)


_threads = _Threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread; as a decorator, for a whole function.

    >>> before = torch.get_num_threads()
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    _threads.enter()
    try:
        yield
    finally:
        _threads.leave()


@contextmanager
def all_threads() -> Iterator[None]:
    """Let torch compute with as many threads as outside of :func:`one_thread`: for exact sums alone."""
    before, outside = torch.get_num_threads(), _threads.outside
    if outside in (0, before):
        yield
        return
    torch.set_num_threads(outside)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def available_threads(most: int) -> int:
    """Return how many threads exact work may have: those outside of :func:`one_thread`, at most so many."""
    return max(1, min(_threads.outside or torch.get_num_threads(), most))


def parallel_for(part: Callable[[int, int], None], count: int, least: int) -> None:
    """Do work on rows from one to another, shared by all threads; at least so many rows for each."""
    threads = available_threads(count // least)
    if threads == 1:
        part(0, count)
        return
    shares = threads * max(1, min(_SHARES, count // (threads * _ROWS)))
    turns = itertools.count()

    def work() -> None:
        while (turn := next(turns)) < shares:
            part(count * turn // shares, count * (turn + 1) // shares)

    run_in_all_threads(work, threads)


def run_in_all_threads(work: Callable[[], None], most: int) -> None:
    """Let all threads do the same work, which they share out among themselves; at most so many of them.

    The caller's thread begins at once. One that has not begun when the caller is done need not.
    """
    threads = available_threads(most)
    others = [pool(threads).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:  # all of them end before any is heard: what they work on is the caller's
        begun = [other for other in others if not other.cancel()]
        wait(begun)
    for other in begun:
        other.result()


@lru_cache(maxsize=1)
def pool(threads: int) -> ThreadPoolExecutor:
    """Return threads of Python's, which sleep when there is nothing to do."""
    return ThreadPoolExecutor(threads)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=pool.cache_clear)  # threads are not copied
