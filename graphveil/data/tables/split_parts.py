"""The parts of a split: how many nodes each has, and what is missing in them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

PARTS = ("train", "val", "test")
SHARES = (0.75, 0.10)  # of train and val, where a table names no split and no recipe was chosen
SINGLE_TRAIN_NODE_MESSAGE = (
    "the split has one labeled train node, and networks trained in the clear compare the nodes of a "
    "batch, which takes two; label more nodes, or choose a split that has more (--split COLUMN)"
)
_EXCESS = 1e-9  # undoes products such as 0.29 * 100 that fall just below a whole number


def part_bounds(count: int, train: float, val: float) -> npt.NDArray[np.int64]:
    """Return where val and test begin among so many nodes; train and val are rounded down.

    >>> part_bounds(9, *SHARES).tolist()
    [6, 7]
    """
    return np.floor(np.array([train, train + val]) * count + _EXCESS).astype(np.int64)


def empty_parts(members: Sequence[str | None] | None, counts: npt.NDArray[np.bool_]) -> list[str]:
    """Return the parts that have no node.

    Args:
        members: the part of each node; None where the nodes that count are split at random.
        counts: which nodes count.

    >>> empty_parts(["train", None, "val", "test"], np.array([True, True, False, True]))
    ['val']
    >>> empty_parts(None, np.ones(8, dtype=bool))
    ['val']
    """
    if members is not None:
        there = {part for part, one in zip(members, counts.tolist(), strict=True) if one}
        return [part for part in PARTS if part not in there]
    sizes = np.diff(part_bounds(int(counts.sum()), *SHARES), prepend=0, append=int(counts.sum()))
    return [part for part, size in zip(PARTS, sizes.tolist(), strict=True) if size == 0]


def has_single_train_node(members: Sequence[str | None] | None, counts: npt.NDArray[np.bool_]) -> bool:
    """Return whether one node that counts is all that a named split trains on; shares leave more.

    >>> has_single_train_node(["train", "train", "val"], np.array([True, False, True]))
    True
    """
    return members is not None and np.asarray(members, dtype=object)[counts].tolist().count("train") == 1


def empty_part_message(part: str) -> str:
    """Return the words for a part of the split without a labeled node."""
    return (
        f"the split has no labeled {part} nodes; label more nodes, or choose a split that has some "
        "(--split COLUMN)"
    )
