"""How many private edges lie in each block of a dendrogram, with noise."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util.random import RowStream
from graphveil.errors import ReleaseError
from graphveil.mechanisms.discrete_laplace import DiscreteLaplace
from graphveil.release.dendrogram.blocks import DendrogramBlocks
from graphveil.release.dendrogram.tree import Dendrogram
from graphveil.release.graphs.bounded import BoundedQuery, NodePairData, PreparedNodePairs
from graphveil.release.graphs.edge_total import exact_node_pairs
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import PreparedData, PublicInputs


@dataclass(frozen=True, eq=False, repr=False)
class BlockCountData(NodePairData):
    """The slots, and a dendrogram over the listed nodes: public, or an earlier answer of the same release.

    The answer are the blocks' counts, int64, which may be negative or above what a block holds.
    """

    tree: Dendrogram | None = None


@dataclass(frozen=True, eq=False, repr=False)
class _PreparedBlocks(PreparedNodePairs):
    blocks: DendrogramBlocks


@dataclass(frozen=True)
class BlockCountQuery(BoundedQuery):
    """One count a block, each with discrete Laplace noise of its own.

    Blocks are disjoint and their slots are decided by sizes alone, so one edge moves one count by one:
    epsilon in total, however many blocks there are.

    >>> round(BlockCountQuery(0.5).noise[0], 4)
    2.7992
    """

    kind: ClassVar[str] = "blocks"
    wire_name: ClassVar[str] = "BlockCountQuery"
    stage: ClassVar[str] = "counts of blocks"
    data: ClassVar[type[BlockCountData]] = BlockCountData

    @property
    def law(self) -> DiscreteLaplace:
        """The law of the noise."""
        return DiscreteLaplace(self.epsilon)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation in edges."""
        return (self.law.sigma,)

    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        """Check that the tree is over the listed nodes."""
        found = super().prepare(data, public)
        tree: Dendrogram | None = data.tree
        if tree is None or tree.leaves != data.domain.slots.nodes:
            raise ReleaseError("a dendrogram over the listed nodes is needed; the release stays charged")
        arrays = (*found.arrays, torch.from_numpy(tree.parents))
        blocks = DendrogramBlocks.from_tree(tree, data.domain.public, self.epsilon)
        return _PreparedBlocks(public, arrays, data.domain, data.number, blocks)

    def answer(self, private: PrivateEdges, data: _PreparedBlocks, key: bytes) -> Tensor:
        """Return noisy counts; the exact ones live and die here."""
        ends = data.domain.slots.ends(exact_node_pairs(private, data.domain))
        counts = data.blocks.counts(*ends)
        noise = self.law.draw(RowStream(key), np.arange(len(counts)))
        return torch.from_numpy(counts + noise[:, 0])
