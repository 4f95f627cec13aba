"""Class likelihoods of noisy aggregates, for edge-level units and for node records.

Edge level: noisy counts estimate how classes are connected (``Affinity``) and the homophily. Given its class,
an aggregate is Gaussian around a D b_k for an unknown degree a D (``row_log_likelihood``). The shape of that
likelihood is chosen on training nodes (``fit_shape``).

Node records: a mixture is fitted to the published aggregates alone (``decode``).

Everything here is post-processing of released values and public labels.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphveil.core.features import Features
from graphveil.core.queries.neighbor_sums import Keys
from graphveil.core.queries.out_edge_sums import simplex_codes, soft_codes
from graphveil.core.queries.weights import Similarity
from graphveil.estimators.objective import weighted_loss
from graphveil.nn.layers import FeedForward
from graphveil.release.weights import weights_from

# Counts do not improve accuracy at 0.02 or less, and improve it by three points at 0.10.
_MAX_CELLS = 1 << 21  # number of nodes times classes that are computed together
_MAX_NODES = 1 << 17  # number of nodes up to which a shape is chosen on the likelihoods of all nodes
DEGREE_FACTORS = torch.logspace(math.log10(0.08), math.log10(6), 14, dtype=torch.float64)
_FACTORS = torch.logspace(-1.5, 1.5, 61, dtype=torch.float64)
_FACTOR_SPREAD = 1.0  # prior standard deviation of the logarithm
_MAX_FITTED_NODES = 1 << 12  # maximum number of aggregates to fit the length on
_SOURCES, _PAIRS = 512, 1 << 22  # number of sampled senders, and total number of pairs
_MIN_RELATIVE_WEIGHT = 1e-3  # share of the bound: lower bound of the mean weight into a node


@dataclass(frozen=True)
class Homophily:
    """(h - e) / (1 - e): h is the share of neighbors of the same class, e its expectation by chance.

    1 if all neighbors have the same class, 0 if edges are independent of classes (adjusted homophily:
    Platonov, Kuznedelev, Babenko, Prokhorenkova: Characterizing graph datasets for node classification,
    2023). It is computed from released counts and does not spend privacy budget.
    """

    adjusted: float
    error: float

    @classmethod
    def from_counts(cls, endpoint_counts: Tensor, variance: Tensor) -> "Homophily | None":
        """Estimate it; None if the counts may be noise only.

        ``endpoint_counts`` are noisy counts of neighbors by the class of the receiver and of the sender, and
        ``variance`` is that of each cell's noise, (C, C).

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


@dataclass(frozen=True)
class Affinity:
    """Distribution of the neighbors of each class over classes, mean degree, and homophily."""

    neighbors: Tensor  # (C, C) or (C, K), row k: the shares of classes or clusters among its neighbors
    mean_degree: float
    homophily: Homophily | None = None  # not used for a model from a file


def affinity_from_counts(
    cells: Tensor, sigma: float, labels: Tensor, num_nodes: int, *, directed: bool = False
) -> Affinity:
    """Estimate affinities from noisy counts of edges between labeled nodes with classes ``labels``.

    ``cells`` (C, C) are by source and target class, or one per unordered pair in the upper triangle.
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
    """Estimate affinities from noisy counts of neighbors, shrunk to a prior.

    The prior has the released total and same-class share; inside each part it is proportional to the
    classes' shares.

    Args:
        ordered: Counts by the class of the receiver and of the sender, (C, C).
        share: Share of their neighbors that is counted.
    """
    total = ordered.sum().clamp_min(1.0)
    same = (ordered.diagonal().sum() / total).clamp(0.02, 0.98)
    class_counts = torch.bincount(labels, minlength=len(ordered)).to(torch.float64).clamp_min(0.5)
    shares = class_counts / class_counts.sum()
    outer = torch.outer(shares, shares)
    diagonal = torch.diag(outer.diagonal())
    rest = outer - diagonal
    prior = total * (same * diagonal / diagonal.sum() + (1 - same) * rest / rest.sum())
    homophily = Homophily.from_counts(ordered, variance)
    return _shrunk(ordered, prior, variance, len(labels), share, homophily)


def cluster_affinity(rows: Tensor, sigma: float, labels: Tensor, classes: int, share: float) -> Affinity:
    """Estimate how the neighbors of each class are distributed over feature clusters.

    The prior is that all classes have the same neighbors.

    Args:
        rows: Noisy counts of neighbors by cluster, (n, K).
        sigma: Standard deviation of the noise of one count.
        share: Share of their neighbors that is counted.
    """
    counted = torch.bincount(labels, minlength=classes).to(torch.float64)
    cells = one_hot(labels, classes).to(torch.float64).T @ rows.to(torch.float64)
    prior = torch.outer(counted.clamp_min(0.5), cells.sum(dim=0).clamp_min(1.0) / len(labels))
    return _shrunk(cells, prior, sigma**2 * counted[:, None], len(labels), share)


def _shrunk(
    cells: Tensor,
    prior: Tensor,
    variance: Tensor,
    receivers: int,
    share: float,
    homophily: Homophily | None = None,
) -> Affinity:
    """Return the affinity of cells that keep the weight (prior / 2)^2 / ((prior / 2)^2 + variance)."""
    weight = (prior / 2).square() / ((prior / 2).square() + variance)
    counts = torch.maximum(weight * cells + (1 - weight) * prior, 1e-3 * prior)
    mean_degree = float(counts.sum()) / receivers / share
    return Affinity(counts / counts.sum(dim=1, keepdim=True), mean_degree, homophily)


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
        means = self.means[nodes] if self.means.ndim == 3 else self.means
        return Signal(self.length[nodes], means, self.scatter[nodes] if self.scatter.ndim else self.scatter)


def row_log_likelihood(rows: Tensor, signal: Signal, spread: float, overdispersion: float) -> Tensor:
    """Return log p(aggregate | class) for every node, shape (N, C).

    A mixture over the unknown degree a D (a: Gamma of mean 1): given it, the aggregate is Gaussian around
    a D b_k with variance 1 + .3 q a D / (C-1) + om (a D)^2 per dimension, q being the scatter.

    Args:
        rows: Noisy aggregates in noise units, (N, C-1).
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


def weighted(signal: Signal, neighbors: Tensor, codes: Tensor, moments: Tensor, bound: float) -> Signal:
    """Return the signal of weighted aggregates: a neighbor of class j counts with its mean weight m_vj.

        b_vk = sum_j B_kj (m_vj / m_v) c_j,   D_v = m_v D,   q_v = (mean square) / m_v

    Args:
        neighbors: B, the class shares among the neighbors of each class, (C, C).
        codes: c, the mean code that a neighbor of each class sends, (C, C-1), or (N, C, C-1).
        moments: Mean and mean square of the weights into each node, by the class of the sender, (2, N, C).
    """
    mean, square = moments
    gain = mean.mean(dim=1).clamp_min(_MIN_RELATIVE_WEIGHT * bound)
    relative = mean / gain[:, None]
    means = torch.einsum("kj,njd->nkd", neighbors, relative[:, :, None] * codes)
    scatter = square.mean(dim=1) / gain
    return replace(signal, length=signal.length * gain, means=means, scatter=scatter)


# -- node records ----------------------------------------------------------------------------------------

STRENGTHS = 10
_LOG_STRENGTH_RANGE = (-2.2, 1.4)  # of the strengths' logarithms
_LENGTH, _SPREAD = 0.5, 0.03  # of the start: mean profiles rho0 M_k with covariance 0.03 I
_TIES = 50.0  # pseudo-nodes that hold profiles, covariances and class shares at the start
_BLOCK = 1 << 14  # aggregates at a time: their joint posteriors stay in the CPU cache
_MIN_BLOCK = 1 << 8  # for smaller blocks, reading the coefficients takes longer than the products
_NEAR = 1 << 22  # maximum bytes of one array of covariances at all strengths
_MAX_STORED_BYTES = 1 << 28  # maximum bytes of moments in memory
_COPIES = 4  # arrays with one moment per component: coefficients, and partial sums


@dataclass(frozen=True)
class DecodedRows:
    """The decoded aggregate of each node.

    Shapes: ``log_likelihoods`` (n, C), zero in the mean over classes; ``strengths`` and ``uncertainties``
    (n). The latter are the expected strength of an aggregate, and the entropy of its class posterior as a
    share of the largest possible.
    """

    log_likelihoods: Tensor
    strengths: Tensor
    uncertainties: Tensor


def decode(rows: Tensor, sigma: float, codes: Tensor, iterations: int = 12) -> DecodedRows:
    """Fit the mixture to aggregates (n, C-1) with noise of standard deviation sigma, and decode each of them.

    An aggregate of class k and strength s is N(s h_k, sigma^2 I + s^2 S_k): its neighbors' codes have the
    mean profile h_k, which varies from node to node with covariance S_k. Ten strengths cover the lengths of
    the aggregates. EM starts from h_k = codes_k / 2, which assumes homophily, with a prior of 50 pseudo-nodes
    per class. The log-likelihood excludes the classes' shares.

    >>> from graphveil.core.queries.out_edge_sums import simplex_codes
    >>> codes = simplex_codes(3)
    >>> decode(4 * codes, 0.1, codes).log_likelihoods.argmax(dim=1).tolist()
    [0, 1, 2]
    """
    mixture, rows = _Mixture.start(rows, sigma, codes), rows.to(torch.float64)
    # There are d^2 moments per aggregate. They are stored if they are small, otherwise computed again.
    each = rows.element_size() * moments_of(rows.shape[1])
    blocks = torch.split(rows, min(_BLOCK, max(_MIN_BLOCK, _MAX_STORED_BYTES // each)))
    stored = tuple(map(_moments, blocks)) if each * len(rows) <= _MAX_STORED_BYTES else None
    for _ in range(iterations):
        moments = stored or map(_moments, blocks)
        mixture = mixture.updated(sum((mixture.joint(one).T @ one for one in moments), torch.zeros(())))
    parts = [mixture.read(one) for one in stored or map(_moments, blocks)]
    return DecodedRows(*(torch.cat(kind) for kind in zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Mixture:
    """The mixture's parameters: J strengths (public grid), C profiles and covariances, and two priors."""

    codes: Tensor
    variance: float
    strengths: Tensor  # (J)
    profiles: Tensor  # h, (C, d)
    covariances: Tensor  # S, (C, d, d)
    strength_prior: Tensor  # (J), logarithms
    class_prior: Tensor  # (C), logarithms

    @classmethod
    def start(cls, rows: Tensor, sigma: float, codes: Tensor) -> "_Mixture":
        classes, dim = codes.shape
        noise = dim * sigma**2
        squared = float(rows.to(torch.float64).square().sum(dim=1).mean()) if len(rows) else noise
        length = math.sqrt(max(squared - noise, 0.05 * noise))
        grid = torch.linspace(*_LOG_STRENGTH_RANGE, STRENGTHS, dtype=torch.float64).exp()
        return cls(
            codes,
            sigma**2,
            grid * length / _LENGTH,
            _LENGTH * codes,
            _SPREAD * torch.eye(dim, dtype=torch.float64).repeat(classes, 1, 1),
            torch.full((STRENGTHS,), -math.log(STRENGTHS), dtype=torch.float64),
            torch.full((classes,), -math.log(classes), dtype=torch.float64),
        )

    def log_densities(self, block: Tensor) -> Tensor:
        """Return log N(row; strength, class), shape (n, J, C): one product with the aggregates' moments."""
        densities: Tensor = block @ self.weights.flatten(0, 1).T
        return densities.reshape(-1, STRENGTHS, len(self.codes))

    @cached_property
    def weights(self) -> Tensor:
        """Coefficients of each component's log-density by the moments, shape (J, C, 1 + d + d^2)."""
        classes, dim = self.codes.shape
        weights = self.codes.new_empty(STRENGTHS, classes, moments_of(dim))
        for part in self.parts:
            total = self.totals(part)
            inverse = total.inverse()
            mean = self.strengths[:, None, None] * self.profiles[part]
            linear = (inverse @ mean[..., None])[..., 0]
            constant = (linear * mean).sum(dim=-1) + total.logdet() + dim * math.log(2 * math.pi)
            weights[:, part, 0] = -0.5 * constant
            weights[:, part, 1 : dim + 1] = linear
            weights[:, part, dim + 1 :] = -0.5 * inverse.flatten(2)
        return weights

    @property
    def parts(self) -> tuple[slice, ...]:
        """Blocks of classes, so that their temporary arrays fit into the CPU cache."""
        classes, dim = self.codes.shape
        each = max(1, _NEAR // (STRENGTHS * 8 * dim**2))
        return tuple(slice(first, first + each) for first in range(0, classes, each))

    def totals(self, part: slice) -> Tensor:
        """Return the covariance of an aggregate of each strength and class with noise, (J, part, d, d)."""
        s = self.strengths[:, None, None, None]
        eye = torch.eye(self.codes.shape[1], dtype=torch.float64)
        return self.variance * eye + s**2 * self.covariances[part]

    def joint(self, block: Tensor) -> Tensor:
        prior = self.strength_prior[:, None] + self.class_prior
        return (self.log_densities(block) + prior).flatten(1).softmax(dim=1)

    def read(self, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return centered log-likelihoods (n, C), expected strengths (n) and uncertainties (n)."""
        weighted = self.log_densities(block) + self.strength_prior[:, None]
        likely = weighted.logsumexp(dim=1)
        posterior = (likely + self.class_prior).softmax(dim=1)
        entropy = -torch.xlogy(posterior, posterior).sum(dim=1) / math.log(len(self.codes))
        strength = self.joint(block).reshape(-1, STRENGTHS, len(self.codes))
        return (
            likely - likely.mean(dim=1, keepdim=True),
            strength.sum(dim=2) @ self.strengths,
            entropy.clamp(0, 1),
        )

    def updated(self, moments: Tensor) -> "_Mixture":
        """Return the parameters after one EM step, from the weighted moments, (J C, 1 + d + d^2)."""
        shaped = moments.reshape(STRENGTHS, len(self.codes), -1)
        flat = _SPREAD * torch.eye(self.codes.shape[1], dtype=torch.float64)
        each = list[tuple[Tensor, Tensor, Tensor]]()
        for part in self.parts:
            latent = _latent_moments(self, part, shaped[:, part])
            count, total, square = (sums.sum(dim=0) for sums in latent)
            weight = (count + _TIES)[:, None]
            h = (total + _TIES * _LENGTH * self.codes[part]) / weight
            cross = h[:, :, None] * total[:, None, :]
            around = square - cross - cross.mT + count[:, None, None] * h[:, :, None] * h[:, None, :]
            covariance = (around + _TIES * flat) / weight[..., None]
            each.append((count, h, (covariance + covariance.mT) / 2))
        count, profiles, covariances = (torch.cat(kind) for kind in zip(*each, strict=True))
        return _Mixture(
            self.codes,
            self.variance,
            self.strengths,
            profiles,
            covariances,
            _log_shares(shaped[..., 0].sum(dim=1) + 1),
            _log_shares(count + _TIES),
        )


def _latent_moments(mixture: _Mixture, part: slice, moments: Tensor) -> tuple[Tensor, ...]:
    """Return the moments of the nodes' own profiles f, given their aggregates: counts, sums and squares.

    Given an aggregate z, f is N(h + G (z - s h), S - s G S) with the gain G = s S (s^2 S + sigma^2 I)^-1.
    """
    s = mixture.strengths[:, None, None]
    h, S = mixture.profiles[part], mixture.covariances[part]
    dim = h.shape[1]
    n, first = moments[..., 0], moments[..., 1 : dim + 1]
    second = moments[..., dim + 1 :].reshape(*n.shape, dim, dim)
    gain = s[..., None] * S @ mixture.totals(part).inverse()
    mean = s * h
    off = first - n[..., None] * mean  # sum of z - s h
    cross = first[..., :, None] * mean[..., None, :]
    spread = second - cross - cross.mT + n[..., None, None] * mean[..., :, None] * mean[..., None, :]
    moved = (gain @ off[..., None])[..., 0]
    cross = h[:, :, None] * moved[..., None, :]
    left = n[..., None, None] * (h[:, :, None] * h[:, None, :] + S - s[..., None] * gain @ S)
    return n, n[..., None] * h + moved, left + cross + cross.mT + gain @ spread @ gain.mT


def decoding_memory(classes: int) -> float:
    """Return the approximate memory of decoding in bytes, without the aggregates.

    >>> round(decoding_memory(500) / 2**30)
    37
    """
    return 8 * _COPIES * STRENGTHS * classes * moments_of(classes - 1) + _MAX_STORED_BYTES


def moments_of(dim: int) -> int:
    return 1 + dim + dim**2


def _moments(rows: Tensor) -> Tensor:
    """Return [1, z, z z^T] of every aggregate, shape (n, 1 + d + d^2)."""
    dim = rows.shape[1]
    found = rows.new_ones(len(rows), moments_of(dim))
    found[:, 1 : dim + 1] = rows
    torch.mul(rows[:, :, None], rows[:, None, :], out=found[:, dim + 1 :].view(len(rows), dim, dim))
    return found


def _log_shares(counts: Tensor) -> Tensor:
    return (counts / counts.sum()).log()
