"""What a noisy row says about its node's class: affinities between classes, and a mixture likelihood.

Everything here is computed from released values and public labels, and costs nothing more.
"""

import itertools
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from graphveil.estimators.classcode.edge.homophily import Homophily

_MAX_CELLS = 1 << 21  # nodes times classes that are looked at together
_MAX_NODES = 1 << 17  # up to which a shape is chosen on the likelihoods of all nodes
DEGREE_FACTORS = torch.logspace(math.log10(0.08), math.log10(6), 14, dtype=torch.float64)


@dataclass(frozen=True)
class Affinity:
    """How a class's neighbors are distributed over classes, the mean degree, and how alike they are."""

    neighbors: Tensor  # (C, C), row k: the class shares among the neighbors of class k
    mean_degree: float
    homophily: Homophily | None = None  # of a model from a file nobody asks


def affinity_from_counts(
    cells: Tensor, sigma: float, labels: Tensor, num_nodes: int, *, directed: bool = False
) -> Affinity:
    """Estimate affinities from noisy class-edge counts, each cell shrunk to a prior by its noise.

    Args:
        cells: noisy counts of edges between labeled nodes, shape (C, C): by source and target class, or
            one per unordered pair in the upper triangle.
        sigma: standard deviation of a cell's noise.
        labels: the labeled nodes' classes.
        num_nodes: N.

    The prior has the released total and same-class share; inside each part it is proportional to the
    classes' shares. A cell keeps the weight (prior / 2)^2 / ((prior / 2)^2 + variance).
    """
    classes = len(cells)
    variance = torch.full((classes, classes), sigma**2, dtype=torch.float64)
    if directed:
        ordered = cells.to(torch.float64).T  # row: the class that receives
    else:
        upper = torch.triu(cells.to(torch.float64))
        ordered = upper + upper.T  # an edge inside a class has both ends there: its cell doubles
        variance += torch.diag(3 * variance.diagonal())
    return affinity_from_endpoint_counts(ordered, variance, labels, len(labels) / num_nodes)


def affinity_from_endpoint_counts(
    ordered: Tensor, variance: Tensor, labels: Tensor, share: float
) -> Affinity:
    """Estimate affinities from noisy counts of neighbors, shrunk as above.

    Args:
        ordered: by the class that hears and the class that is heard, (C, C).
        variance: of each cell's noise, (C, C).
        labels: the classes of the nodes that hear.
        share: of all their neighbors that is heard.
    """
    classes = len(ordered)
    total = ordered.sum().clamp_min(1.0)
    same = (ordered.diagonal().sum() / total).clamp(0.02, 0.98)
    prior = total * _prior_shares(torch.bincount(labels, minlength=classes).to(torch.float64), same)
    weight = (prior / 2).square() / ((prior / 2).square() + variance)
    counts = torch.maximum(weight * ordered + (1 - weight) * prior, 1e-3 * prior)
    mean_degree = float(counts.sum()) / len(labels) / share
    homophily = Homophily.from_counts(ordered, variance)
    return Affinity(counts / counts.sum(dim=1, keepdim=True), mean_degree, homophily)


def _prior_shares(class_counts: Tensor, same: Tensor) -> Tensor:
    """Return a symmetric table of shares with the given diagonal mass."""
    shares = class_counts.clamp_min(0.5) / class_counts.clamp_min(0.5).sum()
    outer = torch.outer(shares, shares)
    diagonal = torch.diag(outer.diagonal())
    rest = outer - diagonal
    return same * diagonal / diagonal.sum() + (1 - same) * rest / rest.sum()


@dataclass(frozen=True)
class LikelihoodShape:
    """The likelihood's free shape: spread of degrees, overdispersion, and temper."""

    spread: float
    overdispersion: float
    temperature: float


LIKELIHOOD_SHAPES = tuple(
    LikelihoodShape(*values)
    for values in itertools.product((0.6, 1.0), (0.0, 0.01, 0.05, 0.2, 1.0), (0.25, 0.5, 1.0))
)


@dataclass(frozen=True)
class Signal:
    """What a row is expected to be, but for its class, its degree and its noise, which has variance one.

    Args:
        length: D, the expected length of a row per unit of mean code, (N).
        means: b, the mean code of a neighbor of each class, (C, C-1), or (N, C, C-1) where it depends on the
            node that listens.
        scatter: mean square over mean of a neighbor's weight, by which single neighbors add to a row's
            variance: one, or (N).
    """

    length: Tensor
    means: Tensor
    scatter: Tensor

    def of(self, nodes: Tensor) -> "Signal":
        """Return that of some nodes."""
        means = self.means[nodes] if self.means.ndim == 3 else self.means
        return Signal(self.length[nodes], means, self.scatter[nodes] if self.scatter.ndim else self.scatter)


def row_log_likelihood(rows: Tensor, signal: Signal, spread: float, overdispersion: float) -> Tensor:
    """Return log p(row | class) for every node, shape (N, C).

    A mixture over the unknown degree a D (a: Gamma of mean 1): given it, the row is Gaussian around
    a D b_k with variance 1 + .3 q a D / (C-1) + om (a D)^2 per dimension, q being the scatter.

    Args:
        rows: noisy rows in noise units, (N, C-1).
        signal: D, b and q.
        spread: coefficient of variation of the degree.
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
    return (log_normal + _log_gamma_weights(spread)[:, None, None]).logsumexp(dim=0)


def _log_gamma_weights(spread: float) -> Tensor:
    """Return the mixture's log weights: a Gamma density of mean 1 on log-spaced points."""
    k = spread**-2
    # On a logarithmic grid the density gains a factor a: a^(k-1) e^(-ka) a.
    return (k * DEGREE_FACTORS.log() - k * DEGREE_FACTORS).log_softmax(dim=0)


def fit_shape(
    rows: Tensor, signal: Signal, log_posteriors: Tensor, labels: Tensor, nodes: Tensor
) -> tuple[LikelihoodShape, Tensor]:
    """Choose the likelihood's shape on training nodes; return it and log softmax(P + beta l) of all nodes.

    The training nodes' posteriors are cross-fitted and their rows do not carry their own labels, so the
    choice is not biased towards either. Of very many nodes, the others' are computed with the chosen shape
    alone.
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
            loss = float(nll_loss(updated[nodes], labels[nodes]))
            if loss < best_loss:
                best, best_loss, out = LikelihoodShape(spread, overdispersion, temperature), loss, updated
    return best, out


_FACTORS = torch.logspace(-1.5, 1.5, 61, dtype=torch.float64)
_FACTOR_SPREAD = 1.0  # of the logarithm, beforehand
_MAX_FITTED_NODES = 1 << 12  # rows say how long rows are


def fit_length(rows: Tensor, signal: Signal, shape: LikelihoodShape, log_posteriors: Tensor) -> Signal:
    """Return the signal with its length fitted to rows of nodes whose classes are not known.

    The length is that of the signal times the factor f which maximizes

        log N(log f; 0, 1) + sum_v log sum_k P_vk p(r_v | k, f D_v),

    the likelihood of the rows under their posteriors from features. Where there are few rows, or only noise
    in them, it stays as it is.
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
