"""Edge-level query plan of ClassCode, from public sizes alone: for the fitted graph, and for another graph.

Either each node's neighbors are counted by class, which is one query with pure epsilon-DP. Or class codes are
summed (``BudgetAllocation``): class-pair counts first, then one round of sums, or two for few labels.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from graphveil.core.plan import Query, ReleasePlan, calibrate_plan
from graphveil.core.queries.edge_counts import MAX_EPSILON, MIN_EPSILON, EdgeCountQuery, NeighborCountQuery
from graphveil.core.queries.neighbor_sums import SIMILARITY_GRID_BITS, GroupWeights, NeighborSumQuery
from graphveil.core.queries.weights import Similarity
from graphveil.core.query import GRID_BITS
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit
from graphveil.data import Graph
from graphveil.estimators.edge_weighting import EdgeWeighting
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes

TRAIN, VAL, TARGET = 0, 1, 2
GROUPS = 3
PARTITION = "train/val/target"
RANKS = (0, 1, 2)  # rank of the groups: an edge counts at the end of the higher rank
Noise = Literal["auto", "laplace", "gaussian"]
_BOTH_ENDS = 4.0  # epsilon from which edges of graphs of two classes count at both ends
CLUSTERS = 8  # categories of neighbors in graphs of two classes, which may be counted by feature cluster


def groups_of(view: Graph) -> Tensor:
    """Return each node's public group: train, validation, or target. Without a split all are targets."""
    groups = torch.full((view.num_nodes,), TARGET)
    if not view.has_split:
        return groups
    groups[view.labeled_in("train")] = TRAIN
    groups[view.labeled_in("val")] = VAL
    return groups


def public_labels(view: Graph, groups: Tensor) -> Tensor:
    """Return the classes of the nodes in labeled groups, and -1 for targets."""
    return torch.where(groups != TARGET, view.y, -1)


def labeled_count(view: Graph) -> int:
    """Return the number of nodes with a public label."""
    return int((groups_of(view) != TARGET).sum())


@dataclass(frozen=True)
class BudgetAllocation:
    """The public parameters of the release: weights by group, and shares of rounds and counts.

    A labeled pair is charged for the counts from its own budget, so aggregates of labeled nodes have more
    noise by 1/sqrt(1 - count_share). A pair with a target uses all of its budget for aggregates. Edge weights
    of a ``similarity`` multiply those of the groups. A code may then be as long as their bound, and the noise
    grows with it.
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
        """Return the allocation for a unit; a directed edge affects one aggregate and needs none."""
        shares = (0.5, 0.5) if few_labels else (1.0,)
        if isinstance(unit, DirectedEdge):
            equal = GroupWeights.equal(PARTITION, GROUPS)
            return cls(equal, shares, count_share, similarity)
        weights = GroupWeights.few_labels(reverse_weight) if few_labels else GroupWeights.target_weighted()
        return cls(weights, shares, count_share, similarity)

    def queries(self, mu: float, classes: int) -> tuple[Query, ...]:
        """Return the counts, if they have a share, and the rounds, with cost mu in every pair of groups."""
        bound, bits = 1.0, GRID_BITS
        if self.similarity is not None:
            bound, bits = self.similarity.bound, SIMILARITY_GRID_BITS
        queries: list[Query] = []
        if self.count_share:
            labeled_pairs, noise = (True, True, False), 1 / (mu * math.sqrt(self.count_share))
            queries.append(EdgeCountQuery(self.weights.partition, labeled_pairs, classes, (noise,)))
        for share in self.shares:
            part = mu * math.sqrt(share)
            labeled = bound / (part * math.sqrt(1 - self.count_share))
            sigma = (labeled, labeled, bound / part)
            queries.append(NeighborSumQuery(self.weights, sigma, classes - 1, bits, self.similarity))
        return tuple(queries)


@dataclass(frozen=True, kw_only=True)
class EdgeReleaseConfig:
    """The public configuration of an edge-level release.

    Args:
        count_share: Share of a labeled pair's budget for class-pair counts (rho).
        few_labels: Whether the variant for few labels is used; None decides by the number of labels.
        reverse_weight: Weight from targets to labeled nodes in that variant (b).
        edge_weighting: Edge weights; None for weights of one.
        noise: ``"laplace"`` for counts of neighbors with pure epsilon-DP, ``"gaussian"`` for sums of codes,
            or ``"auto"``: counts unless labels are few or GNN messages have weights.

    >>> from graphveil.privacy import UndirectedEdge
    >>> privacy_config = PrivacyConfig(unit=UndirectedEdge(), epsilon=1.0)
    >>> sizes = PublicSizes(nodes=1000, classes=3, labeled=100)
    >>> [query.kind for query in EdgeReleaseConfig().fit_plan(privacy_config, sizes).queries]
    ['counts', 'rows', 'rows']
    >>> [query.kind for query in EdgeReleaseConfig(few_labels=False).fit_plan(privacy_config, sizes).queries]
    ['neighbor_counts']
    >>> [query.kind for query in EdgeReleaseConfig(few_labels=False,
    ...     noise="gaussian").prediction_plan(privacy_config, sizes).queries]
    ['rows']
    """

    count_share: float = 0.05
    few_labels: bool | None = None
    reverse_weight: float = 0.3
    edge_weighting: EdgeWeighting | None = None
    noise: Noise = "auto"

    @property
    def reads_previous(self) -> bool:
        """Whether the edge weights of a second round read the result of the first."""
        return self.edge_weighting is not None and self.edge_weighting.rows == "previous"

    def has_few_labels(self, sizes: PublicSizes) -> bool:
        """Whether labels are few: as configured, or if less than half of the nodes are known to have one."""
        if self.few_labels is not None:
            return self.few_labels
        return sizes.labeled is not None and 2 * sizes.labeled < sizes.nodes

    def counts_neighbors(self, privacy_config: PrivacyConfig, sizes: PublicSizes) -> bool:
        """Whether neighbors are counted by class instead of codes summed; suits discrete Laplace noise."""
        if self.noise != "auto":
            return self.noise == "laplace"
        return (
            self.edge_weighting is None
            and not self.has_few_labels(sizes)
            and privacy_config.budget >= MIN_EPSILON
        )

    def resolved(self, privacy_config: PrivacyConfig, fitted: PublicSizes) -> "EdgeReleaseConfig":
        """Return the configuration for other graphs: with the noise of the fit, whatever labels they have.

        The class affinities and the likelihood of the fit are those of its kind of aggregates.
        """
        counts = self.counts_neighbors(privacy_config, fitted)
        return replace(self, noise="laplace" if counts else "gaussian")

    def fit_plan(self, privacy_config: PrivacyConfig, sizes: PublicSizes) -> ReleasePlan:
        """Return all queries of a fit, as one release."""
        return self._plan(privacy_config, sizes, self.count_share)

    def prediction_plan(self, privacy_config: PrivacyConfig, sizes: PublicSizes) -> ReleasePlan:
        """Return rounds of aggregates only; class-pair counts of a fit apply to other graphs."""
        return self._plan(privacy_config, sizes, 0.0)

    def _plan(self, privacy_config: PrivacyConfig, sizes: PublicSizes, count_share: float) -> ReleasePlan:
        unit, budget = privacy_config.unit, privacy_config.budget
        if self.counts_neighbors(privacy_config, sizes):
            return neighbor_count_plan(privacy_config, sizes)
        similarity = None if self.edge_weighting is None else self.edge_weighting.similarity
        allocation = BudgetAllocation.choose(
            unit, count_share, self.has_few_labels(sizes), self.reverse_weight, similarity
        )
        return calibrate_plan(
            unit,
            budget,
            privacy_config.delta_for(sizes.nodes),
            lambda mu: allocation.queries(mu, sizes.classes),
            num_nodes=sizes.nodes,
        )


def neighbor_count_plan(privacy_config: PrivacyConfig, sizes: PublicSizes) -> ReleasePlan:
    """Return one query for counts of neighbors, with the full epsilon up to a useful maximum.

    With two classes the aggregates are short, and accuracy is limited by the few edges that training nodes
    receive, not by noise. From epsilon 4 an edge between two nodes counts at both, with half the epsilon each
    (``benchmarks/notes/028-both-endpoints.md``). Their rows have room for counts by feature cluster, which
    replace counts by class where features do not predict the class. The cost is the same.

    >>> from graphveil.privacy import UndirectedEdge
    >>> plan = neighbor_count_plan(PrivacyConfig(unit=UndirectedEdge(), epsilon=4.0), PublicSizes(nodes=1000,
    ...     classes=2))
    >>> plan.queries[0].ranks, plan.queries[0].epsilon, round(plan.epsilon, 3)
    (None, 2.0, 4.0)
    """
    unit, epsilon = privacy_config.unit, privacy_config.budget
    ranks: tuple[int, ...] | None = RANKS
    if isinstance(unit, UndirectedEdge) and sizes.classes == 2 and epsilon >= _BOTH_ENDS:
        ranks, epsilon = None, epsilon / 2
    categories = CLUSTERS if sizes.classes == 2 else sizes.classes
    query = NeighborCountQuery(PARTITION, ranks, min(epsilon, MAX_EPSILON), categories)
    return ReleasePlan(unit, (query,), privacy_config.delta_for(sizes.nodes))
