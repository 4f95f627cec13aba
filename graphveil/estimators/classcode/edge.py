"""ClassCode under edge-level units: features and labels are public, and edges are protected.

From top to bottom: the query plan, from public sizes alone; the rounds of noisy aggregates; the decision; and
the method. A fit (``EdgeLevelClassCode.fit``) has four steps:

1. Networks on features, cross-fitted over labeled nodes, give public posteriors.
2. Each round of the release sends the current posteriors and returns noisy aggregates.
3. After each round the likelihood of the aggregates (``likelihoods.py``), heads that read posteriors and
   aggregates, and a gate on validation nodes decide the classes. With few labels, feature networks are
   trained again on that decision.
4. The release closes. What applies to other graphs is stored (``TrainedEdgeLevelClassCode``).

Everything except the rounds is post-processing of noisy aggregates and public labels.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from graphveil._util.clustering import k_means
from graphveil.core.features import Features, rows, safe_unit, to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan, calibrate_plan
from graphveil.core.queries.edge_counts import (
    MAX_EPSILON,
    MIN_EPSILON,
    EdgeCountData,
    EdgeCountQuery,
    NeighborCountData,
    NeighborCountQuery,
)
from graphveil.core.queries.neighbor_sums import (
    SIMILARITY_GRID_BITS,
    GroupWeights,
    NeighborSumData,
    NeighborSumQuery,
)
from graphveil.core.queries.out_edge_sums import simplex_codes, soft_codes
from graphveil.core.queries.weights import Similarity
from graphveil.core.query import GRID_BITS, Query
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit
from graphveil.data import Graph
from graphveil.errors import ArtifactError, ReleaseError
from graphveil.estimators.classcode.likelihoods import (
    LIKELIHOOD_SHAPES,
    Affinity,
    EdgeWeightModel,
    LikelihoodShape,
    Signal,
    affinity_from_counts,
    affinity_from_endpoint_counts,
    cluster_affinity,
    fit_length,
    fit_shape,
    row_log_likelihood,
    weighted,
)
from graphveil.estimators.edge_weighting import trained_weight_network, weight_network
from graphveil.estimators.features.crossfit import (
    CrossFit,
    CrossFitPosteriors,
    FoldEnsemble,
    public_posteriors,
)
from graphveil.estimators.method import (
    FitResult,
    Method,
    State,
    TrainedModel,
    check_fits,
    networks_state,
    part_of,
)
from graphveil.estimators.objective import DEFAULT_OBJECTIVE, Objective, Score, sample_training_nodes
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import GROUPS, TRAIN, VAL, PublicSizes, check_classes, nodes_of
from graphveil.estimators.session import Session
from graphveil.nn.layers import BatchedFeedForward, FeedForward
from graphveil.training import TrainingSchedule, train
from graphveil.training.metrics import metric_value

TARGET = 2  # the public group of nodes without a public label, beside TRAIN and VAL
PARTITION = "train/val/target"
RANKS = (0, 1, 2)  # rank of the groups: an edge counts at the end of the higher rank
Noise = Literal["auto", "laplace", "gaussian"]
CLUSTERS = 8  # categories of neighbors in graphs of two classes, which may be counted by feature cluster
SEEDS = 3
GATE_STEP = 0.25
_BOTH_ENDS = 4.0  # epsilon from which edges of graphs of two classes count at both ends
_MIN_UNIT = 0.03  # in edges: heads train badly on aggregates of hundreds of units
_SOFT_CODE_QUALITY = 0.5  # length of a soft code relative to a true label's
_MIN_LEVEL = 0.1  # share of the mean length: limits the scaling of aggregates that are only noise to 10 times
_MAX_SMALL_TRAINING_SET = 5000  # training nodes below which a smaller, stronger-regularized head is used
_STEPS, _SMALL_STEPS, _BATCH = 400, 160, 2048
_CHUNK_SIZE = 1 << 17  # number of nodes that heads read at once
_MIN_PROBABILITY = 1e-30  # lower bound of probabilities
_FEATURES, _IMITATING = "features", "imitating"
_NUMBERS = 6  # stored numbers of a fit
_USEFUL_AUC = 0.55  # of features alone, below which their clusters are counted
_MAX_SELF_TRAINING_NODES = 5000  # labeled nodes
_SAMPLE, _SAMPLE_CHUNK, _ITERATIONS = 1 << 13, 1 << 14, 20  # of k-means: rows, rows at once, steps

# -- the query plan ----------------------------------------------------------------------------------------


def groups_of(view: Graph) -> Tensor:
    """Return each node's public group: train, validation, or target. Without a split all are targets."""
    groups = torch.full((view.num_nodes,), TARGET)
    if view.has_split:
        groups[view.labeled_in("train")] = TRAIN
        groups[view.labeled_in("val")] = VAL
    return groups


def public_labels(view: Graph, groups: Tensor) -> Tensor:
    """Return the classes of the nodes in labeled groups, and -1 for targets."""
    return torch.where(groups != TARGET, view.y, -1)


def labeled_count(view: Graph) -> int:
    return int((groups_of(view) != TARGET).sum())


def neighbor_count_query(unit: Unit, epsilon: float, classes: int) -> NeighborCountQuery:
    """Return the query for counts of neighbors by class, with the full epsilon up to a useful maximum.

    With two classes the aggregates are short, and accuracy is limited by the few edges that training nodes
    receive, not by noise. From epsilon 4 an edge between two nodes counts at both, with half the epsilon each
    (``benchmarks/notes/028-both-endpoints.md``). Their rows have room for counts by feature cluster, which
    replace counts by class where features do not predict the class. The cost is the same.

    >>> query = neighbor_count_query(UndirectedEdge(), 4.0, classes=2)
    >>> query.ranks, query.epsilon
    (None, 2.0)
    """
    ranks: tuple[int, ...] | None = RANKS
    if isinstance(unit, UndirectedEdge) and classes == 2 and epsilon >= _BOTH_ENDS:
        ranks, epsilon = None, epsilon / 2
    categories = CLUSTERS if classes == 2 else classes
    return NeighborCountQuery(PARTITION, ranks, min(epsilon, MAX_EPSILON), categories)


def code_sum_queries(
    unit: Unit,
    mu: float,
    classes: int,
    *,
    count_share: float,
    few_labels: bool,
    reverse_weight: float,
    similarity: Similarity | None = None,
) -> tuple[Query, ...]:
    """Return class-pair counts, if they have a share, and one round of code sums, or two with few labels.

    They cost mu in every pair of groups. A labeled pair is charged for the counts from its own budget, so
    aggregates of labeled nodes have more noise by 1/sqrt(1 - count_share). A pair with a target uses all of
    its budget for aggregates. Edge weights of a ``similarity`` multiply those of the groups. A code may then
    be as long as their bound, and the noise grows with it. A directed edge affects one aggregate, so its
    group weights are equal.
    """
    if isinstance(unit, DirectedEdge):
        weights = GroupWeights.equal(PARTITION, GROUPS)
    else:
        weights = GroupWeights.few_labels(reverse_weight) if few_labels else GroupWeights.target_weighted()
    bound, bits = 1.0, GRID_BITS
    if similarity is not None:
        bound, bits = similarity.bound, SIMILARITY_GRID_BITS
    queries: list[Query] = []
    if count_share:
        labeled_pairs, noise = (True, True, False), 1 / (mu * math.sqrt(count_share))
        queries.append(EdgeCountQuery(weights.partition, labeled_pairs, classes, (noise,)))
    for share in (0.5, 0.5) if few_labels else (1.0,):
        part = mu * math.sqrt(share)
        labeled = bound / (part * math.sqrt(1 - count_share))
        sigma = (labeled, labeled, bound / part)
        queries.append(NeighborSumQuery(weights, sigma, classes - 1, bits, similarity))
    return tuple(queries)


# -- the rounds of noisy aggregates ------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureClusters:
    """The nearest of K centers in standardized features, as a linear classifier.

    A row x belongs to the center c that maximizes <x, w_c> - b_c, where w_c = c / s^2, b_c = |c / s|^2 / 2,
    and s are the standard deviations of the columns. Shapes: ``weights`` w (K, d), ``offsets`` b (K).

    >>> x = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> FeatureClusters.fit(x, 8, torch.Generator()).assign(x).tolist()
    [0, 0, 1]
    """

    weights: Tensor
    offsets: Tensor

    @classmethod
    def fit(cls, x: Features, clusters: int, generator: torch.Generator) -> "FeatureClusters":
        """Fit at most this many centers by k-means on a sample of the rows, the first centers far apart."""
        sample = torch.randperm(x.shape[0], generator=generator)[:_SAMPLE].sort().values
        points = to_dense(rows(x, sample)).numpy().astype(np.float64)
        spread = points.std(axis=0)
        scale = np.where(spread > 0, spread, np.inf)  # a constant column says nothing
        points /= scale
        first, distance = [0], np.square(points - points[0]).sum(axis=1)
        while len(first) < clusters and distance.max() > 0.0:
            first.append(int(distance.argmax()))
            distance = np.minimum(distance, np.square(points - points[first[-1]]).sum(axis=1))
        centers = k_means(points, points[first], _ITERATIONS)
        weights, offsets = centers / scale, np.square(centers).sum(axis=1) / 2
        return cls(torch.from_numpy(weights).float(), torch.from_numpy(offsets).float())

    def assign(self, x: Features) -> Tensor:
        parts = torch.split(torch.arange(x.shape[0]), _SAMPLE_CHUNK)
        scores = [to_dense(rows(x, part)).float() @ self.weights.T - self.offsets for part in parts]
        return torch.cat(scores).argmax(dim=1)


def choose_clusters(view: Graph, log_posteriors: Tensor, session: Session) -> FeatureClusters | None:
    """Return feature clusters to count neighbors by, if features do not predict the class of their node.

    Then a count of neighbors by predicted class has no information, but their features may have some. The
    choice reads cross-fitted posteriors and public labels only: a ROC-AUC below 0.55. It is made for two
    classes, where rows have room for clusters (``neighbor_count_query``).
    """
    labeled = view.labeled_in("train", "val")
    if view.num_classes != 2:
        return None
    if not metric_value("roc_auc", view.y[labeled], log_posteriors[labeled].exp()) < _USEFUL_AUC:
        return None  # also if all labeled nodes have one class
    found = FeatureClusters.fit(view.x, CLUSTERS, session.streams.torch("clusters"))
    return found if len(found.offsets) > 1 else None


class AggregationRounds(ABC):
    """The aggregates that a release has returned so far, in the order of its plan.

    Args:
        labels: Each node's class if it is public, otherwise -1, (N).
        first: First node that has an aggregate; nodes before it only send.
    """

    hops: Sequence[Query]  # the queries, one per round

    def __init__(self, view: Graph, groups: Tensor, labels: Tensor, release: Release, first: int) -> None:
        self.rows: list[Tensor] = []  # one per round, as they were released
        self._view, self._groups, self._labels = view, groups, labels
        self._release, self._receiving = release, slice(first, None)
        self._shares = torch.bincount(groups, minlength=GROUPS).to(torch.float64) / len(groups)

    @abstractmethod
    def aggregate(self, log_posteriors: Tensor, generator: torch.Generator) -> None:
        """Send public values along the edges, and store the aggregates.

        Args:
            log_posteriors: Posteriors that unlabeled nodes send.
            generator: Draws the nodes from which the mean of the weights is estimated.
        """

    @abstractmethod
    def combined_aggregates(self, affinity: Affinity, *, unlabeled: bool = False) -> tuple[Tensor, Signal]:
        """Return the rounds' aggregates as one, in noise units, and their expected value.

        With ``unlabeled``, most neighbors are known by a predicted class only. A class then counts as its
        members are predicted, instead of as itself.
        """

    def head_inputs(self, start: Tensor, prior: Tensor, merged: Tensor, signal: Signal) -> Tensor:
        """Return [Q, P, r/3, r/|r|, ...], float32: posteriors and aggregates.

        Aggregates are divided by their expected length relative to the mean, since nodes that receive
        different shares or weights of edges share one head.
        """
        mean = signal.length.mean()
        level = (mean / signal.length.clamp_min(self._least_length(mean)))[:, None]
        parts = [start, prior]
        for aggregate in self._distinct(merged):
            r = aggregate * level
            parts += [r / 3, r / r.norm(dim=1, keepdim=True).clamp_min(1e-9)]
        return torch.cat([part.to(torch.float32) for part in parts], dim=1)

    def _least_length(self, mean: Tensor) -> float:
        return 1e-9

    def _distinct(self, merged: Tensor) -> list[Tensor]:
        """Return the aggregates that a head reads, in noise units."""
        return [merged]

    def _sent_by_class(self, classes: Tensor, sent: Tensor, reach: Tensor) -> Tensor:
        """Return what a node of each class sends to each group on average, (groups, C, width).

        If class probabilities p are calibrated, class j sends sum_u p_uj s_u / sum_u p_uj on average.
        """
        weights = reach[self._groups]  # (N, into)
        by_group = torch.stack([(classes * into[:, None]).T @ sent.to(torch.float64) for into in weights.T])
        return by_group / classes.sum(dim=0).clamp_min(1e-9)[:, None]

    def _public_classes(self, log_posteriors: Tensor) -> Tensor:
        classes, labeled = log_posteriors.exp().to(torch.float64), self._labels >= 0
        classes[labeled] = one_hot(self._labels[labeled], classes.shape[1]).to(torch.float64)
        return classes


class CountRounds(AggregationRounds):
    """The noisy counts of neighbors by class, or by feature cluster: one round with pure epsilon-DP.

    Each edge affects one aggregate. If it adds one class, it changes one integer by one. Discrete Laplace
    noise at the full epsilon then has a third of the standard deviation of a Gaussian at delta 1e-7. There
    are no other queries: the aggregates of training nodes estimate how classes are connected. For two
    classes, from epsilon 4, both ends count the edge. Aggregates of training nodes then receive as many edges
    as those of targets, which matters more there than noise (``docs/privacy/proofs/classcode.md``).
    """

    def __init__(
        self,
        query: NeighborCountQuery,
        view: Graph,
        groups: Tensor,
        labels: Tensor,
        release: Release,
        first: int,
        clusters: FeatureClusters | None = None,
    ) -> None:
        super().__init__(view, groups, labels, release, first)
        self.hops = (query,)
        self._sigma = query.law.sigma
        self._once = query.ranks is not None and not view.directed  # each edge counts at one of its ends
        self._counted_fractions = counted_edge_fractions(query.ranks if self._once else None)
        self._count_distribution = torch.empty(0)
        self._clusters = clusters

    def aggregate(self, log_posteriors: Tensor, generator: torch.Generator) -> None:
        """Count every node as its cluster, its label or its most likely class."""
        if self._clusters is not None:
            answer = self._release.answer(NeighborCountData(self._clusters.assign(self._view.x)))
            self.rows.append(answer[:, : len(self._clusters.offsets)])  # the other columns are only noise
            return
        classes = torch.where(self._labels >= 0, self._labels, log_posteriors.argmax(dim=1))
        answer = self._release.answer(NeighborCountData(classes))
        self.rows.append(answer[:, : log_posteriors.shape[1]])  # the columns of clusters are only noise
        known = self._public_classes(log_posteriors)
        counted = one_hot(classes, known.shape[1])
        self._count_distribution = self._sent_by_class(known, counted, self._counted_fractions)

    def affinity(self) -> Affinity:
        """Return how classes are connected, from the aggregates of training nodes; labels are public.

        If an edge counts at one end, the aggregates of both ends together count it once.
        """
        training = self._groups == TRAIN
        labels, rows = self._view.y[training], self.rows[0][training].to(torch.float64)
        share = float(self._counted_fractions[:, TRAIN] @ self._shares)
        if self._clusters is not None:
            return cluster_affinity(rows, self._sigma, labels, self._view.num_classes, share)
        classes = rows.shape[1]
        endpoint_counts = one_hot(labels, classes).to(torch.float64).T @ rows
        counted = torch.bincount(labels, minlength=classes).to(torch.float64)
        variance = counted[:, None].expand(-1, classes) * self._sigma**2
        if self._once:
            endpoint_counts, variance = endpoint_counts + endpoint_counts.T, variance + variance.T
            variance = variance + torch.diag(variance.diagonal())  # twice one number: four times its variance
            share = 2 * share
        return affinity_from_endpoint_counts(endpoint_counts, variance, labels, share)

    def combined_aggregates(self, affinity: Affinity, *, unlabeled: bool = False) -> tuple[Tensor, Signal]:
        groups, unit = self._groups[self._receiving], max(self._sigma, _MIN_UNIT)
        fractions = self._shares @ self._counted_fractions
        length = affinity.mean_degree * fractions / unit
        means = affinity.neighbors
        if unlabeled and self._clusters is None:  # a cluster is known, and a class is predicted
            normalized_counts = self._count_distribution / fractions.clamp_min(1e-9)[:, None, None]
            means = torch.einsum("kj,njd->nkd", affinity.neighbors, normalized_counts[groups])
        counts = self.rows[0].to(torch.float64) / unit
        return counts, Signal(length[groups], means, torch.ones((), dtype=torch.float64))


def counted_edge_fractions(ranks: tuple[int, ...] | None) -> Tensor:
    """Return the share of edges from one group that count at another, (from, into): all without ranks.

    >>> counted_edge_fractions((0, 1)).tolist()
    [[0.5, 1.0], [0.0, 0.5]]
    """
    if ranks is None:
        return torch.ones(GROUPS, GROUPS, dtype=torch.float64)
    rank = torch.tensor(ranks)
    ahead = (rank[None, :] - rank[:, None]).sign().to(torch.float64)
    return (ahead + 1) / 2


class CodeSumRounds(AggregationRounds):
    """Noisy sums of codes, in one round or, with few labels, in two."""

    def __init__(
        self,
        hops: Sequence[NeighborSumQuery],
        view: Graph,
        groups: Tensor,
        labels: Tensor,
        release: Release,
        first: int,
        weight_model: EdgeWeightModel | None,
        public: Tensor,
    ) -> None:
        super().__init__(view, groups, labels, release, first)
        self.hops: Sequence[NeighborSumQuery] = hops
        self._weight_model = weight_model
        self._keys = None if weight_model is None else weight_model.keys(view.x, public)
        self._codes = simplex_codes(hops[0].dim + 1)
        self._reach = torch.tensor(hops[0].weights.table, dtype=torch.float64)
        self._moments: list[Tensor] = []  # one per round, of its weights
        self._sent: list[Tensor] = []  # one per round: the mean code of each class at each group

    def aggregate(self, log_posteriors: Tensor, generator: torch.Generator) -> None:
        codes = soft_codes(log_posteriors, self._codes)
        if len(self.hops) > 1:
            codes = safe_unit(codes)  # with few labels an uncertain code still has full norm
        labeled = self._labels >= 0
        codes[labeled] = self._codes[self._labels[labeled]]
        keys = self._keys
        self.rows.append(self._release.answer(NeighborSumData(codes, keys)))
        classes = self._public_classes(log_posteriors)
        self._sent.append(self._sent_by_class(classes, codes, self._reach))
        if self._weight_model is not None and keys is not None:
            self._moments.append(self._weight_model.moments(keys, classes, generator)[:, self._receiving])

    def combined_aggregates(self, affinity: Affinity, *, unlabeled: bool = False) -> tuple[Tensor, Signal]:
        """Return the rounds' aggregates as one, in noise units, and their expected value.

        Equal rounds average: the sum of n aggregates over sqrt n has unit noise and sqrt n times the length.
        """
        groups, count, first = self._groups[self._receiving], len(self.rows), self.hops[0]
        each = [self._in_noise_units(number) for number in range(count)]
        merged = torch.stack(each).sum(dim=0) / math.sqrt(count)
        sigma = torch.tensor(first.sigma, dtype=torch.float64)
        if unlabeled:
            sent = torch.stack(self._sent).mean(dim=0)[groups]
            length = affinity.mean_degree / sigma[groups]
            means = torch.einsum("kj,njd->nkd", affinity.neighbors, sent)
        else:
            sent, means = self._codes, affinity.neighbors @ self._codes
            quality = torch.tensor([1.0, 1.0, _SOFT_CODE_QUALITY], dtype=torch.float64)
            length = (affinity.mean_degree * ((self._shares * quality) @ self._reach) / sigma)[groups]
        plain = Signal(length * math.sqrt(count), means, torch.ones((), dtype=torch.float64))
        if self._weight_model is None:
            return merged, plain
        moments, bound = torch.stack(self._moments).mean(dim=0), self._weight_model.similarity.bound
        return merged, weighted(plain, affinity.neighbors, sent, moments, bound)

    def _least_length(self, mean: Tensor) -> float:
        return 1e-9 if self._weight_model is None else _MIN_LEVEL * float(mean)

    def _distinct(self, merged: Tensor) -> list[Tensor]:
        return [merged] if len(self.rows) == 1 else [merged, self._in_noise_units(len(self.rows) - 1)]

    def _in_noise_units(self, number: int) -> Tensor:
        sigma = torch.tensor(self.hops[number].sigma, dtype=torch.float64)
        return self.rows[number].to(torch.float64) / sigma[self._groups[self._receiving]][:, None]


def build_rounds(
    queries: Sequence[Query],
    view: Graph,
    groups: Tensor,
    labels: Tensor,
    release: Release,
    public: Tensor,
    *,
    weight_model: EdgeWeightModel | None = None,
    clusters: FeatureClusters | None = None,
    first: int = 0,
) -> AggregationRounds:
    """Return the rounds of a plan; edge weights read ``public``, which depends on no node's own label."""
    if len(queries) == 1 and isinstance(queries[0], NeighborCountQuery):
        return CountRounds(queries[0], view, groups, labels, release, first, clusters)
    hops = [query for query in queries if isinstance(query, NeighborSumQuery)]
    if len(hops) != len(queries):
        raise ReleaseError("a ClassCode plan must consist of count queries followed by hops")
    return CodeSumRounds(hops, view, groups, labels, release, first, weight_model, public)


# -- the decision ------------------------------------------------------------------------------------------


class PosteriorHead(nn.Module):
    """logits = alpha Q + net(input); alpha is initialized to one, the result of the likelihood.

    Shapes: (B, C), the initial log-posterior, and inputs (B, f) -> (B, C).
    """

    def __init__(self, alpha: Tensor, net: FeedForward) -> None:
        super().__init__()
        self.alpha, self.net = nn.Parameter(alpha.clone()), net

    def forward(self, start: Tensor, inputs: Tensor) -> Tensor:
        logits: Tensor = self.alpha * start + self.net(inputs)
        return logits


class BatchedHeads(nn.Module):
    """Heads that are trained together on the same batches; ``small`` for few training nodes.

    Shapes: as ``PosteriorHead``, to logits of all heads (heads, B, C).
    """

    def __init__(self, inputs: int, classes: int, small: bool, *, generator: torch.Generator) -> None:
        super().__init__()
        width, dropout = (16, 0.4) if small else (64, 0.2)
        self.alpha = nn.Parameter(torch.ones(SEEDS, 1, 1))
        self.nets = BatchedFeedForward(
            [inputs, width, width, classes],
            SEEDS,
            generator=generator,
            dropout=dropout,
            separate_dropout=True,
        )

    def forward(self, start: Tensor, inputs: Tensor) -> Tensor:
        logits: Tensor = self.alpha * start + self.nets(inputs)
        return logits

    def losses(self, start: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return each head's mean cross entropy, (heads), for classes (B) or targets (B, C)."""
        log = self(start, inputs).log_softmax(dim=2)
        if labels.ndim == 2:
            return torch.neg((log * labels).sum(dim=2).mean(dim=1))
        own = log.gather(2, labels.expand(SEEDS, -1)[:, :, None])
        return torch.neg(own.mean(dim=(1, 2)))

    def heads(self) -> list[PosteriorHead]:
        return [
            PosteriorHead(alpha.reshape(()), net).eval()
            for alpha, net in zip(self.alpha.detach(), self.nets.networks(), strict=True)
        ]


def fit_heads(
    start: Tensor,
    inputs: Tensor,
    labels: Tensor,
    train_nodes: Tensor,
    val_nodes: Tensor,
    session: Session,
    objective: Objective,
) -> tuple[list[PosteriorHead], Tensor]:
    small = len(train_nodes) < _MAX_SMALL_TRAINING_SET
    batch = max(2, min(_BATCH, len(train_nodes) // 4))
    epochs = max(1, round((_SMALL_STEPS if small else _STEPS) * batch / len(train_nodes)))
    schedule = TrainingSchedule(
        epochs=epochs,
        learning_rate=0.01,
        weight_decay=1e-3 if small else 1e-4,
        batch_size=batch,
        decay="cosine",
        select=objective.metric or "likelihood",
        positive=objective.positive_number,
    )
    generator = session.streams.torch("heads")
    heads = BatchedHeads(inputs.shape[1], start.shape[1], small, generator=generator)
    q, f = start.to(torch.float32), inputs
    history = train(
        heads,
        lambda index: log_mean(heads(q[index], f[index])),
        labels,
        train_nodes,
        val_nodes,
        schedule,
        generator=generator,
        on_epoch=session.epochs(f"{SEEDS} heads", epochs),
        loss=lambda index: heads.losses(q[index], f[index], labels[index]).sum(),
    )
    session.record("heads", history)
    trained = heads.heads()
    chunks = zip(torch.split(q, _CHUNK_SIZE), torch.split(f, _CHUNK_SIZE), strict=True)
    with torch.no_grad():
        parts = [log_mean(torch.stack([head(*chunk) for head in trained])) for chunk in chunks]
    return trained, torch.cat(parts)


def log_mean(logits: Tensor) -> Tensor:
    """Return the log of the mean probability of some logits, (heads, B, C) to (B, C)."""
    return logits.softmax(dim=2).mean(dim=0).clamp_min(_MIN_PROBABILITY).log()


def fit_gate(
    experts: Sequence[Tensor], labels: Tensor, nodes: Tensor, objective: Objective = DEFAULT_OBJECTIVE
) -> tuple[tuple[float, ...], Tensor]:
    """Fit a convex combination of log-posteriors on a grid, by its score on validation nodes.

    The grid contains each expert alone, including the feature network, so the result is at most slightly
    worse than a model that never reads the edges.
    """
    levels = [i * GATE_STEP for i in range(round(1 / GATE_STEP) + 1)]
    grid = [w for w in itertools.product(levels, repeat=len(experts)) if abs(sum(w) - 1) < 1e-9]

    def blend(experts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        mixed = sum(w * e for w, e in zip(weights, experts, strict=True))
        return torch.as_tensor(mixed).log_softmax(dim=1)

    def score(weights: tuple[float, ...]) -> Score:
        return objective.score(blend([e[nodes] for e in experts], weights), labels[nodes])

    best = max(grid, key=score)
    return best, blend(experts, best)


def distilled_posteriors(
    view: Graph, session: Session, public: CrossFitPosteriors, decided: Tensor, name: str
) -> CrossFitPosteriors:
    """Return posteriors that imitate a decision made with the aggregates, blended with the public ones.

    A feature network is trained on the decisions for all nodes (log-posteriors, (N, C)), including targets.
    Uncertain ones have less weight. It is cross-fitted over all nodes, so its posterior of a node is
    independent of that node's own aggregate. Post-processing of the release and public labels.
    """
    targets = decided.exp().to(torch.float32)
    labeled = view.labeled_in("train", "val")
    targets[labeled] = (targets[labeled] + one_hot(view.y[labeled], view.num_classes)) / 2
    fit = CrossFit(view, session, name, sample_training_nodes(view, torch.arange(view.num_nodes)), targets)
    imitated = fit.posteriors(public.candidate)
    return replace(imitated, log=((public.log + imitated.log) / 2).log_softmax(dim=1))


@dataclass(frozen=True, eq=False)
class PosteriorEstimate:
    """The decision: the likelihood's shape, its log-posteriors, those of all experts, and the gate."""

    shape: LikelihoodShape
    likely: Tensor
    log: Tensor
    heads: tuple[PosteriorHead, ...] = ()
    gate: tuple[float, ...] = ()


# -- the method --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EdgeLevelClassCode(Method):
    """ClassCode for edge-level units: counts and weighted rounds of aggregates as one release.

    Labels are public here, so a plan may depend on the number of labels.

    Args:
        count_share: Share of a labeled pair's budget for class-pair counts (rho).
        few_labels: Whether the variant for few labels is used; None decides by the number of labels.
        reverse_weight: Weight from targets to labeled nodes in that variant (b).
        noise: ``"laplace"`` for counts of neighbors with pure epsilon-DP, ``"gaussian"`` for sums of codes,
            or ``"auto"``: counts unless labels are few or GNN messages have weights.
        self_training: Whether feature networks are trained again on decisions; None with few labels.
    """

    supports_growing_graphs: ClassVar[bool] = True
    selects_by_metric: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    trains_on_sample: ClassVar[bool] = True
    tables: ClassVar[float] = 14.0
    pairs: ClassVar[float] = 8.0

    count_share: float = 0.05
    few_labels: bool | None = None
    reverse_weight: float = 0.3
    similarity: Similarity | None = None
    noise: Noise = "auto"
    self_training: bool | None = None

    def sizes_of(self, view: Graph) -> PublicSizes:
        return replace(super().sizes_of(view), labeled=labeled_count(view))

    def has_few_labels(self, sizes: PublicSizes) -> bool:
        if self.few_labels is not None:
            return self.few_labels
        return sizes.labeled is not None and 2 * sizes.labeled < sizes.nodes

    def counts_neighbors(self, sizes: PublicSizes) -> bool:
        """Whether neighbors are counted by class instead of codes summed; suits discrete Laplace noise."""
        if self.noise != "auto":
            return self.noise == "laplace"
        return (
            self.similarity is None
            and not self.has_few_labels(sizes)
            and self.privacy_config.budget >= MIN_EPSILON
        )

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return self.release_plan(sizes, self.count_share)

    def release_plan(self, sizes: PublicSizes, count_share: float) -> ReleasePlan:
        unit, budget = self.privacy_config.unit, self.privacy_config.budget
        delta = self.privacy_config.delta_for(sizes.nodes)
        if self.counts_neighbors(sizes):
            return ReleasePlan(unit, (neighbor_count_query(unit, budget, sizes.classes),), delta)
        return calibrate_plan(
            unit,
            budget,
            delta,
            lambda mu: code_sum_queries(
                unit,
                mu,
                sizes.classes,
                count_share=count_share,
                few_labels=self.has_few_labels(sizes),
                reverse_weight=self.reverse_weight,
                similarity=self.similarity,
            ),
            num_nodes=sizes.nodes,
        )

    def fit(self, view: Graph, session: Session) -> FitResult:
        queries = session.planned.queries
        with session.stage("encoder"):
            public = public_posteriors(view, session, self.objective)
            weight_model = None
            if self.similarity is not None:
                network = trained_weight_network(self.similarity, view, public.log.exp(), session)
                weight_model = EdgeWeightModel(self.similarity, network)
            clusters = choose_clusters(view, public.log, session)
        groups = groups_of(view)
        release = session.open(view, groups)
        released, affinity = State(), None
        if isinstance(queries[0], EdgeCountQuery):
            with session.stage("aggregate"):
                labeled, sigma = groups != TARGET, queries[0].sigma[0]
                cells = release.answer(EdgeCountData(torch.where(labeled, view.y, 0)))
                affinity = affinity_from_counts(
                    cells, sigma, view.y[labeled], view.num_nodes, directed=view.directed
                )
                released["counts"] = cells
            queries = queries[1:]
        labels = public_labels(view, groups)
        rounds = build_rounds(
            queries, view, groups, labels, release, public.log, weight_model=weight_model, clusters=clusters
        )
        self_training = self.self_training
        if self_training is None:
            self_training = labeled_count(view) < _MAX_SELF_TRAINING_NODES
        prior = public
        decision = PosteriorEstimate(LIKELIHOOD_SHAPES[0], public.log, public.log)  # before any aggregate
        for number, _ in enumerate(rounds.hops, start=1):
            with session.stage("aggregate"):
                rounds.aggregate(decision.log, session.streams.torch(f"weighed-pairs-{number}"))
            if isinstance(rounds, CountRounds):
                affinity = rounds.affinity()
            if affinity is None:
                raise ReleaseError("a ClassCode plan must consist of count queries followed by hops")
            decision = self.decide(view, session, rounds, affinity, public, prior)
            if self_training:
                with session.stage("classifier"):
                    prior = distilled_posteriors(view, session, public, decision.log, f"distilled-{number}")
                decision = self.decide(view, session, rounds, affinity, public, prior)
        release.close()
        assert affinity is not None  # there is at least one round
        counts = self.counts_neighbors(self.sizes_of(view))
        trained = TrainedEdgeLevelClassCode(
            # Affinities and likelihood are those of this kind of noise, whatever labels another graph has.
            method=replace(self, noise="laplace" if counts else "gaussian"),
            classes=view.num_classes,
            ensemble=public.ensemble,
            distilled=prior.ensemble if self_training else None,
            affinity=affinity,
            shape=decision.shape,
            weight_model=weight_model,
            heads=networks_state("heads", decision.heads),
            gate=decision.gate,
            clusters=clusters if isinstance(rounds, CountRounds) else None,
        )
        released |= {f"rows{number}": rows for number, rows in enumerate(rounds.rows, start=1)}
        proba = decision.log.exp().to(torch.float32)
        learned = {"homophily": affinity.homophily}
        return FitResult(trained=trained, proba=proba, released=released, learned=learned)

    def decide(
        self,
        view: Graph,
        session: Session,
        rounds: AggregationRounds,
        affinity: Affinity,
        public: CrossFitPosteriors,
        prior: CrossFitPosteriors,
    ) -> PosteriorEstimate:
        """Decide the classes from posteriors of features and the aggregates so far.

        ``prior`` is the public posteriors, or those that imitate an earlier decision.
        """
        train_nodes, val_nodes = (
            sample_training_nodes(view, nodes_of(view.labeled_in(part))) for part in ("train", "val")
        )
        targets = self.objective.targets(view)
        with session.stage("classifier"):
            rows, signal = rounds.combined_aggregates(affinity)
            shape, likely = fit_shape(rows, signal, prior.log.to(torch.float64), targets, train_nodes)
            inputs = rounds.head_inputs(likely, prior.log, rows, signal)
            heads, headed = fit_heads(
                likely, inputs, targets, train_nodes, val_nodes, session, self.objective
            )
            experts = (headed, likely, public.log.to(torch.float64))
            gate, decided = fit_gate(experts, targets, val_nodes, self.objective)
        return PosteriorEstimate(shape, likely, decided, tuple(heads), gate)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedEdgeLevelClassCode":
        width, classes, table, numbers = sizes.width, sizes.classes, state["affinity"], state["numbers"]
        clusters = None
        if "clusters/weights" in state:
            clusters = FeatureClusters(state["clusters/weights"], state["clusters/offsets"])
            if clusters.weights.shape != (len(clusters.offsets), width):
                raise ArtifactError(
                    f"The model's clusters do not fit {width} features. Copy the model folder from the "
                    "original run again."
                )
        columns = classes if clusters is None else len(clusters.offsets)
        check_fits(
            table.shape == (classes, columns)
            and numbers.shape == (_NUMBERS,)
            and bool((table > 0).all() & (numbers >= 0).all()),
            sizes,
        )
        degree, spread, overdispersion, temperature, unit_rows, gaussian = numbers.tolist()
        ensemble, distilled = (
            FoldEnsemble.restore(state, part, bool(unit_rows)) for part in (_FEATURES, _IMITATING)
        )
        imitates = bool(distilled.networks)
        check_fits(ensemble.fits(width, classes) and (distilled.fits(width, classes) or not imitates), sizes)
        weight_model = None
        if self.similarity is not None:
            network = weight_network(self.similarity, classes, PublicStreams(0).torch("restore"))
            if network is not None:
                network.load_state_dict(part_of(state, "weights/0/"))
            weight_model = EdgeWeightModel(self.similarity, network)
        return TrainedEdgeLevelClassCode(
            method=replace(self, noise="gaussian" if gaussian else "laplace"),
            classes=classes,
            ensemble=ensemble,
            distilled=distilled if imitates else None,
            affinity=Affinity(table, degree),
            shape=LikelihoodShape(spread, overdispersion, temperature),
            weight_model=weight_model,
            heads={name: value for name, value in state.items() if name.startswith("heads/")},
            gate=tuple(state["gate"].tolist()),
            clusters=clusters,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedEdgeLevelClassCode(TrainedModel):
    """The result of an edge-level fit. Heads and gate apply only to the fitted graph, the rest to any."""

    method: EdgeLevelClassCode
    classes: int
    ensemble: FoldEnsemble
    distilled: FoldEnsemble | None
    affinity: Affinity
    shape: LikelihoodShape
    weight_model: EdgeWeightModel | None
    heads: State
    gate: tuple[float, ...]
    clusters: FeatureClusters | None = None

    def check(self, view: Graph, class_names: tuple[str, ...]) -> None:
        check_classes(view, class_names, self.classes)

    def sizes_for(self, view: Graph, fitted: PublicSizes) -> PublicSizes:
        return replace(super().sizes_for(view, fitted), labeled=labeled_count(view))

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan:
        """Return rounds of aggregates only; class-pair counts of a fit apply to other graphs."""
        return self.method.release_plan(sizes, 0.0)

    def prior(self, view: Graph) -> Tensor:
        """Return log-posteriors from features, float64, shape (N, C)."""
        public = self.ensemble.log_posteriors(view.x)
        if self.distilled is not None:
            public = ((public + self.distilled.log_posteriors(view.x)) / 2).log_softmax(dim=1)
        return public.to(torch.float64)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Query all rounds, or those of the new nodes of a graph that has grown; old nodes send to them."""
        assert session.plan is not None  # the plan always has queries
        first = 0 if kept is None else len(kept.proba)
        groups = groups_of(view)
        labels = public_labels(view, groups)
        # Old nodes have no new aggregate, so the whole budget of their edges is used at the other end, as if
        # they were labeled.
        groups[:first] = TRAIN
        release = session.open(view, groups, first=first)
        prior = self.prior(view)
        rounds = build_rounds(
            session.plan.queries,
            view,
            groups,
            labels,
            release,
            prior,
            weight_model=self.weight_model,
            clusters=self.clusters,
            first=first,
        )
        old = prior[:0] if kept is None else kept.proba.to(torch.float64).clamp_min(_MIN_PROBABILITY).log()
        new = prior[first:]
        for number, _ in enumerate(rounds.hops, start=1):
            generator = session.streams.torch(f"weighed-pairs-{number}")
            rounds.aggregate(torch.cat([old, new]), generator)
            rows, signal = rounds.combined_aggregates(self.affinity, unlabeled=True)
            fitted = fit_length(rows, signal, self.shape, prior[first:])
            likelihood = row_log_likelihood(rows, fitted, self.shape.spread, self.shape.overdispersion)
            new = (prior[first:] + self.shape.temperature * likelihood).log_softmax(dim=1)
        release.close()
        proba = new.exp().to(torch.float32)
        if kept is not None:
            proba = torch.cat([kept.proba, proba])
        return CachedPrediction(session.plan, tuple(rounds.rows), proba)

    def state(self) -> State:
        shape, weights = self.shape, None if self.weight_model is None else self.weight_model.weight_network
        numbers = (
            self.affinity.mean_degree,
            shape.spread,
            shape.overdispersion,
            shape.temperature,
            float(self.ensemble.unit_rows),
            float(self.method.noise == "gaussian"),
        )
        clusters = {}
        if self.clusters is not None:
            clusters = {
                "clusters/weights": self.clusters.weights,
                "clusters/offsets": self.clusters.offsets,
            }
        return {
            "gate": torch.tensor(self.gate),
            **self.heads,
            **networks_state("weights", [] if weights is None else [weights]),
            "affinity": self.affinity.neighbors,
            **clusters,
            "numbers": torch.tensor(numbers, dtype=torch.float64),
            **self.ensemble.state(_FEATURES),
            **({} if self.distilled is None else self.distilled.state(_IMITATING)),
        }
