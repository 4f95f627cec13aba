"""The direction in which an undirected edge counts in training: exactly one, independent of other edges."""

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Hashes = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)  # the mixing of SplitMix64 (Steele, Lea, Flood, 2014)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def select_one_direction(sources: Ids, targets: Ids, learns: Mask) -> Mask:
    """Return which stored edges of an undirected graph are used: exactly one direction per undirected edge.

    An edge between a training node and another node counts at the training node. Between two nodes of the
    same kind, a hash of both ids decides.

    Args:
        sources, targets: Ends of stored edges, shape (E).
        learns: Mask of the training nodes, shape (N).

    Privacy:
        The direction is a function of the two node ids and of ``learns``, all public. Adding or removing an
        undirected edge therefore changes the inputs of one target only.

    >>> up, down = np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> nobody = np.zeros(3, dtype=bool)
    >>> bool((select_one_direction(up, down, nobody) ^ select_one_direction(down, up, nobody)).all())
    True
    """
    return np.where(
        learns[sources] == learns[targets], is_chosen_direction(sources, targets), learns[targets]
    )


def is_chosen_direction(sources: Ids, targets: Ids) -> Mask:
    """Return which stored edges a hash of both ids chooses: exactly one direction per undirected edge.

    >>> up, down = np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> bool((is_chosen_direction(up, down) ^ is_chosen_direction(down, up)).all())
    True
    """
    coin = (pair_hash(sources, targets) >> np.uint64(63)).astype(bool)  # fixed for each pair of nodes
    return np.asarray((targets > sources) == coin)


def pair_hash(sources: Ids, targets: Ids) -> Hashes:
    """Return a public hash of both node ids, the same for both directions of an undirected edge.

    >>> up, down = np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> bool((pair_hash(up, down) == pair_hash(down, up)).all())
    True
    """
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    return mixed((low.astype(np.uint64) << np.uint64(32)) + high.astype(np.uint64))


def mixed(words: Hashes) -> Hashes:
    """Return each word after the first two rounds of SplitMix64."""
    words = words + _ODD
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    return (words ^ (words >> np.uint64(27))) * _SECOND
