"""What a node's own features say about its class: softmax regression by noisy descent, honestly unsure."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.graph import Features
from graphveil.models.method import State
from graphveil.train.descent import Descent, Inputs, Noise, descend

ROW_NORM = 5.0
_RATE, _RATE_RANGE, _USUAL, _POWER = 5.0, (2.0, 60.0), 900.0, 1.3


@dataclass(frozen=True)
class Encoder:
    """A linear classifier of scaled feature rows, and the public noise of its weights.

    Shapes: ``weights`` (f + 1, C), the last row the bias.
    """

    weights: Tensor
    weight_noise: float

    def state(self) -> State:
        """Return both as tensors."""
        return {"encoder": self.weights, "noise": torch.tensor(self.weight_noise, dtype=torch.float64)}

    @classmethod
    def restore(cls, state: State) -> "Encoder":
        """Return the encoder from its tensors."""
        return cls(state["encoder"], float(state["noise"]))

    def log_posteriors(self, x: Features) -> Tensor:
        """Return log-posteriors (N, C), float64: logits shrunk by what the weights' noise adds to them.

        A logit's noise has standard deviation sqrt(|x|^2 + 1) s_w; the mean of a softmax over it is close
        to the softmax of the logits divided by sqrt(1 + pi/8 (|x|^2 + 1) s_w^2).
        """
        inputs, weights = scaled_rows(x), self.weights.numpy()
        logits = inputs @ weights[:-1] + weights[-1]
        lengths = inputs * inputs if isinstance(inputs, np.ndarray) else inputs.multiply(inputs)
        variance = (np.asarray(lengths.sum(axis=1)).ravel() + 1) * self.weight_noise**2
        shrunk = logits / np.sqrt(1 + math.pi / 8 * variance)[:, None]
        return torch.from_numpy(shrunk).log_softmax(dim=1)


def encoder_descent(steps: int, noise_multiplier: float, records: int) -> Descent:
    """Return the encoder's schedule: the step size follows from how loud the noise is, a public figure.

    rate = clip(5 (m / 900)^1.3, 2, 60) with m = n sqrt(T) / z, the descent's mu times the records.

    >>> round(encoder_descent(60, 91.3814, 11925).rate, 4)
    5.8148
    """
    loudness = records * math.sqrt(steps) / noise_multiplier
    rate = _RATE * (loudness / _USUAL) ** _POWER
    low, high = _RATE_RANGE
    return Descent(steps=steps, rate=min(max(rate, low), high), records=records)


def fit_encoder(
    x: Features,
    labels: Tensor,
    labelled: Tensor,
    classes: int,
    *,
    steps: int,
    noise_multiplier: float,
    noise: Noise,
) -> Encoder:
    """Train on the labelled nodes; ``labelled`` is public, and a member without a label (-1) is null.

    Args:
        x: features (N, f).
        labels: class numbers (N); those outside ``labelled`` are not read.
        labelled: bool (N).
        classes: C.
        steps, noise_multiplier: of the query that ``noise`` belongs to.
        noise: the randomness of the steps.
    """
    nodes = np.flatnonzero(labelled.numpy())
    descent = encoder_descent(steps, noise_multiplier, len(nodes))
    start = np.zeros((x.shape[1] + 1, classes))
    inputs = scaled_rows(x if len(nodes) == len(labelled) else x[nodes])
    weights = descend(inputs, labels.numpy()[nodes], start, descent, noise)
    return Encoder(torch.from_numpy(weights), noise_multiplier / len(nodes) * descent.averaged_noise)


def scaled_rows(x: Features) -> Inputs:
    """Return the features in float64 with every row scaled to norm 5, each by its own values; zeros stay.

    >>> scaled_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[3.0, 4.0], [0.0, 0.0]]
    """
    if isinstance(x, Tensor):
        dense = x.to(torch.float64).numpy()
        return dense * _scales(np.einsum("nf,nf->n", dense, dense))[:, None]
    rows = x.astype(np.float64)
    scales = _scales(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    values = rows.data * np.repeat(scales, np.diff(rows.indptr))
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def _scales(squared: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(ROW_NORM, np.sqrt(squared), out=np.zeros_like(squared), where=squared > 0)
