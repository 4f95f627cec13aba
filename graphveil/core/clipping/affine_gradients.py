"""Per-sample gradients of the affine maps inside a module, represented by inputs and output gradients.

The gradient of a map y = W h + b on one record is the sum over its rows j of delta_j h_j^T, with delta_j the
gradient of the loss with respect to y_j. Its norm follows from both (Goodfellow: Efficient per-example
gradient computations, 2015), and so does a weighted sum over records. Both are computed while every record is
processed separately (``vmap``), so records cannot mix.

If large rows cancel, the computed norm consists of rounding errors only, and clipping by it would have no
effect. A squared norm is therefore at least 2^-16 (sum_j |h_j| |delta_j|)^2. Rows that cancel to less than a
256th of their lengths are clipped by this bound. All others have their norm to a relative error of 10^-7.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_CANCELLATION_THRESHOLD = 2.0**-16  # relative to squared row lengths; float64 error < 10^-11
_COUNTS = (32 << 20) - (1 << 16)  # bytes; a larger block does not change glibc's threshold
_OF_PYG = ("torch_geometric.nn.dense.linear", "Linear")


def affine_parts(module: nn.Module, rows: int) -> dict[str, nn.Module]:
    """Return the affine maps of a module, by name, whose gradients are larger than their factors.

    Their parameters are trainable and not shared with another module.

    >>> list(affine_parts(nn.Sequential(nn.Linear(90, 30), nn.ReLU(), nn.Linear(30, 1)), 4))
    ['0']
    """
    owners: dict[int, int] = {}
    for part in module.modules():
        for weight in part.parameters(recurse=False):
            owners[id(weight)] = owners.get(id(weight), 0) + 1
    return {
        name: part
        for name, part in module.named_modules()
        if _is_affine(part)
        and is_large(part, rows)
        and all(w.requires_grad and owners[id(w)] == 1 for w in part.parameters(recurse=False))
    }


def _is_affine(part: nn.Module) -> bool:
    kind = type(part)
    return kind is nn.Linear or (kind.__module__, kind.__name__) == _OF_PYG


def inputs_of(part: nn.Module) -> int:
    """Return the input width of an affine map."""
    return int(_weight_of(part).shape[1])


def is_large(part: nn.Module, rows: int) -> bool:
    """Return whether the gradient of an affine map is larger than its factors for this number of rows."""
    outputs, inputs = _weight_of(part).shape
    return inputs * outputs > rows * (inputs + outputs)


def _weight_of(part: nn.Module) -> Tensor:
    weight = part.weight
    assert isinstance(weight, Tensor)
    return weight


@contextmanager
def record_affine_calls(
    parts: Sequence[nn.Module], output_offsets: Sequence[Tensor] | None, recorded: list[Any]
) -> Iterator[None]:
    """Record the input of each call of a part, and add a move to its output, to get the gradient of y.

    Without moves, the number of the part and the shape of its output are recorded.
    """

    def hook(number: int) -> Any:
        def after(part: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> Tensor:
            if output_offsets is None:
                recorded.append((number, tuple(found.shape)))
                return found
            recorded.append(given[0])
            return found + output_offsets[len(recorded) - 1]

        return after

    handles = [part.register_forward_hook(hook(number)) for number, part in enumerate(parts)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(eq=False)
class AffineGradients:
    """The gradients of one affine map for a chunk of records.

    Args:
        inputs: h, (B, n, d), float64.
        deltas: Gradients with respect to outputs, (B, n, e), float64.
    """

    inputs: Tensor
    deltas: Tensor

    @classmethod
    def from_calls(cls, calls: Sequence[tuple[Tensor, Tensor]], memory: "ScratchBuffer") -> "AffineGradients":
        """Return the gradients of a map, from h and delta of each call, (B, .., d) and (B, .., e).

        Copies of h are in ``memory``, and valid until the next call.
        """
        wide, deltas = (
            [part.reshape(len(part), -1, part.shape[-1]) for part in parts]
            for parts in zip(*calls, strict=True)
        )
        inputs = memory.copy(wide[0]) if len(wide) == 1 else _joined([h.to(torch.float64) for h in wide])
        return cls(inputs, _joined([delta.to(torch.float64) for delta in deltas]))

    def square_norms(self, *, bias: bool) -> Tensor:
        """Return each record's squared norm, (B), or its lower limit if its rows cancel.

        It is sum_jk <h_j, h_k> <delta_j, delta_k> for the weight, and the same with ones for h for the bias.
        """
        one, other = (part @ part.transpose(1, 2) for part in (self.inputs, self.deltas))
        if bias:
            one += 1.0
        lengths = one.diagonal(dim1=1, dim2=2) * other.diagonal(dim1=1, dim2=2)
        least = lengths.sqrt().sum(dim=1).square().mul_(_CANCELLATION_THRESHOLD)
        return torch.maximum(one.mul_(other).sum(dim=(1, 2)), least)

    def sums(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums over records of factor times gradient: of W (e, d), and of b (e)."""
        scaled = self.deltas * factors[:, None, None]
        weight = scaled.flatten(end_dim=1).t() @ self.inputs.flatten(end_dim=1)
        return weight, scaled.sum(dim=(0, 1))

    def drop(self, bad: Tensor) -> None:
        """Remove records with factors of zero that have NaN or infinite numbers.

        Nothing is written in place: a row that is the same for all records may be one row in memory.
        """
        self.inputs, self.deltas = (
            part.masked_fill(bad[:, None, None], 0) for part in (self.inputs, self.deltas)
        )


class ScratchBuffer:
    """Reusable memory for float64 copies: allocating new memory takes longer than the copy.

    >>> memory = ScratchBuffer()
    >>> one = memory.copy(torch.ones(2, 3, dtype=torch.float32))
    >>> one.dtype, memory.copy(torch.zeros(1, 3)).data_ptr() == one.data_ptr()
    (torch.float64, True)
    """

    def __init__(self) -> None:
        """Start without memory."""
        self._kept = torch.empty(0, dtype=torch.float64)

    def copy(self, part: Tensor) -> Tensor:
        """Return a part in float64; the next call may overwrite it."""
        if part.dtype == torch.float64:
            return part
        if self._kept.numel() < part.numel():
            self._kept = torch.empty(part.numel(), dtype=torch.float64)
        return self._kept[: part.numel()].view(part.shape).copy_(part)


def keep_freed_memory() -> None:
    """Let the C library keep the memory that a chunk frees for the next chunk.

    glibc requests memory from the kernel for every block larger than the largest freed block. It returns free
    memory at the end of its heap beyond twice that size (``mallopt(3)``, M_MMAP_THRESHOLD). A new page costs
    more time than the computation on it. The largest block that counts is therefore allocated and freed here,
    untouched, as in any program that frees an array of that size. No option is set: existing settings stay
    valid, and other C libraries are not affected.
    """
    torch.empty(_COUNTS, dtype=torch.uint8)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)
