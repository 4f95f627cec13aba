"""Real matrices, and the places of sparse ones, from a MATLAB 5 file that may be hostile.

SciPy's reader follows what the file says in compiled code, and crashes the interpreter where that is wrong.
The format is small: elements of a type, a length and as many bytes, one inside the other, of which a matrix
has flags, dimensions, a name and its numbers. Everything is sliced from the bytes that are there.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.data import _compressed

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer]

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _PACKED = 14, 15
_SPARSE, _NUMERIC = 5, range(6, 16)
_COMPLEX = 0x800
_MAX_EXPANSION, _SPARE_BYTES = 200, 1 << 26


@dataclass(frozen=True)
class SparsePattern:
    """Where a sparse matrix of ``shape`` has entries: ``rows[starts[j]:starts[j + 1]]`` in column j."""

    shape: tuple[int, int]
    rows: Ints
    starts: Ints


def read(path: Path) -> dict[str, Floats | SparsePattern]:
    """Return the real matrices of a file, and the places of its sparse ones, by name; others are left out.

    Raises:
        ValueError: the file is of another version, or an element is not what it says.
    """
    content = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or int.from_bytes(content[124:126], "little" if order == "<" else "big") != 0x0100:
        raise ValueError("is not a MATLAB 5 file")
    left = _MAX_EXPANSION * len(content) + _SPARE_BYTES
    found: dict[str, Floats | SparsePattern] = {}
    for kind, body in _elements(memoryview(content)[128:], order):
        if kind == _PACKED:
            inside = _unpacked(body, left)
            left -= len(inside)
            kind, body = next(_elements(memoryview(inside), order))
        if kind == _MATRIX:
            found |= _variable(body, order)
    return found


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and bytes of each element, which begin at every eighth byte if they are not packed."""
    place = 0
    while place + 8 <= len(content):
        word, size = (int(part) for part in np.frombuffer(content[place : place + 8], f"{order}u4"))
        if word >> 16:  # up to four bytes stand in the tag itself
            kind, size, start, after = word & 0xFFFF, word >> 16, place + 4, place + 8
        else:
            kind, start = word, place + 8
            after = start + size + (0 if kind == _PACKED else -size % 8)
        if start + size > len(content) or (word >> 16 and size > 4):
            raise ValueError("ends inside an element")
        yield kind, content[start : start + size]
        place = after


def _unpacked(body: memoryview, most: int) -> bytes:
    stream = zlib.decompressobj()
    inside = stream.decompress(body, most)
    if stream.unconsumed_tail:
        raise ValueError("unpacks to far more than it is")
    return inside


def _variable(body: memoryview, order: str) -> dict[str, Floats | SparsePattern]:
    """Return one variable by its name; nothing if it is of a kind that is not read."""
    parts = _elements(body, order)
    flags, shape = _numbers(next(parts), order), _numbers(next(parts), order)
    name = bytes(next(parts)[1]).decode("ascii")
    if flags.dtype.kind != "u" or not len(flags) or shape.dtype.kind != "i" or len(shape) < 2:
        raise ValueError("has a variable without kind or size")
    kind, size = int(flags[0]) & 0xFF, tuple(int(length) for length in shape)
    if kind == _SPARSE and len(size) == 2:
        return {name: _places(parts, order, size)}
    if kind in _NUMERIC and not int(flags[0]) & _COMPLEX:
        return {name: _dense(_numbers(next(parts), order), size)}
    return {}


def _numbers(element: tuple[int, memoryview], order: str) -> npt.NDArray[Any]:
    kind, body = element
    if kind not in _NUMBERS:
        raise ValueError("has something else where numbers belong")
    return np.frombuffer(body, order + _NUMBERS[kind])


def _dense(values: npt.NDArray[Any], size: tuple[int, ...]) -> Floats:
    if min(size) < 0 or math.prod(size) != len(values):
        raise ValueError("has a matrix of another size than it says")
    return values.astype(np.float64).reshape(size, order="F")


def _places(parts: Iterator[tuple[int, memoryview]], order: str, size: tuple[int, int]) -> SparsePattern:
    """Return where the entries are, whatever they are; room set aside for more comes after them."""
    rows, starts = _numbers(next(parts), order), _numbers(next(parts), order)
    if starts.dtype.kind != "i" or len(starts) != size[1] + 1 or not 0 <= starts[-1] <= len(rows):
        raise ValueError("has a sparse matrix of another size than it says")
    rows = rows[: starts[-1]]
    _compressed.check_rows(starts, rows, size[0])
    return SparsePattern(size, rows, starts)
