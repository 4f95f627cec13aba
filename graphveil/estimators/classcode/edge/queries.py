"""What ClassCode asks of the edges: class-pair counts and rows of codes, priced as one release."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.estimators.classcode.edge.groups import GROUPS
from graphveil.privacy import DirectedEdge, Unit
from graphveil.release import EdgeCountQuery, GroupWeights, NeighborSumQuery
from graphveil.release.neighbor_sums import SIMILARITY_GRID_BITS
from graphveil.release.plan import Query
from graphveil.release.query import GRID_BITS
from graphveil.release.weights import Similarity

_SOFT_CODE_QUALITY = 0.5  # what a soft code is worth beside a true label, for the expected length of a row


@dataclass(frozen=True)
class BudgetAllocation:
    """The public shape of the release: weights by group, shares of the rows' rounds, share of the counts.

    A labeled pair pays for the counts out of its own budget (rows into labeled nodes are noisier by
    1/sqrt(1 - count_share)); a pair with a target spends everything on rows. Weights of a ``similarity``
    multiply those of the groups; every code may then be as long as its bound, and the noise grows by it.
    """

    weights: GroupWeights
    shares: tuple[float, ...]
    count_share: float
    similarity: Similarity | None = None

    @classmethod
    def choose(
        cls,
        unit: Unit,
        count_share: float,
        few_labels: bool,
        reverse_weight: float,
        similarity: Similarity | None = None,
    ) -> "BudgetAllocation":
        """Return the steering for a unit: a directed edge touches one row, so there is nothing to steer."""
        shares = (0.5, 0.5) if few_labels else (1.0,)
        if isinstance(unit, DirectedEdge):
            equal = GroupWeights.equal("train/val/target", GROUPS)
            return cls(equal, shares, count_share, similarity)
        weights = GroupWeights.few_labels(reverse_weight) if few_labels else GroupWeights.target_weighted()
        return cls(weights, shares, count_share, similarity)

    def queries(self, mu: float, classes: int) -> tuple[Query, ...]:
        """Return the counts and the rounds of rows that together cost mu in every pair of groups."""
        cells = EdgeCountQuery(
            self.weights.partition, (True, True, False), classes, (1 / (mu * math.sqrt(self.count_share)),)
        )
        return (cells, *self.rows(mu, classes))

    def rows(self, mu: float, classes: int) -> tuple[NeighborSumQuery, ...]:
        """Return the rounds of rows alone."""
        return tuple(self._round(mu * math.sqrt(share), classes) for share in self.shares)

    def _round(self, mu: float, classes: int) -> NeighborSumQuery:
        bound = 1.0 if self.similarity is None else self.similarity.bound
        bits = GRID_BITS if self.similarity is None else SIMILARITY_GRID_BITS
        labeled = bound / (mu * math.sqrt(1 - self.count_share))
        sigma = (labeled, labeled, bound / mu)
        return NeighborSumQuery(self.weights, sigma, classes - 1, bits, self.similarity)


def expected_length(query: NeighborSumQuery, groups: Tensor, mean_degree: float) -> Tensor:
    """Return each node's expected row length in noise units, per unit of mean code, shape (N)."""
    share = torch.bincount(groups, minlength=GROUPS).to(torch.float64) / len(groups)
    quality = torch.tensor([1.0, 1.0, _SOFT_CODE_QUALITY], dtype=torch.float64)
    gain = (share * quality) @ torch.tensor(query.weights.table, dtype=torch.float64)
    return (mean_degree * gain / torch.tensor(query.sigma, dtype=torch.float64))[groups]


def in_noise_units(rows: Tensor, query: NeighborSumQuery, groups: Tensor) -> Tensor:
    """Return rows divided by their noise's standard deviation, float64."""
    return rows.to(torch.float64) / torch.tensor(query.sigma, dtype=torch.float64)[groups][:, None]
