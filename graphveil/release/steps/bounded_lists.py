"""Lists truncated to a public length by hash values of single pairs."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util.random import RowStream

NO_NODE = -1  # marks an empty entry

Ids = npt.NDArray[np.int64]


def cut_lists(owner: Ids, listed: Ids, count: int, most: int, key: bytes) -> Tensor:
    """Return every owner's list, truncated to ``most`` entries: those with the smallest hash values.

    There is one hash value for each ordered pair (owner, entry), computed from both ids and the key. It does
    not depend on any list or its length. Removing an entry does not change the order of the others. Hash
    values may be public.

    Shapes: (count, most) int32, entries in their input order, padded with ``NO_NODE``.

    Args:
        owner, listed: The pairs, (E), owners ascending.
        count: Owners have ids below it.
        most: The public bound.
        key: 32 bytes, which fix the hash values.

    >>> cut_lists(np.array([0, 0, 2]), np.array([1, 2, 0]), 3, 2, bytes(32)).tolist()
    [[1, 2], [-1, -1], [0, -1]]
    """
    lengths = np.bincount(owner, minlength=count)
    kept = np.ones(len(listed), dtype=bool)
    long = np.flatnonzero((lengths > most)[owner])
    if long.size:
        coins = RowStream(key).blocks(owner[long], listed[long])[:, 0]
        order = np.lexsort((listed[long], coins, owner[long]))
        rank = np.empty(long.size, dtype=np.int64)
        rank[order] = _places(owner[long][order])
        kept[long] = rank < most
    entries = np.full((count, most), NO_NODE, dtype=np.int32)
    entries[owner[kept], _places(owner[kept])] = listed[kept]
    return torch.from_numpy(entries)


def _places(owner: Ids) -> Ids:
    """Return the number of entries of the same owner before each entry; owners must be sorted."""
    first = np.searchsorted(owner, owner, side="left")
    return np.arange(len(owner)) - first
