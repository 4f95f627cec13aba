"""Interruption of fits at one point, and comparison of everything that two fits computed."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphveil.estimators.base import Estimator


class InterruptedFit(Exception):  # noqa: N818  # what interrupts, not what is wrong
    """Raised by a progress callback in place of a killed process."""


def interrupted_at(stage: str, done: int) -> Callable[[str, int, int], None]:
    """Return a progress callback that interrupts a fit at one point of one stage."""

    def progress(name: str, finished: int, total: int) -> None:
        if (name, finished) == (stage, done):
            raise InterruptedFit

    return progress


def outcome(model: Estimator) -> list[Tensor]:
    """Return everything that a fit computed."""
    assert model.proba_ is not None
    return [model.proba_, *model.aggregates_.values(), *model.fitted.trained.state().values()]


def same(left: Estimator, right: Estimator) -> bool:
    """Whether two fits are bit-identical."""
    return all(torch.equal(a, b) for a, b in zip(outcome(left), outcome(right), strict=True))
