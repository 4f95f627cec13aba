"""Keys of local noise: from the operating system, one stream per purpose, each row once, in one process."""

import hashlib
import hmac
import os
import secrets
import threading
from typing import NoReturn

import numpy as np

from graphveil.core.noise.random import KEY_BYTES, RowStream
from graphveil.core.noise.sampling import Integers, Words
from graphveil.errors import ReleaseError

REPRODUCIBLE = "the noise is reproducible from a seed"
_NONE: Integers = np.empty((0, 2), dtype=np.int64)


class _SingleProcessSecret:
    """A secret that belongs to one object of one process: it cannot be copied, pickled or forked.

    Two holders of one key draw the same noise. Equal noise on two sets of records cancels: the difference
    of the reports is the difference of the records.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    def _check_process(self) -> None:
        """Raise in a process that was forked after the key was drawn."""
        if os.getpid() != self._process:
            raise ReleaseError(
                "This LocalNoise was created before the process was forked, so both processes would draw "
                "the same noise. Create a new LocalNoise() in the process that perturbs."
            )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Reject copy, deepcopy and pickle, which all call this method."""
        raise ReleaseError(
            "A LocalNoise cannot be copied or pickled, because two copies would draw the same noise, "
            "which reveals differences of records. Create a new LocalNoise() in the process that "
            "perturbs."
        )


class LocalStream(_SingleProcessSecret, RowStream):
    """The random words of one purpose: every row is used for one record, once.

    Used rows are stored as ranges, so consecutive blocks of records take two numbers together.

    >>> stream = LocalNoise(unsafe_noise_seed=3).stream("features")
    >>> stream.reserve_rows(np.arange(4)), stream.reserve_rows(np.array([7, 4]))
    (None, None)
    >>> stream.reserve_rows(np.array([9, 7]))
    Traceback (most recent call last):
    graphveil.errors.ReleaseError: The noise of a record was already used. Reusing it for another record \
would reveal their difference. Use other row numbers (rows=), or a new LocalNoise() for a new release.
    """

    def __init__(self, key: bytes) -> None:
        """Store a key of 32 bytes, which must not be used elsewhere."""
        _SingleProcessSecret.__init__(self)
        RowStream.__init__(self, key)
        self._lock = threading.Lock()
        self._reserved = _NONE  # disjoint ranges of rows, first and last, ascending

    def reserve_rows(self, rows: Integers) -> None:
        self._check_process()
        rows = np.sort(rows)
        breaks = np.flatnonzero(np.diff(rows) != 1)
        firsts, lasts = np.r_[0, breaks + 1][: len(rows)], np.r_[breaks, -1][: len(rows)]
        new = np.stack([rows[firsts], rows[lasts]], axis=1)
        with self._lock:  # two threads must not both be the first
            # Both tables are disjoint and ascending: only the first used range that does not end before a new
            # one can overlap it.
            after = np.searchsorted(self._reserved[:, 1], new[:, 0])
            inside = after < len(self._reserved)
            if (self._reserved[after[inside], 0] <= new[inside, 1]).any():
                raise ReleaseError(
                    "The noise of a record was already used. Reusing it for another record would reveal "
                    "their difference. Use other row numbers (rows=), or a new LocalNoise() for a new "
                    "release."
                )
            ranges = np.concatenate([self._reserved, new])
            ranges = ranges[np.argsort(ranges[:, 0])]
            starts = np.r_[True, ranges[1:, 0] != ranges[:-1, 1] + 1][: len(ranges)]  # others are adjacent
            ends = np.r_[starts[1:], True][: len(ranges)]
            self._reserved = np.stack([ranges[starts, 0], ranges[ends, 1]], axis=1)

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        """Return the first ``words_per_row`` words of each row, shape (rows, words)."""
        self._check_process()
        return super().words(rows, words_per_row=words_per_row)

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        """Return the two words of block ``offsets[k]`` of row ``rows[k]``, shape (len(rows), 2)."""
        self._check_process()
        return super().blocks(rows, offsets)


class LocalNoise(_SingleProcessSecret):
    """The randomness of one release of perturbed records, for experiments that hold the raw data.

    Each purpose (features, training labels, ...) has its own stream, which is returned once. To perturb
    records again, create a new object with a new key, since equal noise on two sets of records cancels. For
    the same reason a stream uses every row once. Neither the stream nor this object can be copied, pickled or
    used in a process that was forked later.

    Args:
        unsafe_noise_seed: Seed that makes the noise reproducible, for tests and paper mode. It invalidates
            the guarantee.

    >>> noise = LocalNoise(unsafe_noise_seed=3)
    >>> noise.deviations
    ('the noise is reproducible from a seed',)
    >>> stream = noise.stream("features")
    >>> noise.stream("features")
    Traceback (most recent call last):
    graphveil.errors.ReleaseError: The noise for 'features' was already used. Perturbing records twice with \
the same noise is not private. Create a new LocalNoise().
    """

    def __init__(self, unsafe_noise_seed: int | None = None) -> None:
        super().__init__()
        self._reproducible = unsafe_noise_seed is not None
        self._key = (
            hashlib.sha256(f"graphveil/unsafe/{unsafe_noise_seed}/local".encode()).digest()
            if self._reproducible
            else secrets.token_bytes(KEY_BYTES)
        )
        self._lock = threading.Lock()
        self._used: set[str] = set()

    @property
    def deviations(self) -> tuple[str, ...]:
        """Reasons why claims on records perturbed with this noise are not valid, if any."""
        return (REPRODUCIBLE,) if self._reproducible else ()

    def stream(self, purpose: str) -> LocalStream:
        """Return the stream of a purpose.

        Raises:
            ReleaseError: If it was returned before, or this is another process.
        """
        self._check_process()
        with self._lock:
            if purpose in self._used:
                raise ReleaseError(
                    f"The noise for {purpose!r} was already used. Perturbing records twice with the same "
                    "noise is not private. Create a new LocalNoise()."
                )
            self._used.add(purpose)
        return LocalStream(hmac.new(self._key, purpose.encode(), "sha256").digest())
