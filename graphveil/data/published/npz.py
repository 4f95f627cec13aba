"""Arrays of an archive (``.npz``) that may be hostile: no pickle, and no memory that it does not pay for."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

_HEADER = re.compile(
    rb"\{'descr': '([<>|][biufU]\d{1,3})', 'fortran_order': (True|False), 'shape': \(([\d, ]{0,60})\), \} *\n"
)
_MAX_EXPANSION, _SPARE_BYTES = 200, 1 << 26


def read(path: Path, names: Collection[str]) -> Arrays:
    """Return those of the named arrays that an archive has.

    NumPy's own reader allocates what a header claims before it looks at what is there. Here the header must
    be as NumPy writes it, of numbers or text, and say exactly as much as the member holds.

    Raises:
        ValueError: an array is of another type or size than it says, or unpacks to far more than the file.
    """
    with zipfile.ZipFile(path) as archive:
        wanted = {name: f"{name}.npy" for name in names}
        members = {name: archive.getinfo(file) for name, file in wanted.items() if file in archive.namelist()}
        total = sum(member.file_size for member in members.values())
        if total > _MAX_EXPANSION * path.stat().st_size + _SPARE_BYTES:
            raise ValueError("unpacks to far more than it is")
        return {name: _array(archive, member) for name, member in members.items()}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return one array, of exactly the bytes behind its header."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("is packed in another way than NumPy packs")
    content = archive.read(member)
    if content[:6] != b"\x93NUMPY" or len(content) < 10:
        raise ValueError("is no array")
    start = 10 + int.from_bytes(content[8:10], "little")  # of version 1, as all without field names are
    header = _HEADER.fullmatch(content[10:start])
    if header is None:
        raise ValueError("is not an array of numbers or text")
    kind = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].decode().split(",") if size.strip())
    if kind.itemsize == 0 or math.prod(shape) * kind.itemsize != len(content) - start:
        raise ValueError("says another size than it has")
    return np.frombuffer(content, kind, offset=start).reshape(
        shape, order="F" if header[2] == b"True" else "C"
    )
