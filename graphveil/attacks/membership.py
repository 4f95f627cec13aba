"""Membership inference: whether a node was part of the training data.

The attack of GAP uses a shadow model and an attack model. LiRA and the Bayes posterior, which also reads
neighbors, use many shadow models of one graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from scipy import optimize
from scipy.special import expit, log_expit, logsumexp

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.attacks.roc import Bools, Floats, RocCurve, attack_as_dict, theoretical_bound_of
from graphveil.audit.secret_edges import Integers, SecretEdges
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.nn.layers import FeedForward
from graphveil.training import TrainingSchedule, train

_MIN_SCALE = 1e-9


@checked
@dataclass(frozen=True, eq=False)
class Discriminator:
    """A trained binary classifier, with the scale of its inputs.

    Args:
        network: Network with two outputs.
        mean, scale: Mean and standard deviation of each input on the training cases.
    """

    network: FeedForward
    mean: Floats
    scale: Floats

    @torch.no_grad()
    @checked
    def scores(self, x: Floats) -> Floats:
        """Return the log-odds of the second class, one per row.

        Args:
            x: Features of each case (n, d).
        """
        logits: torch.Tensor = self.network(_rows((x - self.mean) / self.scale))
        return np.asarray((logits[:, 1] - logits[:, 0]).to(torch.float64).numpy())


@checked
def fit_discriminator(
    x: Floats,
    kind: Bools,
    *,
    seed: int = 0,
    validation: float = 0.2,
    weight_decay: float = 0.0,
) -> Discriminator:
    """Train the attack model of GAP's membership inference: three layers with SELU and batch norm.

    The hidden layers have 64 units. Adam at 0.01 takes 100 epochs with full batches; the best epoch on a
    held-out part is kept.

    Args:
        x: Features of each case (n, d).
        kind: Binary label of each case.
        seed: Seed of the held-out part and of the parameters.
        validation: Share of held-out cases.
        weight_decay: Weight decay of Adam.

    Returns:
        The trained classifier.

    Raises:
        ConfigError: If a shape or a setting does not fit.

    Privacy:
        Reads: the given rows and classes, exactly, without a guarantee. Charges: nothing. The result is
        internal.
    """
    checks.shape((-1, -1), x=x)
    checks.shape((len(x),), kind=kind)
    checks.within(0, 1, validation=validation)
    checks.integer_at_least(0, seed=seed)
    streams = PublicStreams(seed)
    mean, scale = x.mean(axis=0), np.maximum(x.std(axis=0), _MIN_SCALE)
    rows, labels = _rows((x - mean) / scale), torch.from_numpy(kind.astype(np.int64))
    order = torch.from_numpy(streams.numpy("held-out").permutation(len(x)))
    held = round(validation * len(x))
    generator = streams.torch("attack-model")
    network = FeedForward([x.shape[1], 64, 64, 2], generator=generator, activation="selu", batch_norm=True)
    train(
        network,
        lambda index: network(rows[index]),
        labels,
        order[held:],
        order[:held],
        TrainingSchedule(epochs=100, learning_rate=0.01, weight_decay=weight_decay, select="likelihood"),
        generator=generator,
    )
    return Discriminator(network, mean, scale)


def _rows(x: Floats) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


EvaluateOn = Literal["target", "shadow"]
SHADOW_MLP, CONFIDENCE = "attack model (shadow)", "confidence in the label"
LIRA, BAYES = "LiRA", "Bayes posterior"
_TRAIN, _TEST = 0.4, 0.4  # of the shadow graph; the rest selects its epoch
_PAPER_PER_CLASS = 1000
_ATTACK_VALIDATION = 0.2
_SHADOW_SPLIT = (0.6, 0.1)  # of the samples, where the attack is tried on the shadow model itself
_MIN_PROBABILITY = 1e-7
_MIN_SPREAD = 1e-2
_PENALTY = 1e-3


@checked
@dataclass(frozen=True, kw_only=True)
class MembershipSettings:
    """Settings of a membership attack.

    Args:
        per_class: Number of nodes of each class in the shadow graph; smaller classes are left out. None for
            1,000 as in the paper, or half of the second largest class if that is less.
        evaluate_on: ``"target"`` to score nodes of the target, as in the paper; ``"shadow"`` to score
            held-out nodes of the shadow model, as in the paper's scripts.
        disjoint: Whether nodes of the shadow graph are excluded from the scored nodes of the target.
        shadows: Number of additional shadow models of the whole graph, for LiRA and the Bayes posterior
            (``bayes_scores``); none if 0.
        seed: Seed of the shadow graph, the shadow models and the attack model.
    """

    per_class: int | None = None
    evaluate_on: EvaluateOn = "target"
    disjoint: bool = True
    shadows: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.per_class is not None:
            checks.integer_at_least(5, per_class=self.per_class)
        if self.shadows:
            checks.integer_at_least(4, shadows=self.shadows)


@checked
@dataclass(frozen=True, eq=False)
class MembershipReport:
    """Result of membership attacks. Internal.

    Args:
        attackers: ROC curves by name; positives are members.
        theoretical_bound: Attack bound that the guarantee implies for one record; not valid under a unit
            that protects edges only.
        unit: Privacy unit.
        judged: Number of scored nodes.
        settings: Settings of the attack.

    Privacy:
        Computed from the true split, without a guarantee. Internal.
    """

    attackers: Mapping[str, RocCurve]
    theoretical_bound: Mapping[str, Any]
    unit: str
    judged: int
    settings: MembershipSettings = field(default_factory=MembershipSettings)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON output of ``graphveil attack membership``."""
        found = attack_as_dict(
            *("membership", self.attackers, (SHADOW_MLP, CONFIDENCE), self.theoretical_bound, self.settings),
            unit=self.unit,
            judged=self.judged,
        )
        attackers = [{"attacker": name, **one.figures()} for name, one in self.attackers.items()]
        return {**found, "attackers": attackers}


@checked
def attack_membership(
    model: Estimator, graph: Graph, settings: MembershipSettings | None = None
) -> MembershipReport:
    """Infer training membership with a shadow model (Sajadmanesh et al., GAP, section 7.4.2).

    The attacker has a part of the data with labels and edges, and fits a model of the same kind and budget.
    An attack model then distinguishes training nodes from test nodes by the shadow model's posteriors and the
    nodes' true classes. The target predicts the whole graph (TSTF).

    Args:
        model: Fitted estimator.
        graph: Training graph with its split.
        settings: Settings of the attack.

    Returns:
        The ROC curves of all attackers.

    Raises:
        ConfigError: If fewer than two classes have enough nodes for the shadow graph.

    Privacy:
        Reads: the true split, labels and edges. Charges: shadow models are fitted on the graph or a part of
        it, and charged like any other fit. There is no guarantee. The result is internal.

    >>> import graphveil as gv
    >>> graph = gv.load_dataset("synthetic/tiny")
    >>> model = gv.MLP(unit="none", seed=0, epochs=30, tuned=False).fit(graph)
    >>> report = attack_membership(model, graph, MembershipSettings(per_class=50))
    >>> sorted(report.attackers)
    ['attack model (shadow)', 'confidence in the label']
    """
    chosen = settings or MembershipSettings()
    if chosen.per_class is None:
        second = sorted(np.bincount(graph.y[graph.y >= 0].numpy(), minlength=2))[-2]
        chosen = replace(chosen, per_class=max(5, min(_PAPER_PER_CLASS, int(second) // 2)))
    assert chosen.per_class is not None  # for the type checker
    shadow, nodes = shadow_graph(graph, chosen.per_class, chosen.seed)
    copy = _refitted(model, shadow, chosen.seed)
    # As many members of the shadow graph as others, in random order.
    rng, (pool, inside) = PublicStreams(chosen.seed).numpy("samples"), select_evaluated_nodes(shadow)
    size = min(int(inside.sum()), int((~inside).sum()))
    even = np.concatenate([rng.permutation(pool[inside])[:size], rng.permutation(pool[~inside])[:size]])
    order = rng.permutation(2 * size)
    samples, members = inputs_of(copy, shadow)[even][order], (np.arange(2 * size) < size)[order]
    evaluated_nodes, truth = select_evaluated_nodes(graph, nodes if chosen.disjoint else None)
    known, validation = len(samples), _ATTACK_VALIDATION
    if chosen.evaluate_on == "shadow":
        learn, select = _SHADOW_SPLIT
        known, validation = round((learn + select) * known), select / (learn + select)
        tried, judged = samples[known:], members[known:]
    else:
        tried, judged = inputs_of(model, graph)[evaluated_nodes], truth
    learned = fit_discriminator(samples[:known], members[:known], seed=chosen.seed, validation=validation)
    found = learned.scores(tried)
    sure = confidence(model, graph)
    scores = {CONFIDENCE: sure[evaluated_nodes]}
    if chosen.shadows:
        ensemble = fit_ensemble(model, graph, chosen.shadows, seed=chosen.seed)
        level, edges = standardized(sure), SecretEdges.from_adjacency(graph.adjacency)
        scores[LIRA] = lira_scores(ensemble, level)[evaluated_nodes]
        scores[BAYES] = bayes_scores(ensemble, level, edges, evaluated_nodes)
    attackers = {name: RocCurve.from_scores(values, truth) for name, values in scores.items()}
    attackers = {SHADOW_MLP: RocCurve.from_scores(found, judged), **attackers}
    bound = theoretical_bound_of(model.guarantee, "record")
    return MembershipReport(attackers, bound, model.guarantee.unit, len(judged), chosen)


def _refitted(model: Estimator, graph: Graph, seed: int) -> Estimator:
    return type(model)(**{**model.get_params(), "seed": seed, "unsafe_noise_seed": None}).fit(graph)


@checked
def shadow_graph(graph: Graph, per_class: int, seed: int) -> tuple[Graph, Integers]:
    """Draw a shadow graph, with 40 % of its nodes for training, 40 % for testing and 20 % for validation.

    Nodes are drawn uniformly, equally many of each class; classes keep their numbers.

    Args:
        graph: Training graph of the target.
        per_class: Number of nodes of each class; smaller classes are left out.
        seed: Seed of the draw.

    Returns:
        The shadow graph with its split, and its nodes in the graph.

    Raises:
        ConfigError: If fewer than two classes have enough nodes.

    Privacy:
        Reads: labels and edges. The result is internal.
    """
    rng = PublicStreams(seed).numpy("shadow")
    labels = graph.y.numpy()
    parts = np.full(graph.num_nodes, -1)
    for number in range(graph.num_classes):
        drawn = rng.permutation(np.flatnonzero(labels == number))[:per_class]
        if len(drawn) == per_class:
            bounds = np.round(per_class * np.array([_TRAIN, _TRAIN + _TEST])).astype(int)
            for part, some in enumerate(np.split(drawn, bounds)):
                parts[some] = part
    taken = np.flatnonzero(parts >= 0)
    if len(np.unique(labels[taken])) < 2:
        raise ConfigError(
            f"Fewer than two classes have {per_class} nodes for the shadow graph. Use a smaller "
            "per_class= (--per-class)."
        )
    train, test, val = (torch.from_numpy(parts == part) for part in range(3))
    return graph.with_split(train, val, test).subgraph(torch.from_numpy(parts >= 0)), taken


# -- posteriors of nodes whose class is known --------------------------------------------------------------


def select_evaluated_nodes(graph: Graph, without: Integers | None = None) -> tuple[Integers, Bools]:
    members, others = (graph.labeled_in(part).numpy().copy() for part in ("train", "test"))
    if without is not None:
        members[without] = others[without] = False
    nodes = np.flatnonzero(members | others)
    return nodes, members[nodes]


def inputs_of(model: Estimator, graph: Graph) -> Floats:
    classes = np.eye(graph.num_classes)[graph.y.numpy()]  # -1: unlabeled nodes are not scored
    return np.concatenate([model.fitted.own_proba.double().numpy(), classes], axis=1)


def confidence(model: Estimator, graph: Graph) -> Floats:
    """Return log p / (1 - p) of each node's own class, which is higher for members of an overfitted model."""
    proba = model.fitted.own_proba.double().numpy()
    own = proba[np.arange(graph.num_nodes), graph.y.clamp_min(0).numpy()]
    own = np.clip(own, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    return np.asarray(np.log(own) - np.log1p(-own))


def standardized(sure: Floats) -> Floats:
    """Return confidences minus their mean, over their spread: models may have stopped at different epochs."""
    return np.asarray((sure - sure.mean()) / max(float(sure.std()), _MIN_PROBABILITY))


# -- many shadow models of one graph -----------------------------------------------------------------------


@checked
@dataclass(frozen=True, eq=False)
class Ensemble:
    """Shadow models of one graph, each trained on a part of the scored nodes.

    Args:
        members: Which nodes each model was trained on (K, N).
        confidences: Each model's confidence in every node's class, log p / (1 - p), standardized (K, N).

    Privacy:
        Contains the true members of each shadow model's training set. Internal.
    """

    members: Bools
    confidences: Floats

    @checked
    def without(self, number: int) -> "Ensemble":
        """Return all models but one.

        Args:
            number: Index of the model to leave out.
        """
        keep = np.arange(len(self.members)) != number
        return Ensemble(self.members[keep], self.confidences[keep])

    def laws(self) -> "Laws":
        """Return the expected confidence of each node as a member and as a non-member.

        A few models contain little information about one node. Spreads are shared by all nodes (as Carlini
        et al. 2022 do in this case), and the effect of membership on a node is shrunk towards its mean over
        nodes, by the part of its variance that the scatter of the models explains.
        """
        held, left = self.members.sum(axis=0), (~self.members).sum(axis=0)
        observed = (held > 0) & (left > 0)
        inside = (self.confidences * self.members).sum(axis=0) / np.maximum(held, 1)
        outside = (self.confidences * ~self.members).sum(axis=0) / np.maximum(left, 1)
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
    """Gaussian distributions of each node's confidence, as a member and as a non-member.

    Args:
        base: Mean confidence of each node as a non-member (N).
        gain: Difference of the means of members and non-members (N).
        wide, narrow: Standard deviations for members and for non-members.
    """

    base: Floats
    gain: Floats
    wide: float
    narrow: float

    def ratio(self, confidences: Floats) -> Floats:
        there = -(((confidences - self.base - self.gain) / self.wide) ** 2) / 2 - np.log(self.wide)
        not_there = -(((confidences - self.base) / self.narrow) ** 2) / 2 - np.log(self.narrow)
        return np.asarray(there - not_there)


def _spread(rest: Floats, chosen: Bools) -> float:
    free = float(chosen.sum() - (chosen.sum(axis=0) > 0).sum())
    return max(float(np.sqrt((rest**2 * chosen).sum() / max(free, 1.0))), _MIN_SPREAD)


@checked
def fit_ensemble(model: Estimator, graph: Graph, count: int, *, seed: int = 0) -> Ensemble:
    """Fit shadow models with the keywords of a model, on parts of its training and test nodes.

    Each has about as many members as the target, since the confidence of a model depends on that number.
    Every node is left out by equally many models, at least two, so that each has examples of both kinds.

    Args:
        model: Fitted estimator.
        graph: Training graph with its split.
        count: Number of shadow models, 4 or more.
        seed: Seed of the members; also of the first model.

    Returns:
        The shadow models' members and confidences.

    Raises:
        ConfigError: If ``count`` is below 4.

    Privacy:
        Reads: labels, edges and the true split. Charges: each fit, like any other. The result is internal.
    """
    checks.integer_at_least(4, count=count)
    rng = PublicStreams(seed).numpy("members")
    pool = np.flatnonzero((graph.labeled_in("train") | graph.labeled_in("test")).numpy())
    share = float(graph.labeled_in("train").sum()) / len(pool)
    outside = int(np.clip(round(count * (1 - share)), 2, count - 2))
    members = np.zeros((count, graph.num_nodes), dtype=bool)
    members[:, pool] = np.argsort(rng.random((count, len(pool))), axis=0) >= outside
    found = []
    for number, chosen in enumerate(torch.from_numpy(members)):
        others = torch.zeros(graph.num_nodes, dtype=torch.bool)
        others[pool] = True
        split = graph.with_split(chosen, graph.labeled_in("val"), others & ~chosen)
        found.append(standardized(confidence(_refitted(model, split, seed + number), graph)))
    return Ensemble(members, np.array(found))


@checked
def lira_scores(ensemble: Ensemble, confidences: Floats) -> Floats:
    """Compute LiRA's log-likelihood ratio of membership for each node (Carlini et al., S&P 2022).

    One Gaussian describes models that were trained on the node, another one all other models
    (``Ensemble.laws``).

    Args:
        ensemble: Shadow models.
        confidences: Confidences of the target (N), standardized.

    Returns:
        One score per node (N).

    Raises:
        ConfigError: If the confidences are not those of the ensemble's nodes.

    Privacy:
        Reads: confidences, and the true members of shadow models. Charges: nothing. The result is internal.
    """
    checks.shape(ensemble.confidences.shape[1:], confidences=confidences)
    return ensemble.laws().ratio(confidences)


@checked
def bayes_scores(ensemble: Ensemble, confidences: Floats, edges: SecretEdges, nodes: Integers) -> Floats:
    """Compute log-odds of membership given a model's outputs on all nodes, and the graph.

    The idea is that of G-BASE (arXiv 2505.24089). If training draws parameters with probability
    proportional to exp(-sum over members of loss / T), the log-odds that node v is a member are

        -loss_v / T - log E[exp(-loss_v / T)] + a constant,

    the mean over models without v (Sablayrolles et al. 2019). In a graph, members among v's neighbors also
    lower its loss. The outputs of v are therefore scored together with how far its neighbors' outputs are
    from their values without them. Temperature and weights of these parts, and of LiRA's ratio, are fitted by
    logistic regression on the shadow models, each scored by the others, with known truth.

    Args:
        ensemble: Shadow models.
        confidences: Confidences of the target (N), standardized.
        edges: The attacker's knowledge of the graph.
        nodes: Nodes to score; the regression uses these nodes only.

    Returns:
        One score per scored node.

    Raises:
        ConfigError: If the arguments are not about the same nodes.

    Privacy:
        Reads: the exact edges, as the attacker's knowledge. The result is internal.
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
    """Return the evidence of the outputs for each node (N, 6): its own terms, and its neighbors' mean."""
    # -loss - log E[exp(-loss)], the mean over models without the node, at temperature one.
    held_out = np.where(ensemble.members, -np.inf, log_expit(ensemble.confidences))
    counts = np.maximum((~ensemble.members).sum(axis=0), 1)
    base = log_expit(confidences) - (logsumexp(held_out, axis=0) - np.log(counts))
    base = np.where(np.isfinite(base), base, 0.0)
    laws = ensemble.laws()
    lira, surprise, gain = laws.ratio(confidences), confidences - laws.base, laws.gain
    degrees = np.maximum(edges.degrees, 1)
    prior = np.asarray(edges.matrix @ surprise) / degrees
    return np.column_stack([base, np.clip(lira, -50, 50), surprise, prior, gain, surprise * gain])


def _logistic(rows: Floats, truth: Bools) -> Floats:
    design = np.column_stack([np.ones(len(rows)), rows])
    sign = np.where(truth, 1.0, -1.0)

    def loss(weights: Floats) -> tuple[float, Floats]:
        margins = sign * (design @ weights)
        slope = -(design * (sign * expit(-margins))[:, None]).mean(axis=0) + _PENALTY * weights
        return float(-log_expit(margins).mean() + _PENALTY / 2 * weights @ weights), slope

    return np.asarray(optimize.minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x)
