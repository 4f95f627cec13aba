"""Which dataset some data are: keyed fingerprints, the versions that a dataset is bound to, and shared
people.

How many people two datasets share follows from keyed hashes of the ids (a sketch). Of a dataset with up to
``SIZE`` people all hashes are kept, and what two such datasets share is counted. Of a larger one the smallest
are kept, a sample that does not depend on the dataset. A part of ``m`` of its ``n`` people is then found with
probability ``1 - (1 - SIZE / n) ** m``.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from graphveil.data.fingerprint import NODE_IDS
from graphveil.errors import ConfigError
from graphveil.ledger.chain import BIND, SKETCH, UNBIND, HashChain, Tags, common_parts, same_data, tags_in
from graphveil.ledger.database import Store, data_sets, entries, state_of

SIZE = 1_000_000  # hashes that are kept, in 11 MB of text
_OLD_SIZE = 2048  # of earlier versions: a sketch of so many may be of more people
_BYTES = 8
_HASH = np.dtype(">u8")  # in the order of their bytes
_ALL = int(np.iinfo(np.uint64).max)
Hashes = np.ndarray[Any, np.dtype[np.uint64]]


class Overlap(NamedTuple):
    """Shared people of two datasets, as a share of the first and of the smaller one."""

    first: float
    smaller: float


def sketch_of(numbers: bytes, key: bytes) -> str:
    """Return the smallest keyed hashes of people, who are given as fingerprints of eight bytes each.

    >>> ann, bob = b"aaaaaaaa", b"bbbbbbbb"
    >>> overlap(sketch_of(ann + bob, b"k"), [sketch_of(bob, b"k")])
    Overlap(first=0.5, smaller=1.0)
    """
    parts = (numbers[first : first + _BYTES] for first in range(0, len(numbers), _BYTES))
    hashes = b"".join(hashlib.blake2b(part, key=key, digest_size=_BYTES).digest() for part in parts)
    return _text(_union([np.frombuffer(hashes, _HASH).astype(np.uint64)])[:SIZE])


def overlap(one: str, others: Sequence[str]) -> Overlap:
    known = [(each, _last(each)) for each in map(_hashes, others)]
    whole = [(each, last) for each, last in known if last == _ALL]
    here = _hashes(one)
    found = [Overlap(0.0, 0.0)]
    for group in (whole, known):  # an old version may have a part of the people, and a later one all
        last = min([_last(here), *(last for _, last in group)])
        first, second = here[here <= last], _union(each[each <= last] for each, _ in group)
        if both := len(np.intersect1d(first, second, assume_unique=True)):
            found.append(Overlap(both / len(first), both / min(len(first), len(second))))
    return max(found, key=lambda one: one.smaller)


def _hashes(sketch: str) -> Hashes:
    data = base64.b64decode(sketch, validate=True)
    if len(data) % _BYTES:
        raise ValueError("a sketch must consist of hashes of eight bytes each")
    return _union([np.frombuffer(data, _HASH).astype(np.uint64)])


def _last(hashes: Hashes) -> int:
    """Return the hash up to which a sketch has all people."""
    return int(hashes[-1]) if len(hashes) in (_OLD_SIZE, SIZE) else _ALL


def _union(found: Iterable[Hashes]) -> Hashes:
    """Return the different hashes, sorted; ``np.unique`` takes seconds for a million of them."""
    hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *found]))
    found_once: Hashes = hashes[np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)]]
    return found_once


def _text(hashes: Hashes) -> str:
    return base64.b64encode(hashes.astype(_HASH).tobytes()).decode()


# Share of the smaller of two datasets from which on their people are taken to be the same.
SAME_NODES_SHARE = 0.5
_EXACT = {"edges", "records"}  # parts that no two data sets share unless they share edges or records


def add_version(chain: HashChain, fingerprints: Tags) -> None:
    """Bind a dataset to data, unless it is bound to them already.

    Only people are stored that no earlier version has, so that versions of a large dataset stay small.
    """
    known, tags = versions(chain.connection, chain.name), dict(fingerprints)
    unknown = False
    if known and SKETCH in tags:
        people = _hashes(tags[SKETCH])
        whole = _last(people) == _ALL
        stored = [_hashes(one.get(SKETCH, "")) for one in known]
        known_people = _union(one for one in stored if not whole or _last(one) == _ALL)
        new = np.setdiff1d(people, known_people, assume_unique=True)
        unknown = len(new) > 0
        if whole:
            tags[SKETCH] = _text(new)
    if unknown or not any(same_data(tags, one) and tags.keys() <= one.keys() for one in known):
        chain.add(BIND, {"fingerprints": tags, "key": state_of(chain.connection).checked})


def versions(connection: sa.Connection, name: str) -> list[dict[str, str]]:
    """Return the fingerprints of all versions of a dataset that it was not unbound from."""
    return dict(_bound(connection, name)).get(name, [])


def _bound(connection: sa.Connection, name: str | None = None) -> list[tuple[str, list[dict[str, str]]]]:
    query = sa.select(entries.c.data_set, entries.c.kind, entries.c.body)
    query = query.where(entries.c.kind.in_((BIND, UNBIND))).order_by(entries.c.data_set, entries.c.number)
    found = dict[str, list[dict[str, str]]]()
    for owner, kind, body in connection.execute(
        query if name is None else query.where(entries.c.data_set == name)
    ):
        if kind == UNBIND:
            found.pop(owner, None)
        else:
            found.setdefault(owner, []).append(tags_in(json.loads(body)))
    return sorted(found.items())


def name_of(connection: sa.Connection, fingerprints: Tags, *, apart: bool = False) -> str | None:
    """Return the dataset that shares most with data, if that is enough to be the same data."""
    found = shared_with(connection, fingerprints, apart=apart)
    best = max(found, key=lambda name: found[name].smaller, default=None)
    return best if best is not None and found[best].smaller >= SAME_NODES_SHARE else None


def shared_with(connection: sa.Connection, fingerprints: Tags, *, apart: bool = False) -> dict[str, Overlap]:
    """Return how much data share with each dataset.

    Args:
        apart: Whether the data owner asserts that nothing else is shared, so that people do not count.

    Returns:
        Shares of people, of which that of the smaller dataset is 2 for equal edges or records, and 1 for
        another equal part; datasets without overlap are omitted.
    """
    found = dict[str, Overlap]()
    for name, known in _bound(connection):
        equal = {
            part
            for tags in known
            for part in common_parts(tags, fingerprints)
            if tags[part] == fingerprints[part]
        }
        sketches = [tags[SKETCH] for tags in known if SKETCH in tags]
        people = Overlap(1.0, 1.0) if NODE_IDS in equal else overlap(fingerprints.get(SKETCH, ""), sketches)
        # Equal edges or records decide, also if the owner asserts that people are not shared.
        if equal & _EXACT:
            found[name] = people._replace(smaller=2)
        elif not apart and (equal or people.smaller):
            found[name] = people._replace(smaller=1) if equal else people
    return found


def fingerprints_of(store: Store, parts: Mapping[str, Iterable[bytes]]) -> dict[str, str]:
    """Return fingerprints of data under the ledger's key, which does not leave it."""
    key = store.read(store.key)
    found = {}
    for part, chunks in parts.items():
        mac, people = hmac.new(key, part.encode(), "sha256"), []
        for chunk in chunks:
            mac.update(chunk)
            if part == NODE_IDS:
                people.append(chunk)
        found[part] = mac.hexdigest()
        if part == NODE_IDS:
            found[SKETCH] = sketch_of(b"".join(people), key)
    return found


def check_binding(connection: sa.Connection, name: str, data: Tags) -> None:
    known = versions(connection, name)
    # Among the versions with the most fingerprint parts in common: a version with a fingerprint of the
    # people alone would otherwise match any edges of these people.
    most = max((len(common_parts(data, one)) for one in known), default=0)
    if known and not any(same_data(data, one) for one in known if len(common_parts(data, one)) == most):
        raise ConfigError(
            f"The data differ from those that {name!r} was registered with. Use the original files. "
            f"If the data have grown, register the new version: graphveil ledger init {quote(name)} "
            "--unit UNIT --nodes FILE --edges FILE ..."
        )


def next_unnamed_data_set(connection: sa.Connection) -> str:
    taken = set(connection.execute(sa.select(data_sets.c.name)).scalars())
    return next(name for number in count(1) if (name := f"data-{number}") not in taken)
