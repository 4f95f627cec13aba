"""Stochastic gradient descent with momentum."""

import torch
from torch import Tensor


class Momentum:
    """Gradient descent with momentum: v <- momentum v + (1 - dampening) g, w <- w - rate v.

    >>> weight = torch.tensor([1.0])
    >>> optimizer = Momentum(weight, momentum=0.5)
    >>> for _ in range(2):
    ...     weight.grad = torch.tensor([1.0])
    ...     optimizer.step(rate=0.1)
    >>> round(weight.item(), 4)
    0.75
    """

    def __init__(
        self, weight: Tensor, *, momentum: float, dampening: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        """Start with zero velocity."""
        self._weight, self._momentum, self._weight_decay = weight, momentum, weight_decay
        self._share = 1 - dampening
        self._velocity = torch.zeros_like(weight)

    @torch.no_grad()
    def step(self, *, rate: float) -> None:
        """Update the parameter along its gradient."""
        if self._weight.grad is None:
            return
        self._velocity.mul_(self._momentum).add_(self._weight.grad, alpha=self._share)
        if self._weight_decay:
            self._velocity.add_(self._weight, alpha=self._weight_decay * self._share)
        self._weight.add_(self._velocity, alpha=-rate)

    def state(self) -> dict[str, Tensor]:
        """Return the velocity."""
        return {"velocity": self._velocity}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that ``state`` returned."""
        self._velocity.copy_(state["velocity"])
