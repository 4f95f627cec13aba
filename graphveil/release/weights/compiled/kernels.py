"""How edges' weights are computed in a compiled pass: the whole numbers of PairWeights, four edges at a time.

Rows of 16-bit integers stand in memory: one a source, which begins with its key, and one a target. A kernel
writes the lines that compute weights from them; ``fused_sum.py`` writes what is around.

Why so. Sixteen bits are as many as a weight needs (places of a table of 4,097) and few enough for 32 columns
of key and vector to fill one line of the cache. Four edges are computed together because the sum over
the lanes of one dot product takes log2(lanes) dependent steps, more than the product itself; the steps of
four dot products interleave and end in one vector, which is shifted, clipped and looked up at once. What is
the same for all edges of a target (its own half of the key) is read once a target and kept in registers,
which is why every kernel says what it does before rows, before edges, and at an edge.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphveil._llvm import Code
from graphveil.release.weights.compiled import tanh as _tanh
from graphveil.release.weights.tables import FULL, HALF

TOGETHER = 4  # edges whose weights are computed in the same instructions
MAX_WIDTH = 128  # of a key that is computed with
BLOCK = 16  # 16-bit words of a set that are compared at once
NO_MEMBER = (1 << 16) - 1  # the member that fills a list up


class TargetRow(NamedTuple):
    """A target's number among the pass's, and the address of its row."""

    number: str
    row: str


@dataclass(frozen=True)
class Kernel(ABC):
    """Weights of edges from the rows of their sources and of their target.

    ``%levels`` is the address of the table of weights, and ``%given`` that of 16-bit numbers that belong to
    no node.
    """

    key: int  # 16-bit integers that a source's row begins with, and that a target's has

    def before_rows(self, code: Code) -> tuple[str, ...]:
        """Add what is done once, and return its names."""
        return ()

    @abstractmethod
    def before_edges(self, code: Code, once: tuple[str, ...], target: TargetRow) -> tuple[str, ...]:
        """Add what is done once a target, and return its names."""

    @abstractmethod
    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], target_values: tuple[str, ...]
    ) -> list[str]:
        """Add what computes four edges' weights, and return their names: twice in the halves of 32 bits.

        Args:
            code: where to.
            rows: the addresses of the sources' rows.
            once: what :meth:`before_rows` returned.
            target_values: what :meth:`before_edges` did.
        """


class DotKernel(Kernel):
    """A table over the dot product of two rows (:class:`graphveil.release.weights.tables.Dots`)."""

    def before_edges(self, code: Code, once: tuple[str, ...], target: TargetRow) -> tuple[str, ...]:
        """Read the target's row, twice."""
        return (_twice(code, code.load(f"<{self.key} x i16>", target.row), self.key),)

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], target_values: tuple[str, ...]
    ) -> list[str]:
        """Look dot products up, rounded to the nearest place."""
        dots = _dots(code, _keys(code, rows, self.key), target_values[0], self.key)
        middle = code(f"add <4 x i32> {dots}, {_all(HALF * HALF + HALF // 2)}")
        return _lookup(code, code(f"lshr <4 x i32> {middle}, {_all(HALF.bit_length() - 1)}"))


class CategoryKernel(Kernel):
    """A table over pairs of kinds (:class:`graphveil.release.weights.tables.Kinds`); given: how many."""

    def before_rows(self, code: Code) -> tuple[str, ...]:
        """Read how many kinds there are."""
        return (code(f"zext i16 {code.load('i16', '%given')} to i64"),)

    def before_edges(self, code: Code, once: tuple[str, ...], target: TargetRow) -> tuple[str, ...]:
        """Read the target's kind."""
        return (code(f"zext i16 {code.load('i16', target.row)} to i64"),)

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], target_values: tuple[str, ...]
    ) -> list[str]:
        """Look pairs of kinds up."""
        start = code(f"mul i64 {target_values[0]}, {once[0]}")
        kinds = [code(f"zext i16 {code.load('i16', row)} to i64") for row in rows]
        return [_level(code, code(f"add i64 {start}, {kind}")) for kind in kinds]


class NetworkKernel(Kernel):
    """A network of two layers (:class:`graphveil.release.weights.network.Network`).

    The first layer is linear in each end, so both halves are computed once a node, and an edge costs their
    sum, the tangent and one dot product. A table of the tangent would be a look a hidden unit, one after the
    other; two parabolas are eight instructions for all units of two edges.

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

    def before_edges(self, code: Code, once: tuple[str, ...], target: TargetRow) -> tuple[str, ...]:
        """Read the target's half of the hidden units, twice."""
        return (_twice(code, code.load(f"<{self.key} x i16>", target.row), self.key),)

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], target_values: tuple[str, ...]
    ) -> list[str]:
        """Evaluate the network."""
        (offset, shift, readout, *coefficients), lanes = once, 2 * self.key
        short, units = f"<{lanes} x i16>", []
        for half in _keys(code, rows, self.key):
            x = code.call(short, f"sadd.sat.v{lanes}i16", (short, half), (short, target_values[0]))
            units.append(_tanh.lines(code, x, coefficients, lanes))
        logits = code(f"add <4 x i32> {_dots(code, units, readout, self.key)}, {offset}")
        place = code(f"ashr <4 x i32> {logits}, {shift}")
        for bound, limit in (("smax", 0), ("smin", 2 * HALF)):
            place = code.call("<4 x i32>", f"{bound}.v4i32", ("<4 x i32>", place), ("<4 x i32>", _all(limit)))
        return _lookup(code, place)


class BitKernel(Kernel):
    """The Jaccard index of sets of bits (:class:`graphveil.release.weights.set_overlap.BitSets`).

    A row is how many members a set has, in 16 bits, and its bits, in blocks.
    """

    def before_edges(self, code: Code, once: tuple[str, ...], target: TargetRow) -> tuple[str, ...]:
        """Read the target's set, twice, without its size, and its size."""
        size = code(f"zext i16 {code.load('i16', target.row)} to i32")
        blocks = [code.load(_BLOCK, code.at(target.row, "i16", start)) for start in range(0, self.key, BLOCK)]
        blocks[0] = code(f"insertelement {_BLOCK} {blocks[0]}, i16 0, i64 0")
        twice = (code(f"bitcast <32 x i16> {_twice(code, block, BLOCK)} to <8 x i64>") for block in blocks)
        return code.all(size, "i32", TOGETHER), *twice

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], target_values: tuple[str, ...]
    ) -> list[str]:
        """Count common bits."""
        size, *blocks = target_values
        common = ["zeroinitializer"] * 2
        for start, block in enumerate(blocks):
            places = [code.at(row, "i16", start * BLOCK) for row in rows]
            for pair, bits in enumerate(_keys(code, places, BLOCK)):
                both = code(f"and <8 x i64> {block}, {code(f'bitcast <32 x i16> {bits} to <8 x i64>')}")
                members = code.call("<8 x i64>", "ctpop.v8i64", ("<8 x i64>", both))
                common[pair] = code(f"add <8 x i64> {common[pair]}, {members}")
        one, two = (code(f"trunc <8 x i64> {members} to <8 x i32>") for members in common)
        return _jaccard(code, code.sums(one, two, 8), rows, size)


class ListKernel(Kernel):
    """The Jaccard index of lists of members (:class:`graphveil.release.weights.set_overlap.ListSets`).

    A row is how many members a set has, the members, and one that is nobody's. The target's are marked on a
    map of all that there could be, and its sources' are looked up there. To merge two sorted lists would
    branch at each member by what the data say, which processors guess wrong; a look on the map does not
    branch, and all targets share the map, which stays in the cache.
    """

    def before_rows(self, code: Code) -> tuple[str, ...]:
        """Make an empty map."""
        places = code(f"alloca [{NO_MEMBER + 1} x i8]")
        code.clear(places, NO_MEMBER + 1)
        return (places,)

    def before_edges(self, code: Code, once: tuple[str, ...], target: TargetRow) -> tuple[str, ...]:
        """Mark the target's members, and those of the target before no more; read how many they are."""
        (places,) = once
        first = code(f"icmp eq i64 {target.number}, 0")
        before = code(f"select i1 {first}, ptr {target.row}, ptr {code.at(target.row, 'i16', -self.key)}")
        for row, mark in ((before, 0), (target.row, 1)):
            for member in self._members(code, row):
                code.do(f"store i8 {mark}, ptr {code.at(places, 'i8', member)}")
        code.do(f"store i8 0, ptr {code.at(places, 'i8', NO_MEMBER)}")
        return (code.all(code(f"zext i16 {code.load('i16', target.row)} to i32"), "i32", TOGETHER),)

    def weights(
        self, code: Code, rows: Sequence[str], once: tuple[str, ...], target_values: tuple[str, ...]
    ) -> list[str]:
        """Count marked members."""
        return _jaccard(
            code,
            code.gathered([self._common(code, row, once[0]) for row in rows], "i32"),
            rows,
            target_values[0],
        )

    def _common(self, code: Code, row: str, places: str) -> str:
        """Return how many of a source's members are marked."""
        common = "0"
        for member in self._members(code, row):
            mark = code(f"zext i8 {code.load('i8', code.at(places, 'i8', member))} to i32")
            common = code(f"add i32 {common}, {mark}")
        return common

    def _members(self, code: Code, row: str) -> list[str]:
        """Return the members in a row."""
        short = [code.load("i16", code.at(row, "i16", place)) for place in range(1, self.key)]
        return [code(f"zext i16 {member} to i64") for member in short]


def _jaccard(code: Code, common: str, rows: Sequence[str], size: str) -> list[str]:
    """Return |A & B| / |A | B| for four edges, to the nearest and from the middle up, as in whole numbers.

    The quotient of two whole numbers below 2^24 is rounded once, by less than what parts it from the next
    whole number above: rounding down gives that of the exact quotient. So a float's division serves, which
    vectors have and whole numbers do not, and the bits are those of the slow way.
    """
    four, real = "<4 x i32>", "<4 x float>"
    sizes = code(f"zext <4 x i16> {code.gathered([code.load('i16', row) for row in rows], 'i16')} to {four}")
    union = code(f"sub {four} {code(f'add {four} {sizes}, {size}')}, {common}")
    union = code.call(four, "smax.v4i32", (four, union), (four, _all(1)))
    above = code(f"add {four} {code(f'mul {four} {common}, {_all(2 * FULL)}')}, {union}")
    below = code(f"shl {four} {union}, {_all(1)}")
    above, below = (code(f"sitofp {four} {number} to {real}") for number in (above, below))
    index = code(f"fptosi {real} {code(f'fdiv {real} {above}, {below}')} to {four}")
    return code.lanes(code(f"mul {four} {index}, {_all((1 << 16) + 1)}"), "i32", TOGETHER)


def _keys(code: Code, rows: Sequence[str], count: int) -> list[str]:
    """Return four edges' keys of 16-bit integers in two vectors, the first and third and the others."""
    keys = [code.load(f"<{count} x i16>", row) for row in rows]
    return [code.mixed(keys[edge], keys[edge + 2], count, range(2 * count)) for edge in (0, 1)]


def _twice(code: Code, vector: str, count: int) -> str:
    """Return a vector of 16-bit integers and itself again."""
    return code.mixed(vector, vector, count, range(2 * count))


def _dots(code: Code, keys: Sequence[str], target_values: str, count: int) -> str:
    """Return the dot products of four edges' keys, two in a vector, with one that stands twice."""
    vector, other = f"<{2 * count} x i32>", code.wide(target_values, 2 * count)
    products = [code(f"mul {vector} {code.wide(key, 2 * count)}, {other}") for key in keys]
    one, two = (code.folded(product, 2 * count) for product in products)
    return code.sums(one, two, count)


def _lookup(code: Code, places: str) -> list[str]:
    """Return the weights at four places of the table, which travel to the addresses as one number."""
    packed = code(f"bitcast <4 x i16> {code(f'trunc <4 x i32> {places} to <4 x i16>')} to i64")
    shifted = [packed, *(code(f"lshr i64 {packed}, {16 * edge}") for edge in range(1, TOGETHER))]
    return [_level(code, code(f"and i64 {place}, 65535")) for place in shifted]


def _level(code: Code, place: str) -> str:
    """Return the weight at a place of the table."""
    return code.load("i32", code.at("%levels", "i32", place))


_BLOCK = f"<{BLOCK} x i16>"


def _all(value: int) -> str:
    return f"<{', '.join([f'i32 {value}'] * TOGETHER)}>"
