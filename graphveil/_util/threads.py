"""Use one thread for rounded floating-point sums, and all threads for exact integer sums; fix process state.

A matrix product in several threads is added up in parts that depend on the number of threads: two machines
would train other parameters from the same seed. Most training runs here are too small to benefit from
threads. A fit and a prediction therefore run in ``one_thread``, for products of torch and of NumPy; the sums
over edges, which are exact, return to ``all_threads`` inside it.

Settings of the process that a caller may have changed would also change or break a fit: torch's default
dtype, ``torch.no_grad``, ``torch.inference_mode``, NumPy's error state. ``one_thread`` sets the defaults.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache
from threading import Lock, local
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

_SHARES = 8  # of a thread at most, since some rows are longer than others,
_ROWS = 1 << 13  # and of so many rows at least: beginning a share takes as long as hundreds of rows


class _ThreadState(local):
    """The thread count of one Python thread outside of all calls, and how many nested calls it is in."""

    def __init__(self) -> None:
        self.number, self.inside = 0, 0


@cache
def _blas_libraries(with_scipy: bool) -> ThreadpoolController:
    """Return the linear algebra of NumPy, and of SciPy once that is loaded; a search takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


class _Threads:
    """The number of torch's threads, which is separate for every Python thread, and of NumPy's, for all.

    A Python thread inside a call computes with one, independent of the others, and gets its own number back.
    NumPy has one thread while any Python thread is inside a call.
    Exact sums may use the maximum of all threads inside a call: one started meanwhile began with one thread.
    """

    def __init__(self) -> None:
        self._own, self._lock = _ThreadState(), Lock()
        self._outside: list[int] = []
        self._blas_limit: Any = None
        self._dtype = torch.float32  # torch's default outside, which is one for all threads

    @property
    def outside(self) -> int:
        """The maximum thread count among threads inside a call; 0 if none is inside."""
        with self._lock:
            return max(self._outside, default=0)

    @property
    def is_inside(self) -> bool:
        return self._own.inside > 0

    def enter(self) -> None:
        own = self._own
        if not own.inside:
            own.number = torch.get_num_threads()
            with self._lock:
                if not self._outside:
                    self._dtype = torch.get_default_dtype()
                    torch.set_default_dtype(torch.float32)
                    self._blas_limit = _blas_libraries("scipy.linalg" in sys.modules).limit(limits=1)
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
                if not self._outside:
                    torch.set_default_dtype(self._dtype)
                    self._blas_limit.restore_original_limits()


_threads = _Threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch and NumPy to one thread, with their default settings; also a decorator for a function.

    >>> before = torch.get_num_threads()
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    nested = _threads.is_inside  # where code of ours may have chosen another setting
    _threads.enter()
    try:
        with nullcontext() if nested else _default_settings():
            yield
    finally:
        _threads.leave()


@contextmanager
def _default_settings() -> Iterator[None]:
    """Record gradients, and handle NumPy's floating-point errors, as a new process does."""
    errors = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
    with torch.inference_mode(mode=False), torch.enable_grad(), errors:
        yield


@contextmanager
def all_threads() -> Iterator[None]:
    """Allow torch as many threads as outside of ``one_thread``, for exact sums only."""
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
    return max(1, min(_threads.outside or torch.get_num_threads(), most))


def parallel_for(part: Callable[[int, int], None], count: int, least: int) -> None:
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
    """Run the same work in all threads, up to a maximum; they share it among themselves.

    The caller's thread begins at once. Threads that have not begun when the caller is done are cancelled.
    """
    threads = available_threads(most)
    others = [pool(threads).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:  # all of them end before an error is raised, because they use the caller's arrays
        begun = [other for other in others if not other.cancel()]
        wait(begun)
    for other in begun:
        other.result()


@lru_cache(maxsize=1)
def pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=pool.cache_clear)  # threads are not copied
