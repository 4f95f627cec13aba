"""ClassCode under unit ``node``: codes aggregated along edges of which any number may belong to one node.

A fit (``ProjectedClassCode.fit``) has these steps:

1. The noisy h-index of the degrees, which bounds the effect of a node on all sums
   (``core/queries/projected_sums.py``).
2. The encoder: a linear classifier of features, trained by noisy steps on labeled nodes.
3. One projected aggregation of codes, and a mixture that is fitted to the noisy aggregates alone.
4. Noisy means of the aggregates by class, from which the classes of a node's neighbors follow.
5. The weight of aggregates, trained by noisy steps on the aggregates of labeled nodes.
6. The decision for node v, from v's features, v's aggregate, and the aggregates of the nodes on v's list.

Training never reads a list: the lists of v's neighbors change if v is nulled. The last step reads one list
for one prediction, and no query reads its result.
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from graphveil.core.features import rows
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.out_edge_sums import own_list_sums, simplex_codes
from graphveil.core.queries.projected_sums import (
    ClassMomentsData,
    ClassMomentsQuery,
    DegreeHIndexData,
    DegreeHIndexQuery,
    ProjectedSumData,
    ProjectedSumQuery,
)
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.unit import Node
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.errors import UnitError
from graphveil.estimators.classcode.likelihoods import decode, decoding_memory
from graphveil.estimators.classcode.node import (
    WEIGHTS,
    WEIGHTS_CLIP,
    NodeMessages,
    TrainedNodeLevelClassCode,
    encoder_share,
    fit_evidence_weights,
    train_encoder,
    weigh_evidence,
)
from graphveil.estimators.method import (
    FitResult,
    Method,
    State,
)
from graphveil.estimators.private_training import (
    DEGREE_SHARE,
    RADIUS,
    degree_query,
    full_batch_steps,
    metric_queries,
    projected_sum,
)
from graphveil.estimators.public_sizes import (
    PARTITION,
    PublicSizes,
    charged_members,
    nodes_of,
    record_groups,
    training_groups,
)
from graphveil.estimators.session import Session

_MOMENTS_RANGE, _WEIGHTS_OVER_MOMENTS = (0.01, 0.06), 0.5  # shares of mu^2; few records need more
_MOMENTS_ERROR = 0.1  # of a class mean, where aggregates have a norm of about one
_ENCODER_RANGE = (0.06, 0.6)
_ENCODER_STEPS, _WEIGHT_STEPS = 60, 20
_MOMENTS_NOISE = 1.5  # rows are shortened to the radius plus this many standard deviations of their noise
_LARGEST_EVIDENCE = 1.0  # of one neighbor
_OWN_AGGREGATE = 0.5  # weight of v's own aggregate beside those of its neighbors
_TRUSTED = 0.6  # weight of aggregates in training from which on they count in full
_LEAST_SHARE = 1e-6


def _encoder_share(under_records: float) -> float:
    """Return clip(4 s^2, .06, .6), the encoder share of mu^2, from s, which suits unit ``node-record``.

    Where aggregates are most informative they need more here, since one node may change all of them.
    Elsewhere features are. Fitted to test accuracies of five public graphs.

    >>> [round(_encoder_share(share), 3) for share in (0.1, 0.34, 0.8)]
    [0.06, 0.462, 0.6]
    """
    low, high = _ENCODER_RANGE
    return min(max(4 * under_records**2, low), high)


def neighbor_affinity(moments: Tensor, least: float) -> Tensor:
    """Return the class shares among the neighbors of each class, (C, C), from noisy moments of aggregates.

    The mean aggregate m_k of class k points to the codes of its neighbors, so the shares among these are
    about p + (C - 1) / C <m_k, code>, with p the shares of all classes and negative entries set to zero.

    Args:
        moments: Sums of aggregates and number of records by class, (C, C).
        least: Lower bound of the number of records of a class, above the noise.

    >>> moments = torch.cat([10 * simplex_codes(2), torch.full((2, 1), 10.0)], dim=1)
    >>> [round(share, 2) for share in neighbor_affinity(moments, 1.0).flatten().tolist()]
    [1.0, 0.0, 0.0, 1.0]
    """
    classes = len(moments)
    counts = moments[:, -1].clamp_min(least)
    toward = (moments[:, :-1] / counts[:, None]) @ simplex_codes(classes).T
    affinity = (counts / counts.sum() + (classes - 1) / classes * toward).clamp_min(_LEAST_SHARE)
    return affinity / affinity.sum(dim=1, keepdim=True)


def neighbor_evidence(affinity: Tensor, log_likelihoods: Tensor) -> Tensor:
    """Return what each node's aggregate says about the class of a neighbor of it, shape (N, C).

    With L the likelihoods of node u's class, it is log sum_c affinity_kc L_c for class k of a neighbor,
    centered, and limited so that no neighbor decides alone.
    """
    each = (log_likelihoods[:, None, :] + affinity.log()).logsumexp(dim=2)
    centered = each - each.mean(dim=1, keepdim=True)
    return centered.clamp(-_LARGEST_EVIDENCE, _LARGEST_EVIDENCE)


@dataclass(frozen=True, kw_only=True)
class ProjectedClassCode(Method):
    """ClassCode under unit ``node``.

    Args:
        reads_own_edges: Whether the prediction of a node reads the node's own list.
        encoder_share: Share of mu^2 for the encoder; None for a suitable one.
    """

    reads_own_edges: bool = True
    encoder_share: float | None = None

    def room(self, view: Graph) -> float:
        return super().room(view) + decoding_memory(view.num_classes)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return self.privacy_config.calibrated(sizes, partial(self.all_queries, sizes))

    def all_queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        left = mu * math.sqrt(1 - DEGREE_SHARE)
        bound = degree_query(mu, self.privacy_config.delta_for(sizes.nodes))
        return (bound, *self.queries(sizes, left))

    def queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        """Return the queries after the degree bound, which cost every record a total of at most mu.

        Training records are charged for all of them, other records for the aggregation, or with metrics for
        noisy counts.
        """
        unit, metrics = self.privacy_config.unit, self.privacy_config.private_metrics
        if not isinstance(unit, Node):
            raise UnitError(f"this {self.name} needs unit 'node', not {unit.name!r}")
        parameters = (sizes.width + 1) * sizes.classes
        suits = encoder_share(mu / unit.change, parameters, sizes.records, sizes.classes)
        share = _encoder_share(suits) if self.encoder_share is None else self.encoder_share
        of_moments = self._moments_share(sizes, mu / unit.change)
        of_weights = max(_MOMENTS_RANGE[0], _WEIGHTS_OVER_MOMENTS * of_moments)
        rest = 1 - share - of_moments - of_weights
        sums = projected_sum(unit, sizes.nodes, sizes.classes - 1, mu * math.sqrt(rest))
        noise = unit.change * math.sqrt(_ENCODER_STEPS / share) / mu
        encoder = full_batch_steps(parameters, _ENCODER_STEPS, noise, metrics=metrics)
        moments = ClassMomentsQuery(
            classes=sizes.classes,
            dim=sizes.classes - 1,
            radius=sums.radius + _MOMENTS_NOISE * sums.sigma,
            sigma=unit.change / (mu * math.sqrt(of_moments)),
            partition=PARTITION,
            pays=training_groups(metrics=metrics),
        )
        noise = unit.change * math.sqrt(_WEIGHT_STEPS / of_weights) / mu
        weights = full_batch_steps(WEIGHTS, _WEIGHT_STEPS, noise, metrics=metrics, clip=WEIGHTS_CLIP)
        spare = mu * math.sqrt(1 - rest)  # records outside of training skip the steps and moments
        counts = metric_queries(unit, sizes.classes, spare) if metrics else ()
        return (encoder, sums, moments, weights, *counts)

    def _moments_share(self, sizes: PublicSizes, mu: float) -> float:
        """Return the share of mu^2 at which the means of classes of equal size have a small error."""
        radius = RADIUS + _MOMENTS_NOISE * ProjectedSumQuery(dim=1, sigma=1.0).sensitivity(Node()) / mu
        low, high = _MOMENTS_RANGE
        share = (radius * sizes.classes / (_MOMENTS_ERROR * mu * sizes.records)) ** 2
        return min(max(share, low), high)

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        return "read" if self.reads_own_edges else super().edge_use(plan)

    def fit(self, view: Graph, session: Session) -> FitResult:
        """Execute the plan's queries in order, and predict every node.

        Guarantee: ``docs/privacy/proofs/node.md``. Labels of nodes outside of training are never read.
        """
        release = session.open(view, record_groups(view))
        first = 0
        with session.stage("degrees"):
            if isinstance(session.planned.queries[0], DegreeHIndexQuery):  # else answered before a choice
                release.answer(DegreeHIndexData())
                first = 1
        encoder_steps, sums = session.query(first, DPSGDQuery), session.query(first + 1, ProjectedSumQuery)
        moments = session.query(first + 2, ClassMomentsQuery)
        weight_steps = session.query(first + 3, DPSGDQuery)
        labeled = charged_members(view, encoder_steps.pays)
        targets = self.objective.clipped_targets(view)
        with session.stage("encoder"):
            encoder = train_encoder(view, targets, encoder_steps, labeled, release)
            log_posteriors = map_records(encoder.log_posteriors, view.x)
        with session.stage("aggregate"):
            messages = NodeMessages(view.y, labeled, view.num_classes, bound=1.0)
            aggregates = release.answer(ProjectedSumData(messages.first(log_posteriors)))
            decoded = decode(aggregates, sums.sigma, simplex_codes(view.num_classes))
            likely = decoded.log_likelihoods
            members = nodes_of(labeled)
            answer = release.answer(ClassMomentsData(aggregates[members], rows(view.y, members)))
            noise = moments.sigma / math.sqrt(moments.count_share)  # of the number of records of a class
            affinity = neighbor_affinity(answer, 1 + noise / 2)
        with session.stage("classifier"):
            weights = fit_evidence_weights(
                rows(log_posteriors, labeled), likely[labeled], rows(targets, labeled), weight_steps, release
            )
            if self.reads_own_edges:
                trust = min(1.0, float(weights[1]) / _TRUSTED)
                listed, _ = own_list_sums(view.adjacency, trust * neighbor_evidence(affinity, likely))
                decided = map_records(
                    lambda own, around, aggregate: (own + around + aggregate).log_softmax(dim=1),
                    log_posteriors,
                    listed,
                    trust * _OWN_AGGREGATE * likely,
                )
            else:
                decided = map_records(partial(weigh_evidence, weights), log_posteriors, likely)
        # Row v of the probabilities is only for people who are authorized to access v's record and list.
        proba = map_records(lambda log: log.exp().to(torch.float32), decided)
        trained = TrainedNodeLevelClassCode(encoder=encoder, decider=weights)
        return self.closed(release, trained, proba, view, session, {"rows": aggregates})

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedNodeLevelClassCode:
        return TrainedNodeLevelClassCode.restore(state, sizes, (WEIGHTS,))
