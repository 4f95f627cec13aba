"""One thread where floating-point sums are rounded, all of them where sums are whole numbers.

A product of matrices that several threads share is added up in parts, and how it is cut depends on their
number: two machines would learn other weights from the same seed. Most trainings here are so small that
threads do not pay either. So a fit and a prediction run in :func:`one_thread`; the sums over edges, which are
exact, return to :func:`all_threads` inside it.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

import torch

_SHARES = 8  # of a thread at most, since some rows are longer than others,
_ROWS = 1 << 13  # and of so many rows at least: beginning a share takes as long as hundreds of rows


class _Threads:
    """How many threads torch has outside, and how many calls are inside: the number is the process's own."""

    def __init__(self) -> None:
        self._lock, self._inside, self.outside = Lock(), 0, 0

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self.outside = torch.get_num_threads()
                torch.set_num_threads(1)
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.set_num_threads(self.outside)
                self.outside = 0


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
    before = torch.get_num_threads()
    if _threads.outside in (0, before):
        yield
        return
    torch.set_num_threads(_threads.outside)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_parts(part: Callable[[int, int], None], count: int, least: int) -> None:
    """Do work on rows from one to another, shared by all threads; at least so many rows for each."""
    threads = max(1, min(_threads.outside or torch.get_num_threads(), count // least))
    if threads == 1:
        part(0, count)
        return
    shares = threads * max(1, min(_SHARES, count // (threads * _ROWS)))
    cuts = [count * place // shares for place in range(shares + 1)]
    list(_pool(threads).map(part, cuts[:-1], cuts[1:]))


def together(work: Callable[[], None], most: int) -> None:
    """Let all threads do the same work, which they share out among themselves; at most so many of them.

    The caller's thread begins at once. One that has not begun when the caller is done need not.
    """
    threads = max(1, min(_threads.outside or torch.get_num_threads(), most))
    others = [_pool(threads).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        for other in others:
            other.cancel() or other.result()


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads are not copied
