"""What a step of private training must do, as checks that take the step: the shipped one passes them all.

A *step* is ``step(gradients, clip, noise, number)`` and returns the noisy mean gradient; ``make(x, labels)``
returns the gradients of some records. A wrong step fails with an AssertionError that says what is wrong.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from contracts import laws
from graphveil.audit.query_neighbor_tests import ZeroNoiseSteps
from graphveil.core.clipping.clipped_sums import ClippedSum
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.discrete_gaussian import RoundedGaussian
from graphveil.core.noise.steps import StepNoise
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.training_steps import DPSGDData, DPSGDQuery, noisy_mean
from graphveil.core.query import PublicInputs

KEY = bytes(range(32))
NO_LABEL = -1  # the label of a record that contributes nothing

Step = Callable[[ClippedSum, float, StepNoise, int], Tensor]
Make = Callable[[Any, Tensor], ClippedSum]


class GivenNoise(DPSGDQuery):
    """Training steps with noise that a test hands over."""

    given: StepNoise

    def randomness(self, key: bytes) -> StepNoise:
        return getattr(self, "given", None) or super().randomness(key)


def take_steps(data: DPSGDData, noise: StepNoise) -> Tensor:
    """Answer a query of training steps with this noise, whatever the law of a release."""
    schedule = data.schedule
    query = GivenNoise(
        parameters=noise.parameters,
        steps=schedule.steps(data.gradients.count),
        noise_multiplier=noise.noise_multiplier,
        sampling_rate=noise.sampling_rate,
        clip=schedule.clip,
    )
    object.__setattr__(query, "given", noise)
    edges = PrivateEdges(Adjacency.from_edges([], [], num_nodes=1, directed=True))
    return query.answer(edges, query.prepare(data, PublicInputs(1, None, RoundedGaussian)), KEY)


class SilentRelease:
    """Answers training steps without noise."""

    def answer(self, data: DPSGDData) -> Tensor:
        return take_steps(data, self.noise(len(data.gradients.weights)))

    def noise(self, parameters: int) -> StepNoise:
        return ZeroNoiseSteps(KEY, parameters=parameters, noise_multiplier=1.0)


def shipped_step(gradients: ClippedSum, clip: float, noise: StepNoise, number: int) -> Tensor:
    """Return the noisy mean gradient that a release hands to a training."""
    return noisy_mean(gradients, clip, noise, number)


def bounds_every_record(step: Step, make: Make, x: Tensor, labels: Tensor, clip: float) -> None:
    """A record that becomes null moves the sum by at most C and the grid's share; some record by C."""
    noise = noise_of(make(x, labels), 1.0)
    whole = sums(step, make(x, labels), clip, noise)
    moved = []
    for record in range(len(x)):
        without = labels.clone()
        without[record] = NO_LABEL
        moved.append(float((whole - sums(step, make(x, without), clip, noise)).norm()))
    bound = clip * (1 + 2 * math.sqrt(noise.parameters) / noise.steps)
    assert max(moved) <= bound, f"a record moves the sum by {max(moved):.6g}, not at most {bound:.6g}"
    assert max(moved) >= 0.999 * clip, f"no record moves the sum by C, at most by {max(moved):.6g}"


def bounds_every_replacement(step: Step, make: Make, x: Tensor, labels: Tensor, clip: float) -> None:
    """A record that becomes another one moves the sum by at most 2 C and the grid's share."""
    noise = noise_of(make(x, labels), 1.0)
    whole = sums(step, make(x, labels), clip, noise)
    moved = []
    for record in range(len(x)):
        other, others = x.clone(), labels.clone()
        other[record], others[record] = -x[record], (labels[record] + 1) % 3
        moved.append(float((whole - sums(step, make(other, others), clip, noise)).norm()))
    bound = 2 * clip * (1 + 2 * math.sqrt(noise.parameters) / noise.steps)
    assert clip < max(moved) <= bound, f"a replacement moves the sum by {max(moved):.6g}, not {bound:.6g}"


def divides_by_the_expected_size(step: Step, gradients: ClippedSum, clip: float) -> None:
    """The mean times q N is a whole number of grid steps, namely the truncated sum and the noise."""
    noise = noise_of(gradients, 0.5)
    for number in range(10):
        gradients._total.zero_()
        gradients.add(noise.batch(number, gradients.count), clip)
        expected = (gradients._total * noise.steps / clip).trunc() + torch.from_numpy(noise.noise(number))
        mean = step(gradients, clip, noise, number)
        grid = mean * (noise.sampling_rate * gradients.count) * noise.steps / clip
        assert torch.allclose(grid, expected, rtol=1e-12, atol=1e-6), "the mean is not the sum over q N"


def carries_the_noise(step: Step, gradients: ClippedSum, clip: float, noise: StepNoise) -> None:
    """Where nobody contributes, steps are independent draws from the discrete Gaussian of the noise."""
    scale = noise.sampling_rate * gradients.count * noise.steps / clip
    drawn = np.stack([np.rint(step(gradients, clip, noise, number).numpy() * scale) for number in range(600)])
    laws.has_the_variance(drawn, noise.noise_multiplier * (noise.steps + 2 * math.sqrt(noise.parameters)))
    laws.rows_are_unrelated(drawn)


def noise_of(gradients: ClippedSum, rate: float, multiplier: float = 1.0) -> StepNoise:
    """Return noise that fits."""
    count = len(gradients.weights)
    return StepNoise(KEY, parameters=count, noise_multiplier=multiplier, sampling_rate=rate)


def sums(step: Step, gradients: ClippedSum, clip: float, noise: StepNoise) -> Tensor:
    """Return the first step's noisy sum over all records."""
    return step(gradients, clip, noise, 0) * gradients.count


def are_binomial(sizes: Sequence[int], count: int, rate: float) -> None:
    """Batch sizes have the mean and the variance of so many independent coins."""
    variance = count * rate * (1 - rate)
    squares = np.square(np.asarray(sizes) - count * rate).sum() / variance
    p = 2 * min(stats.chi2.sf(squares, len(sizes)), stats.chi2.cdf(squares, len(sizes)))
    assert p > laws.FALSE_ALARM, f"the sizes are not binomial: p = {p:.2g}"
