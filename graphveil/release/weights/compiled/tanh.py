"""The hyperbolic tangent in 16-bit integers: what an edge of a network can afford, the same bits everywhere.

    tanh x = s (a - b |s|),  s = max(-1, min(1, x / 2)),

two parabolas, to within 0.027, in steps of 2^-11. A product of 16-bit integers keeps its upper half, which is
one instruction for a whole vector, as is a sum that stops at the largest number.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from graphveil._llvm import Code

STEPS = 1 << 12  # in an argument of one: 16 bits go as far as 8
ONE = 1 << 11  # steps in a value of one, which none passes
COEFFICIENTS = (8570, 8274)  # 4 b and 2 a, in steps of a value
_MIN_INT16, _MAX_INT16 = -(1 << 15), (1 << 15) - 1

Short = npt.NDArray[np.int16]


@cache
def values() -> Short:
    """Return the value of every 16-bit argument, from -2^15 on."""
    s = np.clip(4 * np.arange(_MIN_INT16, _MAX_INT16 + 1), _MIN_INT16, _MAX_INT16)
    u = np.minimum(s, np.minimum(-s, _MAX_INT16))
    slope = (COEFFICIENTS[0] * u >> 16) + COEFFICIENTS[1]
    return (slope * s >> 16).astype(np.int16)


def lines(code: Code, x: str, coefficients: Sequence[str], count: int) -> str:
    """Add what computes the values of a vector of 16-bit integers, and return their name.

    The coefficients come from memory, each in all lanes: numbers that the compiler knew would tell it signs
    of products, and then it takes five instructions for their upper halves instead of one.
    """
    short = f"<{count} x i16>"

    def stopping(operation: str, one: str, other: str) -> str:
        return code.call(short, f"{operation}.v{count}i16", (short, one), (short, other))

    s = x
    for _ in range(2):
        s = stopping("sadd.sat", s, s)
    u = stopping("smin", s, stopping("ssub.sat", "zeroinitializer", s))
    slope = code(f"add {short} {_upper_half(code, coefficients[0], u, count)}, {coefficients[1]}")
    return _upper_half(code, slope, s, count)


def _upper_half(code: Code, one: str, other: str, count: int) -> str:
    """Return the products / 2^16, rounded down."""
    wide = f"<{count} x i32>"
    product = code(f"mul {wide} {code.wide(one, count)}, {code.wide(other, count)}")
    upper = code(f"ashr {wide} {product}, <{', '.join(['i32 16'] * count)}>")
    return code(f"trunc {wide} {upper} to <{count} x i16>")
