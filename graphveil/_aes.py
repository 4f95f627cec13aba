"""AES-256 in the processor's own instructions, as lines of a compiled program.

The keystream is that of :class:`graphveil._random.RowStream`, bit for bit; what is compiled here draws and
uses it in registers, where it would otherwise be written to memory and read again. A register holds one, two
or four blocks (AES-NI, and VAES with 256 or 512 bits). Other processors have no lines here, and the cipher is
then that of ``cryptography``: another cipher would be other noise.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from graphveil._llvm import Code

ROUNDS = 14
_WORDS = 8  # 32-bit words of a key


def round_keys(key: bytes) -> npt.NDArray[np.uint8]:
    """Return the key schedule of FIPS 197 for 256 bits, shape (rounds + 1, 16).

    >>> bytes(round_keys(bytes(32))[2]).hex()
    '62636363626363636263636362636363'
    """
    words = np.frombuffer(key, dtype=">u4").tolist()
    constant = 1 << 24
    for i in range(_WORDS, 4 * (ROUNDS + 1)):
        last = words[-1]
        if i % _WORDS == 0:
            last = _substituted((last << 8 | last >> 24) & 0xFFFFFFFF) ^ constant
            constant <<= 1
        elif i % _WORDS == 4:
            last = _substituted(last)
        words.append(words[i - _WORDS] ^ last)
    return np.array(words, dtype=">u4").view(np.uint8).reshape(ROUNDS + 1, 16)


def _substituted(word: int) -> int:
    """Return a word of which each byte is substituted."""
    return int.from_bytes(word.to_bytes(4, "big").translate(_sbox()), "big")


def blocks_at_once(features: Mapping[str, bool]) -> int:
    """Return how many blocks one instruction of a processor encrypts, 0 if it has none."""
    if features.get("vaes") and features.get("avx512f"):
        return 4
    if features.get("vaes") and features.get("avx2"):
        return 2
    return int(bool(features.get("aes") and features.get("sse2")))


def encrypted(code: Code, counters: Sequence[str], keys: str, blocks: int) -> list[str]:
    """Add what encrypts registers of counters, two 64-bit words a block, and return the keystream.

    The registers take each round in turns: one round waits for the one before it, but not for its neighbours.
    ``keys`` is the address of the round keys, each repeated for every block of a register.
    """
    kind, name = f"<{2 * blocks} x i64>", {1: "", 2: ".256", 4: ".512"}[blocks]
    states = list(counters)
    for step in range(ROUNDS + 1):
        own, last = code.load(kind, code.at(keys, kind, step)), "last" if step == ROUNDS else ""
        for k, state in enumerate(states):
            states[k] = (
                code.call(kind, f"x86.aesni.aesenc{last}{name}", (kind, state), (kind, own))
                if step
                else code(f"xor {kind} {state}, {own}")
            )
    return states


@cache
def _sbox() -> bytes:
    """Return the substitution of bytes: inverses in GF(2^8), then an affine map."""
    powers = [1]
    for _ in range(254):  # of the generator x + 1
        doubled = powers[-1] << 1
        powers.append(powers[-1] ^ doubled ^ (0x11B if doubled > 0xFF else 0))
    place = {power: i for i, power in enumerate(powers)}
    inverses = [0] + [powers[-place[byte] % 255] for byte in range(1, 256)]
    return bytes(_affine(byte) for byte in inverses)


def _affine(byte: int) -> int:
    turned = byte | byte << 8
    return (byte ^ turned >> 4 ^ turned >> 5 ^ turned >> 6 ^ turned >> 7 ^ 0x63) & 0xFF
