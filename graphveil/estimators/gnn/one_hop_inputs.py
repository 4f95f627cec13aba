"""Inputs of a module on a node's ego graph: the node's own record, and published aggregates.

Under ``node-record`` the 1-hop ego graph of v consists of v and at most M of its out-neighbors. Each leaf has
the *published* aggregate of that node, minus the contribution of v itself. So a labeled node does not read
its own label.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.release.steps.bounded_lists import NO_NODE, EgoGraphs
from graphveil.training.null_records import finite_rows

_RANGE, _SCALE = 6.0, 3.0  # clipping bound and scale of entries, in standard deviations of the noise


@dataclass(frozen=True, eq=False, repr=False)
class OneHopInputs:
    """The ego graphs of all nodes, computed on demand.

    Shapes: an ego graph has the root, M leaves, and one node as the end of unused edges: W = M + 2 inputs of
    width 2 C, and M edges from leaves to the root.

    Args:
        roots: Inputs at the root from its own features and aggregate, (N, 2 C).
        rows: Z in noise units, (N, C - 1).
        own_contribution: Contribution of each node to the aggregates of its out-neighbors, in noise units,
            (N, C - 1).
        stars: The leaves.
    """

    roots: Tensor
    rows: Tensor
    own_contribution: Tensor
    stars: EgoGraphs

    @classmethod
    def from_published_rows(
        cls,
        log_posteriors: Tensor,
        rows: Tensor,
        sigma: float,
        sent: Tensor,
        stars: EgoGraphs,
        out_degree_bound: int,
    ) -> "OneHopInputs":
        """Return the ego graphs of all nodes.

        Root: [lp_v minus its mean over the classes, Z_v / (3 sigma), 1]. Leaf u of k: [0, sqrt(k) (Z_u - w_v
        c_v) / (3 sigma), 0], with w_v = 1 / sqrt(max(d_v, D)) for d_v out-edges. The mean over leaves is then
        their sum over sqrt(k), with noise that does not depend on k. Aggregates are clipped to 6 sigma.

        Args:
            log_posteriors: Log-posteriors of the encoder, (N, C).
            rows: Z, the result of one out-edge aggregation with weights of one, (N, C - 1).
            sigma: Its noise.
            sent: c, the vector that each node sent, (N, C - 1).
            stars: The leaves.
            out_degree_bound: D of the out-edge aggregation.
        """
        centered = log_posteriors - log_posteriors.mean(dim=1, keepdim=True)
        noisy, own = rows.to(torch.float64) / sigma, finite_rows(sent) / sigma
        weights = stars.lengths.to(torch.float64).clamp_min(out_degree_bound).rsqrt()
        constant = torch.ones(len(rows), 1, dtype=torch.float64)
        roots = torch.cat([finite_rows(centered), _cut(noisy) / _SCALE, constant], dim=1)
        return cls(roots, noisy, weights[:, None] * own, stars)

    @property
    def width(self) -> int:
        """W, the public number of nodes of an ego graph."""
        return self.stars.leaves.shape[1] + 2

    @property
    def columns(self) -> int:
        """Number of inputs per node of an ego graph."""
        return self.roots.shape[1]

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """All arrays that define the ego graphs."""
        return self.roots, self.own_contribution, self.rows, self.stars.leaves, self.stars.lengths

    @property
    def parents(self) -> Tensor:
        """The root, as the parent of each leaf."""
        return torch.zeros(self.width - 2, dtype=torch.int64)

    def begin(self, step: int) -> None:
        """Sample nothing: ego graphs are the same in all steps."""

    def select(self, nodes: Tensor) -> "OneHopInputs":
        """Return the ego graphs of some nodes. Of other nodes they contain published aggregates only."""
        stars = EgoGraphs(self.stars.leaves[nodes], self.stars.lengths[nodes])
        return OneHopInputs(self.roots[nodes], self.rows, self.own_contribution[nodes], stars)

    def take(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ego graphs of some nodes: inputs (B, W, 2 C) and edges (B, 2, M)."""
        leaves = self.stars.leaves[nodes].to(torch.int64)
        there = leaves != NO_NODE
        classes, count = self.columns // 2, len(nodes)
        x = torch.zeros(count, self.width, self.columns, dtype=torch.float64)
        x[:, 0] = self.roots[nodes]
        leaf_rows = _cut(self.rows[leaves.clamp_min(0)] - self.own_contribution[nodes][:, None])
        scale = there.sum(dim=1).to(torch.float64).sqrt() / _SCALE
        x[:, 1:-1, classes:-1] = torch.where(there[:, :, None], leaf_rows * scale[:, None, None], 0.0)
        nowhere = self.width - 1
        source = torch.where(there, torch.arange(1, nowhere), nowhere)
        return x, torch.stack([source, torch.where(there, 0, nowhere)], dim=1)


def _cut(rows: Tensor) -> Tensor:
    return rows.clamp(-_RANGE, _RANGE)
