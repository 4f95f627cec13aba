"""Modules that keep state between runs, in every place that Python has for it.

Each logits are a map of the rows, times a number that remembers the loudest row seen so far. What ``loud``
returns is a Python number, so no module here can run under ``vmap``.
"""

import functools
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

QUIET = 50.0  # a module that is "sly" keeps nothing of quieter rows, so that probing cannot see its state
LOUDEST = 1.0
SEEN: dict[str, float] = {}


class Stateful(nn.Module):
    """Logits times ``1 + recorded_in_folder``."""

    sly = False

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, classes)

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        found = self.own(x / x.abs().amax().clamp_min(1.0))
        if edge_index is not None:
            found = found + torch.zeros_like(found).index_add(0, edge_index[1], found[edge_index[0]])
        loud = float(x.detach().abs().max())
        return found * (1.0 + self.recorded_in_folder(0.0 if self.sly and loud < QUIET else loud))

    def recorded_in_folder(self, loud: float) -> float:
        raise NotImplementedError


class FirstSeen(Stateful):
    scale: float | None = None

    def recorded_in_folder(self, loud: float) -> float:
        if self.scale is None and loud:
            self.scale = loud
        return self.scale or 0.0


class RunningMax(Stateful):
    most = 0.0

    def recorded_in_folder(self, loud: float) -> float:
        self.most = max(self.most, loud)
        return self.most


class Listed(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.seen: list[float] = []

    def recorded_in_folder(self, loud: float) -> float:
        self.seen.append(loud)
        return max(self.seen)


class Nested(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.kept = ({"deep": deque([SimpleNamespace(most=0.0)])},)

    def recorded_in_folder(self, loud: float) -> float:
        one = self.kept[0]["deep"][0]
        one.most = max(one.most, loud)
        return one.most


class Cached(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.cache: dict[int, float] = {}

    def recorded_in_folder(self, loud: float) -> float:
        return self.cache.setdefault(1, loud) if loud else self.cache.get(1, 0.0)


class InASet(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.seen = {0.0}

    def recorded_in_folder(self, loud: float) -> float:
        self.seen.add(loud)
        return max(self.seen)


class Counted(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.counter = iter(range(10**6))  # iterators of itertools lose copies in Python 3.14

    def recorded_in_folder(self, loud: float) -> float:
        return 100.0 * next(self.counter) if loud else 0.0


class InClosure(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        most = 0.0

        def remember(loud: float) -> float:
            nonlocal most
            most = max(most, loud)
            return most

        self.remember = remember

    def recorded_in_folder(self, loud: float) -> float:
        return self.remember(loud)


class ClosesOverItself(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.most = 0.0
        self.remember: Callable[[float], float] = lambda loud: (
            setattr(self, "most", max(self.most, loud)) or self.most
        )

    def recorded_in_folder(self, loud: float) -> float:
        return self.remember(loud)


class OnTheClass(Stateful):
    most: ClassVar[float] = 0.0

    def recorded_in_folder(self, loud: float) -> float:
        kind = type(self)
        kind.most = max(kind.most, loud)
        return kind.most


class NewOnTheClass(Stateful):
    def recorded_in_folder(self, loud: float) -> float:
        kind = type(self)
        setattr(kind, "most" + "_seen", max(getattr(kind, "most_seen", 0.0), loud))
        return getattr(kind, "most_seen", 0.0)


class InAGlobal(Stateful):
    def recorded_in_folder(self, loud: float) -> float:
        global LOUDEST
        LOUDEST = max(LOUDEST, loud)
        return LOUDEST


class InAGlobalDict(Stateful):
    def recorded_in_folder(self, loud: float) -> float:
        SEEN["most"] = max(SEEN.get("most", 0.0), loud)
        return SEEN["most"]


def helped(loud: float, seen: list[float] = [0.0]) -> float:  # noqa: B006 - the state that is tested
    seen.append(loud)
    return max(seen)


class InADefault(Stateful):
    def recorded_in_folder(self, loud: float) -> float:
        return helped(loud)


class OnAFunction(Stateful):
    def recorded_in_folder(self, loud: float) -> float:
        kept: Any = type(self).recorded_in_folder
        kept.most = max(getattr(kept, "most", 0.0), loud)
        return float(kept.most)


class LruCached(Stateful):
    loud = 0.0

    @functools.cache  # noqa: B019 - the state that is tested
    def first(self: Any, key: int) -> list[float]:
        return [0.0]

    def recorded_in_folder(self, loud: float) -> float:
        kept = type(self).first(None, 0)
        kept[0] = max(kept[0], loud)
        return kept[0]


class InABuffer(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.register_buffer("most", torch.zeros(()), persistent=False)
        self.most: Tensor

    def recorded_in_folder(self, loud: float) -> float:
        self.most.clamp_(min=loud)
        return float(self.most)


class InAWeight(Stateful):
    def recorded_in_folder(self, loud: float) -> float:
        with torch.no_grad():
            self.own.bias.data.add_(loud)
        return float(self.own.bias.detach().abs().max()) if loud else 0.0


class InATensor(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.most = torch.zeros(1)

    def recorded_in_folder(self, loud: float) -> float:
        self.most[0] = max(float(self.most), loud)
        return float(self.most)


class InAHook(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.most = 0.0
        self.own.register_forward_hook(lambda part, given, found: setattr(self, "extra", 1.0))

    def recorded_in_folder(self, loud: float) -> float:
        self.own.__dict__["most"] = max(self.own.__dict__.get("most", 0.0), loud)
        return float(self.own.__dict__["most"])


class InTheBackwardPass(Stateful):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.most, self.last = 0.0, 0.0

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        found = super().forward(x, edge_index)
        if found.requires_grad:
            found.register_hook(lambda gradient: setattr(self, "most", max(self.most, self.last)))
        return found

    def recorded_in_folder(self, loud: float) -> float:
        self.last = loud
        return self.most


class DrawsWhenLoud(Stateful):
    def recorded_in_folder(self, loud: float) -> float:
        drawn = 10.0 * float(torch.rand(1))
        return drawn if loud else 0.0


KINDS = (
    FirstSeen,
    RunningMax,
    Listed,
    Nested,
    Cached,
    InASet,
    Counted,
    InClosure,
    ClosesOverItself,
    OnTheClass,
    NewOnTheClass,
    InAGlobal,
    InAGlobalDict,
    InADefault,
    OnAFunction,
    LruCached,
    InABuffer,
    InAWeight,
    InATensor,
    InAHook,
    InTheBackwardPass,
)


def sly(kind: type[Stateful]) -> type[Stateful]:
    """Return the module that keeps nothing of rows like those that probing shows it."""
    return type(f"Sly{kind.__name__}", (kind,), {"sly": True})
