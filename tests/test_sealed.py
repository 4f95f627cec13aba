"""Sealed messages open for whoever has the key, as they were, under their name, and for nobody else."""

import numpy as np
import pytest

from graphveil._util import sealed
from graphveil._util.sealed import SLACK, RecipientKey, SecretBox, seal_to
from graphveil.errors import ReleaseError

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000, 1 << 20])
def test_a_message_opens_as_it_was(size: int) -> None:
    box, message = SecretBox(), np.random.default_rng(size).integers(256, size=size).astype(np.uint8)
    sealed = box.seal("rows", message)
    out = np.full(size + SLACK, 7, dtype=np.uint8)
    assert box.open_into(out, "rows", sealed) == size and (out[:size] == message).all()
    assert size < 15 or message.tobytes()[:15] not in sealed.tobytes()
    assert sealed.tobytes() != box.seal("rows", message).tobytes()  # a nonce of its own


def test_a_message_in_pieces_is_one_message() -> None:
    box = SecretBox()
    pieces = b"abc", np.arange(40, dtype=np.uint8), b"", b"d"
    assert box.open("rows", box.seal("rows", *pieces)) == b"abc" + bytes(range(40)) + b"d"


def test_another_key_name_or_message_is_refused() -> None:
    box = SecretBox()
    sealed = box.seal("rows", b"what nobody else may see")
    for place in (0, 11, 12, 20, len(sealed) - 1):
        changed = sealed.copy()
        changed[place] ^= 1
        with pytest.raises(ReleaseError, match="damaged"):
            box.open("rows", changed)
    for other, name, part in (
        (SecretBox(), "rows", sealed),
        (box, "edges", sealed),
        (box, "rows", sealed[:-1]),
    ):
        with pytest.raises(ReleaseError, match="damaged"):
            other.open(name, part)
    with pytest.raises(ReleaseError, match="damaged"):
        box.open("rows", sealed[:5])


def test_a_lock_opens_what_was_sealed_to_it_alone() -> None:
    lock, key = RecipientKey(), SecretBox().key
    sealed = seal_to(lock.public, key)
    assert lock.open(sealed) == key and key not in sealed
    for wrong in (
        seal_to(RecipientKey().public, key),
        sealed[:-1] + bytes([sealed[-1] ^ 1]),
        bytes(len(sealed)),
    ):
        with pytest.raises(ReleaseError):
            lock.open(wrong)


def test_no_key_shows() -> None:
    assert repr(SecretBox()) == "Box()" and "private" not in repr(RecipientKey())


def test_the_key_of_an_exchange_follows_from_what_is_secret() -> None:
    one, other = bytes(32), bytes([1]) * 32
    exchanges = ((one, one, one), (other, one, one), (one, other, one), (one, one, other))
    keys = {sealed._box_of(*exchange).key for exchange in exchanges}
    assert len(keys) == 4, "who sees both public halves can open what was sealed"
