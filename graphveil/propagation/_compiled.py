"""Rows shortened by their noise in one compiled pass: the bytes of ``normalize.py``, or none.

Sums of squares may be added up in another order here, and their last bits may differ. After rounding to
float32 that shows only where a number comes near the middle between two floats: how near, follows from how
often both ways round. Such rows are named, with all that have no direction, and the caller does them plainly.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from graphveil._aligned import aligned
from graphveil._llvm import Code, can_compile
from graphveil._row_pass import RowPass, row_pass

MAX_WIDTH = 128  # columns that stay in registers
_STEP = 8  # columns are filled up to a multiple of so many
_ROWS_A_THREAD = 1 << 11
_STRIP, _LANES = 256, 8  # rows that stay in the cache, rows whose factors are computed together
_BELOW = 29  # bits of float64 below float32's last,
_MIDDLE = 1 << _BELOW - 1  # which are this halfway between two floats
_SURE = 2.0**-30  # what a length is off zero if its sign is sure: far above its rounding
_NONE = torch.empty(0, dtype=torch.int64)
_SMALLEST = 2.0**-126  # of float32's numbers with all their bits


def can_shrink(rows: Tensor) -> bool:
    """Whether such rows are compiled here."""
    return rows.dtype == torch.float32 and 1 <= rows.shape[1] <= MAX_WIDTH and can_compile()


def shrunk(rows: Tensor, noise: float, margin: float) -> tuple[Tensor, Tensor]:
    """Return each row at length max(0, 1 - (noise / norm)^2) / margin, and which rows are to be done plainly.

    The two ways round a sum of d squares, and what is made of it, at most 2 (1.5 d + 12) / length times
    together, in units of the last place.
    """
    rows = rows.contiguous()
    count, dim = rows.shape
    out = aligned(count, dim)
    unsure = np.empty(count, dtype=np.uint8)
    numbers = np.array([noise, margin, 4 * dim + 32])
    row = dim * rows.itemsize
    columns = (rows.data_ptr(), row), (out.data_ptr(), row), (unsure.ctypes.data, 1), (numbers.ctypes.data, 0)
    _shrinking(dim)(count, (), columns, count // _ROWS_A_THREAD)
    return out, torch.from_numpy(np.flatnonzero(unsure)) if 1 in unsure.tobytes() else _NONE


@lru_cache(maxsize=16)
def _shrinking(dim: int) -> RowPass:
    return row_pass(_program(dim), 1, 4)


def _program(dim: int) -> str:
    """Return the pass in LLVM's assembly language: strips of rows, in steps that each go over all of one."""
    code, width = Code("x"), -(-dim // _STEP) * _STEP
    with code.each("%count", _STRIP) as first:
        left = code(f"sub i64 %count, {first}")
        count = code.call("i64", "umin.i64", ("i64", left), ("i64", str(_STRIP)))
        with code.each(count) as v:
            row, place = _row(code, code(f"add nuw i64 {first}, {v}"), width, dim)
            code.prefetch_next_page(code.at("%rows", "float", place), 4 * dim)
            square = code.total(code(f"fmul <{width} x double> {row}, {row}"), width)
            code.do(f"store double {square}, ptr {code.at('%factors', 'double', v)}")
        with code.each(count, _LANES) as v:
            _factors(code, v)
        with code.each(count) as v:
            _shorten(code, first, v, width, dim)
    declared = "\n".join(sorted(code.declared))
    return f"""
{declared}
define void @run(i64 %count, ptr %rows, ptr noalias %out, ptr noalias %unsure, ptr %numbers) {{
start:
  %factors = alloca [{_STRIP} x double]
  %reach = alloca [{_STRIP} x i32]
  {code}
  ret void
}}
"""


def _row(code: Code, v: str, width: int, dim: int) -> tuple[str, str]:
    """Return a row in float64, and where it begins."""
    place = code(f"mul nuw i64 {v}, {dim}")
    row = code.columns(code.at("%rows", "float", place), "float", width, dim)
    return code(f"fpext <{width} x float> {row} to <{width} x double>"), place


def _factors(code: Code, v: str) -> None:
    """Turn sums of squares into factors, some rows together, and say how near a middle is too near.

    Where the length may be zero or not, or is no number, everywhere is.
    """
    real, flags, zero = f"<{_LANES} x double>", f"<{_LANES} x i1>", "zeroinitializer"
    noise, margin, roundings = (
        code.all(code.load("double", code.at("%numbers", "double", k)), "double", _LANES) for k in range(3)
    )
    one, inf, most, sure = (code.all(_number(x), "double", _LANES) for x in (1.0, math.inf, _MIDDLE, _SURE))
    at = code.at("%factors", "double", v)
    square = code.load(real, at)
    norm = code.call(real, f"sqrt.v{_LANES}f64", (real, square))
    ratio = code(f"fdiv {real} {noise}, {norm}")
    length = code(f"fsub {real} {one}, {code(f'fmul {real} {ratio}, {ratio}')}")
    kept = code(f"select {flags} {code(f'fcmp ogt {real} {length}, {zero}')}, {real} {length}, {real} {zero}")
    factor = code(f"fdiv {real} {kept}, {code(f'fmul {real} {norm}, {margin}')}")
    there = code(f"fcmp ogt {real} {norm}, {zero}")
    factor = code(f"select {flags} {there}, {real} {factor}, {real} {zero}")
    code.do(f"store {real} {factor}, ptr {at}, align 8")
    reach = code(f"fdiv {real} {roundings}, {kept}")
    reach = code(f"select {flags} {code(f'fcmp olt {real} {reach}, {most}')}, {real} {reach}, {real} {most}")
    silent = code(f"fcmp olt {real} {length}, {code(f'fneg {real} {sure}')}")
    reach = code(f"select {flags} {silent}, {real} {zero}, {real} {reach}")
    finite = code(f"fcmp olt {real} {square}, {inf}")
    reach = code(f"select {flags} {finite}, {real} {reach}, {real} {most}")
    whole = code(f"fptosi {real} {reach} to <{_LANES} x i32>")
    code.do(f"store <{_LANES} x i32> {whole}, ptr {code.at('%reach', 'i32', v)}, align 4")


def _shorten(code: Code, first: str, v: str, width: int, dim: int) -> None:
    """Write a row times its factor, and whether it is to be done plainly."""
    real, small = f"<{width} x double>", f"<{width} x float>"
    at = code(f"add nuw i64 {first}, {v}")
    row, place = _row(code, at, width, dim)
    factor = code.all(code.load("double", code.at("%factors", "double", v)), "double", width)
    shortened = code(f"fmul {real} {row}, {factor}")
    code.put(code(f"fptrunc {real} {shortened} to {small}"), code.at("%out", "float", place), width, dim)
    unsure = _between_floats(code, shortened, code.load("i32", code.at("%reach", "i32", v)), width)
    code.do(f"store i8 {code(f'zext i1 {unsure} to i8')}, ptr {code.at('%unsure', 'i8', at)}")


def _between_floats(code: Code, values: str, reach: str, width: int) -> str:
    """Return whether a number lies so near the middle between two floats, or has too few bits as one."""
    real, whole, flags = (f"<{width} x {kind}>" for kind in ("double", "i32", "i1"))
    bits = code(f"bitcast {real} {values} to <{width} x i64>")
    below = code(f"trunc <{width} x i64> {bits} to {whole}")
    below = code(f"and {whole} {below}, {code.all(str((1 << _BELOW) - 1), 'i32', width)}")
    off = code(f"sub {whole} {below}, {code.all(str(_MIDDLE), 'i32', width)}")
    off = code.call(whole, f"abs.v{width}i32", (whole, off), ("i1", "false"))
    near = code(f"icmp ule {whole} {off}, {code.all(reach, 'i32', width)}")
    size = code.call(real, f"fabs.v{width}f64", (real, values))
    tiny = code(f"fcmp olt {real} {size}, {code.all(_number(_SMALLEST), 'double', width)}")
    there = code(f"fcmp one {real} {size}, zeroinitializer")
    unsure = code(f"or {flags} {near}, {code(f'and {flags} {tiny}, {there}')}")
    return code(f"icmp ne i{width} {code(f'bitcast {flags} {unsure} to i{width}')}, 0")


def _number(value: float) -> str:
    """Return a number in LLVM's language."""
    return f"0x{np.float64(value).view(np.uint64):016X}"
