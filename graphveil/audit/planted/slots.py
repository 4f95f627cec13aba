"""Canaries in released graphs: every slot, or one in every block, is an edge or not; public edges stay."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from graphveil.audit.one_run import one_run
from graphveil.audit.planted.asking import Asking, Coins, Planted, plant, planted
from graphveil.dendrogram.blocks import Blocks
from graphveil.dendrogram.tree import Dendrogram
from graphveil.graph import Adjacency
from graphveil.graph.domain import Domain
from graphveil.graph.slots import Integers
from graphveil.privacy import DirectedEdge, PrivateSlotEdge, PureDP, Unit
from graphveil.release import (
    BlockCountData,
    BlockCountQuery,
    EdgeResponseData,
    EdgeResponseQuery,
    EdgeTotalData,
    EdgeTotalQuery,
    TopSlotsData,
    TopSlotsQuery,
)

_NODES = 600  # of which every pair is a canary
_LEAVES = 2000  # of a tree, each block of which has one
_KEPT = 8  # one slot in so many becomes an edge
_TOTALS = 1 << 11  # releases of single counts
_COUNTED = 1 << 17  # canaries in blocks


@dataclass(frozen=True, eq=False)
class _Ground:
    """Slots that canaries have to themselves, and what is public beside them."""

    domain: Domain
    known: npt.NDArray[np.int64]  # public edges, (2, edges)
    slots: Integers

    @classmethod
    def of(cls, nodes: int, unit: Unit) -> "_Ground":
        """Lay out all slots; where some edges are public, those of a path, and a tenth of nodes unlisted."""
        if not isinstance(unit, PrivateSlotEdge):
            domain = Domain.whole(nodes, directed=isinstance(unit, DirectedEdge))
            return cls(domain, np.empty((2, 0), dtype=np.int64), np.arange(domain.slots.total))
        known = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
        path = Adjacency.from_edges(*known, num_nodes=nodes, directed=False)
        domain = Domain.within(path, torch.arange(nodes) < max(2, nodes - nodes // 10))
        return cls(domain, known, domain.open(np.arange(domain.slots.total)))

    def edges(self, slots: Integers) -> Adjacency:
        """Return the graph that has these slots for edges, beside the public ones."""
        ends = np.concatenate([self.known, np.stack(self.domain.ends(slots))], axis=1)
        nodes, directed = len(self.domain.rank), self.domain.slots.directed
        return Adjacency.from_edges(*ends, num_nodes=nodes, directed=directed)


@plant.register
def _of_responses(query: EdgeResponseQuery, asking: Asking) -> Planted:
    """Every slot says that it is an edge, or not."""
    ground = _Ground.of(_NODES, asking.unit)
    present = asking.coins(len(ground.slots))
    out = asking.noisy(
        query, ground.edges(ground.slots[present]), None, EdgeResponseData(ground.domain)
    ).astype(np.int64)
    bound = asking.counted(np.isin(ground.slots, out), present)
    return planted(query, asking, len(present), PureDP(bound.epsilon), bound)


@plant.register
def _of_top_slots(query: TopSlotsQuery, asking: Asking) -> Planted:
    """Slots compete for places, so those that got one are guesses in a single run."""
    ground = _Ground.of(_NODES, asking.unit)
    present = asking.coins(len(ground.slots))
    data = TopSlotsData(ground.domain, len(present) // _KEPT)
    out = asking.noisy(query, ground.edges(ground.slots[present]), None, data).astype(np.int64)
    heard = np.isin(ground.slots, out)
    right = int((heard & present).sum())
    bound = one_run(len(present), int(heard.sum()), right, confidence=asking.confidence)
    return planted(query, asking, len(present), PureDP(bound.epsilon), bound)


@plant.register
def _of_totals(query: EdgeTotalQuery, asking: Asking) -> Planted:
    """One edge a release, or none."""
    ground, present = _Ground.of(3, asking.unit), asking.coins(_TOTALS)
    data, heard = EdgeTotalData(ground.domain), np.empty(_TOTALS, dtype=bool)
    both = [ground.edges(ground.slots[:count]) for count in (0, 1)]
    for number, inside in enumerate(present):
        heard[number] = asking.noisy(query, both[int(inside)], None, data)[0] > 0
    bound = asking.counted(heard, present)
    return planted(query, asking, len(present), PureDP(bound.epsilon), bound)


@plant.register
def _of_blocks(query: BlockCountQuery, asking: Asking) -> Planted:
    """One edge a block, or none: disjoint blocks have counts of their own."""
    ground = _Ground.of(_LEAVES, asking.unit)
    tree = Dendrogram.balanced(ground.domain.slots.nodes, asking.rng)
    blocks = Blocks.of(tree, ground.domain.public, query.epsilon)
    tried = ground.slots[asking.rng.permutation(len(ground.slots))]
    owner = blocks.owner[tree.meeting(*ground.domain.slots.ends(tried))]
    held, first = np.unique(owner, return_index=True)
    slots, data = tried[first], BlockCountData(ground.domain, tree=tree)
    heard, present = [], []
    for _ in range(math.ceil(min(64, _COUNTED / len(slots)))):
        coins: Coins = asking.coins(len(slots))
        seen = asking.noisy(query, ground.edges(slots[coins]), None, data)
        heard.append(seen[held] > 0)
        present.append(coins)
    bound = asking.counted(np.concatenate(heard), np.concatenate(present))
    return planted(query, asking, sum(map(len, present)), PureDP(bound.epsilon), bound)
