"""Membership inference: was a node trained on? GAP's protocol: a shadow model and an attack model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.lab.attacks.discriminator import fit_discriminator
from graphveil.lab.attacks.ensemble import bayes_scores, fit_ensemble, lira_scores
from graphveil.lab.attacks.posteriors import confidence, inputs_of, select_evaluated_nodes, standardized
from graphveil.lab.attacks.roc import Bools, Floats, RocCurve
from graphveil.lab.attacks.secret_edges import Integers, SecretEdges
from graphveil.lab.attacks.theoretical_bounds import theoretical_bound_of

EvaluateOn = Literal["target", "shadow"]
SHADOW_MLP, CONFIDENCE = "attack model (shadow)", "confidence in the label"
LIRA, BAYES = "LiRA", "Bayes posterior"
_TRAIN, _TEST = 0.4, 0.4  # of the shadow graph; the rest selects its epoch
_ATTACK_VALIDATION = 0.2
_SHADOW_SPLIT = (0.6, 0.1)  # of the samples, where the attack is tried on the shadow model itself


@checked
@dataclass(frozen=True, kw_only=True)
class MembershipSettings:
    """What a membership attack is told beforehand.

    Args:
        per_class: nodes of each class in the shadow graph; classes with fewer are left out.
        evaluate_on: ``"target"``, as the paper says: the attack model learns from the shadow model alone; or
            ``"shadow"``, which is what its scripts do.
        disjoint: whether nodes of the shadow graph are left out where the target is judged.
        shadows: how many shadow models of the whole graph to fit besides, for LiRA and the Bayes posterior
            (:func:`bayes_scores`); none if 0.
        seed: of the shadow graph, the shadow models and the attack model.
    """

    per_class: int = 1000
    evaluate_on: EvaluateOn = "target"
    disjoint: bool = True
    shadows: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every field."""
        checks.integer_at_least(5, per_class=self.per_class)
        checks.one_of(("target", "shadow"), evaluate_on=self.evaluate_on)
        checks.switch(disjoint=self.disjoint)
        if self.shadows:
            checks.integer_at_least(4, shadows=self.shadows)


@checked
@dataclass(frozen=True, eq=False)
class MembershipReport:
    """What attackers know about membership. Internal.

    Args:
        attackers: rankings by name: members are there.
        theoretical_bound: the attack bound that the guarantee implies for one record; nothing under a unit
            that protects edges alone.
        unit: what it protects.
        judged: how many nodes were judged.
        settings: what was asked.
    """

    attackers: Mapping[str, RocCurve]
    theoretical_bound: Mapping[str, Any]
    unit: str
    judged: int
    settings: MembershipSettings = field(default_factory=MembershipSettings)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``graphveil attack membership --json`` prints."""
        main = self.attackers[SHADOW_MLP]
        return {
            "internal": True,
            "attack": "membership",
            "auc": main.auc,
            "max_tpr_at_1pct_fpr": main.tpr(0.01),
            "baseline": {"attacker": CONFIDENCE, **self.attackers[CONFIDENCE].figures()},
            "theoretical_bound": dict(self.theoretical_bound),
            "unit": self.unit,
            "judged": self.judged,
            "settings": dict(vars(self.settings)),
            "attackers": [{"attacker": name, **one.figures()} for name, one in self.attackers.items()],
        }


@checked
def attack_membership(
    model: Estimator, graph: Graph, settings: MembershipSettings | None = None
) -> MembershipReport:
    """Return what a shadow model teaches about who was trained on (Sajadmanesh et al., GAP, section 7.4.2).

    The attacker has a part of the data with labels and edges, fits a model of the same kind and budget on it,
    and learns from its posteriors and the nodes' true classes to tell its training nodes from its test nodes.
    The target is asked about the whole graph (TSTF). Guarantee: none; internal.

    Raises:
        ConfigError: no two classes have nodes enough for the shadow graph.

    >>> import graphveil as gv
    >>> graph = gv.load_dataset("synthetic/tiny")
    >>> model = gv.MLP(unit="none", seed=0, epochs=30, tuned=False).fit(graph)
    >>> report = attack_membership(model, graph, MembershipSettings(per_class=50))
    >>> sorted(report.attackers)
    ['attack model (shadow)', 'confidence in the label']
    """
    resolved_settings = settings or MembershipSettings()
    shadow, nodes = shadow_graph(graph, resolved_settings.per_class, resolved_settings.seed)
    copy = type(model)(
        **{**model.get_params(), "seed": resolved_settings.seed, "unsafe_noise_seed": None}
    ).fit(shadow)
    samples, members = _samples(copy, shadow, PublicStreams(resolved_settings.seed).numpy("samples"))
    if resolved_settings.evaluate_on == "shadow":
        found, judged = _on_shadow(samples, members, resolved_settings.seed)
    else:
        learned = fit_discriminator(
            samples, members, seed=resolved_settings.seed, validation=_ATTACK_VALIDATION
        )
        evaluated_nodes, judged = select_evaluated_nodes(graph, nodes if resolved_settings.disjoint else None)
        found = learned.scores(inputs_of(model, graph)[evaluated_nodes])
    attackers = {SHADOW_MLP: RocCurve.from_scores(found, judged)}
    evaluated_nodes, truth = select_evaluated_nodes(graph, nodes if resolved_settings.disjoint else None)
    sure = confidence(model, graph)
    attackers[CONFIDENCE] = RocCurve.from_scores(sure[evaluated_nodes], truth)
    if resolved_settings.shadows:
        ensemble = fit_ensemble(model, graph, resolved_settings.shadows, seed=resolved_settings.seed)
        level = standardized(sure)
        attackers[LIRA] = RocCurve.from_scores(lira_scores(ensemble, level)[evaluated_nodes], truth)
        bayes = bayes_scores(ensemble, level, SecretEdges.from_adjacency(graph.adjacency), evaluated_nodes)
        attackers[BAYES] = RocCurve.from_scores(bayes, truth)
    theoretical_bound = theoretical_bound_of(model.guarantee, "record")
    return MembershipReport(
        attackers, theoretical_bound, model.guarantee.unit, len(judged), resolved_settings
    )


@checked
def shadow_graph(graph: Graph, per_class: int, seed: int) -> tuple[Graph, Integers]:
    """Return a shadow graph with its split, and its nodes: 40 % train, 40 % test, 20 % validation.

    Nodes are drawn uniformly, equally many of each class; classes keep their numbers.
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
            f"fewer than two classes have {per_class} nodes for the shadow graph; ask for fewer of each "
            "(per_class=, --per-class)"
        )
    train, test, val = (torch.from_numpy(parts == part) for part in range(3))
    return graph.with_split(train, val, test).subgraph(torch.from_numpy(parts >= 0)), taken


def _samples(model: Estimator, graph: Graph, rng: np.random.Generator) -> tuple[Floats, Bools]:
    """Return as many members as others, in random order."""
    nodes, members = select_evaluated_nodes(graph)
    size = min(int(members.sum()), int((~members).sum()))
    even = np.concatenate([rng.permutation(nodes[members])[:size], rng.permutation(nodes[~members])[:size]])
    order = rng.permutation(2 * size)
    return inputs_of(model, graph)[even][order], (np.arange(2 * size) < size)[order]


def _on_shadow(samples: Floats, members: Bools, seed: int) -> tuple[Floats, Bools]:
    """Return scores of shadow samples that the attack model did not learn from."""
    learn, select = _SHADOW_SPLIT
    known = round((learn + select) * len(samples))
    model = fit_discriminator(
        samples[:known], members[:known], seed=seed, validation=select / (learn + select)
    )
    return model.scores(samples[known:]), members[known:]
