"""Link inference against a fitted model: LinkTeller, and what stands beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.lab.attacks.correlations import correlations
from graphveil.lab.attacks.influence import (
    DIRECTIONS,
    NUDGES,
    STEP,
    Direction,
    Nudge,
    Predict,
    influences,
    link_scores,
)
from graphveil.lab.attacks.knowledge import aggregate_knowledge, full_knowledge, public_knowledge
from graphveil.lab.attacks.matrices import Matrix, features_of
from graphveil.lab.attacks.pairs import SAMPLINGS, Pairs, Sampling, draw_pairs
from graphveil.lab.attacks.roc import Floats, MeanInterval, RocCurve
from graphveil.lab.attacks.secret_edges import SecretEdges
from graphveil.lab.attacks.serving import ServedModel, serve_model
from graphveil.lab.attacks.supervised import supervised_scores
from graphveil.lab.attacks.theoretical_bounds import theoretical_bound_of

LINKTELLER, BY_POSTERIOR, BY_FEATURES = "LinkTeller", "posterior correlation", "feature correlation (public)"
SUPERVISED_PUBLIC, SUPERVISED = "told half the pairs (public)", "told half the pairs, with answers"
MAX_ATTACKED_NODES = 6_000
CONTROL = "told half the pairs, with true classes and degrees (control)"
BELIEFS = (0.25, 0.5, 1.0, 2.0, 4.0)
BY_CONSTRUCTION = "zero by construction: answers come from released rows, and no nudge moves them"


@checked
@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """What a link attack is told beforehand.

    Args:
        nodes: how many nodes are drawn; all pairs of them are judged.
        sampling: ``"unbalanced"``, ``"balanced"``, ``"lo"`` or ``"hi"`` (:func:`draw_pairs`).
        cutoff: the degree of ``"lo"`` and ``"hi"``.
        step: the size of a nudge.
        nudge: how a row is nudged (:func:`influences`).
        direction: whose influence counts (:func:`link_scores`).
        supervised: whether attackers who are told half of the pairs are asked, too
            (:func:`supervised_scores`): one who has public data alone, one who has the model besides, and a
            control who knows everybody's true class and number of neighbors.
        seed: of the draw.
    """

    nodes: int = 500
    sampling: Sampling = "unbalanced"
    cutoff: int | None = None
    step: float = STEP
    nudge: Nudge = "either"
    direction: Direction = "max"
    supervised: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every field."""
        checks.integer_at_least(2, nodes=self.nodes)
        checks.one_of(SAMPLINGS, sampling=self.sampling)
        checks.positive(step=self.step)
        checks.one_of(NUDGES, nudge=self.nudge)
        checks.one_of(DIRECTIONS, direction=self.direction)
        checks.switch(supervised=self.supervised)
        if self.nodes > MAX_ATTACKED_NODES:
            raise ConfigError(
                f"nodes={self.nodes} must be at most {MAX_ATTACKED_NODES:,}: all pairs of them are judged; "
                "draw fewer"
            )


@dataclass(frozen=True, eq=False)
class Attacker:
    """One attacker's scores of all pairs, and what became of them.

    Args:
        name: what tables call it.
        scores: one a pair.
        roc: how well they put edges first.
        note: what has to be said of it.
    """

    name: str
    scores: Floats
    roc: RocCurve
    note: str = ""

    def as_dict(self, pairs: Pairs) -> dict[str, Any]:
        """Return its figures as plain values, with decisions at every belief about the density."""
        beliefs = {
            f"{belief:g}k": dict(
                zip(
                    ("precision", "recall", "f1"),
                    self.roc.at_top(belief * pairs.joined.sum()),
                    strict=True,
                )
            )
            for belief in BELIEFS
        }
        return {"attacker": self.name, **self.roc.figures(), "beliefs": beliefs, "note": self.note}


@checked
@dataclass(frozen=True, eq=False)
class LinkReport:
    """All attackers on the same pairs. Internal: it says how well true edges are found.

    Args:
        pairs: what was judged.
        attackers: by name.
        theoretical_bound: the attack bound that the guarantee implies for one edge
            (:func:`theoretical_bound_of`).
        edge_source: what the model's answers read.
        settings: what was asked.
    """

    pairs: Pairs
    attackers: Mapping[str, Attacker]
    theoretical_bound: Mapping[str, Any]
    edge_source: str
    settings: LinkSettings = field(default_factory=LinkSettings)

    def __getitem__(self, name: str) -> Attacker:
        """Return an attacker by name."""
        return self.attackers[name]

    @checked
    def difference(self, one: str, other: str, *, draws: int = 100) -> MeanInterval:
        """Return by how much one attacker's AUC is above another's on the same pairs, with its 99 % interval.

        Pairs share nodes, so it is nodes that are drawn anew, with repeats (bootstrap): a pair counts as
        often as both of its ends. It says how much of the difference is the draw of nodes, not of the model.
        """
        rng = PublicStreams(self.settings.seed).numpy("bootstrap")
        joined, count = self.pairs.joined, len(self.pairs.nodes)
        found = []
        for _ in range(draws):
            times = rng.multinomial(count, np.full(count, 1 / count)).astype(np.float64)
            weights = times[self.pairs.one] * times[self.pairs.other]
            first, second = (
                RocCurve.from_scores(self[name].scores, joined, weights).auc for name in (one, other)
            )
            found.append(first - second)
        low, high = np.quantile(found, (0.005, 0.995))
        mean = self[one].roc.auc - self[other].roc.auc
        return MeanInterval(mean, float(np.std(found, ddof=1)), float(low), float(high), 1)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``graphveil attack linkteller --json`` prints."""
        main, baseline = self[LINKTELLER].roc, self[BY_FEATURES].roc
        return {
            "internal": True,
            "attack": "linkteller",
            "auc": main.auc,
            "max_tpr_at_1pct_fpr": main.tpr(0.01),
            "baseline": {"attacker": BY_FEATURES, **baseline.figures()},
            "theoretical_bound": dict(self.theoretical_bound),
            "edge_source": self.edge_source,
            "nodes": len(self.pairs.nodes),
            "pairs": len(self.pairs.joined),
            "edges": int(self.pairs.joined.sum()),
            "settings": dict(vars(self.settings)),
            "attackers": [one.as_dict(self.pairs) for one in self.attackers.values()],
        }


@checked
def attack_links(model: Estimator, graph: Graph, settings: LinkSettings | None = None) -> LinkReport:
    """Return what an attacker learns about the edges of the graph that a model was fitted on.

    LinkTeller sends features of its choice and watches whose predictions move; beside it stand attackers who
    compare posteriors, and features alone, which are public. Guarantee: none; the true edges are read, so no
    number of this may be published.

    Raises:
        ConfigError: a setting is outside its range, or the drawn pairs are all alike.

    >>> import graphveil as gv
    >>> graph = gv.load_dataset("synthetic/tiny")
    >>> model = gv.GCN(unit="none", seed=0, epochs=20).fit(graph)
    >>> report = attack_links(model, graph, LinkSettings(nodes=60))
    >>> report["LinkTeller"].roc.auc > 0.9 > report["feature correlation (public)"].roc.auc
    True
    """
    resolved_settings = settings or LinkSettings()
    answers = serve_model(model, graph)
    edges = SecretEdges.from_adjacency(graph.adjacency)
    pairs = draw_pairs(
        edges,
        count=resolved_settings.nodes,
        sampling=resolved_settings.sampling,
        cutoff=resolved_settings.cutoff,
        seed=resolved_settings.seed,
    )
    x = features_of(graph)
    influence = _influence(answers, x, pairs, resolved_settings)
    nothing = np.zeros(len(pairs.joined))
    scores = {
        LINKTELLER: nothing
        if influence is None
        else link_scores(influence, pairs, resolved_settings.direction),
        BY_POSTERIOR: correlations(answers.proba, pairs),
        BY_FEATURES: correlations(x, pairs),
    }
    if resolved_settings.supervised:
        public = public_knowledge(graph, pairs)
        full = full_knowledge(public, answers, pairs, influence)
        scores[SUPERVISED_PUBLIC] = supervised_scores(public, pairs, seed=resolved_settings.seed)
        scores[SUPERVISED] = supervised_scores(full, pairs, seed=resolved_settings.seed)
        aggregates = aggregate_knowledge(public, graph, edges, pairs)
        scores[CONTROL] = supervised_scores(aggregates, pairs, seed=resolved_settings.seed)
    notes = {} if answers.responds_to_features else {LINKTELLER: BY_CONSTRUCTION}
    attackers = {
        name: Attacker(name, values, RocCurve.from_scores(values, pairs.joined), notes.get(name, ""))
        for name, values in scores.items()
    }
    return LinkReport(
        pairs,
        attackers,
        theoretical_bound_of(model.guarantee, "edge"),
        answers.edge_source,
        resolved_settings,
    )


@checked
def attack_predict(predict: Predict, x: Matrix, pairs: Pairs, settings: LinkSettings) -> Attacker:
    """Return LinkTeller against anything that answers features with scores, a live endpoint for example."""
    found = influences(predict, x, pairs.nodes, step=settings.step, nudge=settings.nudge)
    scores = link_scores(found, pairs, settings.direction)
    return Attacker(LINKTELLER, scores, RocCurve.from_scores(scores, pairs.joined))


def _influence(
    answers: ServedModel, x: Matrix, pairs: Pairs, resolved_settings: LinkSettings
) -> Floats | None:
    """Return who moves whom, or None where nobody can."""
    if not answers.responds_to_features:
        return None
    return influences(
        answers.predict, x, pairs.nodes, step=resolved_settings.step, nudge=resolved_settings.nudge
    )
