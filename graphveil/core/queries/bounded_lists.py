"""Exact reads of node lists of a bounded length, outside the noisy queries: 1-hop ego graphs, and trees.

A list is truncated to a public length by hash values of single pairs (``cut_lists``). Results computed from
these reads and from published values must not be published, unless a mechanism charges for them:

* the *ego graph* of v is a function of v's own record and of public hash values, like the sums of
  ``out_edge_sums.py``. Only readers authorized to access v's record may receive what is computed from it;
* the *tree* of v is a function of the records of all nodes in it. List bounds and caps bound the number
  of roots that a record reaches. Only steps whose privacy cost covers all of them release it
  (``training_steps.py``).
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from graphveil._util import checks
from graphveil.core.clipping.ghost_modules import tensors_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import Features
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.view import own_rows, unwrapped

NO_NODE = -1  # marks an empty entry

Ids = npt.NDArray[np.int64]


def cut_lists(owner: Ids, listed: Ids, count: int, most: int, key: bytes) -> Tensor:
    """Return every owner's list, truncated to ``most`` entries: those with the smallest hash values.

    There is one hash value for each ordered pair (owner, entry), computed from both ids and the key. It does
    not depend on any list or its length. Removing an entry does not change the order of the others. Hash
    values may be public.

    Shapes: (count, most) int32, entries in their input order, padded with ``NO_NODE``.

    Args:
        owner, listed: The pairs, (E), owners ascending.

    >>> cut_lists(np.array([0, 0, 2]), np.array([1, 2, 0]), 3, 2, bytes(32)).tolist()
    [[1, 2], [-1, -1], [0, -1]]
    """
    lengths = np.bincount(owner, minlength=count)
    kept = np.ones(len(listed), dtype=bool)
    long = np.flatnonzero((lengths > most)[owner])
    if long.size:
        coins = RowStream(key).blocks(owner[long], listed[long])[:, 0]
        order = np.lexsort((listed[long], coins, owner[long]))
        rank = np.empty(long.size, dtype=np.int64)
        rank[order] = _places(owner[long][order])
        kept[long] = rank < most
    entries = np.full((count, most), NO_NODE, dtype=np.int32)
    entries[owner[kept], _places(owner[kept])] = listed[kept]
    return torch.from_numpy(entries)


def _places(owner: Ids) -> Ids:
    """Return the number of entries of the same owner before each entry; owners must be sorted."""
    first = np.searchsorted(owner, owner, side="left")
    return np.arange(len(owner)) - first


@dataclass(frozen=True, eq=False, repr=False)
class EgoGraphs:
    """The leaves of every node's ego graph, by id, and the length of its list: tensors or handles.

    Shapes: ``leaves`` (N, M) int32, padded with ``NO_NODE``; ``lengths`` (N) int64.
    """

    leaves: Any
    lengths: Any


def own_ego_graphs(adjacency: Adjacency, most: int, key: bytes) -> EgoGraphs:
    """Return every node's own list, truncated to ``most`` entries by one hash per ordered pair (v, u).

    Privacy:
        No guarantee of its own. Row v depends only on v's own record (the stored edges that v sends), and is
        a handle if the edges are protected.

    >>> pair = Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=True)
    >>> stars = own_ego_graphs(pair, 2, bytes(32))
    >>> stars.leaves.tolist(), stars.lengths.tolist()
    ([[1, 2], [-1, -1], [-1, -1]], [2, 0, 0])
    """
    checks.integer_at_least(1, leaves=most)
    listed, starts = (part.numpy() for part in PrivateEdges(adjacency).out_neighbors())
    lengths = np.diff(starts)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    leaves = cut_lists(owner, listed, len(lengths), most, key)
    return EgoGraphs(*own_rows(adjacency, leaves, torch.from_numpy(lengths)))


class BoundedTrees:
    """The trees of all nodes, sampled again in every round.

    At each depth l = 1 .. r of a round

    1. *list bound*: every node u keeps at most D of the nodes on its own list, chosen by u's hash values;
    2. *receivers' cap*: every node v keeps at most M of the u that kept v, chosen by v's hash values;

    and in the tree of root v, the children of w at depth l - 1 are the nodes that w kept.

    Shapes: a tree has 1 + M + ... + M^r places; place 0 is the root.

    Args:
        slots: List bound D; None for the whole list, which only an assumption about degrees bounds.
        key: Key of 32 bytes, which determines all hash values. They may be public.

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
        checks.integer_at_least(1, cap=cap, depth=depth)
        self._lists, starts = PrivateEdges(adjacency).out_neighbors()
        self._nodes = len(starts) - 1
        self._owner = np.repeat(np.arange(self._nodes), np.diff(starts.numpy()))
        self._slots, self._cap, self._depth, self._key = slots, cap, depth, key
        self.parents = tree_parents(cap, depth)
        self._round = -1
        self._levels: list[Tensor] = []
        self.draw(0)

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        return self._lists, torch.from_numpy(self._owner)

    @property
    def places(self) -> int:
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
        source, target = self._kept(self._coins("slots", number, level))
        order = np.lexsort((source, target))
        return cut_lists(
            target[order], source[order], self._nodes, self._cap, self._coins("cap", number, level)
        )

    def _kept(self, coins: bytes) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]:
        if self._slots is None:
            return self._owner, self._lists.numpy()
        slots = cut_lists(self._owner, self._lists.numpy(), self._nodes, self._slots, coins).numpy()
        there = slots != NO_NODE
        return np.nonzero(there)[0], slots[there].astype(np.int64)

    def _coins(self, *address: object) -> bytes:
        return hashlib.blake2b(repr(address).encode(), key=self._key, digest_size=32).digest()


@dataclass(frozen=True, eq=False, repr=False)
class TreeRecords:
    """The trees of training nodes, computed on demand, with the exact features of every node in them.

    Only the clipped sums of ``TreeStepsQuery`` read them, whose privacy cost covers all roots that a record
    reaches.

    Shapes: a tree has its positions, and one more node as the end of unused edges: W inputs of width d, and
    W - 2 edges from a position to its parent.
    """

    x: Features
    nodes: Tensor
    trees: BoundedTrees
    steps_per_pass: int
    _buffer: list[Tensor] = field(default_factory=list, init=False)

    @classmethod
    def of_nodes(cls, view: Any, nodes: Tensor, steps_per_pass: int, **trees: Any) -> "TreeRecords":
        return cls(unwrapped(view.x), nodes, BoundedTrees(view.adjacency, **trees), steps_per_pass)

    @property
    def width(self) -> int:
        return self.trees.places + 1

    @property
    def arrays(self) -> list[Tensor]:
        return [*tensors_of(self.x), *self.trees.tensors, self.nodes]

    @property
    def parents(self) -> Tensor:
        return self.trees.parents

    def begin(self, step: int) -> None:
        self.trees.draw(step // self.steps_per_pass)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the trees of some training nodes: inputs (B, W, d), float32, and edges (B, 2, W - 2).

        The next call overwrites the inputs.
        """
        nodes = self.trees.of_roots(self.nodes[index])
        there = nodes != NO_NODE
        padded = pad(nodes, (0, 1), value=NO_NODE)  # the last position is always empty
        places = padded.flatten()
        x = self._features_of(places.clamp_min(0))
        # A missing node was read as node 0, whose record must not reach this tree.
        x.index_fill_(0, (places == NO_NODE).nonzero()[:, 0], 0)
        x = x.view(len(nodes), self.width, -1)
        nowhere, below = self.width - 1, there[:, 1:]
        source = torch.where(below, torch.arange(1, nowhere), nowhere)
        return x, torch.stack([source, torch.where(below, self.trees.parents, nowhere)], dim=1)

    def _features_of(self, nodes: Tensor) -> Tensor:
        """Return the features of some nodes, in a reused buffer, which is faster than new memory."""
        count = len(nodes)
        if not self._buffer or len(self._buffer[0]) < count:
            dtype = self.x.dtype if isinstance(self.x, Tensor) else torch.float32
            self._buffer[:] = [torch.empty(count, self.x.shape[1], dtype=dtype)]
        out = self._buffer[0][:count]
        if isinstance(self.x, Tensor):
            return torch.index_select(self.x, 0, nodes, out=out)
        self.x[nodes.numpy()].toarray(out=out.numpy())
        return out


def tree_parents(cap: int, depth: int) -> Tensor:
    above, found = torch.zeros(1, dtype=torch.int64), []
    for _ in range(depth):
        parents = above.repeat_interleave(cap)
        found.append(parents)
        first = 1 + sum(map(len, found[:-1]))
        above = torch.arange(first, first + len(parents))
    return torch.cat(found)
