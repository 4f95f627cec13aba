"""The exact discrete Gaussian in one compiled pass: the samples of ``_exact.py``, bit for bit.

The pass goes over strips of rows whose words stay in the cache, in steps that each do one thing to a whole
strip, so that nothing waits for the result of the line before:

1. counters of the rows' blocks are written, and encrypted in place, four registers at a time;
2. the slot of each word gives its strip, and the strip a candidate and a threshold; eight flags at a time say
   which words no threshold decides (3 %);
3. those are listed, draw further bits and are decided, eight at a time, until none is left.

What comes within ``ambiguous`` of a tie is not decided here: the caller then draws the strip the slow way,
which is arbitrary precision. So an exponential that is right to 2^-45 makes no decision that another one
would not.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import torch

from graphveil._aes import blocks_at_once, encrypted
from graphveil._aligned import Pieces, aligned
from graphveil._llvm import Code, Compiled, can_compile, compile_for_host, host_features
from graphveil._util.random import Integers

Tables = tuple[torch.Tensor, ...]  # of NumPy's arrays, whose addresses take ten times as long to ask for

_LN2 = float.fromhex("0x1.62e42fefa38p-1"), float.fromhex("0x1.ef35793c7673p-45")  # its first bits, the rest
_DEGREE = 13  # of the polynomial for exp on [-ln 2 / 2, ln 2 / 2]
_STRIP = 1 << 13  # words at a time: they and the tables stay in the cache
_LANES = 8  # words that are looked up, and decided, together
_REGISTERS = 4  # of counters that are encrypted together: the cipher takes long, but begins often
_MAX_BLOCKS = 4  # in a register
_OWN, _SPAN = 1 << 31, 1 << 11  # as in _exact.py, whose test compares all samples
_SLOT_BITS = 15
Tried = tuple[str, str]  # how many words are listed, and how often they were rejected already

_WHOLE, _BITS = f"<{_LANES} x i32>", f"<{_LANES} x i1>"


@dataclass(frozen=True, eq=False, repr=False)
class Drawing:
    """The pass for one stream and law: another compiled function may call it, a strip of rows at a time.

    It takes how many rows there are, the dimension, :attr:`rows` and :attr:`place_bits`, and the addresses of
    the rows' numbers, of the samples (:attr:`room` of them), of :attr:`shared`, of memory of :attr:`sizes`,
    which two threads need twice, and of a byte that becomes another than 0 if the samples are to be drawn
    again.
    """

    compiled: Compiled
    dim: int
    rows: int  # of a strip, at most
    place_bits: int
    shared: Tables  # what all strips read

    @property
    def room(self) -> int:
        """The samples of a strip, and what is written beyond them."""
        return self.rows * self.dim + _LANES

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each piece of memory that a strip is drawn in."""
        strip, beyond = self.rows * _width(self.dim), 4 * _REGISTERS * _MAX_BLOCKS
        return 4 * (strip + beyond), strip // 8 + 8, 4 * (strip + _LANES), 4 * (4 * strip + beyond)


@dataclass(frozen=True)
class Pass:
    """The compiled pass for the processor at hand; ``blocks`` of the cipher fill a register."""

    blocks: int
    compiled: Compiled

    def drawing(
        self, keys: npt.NDArray[np.uint8], dim: int, tables: Tables, place_bits: int, most: int
    ) -> Drawing:
        """Return the pass as others call it, with strips of at most so many rows; see :meth:`draw`."""
        width = _width(dim)
        shared: Tables = (torch.from_numpy(keys), _pattern(width // 4), *tables)
        return Drawing(self.compiled, dim, max(1, min(_STRIP // width, most)), place_bits, shared)

    def draw(
        self, keys: npt.NDArray[np.uint8], rows: Integers, dim: int, tables: Tables, place_bits: int
    ) -> tuple[npt.NDArray[np.int32], list[slice]]:
        """Return samples for the rows, shape (rows, dim), and which are to be drawn again, for a tie.

        Args:
            keys: the round keys of the stream, each for so many blocks.
            rows: row numbers.
            dim: samples a row.
            tables: by slot, the strip's number; by strip, its first integer and its threshold, its share, and
                its mask of further bits; then three numbers: DENOMINATOR / numerator, 2^-bits, and what
                counts as a tie.
            place_bits: bits of a place in a narrow strip.
        """
        drawing = self.drawing(keys, dim, tables, place_bits, len(rows))
        count = drawing.rows
        out = aligned(len(rows) * dim + _LANES, dtype=torch.int32).numpy()
        ties = np.zeros(-(-len(rows) // count), dtype=np.uint8)
        numbers, memory = np.ascontiguousarray(rows), Pieces(drawing.sizes)
        shared = (table.data_ptr() for table in drawing.shared)
        places = numbers.ctypes.data, out.ctypes.data, *shared, *memory.places, ties.ctypes.data
        self.compiled(len(rows), dim, count, place_bits, *places)
        again = [slice(k * count, (k + 1) * count) for k in np.flatnonzero(ties).tolist()]
        return out[: len(rows) * dim].reshape(len(rows), dim), again


def _width(dim: int) -> int:
    """Return how many words a row of samples begins with."""
    return -(-dim // _LANES) * _LANES


@lru_cache(maxsize=16)
def _pattern(blocks: int) -> torch.Tensor:
    """Return what the counters of a row's first blocks differ in: their number, bytes reversed."""
    pattern = np.zeros((blocks, 2), dtype=np.uint64)
    pattern[:, 1] = np.arange(blocks, dtype=np.uint32).byteswap().astype(np.uint64) << np.uint64(32)
    return torch.from_numpy(pattern.view(np.int64))


def compiled_pass() -> Pass | None:
    """Return the pass, None without a compiler or where the processor has no instructions for AES."""
    return _pass() if can_compile() else None


@cache
def _pass() -> Pass | None:
    blocks = blocks_at_once(host_features())
    return made(blocks) if blocks else None


def made(blocks: int) -> Pass:
    """Compile the pass for registers of so many blocks."""
    return Pass(blocks, compile_for_host(_program(blocks), 4, 14))


def _program(blocks: int) -> str:
    """Return the pass in LLVM's assembly language."""
    code = Code("x")
    width = code(f"and i64 {code(f'add i64 %dim, {_LANES - 1}')}, -{_LANES}")  # of a row of words
    with code.each("%count", "%strip") as first:
        left = code(f"sub i64 %count, {first}")
        count = code.call("i64", "umin.i64", ("i64", left), ("i64", "%strip"))
        rows = code.at("%rows", "i64", first)
        out = code.at("%out", "i32", code(f"mul nuw i64 {first}, %dim"))
        _write_counters(code, rows, count, width)
        _encrypt(code, "%words", code(f"mul nuw i64 {count}, {width}"), blocks)
        _look_up(code, out, count, width)
        listed = _list(code, code(f"mul nuw i64 {count}, {width}"))
        tie = code.at("%ties", "i8", code(f"udiv i64 {first}, %strip"))
        with code.loop("ne", "0", ("i64", listed), ("i64", "0")) as tries:
            tried = tries.values[0], tries.values[1]
            _write_retry_counters(code, tried, rows, width)
            every_lane = code(f"and i64 {code(f'add i64 {tried[0]}, {_LANES - 1}')}, -{_LANES}")
            _encrypt(code, "%asked", code(f"shl nuw i64 {every_lane}, 2"), blocks)
            kept = _decide(code, tried, out, tie, width)
            tries.then = [kept, code(f"add nuw i64 {tries.values[1]}, 1")]
    declared = "\n".join(sorted(code.declared))
    return f"""
{declared}
define void @run(i64 %count, i64 %dim, i64 %strip, i64 %place_bits, ptr %rows, ptr noalias %out,
                 ptr %keys, ptr %pattern, ptr %slots, ptr %strips, ptr %share, ptr %more,
                 ptr %numbers, ptr noalias %words, ptr noalias %flags, ptr noalias %pending,
                 ptr noalias %asked, ptr noalias %ties) {{
start:
  {code}
  ret void
}}
"""


def _halves(code: Code, row: str, block: str) -> tuple[str, str]:
    """Return the counter of a row's block in the cipher's byte order, as two 64-bit words."""
    lower = code(f"or i64 {code(f'shl i64 {row}, 32')}, {block}")
    upper = code(f"lshr i64 {row}, 32")
    return code.call("i64", "bswap.i64", ("i64", upper)), code.call("i64", "bswap.i64", ("i64", lower))


def _write_counters(code: Code, rows: str, count: str, width: str) -> None:
    """Write the counters of the first blocks of each row, two at a time."""
    blocks, kind = code(f"lshr i64 {width}, 2"), "<4 x i64>"
    with code.each(count) as r:
        halves = _halves(code, code.load("i64", code.at(rows, "i64", r)), "0")
        row, own = code.gathered(halves * 2, "i64"), code(f"mul nuw i64 {r}, {blocks}")
        with code.each(blocks, 2) as block:
            pattern = code.load(kind, code.at("%pattern", "[2 x i64]", block))
            place = code.at("%words", "[2 x i64]", code(f"add nuw i64 {own}, {block}"))
            code.do(f"store {kind} {code(f'or {kind} {row}, {pattern}')}, ptr {place}, align 8")


def _encrypt(code: Code, counters: str, words: str, blocks: int) -> None:
    """Encrypt counters in place, some registers at a time: up to one time more than there are."""
    kind, step = f"<{2 * blocks} x i64>", 4 * blocks
    with code.each(words, _REGISTERS * step) as first:
        place = code.at(counters, "i32", first)
        places = [code.at(place, kind, k) for k in range(_REGISTERS)]
        drawn = encrypted(code, [code.load(kind, each) for each in places], "%keys", blocks)
        for each, keystream in zip(places, drawn, strict=True):
            code.do(f"store {kind} {keystream}, ptr {each}, align 8")


def _look_up(code: Code, out: str, count: str, width: str) -> None:
    """Write the candidate of each word, and flag those that no threshold decides, eight to a byte.

    What is written beyond a row is written over by the next one, and its flags are cleared.
    """
    kind = f"<{_LANES} x i32>"
    low = code("trunc i64 %place_bits to i32")
    mask = code.all(code(f"sub i32 {code(f'shl i32 1, {low}')}, 1"), "i32", _LANES)
    beyond = code(f"trunc i64 {code(f'sub i64 {width}, %dim')} to i8")
    inside, bytes_a_row = code(f"lshr i8 -1, {beyond}"), code(f"lshr i64 {width}, 3")
    with code.each(count) as r:
        words = code.at("%words", "i32", code(f"mul nuw i64 {r}, {width}"))
        own = code.at(out, "i32", code(f"mul nuw i64 {r}, %dim"))
        flags = code.at("%flags", "i8", code(f"mul nuw i64 {r}, {bytes_a_row}"))
        with code.each(width, _LANES) as c:
            place = code.at(words, "i32", c)
            entries = []
            for lane in range(_LANES):  # loaded one by one: taking a register apart is slower
                word = code(f"load volatile i32, ptr {code.at(place, 'i32', lane)}")
                slot = code(f"and i32 {code(f'lshr i32 {word}, {low}')}, {(1 << _SLOT_BITS) - 1}")
                strip = code.load("i16", code.at("%slots", "i16", code(f"zext i32 {slot} to i64")))
                entries.append(code.load("i64", code.at("%strips", "i64", code(f"zext i16 {strip} to i64"))))
            pairs = code(f"bitcast <{_LANES} x i64> {code.gathered(entries, 'i64')} to <{2 * _LANES} x i32>")
            start, sure = (
                code.mixed(pairs, "poison", 2 * _LANES, range(part, 2 * _LANES, 2), "i32") for part in (0, 1)
            )
            drawn = code.load(kind, place)
            candidates = code(f"add {kind} {start}, {code(f'and {kind} {drawn}, {mask}')}")
            code.do(f"store {kind} {candidates}, ptr {code.at(own, 'i32', c)}, align 4")
            unsure = code(f"bitcast <{_LANES} x i1> {code(f'icmp uge {kind} {drawn}, {sure}')} to i{_LANES}")
            code.do(f"store i8 {unsure}, ptr {code.at(flags, 'i8', code(f'lshr i64 {c}, 3'))}")
        last = code.at(flags, "i8", code(f"sub i64 {bytes_a_row}, 1"))
        kept = code(f"and i8 {code.load('i8', last)}, {inside}")
        code.do(f"store i8 {kept}, ptr {last}")


def _list(code: Code, words: str) -> str:
    """List the places of the words that are flagged, and return how many there are."""
    end = code.at("%flags", "i8", code(f"lshr i64 {words}, 3"))
    code.do(f"store i64 0, ptr {end}, align 1")
    with code.loop("ult", words, ("i64", "0"), ("i64", "0")) as loop:
        first, listed = loop.values
        flags = code(f"load i64, ptr {code.at('%flags', 'i8', code(f'lshr i64 {first}, 3'))}, align 1")
        with code.loop("ne", "0", ("i64", flags), ("i64", listed)) as bits:
            left, place = bits.values
            lane = code.call("i64", "cttz.i64", ("i64", left), ("i1", "true"))
            word = code(f"trunc i64 {code(f'add nuw i64 {first}, {lane}')} to i32")
            code.do(f"store i32 {word}, ptr {code.at('%pending', 'i32', place)}")
            fewer = code(f"and i64 {left}, {code(f'sub i64 {left}, 1')}")
            bits.then = [fewer, code(f"add nuw i64 {place}, 1")]
        loop.then = [code(f"add nuw i64 {first}, 64"), bits.values[1]]
    return loop.values[1]


def _write_retry_counters(code: Code, tried: Tried, rows: str, width: str) -> None:
    """Write the counters of the blocks that listed words draw from."""
    listed, attempt = tried
    begin = code.all(code(f"trunc i64 {code(f'add i64 {attempt}, {_OWN}')} to i32"), "i32", _LANES)
    span = code.all(str(_SPAN), "i32", _LANES)
    with code.each(listed, _LANES) as i:
        row, column = _apart(code, _some(code, i, listed)[0], width)
        blocks = code(f"add {_WHOLE} {code(f'mul {_WHOLE} {column}, {span}')}, {begin}")
        place = code.at("%asked", "[2 x i64]", i)
        owners = zip(_addresses(code, rows, "i64", row), code.lanes(blocks, "i32", _LANES), strict=True)
        for lane, (at, block) in enumerate(owners):
            halves = _halves(code, code.load("i64", at), code(f"zext i32 {block} to i64"))
            for k, half in enumerate(halves):
                code.do(f"store i64 {half}, ptr {code.at(place, 'i64', 2 * lane + k)}")


def _decide(code: Code, tried: Tried, out: str, tie: str, width: str) -> str:
    """Decide about listed words with what they drew; list those that are rejected; return how many are."""
    listed, attempt = tried
    is_first = code(f"icmp eq i64 {attempt}, 0")
    with code.loop("ult", listed, ("i64", "0"), ("i64", "0")) as loop:
        i, kept = loop.values
        places, inside = _some(code, i, listed)
        row, column = _apart(code, places, width)
        fresh, more = _drawn(code, i)
        old = code.gathered([code.load("i32", at) for at in _addresses(code, "%words", "i32", places)], "i32")
        words = code(f"select i1 {is_first}, {_WHOLE} {old}, {_WHOLE} {fresh}")
        values, accepted, near = _compared(code, words, more)
        near = code(f"or i8 {code.load('i8', tie)}, {_flags(code, near)}")
        code.do(f"store i8 {near}, ptr {tie}")
        dim = code.all(code("trunc i64 %dim to i32"), "i32", _LANES)
        own = code(f"add {_WHOLE} {code(f'mul {_WHOLE} {row}, {dim}')}, {column}")
        for value, at in zip(
            code.lanes(values, "i32", _LANES), _addresses(code, out, "i32", own), strict=True
        ):
            code.do(f"store i32 {value}, ptr {at}")
        stays = _flags(code, code(f"select {_BITS} {accepted}, {_BITS} zeroinitializer, {_BITS} {inside}"))
        stays = code(f"zext i{_LANES} {stays} to i64")
        for lane, place in enumerate(code.lanes(places, "i32", _LANES)):
            code.do(f"store i32 {place}, ptr {code.at('%pending', 'i32', kept)}")
            one = code(f"and i64 {code(f'lshr i64 {stays}, {lane}')}, 1")
            kept = code(f"add nuw i64 {kept}, {one}")
        loop.then = [code(f"add nuw i64 {i}, {_LANES}"), kept]
    return loop.values[1]


def _some(code: Code, i: str, listed: str) -> tuple[str, str]:
    """Return some listed places from one on, and which are there; other lanes do the first one's work."""
    places = code.load(_WHOLE, code.at("%pending", "i32", i))
    left = code.all(code(f"trunc i64 {code(f'sub i64 {listed}, {i}')} to i32"), "i32", _LANES)
    numbers = "<" + ", ".join(f"i32 {lane}" for lane in range(_LANES)) + ">"
    inside = code(f"icmp ult {_WHOLE} {numbers}, {left}")
    first = code.all(code(f"extractelement {_WHOLE} {places}, i64 0"), "i32", _LANES)
    return code(f"select {_BITS} {inside}, {_WHOLE} {places}, {_WHOLE} {first}"), inside


def _apart(code: Code, places: str, width: str) -> tuple[str, str]:
    """Return the rows of a strip and the columns that places of words belong to."""
    real = f"<{_LANES} x double>"
    share = code(f"fdiv double 1.0, {code(f'uitofp i64 {width} to double')}")
    middle = code(f"fadd {real} {code(f'sitofp {_WHOLE} {places} to {real}')}, {_real(code, 0.5)}")
    row = code(f"fmul {real} {middle}, {code.all(share, 'double', _LANES)}")
    row = code(f"fptosi {real} {row} to {_WHOLE}")
    columns = code.all(code(f"trunc i64 {width} to i32"), "i32", _LANES)
    return row, code(f"sub {_WHOLE} {places}, {code(f'mul {_WHOLE} {row}, {columns}')}")


def _drawn(code: Code, i: str) -> tuple[str, str]:
    """Return of some blocks that were asked for the lower halves of the first words, and the second words."""
    blocks = f"<{2 * _LANES} x i64>"
    drawn = code(f"load {blocks}, ptr {code.at('%asked', '[2 x i64]', i)}, align 8")
    first, second = (code.mixed(drawn, "poison", 2 * _LANES, range(k, 2 * _LANES, 2), "i64") for k in (0, 1))
    return code(f"trunc <{_LANES} x i64> {first} to {_WHOLE}"), second


def _compared(code: Code, words: str, more: str) -> tuple[str, str, str]:
    """Return candidates, and which of them are accepted and which come near a tie."""
    real, wide = f"<{_LANES} x double>", f"<{_LANES} x i64>"
    over_s, unit, ambiguous = (
        code.all(code.load("double", code.at("%numbers", "double", k)), "double", _LANES) for k in range(3)
    )
    low, slot_bits = (
        code.all(each, "i32", _LANES) for each in (code("trunc i64 %place_bits to i32"), str(_SLOT_BITS))
    )
    narrow = code(f"sub i64 {code('shl i64 1, %place_bits')}, 1")
    slot = code(f"lshr {_WHOLE} {words}, {low}")
    slot = code(f"and {_WHOLE} {slot}, {code.all(str((1 << _SLOT_BITS) - 1), 'i32', _LANES)}")
    strip = code.gathered([code.load("i16", at) for at in _addresses(code, "%slots", "i16", slot)], "i16")
    strip = code(f"zext <{_LANES} x i16> {strip} to {_WHOLE}")
    start, share, mask = (
        code.gathered([code.load(kind, at) for at in _addresses(code, table, entry, strip)], kind)
        for table, entry, kind in (
            ("%strips", "i64", "i32"),
            ("%share", "double", "double"),
            ("%more", "i32", "i32"),
        )
    )
    place = code(f"and {_WHOLE} {words}, {code.all(code(f'trunc i64 {narrow} to i32'), 'i32', _LANES)}")
    further = code(f"and {_WHOLE} {code(f'trunc {wide} {more} to {_WHOLE}')}, {mask}")
    place = code(f"or {_WHOLE} {place}, {code(f'shl {_WHOLE} {further}, {low}')}")
    values = code(f"add {_WHOLE} {start}, {place}")
    x = code(f"fmul {real} {code(f'sitofp {_WHOLE} {values} to {real}')}, {over_s}")
    exponent = code(f"fmul {real} {code(f'fmul {real} {x}, {x}')}, {_real(code, -0.5)}")
    p = code(f"fmul {real} {share}, {_exponential(code, exponent)}")
    begun = code(f"lshr {_WHOLE} {words}, {code(f'add {_WHOLE} {low}, {slot_bits}')}")
    u = code(f"fadd {real} {code(f'sitofp {_WHOLE} {begun} to {real}')}, {_fraction(code, more)}")
    u = code(f"fmul {real} {u}, {unit}")
    gap = code(f"fsub {real} {u}, {p}")
    near = code(f"fcmp olt {real} {code.call(real, f'fabs.v{_LANES}f64', (real, gap))}, {ambiguous}")
    return values, code(f"fcmp olt {real} {u}, {p}"), near


def _fraction(code: Code, bits: str) -> str:
    """Return the highest 52 bits of 64 as a number below one, exactly: one less than a number above one."""
    real, wide = f"<{_LANES} x double>", f"<{_LANES} x i64>"
    one = code.all(str(1023 << 52), "i64", _LANES)
    number = code(f"lshr {wide} {bits}, {code.all('12', 'i64', _LANES)}")
    number = code(f"or {wide} {number}, {one}")
    return code(f"fsub {real} {code(f'bitcast {wide} {number} to {real}')}, {_real(code, 1.0)}")


def _exponential(code: Code, x: str) -> str:
    """Return exp(x) for -700 < x <= 0: 2^k exp(r), r between -ln 2 / 2 and ln 2 / 2, by its series."""
    real, wide = f"<{_LANES} x double>", f"<{_LANES} x i64>"
    turns = code(f"fmul {real} {x}, {_real(code, 1 / math.log(2))}")
    k = code.call(real, f"rint.v{_LANES}f64", (real, turns))
    for part in _LN2:
        product = code(f"fmul contract {real} {k}, {_real(code, part)}")
        x = code(f"fsub contract {real} {x}, {product}")
    total = _real(code, 1 / math.factorial(_DEGREE))
    for power in range(_DEGREE - 1, -1, -1):
        product = code(f"fmul contract {real} {total}, {x}")
        total = code(f"fadd contract {real} {product}, {_real(code, 1 / math.factorial(power))}")
    whole = code(f"sext {_WHOLE} {code(f'fptosi {real} {k} to {_WHOLE}')} to {wide}")
    exponent = code(f"add {wide} {whole}, {code.all('1023', 'i64', _LANES)}")
    bits = code(f"shl {wide} {exponent}, {code.all('52', 'i64', _LANES)}")
    return code(f"fmul {real} {total}, {code(f'bitcast {wide} {bits} to {real}')}")


def _flags(code: Code, flags: str) -> str:
    """Return flags as the bits of an integer."""
    return code(f"bitcast {_BITS} {flags} to i{_LANES}")


def _addresses(code: Code, table: str, kind: str, places: str) -> list[str]:
    """Return the addresses of some entries of a table."""
    return [
        code.at(table, kind, code(f"zext i32 {place} to i64")) for place in code.lanes(places, "i32", _LANES)
    ]


def _real(code: Code, value: float) -> str:
    """Return a vector with one number in all lanes."""
    return code.all(f"0x{np.float64(value).view(np.uint64):016X}", "double", _LANES)
