"""AES-256 in the processor's own instructions, as lines of a compiled program.

The keystream is that of :class:`graphveil._util.random.RowStream`, bit for bit; what is compiled here draws
and uses it in registers, where it would otherwise be written to memory and read again. A register holds one,
two or four blocks (AES-NI, and VAES with 256 or 512 bits). Other processors have no lines here, and the
cipher is then that of ``cryptography``: another cipher would be other noise.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from graphveil._llvm import Code, Compiled, compile_for_host

ROUNDS = 14
_WORDS = 4  # of 32 bits in a round key


def round_keys(key: bytes, blocks: int) -> npt.NDArray[np.uint8]:
    """Return the key schedule of FIPS 197 for 256 bits, shape (rounds + 1, blocks, 16).

    Each key is there once for every block of a register. The processor needs instructions for AES.
    """
    given, keys = np.frombuffer(key, np.uint8), np.empty((ROUNDS + 1, blocks, 16), np.uint8)
    _schedule(blocks)(given.ctypes.data, keys.ctypes.data)
    return keys


@cache
def _schedule(blocks: int) -> Compiled:
    return compile_for_host(_schedule_program(blocks), 0, 2)


def _schedule_program(blocks: int) -> str:
    """Return the key schedule in LLVM's assembly language.

    The words of a round key are sums, modulo 2, of the words up to there of the key before the last, and of
    the last key's last word substituted. Every second time it is rotated, too, and a constant is added.
    """
    code, kind, words = Code("k"), "<2 x i64>", f"<{_WORDS} x i32>"
    keys = [code.load(kind, code.at("%key", kind, half)) for half in range(2)]
    for step in range(2, ROUNDS + 1):
        constant = 0 if step % 2 else 1 << (step // 2 - 1)
        made = code.call(kind, "x86.aesni.aeskeygenassist", (kind, keys[-1]), ("i8", str(constant)))
        lane = _WORDS - 1 - step % 2
        word = code.mixed(code(f"bitcast {kind} {made} to {words}"), "poison", _WORDS, [lane] * _WORDS, "i32")
        whole = total = code(f"bitcast {kind} {keys[-2]} to i128")
        for shift in range(32, 128, 32):
            total = code(f"xor i128 {total}, {code(f'shl i128 {whole}, {shift}')}")
        before = code(f"bitcast i128 {total} to {kind}")
        keys.append(code(f"xor {kind} {before}, {code(f'bitcast {words} {word} to {kind}')}"))
    for place, key in enumerate(key for key in keys for _ in range(blocks)):
        code.do(f"store {kind} {key}, ptr {code.at('%keys', kind, place)}, align 1")
    declared = "\n".join(sorted(code.declared))
    return f"""
{declared}
define void @run(ptr %key, ptr noalias %keys) {{
start:
  {code}
  ret void
}}
"""


def blocks_at_once(features: Mapping[str, bool]) -> int:
    """Return how many blocks one instruction of a processor encrypts, 0 if it has none."""
    if features.get("vaes") and features.get("avx512f"):
        return 4
    if features.get("vaes") and features.get("avx2"):
        return 2
    return int(bool(features.get("aes") and features.get("sse2")))


def encrypted(code: Code, counters: Sequence[str], keys: str, blocks: int) -> list[str]:
    """Add what encrypts registers of counters, two 64-bit words a block, and return the keystream.

    The registers take each round in turns: one round waits for the one before it, but not for its neighbors.
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
