"""How far an answer about one graph is from the answer about another."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil.lab.fidelity.simple_graph import Floats, Integers


def relative_error(true: float | None, released: float | None) -> float | None:
    """Return |true - released| / |true|; None where an answer is undefined, or only the true one is zero.

    >>> relative_error(4.0, 5.0), relative_error(0.0, 0.0), relative_error(0.0, 1.0)
    (0.25, 0.0, None)
    """
    if true is None or released is None:
        return None
    if true == released:
        return 0.0
    return abs(true - released) / abs(true) if true else None


def kl_divergence(true: npt.ArrayLike, released: npt.ArrayLike) -> float:
    """Return KL(p || q) = sum_k p_k ln(p_k / q_k) of two counts over the same K values, in nats.

    A value that only one graph has would make it infinite, so one more observation is spread evenly over the
    K values of either: p_k = (c_k + 1/K) / (n + 1) for counts c_k that add up to n.

    Shapes: (K) and (K).

    >>> kl_divergence([2, 1], [2, 1]), round(kl_divergence([3, 0], [0, 3]), 4)
    (0.0, 1.4594)
    """
    p, q = (_smoothed(np.asarray(counts, dtype=np.float64)) for counts in (true, released))
    return max(0.0, float((p * np.log(p / q)).sum()))


def _smoothed(counts: Floats) -> Floats:
    smoothed: Floats = (counts + 1 / max(1, len(counts))) / (counts.sum() + 1)
    return smoothed


def normalized_mutual_information(first: Integers, second: Integers) -> float:
    """Return 2 I / (H_1 + H_2) of two partitions of the same nodes: 1 if they are equal, 0 if independent.

    I is the mutual information of a random node's two communities and H their entropies. Two partitions with
    a single community each are equal.

    Shapes: (N) and (N), communities numbered from 0.

    >>> halves, crossed = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> normalized_mutual_information(halves, 1 - halves), normalized_mutual_information(halves, crossed)
    (1.0, 0.0)
    """
    joint = _joint(first, second)
    p, q = np.asarray(joint.sum(axis=1)).ravel(), np.asarray(joint.sum(axis=0)).ravel()
    both = _entropy(p) + _entropy(q)
    if both == 0:
        return 1.0
    mutual = both - _entropy(joint.data)
    return min(1.0, max(0.0, 2 * mutual / both))


def _joint(first: Integers, second: Integers) -> Any:
    """Return the shares of nodes in each pair of communities, as a matrix without zeros."""
    shares = np.full(len(first), 1 / max(1, len(first)))
    return sparse.coo_array((shares, (first, second))).tocsr()


def _entropy(shares: Floats) -> float:
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def mean_absolute_error(true: Floats, released: Floats) -> float:
    """Return the mean over nodes of |true_v - released_v|.

    >>> mean_absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    1.0
    """
    return float(np.abs(true - released).mean())
