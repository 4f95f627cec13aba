"""How far apart two exact laws are, and laws of the exponential mechanism over all dendrograms."""

import math

import numpy as np

from dendrogram.trees import likelihoods


def loss(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest log ratio of two laws; infinite where only one of them is possible."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(np.log(one) - np.log(other))
    return float(
        np.where((one == 0) & (other == 0), 0, np.where((one == 0) | (other == 0), np.inf, ratio)).max()
    )


def hockey_stick(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """Return the delta of two laws at an epsilon."""
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum(axis=-1).max())


def exponential_loss(leaves: int, exponent: float) -> float:
    """Return the loss of drawing a tree with probability proportional to exp(exponent L), over all graphs."""
    scaled = exponent * likelihoods(leaves)
    law = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    slots = leaves * (leaves - 1) // 2
    return max(float(np.abs(law - law[np.arange(len(law)) ^ 1 << slot]).max()) for slot in range(slots))
