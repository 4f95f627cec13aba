"""Rows that are picked by an index, for many records at once: copies of whole rows, there and back.

Under ``vmap`` torch picks rows number by number, and adds their gradients one record after the other. Here
the records' rows are laid below each other and picked, or added up, by shifted indices: the same numbers,
sooner. An index beyond a record's own rows is refused, as it would reach the next record's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LARGE = 1 << 18  # numbers; less memory than that is had for nothing
_GATHER_FUNCTIONS = (torch.index_select, Tensor.index_select)


class BufferArena:
    """Memory for large tables of picked rows: one room a table, and the same rooms again for the next chunk.

    >>> arena = BufferArena()
    >>> one = arena.take(torch.zeros(1), (1 << 10, 1 << 10))
    >>> arena.begin()
    >>> one.data_ptr() == arena.take(torch.zeros(1), (1 << 9, 1 << 10)).data_ptr()
    True
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._arena: list[Tensor] = []
        self._select_rows = 0

    def begin(self) -> None:
        """Free all rooms: what is in them is needed no more."""
        self._select_rows = 0

    def take(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return a room that nobody has taken since the beginning, as large as it has to be."""
        count = math.prod(shape)
        if count < _LARGE:
            return like.new_empty(shape)
        if self._select_rows == len(self._arena):
            self._arena.append(like.new_empty(0))
        buffer = self._arena[self._select_rows]
        if buffer.numel() < count or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._arena[self._select_rows] = like.new_empty(count)
        self._select_rows += 1
        return buffer[:count].view(shape)


class RowGatherMode(TorchFunctionMode):
    """While it is entered, ``index_select`` picks whole rows, and ``scatter_add_`` adds whole rows up.

    That is where the first dimension is indexed, and for the latter where all numbers of a row go together.
    Rows that no gradient goes through are picked into ``arena``.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> with RowGatherMode():
    ...     x.index_select(0, torch.tensor([1, 1])).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """

    def __init__(self, arena: BufferArena | None = None) -> None:
        """Pick rows into these rooms."""
        super().__init__()
        self._arena = BufferArena() if arena is None else arena

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Replace the call."""
        if func in _GATHER_FUNCTIONS and not kwargs and args[0].ndim and args[1] % args[0].ndim == 0:
            return _gather_rows(args[0], args[2], self._arena)
        if func is Tensor.scatter_add_ and not kwargs and _by_rows(*args):
            return _scatter_add_into(args[0], args[3], args[2].flatten(1)[:, 0])
        return func(*args, **(kwargs or {}))


def _by_rows(out: Tensor, dim: int, index: Tensor, values: Tensor) -> bool:
    """Return whether an index along the first dimension was repeated for all numbers of each row."""
    rows = out.ndim > 1 and dim % out.ndim == 0 and out.shape[1:] == values.shape[1:] == index.shape[1:]
    wide = [step for step, size in zip(index.stride()[1:], index.shape[1:], strict=True) if size > 1]
    return rows and bool(wide) and not any(wide) and len(index) == len(values)


class _GatherRows(torch.autograd.Function):
    """values[index], rows along the first dimension."""

    @staticmethod
    def forward(values: Tensor, index: Tensor, arena: BufferArena) -> Tensor:
        return values.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, BufferArena], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.rows = len(inputs[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, None, None]:
        return _scatter_add_rows(gradients[0], ctx.saved_tensors[0], ctx.rows), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, Any, Any], values: Tensor, index: Tensor, arena: BufferArena
    ) -> tuple[Tensor, int]:
        values, index = (
            _first(part, dim, info.batch_size) for part, dim in zip((values, index), in_dims[:2], strict=True)
        )
        rows, where = values.flatten(0, 1), _shifted(index, values.shape[1])
        shape = (len(where), *rows.shape[1:])
        if rows.requires_grad:
            picked = rows.index_select(0, where)
        else:
            picked = torch.index_select(rows, 0, where, out=arena.take(rows, shape))
        return picked.view(*index.shape, *values.shape[2:]), 0


class _ScatterAddRows(torch.autograd.Function):
    """Rows added up by an index, (rows, ..): the gradient of :class:`_GatherRows`."""

    @staticmethod
    def forward(values: Tensor, index: Tensor, rows: int) -> Tensor:
        return values.new_zeros(rows, *values.shape[1:]).index_add_(0, index, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, None, None]:
        return _gather_rows(gradients[0], ctx.saved_tensors[0], BufferArena()), None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, Any, Any], values: Tensor, index: Tensor, rows: int
    ) -> tuple[Tensor, int]:
        values, index = (
            _first(part, dim, info.batch_size) for part, dim in zip((values, index), in_dims[:2], strict=True)
        )
        added = values.new_zeros(info.batch_size * rows, *values.shape[2:])
        added.index_add_(0, _shifted(index, rows), values.flatten(0, 1))
        return added.view(info.batch_size, rows, *values.shape[2:]), 0


class _ScatterAddInto(torch.autograd.Function):
    """Rows added by an index to those that are there: no second table of rows is made."""

    @staticmethod
    def forward(out: Tensor, values: Tensor, index: Tensor) -> Tensor:
        return out.index_add_(0, index, values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, Any, None]:
        return gradients[0], _gather_rows(gradients[0], ctx.saved_tensors[0], BufferArena()), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, Any, Any], out: Tensor, values: Tensor, index: Tensor
    ) -> tuple[Tensor, int]:
        if in_dims[0] != 0:
            raise RuntimeError("rows of each record cannot be added in place to what all records share")
        values, index = (
            _first(part, dim, info.batch_size) for part, dim in zip((values, index), in_dims[1:], strict=True)
        )
        out.view(-1, *out.shape[2:]).index_add_(0, _shifted(index, out.shape[1]), values.flatten(0, 1))
        return out, 0


# Of torch's classes ``apply`` has no types.
_gather_rows: Callable[[Tensor, Tensor, BufferArena], Tensor] = _GatherRows.apply
_scatter_add_rows: Callable[[Tensor, Tensor, int], Tensor] = _ScatterAddRows.apply
_scatter_add_into: Callable[[Tensor, Tensor, Tensor], Tensor] = _ScatterAddInto.apply


def _first(values: Tensor, dim: int | None, size: int) -> Tensor:
    """Return a tensor with its records along the first dimension."""
    return values.expand(size, *values.shape) if dim is None else values.movedim(dim, 0)


def within(index: Tensor, rows: int) -> bool:
    """Return whether all indices are of a record's own rows."""
    return 0 <= int(index.min()) <= int(index.max()) < rows


def _shifted(index: Tensor, rows: int) -> Tensor:
    """Return the indices (B, k) of rows that lie below each other, ``rows`` a record."""
    if index.numel() and not within(index, rows):
        raise IndexError(f"index out of range: a record has {rows} rows")
    return (index + rows * torch.arange(len(index), device=index.device)[:, None]).flatten()
