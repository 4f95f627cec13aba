"""Canaries in released graphs: every slot, or one in every block, is an edge or not; public edges stay."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from graphveil.audit.one_run import one_run
from graphveil.audit.query_canaries.context import (
    CanaryContext,
    CanaryResult,
    Coins,
    insert_canaries,
    planted,
)
from graphveil.data import Adjacency
from graphveil.data.node_pairs import Domain, Integers
from graphveil.privacy import DirectedEdge, EdgeSubset, PureDP, Unit
from graphveil.release import (
    BlockCountData,
    BlockCountQuery,
    EdgeResponseData,
    EdgeResponseQuery,
    EdgeTotalData,
    EdgeTotalQuery,
    TopNodePairsData,
    TopNodePairsQuery,
)
from graphveil.release.dendrogram import Dendrogram, DendrogramBlocks

_NODES = 600  # of which every pair is a canary
_LEAVES = 2000  # of a tree, each block of which has one
_KEPT = 8  # one slot in so many becomes an edge
_TOTALS = 1 << 11  # releases of single counts
_COUNTED = 1 << 17  # canaries in blocks


@dataclass(frozen=True, eq=False)
class _CanaryPairs:
    """Slots that canaries have to themselves, and what is public beside them."""

    domain: Domain
    known: npt.NDArray[np.int64]  # public edges, (2, edges)
    slots: Integers

    @classmethod
    def for_unit(cls, nodes: int, unit: Unit) -> "_CanaryPairs":
        """Lay out all slots; where some edges are public, those of a path, and a tenth of nodes unlisted."""
        if not isinstance(unit, EdgeSubset):
            domain = Domain.whole(nodes, directed=isinstance(unit, DirectedEdge))
            return cls(domain, np.empty((2, 0), dtype=np.int64), np.arange(domain.slots.total))
        known = np.stack([np.arange(nodes - 1), np.arange(1, nodes)])
        path = Adjacency.from_edges(*known, num_nodes=nodes, directed=False)
        domain = Domain.within(path, torch.arange(nodes) < max(2, nodes - nodes // 10))
        return cls(domain, known, domain.keep_protected(np.arange(domain.slots.total)))

    def edges(self, slots: Integers) -> Adjacency:
        """Return the graph that has these slots for edges, beside the public ones."""
        ends = np.concatenate([self.known, np.stack(self.domain.ends(slots))], axis=1)
        nodes, directed = len(self.domain.rank), self.domain.slots.directed
        return Adjacency.from_edges(*ends, num_nodes=nodes, directed=directed)


@insert_canaries.register
def _of_responses(query: EdgeResponseQuery, context: CanaryContext) -> CanaryResult:
    """Every slot says that it is an edge, or not."""
    canary_pairs = _CanaryPairs.for_unit(_NODES, context.unit)
    present = context.coins(len(canary_pairs.slots))
    out = context.noisy(
        query, canary_pairs.edges(canary_pairs.slots[present]), None, EdgeResponseData(canary_pairs.domain)
    ).astype(np.int64)
    bound = context.counted(np.isin(canary_pairs.slots, out), present)
    return planted(query, context, len(present), PureDP(bound.epsilon), bound)


@insert_canaries.register
def _of_top_slots(query: TopNodePairsQuery, context: CanaryContext) -> CanaryResult:
    """Slots compete for places, so those that got one are guesses in a single run."""
    canary_pairs = _CanaryPairs.for_unit(_NODES, context.unit)
    present = context.coins(len(canary_pairs.slots))
    data = TopNodePairsData(canary_pairs.domain, len(present) // _KEPT)
    out = context.noisy(query, canary_pairs.edges(canary_pairs.slots[present]), None, data).astype(np.int64)
    detected = np.isin(canary_pairs.slots, out)
    right = int((detected & present).sum())
    bound = one_run(len(present), int(detected.sum()), right, confidence=context.confidence)
    return planted(query, context, len(present), PureDP(bound.epsilon), bound)


@insert_canaries.register
def _of_totals(query: EdgeTotalQuery, context: CanaryContext) -> CanaryResult:
    """One edge a release, or none."""
    canary_pairs, present = _CanaryPairs.for_unit(3, context.unit), context.coins(_TOTALS)
    data, detected = EdgeTotalData(canary_pairs.domain), np.empty(_TOTALS, dtype=bool)
    both = [canary_pairs.edges(canary_pairs.slots[:count]) for count in (0, 1)]
    for number, inside in enumerate(present):
        detected[number] = context.noisy(query, both[int(inside)], None, data)[0] > 0
    bound = context.counted(detected, present)
    return planted(query, context, len(present), PureDP(bound.epsilon), bound)


@insert_canaries.register
def _of_blocks(query: BlockCountQuery, context: CanaryContext) -> CanaryResult:
    """One edge a block, or none: disjoint blocks have counts of their own."""
    canary_pairs = _CanaryPairs.for_unit(_LEAVES, context.unit)
    tree = Dendrogram.balanced(canary_pairs.domain.slots.nodes, context.rng)
    blocks = DendrogramBlocks.from_tree(tree, canary_pairs.domain.public, query.epsilon)
    tried = canary_pairs.slots[context.rng.permutation(len(canary_pairs.slots))]
    owner = blocks.owner[tree.lowest_common_ancestors(*canary_pairs.domain.slots.ends(tried))]
    held, first = np.unique(owner, return_index=True)
    slots, data = tried[first], BlockCountData(canary_pairs.domain, tree=tree)
    detected, present = [], []
    for _ in range(math.ceil(min(64, _COUNTED / len(slots)))):
        coins: Coins = context.coins(len(slots))
        seen = context.noisy(query, canary_pairs.edges(slots[coins]), None, data)
        detected.append(seen[held] > 0)
        present.append(coins)
    bound = context.counted(np.concatenate(detected), np.concatenate(present))
    return planted(query, context, sum(map(len, present)), PureDP(bound.epsilon), bound)
