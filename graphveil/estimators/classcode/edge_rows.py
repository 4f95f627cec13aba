"""The noisy aggregates of edge-level ClassCode: their queries, and class likelihoods from them.

A release queries aggregates in rounds: counts of neighbors by class with pure epsilon-DP (``CountRounds``),
or sums of codes (``CodeSumRounds``). Both return aggregates in noise units and the ``Signal``, the
expected value of an aggregate given its node's class:

1. Noisy counts estimate how classes are connected (``Affinity``) and the homophily.
2. An aggregate of class k is Gaussian around a D b_k for an unknown degree a D (``row_log_likelihood``).
3. The shape of that likelihood is chosen on training nodes (``fit_shape``).

Everything here is post-processing of released values and public labels.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphveil.core.features import Features, safe_unit
from graphveil.core.plan import Query
from graphveil.core.queries.edge_counts import NeighborCountData, NeighborCountQuery
from graphveil.core.queries.neighbor_sums import Keys, NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import simplex_codes, soft_codes
from graphveil.core.queries.weights import Similarity, weights_from
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.errors import ReleaseError
from graphveil.estimators.classcode.edge_plan import GROUPS, TRAIN
from graphveil.estimators.edge_weighting import EdgeWeighting
from graphveil.estimators.features.clusters import FeatureClusters
from graphveil.estimators.method import State
from graphveil.estimators.session import Session
from graphveil.estimators.training.objective import weighted_loss
from graphveil.nn.layers import FeedForward

# Counts do not improve accuracy at 0.02 or less, and improve it by three points at 0.10.
_WEAK_HOMOPHILY = 0.05
_MAX_CELLS = 1 << 21  # number of nodes times classes that are computed together
_MAX_NODES = 1 << 17  # number of nodes up to which a shape is chosen on the likelihoods of all nodes
DEGREE_FACTORS = torch.logspace(math.log10(0.08), math.log10(6), 14, dtype=torch.float64)
_FACTORS = torch.logspace(-1.5, 1.5, 61, dtype=torch.float64)
_FACTOR_SPREAD = 1.0  # prior standard deviation of the logarithm
_MAX_FITTED_NODES = 1 << 12  # maximum number of aggregates to fit the length on
_SOURCES, _PAIRS = 512, 1 << 22  # number of sampled senders, and total number of pairs
_MIN_RELATIVE_WEIGHT = 1e-3  # share of the bound: lower bound of the mean weight into a node
_MIN_UNIT = 0.03  # in edges: heads train badly on aggregates of hundreds of units
_SOFT_CODE_QUALITY = 0.5  # length of a soft code relative to a true label's
_MIN_LEVEL = 0.1  # share of the mean length: limits the scaling of aggregates that are only noise to 10 times


@dataclass(frozen=True)
class Homophily:
    """(h - e) / (1 - e): h is the share of neighbors of the same class, e its expectation by chance.

    1 if all neighbors have the same class, 0 if edges are independent of classes (adjusted homophily:
    Platonov, Kuznedelev, Babenko, Prokhorenkova: Characterizing graph datasets for node classification,
    2023). It is computed from released counts and does not spend privacy budget.

    Args:
        adjusted: The estimate.
        error: Its standard error from the noise of the counts.
    """

    adjusted: float
    error: float

    @classmethod
    def from_counts(cls, endpoint_counts: Tensor, variance: Tensor) -> "Homophily | None":
        """Estimate it; None if the counts may be noise only.

        Args:
            endpoint_counts: Noisy counts of neighbors by the class of the receiver and of the sender, (C, C).
            variance: Variance of each cell's noise, (C, C).

        >>> import torch
        >>> found = Homophily.from_counts(torch.tensor([[80.0, 20.0], [20.0, 80.0]]), torch.ones(2, 2))
        >>> round(found.adjusted, 6), round(found.error, 3)
        (0.6, 0.016)
        """
        total = float(endpoint_counts.sum())
        if total <= 3 * float(variance.sum()) ** 0.5:
            return None
        same = float(endpoint_counts.diagonal().sum()) / total
        shares = (endpoint_counts.sum(dim=0) + endpoint_counts.sum(dim=1)) / (2 * total)
        chance = float(shares.square().sum())
        if chance >= 1:
            return None
        inside = float(variance.diagonal().sum())
        across = 2 * (float(variance.sum()) - inside)  # as if cells came in equal pairs, which some do
        error = (inside * (1 - same) ** 2 + across * same**2) ** 0.5 / total
        return cls((same - chance) / (1 - chance), error / (1 - chance))

    @property
    def is_weak(self) -> bool:
        """Whether the homophily is low with high confidence."""
        return abs(self.adjusted) + 2 * self.error < _WEAK_HOMOPHILY


@dataclass(frozen=True)
class Affinity:
    """Distribution of the neighbors of each class over classes, mean degree, and homophily."""

    neighbors: Tensor  # (C, C) or (C, K), row k: the shares of classes or clusters among its neighbors
    mean_degree: float
    homophily: Homophily | None = None  # not used for a model from a file


def affinity_from_counts(
    cells: Tensor, sigma: float, labels: Tensor, num_nodes: int, *, directed: bool = False
) -> Affinity:
    """Estimate affinities from noisy class-pair counts, each cell shrunk to a prior by its noise.

    Args:
        cells: Noisy counts of edges between labeled nodes, shape (C, C), by source and target class, or one
            per unordered pair in the upper triangle.
        sigma: Standard deviation of a cell's noise.
        labels: Classes of the labeled nodes.
        num_nodes: N.

    The prior has the released total and same-class share; inside each part it is proportional to the
    classes' shares. A cell keeps the weight (prior / 2)^2 / ((prior / 2)^2 + variance).
    """
    classes = len(cells)
    variance = torch.full((classes, classes), sigma**2, dtype=torch.float64)
    if directed:
        ordered = cells.to(torch.float64).T  # row: the class of the receiver
    else:
        upper = torch.triu(cells.to(torch.float64))
        ordered = upper + upper.T  # an edge inside a class has both ends there: its cell doubles
        variance += torch.diag(3 * variance.diagonal())
    return affinity_from_endpoint_counts(ordered, variance, labels, len(labels) / num_nodes)


def affinity_from_endpoint_counts(
    ordered: Tensor, variance: Tensor, labels: Tensor, share: float
) -> Affinity:
    """Estimate affinities from noisy counts of neighbors, shrunk in the same way.

    Args:
        ordered: Counts by the class of the receiver and of the sender, (C, C).
        variance: Variance of each cell's noise, (C, C).
        labels: Classes of the receivers.
        share: Share of their neighbors that is counted.
    """
    total = ordered.sum().clamp_min(1.0)
    same = (ordered.diagonal().sum() / total).clamp(0.02, 0.98)
    # The prior: a symmetric table of shares whose diagonal has the released sum.
    class_counts = torch.bincount(labels, minlength=len(ordered)).to(torch.float64).clamp_min(0.5)
    shares = class_counts / class_counts.sum()
    outer = torch.outer(shares, shares)
    diagonal = torch.diag(outer.diagonal())
    rest = outer - diagonal
    prior = total * (same * diagonal / diagonal.sum() + (1 - same) * rest / rest.sum())
    weight = (prior / 2).square() / ((prior / 2).square() + variance)
    counts = torch.maximum(weight * ordered + (1 - weight) * prior, 1e-3 * prior)
    mean_degree = float(counts.sum()) / len(labels) / share
    homophily = Homophily.from_counts(ordered, variance)
    return Affinity(counts / counts.sum(dim=1, keepdim=True), mean_degree, homophily)


def cluster_affinity(rows: Tensor, sigma: float, labels: Tensor, classes: int, share: float) -> Affinity:
    """Estimate how the neighbors of each class are distributed over feature clusters.

    Args:
        rows: Noisy counts of neighbors by cluster, (n, K).
        sigma: Standard deviation of the noise of one count.
        labels: Classes of the receivers, (n).
        classes: C.
        share: Share of their neighbors that is counted.

    The prior is that all classes have the same neighbors. A cell keeps the weight
    (prior / 2)^2 / ((prior / 2)^2 + variance).
    """
    counted = torch.bincount(labels, minlength=classes).to(torch.float64)
    cells = one_hot(labels, classes).to(torch.float64).T @ rows.to(torch.float64)
    prior = torch.outer(counted.clamp_min(0.5), cells.sum(dim=0).clamp_min(1.0) / len(labels))
    weight = (prior / 2).square() / ((prior / 2).square() + sigma**2 * counted[:, None])
    counts = torch.maximum(weight * cells + (1 - weight) * prior, 1e-3 * prior)
    mean_degree = float(counts.sum()) / len(labels) / share
    return Affinity(counts / counts.sum(dim=1, keepdim=True), mean_degree)


@dataclass(frozen=True)
class Signal:
    """Expected value of an aggregate, except for class, degree and noise (of variance one).

    Args:
        length: D, the expected length of an aggregate per unit of mean code, (N).
        means: b, the mean code of a neighbor of each class, (C, C-1), or (N, C, C-1) if it depends on the
            receiver.
        scatter: Mean square over mean of a neighbor's weight, which scales the variance from single
            neighbors: one, or (N).
    """

    length: Tensor
    means: Tensor
    scatter: Tensor

    def of(self, nodes: Tensor) -> "Signal":
        """Return the signal of some nodes."""
        means = self.means[nodes] if self.means.ndim == 3 else self.means
        return Signal(self.length[nodes], means, self.scatter[nodes] if self.scatter.ndim else self.scatter)


def row_log_likelihood(rows: Tensor, signal: Signal, spread: float, overdispersion: float) -> Tensor:
    """Return log p(aggregate | class) for every node, shape (N, C).

    A mixture over the unknown degree a D (a: Gamma of mean 1): given it, the aggregate is Gaussian around
    a D b_k with variance 1 + .3 q a D / (C-1) + om (a D)^2 per dimension, q being the scatter.

    Args:
        rows: Noisy aggregates in noise units, (N, C-1).
        signal: D, b and q.
        spread: Coefficient of variation of the degree.
        overdispersion: om.
    """
    at_once = max(1, _MAX_CELLS // signal.means.shape[-2])
    if len(rows) > at_once:
        parts = torch.split(torch.arange(len(rows)), at_once)
        return torch.cat(
            [row_log_likelihood(rows[some], signal.of(some), spread, overdispersion) for some in parts]
        )
    r = rows.to(torch.float64)
    dim = r.shape[1]
    means = signal.means
    degree = DEGREE_FACTORS[:, None] * signal.length[None, :].to(torch.float64)  # (14, N)
    variance = 1 + 0.3 * signal.scatter * degree / dim + overdispersion * degree.square()
    squared = r.square().sum(dim=1)[None, :, None]
    cross = (r @ means.T if means.ndim == 2 else torch.einsum("nd,nkd->nk", r, means))[None, :, :]
    distance = squared - 2 * degree[:, :, None] * cross + degree.square()[:, :, None] * means.square().sum(-1)
    log_normal = -distance / (2 * variance[:, :, None]) - dim / 2 * variance.log()[:, :, None]
    # A Gamma density of mean 1: on a logarithmic grid it gains a factor a, a^(k-1) e^(-ka) a.
    k = spread**-2
    log_weights = (k * DEGREE_FACTORS.log() - k * DEGREE_FACTORS).log_softmax(dim=0)
    return (log_normal + log_weights[:, None, None]).logsumexp(dim=0)


@dataclass(frozen=True)
class LikelihoodShape:
    """The free parameters of the likelihood: spread of degrees, overdispersion, and temper."""

    spread: float
    overdispersion: float
    temperature: float


LIKELIHOOD_SHAPES = tuple(
    LikelihoodShape(*values)
    for values in itertools.product((0.6, 1.0), (0.0, 0.01, 0.05, 0.2, 1.0), (0.25, 0.5, 1.0))
)


def fit_shape(
    rows: Tensor, signal: Signal, log_posteriors: Tensor, labels: Tensor, nodes: Tensor
) -> tuple[LikelihoodShape, Tensor]:
    """Choose the likelihood's shape on training nodes; return it and log softmax(P + beta l) of all nodes.

    The training nodes' posteriors are cross-fitted and their aggregates do not include their own labels, so
    the choice is unbiased. For very many nodes, the others are computed with the chosen shape only.
    """
    if len(rows) > max(_MAX_NODES, len(nodes)):
        own = torch.arange(len(nodes))
        best, _ = fit_shape(rows[nodes], signal.of(nodes), log_posteriors[nodes], labels[nodes], own)
        likelihood = row_log_likelihood(rows, signal, best.spread, best.overdispersion)
        return best, (log_posteriors + best.temperature * likelihood).log_softmax(dim=1)
    best, best_loss, out = LIKELIHOOD_SHAPES[0], math.inf, log_posteriors
    for spread, overdispersion in sorted({(s.spread, s.overdispersion) for s in LIKELIHOOD_SHAPES}):
        likelihood = row_log_likelihood(rows, signal, spread, overdispersion)
        for temperature in sorted({s.temperature for s in LIKELIHOOD_SHAPES}):
            updated = (log_posteriors + temperature * likelihood).log_softmax(dim=1)
            loss = weighted_loss(updated[nodes], labels[nodes])
            if loss < best_loss:
                best, best_loss, out = LikelihoodShape(spread, overdispersion, temperature), loss, updated
    return best, out


def fit_length(rows: Tensor, signal: Signal, shape: LikelihoodShape, log_posteriors: Tensor) -> Signal:
    """Return the signal, rescaled to match aggregates of nodes without public labels.

    The length is that of the signal times the factor f which maximizes

        log N(log f; 0, 1) + sum_v log sum_k P_vk p(r_v | k, f D_v),

    the likelihood of the aggregates under the posteriors from features. With few aggregates, or only noise in
    them, it is not changed.
    """
    some = torch.linspace(0, len(rows) - 1, min(_MAX_FITTED_NODES, len(rows))).long()
    part = signal.of(some)
    gains = []
    for factor in _FACTORS:
        scaled = replace(part, length=part.length * factor)
        likelihood = row_log_likelihood(rows[some], scaled, shape.spread, shape.overdispersion)
        explained = (log_posteriors[some] + likelihood).logsumexp(dim=1).sum()
        gains.append(explained - (factor.log() / _FACTOR_SPREAD).square() / 2)
    return replace(signal, length=signal.length * _FACTORS[int(torch.stack(gains).argmax())])


@dataclass(frozen=True)
class EdgeWeightModel:
    """An edge weight, and the network of ``learned_public`` if that is used.

    Its keys are functions of cross-fitted posteriors and of features. So the weights into a labeled node, and
    its aggregate, do not depend on its own label.
    """

    similarity: Similarity
    weight_network: FeedForward | None = None

    @torch.no_grad()
    def keys(self, x: Features, log_posteriors: Tensor) -> Keys:
        """Return the inputs of the edge weight: features, probabilities, outputs of the network, or codes."""
        if self.similarity.reads == "features":
            return x
        probabilities = log_posteriors.exp()
        if self.weight_network is not None:
            learned: Tensor = self.weight_network.eval()(probabilities.float())
            return learned
        if self.similarity.reads == "posteriors":
            return probabilities
        return soft_codes(log_posteriors, simplex_codes(log_posteriors.shape[1]))

    def moments(self, keys: Keys, classes: Tensor, generator: torch.Generator) -> Tensor:
        """Estimate mean and mean square of the weights into each node, by the class of the sender, (2, N, C).

        They are estimated on a sample of senders to all nodes, independently of the edges.

        Args:
            keys: Inputs of the edge weight.
            classes: Public class probabilities of each node, (N, C).
            generator: Draws the sample.
        """
        count = len(classes)
        drawn = torch.randperm(count, generator=generator)[: min(_SOURCES, max(1, _PAIRS // count))]
        sources = drawn.sort().values
        member = classes[sources].to(torch.float64)
        # One more sample with the mean of all, for classes that the sample misses.
        total = member.sum(dim=0) + 1
        first, parts = 0, []
        for block in weights_from(self.similarity, keys, sources):
            w = block.to(torch.float64)
            own = sources == torch.arange(first, first + len(w))[:, None]
            w[own] = w.mean(dim=1, keepdim=True).expand_as(w)[own]  # no node sends to itself
            both = [(p @ member + p.mean(dim=1, keepdim=True)) / total for p in (w, w.square())]
            parts.append(torch.stack(both))
            first += len(w)
        return torch.cat(parts, dim=1)


def fit_weight_model(
    edge_weighting: EdgeWeighting | None, view: Graph, log_posteriors: Tensor, session: Session
) -> EdgeWeightModel | None:
    """Return the edge weights, trained on public labels if learned; None for weights of one."""
    if edge_weighting is None:
        return None
    network = edge_weighting.weight_network(view.num_classes, session.streams.torch("weights"))
    if network is not None:
        rows = log_posteriors.exp()

        def learn() -> State:
            learned = edge_weighting.learned(view, rows, session)
            return {} if learned is None else dict(learned.state_dict())

        network.load_state_dict(session.load_or_compute("weights", learn))
    return EdgeWeightModel(edge_weighting.similarity, network)


def weighted(signal: Signal, neighbors: Tensor, codes: Tensor, moments: Tensor, bound: float) -> Signal:
    """Return the signal of weighted aggregates: a neighbor of class j counts with its mean weight m_vj.

        b_vk = sum_j B_kj (m_vj / m_v) c_j,   D_v = m_v D,   q_v = (mean square) / m_v

    Args:
        signal: Signal of aggregates with weights of one.
        neighbors: B, the class shares among the neighbors of each class, (C, C).
        codes: c, the mean code that a neighbor of each class sends, (C, C-1), or (N, C, C-1).
        moments: Mean and mean square of the weights into each node, by the class of the sender, (2, N, C).
        bound: The largest edge weight.
    """
    mean, square = moments
    gain = mean.mean(dim=1).clamp_min(_MIN_RELATIVE_WEIGHT * bound)
    relative = mean / gain[:, None]
    means = torch.einsum("kj,njd->nkd", neighbors, relative[:, :, None] * codes)
    scatter = square.mean(dim=1) / gain
    return replace(signal, length=signal.length * gain, means=means, scatter=scatter)


class AggregationRounds(ABC):
    """The aggregates that a release has returned so far, in the order of its plan.

    Args:
        view: Graph to query.
        groups: Public group of each node.
        labels: Each node's class if it is public, otherwise -1, (N).
        release: Release that executes the queries.
        first: First node that has an aggregate; nodes before it only send.
    """

    hops: Sequence[Query]  # the queries, one per round

    def __init__(self, view: Graph, groups: Tensor, labels: Tensor, release: Release, first: int) -> None:
        """Start before the first round."""
        self.rows: list[Tensor] = []  # one per round, as they were released
        self._view, self._groups, self._labels = view, groups, labels
        self._release, self._receiving = release, slice(first, None)

    @abstractmethod
    def aggregate(self, log_posteriors: Tensor, seen: Tensor, generator: torch.Generator) -> None:
        """Send public values along the edges, and store the aggregates.

        Args:
            log_posteriors: Posteriors that unlabeled nodes send.
            seen: Inputs of edge weights, if any: posteriors that do not depend on a node's own label.
            generator: Draws the nodes from which the mean of the weights is estimated.
        """

    @abstractmethod
    def combined_aggregates(self, affinity: Affinity, *, unlabeled: bool = False) -> tuple[Tensor, Signal]:
        """Return the rounds' aggregates as one, in noise units, and their expected value.

        Args:
            affinity: Affinities between classes, and the mean degree.
            unlabeled: Whether most neighbors are known by a predicted class only. A class then counts as its
                members are predicted, instead of as itself.
        """

    @abstractmethod
    def inputs(self, start: Tensor, prior: Tensor, merged: Tensor, signal: Signal) -> Tensor:
        """Return the head's inputs, normalized, since nodes of different expected lengths share one head."""

    def _public_classes(self, log_posteriors: Tensor) -> Tensor:
        """Return the public class probabilities of each node: its label, or its posterior, (N, C)."""
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

    Args:
        clusters: Feature clusters, if neighbors are counted by cluster instead of class.
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
        """Start before the release."""
        super().__init__(view, groups, labels, release, first)
        self.hops = (query,)
        self._sigma = query.law.sigma
        self._once = query.ranks is not None and not view.directed  # each edge counts at one of its ends
        self._counted_fractions = counted_edge_fractions(query.ranks if self._once else None)
        self._shares = torch.bincount(groups, minlength=GROUPS).to(torch.float64) / len(groups)
        self._count_distribution = torch.empty(0)
        self._clusters = clusters

    def aggregate(self, log_posteriors: Tensor, seen: Tensor, generator: torch.Generator) -> None:
        """Count every node as its cluster, its label or its most likely class. ``seen`` is not used."""
        if self._clusters is not None:
            answer = self._release.answer(NeighborCountData(self._clusters.assign(self._view.x)))
            self.rows.append(answer[:, : len(self._clusters.offsets)])  # the other columns are only noise
            return
        classes = torch.where(self._labels >= 0, self._labels, log_posteriors.argmax(dim=1))
        answer = self._release.answer(NeighborCountData(classes))
        self.rows.append(answer[:, : log_posteriors.shape[1]])  # the columns of clusters are only noise
        # How a neighbor of each class is counted in aggregates of each group, (groups, C, C): if posteriors
        # are calibrated, class j is counted as sum_u p_uj e_u / sum_u p_uj.
        known = self._public_classes(log_posteriors)
        counted = one_hot(classes, known.shape[1]).to(torch.float64)
        reach = self._counted_fractions[self._groups]  # (N, into)
        by_group = torch.stack([(known * into[:, None]).T @ counted for into in reach.T])
        self._count_distribution = by_group / known.sum(dim=0).clamp_min(1e-9)[:, None]

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
        """Return the counts in noise units, and their expected value."""
        groups, unit = self._groups[self._receiving], max(self._sigma, _MIN_UNIT)
        fractions = self._shares @ self._counted_fractions
        length = affinity.mean_degree * fractions / unit
        means = affinity.neighbors
        if unlabeled and self._clusters is None:  # a cluster is known, and a class is predicted
            normalized_counts = self._count_distribution / fractions.clamp_min(1e-9)[:, None, None]
            means = torch.einsum("kj,njd->nkd", affinity.neighbors, normalized_counts[groups])
        counts = self.rows[0].to(torch.float64) / unit
        return counts, Signal(length[groups], means, torch.ones((), dtype=torch.float64))

    def inputs(self, start: Tensor, prior: Tensor, merged: Tensor, signal: Signal) -> Tensor:
        """Return the head's inputs, normalized, since groups receive different shares and share one head."""
        level = (signal.length.mean() / signal.length.clamp_min(1e-9))[:, None]
        return head_inputs(start, prior, [merged * level])


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
    ) -> None:
        """Start before the first round; without a model, all edge weights are one."""
        super().__init__(view, groups, labels, release, first)
        self.hops: Sequence[NeighborSumQuery] = hops
        self._weight_model = weight_model
        self._codes = simplex_codes(hops[0].dim + 1)
        self._moments: list[Tensor] = []  # one per round, of its weights
        self._sent: list[Tensor] = []  # one per round: what a neighbor of each class sends to each group

    def aggregate(self, log_posteriors: Tensor, seen: Tensor, generator: torch.Generator) -> None:
        """Send the codes of labels and the mean codes of posteriors, and store the aggregates."""
        hop = self.hops[len(self.rows)]
        codes = soft_codes(log_posteriors, self._codes)
        if len(self.hops) > 1:
            codes = safe_unit(codes)  # with few labels an uncertain code still has full norm
        labeled = self._labels >= 0
        codes[labeled] = self._codes[self._labels[labeled]]
        keys = None if self._weight_model is None else self._weight_model.keys(self._view.x, seen)
        self.rows.append(self._release.answer(NeighborSumData(codes, keys)))
        # The mean code that a node of each class sends to each group, (groups, C, C-1): if posteriors are
        # calibrated, sum_u p_uj c_u / sum_u p_uj is the mean code of class j.
        classes = self._public_classes(log_posteriors)
        weights = torch.tensor(hop.weights.table, dtype=torch.float64)[self._groups]  # (N, into)
        by_group = torch.stack([(classes * into[:, None]).T @ codes.to(torch.float64) for into in weights.T])
        self._sent.append(by_group / classes.sum(dim=0).clamp_min(1e-9)[:, None])
        if self._weight_model is not None and keys is not None:
            self._moments.append(self._weight_model.moments(keys, classes, generator)[:, self._receiving])

    def combined_aggregates(self, affinity: Affinity, *, unlabeled: bool = False) -> tuple[Tensor, Signal]:
        """Return the rounds' aggregates as one, in noise units, and their expected value.

        Equal rounds average: the sum of n aggregates over sqrt n has unit noise and sqrt n times the length.
        """
        groups, count, first = self._groups[self._receiving], len(self.rows), self.hops[0]
        each = [in_noise_units(rows, hop, groups) for rows, hop in zip(self.rows, self.hops, strict=False)]
        merged = torch.stack(each).sum(dim=0) / math.sqrt(count)
        sigma = torch.tensor(first.sigma, dtype=torch.float64)
        if unlabeled:
            sent = torch.stack(self._sent).mean(dim=0)[groups]
            length = affinity.mean_degree / sigma[groups]
            means = torch.einsum("kj,njd->nkd", affinity.neighbors, sent)
        else:
            sent, means = self._codes, affinity.neighbors @ self._codes
            share = torch.bincount(self._groups, minlength=GROUPS).to(torch.float64) / len(self._groups)
            quality = torch.tensor([1.0, 1.0, _SOFT_CODE_QUALITY], dtype=torch.float64)
            gain = (share * quality) @ torch.tensor(first.weights.table, dtype=torch.float64)
            length = (affinity.mean_degree * gain / sigma)[groups]
        plain = Signal(length * math.sqrt(count), means, torch.ones((), dtype=torch.float64))
        if self._weight_model is None:
            return merged, plain
        moments, bound = torch.stack(self._moments).mean(dim=0), self._weight_model.similarity.bound
        return merged, weighted(plain, affinity.neighbors, sent, moments, bound)

    def inputs(self, start: Tensor, prior: Tensor, merged: Tensor, signal: Signal) -> Tensor:
        """Return the head's inputs, normalized, since nodes with different weights share one head."""
        mean = signal.length.mean()
        least = 1e-9 if self._weight_model is None else _MIN_LEVEL * float(mean)
        level = (mean / signal.length.clamp_min(least))[:, None]
        last = in_noise_units(self.rows[-1], self.hops[len(self.rows) - 1], self._groups[self._receiving])
        rows = [merged, last] if len(self.rows) > 1 else [merged]
        return head_inputs(start, prior, [row * level for row in rows])


def in_noise_units(rows: Tensor, query: NeighborSumQuery, groups: Tensor) -> Tensor:
    """Return aggregates divided by their noise's standard deviation, float64."""
    return rows.to(torch.float64) / torch.tensor(query.sigma, dtype=torch.float64)[groups][:, None]


def head_inputs(start: Tensor, log_posteriors: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """Return [Q, P, r/3, r/|r|, ...], float32."""
    parts = [start, log_posteriors]
    for r in rows:
        parts += [r / 3, r / r.norm(dim=1, keepdim=True).clamp_min(1e-9)]
    return torch.cat([part.to(torch.float32) for part in parts], dim=1)


def build_rounds(
    queries: Sequence[Query],
    view: Graph,
    groups: Tensor,
    labels: Tensor,
    release: Release,
    weight_model: EdgeWeightModel | None = None,
    first: int = 0,
    clusters: FeatureClusters | None = None,
) -> AggregationRounds:
    """Return the rounds of a plan's queries, before the first one; see ``AggregationRounds``."""
    if len(queries) == 1 and isinstance(queries[0], NeighborCountQuery):
        return CountRounds(queries[0], view, groups, labels, release, first, clusters)
    hops = [query for query in queries if isinstance(query, NeighborSumQuery)]
    if len(hops) != len(queries):
        raise ReleaseError("a ClassCode plan must consist of count queries followed by hops")
    return CodeSumRounds(hops, view, groups, labels, release, first, weight_model)
