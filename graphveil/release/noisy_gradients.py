"""Noisy gradients of edge attention, step by step: all that training is ever told about the edges."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphveil._random import PublicStreams
from graphveil.errors import ReleaseError
from graphveil.release._edge_gradients import MOST_WEIGHT, Examples, clipped_sum
from graphveil.release.edge_training import EdgeAttentionQuery

Gradients = Callable[[Tensor], Tensor]
Descent = Callable[[Tensor, Gradients], Tensor]


class NoisyGradients:
    """Maps weights (p) to the next step's noisy mean gradient (p), as often as the query has steps.

    Step t draws its batch B_t and returns

        (trunc(sum over B_t of clip(g_v)) + N(0, (z C)^2)) / (q n),

    with the sum truncated toward zero to the grid C / m and noise in whole grid steps
    (:class:`graphveil.mechanisms.StepNoise`). An empty batch is a step of noise alone.

    Guarantee: see :class:`EdgeAttentionQuery`. Each step's noise serves one call. The weights of a call may
    depend on the answers before it.
    """

    def __init__(self, examples: Examples, query: EdgeAttentionQuery, key: bytes) -> None:
        """Fix data, law and randomness; nothing is read yet."""
        self._examples, self._query = examples, query
        self._noise = query.randomness(key)
        self._done = 0

    def __repr__(self) -> str:
        """Show public facts only."""
        return f"NoisyGradients({self._done} of {self._query.steps} steps taken)"

    @torch.no_grad()
    def __call__(self, weights: Tensor) -> Tensor:
        """Return the next step's noisy mean gradient, float64.

        Raises:
            ReleaseError: all steps are taken, or the weights are not p finite numbers.
        """
        query, step = self._query, self._done
        if step >= query.steps:
            raise ReleaseError(f"all {query.steps} steps are taken; one more would not be paid for")
        if weights.shape != (query.parameters,) or not bool(weights.isfinite().all()):
            raise ReleaseError(f"a gradient is asked for at {query.parameters} finite weights")
        self._done += 1
        return self._noisy(weights.to(torch.float64).clamp(-MOST_WEIGHT, MOST_WEIGHT), step)

    def _noisy(self, weights: Tensor, step: int) -> Tensor:
        """Return a step's noisy mean; the clipped sum lives and dies here."""
        query, noise, count = self._query, self._noise, len(self._examples.targets)
        batch = noise.batch(step, count)
        shown = torch.randn(
            (len(batch), query.dim), dtype=torch.float64, generator=PublicStreams(step).torch("attention")
        )
        total = clipped_sum(weights, self._examples, batch, shown * query.forward_noise, query)
        grid = (total * (noise.steps / query.clip)).trunc_()
        grid += torch.from_numpy(noise.noise(step))
        return grid * (query.clip / (noise.steps * noise.sampling_rate * count))
