"""Recipe S: noisy pushes of codes along the sources' own edges, each steered by what the last ones told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.classcode.owner.decoder import DecodedRows, decode
from graphveil.estimators.classcode.owner.messages import NodeMessages

Push = Callable[[Tensor, Tensor], Tensor]  # vectors (N, d) and levels (N) to noisy rows (N, d)

# Squared weights in sixteenths. Level 0 is a row that is not released; from there on factors of sqrt 2.
LEVELS = (0, *(round(16 * 2 ** (k / 2)) for k in range(20)))
FLAT_LEVELS = LEVELS[:2]  # released at weight one, or not
FIRST_LEVELS = LEVELS[:10]  # up to weight four
_FLAT, _PREFERRED = 1, 8
_LATER = 64.0
_UNCERTAINTY_FLOOR = 0.05


@dataclass(frozen=True)
class AggregatedCodes:
    """What the rows said of each node; zero where no row is released.

    Shapes: ``log_likelihoods`` (N, C), ``strengths`` (N), ``rows`` (N, C-1): all pushes together, with noise
    of standard deviation ``sigma``.
    """

    log_likelihoods: Tensor
    strengths: Tensor
    rows: Tensor
    sigma: float


def aggregate_and_decode(
    push: Push,
    sigmas: Sequence[float],
    messages: NodeMessages,
    log_posteriors: Tensor,
    released: Tensor,
    prioritized: Tensor,
) -> AggregatedCodes:
    """Push once for every sigma and decode all rows together.

    The first push gives favored rows four times the weight of others: nodes whose class is known need less
    to be told about theirs. The next ones give more of every source's bounded weight to rows that are weak
    and unclear so far: g_v = E[s_v]^-1/2 (H_v + 0.05)^1/2, rounded to public levels, and eight times that for
    favored ones, whose strengths are larger for their weight. Sources whose class is not known send a
    better guess each time. Rows add up by their precision.

    Args:
        push: answers one query; it bounds every source's weights and adds noise.
        sigmas: the noise of each push.
        messages: who sends what.
        log_posteriors: from the features, (N, C).
        released: public set of rows, bool (N).
        prioritized: public set of rows that matter more than the rest, bool (N).
    """
    codes = simplex_codes(messages.classes)
    vectors = messages.first(log_posteriors)
    levels = torch.where(released, torch.where(prioritized, _FLAT + _PREFERRED, _FLAT), 0)
    total, precision = torch.zeros(len(released), codes.shape[1], dtype=torch.float64), 0.0
    for number, sigma in enumerate(sigmas, start=1):
        total += push(vectors, levels).to(torch.float64) / sigma**2
        precision += sigma**-2
        decoded = decode((total / precision)[released], precision**-0.5, codes)
        likely = torch.zeros_like(log_posteriors, dtype=torch.float64)
        likely[released] = decoded.log_likelihoods
        if number < len(sigmas):
            vectors = messages.later(log_posteriors + likely)
            levels[released] = allocate_levels(decoded, prioritized[released])
    strengths = torch.zeros(len(released), dtype=torch.float64)
    strengths[released] = decoded.strengths
    return AggregatedCodes(likely, strengths, total / precision, precision**-0.5)


def allocate_levels(decoded: DecodedRows, prioritized: Tensor) -> Tensor:
    """Return the level of each decoded row, the smallest weight being one.

    >>> even, faint = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.25])
    >>> nobody = torch.zeros(2, dtype=torch.bool)
    >>> allocate_levels(DecodedRows(torch.zeros(2, 3), faint, even), nobody).tolist()
    [1, 5]
    """
    squared = (
        (decoded.uncertainties + _UNCERTAINTY_FLOOR)
        / decoded.strengths
        * torch.where(prioritized, _LATER, 1.0)
    )
    return level_of(squared / squared.min()) if len(squared) else _FLAT + torch.zeros(0, dtype=torch.int64)


def level_of(squared: Tensor) -> Tensor:
    """Return the nearest level of squared weights that are at least one, by their logarithm."""
    return (2 * squared.log2()).round().clamp(0, len(LEVELS) - 1 - _FLAT).to(torch.int64) + _FLAT
