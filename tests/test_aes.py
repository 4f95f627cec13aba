"""The key schedule against FIPS 197, and what processors are asked for."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from graphveil._aes import blocks_at_once, round_keys
from graphveil._llvm import can_compile, host_features

MOST = blocks_at_once(host_features()) if can_compile() else 0
needs_aes = pytest.mark.skipif(not MOST, reason="the processor has no instructions for AES, or no llvmlite")


@needs_aes
def test_the_key_schedule_is_that_of_the_standard() -> None:
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    words = round_keys(key, 1).reshape(-1, 4)
    assert words.shape == (60, 4) and words.dtype == np.uint8
    named = {8: "9ba35411", 12: "a8b09c1a", 59: "706c631e"}  # of appendix A.3
    assert {place: bytes(words[place]).hex() for place in named} == named


@needs_aes
@pytest.mark.parametrize("seed", range(20))
def test_the_cipher_of_these_keys_is_aes(seed: int) -> None:
    key = np.random.default_rng(seed).bytes(32)
    once, often = round_keys(key, 1), round_keys(key, 4)
    assert (often == once).all()
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    block = bytes(range(16))
    assert encrypted(block, once[:, 0]) == encryptor.update(block)


def encrypted(block: bytes, keys: np.ndarray) -> bytes:
    """Encrypt as FIPS 197 writes it, byte by byte, with round keys."""
    state = np.frombuffer(block, np.uint8) ^ keys[0]
    box = np.array([_substituted(byte) for byte in range(256)], np.uint8)
    shifted = np.array([(5 * place) % 16 for place in range(16)])
    for step, own in enumerate(keys[1:], 1):
        state = box[state][shifted]
        if step < len(keys) - 1:
            columns = state.reshape(4, 4)
            doubled = (columns << 1) ^ np.where(columns & 0x80, 0x1B, 0).astype(np.uint8)
            after = [np.roll(columns, -turn, axis=1) for turn in range(4)]
            state = (doubled ^ np.roll(doubled, -1, axis=1) ^ after[1] ^ after[2] ^ after[3]).reshape(16)
        state = state ^ own
    return bytes(state)


def _substituted(byte: int) -> int:
    inverse = next((other for other in range(256) if _product(byte, other) == 1), 0)
    turns = [(inverse << turn | inverse >> (8 - turn)) & 0xFF for turn in range(5)]
    return turns[0] ^ turns[1] ^ turns[2] ^ turns[3] ^ turns[4] ^ 0x63


def _product(one: int, other: int) -> int:
    """Multiply in GF(2^8)."""
    total = 0
    while other:
        total ^= one if other & 1 else 0
        one, other = (one << 1) ^ (0x11B if one & 0x80 else 0), other >> 1
    return total


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
