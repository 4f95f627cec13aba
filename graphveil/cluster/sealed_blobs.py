"""Values as sealed parts: whoever carries, stores or spills them learns their lengths alone.

Arrays and tensors are not written into the pickle but follow it, and all is cut into parts of at most 64 MiB,
so that neither side holds a second copy of a large table. A part is opened, which proves that it comes from
whoever has the key, before anything is unpickled.

The length of a block would say how many edges it has. So a value is filled up with zeros to the next quarter
step between powers of two, and the lengths of its pieces are sealed with it.
"""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphveil._util.sealed import DAMAGED, SLACK, Bytes, SecretBox
from graphveil.errors import ReleaseError

PART = 1 << 26  # bytes
MIN_BYTES = 1 << 16  # bytes of a value: edges by the ten thousand look like none
_LENGTH = np.dtype("<i8")
_ALIGN = 64  # arrays begin at multiples: rows of a table then lie in as few lines of the cache as they can


class SealedBlob(NamedTuple):
    """A value's name, the bytes that it takes filled up, and its sealed parts, or what stands for them."""

    name: str
    size: int
    parts: tuple[Any, ...]


def seal_value(name: str, value: object, box: SecretBox) -> tuple[int, Iterator[Bytes]]:
    """Return how many bytes a value takes, filled up, and its sealed parts one by one."""
    pieces = _pieces(value)
    pieces.insert(0, np.array([len(pieces), *map(len, pieces)], _LENGTH).view(np.uint8))
    size = _coarse(sum(_filled(len(piece)) for piece in pieces))
    parts = (box.seal(f"{name}/{number}", *part) for number, part in enumerate(_parts(pieces, size)))
    return size, parts


def open_value(sealed_blob: SealedBlob, box: SecretBox, parts: Iterable[Bytes]) -> Any:
    """Return the value, whose arrays lie side by side.

    Raises:
        ReleaseError: a part is not what was packed, or is missing.
    """
    from ray import cloudpickle

    memory, place = torch.empty(sealed_blob.size + SLACK, dtype=torch.uint8).numpy(), 0
    for number, part in enumerate(parts):
        place += box.open_into(memory[place:], f"{sealed_blob.name}/{number}", part)
    if place != sealed_blob.size:
        raise ReleaseError(DAMAGED)
    first, *buffers = _pieces_in(memory)
    return cloudpickle.loads(first, buffers=buffers)


def _pieces_in(memory: Bytes) -> Iterator[Bytes]:
    """Yield the pieces that were laid side by side behind their lengths."""
    width = _LENGTH.itemsize
    count = int(memory[:width].view(_LENGTH)[0])
    place = _filled(width * (1 + count))
    for length in memory[width : width * (1 + count)].view(_LENGTH).tolist():
        yield memory[place : place + length]
        place += _filled(length)


def _pieces(value: object) -> list[Bytes]:
    """Return a value's pickle, and the memory of its arrays."""
    from ray import cloudpickle

    class Apart(cloudpickle.Pickler):  # type: ignore[misc]
        """Leaves the memory of tensors where it is, as that of arrays is left."""

        def reducer_override(self, one: Any) -> Any:
            if type(one) is Tensor:
                return torch.from_numpy, (np.ascontiguousarray(one.numpy()),)
            return super().reducer_override(one)

    written, arrays = BytesIO(), list[Any]()
    Apart(written, protocol=5, buffer_callback=arrays.append).dump(value)
    return [np.frombuffer(each, np.uint8) for each in (written.getbuffer(), *(one.raw() for one in arrays))]


def _parts(pieces: list[Bytes], size: int) -> Iterator[list[Bytes]]:
    """Yield the pieces in parts, each filled up to a multiple of 64 bytes, all to a size; none is copied."""
    part, room = list[Bytes](), PART
    fill = [_filled(len(piece)) - len(piece) for piece in pieces]
    fill[-1] += size - sum(len(piece) for piece in pieces) - sum(fill)
    for piece, zeros in zip(pieces, fill, strict=True):
        for left in (piece, np.zeros(zeros, dtype=np.uint8)):  # the system gives zeros no memory
            while len(left):
                some, left = left[:room], left[room:]
                part.append(some)
                room -= len(some)
                if not room:
                    yield part
                    part, room = [], PART
    if part:
        yield part


def _filled(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _coarse(size: int) -> int:
    """Return the next of all sizes that are 1, 5/4, 6/4 or 7/4 of a power of two, and not small."""
    step = max(MIN_BYTES, 1 << (size - 1).bit_length()) >> 3
    return max(MIN_BYTES, -(-size // step) * step)
