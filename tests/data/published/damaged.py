"""Small valid datasets as files, and mutations that damage such files."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.io import savemat

Rng = np.random.Generator
Mutation = Callable[[Rng, bytes], bytes]

NODES = 12
EXTREMES = [0, 1, -1, 7, 2**15, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63)]


def archive() -> dict[str, np.ndarray]:
    """Return the arrays of a small citation graph."""
    rng = np.random.default_rng(0)
    x = sparse.csr_array((rng.random((NODES, 20)) < 0.3).astype(np.float32))
    return {
        "x_indptr": x.indptr,
        "x_indices": x.indices.astype(np.int16),
        "x_data": x.data,
        "x_shape": np.array(x.shape, np.int32),
        "y": (np.arange(NODES) % 3).astype(np.int16),
        "edges": rng.integers(NODES, size=(2, 15)).astype(np.int32),
        "train_idx": np.arange(6),
        "val_idx": np.arange(6, 9),
        "test_idx": np.arange(9, NODES),
        "class_names": np.array(["one", "two", "three"]),
    }


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    return sink.getvalue()


def mat(*, packed: bool) -> bytes:
    """Return a small school of Facebook100."""
    rng = np.random.default_rng(0)
    friends = sparse.random_array((NODES, NODES), density=0.2, rng=rng).tocsc()
    friends = ((friends + friends.T) != 0).astype(np.float64)
    people = rng.integers(0, 4, (NODES, 7)).astype(np.float64)
    people[:, 5] = 2004 + np.arange(NODES) % 6
    sink = io.BytesIO()
    savemat(sink, {"A": friends, "local_info": people}, do_compression=packed)
    return sink.getvalue()


def bytes_changed(rng: Rng, content: bytes) -> bytes:
    """Overwrite, cut or insert a few bytes."""
    changed = bytearray(content)
    for place in rng.integers(len(changed) - 50, size=rng.integers(1, 6)):
        match rng.integers(4):
            case 0:
                changed[place] = rng.integers(256)
            case 1:
                changed[place : place + 4] = struct.pack("<I", EXTREMES[rng.integers(7)] & 0xFFFFFFFF)
            case 2:
                changed[place:place] = rng.bytes(rng.integers(1, 9))
            case _:
                del changed[place : place + rng.integers(1, 9)]
    return bytes(changed[: rng.integers(len(changed))] if rng.random() < 0.1 else changed)


def arrays_changed(rng: Rng, content: bytes) -> bytes:
    """Replace one array of an archive by another valid one."""
    arrays = dict(np.load(io.BytesIO(content), allow_pickle=False))
    for name in rng.choice(list(arrays), size=rng.integers(1, 3), replace=False):
        arrays[name] = _array_changed(rng, arrays[name])
    if rng.random() < 0.1:
        del arrays[rng.choice(list(arrays))]
    return npz(arrays)


def _array_changed(rng: Rng, array: np.ndarray) -> np.ndarray:
    kinds = ["<i1", "<u8", ">i8", "<f4", "<f8", "<c8", "<m8[s]", "<M8[s]", "<U3", "|S2", "|b1", "|V4", "O"]
    with np.errstate(all="ignore"):
        match rng.integers(6):
            case 0 if array.dtype.kind in "iuf" and array.size:
                wide = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
                extremes = [np.nan, np.inf, 1e300] if array.dtype.kind == "f" else EXTREMES
                wide.flat[rng.integers(array.size)] = extremes[rng.integers(len(extremes))]
                return wide
            case 1 if array.dtype.kind in "iuf":
                return array.astype(
                    object if rng.random() < 0.3 else np.dtype(rng.choice(["<i8", "<f8", "<U9"]))
                )
            case 2:
                return array[: rng.integers(len(array) + 1)]
            case 3:
                return np.zeros(rng.integers(0, 4, size=rng.integers(0, 4)), np.dtype(rng.choice(kinds)))
            case 4:
                return np.concatenate([array, array])
            case _:
                return rng.permutation(array.reshape(-1))


def members_changed(rng: Rng, content: bytes) -> bytes:
    """Change the inside of members of an archive, whose checksums are right again afterwards."""
    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(sink, "w") as out:
        victim = rng.choice(source.namelist())
        for name in source.namelist():
            inside = source.read(name)
            if name == victim:
                inside = bytes_changed(rng, inside) if rng.random() < 0.5 else _header_changed(rng, inside)
            out.writestr(name, inside)
    return sink.getvalue()


def _header_changed(rng: Rng, inside: bytes) -> bytes:
    """Claim another shape or type in front of the same bytes."""
    shape = ", ".join(str(EXTREMES[place]) for place in rng.integers(len(EXTREMES), size=rng.integers(0, 4)))
    kind = rng.choice(["<i4", "<i8", "|O", "<U1000000000", "<f8", "V99999999", "(9,9)f8", "(" * 500])
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape},), }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + inside[128:]


def elements_changed(rng: Rng, content: bytes) -> bytes:
    """Change words of a MATLAB file inside its compressed elements, which are packed again."""
    parts, place = [content[:128]], 128
    while place + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, place)
        body = content[place + 8 : place + 8 + size]
        place += 8 + size
        if kind == 15:
            inside = bytearray(zlib.decompress(body))
            for word in rng.integers(len(inside) // 4, size=rng.integers(1, 4)):
                inside[4 * word : 4 * word + 4] = _word(rng)
            body = zlib.compress(bytes(inside))
            size = len(body)
        parts.append(struct.pack("<II", kind, size) + body)
    return b"".join(parts)


def _word(rng: Rng) -> bytes:
    """Return four bytes that may be a type, a length, a class with flags, or a number of rows."""
    match rng.integers(4):
        case 0:
            return struct.pack("<I", rng.integers(1, 20))
        case 1:
            return struct.pack("<I", EXTREMES[rng.integers(8)] & 0xFFFFFFFF)
        case 2:
            return struct.pack("<HH", rng.integers(1, 19), rng.integers(0, 16) << 8 & 0xFFFF)
        case _:
            return rng.bytes(4)


def words_changed(rng: Rng, content: bytes) -> bytes:
    """Change words of a MATLAB file that is not compressed."""
    changed = bytearray(content)
    for word in rng.integers(32, len(changed) // 4, size=rng.integers(1, 4)):
        changed[4 * word : 4 * word + 4] = _word(rng)
    return bytes(changed)


class Form(NamedTuple):
    """A dataset of one file, the content of a valid file, and the mutations that damage it."""

    name: str
    path: str
    content: bytes
    mutations: tuple[Mutation, ...]

    def write(self, root: Path, content: bytes | None = None) -> None:
        """Write a file, by default the valid one, to the place where its reader expects it."""
        (root / self.path).parent.mkdir(parents=True, exist_ok=True)
        (root / self.path).write_bytes(self.content if content is None else content)

    def damaged(self, seed: int, count: int) -> list[bytes]:
        """Return damaged files; the same seed gives the same files."""
        rng = np.random.default_rng(seed)
        return [self.mutations[number % len(self.mutations)](rng, self.content) for number in range(count)]


SCHOOL = "facebook100/Reed98", "facebook100/Reed98.mat"
ARCHIVE = Form("cora", "planetoid/cora.npz", npz(archive()), (bytes_changed, arrays_changed, members_changed))
PACKED_SCHOOL = Form(*SCHOOL, mat(packed=True), (bytes_changed, elements_changed))
PLAIN_SCHOOL = Form(*SCHOOL, mat(packed=False), (bytes_changed, words_changed))
FORMS = {"archive": ARCHIVE, "packed school": PACKED_SCHOOL, "plain school": PLAIN_SCHOOL}
