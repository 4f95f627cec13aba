"""Membership by many shadow models of one graph: LiRA, and the Bayes posterior that also reads neighbors."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import optimize
from scipy.special import expit, log_expit, logsumexp

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.lab.attacks.posteriors import confidence, standardized
from graphveil.lab.attacks.roc import Bools, Floats
from graphveil.lab.attacks.secret_edges import Integers, SecretEdges

_MIN_SPREAD = 1e-2
_PENALTY = 1e-3


@checked
@dataclass(frozen=True, eq=False)
class Ensemble:
    """Shadow models of one graph, each trained on a part of what is judged.

    Args:
        members: whom each was trained on (K, N).
        confidences: how sure each is of every node's class, log p / (1 - p), :func:`standardized`, (K, N).
    """

    members: Bools
    confidences: Floats

    @checked
    def without(self, number: int) -> "Ensemble":
        """Return all models but one."""
        keep = np.arange(len(self.members)) != number
        return Ensemble(self.members[keep], self.confidences[keep])

    def laws(self) -> "Laws":
        """Return what is expected of each node's confidence, where it is a member and where it is not.

        A handful of models says little about one node: spreads are one for all (as Carlini et al. 2022 do
        there, too), and what membership adds to a node's confidence is shrunk towards its mean over nodes, by
        as much as the models' scatter explains of its variance.
        """
        held, left = self.members.sum(axis=0), (~self.members).sum(axis=0)
        observed = (held > 0) & (left > 0)
        inside, outside = (_means(self.confidences, chosen) for chosen in (self.members, ~self.members))
        wide = _spread(self.confidences - inside, self.members & observed)
        narrow = _spread(self.confidences - outside, ~self.members & observed)
        noise = wide**2 / np.maximum(held, 1) + narrow**2 / np.maximum(left, 1)
        raw = (inside - outside)[observed]
        mean = float(raw.mean())
        true = max(float(raw.var()) - float(noise[observed].mean()), 0.0)
        gain = mean + true / (true + noise) * (inside - outside - mean)
        base = self.confidences.mean(axis=0) - gain * held / len(self.members)
        return Laws(base, gain, wide, narrow)


@dataclass(frozen=True, eq=False)
class Laws:
    """Gaussians of each node's confidence: around ``base`` (N) for others, ``base + gain`` for members.

    Args:
        base, gain: (N) each.
        wide, narrow: the spread of members and of others.
    """

    base: Floats
    gain: Floats
    wide: float
    narrow: float

    def ratio(self, confidences: Floats) -> Floats:
        """Return log-likelihood ratios of membership."""
        there = -(((confidences - self.base - self.gain) / self.wide) ** 2) / 2 - np.log(self.wide)
        not_there = -(((confidences - self.base) / self.narrow) ** 2) / 2 - np.log(self.narrow)
        return np.asarray(there - not_there)


def _means(values: Floats, chosen: Bools) -> Floats:
    return np.asarray((values * chosen).sum(axis=0) / np.maximum(chosen.sum(axis=0), 1))


def _spread(rest: Floats, chosen: Bools) -> float:
    free = float(chosen.sum() - (chosen.sum(axis=0) > 0).sum())
    return max(float(np.sqrt((rest**2 * chosen).sum() / max(free, 1.0))), _MIN_SPREAD)


@checked
def fit_ensemble(model: Estimator, graph: Graph, count: int, *, seed: int = 0) -> Ensemble:
    """Return shadow models with the keywords of a model, on parts of its training and test nodes.

    Each holds about as many as the target does, since models of fewer nodes are sure of other things. Every
    node is left out by equally many models, two at least, so that none is without examples of either kind.

    Raises:
        ConfigError: fewer than four models are asked for.
    """
    checks.integer_at_least(4, count=count)
    rng = PublicStreams(seed).numpy("members")
    pool = np.flatnonzero((graph.mask("train") | graph.mask("test")).numpy())
    share = float(graph.mask("train").sum()) / len(pool)
    outside = int(np.clip(round(count * (1 - share)), 2, count - 2))
    members = np.zeros((count, graph.num_nodes), dtype=bool)
    members[:, pool] = np.argsort(rng.random((count, len(pool))), axis=0) >= outside
    found = []
    for number, chosen in enumerate(torch.from_numpy(members)):
        others = torch.zeros(graph.num_nodes, dtype=torch.bool)
        others[pool] = True
        split = graph.with_split(chosen, graph.mask("val"), others & ~chosen)
        keywords = {**model.get_params(), "seed": seed + number, "unsafe_noise_seed": None}
        found.append(standardized(confidence(type(model)(**keywords).fit(split), graph)))
    return Ensemble(members, np.array(found))


@checked
def lira_scores(ensemble: Ensemble, confidences: Floats) -> Floats:
    """Return LiRA's log-likelihood ratios of membership, one a node (Carlini et al., S&P 2022).

    A Gaussian for models that held the node, another for those that did not (:meth:`Ensemble.laws`).
    """
    checks.shape(ensemble.confidences.shape[1:], confidences=confidences)
    return ensemble.laws().ratio(confidences)


@checked
def bayes_scores(ensemble: Ensemble, confidences: Floats, edges: SecretEdges, nodes: Integers) -> Floats:
    """Return log-odds of membership given a model's outputs on all nodes, and the graph.

    In the manner of G-BASE (arXiv 2505.24089), from its idea. If training draws weights with probability
    proportional to exp(-sum over members of loss / T), the log-odds that node v is a member are

        -loss_v / T - log E[exp(-loss_v / T)] + a constant,

    the mean over models without v (Sablayrolles et al. 2019). In a graph, members among v's neighbors lower
    its loss too, so what v's outputs say has to be judged beside how far its neighbors' outputs are from
    what they are without them. Temperature and weights of these parts, and of LiRA's ratio, are fitted by
    logistic regression on the shadow models, each judged by the others, where the truth is known.

    Args:
        ensemble: shadow models.
        confidences: of the target (N), leveled.
        edges: the attacker's knowledge of the graph.
        nodes: whom to judge; the regression learns from these nodes alone.
    """
    checks.shape(ensemble.confidences.shape[1:], confidences=confidences)
    checks.shape((len(ensemble.members), edges.matrix.shape[0]), members=ensemble.members)
    checks.places(len(confidences), nodes=nodes)
    parts = [
        (_evidence(ensemble.without(number), ensemble.confidences[number], edges)[nodes], members[nodes])
        for number, members in enumerate(ensemble.members)
    ]
    rows, truth = np.concatenate([rows for rows, _ in parts]), np.concatenate([part for _, part in parts])
    mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
    weights = _logistic((rows - mean) / scale, truth)
    found = (_evidence(ensemble, confidences, edges)[nodes] - mean) / scale
    return np.asarray(found @ weights[1:] + weights[0])


def _evidence(ensemble: Ensemble, confidences: Floats, edges: SecretEdges) -> Floats:
    """Return what the outputs say about each node (N, 6): its own terms, and its neighbors' mean."""
    laws, base = ensemble.laws(), _posterior_term(ensemble, confidences)
    lira, surprise, gain = laws.ratio(confidences), confidences - laws.base, laws.gain
    degrees = np.maximum(edges.degrees, 1)
    prior = np.asarray(edges.matrix @ surprise) / degrees
    return np.column_stack([base, np.clip(lira, -50, 50), surprise, prior, gain, surprise * gain])


def _posterior_term(ensemble: Ensemble, confidences: Floats) -> Floats:
    """Return -loss - log E[exp(-loss)] over models without the node, at temperature one."""
    log_p = log_expit(ensemble.confidences)
    held_out = np.where(ensemble.members, -np.inf, log_p)
    counts = np.maximum((~ensemble.members).sum(axis=0), 1)
    expected = logsumexp(held_out, axis=0) - np.log(counts)
    found = log_expit(confidences) - expected
    return np.asarray(np.where(np.isfinite(found), found, 0.0))


def _logistic(rows: Floats, truth: Bools) -> Floats:
    """Return the intercept and weights of a logistic regression with a small penalty."""
    design = np.column_stack([np.ones(len(rows)), rows])
    sign = np.where(truth, 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = sign * (design @ weights)
        slope = -(design * (sign * expit(-margins))[:, None]).mean(axis=0) + _PENALTY * weights
        return float(-log_expit(margins).mean() + _PENALTY / 2 * weights @ weights), slope

    return np.asarray(optimize.minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x)
