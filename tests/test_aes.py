"""The key schedule against FIPS 197, and what processors are asked for."""

import numpy as np
import pytest

from graphveil._aes import blocks_at_once, round_keys


def test_the_key_schedule_is_that_of_the_standard() -> None:
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    words = round_keys(key).reshape(-1, 4)
    assert words.shape == (60, 4) and words.dtype == np.uint8
    named = {8: "9ba35411", 12: "a8b09c1a", 59: "706c631e"}  # of appendix A.3
    assert {place: bytes(words[place]).hex() for place in named} == named


@pytest.mark.parametrize(
    ("features", "blocks"),
    [
        ({}, 0),
        ({"aes": True, "sse2": True}, 1),
        ({"aes": True}, 0),  # the name of another family's instructions
        ({"aes": True, "sse2": True, "vaes": True, "avx2": True}, 2),
        ({"aes": True, "sse2": True, "vaes": True, "avx2": True, "avx512f": True}, 4),
        ({"aes": True, "sse2": True, "vaes": False, "avx512f": True}, 1),
    ],
)
def test_a_register_holds_what_the_processor_encrypts_at_once(features: dict[str, bool], blocks: int) -> None:
    assert blocks_at_once(features) == blocks
