"""Sealed values: only the holder of the key opens them, unchanged and under their name."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.exceptions import InvalidTag

from graphveil.cluster.sealing import PART, RecipientKey, SecretBox, open_value, seal_to, seal_value
from graphveil.core.edges.blocks import EdgeBlock

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra 'ray')")


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000, 1 << 20])
def test_a_value_opens_unchanged(size: int) -> None:
    box, value = SecretBox(), np.random.default_rng(size).integers(256, size=size).astype(np.uint8)
    sealed = box.seal("rows", value.data)
    assert box.open("rows", sealed) == box.open("rows", memoryview(sealed)) == value.tobytes()
    assert size < 15 or value.tobytes()[:15] not in sealed
    assert sealed != box.seal("rows", value.data)  # a new nonce each time


def test_rejects_other_keys_names_and_changed_values() -> None:
    box = SecretBox()
    sealed = box.seal("rows", b"a private value")
    changed = [bytearray(sealed) for _ in range(5)]
    for one, place in zip(changed, (0, 11, 12, 20, len(sealed) - 1), strict=True):
        one[place] ^= 1
    for opener, name, value in (
        *((box, "rows", bytes(one)) for one in (*changed, sealed[:-1], sealed[:5])),
        (SecretBox(), "rows", sealed),
        (box, "edges", sealed),
    ):
        with pytest.raises((InvalidTag, ValueError)):
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
        with pytest.raises(InvalidTag):
            recipient.open(wrong)


def test_keys_are_not_shown() -> None:
    assert "key" not in repr(SecretBox()) and "private" not in repr(RecipientKey())


def test_each_exchange_has_its_own_key() -> None:
    recipient, key = RecipientKey(), SecretBox().key
    sealed = [seal_to(recipient.public, key) for _ in range(2)]
    assert sealed[0] != sealed[1] and {recipient.open(one) for one in sealed} == {key}


# -- values in parts ---------------------------------------------------------------------------------------


@pytest.fixture
def box() -> SecretBox:
    return SecretBox()


def opened(name: str, parts: list[bytes], box: SecretBox) -> Any:
    return open_value(name, parts, box, lambda part: part)


def sealed_size(value: object) -> int:
    overhead = len(SecretBox().seal("", b""))
    return sum(len(part) - overhead for part in seal_value("rows", value, SecretBox()))


@needs_ray
@pytest.mark.parametrize("rows", [25, PART // 32 + 25])  # of 32 bytes: one part, and two
def test_values_arrive_unchanged_and_parts_reveal_nothing(box: SecretBox, rows: int) -> None:
    secret = b"the key of the noise, 32 bytes.."
    table = torch.arange(4.0 * rows, dtype=torch.float64).reshape(rows, 4)
    value = {"key": secret, "rows": table, "codes": np.arange(3), "none": None}
    parts = list(seal_value("work", value, box))
    assert all(secret not in one for one in parts)
    assert len(parts) == 1 + (rows > 25)
    back = opened("work", parts, box)
    assert back["key"] == secret and torch.equal(back["rows"], table)
    assert back["codes"].tolist() == [0, 1, 2] and back["none"] is None
    assert back["rows"].data_ptr() % 64 == 0
    back["rows"][0] = 1.0  # memory of its own


@needs_ray
def test_the_size_of_a_block_does_not_depend_on_its_degrees(box: SecretBox) -> None:
    sizes = set()
    for edges in (0, 1, 9, 500, 15_000):  # of one row, in a block of its own
        ends = torch.tensor([0, edges], dtype=torch.int32), torch.zeros(edges, dtype=torch.int32)
        parts = list(seal_value("edges", EdgeBlock(0, 1, *ends), box))
        sizes.add(tuple(map(len, parts)))
        assert len(opened("edges", parts, box).sources) == edges
    assert len(sizes) == 1
    larger = {sealed_size(np.zeros(1 << 20 | count << 16, np.uint8)) for count in range(1, 16)}
    assert larger == {5 << 18, 6 << 18, 7 << 18, 1 << 21}  # to the next quarter step


@needs_ray
def test_rejects_parts_that_are_exchanged_or_missing(box: SecretBox) -> None:
    first, second = seal_value("work", torch.zeros(PART // 8 + 25, dtype=torch.float64), box)
    for parts in ([second, first], [first, first], [first], [first, second, second]):
        with pytest.raises(InvalidTag):
            opened("work", parts, box)
    with pytest.raises(InvalidTag):
        opened("other", [first, second], box)
