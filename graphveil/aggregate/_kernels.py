"""How edges' weights are computed in a compiled pass: the whole numbers of PairWeights, four edges at a time.

Rows of 16-bit integers stand in memory: one a source, which begins with its key, and one a target. A kernel
writes the lines that compute weights from them; :mod:`graphveil.aggregate._fused` writes what is around.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from graphveil.aggregate import _tanh
from graphveil.aggregate._llvm import Code
from graphveil.aggregate._pairs import HALF

TOGETHER = 4  # edges whose weights are computed in the same instructions
MAX_WIDTH = 128  # of a key that is computed with
_WORDS = 16  # 16-bit integers that are compared at once


@dataclass(frozen=True)
class Kernel(ABC):
    """Weights of edges from the rows of their sources and of their target.

    ``%own`` is the address of the target's row, ``%levels`` that of the table of weights, and ``%given`` that
    of 16-bit numbers that belong to no node.
    """

    key: int  # 16-bit integers that a source's row begins with,
    own: int  # and in a target's row

    def before_rows(self, code: Code) -> tuple[str, ...]:
        """Add what is done once, and return its names."""
        return ()

    @abstractmethod
    def before_edges(self, code: Code) -> tuple[str, ...]:
        """Add what is done once a target, and return its names."""

    @abstractmethod
    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], mine: tuple[str, ...]
    ) -> list[str]:
        """Add what computes four edges' weights, and return their names: twice in the halves of 32 bits.

        Args:
            code: where to.
            rows: the addresses of the sources' rows.
            once: what :meth:`before_rows` returned.
            mine: what :meth:`before_edges` returned.
        """


class DotKernel(Kernel):
    """A table over the dot product of two rows (:class:`graphveil.aggregate._pairs.Dots`)."""

    def before_edges(self, code: Code) -> tuple[str, ...]:
        """Read the target's row, twice."""
        return (_twice(code, code.load(f"<{self.own} x i16>", "%own"), self.own),)

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], mine: tuple[str, ...]
    ) -> list[str]:
        """Look dot products up, rounded to the nearest place."""
        dots = _dots(code, _keys(code, rows, self.key), mine[0], self.key)
        middle = code(f"add <4 x i32> {dots}, {_all(HALF * HALF + HALF // 2)}")
        return _looked_up(code, code(f"lshr <4 x i32> {middle}, {_all(HALF.bit_length() - 1)}"))


class KindKernel(Kernel):
    """A table over pairs of kinds (:class:`graphveil.aggregate._pairs.Kinds`); given: how many."""

    def before_rows(self, code: Code) -> tuple[str, ...]:
        """Read how many kinds there are."""
        return (code(f"zext i16 {code.load('i16', '%given')} to i64"),)

    def before_edges(self, code: Code) -> tuple[str, ...]:
        """Read the target's kind."""
        return (code(f"zext i16 {code.load('i16', '%own')} to i64"),)

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], mine: tuple[str, ...]
    ) -> list[str]:
        """Look pairs of kinds up."""
        start = code(f"mul i64 {mine[0]}, {once[0]}")
        kinds = [code(f"zext i16 {code.load('i16', row)} to i64") for row in rows]
        return [_level(code, code(f"add i64 {start}, {kind}")) for kind in kinds]


class NetworkKernel(Kernel):
    """A network of two layers (:class:`graphveil.aggregate._network.Network`).

    Given are its offset in two numbers, the lower half first, the shift to a place, the coefficients of the
    tangent, and the readout.
    """

    def before_rows(self, code: Code) -> tuple[str, ...]:
        """Read what belongs to no node."""
        offset, numbers = code.load("i32", "%given"), len(_tanh.COEFFICIENTS)
        shift, *coefficients = (code.load("i16", code.at("%given", "i16", 2 + n)) for n in range(1 + numbers))
        readout = code.load(f"<{self.key} x i16>", code.at("%given", "i16", 3 + numbers))
        return (
            code.all(offset, "i32", TOGETHER),
            code.all(code(f"zext i16 {shift} to i32"), "i32", TOGETHER),
            _twice(code, readout, self.key),
            *(code.all(coefficient, "i16", 2 * self.key) for coefficient in coefficients),
        )

    def before_edges(self, code: Code) -> tuple[str, ...]:
        """Read the target's half of the hidden units, twice."""
        return (_twice(code, code.load(f"<{self.own} x i16>", "%own"), self.own),)

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], mine: tuple[str, ...]
    ) -> list[str]:
        """Evaluate the network."""
        (offset, shift, readout, *coefficients), lanes = once, 2 * self.key
        short, units = f"<{lanes} x i16>", []
        for half in _keys(code, rows, self.key):
            x = code.call(short, f"sadd.sat.v{lanes}i16", (short, half), (short, mine[0]))
            units.append(_tanh.lines(code, x, coefficients, lanes))
        logits = code(f"add <4 x i32> {_dots(code, units, readout, self.key)}, {offset}")
        place = code(f"ashr <4 x i32> {logits}, {shift}")
        for bound, limit in (("smax", 0), ("smin", 2 * HALF)):
            place = code.call("<4 x i32>", f"{bound}.v4i32", ("<4 x i32>", place), ("<4 x i32>", _all(limit)))
        return _looked_up(code, place)


def _keys(code: Code, rows: Sequence[str], count: int) -> list[str]:
    """Return four edges' keys of 16-bit integers in two vectors, the first and third and the others."""
    keys = [code.load(f"<{count} x i16>", row) for row in rows]
    return [code.mixed(keys[edge], keys[edge + 2], count, range(2 * count)) for edge in (0, 1)]


def _twice(code: Code, vector: str, count: int) -> str:
    """Return a vector of 16-bit integers and itself again."""
    return code.mixed(vector, vector, count, range(2 * count))


def _dots(code: Code, keys: Sequence[str], mine: str, count: int) -> str:
    """Return the dot products of four edges' keys, two in a vector, with one that stands twice."""
    vector, other = f"<{2 * count} x i32>", code.wide(mine, 2 * count)
    products = [code(f"mul {vector} {code.wide(key, 2 * count)}, {other}") for key in keys]
    one, two = (code.folded(product, 2 * count) for product in products)
    return code.sums(one, two, count)


def _looked_up(code: Code, places: str) -> list[str]:
    """Return the weights at four places of the table, which travel to the addresses as one number."""
    packed = code(f"bitcast <4 x i16> {code(f'trunc <4 x i32> {places} to <4 x i16>')} to i64")
    shifted = [packed, *(code(f"lshr i64 {packed}, {16 * edge}") for edge in range(1, TOGETHER))]
    return [_level(code, code(f"and i64 {place}, 65535")) for place in shifted]


def _level(code: Code, place: str) -> str:
    """Return the weight at a place of the table."""
    return code.load("i32", code.at("%levels", "i32", place))


def _all(value: int) -> str:
    return f"<{', '.join([f'i32 {value}'] * TOGETHER)}>"
