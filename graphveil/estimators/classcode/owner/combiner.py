"""Recipe R: a node reads the published rows of the nodes on its own list, and a noisy combiner weighs up.

Row v of a push is noisy; the rows of v's d own neighbors are noisy independently, and their sum tells v's
class with sqrt(d) times less noise. Reading needs no budget (``release/out_edge_sums.py``): the
prediction for v depends on v's own record and published values. Training the combiner on labeled nodes does,
and pays.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.training.descent import DescentNoise, DescentSchedule, descend

COMBINER_RATE = 8.0
_TINY = 1e-12
_SUM_SCALE, _SUM_LENGTH, _LIKELY_SCALE, _LIKELY_RANGE = 3.0, 2.0, 3.0, 2.0
_FROM_SUM, _FROM_LIKELY = 3.0, 2.0  # the start's trust in the sums and in the row's log-likelihoods

Read = Callable[[Tensor], tuple[Tensor, Tensor]]  # published rows to sums over own lists, and their lengths


def own_neighborhood_sum(
    read: Read, rows: Tensor, sigma: float, shrinkage: Tensor, sent: Tensor, out_degree_bound: float = 1.0
) -> Tensor:
    """Return what each node hears on its own list, in noise units: float64 (N, d), zero without a list.

    With d_v the length of v's list and w_v = 1 / sqrt(max(d_v, D)) the weight it wrote with,

        r_v = sum over the own list of b_u (Z_u - w_v c_v), divided by sigma sqrt(sum of b_u^2).

    A node takes out what it wrote itself, so a labeled node does not hear its own label.

    Args:
        read: sums published rows over each node's own list.
        rows: Z, the rows of one push with weights one, (N, d).
        sigma: their noise.
        shrinkage: b, a function of published rows, (N); see :func:`row_shrinkage`.
        sent: c, what each node sent, (N, d).
        out_degree_bound: D of the push.
    """
    trusted = shrinkage.to(torch.float64)[:, None]
    sums, degrees = read(torch.cat([trusted * rows, trusted, trusted.square()], dim=1))
    weights = degrees.to(torch.float64).clamp_min(out_degree_bound).rsqrt()
    others = sums[:, :-2] - weights[:, None] * sums[:, -2:-1] * sent
    length = sums[:, -1:].clamp_min(0).sqrt()
    return torch.where(length > 0, others / (sigma * length.clamp_min(_TINY)), 0.0)


def row_shrinkage(strengths: Tensor, sigma: float) -> Tensor:
    """Return how much of a row to add to a sum: s / (sigma^2 + s^2), up to a factor.

    A row of strength s is s f + noise, and what a friend learns from it is its direction f. Rows below the
    noise count by their strength, rows above it by their direction alone: otherwise the many friends of a
    few popular nodes would all hear the same.

    >>> row_shrinkage(torch.tensor([0.5, 1.0, 2.0]), 1.0)
    tensor([0.4000, 0.5000, 0.4000])
    """
    return strengths * sigma / (strengths.square() + sigma**2)


def combiner_inputs(log_posteriors: Tensor, neighborhood_sum: Tensor, log_likelihoods: Tensor) -> Tensor:
    """Return [lp, r/3 of norm at most 2, r/|r|, lk/3 within 2], float64, shape (N, 4 C - 2)."""
    length = neighborhood_sum.norm(dim=1, keepdim=True).clamp_min(_TINY)
    shortened = neighborhood_sum * (_SUM_LENGTH * _SUM_SCALE / length).clamp_max(1.0) / _SUM_SCALE
    likely = (log_likelihoods / _LIKELY_SCALE).clamp(-_LIKELY_RANGE, _LIKELY_RANGE)
    centered = log_posteriors - log_posteriors.mean(dim=1, keepdim=True)
    return torch.cat([centered, shortened, neighborhood_sum / length, likely], dim=1).to(torch.float64)


def prior_combiner_weights(classes: int) -> Tensor:
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


def fit_combiner(
    inputs: Tensor, labels: Tensor, labeled: Tensor, *, steps: int, noise: DescentNoise
) -> Combiner:
    """Train on the labeled nodes from the public start; a member without a label (-1) is null."""
    nodes = np.flatnonzero(labeled.numpy())
    classes = (inputs.shape[1] + 2) // 4
    descent = DescentSchedule(steps=steps, rate=COMBINER_RATE, records=len(nodes))
    weights = descend(
        inputs.numpy()[nodes], labels.numpy()[nodes], prior_combiner_weights(classes).numpy(), descent, noise
    )
    return Combiner(torch.from_numpy(weights))
