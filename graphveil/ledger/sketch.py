"""How many people two data sets share: from keyed hashes of the ids, of which the smallest are kept.

Of a data set with up to ``SIZE`` people all hashes are kept, and what two such data sets share is counted. Of
a larger one the smallest are a sample that does not depend on the data set: a part of at least one person in
``SIZE / 4`` or so of the whole is found.
"""

import base64
import hashlib
import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SIZE = 2048  # hashes that are kept
_BYTES = 8


class Overlap(NamedTuple):
    """What two data sets share: as a part of the first one, and of the one with fewer people."""

    first: float
    smaller: float


def sketch_of(numbers: bytes, key: bytes) -> str:
    """Return the smallest keyed hashes of people, who are numbers of eight bytes each.

    >>> ann, bob = b"aaaaaaaa", b"bbbbbbbb"
    >>> overlap(sketch_of(ann + bob, b"k"), [sketch_of(bob, b"k")])
    Overlap(first=0.5, smaller=1.0)
    """
    parts = (numbers[first : first + _BYTES] for first in range(0, len(numbers), _BYTES))
    hashes = (hashlib.blake2b(part, key=key, digest_size=_BYTES).digest() for part in parts)
    return base64.b64encode(b"".join(sorted(heapq.nsmallest(SIZE, set(hashes))))).decode()


def overlap(one: str, others: Sequence[str]) -> Overlap:
    """Return what the people of one sketch and of the union of others share.

    Raises:
        ValueError: a sketch cannot be read.
    """
    here, there = _hashes([one]), _hashes(others)
    last = (
        min(max(known) for known in (here, there) if len(known) == SIZE)
        if SIZE in map(len, (here, there))
        else None
    )
    if last is not None:  # of what lies above it, one of them has kept nothing
        here, there = ({each for each in known if each <= last} for known in (here, there))
    both = len(here & there)
    return Overlap(both / len(here), both / min(len(here), len(there))) if both else Overlap(0.0, 0.0)


def _hashes(sketches: Iterable[str]) -> set[bytes]:
    found = set[bytes]()
    for text in sketches:
        data = base64.b64decode(text, validate=True)
        if len(data) % _BYTES:
            raise ValueError("a sketch is hashes of eight bytes each")
        found.update(data[first : first + _BYTES] for first in range(0, len(data), _BYTES))
    return set(heapq.nsmallest(SIZE, found))
