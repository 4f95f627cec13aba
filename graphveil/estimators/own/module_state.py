"""The state of a module and its code, as values that can be compared, for checks of custom modules."""

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphveil.core.clipping.isolation import COMPILED, CachedFunction, ReachableState


def state_of(module: nn.Module) -> dict[str, object]:
    """Return the state of a module and its code, by name, as values that can be compared.

    >>> layer = nn.Linear(1, 1)
    >>> before, layer.seen = state_of(layer), [torch.ones(1)]
    >>> after = state_of(layer)
    >>> [name for name in after if after[name] != before.get(name)]
    ['seen']
    """
    found = dict[str, object]()
    for prefix, part in module.named_modules():
        dot = f"{prefix}." if prefix else ""
        derived = {getattr(hook, "name", None) for hook in part._forward_pre_hooks.values()}  # weight_norm's
        for name, value in vars(part).items():
            if name in ("_parameters", "_buffers"):
                found |= {f"{dot}{key}": _content(held, {}) for key, held in value.items()}
            elif name == "_modules":
                found |= {f"{dot}{key}": type(held) for key, held in value.items()}
            elif name not in derived:
                found[f"{dot}{name}"] = _content(value, {})
    for place in ReachableState(module).places:
        if place.is_copied():
            found[str(place)] = _content(place.get(), {})
    return found


def reaches_compiled_code(module: nn.Module) -> bool:
    """Return whether the module or its code reaches code that ``torch.jit`` compiled.

    >>> reaches_compiled_code(nn.Linear(1, 1))
    False
    """
    return any(isinstance(part, COMPILED) for part in ReachableState(module).found())


def _content(value: Any, seen: dict[int, Any]) -> object:
    """Return an object as values that can be compared: all of its content, and no addresses."""
    if value is None or isinstance(value, str | bytes | int | float | complex | torch.dtype | torch.device):
        return type(value).__name__, repr(value)
    if isinstance(value, type | ModuleType | BuiltinFunctionType):
        return value
    if id(value) in seen:
        return "again", seen[id(value)][0]
    seen[id(value)] = len(seen), value  # stored, so that no other object gets its address
    if isinstance(value, Tensor):
        return _numbers(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, torch.Generator):
        return _numbers(value.get_state())
    if isinstance(value, CachedFunction):
        return tuple(value.cache_info())
    return type(value), [_content(part, seen) for part in _parts_of(value)]


def _parts_of(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        return [value.__code__.co_code]  # its state is a separate location
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    parts = list(getattr(value, "__dict__", {}).items())
    if isinstance(value, dict):
        return parts + list(value.items())
    if isinstance(value, list | tuple):
        return parts + list(value)
    if isinstance(value, set | frozenset):
        return parts + sorted(value, key=repr)
    if parts:
        slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
        return parts + [getattr(value, name, None) for name in slots]
    try:
        reduced = value.__reduce_ex__(4)[1:]  # what pickle would write: arguments, state, items
    except (TypeError, AttributeError):
        return []
    return [list(part) if isinstance(part, Iterator) else part for part in reduced]


def _numbers(tensor: Tensor) -> object:
    try:
        dense = tensor.detach().cpu().to_dense().contiguous().reshape(-1)
        return tensor.dtype, tensor.shape, dense.view(torch.uint8).numpy().tobytes()
    except (RuntimeError, NotImplementedError):
        return tensor.dtype, tensor.shape
