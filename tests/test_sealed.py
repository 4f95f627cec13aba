"""Sealed values: only the holder of the key opens them, unchanged and under their name."""

import numpy as np
import pytest

from graphveil._util import sealed
from graphveil._util.sealed import SLACK, RecipientKey, SecretBox, seal_to
from graphveil.errors import ReleaseError


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000, 1 << 20])
def test_a_value_opens_unchanged(size: int) -> None:
    box, value = SecretBox(), np.random.default_rng(size).integers(256, size=size).astype(np.uint8)
    sealed = box.seal("rows", value)
    out = np.full(size + SLACK, 7, dtype=np.uint8)
    assert box.open_into(out, "rows", sealed) == size and (out[:size] == value).all()
    assert size < 15 or value.tobytes()[:15] not in sealed.tobytes()
    assert sealed.tobytes() != box.seal("rows", value).tobytes()  # a new nonce each time


def test_pieces_are_sealed_as_one_value() -> None:
    box = SecretBox()
    pieces = b"abc", np.arange(40, dtype=np.uint8), b"", b"d"
    assert box.open("rows", box.seal("rows", *pieces)) == b"abc" + bytes(range(40)) + b"d"


def test_rejects_other_keys_names_and_changed_values() -> None:
    box = SecretBox()
    sealed = box.seal("rows", b"a private value")
    changed = [sealed.copy() for _ in range(5)]
    for one, place in zip(changed, (0, 11, 12, 20, len(sealed) - 1), strict=True):
        one[place] ^= 1
    for opener, name, value in (
        *((box, "rows", one) for one in (*changed, sealed[:-1], sealed[:5])),
        (SecretBox(), "rows", sealed),
        (box, "edges", sealed),
    ):
        with pytest.raises(ReleaseError, match="damaged"):
            opener.open(name, value)


def test_only_the_recipient_opens_what_was_sealed_to_its_public_key() -> None:
    recipient, key = RecipientKey(), SecretBox().key
    sealed = seal_to(recipient.public, key)
    assert recipient.open(sealed) == key and key not in sealed
    for wrong in (
        seal_to(RecipientKey().public, key),
        sealed[:-1] + bytes([sealed[-1] ^ 1]),
        bytes(len(sealed)),
    ):
        with pytest.raises(ReleaseError):
            recipient.open(wrong)


def test_keys_are_not_shown() -> None:
    assert repr(SecretBox()) == "Box()" and "private" not in repr(RecipientKey())


def test_the_key_of_an_exchange_depends_on_its_secret() -> None:
    one, other = bytes(32), bytes([1]) * 32
    exchanges = ((one, one, one), (other, one, one), (one, other, one), (one, one, other))
    keys = {sealed._box_of(*exchange).key for exchange in exchanges}
    assert len(keys) == 4, "anyone who observes both public keys can open the sealed value"
