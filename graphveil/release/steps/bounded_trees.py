"""Trees of exact neighbors in which a record reaches a bounded number of roots: list bounds, then caps.

An exact read outside the noisy queries, like ``ego_graphs.py``, but with another rule: the tree of v is a
function of the records of *all* nodes in it. Results computed from it are released only by steps whose
privacy cost covers all roots that one record reaches (``tree_steps.py``).
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.steps.bounded_lists import NO_NODE, cut_lists


class BoundedTrees:
    """The trees of all nodes, sampled again in every round.

    At each depth l = 1 .. r of a round

    1. *list bound*: every node u keeps at most D of the nodes on its own list, chosen by u's hash values;
    2. *receivers' cap*: every node v keeps at most M of the u that kept v, chosen by v's hash values;

    and in the tree of root v, the children of w at depth l - 1 are the nodes that w kept.

    Shapes: a tree has 1 + M + ... + M^r places; place 0 is the root.

    Args:
        adjacency: The in-edges; a stored edge belongs to its source.
        slots: D; None for the whole list, which only an assumption about degrees bounds.
        cap: M.
        depth: r.
        key: 32 bytes, which fix all hash values. They may be public.

    Privacy:
        Lemma of reach (``proofs/custom-models.md``): for any hash values, the record of q changes the
        trees of at most D + ... + D^r roots other than q. The order matters: if receivers chose first, the
        record of a hub could change the trees of all its neighbors. M bounds the work, not the reach.

    >>> pair = Adjacency.from_edges([0, 1], [2, 2], num_nodes=3, directed=True)
    >>> trees = BoundedTrees(pair, slots=1, cap=2, depth=1, key=bytes(32))
    >>> trees.of_roots(torch.tensor([2, 0])).tolist(), trees.parents.tolist()
    ([[2, 0, 1], [0, -1, -1]], [0, 0])
    """

    def __init__(self, adjacency: Adjacency, *, slots: int | None, cap: int, depth: int, key: bytes) -> None:
        """Read the lists, and draw the first round."""
        checks.integer_at_least(1, cap=cap, depth=depth)
        self._lists, starts = PrivateEdges(adjacency).out_neighbors()
        self._nodes = len(starts) - 1
        self._owner = np.repeat(np.arange(self._nodes), np.diff(starts.numpy()))
        self._slots, self._cap, self._depth, self._key = slots, cap, depth, key
        self.parents = _parents(cap, depth)
        self._round = -1
        self._levels: list[Tensor] = []
        self.draw(0)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """All inputs of the trees besides the hash values."""
        return self._lists, torch.from_numpy(self._owner)

    @property
    def places(self) -> int:
        """The public number of nodes of a tree."""
        return len(self.parents) + 1

    def draw(self, number: int) -> None:
        """Sample all trees with the hash values of a round; the current round is not sampled again."""
        if number != self._round:
            self._levels = [self._level(number, level) for level in range(1, self._depth + 1)]
            self._round = number

    def of_roots(self, roots: Tensor) -> Tensor:
        """Return the nodes at the places of the roots' trees, (B, places) int64; empty places are padded."""
        found = [roots[:, None].to(torch.int64)]
        for level in self._levels:
            above = found[-1]
            below = level[above.clamp_min(0)].to(torch.int64)
            below[above == NO_NODE] = NO_NODE
            found.append(below.flatten(start_dim=1))
        return torch.cat(found, dim=1)

    def _level(self, number: int, level: int) -> Tensor:
        """Return the children of each node at this depth, (N, M) int32."""
        source, target = self._kept(self._coins("slots", number, level))
        order = np.lexsort((source, target))
        return cut_lists(
            target[order], source[order], self._nodes, self._cap, self._coins("cap", number, level)
        )

    def _kept(self, coins: bytes) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]:
        """Return the pairs (u, v) where u keeps v."""
        if self._slots is None:
            return self._owner, self._lists.numpy()
        slots = cut_lists(self._owner, self._lists.numpy(), self._nodes, self._slots, coins).numpy()
        there = slots != NO_NODE
        return np.nonzero(there)[0], slots[there].astype(np.int64)

    def _coins(self, *address: object) -> bytes:
        return hashlib.blake2b(repr(address).encode(), key=self._key, digest_size=32).digest()


def _parents(cap: int, depth: int) -> Tensor:
    """Return the parent place of each place but the root's."""
    above, found = torch.zeros(1, dtype=torch.int64), []
    for _ in range(depth):
        parents = above.repeat_interleave(cap)
        found.append(parents)
        first = 1 + sum(map(len, found[:-1]))
        above = torch.arange(first, first + len(parents))
    return torch.cat(found)
