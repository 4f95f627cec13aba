"""Memory for rows that are looked up at random, aligned, on large pages, and used again.

What a table costs is how many lines of the cache its rows touch. NumPy begins an array sixteen bytes into a
page, where every second row of 32 bytes lies on two lines; torch begins at a line, but does not ask for large
pages, so that every look-up first looks for its page.

Fresh memory comes in zeros that a system has to write, and on a virtual machine, from a host that has to find
it first: it may cost more than all that is done with it. So memory that nobody refers to any more is kept and
serves who asks for as much next. What was in it may still be there, as with any memory that a process frees
and takes again: who takes it writes all of it.

What is kept costs nobody anything. The system is told that it may take large pieces back whenever it is
short of memory (``MADV_FREE``); and what is kept and what is used are together at most half as much again as
was used at one time, so that pieces which are used in turns stay, and those of a former task go.
"""

import ctypes
import itertools
import math
import mmap
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from threading import RLock

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_LEAST = 1 << 20  # what is smaller the C library keeps itself
_LARGE = 1 << 24  # what the system is told of
_SHARE = 1.5  # of what was used at one time: as much is kept and used at most
_PAGE = 1 << 21  # a large one: freeing a part of it would break it up
_LINE = 64  # bytes of a line of the cache

_TYPES = {
    getattr(torch, name): np.dtype(name).str
    for name in ("uint8", "int16", "int32", "int64", "float32", "float64")
}

Memory = npt.NDArray[np.uint8]


def aligned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return memory for a tensor, whose numbers are whatever was there.

    >>> rows = aligned(5, 16, dtype=torch.int16)
    >>> rows.shape, rows.dtype, rows.data_ptr() % 64
    (torch.Size([5, 16]), torch.int16, 0)
    """
    kind, size = _TYPES[dtype], math.prod(shape) * dtype.itemsize
    small = size < _LEAST
    memory = np.empty(size + _LINE, dtype=np.uint8) if small else _pool.take(size + _LINE)
    address = memory.ctypes.data
    interface = {
        "version": 3,
        "data": (address + -address % _LINE, False),
        "shape": shape,
        "typestr": kind,
    }
    return torch.from_numpy(np.asarray(_BorrowedMemory(interface, memory, None if small else _pool.give)))


class Pieces:
    """Memory for several things, each of so many bytes and on lines of the cache of its own."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """Take what nobody has written yet."""
        ends = list(itertools.accumulate(-(-size // _LINE) * _LINE for size in sizes))
        self._memory = torch.empty(ends[-1] + _LINE, dtype=torch.uint8)
        first = -(-self._memory.data_ptr() // _LINE) * _LINE
        self.places = [first, *(first + end for end in ends[:-1])]  # addresses, as long as this object lives


class _BorrowedMemory:
    """What every view of some memory refers to in the end: it gives the memory back with the last of them."""

    def __init__(
        self, interface: dict[str, object], memory: Memory, give: Callable[[Memory], None] | None
    ) -> None:
        self.__array_interface__ = interface
        self._memory, self._give = memory, give

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._give is not None and not ending():
            self._give(self._memory)


class _MemoryPool:
    """Memory that nobody refers to, and how much somebody refers to.

    A finalizer may run within any line of this class, so what is given only waits in a queue, without a lock.
    """

    def __init__(self) -> None:
        self.renew()
        self._given: deque[tuple[int, Memory | None]] = deque()
        self._memory: list[Memory] = []
        self._lent = self._most = 0  # bytes

    def renew(self) -> None:
        """Forget who holds the lock, who may be a thread of the process that this one was forked from."""
        self._lock = RLock()

    def take(self, size: int) -> Memory:
        """Return memory of at least so many bytes, and at most a quarter more."""
        with self._lock:
            self._gather()
            fitting = [memory for memory in self._memory if size <= len(memory) <= size + size // 4]
            if fitting:
                memory = self._out(min(fitting, key=len))
            else:
                self._make_room(size)
                memory = np.empty(size, dtype=np.uint8)  # NumPy asks for large pages
            self._lent += len(memory)
            self._most = max(self._most, self._lent)
            return memory

    def give(self, memory: Memory) -> None:
        """Keep some memory, which the system may take meanwhile; where it cannot, what is small alone."""
        keeps = len(memory) < _LARGE or _mark_reclaimable(memory)
        self._given.append((len(memory), memory if keeps else None))

    def _gather(self) -> None:
        """Take in what was given."""
        while self._given:
            size, memory = self._given.popleft()
            self._lent -= size
            self._memory += [] if memory is None else [memory]

    def _make_room(self, size: int) -> None:
        """Give up what would be too much: the least that is enough, or the largest."""
        held = self._lent + size
        spare = int(_SHARE * max(self._most, held)) - held
        while (excess := sum(map(len, self._memory)) - spare) > 0:
            enough = [memory for memory in self._memory if len(memory) >= excess]
            self._out(min(enough, key=len) if enough else max(self._memory, key=len))

    def _out(self, memory: Memory) -> Memory:
        """Take out some memory."""
        self._memory = [other for other in self._memory if other is not memory]
        return memory


def _mark_reclaimable(memory: Memory) -> bool:
    """Tell the system that it may take some memory until it is written again; whether it heard."""
    start = -(-memory.ctypes.data // _PAGE) * _PAGE
    stop = (memory.ctypes.data + len(memory)) // _PAGE * _PAGE
    madvise = _madvise()
    return madvise is not None and madvise(start, stop - start, mmap.MADV_FREE) == 0


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    """Return the system's function, None where there is none, or where it frees nothing lazily."""
    if not hasattr(mmap, "MADV_FREE"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


_pool = _MemoryPool()

if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_pool.renew)
