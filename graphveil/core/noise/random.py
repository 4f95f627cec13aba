"""Randomness: named public streams from one seed, and the keyed stream that private noise is drawn from.

The two never mix. A *public* stream determines splits, initial parameters and batches; anyone who has the
seed can compute them. A ``RowStream`` is keyed, addressed by row, and serves every draw that a proof relies
on.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from graphveil.core.noise import _kernels

KEY_BYTES = 32
_BLOCK_BYTES = 16  # one AES block contains two 64-bit words
ROW_SHIFT = 32  # row i owns the counters from i * 2**32 on
_COUNTER = np.dtype(  # 128 bits in the cipher's byte order: the row above, its block below
    {"names": ["row", "offset"], "formats": [">i8", ">u4"], "offsets": [4, 12], "itemsize": _BLOCK_BYTES}
)
_STRETCH = 256  # rows whose counters are set in one contiguous operation

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PublicStreams:
    """Independent generators, one per purpose, derived from one public seed.

    The same seed and name give the same stream, independent of earlier draws.

    >>> a, b = PublicStreams(7), PublicStreams(7)
    >>> bool((a.numpy("split").integers(9, size=4) == b.numpy("split").integers(9, size=4)).all())
    True
    >>> PublicStreams(7).derive("split") == PublicStreams(7).derive("weights")
    False
    """

    seed: int | None = None
    _entropy: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_entropy", secrets.randbits(63) if self.seed is None else self.seed)

    def derive(self, name: str) -> int:
        """Return a 63-bit seed for the named purpose."""
        digest = hashlib.sha256(f"graphveil/{self._entropy}/{name}".encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1

    def numpy(self, name: str) -> np.random.Generator:
        return np.random.default_rng(self.derive(name))

    def torch(self, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(self.derive(name))


class RowStream:
    """AES-256-CTR words addressed by row: row ``i`` owns the counter blocks that start at ``i * 2**32``.

    Rows never share a block, so any partition of the rows over blocks, threads or machines draws the same
    words. The 128-bit counter is big-endian; the words are little-endian unsigned 64-bit integers.

    >>> stream = RowStream(bytes(32))
    >>> whole = stream.words(np.arange(3), words_per_row=4)
    >>> bool((whole[1:] == stream.words(np.array([1, 2]), words_per_row=4)).all())
    True
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a row stream needs a key of {KEY_BYTES} bytes, got {len(key)}")
        self._key = key

    @cached_property
    def _cipher(self) -> Cipher[modes.ECB]:
        """The cipher.

        AES-CTR's keystream is the encryption of the counter; ECB over explicit counters yields the same bytes
        and lets one call serve many separate rows.
        """
        return Cipher(algorithms.AES256(self._key), modes.ECB())

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        """Return the first ``words_per_row`` words of each row, shape (rows, words)."""
        blocks = -(-words_per_row // 2)
        _check_offsets(blocks)
        offsets = np.arange(blocks)
        if _kernels.available():
            drawn = self._encrypt(_kernels.counters(rows, offsets, paired=False))
        else:
            drawn = self._encrypt(_run(rows, blocks) if _is_run(rows) else _counters(rows[:, None], offsets))
        return drawn.reshape(len(rows), 2 * blocks)[:, :words_per_row]

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        """Return the two words of block ``offsets[k]`` of row ``rows[k]``, shape (len(rows), 2)."""
        _check_offsets(int(offsets.max(initial=0)) + 1)
        if _kernels.available() and rows.shape == offsets.shape:
            return self._encrypt(_kernels.counters(rows, offsets, paired=True))
        return self._encrypt(_counters(rows, offsets))

    def _encrypt(self, counters: Words) -> Words:
        """Return the keystream of counter blocks, given as pairs of words in the cipher's byte order."""
        out = np.empty(counters.nbytes + _BLOCK_BYTES, dtype=np.uint8)
        data = counters.reshape(-1).data.cast("B") if counters.size else b""
        written = self._cipher.encryptor().update_into(data, out.data)
        return out[:written].view("<u8").reshape(counters.shape)


def _counters(rows: Integers, offsets: Integers) -> Words:
    """Return the counters of rows and offsets, which are broadcast, as pairs of words."""
    shape = np.broadcast_shapes(rows.shape, offsets.shape)
    counters = np.zeros(shape, dtype=_COUNTER)
    counters["row"], counters["offset"] = rows, offsets
    return counters.reshape(-1).view(np.uint64).reshape(*shape, 2)


def _is_run(rows: Integers) -> bool:
    """Whether the rows are 2^k consecutive ones whose numbers differ in their last k bits only."""
    count = len(rows)
    if not count or count & (count - 1) or int(rows[0]) % count or int(rows[-1]) - int(rows[0]) != count - 1:
        return False
    return bool((np.diff(rows) == 1).all())


def _run(rows: Integers, blocks: int) -> Words:
    """Return the counters of such rows: those of the first 2^k rows with the other bits set."""
    first = _first_rows(len(rows), blocks)
    pattern = np.tile(_counters(rows[:1], np.array(0)), (min(len(rows), _STRETCH), 1))
    return (first.reshape(-1, pattern.size) | pattern.reshape(-1)).reshape(first.shape)


@lru_cache(maxsize=2)
def _first_rows(count: int, blocks: int) -> Words:
    return _counters(np.arange(count)[:, None], np.arange(blocks))


def _check_offsets(blocks: int) -> None:
    """Raise an error for a draw that would run into the next row's blocks."""
    if blocks > 1 << ROW_SHIFT:
        raise ValueError(f"a row stream has 2^{ROW_SHIFT} blocks per row, but {blocks} were requested")
