"""One thread where floating-point sums are rounded, all of them where sums are whole numbers.

A product of matrices that several threads share is added up in parts, and how it is cut depends on their
number: two machines would learn other weights from the same seed. Most trainings here are so small that
threads do not pay either. So a fit and a prediction run in :func:`one_thread`; the sums over edges, which are
exact, return to :func:`all_threads` inside it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_outside: ContextVar[int | None] = ContextVar("threads outside", default=None)


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
    if _outside.get() is not None:
        yield
        return
    before = torch.get_num_threads()
    token = _outside.set(before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _outside.reset(token)


@contextmanager
def all_threads() -> Iterator[None]:
    """Let torch compute with as many threads as outside of :func:`one_thread`: for exact sums alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(_outside.get() or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
