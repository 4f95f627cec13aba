"""Recipe R: a node reads the published rows of the nodes on its own list, and a noisy combiner weighs up.

Row v of a push is noisy; the rows of v's d own neighbours are noisy independently, and their sum tells v's
class with sqrt(d) times less noise. Reading needs no budget (``aggregate/own.py``): the prediction for v
depends on v's own record and published values. Training the combiner on labelled nodes does, and pays.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphveil.models.classcode.codes import simplex_codes
from graphveil.train.descent import Descent, Noise, descend

COMBINER_RATE = 8.0
_SUM_SCALE, _SUM_LENGTH, _LIKELY_SCALE, _LIKELY_RANGE = 3.0, 2.0, 3.0, 2.0
_FROM_SUM, _FROM_LIKELY = 3.0, 2.0  # the start's trust in the sums and in the row's log-likelihoods

Read = Callable[[Tensor], tuple[Tensor, Tensor]]  # published rows to sums over own lists, and their lengths


def own_reading(
    read: Read, rows: Tensor, sigma: float, sent: Tensor, released: Tensor, degree_budget: float = 1.0
) -> Tensor:
    """Return what each node hears on its own list, in noise units: float64 (N, d), zero without a list.

    r_v = sum over the own list of (Z_u - w_v c_v), with w_v = 1 / sqrt(max(d_v, D)), over sigma sqrt(d_v).
    A node takes out what it wrote itself, so a labelled node does not see its own label. Only released rows
    count, in the sum and in d_v.

    Args:
        read: sums published rows over each node's own list.
        rows: Z, the released rows of one push with weights one, zeros elsewhere.
        sigma: their noise.
        sent: c, what each node sent.
        released: bool (N).
        degree_budget: D of the push.
    """
    counted = torch.cat([rows.to(torch.float64), released[:, None].to(torch.float64)], dim=1)
    sums, _ = read(counted)
    degrees = sums[:, -1:].round()
    written = sent * degrees / degrees.clamp_min(degree_budget).sqrt()
    heard: Tensor = (sums[:, :-1] - written) / (sigma * degrees.clamp_min(1).sqrt())
    return heard


def combiner_inputs(log_posteriors: Tensor, reading: Tensor, log_likelihoods: Tensor) -> Tensor:
    """Return [lp, r/3 of norm at most 2, r/|r|, lk/3 within 2], float64, shape (N, 4 C - 2)."""
    length = reading.norm(dim=1, keepdim=True).clamp_min(1e-12)
    shortened = reading * (_SUM_LENGTH * _SUM_SCALE / length).clamp_max(1.0) / _SUM_SCALE
    likely = (log_likelihoods / _LIKELY_SCALE).clamp(-_LIKELY_RANGE, _LIKELY_RANGE)
    centred = log_posteriors - log_posteriors.mean(dim=1, keepdim=True)
    return torch.cat([centred, shortened, reading / length, likely], dim=1).to(torch.float64)


def prior_start(classes: int) -> Tensor:
    """Return the combiner's start, shape (4 C - 1, C): a public belief that friends resemble each other."""
    codes, eye = simplex_codes(classes), torch.eye(classes, dtype=torch.float64)
    directions = torch.zeros(classes - 1, classes, dtype=torch.float64)
    bias = torch.zeros(1, classes, dtype=torch.float64)
    return torch.cat([eye, _FROM_SUM * codes.T, directions, _FROM_LIKELY * eye, bias])


@dataclass(frozen=True)
class Combiner:
    """A linear classifier of combiner inputs; ``weights`` (4 C - 1, C), the last row the bias."""

    weights: Tensor

    def log_posteriors(self, inputs: Tensor) -> Tensor:
        """Return log-posteriors (N, C), float64."""
        return (inputs @ self.weights[:-1] + self.weights[-1]).log_softmax(dim=1)


def fit_combiner(inputs: Tensor, labels: Tensor, labelled: Tensor, *, steps: int, noise: Noise) -> Combiner:
    """Train on the labelled nodes from the public start; a member without a label (-1) is null."""
    nodes = np.flatnonzero(labelled.numpy())
    classes = (inputs.shape[1] + 2) // 4
    descent = Descent(steps=steps, rate=COMBINER_RATE, records=len(nodes))
    weights = descend(
        inputs.numpy()[nodes], labels.numpy()[nodes], prior_start(classes).numpy(), descent, noise
    )
    return Combiner(torch.from_numpy(weights))
