"""``vmap`` over records, without the operations of torch through which one record reads another there.

torch has a rule for each operation under ``vmap``. Most rules keep records apart, and reject an index beyond
a record's own rows. ``IsolatedOperations`` replaces or rejects the others. The test of this module lists the
operations that were compared.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._functorch.autograd_function import custom_function_call
from torch.func import vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from graphveil.errors import ConfigError

# Their rules return memory that holds whatever was computed before, or read beyond a record.
_REJECTED = {"ctc_loss", "_ctc_loss", "resize_", "resize_as_", "resize", "resize_as"}
_UNINITIALIZED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
_NAMESPACES = {"aten", "prim", "prims"}  # torch's own operations
_HOOKS = "hooks of saved tensors would read all records of a batch"


def vmap_records(function: Callable[..., Any], in_dims: Any = 0) -> Callable[..., Any]:
    """Return ``vmap`` of a function of one record that calls a custom module.

    >>> table, index = torch.arange(6.0).reshape(2, 3, 1), torch.tensor([[0], [3]])
    >>> vmap_records(lambda rows, i: functional.embedding(i, rows))(table, index)
    Traceback (most recent call last):
    RuntimeError: index 3 is out of bounds for dimension 1 with size 3
    """

    def called(*args: Any) -> Any:
        with IsolatedOperations(), torch.autograd.graph.disable_saved_tensors_hooks(_HOOKS):
            return vmap(function, in_dims=in_dims)(*args)

    return called


class IsolatedOperations(TorchFunctionMode):
    """Replace operations that read beyond a record under ``vmap``; reject what cannot be replaced."""

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operation, or its replacement."""
        kwargs = kwargs or {}
        if func is custom_function_call:
            return func(_isolated_function(args[0]), *args[1:], **kwargs)
        if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            _reject_own_rule(func)
        name = getattr(func, "__name__", "").partition(".")[0]
        if func is functional.embedding:
            return _embedding(*args, **kwargs)
        if name == "embedding":  # the function in C takes the table first, and no padding as -1
            return _embedding_of_table(*args, **kwargs)
        if name in ("index_fill", "index_fill_"):
            return _index_fill(*args, in_place=name.endswith("_"), **kwargs)
        if name in _REJECTED:
            raise ConfigError(
                f"{name} can read the memory of other records under torch.func.vmap. Use an operation "
                "that returns a new tensor."
            )
        found = func(*args, **kwargs)
        return found.zero_() if name in _UNINITIALIZED else found


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return ``functional.embedding``, with each index checked against the record's own table."""
    if max_norm is not None or scale_grad_by_freq:
        raise ConfigError(
            "embedding with max_norm or scale_grad_by_freq depends on all indices of a batch. Drop both."
        )
    if padding_idx is not None:  # this row has no gradient
        padding = torch.arange(weight.size(0)) == padding_idx % weight.size(0)
        weight = torch.where(padding[:, None], weight.detach(), weight)
    return weight.index_select(0, input.reshape(-1)).reshape(*input.shape, weight.size(1))


def _embedding_of_table(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    padding = None if padding_idx < 0 else padding_idx
    return _embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq)


def _index_fill(input: Tensor, dim: int, index: Tensor, value: Any, *, in_place: bool) -> Tensor:
    """Return ``Tensor.index_fill``, with each index checked against the record's own tensor."""
    size = input.size(dim)
    index = torch.where(index < 0, index + size, index).reshape(-1)
    filled = torch.zeros(size, dtype=torch.int8).index_copy(
        0, index, torch.ones(len(index), dtype=torch.int8)
    )
    shape = [1] * input.dim()
    shape[dim] = size
    given = value.to(input.dtype) if isinstance(value, Tensor) else torch.tensor(value, dtype=input.dtype)
    found = torch.where(filled.reshape(shape) > 0, given, input)
    return input.copy_(found) if in_place else found


def _reject_own_rule(operation: Any) -> None:
    """Reject a custom operation that was registered with a rule of its own for ``vmap``."""
    packet = getattr(operation, "overloadpacket", operation)
    name = packet._qualified_op_name
    if name.partition("::")[0] in _NAMESPACES:
        return
    for overload in packet.overloads():
        full = getattr(packet, overload).name()
        if torch._C._dispatch_has_kernel_for_dispatch_key(full, "FuncTorchBatched"):
            _raise_own_rule(name)


def _raise_own_rule(name: str) -> None:
    raise ConfigError(
        f"{name} has its own rule for torch.func.vmap, which may mix the records of a batch. Remove it. "
        "An autograd.Function can set generate_vmap_rule = True."
    )


def _isolated_function(function: Any) -> Any:
    """Return an ``autograd.Function`` whose passes run under ``IsolatedOperations`` as well."""
    if not function.generate_vmap_rule:
        _raise_own_rule(function.__name__)

    def isolated(name: str) -> Any:
        run = getattr(function, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            with IsolatedOperations():
                return run(*args, **kwargs)

        return staticmethod(called)

    passes = [name for name in ("forward", "backward", "jvp") if hasattr(function, name)]
    return type(function.__name__, (function,), {name: isolated(name) for name in passes})
