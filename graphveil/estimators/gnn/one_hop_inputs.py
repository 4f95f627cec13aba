"""What a module reads on a node's own star: the node's own record, and published rows.

Under ``node-record`` the star of v is v and at most M nodes of v's own list. On each leaf lies the
*published* row of the node there, less what v wrote into it itself, so that a labeled node does not read
its own label.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.release.steps.ego_graphs import NO_NODE, EgoGraphs
from graphveil.training.null_records import finite_rows

_RANGE, _SCALE = 6.0, 3.0  # in standard deviations of a row's noise: where entries are cut, and what is one


@dataclass(frozen=True, eq=False, repr=False)
class OneHopInputs:
    """Every node's star, made when it is needed.

    Shapes: a star has the root, M leaves, and one node for the edges that no leaf is at the end of: W = M + 2
    rows of 2 C numbers, and M edges from leaves to the root.

    Args:
        roots: what the root reads of its own features and row, (N, 2 C).
        rows: Z in noise units, (N, C - 1).
        own_contribution: what each node wrote into every row on its list, in noise units, (N, C - 1).
        stars: the leaves.
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
        """Return the stars of all nodes.

        Root: [lp_v less its mean over the classes, Z_v / (3 sigma), 1]. Leaf u of k: [0, sqrt(k) (Z_u - w_v
        c_v) / (3 sigma), 0], with w_v = 1 / sqrt(max(d_v, D)) for a list of d_v nodes. The mean over leaves
        is then their sum over sqrt(k), whose noise does not depend on k. Rows are cut to 6 sigma.

        Args:
            log_posteriors: of the encoder, (N, C).
            rows: Z, the answers of one push with weights one, (N, C - 1).
            sigma: their noise.
            sent: c, what each node sent, (N, C - 1).
            stars: the leaves.
            out_degree_bound: D of the push.
        """
        centered = log_posteriors - log_posteriors.mean(dim=1, keepdim=True)
        noisy, own = rows.to(torch.float64) / sigma, finite_rows(sent) / sigma
        weights = stars.lengths.to(torch.float64).clamp_min(out_degree_bound).rsqrt()
        constant = torch.ones(len(rows), 1, dtype=torch.float64)
        roots = torch.cat([finite_rows(centered), _cut(noisy) / _SCALE, constant], dim=1)
        return cls(roots, noisy, weights[:, None] * own, stars)

    @property
    def width(self) -> int:
        """W, the public number of nodes of a star."""
        return self.stars.leaves.shape[1] + 2

    @property
    def columns(self) -> int:
        """The numbers that a node of a star has."""
        return self.roots.shape[1]

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """All that stars are made of."""
        return self.roots, self.own_contribution, self.rows, self.stars.leaves, self.stars.lengths

    @property
    def parents(self) -> Tensor:
        """The root above each leaf."""
        return torch.zeros(self.width - 2, dtype=torch.int64)

    def begin(self, step: int) -> None:
        """Draw nothing: stars are the same in all steps."""

    def select(self, nodes: Tensor) -> "OneHopInputs":
        """Return the stars of some nodes, all that is read of others being published rows."""
        stars = EgoGraphs(self.stars.leaves[nodes], self.stars.lengths[nodes])
        return OneHopInputs(self.roots[nodes], self.rows, self.own_contribution[nodes], stars)

    def take(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return some nodes' stars: rows (B, W, 2 C) and edges (B, 2, M)."""
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
