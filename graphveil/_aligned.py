"""Memory for rows that are looked up at random, aligned, on large pages, and used again.

What a table costs is how many lines of the cache its rows touch. NumPy begins an array sixteen bytes into a
page, where every second row of 32 bytes lies on two lines; torch begins at a line, but does not ask for large
pages, so that every look-up first looks for its page.

Fresh memory comes in zeros that a system has to write, and on a virtual machine, from a host that has to find
it first: it may cost as much as all that is done with it. So memory that nobody refers to any more is kept,
as much as :data:`KEPT` bytes of it, and serves who asks for as much next. What was in it is still there, as
with any memory that a process frees and takes again: who takes it writes all of it.
"""

import math
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

KEPT = 1 << 30  # bytes, at most
_LEAST = 1 << 20  # what is smaller the C library keeps itself
_LINE = 64  # bytes of a line of the cache

_NUMPY = {
    getattr(torch, name): np.dtype(name)
    for name in ("uint8", "int16", "int32", "int64", "float32", "float64")
}

Memory = npt.NDArray[np.uint8]


def aligned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return memory for a tensor, whose numbers are whatever was there.

    >>> rows = aligned(5, 16, dtype=torch.int16)
    >>> rows.shape, rows.dtype, rows.data_ptr() % 64
    (torch.Size([5, 16]), torch.int16, 0)
    """
    size = math.prod(shape) * dtype.itemsize
    memory = _kept.take(size + _LINE)
    first = -memory.ctypes.data % _LINE
    used = memory[first : first + size]
    lent = used if size < _LEAST else np.asarray(_Lent(used, memory, _kept.give))
    return torch.from_numpy(lent.view(_NUMPY[dtype]).reshape(shape))


class _Lent:
    """What every view of some memory refers to in the end: it gives the memory back with the last of them."""

    def __init__(self, used: Memory, memory: Memory, give: Callable[[Memory], None]) -> None:
        self.__array_interface__ = used.__array_interface__
        self._memory, self._give = memory, give

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self._give(self._memory)


class _Kept:
    """Memory that nobody refers to. No lock: a finalizer may run within any line, this file's among them."""

    def __init__(self) -> None:
        self._memory: deque[Memory] = deque()

    def take(self, size: int) -> Memory:
        """Return memory of at least so many bytes, and at most a quarter more."""
        for _ in range(len(self._memory) if size > _LEAST else 0):
            try:
                memory = self._memory.popleft()
            except IndexError:  # another thread took the last
                break
            if size <= len(memory) <= size + size // 4:
                return memory
            self._memory.append(memory)
        return np.empty(size, dtype=np.uint8)  # NumPy asks for large pages

    def give(self, memory: Memory) -> None:
        """Keep some memory; what was given first goes where there is too much."""
        if len(memory) <= KEPT:
            self._memory.append(memory)
        with suppress(IndexError):  # another thread took the last
            while sum(map(len, tuple(self._memory))) > KEPT:
                self._memory.popleft()


_kept = _Kept()
