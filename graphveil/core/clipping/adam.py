"""Adam, without the second of CPU time that the first use of ``torch.optim`` takes to import a compiler."""

from collections.abc import Iterable

import torch
from torch import Tensor

_FIRST, _SECOND = 0.9, 0.999  # decay of the two moments
_EPSILON = 1e-8


class Adam:
    """Adam with the usual moments (Kingma and Ba: Adam, a method for stochastic optimization).

    m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,
    w <- w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + 1e-8),  with g + weight_decay w in place of g.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = Adam([weight])
    >>> (3 * weight).sum().backward()
    >>> optimizer.step(rate=0.1)
    >>> round(weight.item(), 4)
    0.9
    """

    def __init__(self, parameters: Iterable[Tensor], *, weight_decay: float = 0.0) -> None:
        """Start with all moments at zero."""
        self._parameters = list(parameters)
        self._weight_decay = weight_decay
        self._steps = 0
        self._first = [torch.zeros_like(p) for p in self._parameters]
        self._second = [torch.zeros_like(p) for p in self._parameters]

    def zero_grad(self) -> None:
        """Set the gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, *, rate: float) -> None:
        """Update every parameter that has a gradient."""
        self._steps += 1
        rate = rate / (1 - _FIRST**self._steps)
        correction = (1 - _SECOND**self._steps) ** 0.5
        for weight, first, second in zip(self._parameters, self._first, self._second, strict=True):
            if weight.grad is None:
                continue
            grad = weight.grad
            if self._weight_decay:
                grad = grad.add(weight, alpha=self._weight_decay)
            first.lerp_(grad, 1 - _FIRST)
            second.mul_(_SECOND).addcmul_(grad, grad, value=1 - _SECOND)
            weight.addcdiv_(first, second.sqrt().div_(correction).add_(_EPSILON), value=-rate)

    def state(self) -> dict[str, Tensor]:
        """Return the steps taken and the moments."""
        named = {"steps": torch.tensor(self._steps)}
        for i, (first, second) in enumerate(zip(self._first, self._second, strict=True)):
            named |= {f"first/{i}": first, f"second/{i}": second}
        return named

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a state that ``state`` returned."""
        self._steps = int(state["steps"])
        for i, (first, second) in enumerate(zip(self._first, self._second, strict=True)):
            first.copy_(state[f"first/{i}"])
            second.copy_(state[f"second/{i}"])
