"""GCN: graph convolution with symmetric normalisation, a non-private reference."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from graphveil.graph import Adjacency
from graphveil.models.full_graph import FullGraphEstimator
from graphveil.networks.layers import Batch, Hidden, Linear
from graphveil.release import sum_in_neighbors


@dataclass(kw_only=True, eq=False)
class GCN(FullGraphEstimator):
    """Graph convolutional network (Kipf, Welling: Semi-supervised classification with GCNs, 2017).

    Every node gets a self-loop, and an edge weighs by the degrees of its two ends:

        H <- act(norm(D^-1/2 (A + I)^T D^-1/2 H W + b)),   D = 1 + in-degree;   the last layer is plain.

    Guarantee: none. Degrees and sums are exact; a private unit is refused.

    Shapes: features (N, d) to probabilities (N, C).

    Raises:
        NotYetError: the unit is not ``"none"``.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> GCN(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "gcn"

    def _build(self, generator: torch.Generator) -> nn.Module:
        widths = [self._shape["features"], *[self.hidden] * (self._depth - 1), self._shape["classes"]]
        maps = [Linear(i, o, generator=generator) for i, o in pairwise(widths)]
        hidden = [Hidden(width, generator=generator, **self._layers()) for width in widths[1:-1]]
        return GcnNetwork(maps, hidden)


class GcnNetwork(nn.Module):
    """Convolutions, each but the last followed by its :class:`Hidden`.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(self, maps: list[Linear], hidden: list[Hidden]) -> None:
        """Put the parts together."""
        super().__init__()
        self._maps, self._hidden = nn.ModuleList(maps), nn.ModuleList(hidden)

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        h: Batch = x
        for depth, affine in enumerate(self._maps):
            h = convolve(adjacency, affine(h))
            if depth < len(self._hidden):
                h = self._hidden[depth](h)
        return cast(Tensor, h)


def convolve(adjacency: Adjacency, x: Tensor) -> Tensor:
    """Return D^-1/2 (A + I)^T D^-1/2 X with D = 1 + in-degree. Not private.

    >>> pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=False)
    >>> convolve(pair, torch.tensor([[1.0], [3.0]])).flatten()
    tensor([2.0000, 2.0000])
    """
    scale = (1 + adjacency.indptr.diff()).to(x.dtype).rsqrt()[:, None]
    scaled = (scale * x).contiguous()
    return scale * (sum_in_neighbors(adjacency, scaled) + scaled)
