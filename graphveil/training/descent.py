"""Softmax models by full-batch noisy gradient descent, with each record's gradient clipped analytically.

In softmax regression the gradient of one record is an outer product, so its norm is a product of two norms:
nothing is formed a record, and one step costs two products with the feature matrix. Every step reads all
records: its cost is that of one exact Gaussian, without any amplification argument.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.special import softmax

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.training.devices import CPU, deterministic_on

Matrix: TypeAlias = npt.NDArray[np.float64]
Inputs: TypeAlias = "Matrix | sparse.csr_array[np.float64]"

OnStep: TypeAlias = Callable[[int], None]

_ROWS_PER_CHUNK = 1 << 16  # rows that a device is given
_SAFETY = 1 + 1e-6  # a clipped gradient stays below one in spite of rounding


def _no_progress(done: int) -> None:
    """Tell nobody."""


class DescentNoise(Protocol):
    """The randomness of noisy steps: integer noise a step, and how many grid steps make one clipping norm."""

    @property
    def steps(self) -> float:
        """Grid steps in one clipping norm."""

    def noise(self, step: int) -> npt.NDArray[Any]:
        """Return the integer noise of one step, one number a parameter."""


@dataclass(frozen=True, kw_only=True)
class DescentSchedule:
    """How far, how fast and over how many records to descend. All of it is public configuration.

    Args:
        steps: T, the number of full-batch steps.
        rate: the step size.
        records: the public number of records n that a step divides by; null records count.
        momentum: m in V = m V + (1 - m) G.
    """

    steps: int
    rate: float
    records: int
    momentum: float = 0.9

    def __post_init__(self) -> None:
        """Check the ranges."""
        checks.integer_at_least(1, steps=self.steps, records=self.records)
        checks.positive(rate=self.rate)
        checks.within(0, 0.999, momentum=self.momentum)

    @property
    def averaged_noise(self) -> float:
        """Standard deviation of one output weight when every step adds N(0, 1) noise and nothing else.

        Without curvature the iterates are sums of noise, and so is their mean over the last half: noise of
        standard deviation s in each G becomes s ``averaged_noise`` in the output.

        >>> round(DescentSchedule(steps=60, rate=1.0, records=1).averaged_noise, 5)
        5.44347
        """
        path = np.zeros(self.steps)  # share of each step's noise in the sum of iterates of the last half
        for step in range(self.steps):
            kept = np.arange(max(step, self.steps - self._averaged), self.steps)
            path[step] = np.sum(1 - self.momentum ** (kept - step + 1))
        return self.rate * float(np.linalg.norm(path)) / self._averaged

    @property
    def _averaged(self) -> int:
        return max(1, self.steps // 2)


def descend(
    inputs: Inputs,
    labels: npt.NDArray[np.int64],
    start: Matrix,
    descent: DescentSchedule,
    noise: DescentNoise,
    on_step: OnStep = _no_progress,
    device: torch.device = CPU,
) -> Matrix:
    """Return weights (f + 1, C), the last row the bias, float64: the mean of the last T/2 iterates.

    Step t, with the clipped gradients g_i = outer((x_i, 1), p_i - e_{y_i}) / max(1, (1 + 1e-6) |...|):

        G = (trunc(s sum_i g_i) + noise.noise(t)) / (s n),    V = m V + (1 - m) G,    W = W - rate V,

    where s is ``noise.steps`` and trunc cuts towards zero. The gradient's norm |p - e_y| sqrt(|x|^2 + 1) is
    computed in float64. A record whose label is negative, or whose contribution is not finite, is null: it
    contributes nothing. Neither the sums nor the norms leave this function.

    Guarantee: unit one record. Nulling a record moves the sum of step t by at most one clipping norm, and
    truncation by one grid step a parameter, which the noise's sigma has to include (``StepNoise`` does).

    Shapes: inputs (n, f) dense or sparse float64, labels (n), start (f + 1, C). ``on_step`` is told how many
    steps are done. Sums over dense inputs are formed on ``device``; over sparse ones on the CPU, since sparse
    products of a GPU share out their work by how many values are stored, which is private.

    Raises:
        ConfigError: the shapes do not fit together.

    >>> class Silent:
    ...     steps = 2.0**20
    ...     def noise(self, step): return np.zeros(6, dtype=np.int64)
    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    >>> weights = descend(x, y, np.zeros((3, 2)), DescentSchedule(steps=10, rate=1.0, records=2), Silent())
    >>> (x @ weights[:-1] + weights[-1]).argmax(axis=1).tolist()
    [0, 1]
    """
    if start.ndim != 2 or start.shape[0] != inputs.shape[1] + 1 or labels.shape != (inputs.shape[0],):
        raise ConfigError(
            f"start weights {start.shape} must have one row more than the inputs {inputs.shape} have "
            f"columns, and labels {labels.shape} one entry per row"
        )
    there = device != CPU and isinstance(inputs, np.ndarray)
    gradient = _ClippedGradient(inputs, labels, start.shape[1])
    total = partial(_total_on, device, gradient) if there else gradient.total
    return _descend(total, start, descent, noise, on_step)


def descend_weights(
    experts: Sequence[Matrix],
    labels: npt.NDArray[np.int64],
    start: Matrix,
    descent: DescentSchedule,
    noise: DescentNoise,
    *,
    clip: float = 1.0,
) -> Matrix:
    """Return weights (K) of experts' logits, float64, by the same steps: logits are the sum of w_k L_k.

    A record's gradient is <p - e_y, L_k> for each k, over ``clip``, clipped to norm one. Null records, the
    guarantee and what leaves this function are as in :func:`descend`.

    Shapes: experts K times (n, C), labels (n), start (K).

    Raises:
        ConfigError: the shapes do not fit together.

    >>> class Silent:
    ...     steps = 2.0**20
    ...     def noise(self, step): return np.zeros(2, dtype=np.int64)
    >>> right, wrong = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> plan = DescentSchedule(steps=20, rate=1.0, records=2)
    >>> a, b = descend_weights([right, wrong], np.array([0, 1]), np.ones(2), plan, Silent())
    >>> bool(a > 1 > b)
    True
    """
    logits = np.stack([np.asarray(one, dtype=np.float64) for one in experts], axis=-1)
    if start.shape != logits.shape[2:] or labels.shape != logits.shape[:1]:
        raise ConfigError(
            f"start weights {start.shape} must have one entry for each of {logits.shape[2]} experts, and "
            f"labels {labels.shape} one for each of {logits.shape[0]} rows"
        )
    return _descend(_ClippedWeights(logits, labels, clip).total, start, descent, noise)


def _descend(
    total_at: Callable[[Matrix], Matrix],
    start: Matrix,
    descent: DescentSchedule,
    noise: DescentNoise,
    on_step: OnStep = _no_progress,
) -> Matrix:
    """Take noisy steps along clipped sums; the sums live and die here."""
    weights, velocity, total = start.astype(np.float64), np.zeros(start.shape), np.zeros(start.shape)
    for step in range(descent.steps):
        record_affine_calls = np.trunc(total_at(weights) * noise.steps)
        record_affine_calls += noise.noise(step).reshape(start.shape)
        velocity *= descent.momentum
        velocity += (1 - descent.momentum) * record_affine_calls / (noise.steps * descent.records)
        weights = weights - descent.rate * velocity
        if step >= descent.steps - descent._averaged:
            total += weights
        on_step(step + 1)
    return total / descent._averaged


class _ClippedGradient:
    """The sum of all records' clipped gradients, for any weights.

    A null record keeps its place, as a row of zeros: with one row less a product may round the other rows
    otherwise, and rows of huge features that cancel are nothing but rounding.
    """

    def __init__(self, inputs: Inputs, labels: npt.NDArray[np.int64], classes: int) -> None:
        """Empty the records that are null."""
        lengths = _squared_lengths(inputs)
        self.null = ~(np.isfinite(lengths) & (labels >= 0) & (labels < classes))
        self.inputs = _with_null_rows(inputs, self.null)
        self._transposed = self.inputs.T
        self.lengths = np.sqrt(np.where(self.null, 0.0, lengths) + 1)
        self.wanted = np.eye(classes)[np.where(self.null, 0, labels)]

    def total(self, weights: Matrix) -> Matrix:
        """Return the sum, shape (f + 1, C)."""
        with np.errstate(all="ignore"):  # what overflows is not finite and is dropped
            residual = softmax(self.inputs @ weights[:-1] + weights[-1], axis=1) - self.wanted
            norms = _SAFETY * np.sqrt(np.einsum("nc,nc->n", residual, residual)) * self.lengths
            residual *= (1 / np.maximum(norms, 1.0))[:, None]
        residual[self.null | ~np.isfinite(norms)] = 0.0
        out = np.empty_like(weights)
        out[:-1], out[-1] = self._transposed @ residual, residual.sum(axis=0)
        return out


def _total_on(device: torch.device, given: _ClippedGradient, weights: Matrix) -> Matrix:
    """Return :meth:`_ClippedGradient.total` of dense inputs, formed on a device chunk by chunk, float64."""
    parts = (torch.from_numpy(part) for part in (given.inputs, given.wanted, given.lengths, given.null))
    chunks = zip(*(torch.split(part, _ROWS_PER_CHUNK) for part in parts), strict=True)
    at = torch.from_numpy(weights).to(device)
    out = torch.zeros_like(at)
    with deterministic_on(device), torch.no_grad():
        for x, wanted, lengths, null in (tuple(part.to(device) for part in chunk) for chunk in chunks):
            residual = (x @ at[:-1]).add_(at[-1]).softmax(dim=1).sub_(wanted)
            norms = _SAFETY * residual.square().sum(dim=1).sqrt() * lengths
            residual.mul_(norms.clamp_min(1.0).reciprocal()[:, None])
            residual.masked_fill_((null | ~norms.isfinite())[:, None], 0.0)
            out[:-1].addmm_(x.t(), residual)
            out[-1].add_(residual.sum(dim=0))
    return out.to(CPU).numpy()


class _ClippedWeights:
    """The sum of all records' clipped gradients with respect to the weights of experts."""

    def __init__(self, logits: Matrix, labels: npt.NDArray[np.int64], clip: float) -> None:
        """Empty the records that are null; ``logits`` are (n, C, K)."""
        classes = logits.shape[1]
        finite = np.isfinite(logits).all(axis=(1, 2))
        self._null = ~(finite & (labels >= 0) & (labels < classes))
        self._logits, self._clip = np.where(self._null[:, None, None], 0.0, logits), clip
        self._wanted = np.eye(classes)[np.where(self._null, 0, labels)]

    def total(self, weights: Matrix) -> Matrix:
        """Return the sum, shape (K)."""
        with np.errstate(all="ignore"):  # what overflows is not finite and is dropped
            residual = softmax(self._logits @ weights, axis=1) - self._wanted
            gradients = np.einsum("nc,nck->nk", residual, self._logits) / self._clip
            norms = _SAFETY * np.sqrt(np.einsum("nk,nk->n", gradients, gradients))
            gradients *= (1 / np.maximum(norms, 1.0))[:, None]
        gradients[self._null | ~np.isfinite(norms)] = 0.0
        return np.asarray(gradients.sum(axis=0))


def _with_null_rows(inputs: Inputs, null: npt.NDArray[np.bool_]) -> Inputs:
    """Return a copy in which the rows of a mask are zero; sparse ones keep their places."""
    if isinstance(inputs, np.ndarray):
        return np.where(null[:, None], 0.0, inputs)
    copied = inputs.copy()
    copied.data[np.repeat(null, np.diff(copied.indptr))] = 0.0
    return copied


def _squared_lengths(inputs: Inputs) -> npt.NDArray[np.float64]:
    """Return |x|^2 of every row."""
    with np.errstate(all="ignore"):
        if isinstance(inputs, np.ndarray):
            return np.asarray(np.einsum("nf,nf->n", inputs, inputs))
        return np.asarray(inputs.multiply(inputs).sum(axis=1), dtype=np.float64).ravel()
