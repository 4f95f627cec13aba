"""Small custom modules without torch_geometric, and what tests of private GNNs share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SMALL: dict[str, Any] = {
    "unit": "node-record",
    "epsilon": 1.0,
    "delta": 1e-5,
    "seed": 0,
    "leaves": 8,
    "encoder_share": 0.1,
}


class InterruptedFitError(Exception):
    """Ends a fit."""


def interrupt(stage: str, step: int) -> Callable[[str, int, int], None]:
    """Return a progress callback that ends a fit after a step of a stage."""

    def on_progress(now: str, done: int, total: int) -> None:
        if now == stage and done == step:
            raise InterruptedFitError

    return on_progress


class Mean(nn.Module):
    """One message-passing layer with the mean over in-neighbors, as in GraphSAGE."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.own, self.heard = nn.Linear(inputs, 6), nn.Linear(inputs, 6)
        self.out = nn.Linear(6, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        heard = torch.zeros_like(x).index_add(0, target, x[source])
        count = torch.zeros_like(x[:, :1]).index_add(0, target, torch.ones_like(x[source][:, :1]))
        return self.out(torch.relu(self.own(x) + self.heard(heard / count.clamp_min(1))))


class Doubled(Mean):
    """The same with other code; its name is changed to that of ``Mean``."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(2 * x, edge_index)


Doubled.__name__ = "Mean"


class Branching(Mean):
    """The same with a step that vmap does not support: a choice by the values of a tensor."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(-x if bool(x.sum() > 9e9) else x, edge_index)


class Records(nn.Sequential):
    """Two layers on records."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, classes))
