"""Softmax regression on protected records: noisy full-batch descent, with calibrated uncertainty.

With a small budget, a linear model of rows with equal norm is most accurate. The noise in a logit depends on
the norm of the row, not on the number of features, and every step is one exact Gaussian.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.clipping.ghost_modules import Affine
from graphveil.core.features import Features
from graphveil.core.queries.training_steps import DPSGDData, DPSGDQuery
from graphveil.core.release import Release
from graphveil.core.view import map_records
from graphveil.estimators.method import State

Matrix = npt.NDArray[np.float64]
OnStep = Callable[[int], None]

STEPS = 60
ROW_NORM = 5.0
_RATE, _USUAL, _POWER = 5.0, 900.0, 1.1
_SLOWEST, _FASTEST, _CROWDED = 2.0, 80.0, 20.0


@dataclass(frozen=True)
class NoisySoftmax:
    """A linear classifier of scaled features, and the public noise of its parameters.

    Shapes: ``weights`` (f + 1, C), the last row the bias.
    """

    weights: Tensor
    weight_noise: float

    def state(self) -> State:
        """Return both as tensors."""
        return {"encoder": self.weights, "noise": torch.tensor(self.weight_noise, dtype=torch.float64)}

    @classmethod
    def restore(cls, state: State) -> "NoisySoftmax":
        """Return the model from its tensors."""
        return cls(state["encoder"], float(state["noise"]))

    def log_posteriors(self, x: Features) -> Tensor:
        """Return log-posteriors (N, C), float64: logits shrunk by the variance from the parameters' noise.

        A logit's noise has standard deviation sqrt(|x|^2 + 1) s_w; the mean of a softmax over it is close
        to the softmax of the logits divided by sqrt(1 + pi/8 (|x|^2 + 1) s_w^2).
        """
        inputs, weights = scaled_rows(x), self.weights.numpy()
        logits = inputs @ weights[:-1] + weights[-1]
        lengths = inputs * inputs if isinstance(inputs, np.ndarray) else inputs.multiply(inputs)
        variance = (np.asarray(lengths.sum(axis=1)).ravel() + 1) * self.weight_noise**2
        shrunk = logits / np.sqrt(1 + math.pi / 8 * variance)[:, None]
        return torch.from_numpy(shrunk).log_softmax(dim=1)


def softmax_schedule(
    noise_multiplier: float, records: int, features: int, steps: int = STEPS
) -> PrivateSchedule:
    """Return the schedule; the step size is a function of the noise multiplier and public sizes.

    rate = max(2, min(5 (m / 900)^1.1, 80, 20 n / f)) with m = n sqrt(T) / z, the descent's mu times the n
    records, and f features. With few records per feature, long steps memorize records and noise.

    >>> [round(softmax_schedule(z, 14000, 500).learning_rate, 1) for z in (28.9, 8.37, 2.67)]
    [24.0, 80.0, 80.0]
    """
    loudness = records * math.sqrt(steps) / noise_multiplier
    fastest = min(_FASTEST, _CROWDED * records / features)
    rate = max(_SLOWEST, min(_RATE * math.pow(loudness / _USUAL, _POWER), fastest))
    return PrivateSchedule.full_batch(steps=steps, learning_rate=rate)


def fit_softmax(
    release: Release,
    query: DPSGDQuery,
    records: Any,
    labels: Any,
    classes: int,
    schedule: PrivateSchedule,
    *,
    on_step: OnStep = lambda done: None,
) -> NoisySoftmax:
    """Train as the release's next query, from parameters of zero.

    Args:
        release: Open release.
        query: The steps, its next query.
        records: Features of the training records, (n, f).
        labels: Their classes (n); a member without a label (-1) is a null record.
        classes: C.
        schedule: Schedule of the steps.
        on_step: Called after each step with the number of completed steps.
    """
    start = torch.zeros(records.shape[1] + 1, classes, dtype=torch.float64)
    inputs = map_records(scaled_inputs, records)
    weights = descend_softmax(release, inputs, labels, start, schedule, on_step=on_step)
    return NoisySoftmax(weights, query.noise_multiplier / len(labels) * schedule.averaged_noise)


def descend_softmax(
    release: Release,
    inputs: Any,
    labels: Any,
    start: Tensor,
    schedule: PrivateSchedule,
    *,
    on_step: OnStep = lambda done: None,
) -> Tensor:
    """Return parameters (f + 1, C) of a linear classifier of inputs (n, f), the release's next result.

    Args:
        release: Open release.
        inputs, labels: Training records.
        start: Initial parameters, (f + 1, C), the last row the bias.
        schedule: Schedule of the steps.
        on_step: Called after each step with the number of completed steps.
    """
    weight, bias = start[:-1].clone(), start[-1].clone()
    gradients = clipped_sum(Affine(weight, bias), inputs, labels)
    settings = (weight, bias)
    data = DPSGDData(gradients=gradients, schedule=schedule, settings=settings, on_step=on_step)
    gradients.store(release.answer(data))
    return torch.cat([weight, bias[None]])


def scaled_inputs(x: Features) -> Features:
    """Return ``scaled_rows`` as features."""
    rows = scaled_rows(x)
    return torch.from_numpy(rows) if isinstance(rows, np.ndarray) else cast(Features, rows)


def scaled_rows(x: Features) -> Matrix | sparse.csr_array[np.float64]:
    """Return the features in float64 with every row scaled to norm 5, independently; zeros stay.

    >>> scaled_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[3.0, 4.0], [0.0, 0.0]]
    """
    if isinstance(x, Tensor):
        dense = x.to(torch.float64, copy=True).numpy()
        dense *= _scales(np.einsum("nf,nf->n", dense, dense))[:, None]  # in place: they may be large
        return dense
    rows = x.astype(np.float64)
    scales = _scales(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    values = rows.data * np.repeat(scales, np.diff(rows.indptr))
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def _scales(squared: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(ROW_NORM, np.sqrt(squared), out=np.zeros_like(squared), where=squared > 0)
