"""What can be reached from an object in memory."""

import gc
from types import FunctionType, ModuleType

import numpy as np
import torch
from torch import Tensor


def reachable(start: object) -> list[np.ndarray]:
    """Return every array that can be reached from an object, this package's modules included."""
    seen: set[int] = set()
    stack, found = [start], []
    while stack:
        held = stack.pop()
        if id(held) in seen or not _ours(held):
            continue
        seen.add(id(held))
        stack += gc.get_referents(held)
        if type(held) in (Tensor, np.ndarray):
            found.append(_as_array(held) if type(held) is Tensor else held)
    return found


def _as_array(tensor: Tensor) -> np.ndarray:
    """Return a tensor of any layout and type as an array."""
    dense = tensor.detach().to_dense()
    return (dense.float() if dense.dtype is torch.bfloat16 else dense).numpy()


def _ours(held: object) -> bool:
    """Whether to look inside: everything but other packages' modules, classes and functions."""
    name = held.__name__ if type(held) is ModuleType else getattr(held, "__module__", None)
    foreign = isinstance(held, ModuleType | FunctionType | type)
    return not foreign or str(name).startswith("graphveil")
