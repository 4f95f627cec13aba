"""What can be reached from an object in memory."""

import gc
from types import FunctionType, ModuleType

import numpy as np
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
            found.append(held.numpy() if type(held) is Tensor else held)
    return found


def _ours(held: object) -> bool:
    """Whether to look inside: everything but other packages' modules, classes and functions."""
    name = held.__name__ if type(held) is ModuleType else getattr(held, "__module__", None)
    foreign = isinstance(held, ModuleType | FunctionType | type)
    return not foreign or str(name).startswith("graphveil")
