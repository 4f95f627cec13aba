"""Randomness: named public streams from one seed, and the keyed stream that private noise is drawn from.

The two never mix. A *public* stream fixes splits, initial weights and batches; whoever knows the seed knows
them. A :class:`RowStream` is keyed, addressed by row, and serves every draw that a proof relies on.
"""

import hashlib
import secrets
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
_BLOCK_BYTES = 16  # one AES block holds two 64-bit words
ROW_SHIFT = 32  # row i owns the counters from i * 2**32 on


@dataclass(frozen=True)
class PublicStreams:
    """Independent generators, one per purpose, derived from one public seed.

    The same seed and name give the same stream, whatever else was drawn before.

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
        """Return the NumPy generator of the named purpose."""
        return np.random.default_rng(self.derive(name))

    def torch(self, name: str) -> torch.Generator:
        """Return the CPU torch generator of the named purpose."""
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
        # AES-CTR's keystream is the encryption of the counter; ECB over explicit counters yields the
        # same bytes and lets one call serve many separate rows.
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB())

    def words(self, rows: npt.NDArray[np.int64], *, words_per_row: int) -> npt.NDArray[np.uint64]:
        """Return the first ``words_per_row`` words of each row, shape (rows, words)."""
        blocks = -(-words_per_row // 2)
        drawn = self.blocks(rows.astype(np.uint64)[:, None], np.arange(blocks, dtype=np.uint64)[None, :])
        return drawn.reshape(len(rows), 2 * blocks)[:, :words_per_row]

    def blocks(self, rows: npt.NDArray[np.uint64], offsets: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return the two words of block ``offset`` of each row (broadcast), shape (..., 2)."""
        shape = np.broadcast_shapes(rows.shape, offsets.shape)
        counters = np.empty((*shape, 2), dtype=">u8")
        counters[..., 0] = rows >> np.uint64(64 - ROW_SHIFT)
        counters[..., 1] = (rows << np.uint64(ROW_SHIFT)) + offsets
        encryptor = self._cipher.encryptor()
        out = bytearray(counters.nbytes + _BLOCK_BYTES)
        written = encryptor.update_into(counters.data.cast("B") if counters.size else b"", out)
        return np.frombuffer(out, dtype="<u8", count=written // 8).reshape(*shape, 2)
