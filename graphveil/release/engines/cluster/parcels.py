"""Values as sealed parts: whoever carries, stores or spills them learns their lengths alone.

Arrays and tensors are not written into the pickle but follow it, and all is cut into parts of at most 64 MiB,
so that neither side holds a second copy of a large table. A part is opened, which proves that it comes from
whoever has the key, before anything is unpickled.
"""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphveil._aligned import aligned
from graphveil._sealed import SLACK, Box, Bytes

PART = 1 << 26  # bytes
_ALIGN = 64  # arrays begin at multiples: rows of a table then lie in as few lines of the cache as they can


class Parcel(NamedTuple):
    """A value's name, the lengths of its pieces, and its sealed parts, or what stands for them elsewhere."""

    name: str
    sizes: tuple[int, ...]
    parts: tuple[Any, ...]


def packed(name: str, value: object, box: Box) -> tuple[tuple[int, ...], Iterator[Bytes]]:
    """Return the lengths of a value's pieces, and its sealed parts one by one."""
    pieces = _pieces(value)
    parts = (box.seal(f"{name}/{number}", *part) for number, part in enumerate(_parts(pieces)))
    return tuple(len(piece) for piece in pieces), parts


def unpacked(parcel: Parcel, box: Box, parts: Iterable[Bytes]) -> Any:
    """Return the value, whose arrays lie side by side.

    Raises:
        ReleaseError: a part is not what was packed.
    """
    from ray import cloudpickle

    starts = np.cumsum([0, *(_filled(size) for size in parcel.sizes)])
    memory, place = aligned(int(starts[-1]) + SLACK, dtype=torch.uint8).numpy(), 0
    for number, part in enumerate(parts):
        place += box.open_into(memory[place:], f"{parcel.name}/{number}", part)
    first, *buffers = (
        memory[start : start + size] for start, size in zip(starts[:-1], parcel.sizes, strict=True)
    )
    return cloudpickle.loads(first, buffers=buffers)


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


def _parts(pieces: list[Bytes]) -> Iterator[list[Bytes]]:
    """Yield the pieces, each filled up to a multiple of 64 bytes, in parts; nothing is copied."""
    part, room = list[Bytes](), PART
    for piece in pieces:
        for left in (piece, np.zeros(_filled(len(piece)) - len(piece), dtype=np.uint8)):
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
