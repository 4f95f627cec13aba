"""The exact discrete Gaussian in one compiled pass: the samples of ``_exact.py``, bit for bit.

The cipher's words are made in registers and used there. A first loop goes over rows: it encrypts a register
of counters, looks the slot of each word up, writes the candidates, and lists the words that no threshold
decides (3 %). A second one draws the further bits of those, a register of blocks at a time, and compares in
float64, until none is left. What comes within ``ambiguous`` of a tie is not decided here: the caller then
draws the chunk the slow way, which is arbitrary precision. So an exponential that is right to 2^-45 makes no
decision that another one would not.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from graphveil._aes import blocks_at_once, encrypted
from graphveil._llvm import Code, Compiled, can_compile, compile_for_host, host_features
from graphveil._random import Integers

Tables = tuple[npt.NDArray[np.generic], ...]

_LN2 = float.fromhex("0x1.62e42fefa38p-1"), float.fromhex("0x1.ef35793c7673p-45")  # its first bits, the rest
_DEGREE = 13  # of the polynomial for exp on [-ln 2 / 2, ln 2 / 2]
_CHUNK = 1 << 15  # samples at a time: their words and the tables stay in the cache
_OWN, _SPAN = 1 << 31, 1 << 11  # as in _exact.py, whose test compares all samples


@dataclass(frozen=True)
class Pass:
    """The compiled pass for the processor at hand; ``blocks`` of the cipher fill a register."""

    blocks: int
    compiled: Compiled

    def draw(
        self,
        keys: npt.NDArray[np.uint8],
        rows: Integers,
        dim: int,
        tables: Tables,
        place_bits: int,
        bits: int,
    ) -> tuple[npt.NDArray[np.int32], list[slice]]:
        """Return samples for the rows, shape (rows, dim), and which are to be drawn again, for a tie.

        Args:
            keys: the round keys of the stream.
            rows: row numbers.
            dim: samples a row.
            tables: by slot, offset, threshold, start, mask of further bits and share; then three numbers:
                DENOMINATOR / numerator, 2^-bits, and what counts as a tie.
            place_bits: bits of a place in a narrow strip.
            bits: how many of a word's bits begin its uniform.
        """
        lanes, count = 4 * self.blocks, max(1, _CHUNK // dim)
        out = np.empty(len(rows) * dim + lanes, dtype=np.int32)
        scratch = min(count, len(rows)) * dim + lanes
        words, pending = np.empty(scratch, dtype=np.uint32), np.empty(scratch, dtype=np.int64)
        groups, ties = -(-dim // lanes), np.zeros(1, dtype=np.int64)
        rows = np.ascontiguousarray(rows)
        repeated = np.repeat(keys[:, None], self.blocks, axis=1)
        arrays: Tables = repeated, _pattern(groups * self.blocks), *tables
        fixed = [array.ctypes.data for array in arrays]
        work = [array.ctypes.data for array in (words, pending, ties)]
        again = []
        for first in range(0, len(rows), count):
            some = slice(first, min(first + count, len(rows)))
            own = rows.ctypes.data + first * rows.itemsize, out.ctypes.data + first * dim * out.itemsize
            self.compiled(some.stop - first, dim, groups, place_bits, bits, *own, *fixed, *work)
            if ties[0]:
                ties[0] = 0
                again.append(some)
        return out[: len(rows) * dim].reshape(len(rows), dim), again


@lru_cache(maxsize=16)
def _pattern(blocks: int) -> Integers:
    """Return what the counters of a row's first blocks differ in: their number, bytes reversed."""
    pattern = np.zeros((blocks, 2), dtype=np.uint64)
    pattern[:, 1] = np.arange(blocks, dtype=np.uint32).byteswap().astype(np.uint64) << np.uint64(32)
    return pattern.view(np.int64)


def compiled_pass() -> Pass | None:
    """Return the pass, None without a compiler or where the processor has no instructions for AES."""
    return _pass() if can_compile() else None


@cache
def _pass() -> Pass | None:
    blocks = blocks_at_once(host_features())
    return Pass(blocks, compile_for_host(_program(blocks), 5, 12)) if blocks else None


def _program(blocks: int) -> str:
    """Return the pass in LLVM's assembly language."""
    lanes, once, row, word, last = 4 * blocks, Code("o"), Code("r"), Code("w"), Code("l")
    low = once("trunc i64 %place_bits to i32")
    mask = once(f"sub i32 {once(f'shl i32 {1 << 15}, {low}')}, 1")  # of slot and place
    fixed = once.all(mask, "i32", lanes), once.all(low, "i32", lanes)
    counter = _all_blocks(row, _halves(row, row.load("i64", row.at("%rows", "i64", "%r"))), blocks)
    unsure = _candidates(word, counter, fixed, lanes)
    kept = _decisions(last, blocks)
    declared = "\n".join(sorted(set[str]().union(*(part.declared for part in (once, row, word, last)))))
    return f"""
{declared}
define void @run(i64 %count, i64 %dim, i64 %groups, i64 %place_bits, i64 %bits, ptr %rows,
                 ptr noalias %out, ptr %keys, ptr %pattern, ptr %first_table, ptr %start, ptr %more,
                 ptr %share, ptr %numbers, ptr noalias %words, ptr noalias %pending, ptr %ties) {{
begin:
  {once}
  %any = icmp ult i64 0, %count
  br i1 %any, label %row, label %end
row:
  %r = phi i64 [0, %begin], [%next_row, %row_done]
  %listed = phi i64 [0, %begin], [%known, %row_done]
  %next_row = add nuw i64 %r, 1
  %base = mul nuw i64 %r, %dim
  %high = shl i64 %r, 32
  {row}
  br label %group
group:
  %g = phi i64 [0, %row], [%next_group, %group_done]
  %before = phi i64 [%listed, %row], [%known, %group_done]
  %next_group = add nuw i64 %g, 1
  %first = mul nuw i64 %g, {lanes}
  {word}
  %unsure = zext i{lanes} {unsure} to i64
  %some = icmp ne i64 %unsure, 0
  br i1 %some, label %list, label %group_done
list:
  %left = phi i64 [%unsure, %group], [%fewer, %list]
  %place = phi i64 [%before, %group], [%after, %list]
  %lane = call i64 @llvm.cttz.i64(i64 %left, i1 true)
  %coordinate = add nuw i64 %first, %lane
  %entry = or i64 %high, %coordinate
  %slot = getelementptr i64, ptr %pending, i64 %place
  store i64 %entry, ptr %slot
  %after = add nuw i64 %place, 1
  %lower = sub i64 %left, 1
  %fewer = and i64 %left, %lower
  %again = icmp ne i64 %fewer, 0
  br i1 %again, label %list, label %group_done
group_done:
  %known = phi i64 [%before, %group], [%after, %list]
  %more_groups = icmp ult i64 %next_group, %groups
  br i1 %more_groups, label %group, label %row_done
row_done:
  %more_rows = icmp ult i64 %next_row, %count
  br i1 %more_rows, label %row, label %attempts
attempts:
  %attempt = phi i64 [0, %row_done], [%next_attempt, %attempt_done]
  %open = phi i64 [%known, %row_done], [%still, %attempt_done]
  %next_attempt = add nuw i64 %attempt, 1
  %is_first = icmp eq i64 %attempt, 0
  %undecided = icmp ne i64 %open, 0
  br i1 %undecided, label %decide, label %end
decide:
  %i = phi i64 [0, %attempts], [%next_i, %decide]
  %kept = phi i64 [0, %attempts], [{kept}, %decide]
  %next_i = add nuw i64 %i, {blocks}
  {last}
  %further = icmp ult i64 %next_i, %open
  br i1 %further, label %decide, label %attempt_done
attempt_done:
  %still = phi i64 [{kept}, %decide]
  br label %attempts
end:
  ret void
}}
declare i64 @llvm.cttz.i64(i64, i1)
"""


def _halves(code: Code, row: str) -> tuple[str, str]:
    """Return a row's counter in the cipher's byte order as two 64-bit words, for the row's block 0."""
    upper = code.call("i64", "bswap.i64", ("i64", code(f"lshr i64 {row}, 32")))
    return upper, code.call("i64", "bswap.i64", ("i64", code(f"shl i64 {row}, 32")))


def _all_blocks(code: Code, halves: tuple[str, str], blocks: int) -> str:
    """Return a register with one counter in every block."""
    return code.gathered(halves * blocks, "i64")


def _candidates(code: Code, counter: str, fixed: tuple[str, str], lanes: int) -> str:
    """Add what encrypts a register of a row's counters and writes its candidates and words.

    Return which of them no threshold decides, as the bits of one integer. What is written beyond a row is
    written over by the next one.
    """
    blocks, kind = lanes // 4, f"<{lanes} x i32>"
    wide, (mask, low_bits) = f"<{2 * blocks} x i64>", fixed
    pattern = code.load(wide, code.at("%pattern", wide, "%g"))
    drawn = encrypted(code, code(f"or {wide} {counter}, {pattern}"), "%keys", blocks)
    words = code(f"bitcast {wide} {drawn} to {kind}")
    low = code(f"and {kind} {words}, {mask}")
    slots = code.lanes(code(f"lshr {kind} {low}, {low_bits}"), "i32", lanes)
    wide_slots = [code(f"zext i32 {slot} to i64") for slot in slots]
    pairs = code.gathered(
        [code.load("i64", code.at("%first_table", "i64", slot)) for slot in wide_slots], "i64"
    )
    pairs = code(f"bitcast <{lanes} x i64> {pairs} to <{2 * lanes} x i32>")
    offset, sure = (
        code.mixed(pairs, "poison", 2 * lanes, range(part, 2 * lanes, 2), "i32") for part in (0, 1)
    )
    at = code("add nuw i64 %base, %first")
    for table, values in (("%out", code(f"add {kind} {offset}, {low}")), ("%words", words)):
        code.do(f"store {kind} {values}, ptr {code.at(table, 'i32', at)}, align 4")
    unsure = code(f"icmp uge {kind} {words}, {sure}")
    places = "<" + ", ".join(f"i32 {lane}" for lane in range(lanes)) + ">"
    rest = code(f"trunc i64 {code('sub i64 %dim, %first')} to i32")
    inside = code(f"icmp ult {kind} {places}, {code.all(rest, 'i32', lanes)}")
    own = code(f"and <{lanes} x i1> {unsure}, {inside}")
    return code(f"bitcast <{lanes} x i1> {own} to i{lanes}")


def _decisions(code: Code, blocks: int) -> str:
    """Add what decides about some listed words; return how many stay on the list, which is rewritten."""
    inside, entries, places, counters, firsts = [], [], [], [], []
    for lane in range(blocks):
        own = code(f"add nuw i64 %i, {lane}")
        inside.append(code(f"icmp ult i64 {own}, %open"))
        own = code(f"select i1 {inside[-1]}, i64 {own}, i64 %i")  # a lane too many does the first one's work
        entries.append(code.load("i64", code.at("%pending", "i64", own)))
        row, coordinate = code(f"lshr i64 {entries[-1]}, 32"), code(f"and i64 {entries[-1]}, {(1 << 32) - 1}")
        places.append(code(f"add nuw i64 {code(f'mul nuw i64 {row}, %dim')}, {coordinate}"))
        firsts.append(code.load("i32", code.at("%words", "i32", places[-1])))
        upper, lower = _halves(code, code.load("i64", code.at("%rows", "i64", row)))
        block = code(f"add i64 {code(f'mul i64 {coordinate}, {_SPAN}')}, {_OWN}")
        block = code.call("i64", "bswap.i64", ("i64", code(f"add i64 {block}, %attempt")))
        counters += [upper, code(f"or i64 {lower}, {block}")]
    drawn = encrypted(code, code.gathered(counters, "i64"), "%keys", blocks)
    halves = code.lanes(drawn, "i64", 2 * blocks)
    for lane in range(blocks):
        word = code(
            f"select i1 %is_first, i32 {firsts[lane]}, i32 {code(f'trunc i64 {halves[2 * lane]} to i32')}"
        )
        firsts[lane] = code(f"zext i32 {word} to i64")
    values, gap, near = _compared(code, firsts, halves[1::2], blocks)
    kept, ties = "%kept", code.load("i64", "%ties")
    accepted, tied = (code.lanes(flags, "i1", blocks) for flags in (gap, near))
    for lane in range(blocks):
        code.do(f"store i32 {values[lane]}, ptr {code.at('%out', 'i32', places[lane])}")
        code.do(f"store i64 {entries[lane]}, ptr {code.at('%pending', 'i64', kept)}")
        rejected = code(f"xor i1 {accepted[lane]}, true")
        stays = code(f"and i1 {rejected}, {inside[lane]}")
        kept = code(f"add i64 {kept}, {code(f'zext i1 {stays} to i64')}")
        ties = code(f"or i64 {ties}, {code(f'zext i1 {tied[lane]} to i64')}")
    code.do(f"store i64 {ties}, ptr %ties")
    return kept


def _compared(code: Code, words: list[str], more: list[str], count: int) -> tuple[list[str], str, str]:
    """Return candidates, and vectors of which are accepted and which come near a tie."""
    real = f"<{count} x double>"
    number = [
        code.all(code.load("double", code.at("%numbers", "double", k)), "double", count) for k in range(3)
    ]
    narrow = code("shl i64 1, %place_bits")
    narrow = code(f"sub i64 {narrow}, 1")
    shift = code("sub i64 32, %bits")
    values, shares, begun, goes_on = [], [], [], []
    for word, bits in zip(words, more, strict=True):
        place = code(f"and i64 {word}, {narrow}")
        slot = code(f"lshr i64 {word}, %place_bits")
        slot = code(f"and i64 {slot}, {(1 << 15) - 1}")
        own = code(f"and i64 {bits}, {code.load('i64', code.at('%more', 'i64', slot))}")
        place = code(f"or i64 {place}, {code(f'shl i64 {own}, %place_bits')}")
        start = code(f"sext i32 {code.load('i32', code.at('%start', 'i32', slot))} to i64")
        values.append(code(f"add i64 {start}, {place}"))
        shares.append(code.load("double", code.at("%share", "double", slot)))
        begun.append(code(f"uitofp i64 {code(f'lshr i64 {word}, {shift}')} to double"))
        goes_on.append(code(f"uitofp i64 {code(f'lshr i64 {bits}, 12')} to double"))
    x = code.gathered([code(f"sitofp i64 {value} to double") for value in values], "double")
    x = code(f"fmul {real} {x}, {number[0]}")
    exponent = code(f"fmul {real} {code(f'fmul {real} {x}, {x}')}, {_real(code, -0.5, count)}")
    p = code(f"fmul {real} {code.gathered(shares, 'double')}, {_exponential(code, exponent, count)}")
    u = code(f"fmul {real} {code.gathered(goes_on, 'double')}, {_real(code, 2.0**-52, count)}")
    u = code(f"fadd {real} {u}, {code.gathered(begun, 'double')}")
    u = code(f"fmul {real} {u}, {number[1]}")
    gap = code(f"fsub {real} {u}, {p}")
    near = code(f"fcmp olt {real} {code.call(real, f'fabs.v{count}f64', (real, gap))}, {number[2]}")
    small = [code(f"trunc i64 {value} to i32") for value in values]
    return small, code(f"fcmp olt {real} {u}, {p}"), near


def _exponential(code: Code, x: str, count: int) -> str:
    """Return exp(x) for -700 < x <= 0: 2^k exp(r), r between -ln 2 / 2 and ln 2 / 2, by its series."""
    real, whole = f"<{count} x double>", f"<{count} x i64>"
    turns = code(f"fmul {real} {x}, {_real(code, 1 / math.log(2), count)}")
    k = code.call(real, f"rint.v{count}f64", (real, turns))
    for part in _LN2:
        x = code(f"fsub {real} {x}, {code(f'fmul {real} {k}, {_real(code, part, count)}')}")
    total = _real(code, 1 / math.factorial(_DEGREE), count)
    for power in range(_DEGREE - 1, -1, -1):
        total = code(f"fmul {real} {total}, {x}")
        total = code(f"fadd {real} {total}, {_real(code, 1 / math.factorial(power), count)}")
    exponent = code(f"add {whole} {code(f'fptosi {real} {k} to {whole}')}, {code.all('1023', 'i64', count)}")
    bits = code(f"shl {whole} {exponent}, {code.all('52', 'i64', count)}")
    return code(f"fmul {real} {total}, {code(f'bitcast {whole} {bits} to {real}')}")


def _real(code: Code, value: float, count: int) -> str:
    """Return a vector with one number in all lanes."""
    return code.all(f"0x{np.float64(value).view(np.uint64):016X}", "double", count)
