"""Link inference against a fitted model: LinkTeller, and the attackers that it is compared with.

LinkTeller sends features and observes which predictions change. Other attackers compare the rows of two
nodes, or train a classifier on known edges. Internal: all are scored by the true edges.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit
from scipy.stats import rankdata

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.attacks.influence import (
    RELEASED_ROWS,
    STEP,
    Direction,
    Matrix,
    Nudge,
    Predict,
    ServedModel,
    as_float64,
    dense_rows,
    influences,
    link_scores,
    serve_model,
)
from graphveil.attacks.membership import fit_discriminator
from graphveil.attacks.pairs import Pairs, Sampling, draw_pairs
from graphveil.attacks.roc import Floats, RocCurve, attack_as_dict, theoretical_bound_of
from graphveil.audit.secret_edges import Integers, SecretEdges
from graphveil.core.noise.random import PublicStreams
from graphveil.core.queries.pair_sums import EdgeProductQuery
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.links.link_predictor import LinkPredictor

LINKTELLER, BY_POSTERIOR, BY_FEATURES = "LinkTeller", "posterior correlation", "feature correlation (public)"
BY_SCORE, BY_PRODUCTS = "score of the pair", "products, other edges known"
RELEASED_SUMS = "released sums"
SUPERVISED_PUBLIC, SUPERVISED = "knows half of the pairs (public)", "knows half of the pairs, with answers"
MAX_ATTACKED_NODES = 6_000
CONTROL = "knows half of the pairs, with true classes and degrees (control)"
BELIEFS = (0.25, 0.5, 1.0, 2.0, 4.0)
BY_CONSTRUCTION = "zero by construction: predictions are post-processing of released aggregates"
ONE_RELEASE = (
    "all pairs share the noise of one release, so this row deviates from its mean over releases, which is at "
    "most the bound for one edge"
)
_NARROW = 64  # rows this narrow are also compared entry by entry
_MAX_TRAIN_EDGES, _NON_EDGES_PER_EDGE = 1_000, 8  # that a supervised attacker learns from
_DECAY = 1e-3
_AT_ONCE = 1 << 14  # pairs per chunk
_MIN_NORM = 1e-12


@checked
@dataclass(frozen=True, kw_only=True)
class LinkSettings:
    """Settings of a link attack.

    Args:
        nodes: Number of sampled nodes; all pairs of them are scored.
        sampling: ``"unbalanced"``, ``"balanced"``, ``"lo"`` or ``"hi"`` (``draw_pairs``).
        cutoff: Degree of ``"lo"`` and ``"hi"``.
        step: Size of a perturbation.
        nudge: How a row is perturbed (``influences``).
        direction: Which influence of a pair counts (``link_scores``).
        supervised: Whether to include attackers who know half of the pairs
            (``supervised_scores``): one with public data alone, one with the model as well, and a
            control with the true class and number of neighbors of every node.
        seed: Seed of the sample.
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
        checks.integer_at_least(2, nodes=self.nodes)
        checks.positive(step=self.step)
        if self.nodes > MAX_ATTACKED_NODES:
            raise ConfigError(
                f"nodes={self.nodes} must be at most {MAX_ATTACKED_NODES:,}, because the attack scores "
                "every pair of them. Use a smaller number."
            )


@dataclass(frozen=True, eq=False)
class Attacker:
    """Scores of one attacker."""

    name: str
    scores: Floats
    roc: RocCurve
    note: str = ""

    def as_dict(self, pairs: Pairs) -> dict[str, Any]:
        beliefs = {}
        for belief in BELIEFS:
            precision, recall, f1 = self.roc.at_top(belief * pairs.joined.sum())
            beliefs[f"{belief:g}k"] = {"precision": precision, "recall": recall, "f1": f1}
        return {"attacker": self.name, **self.roc.figures(), "beliefs": beliefs, "note": self.note}


@checked
@dataclass(frozen=True, eq=False)
class LinkReport:
    """Result of all attackers on the same pairs. Internal.

    Args:
        pairs: Scored pairs.
        attackers: Attackers by name.
        theoretical_bound: Attack bound that the guarantee implies for one edge (``theoretical_bound_of``).
        edge_source: Edges that the model's predictions read (``ServedModel``), or ``"released sums"`` of a
            link predictor.
        settings: Settings of the attack.

    Privacy:
        Computed from the true state of node pairs, without a guarantee. Internal.
    """

    pairs: Pairs
    attackers: Mapping[str, Attacker]
    theoretical_bound: Mapping[str, Any]
    edge_source: str
    settings: LinkSettings = field(default_factory=LinkSettings)

    def __getitem__(self, name: str) -> Attacker:
        return self.attackers[name]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON output of ``graphveil attack linkteller``."""
        curves = {name: one.roc for name, one in self.attackers.items()}
        found = attack_as_dict(
            *("linkteller", curves, (LINKTELLER, BY_FEATURES), self.theoretical_bound, self.settings),
            edge_source=self.edge_source,
            nodes=len(self.pairs.nodes),
            pairs=len(self.pairs.joined),
            edges=int(self.pairs.joined.sum()),
        )
        return {**found, "attackers": [one.as_dict(self.pairs) for one in self.attackers.values()]}


@checked
def attack_links(
    model: Estimator | LinkPredictor, graph: Graph, settings: LinkSettings | None = None
) -> LinkReport:
    """Infer edges of a model's training graph, and measure the success.

    LinkTeller sends features and observes which predictions change. The report also has attackers that
    compare posteriors, and features alone, which are public. For a link predictor it has the score of each
    pair instead, and the most powerful test on the released products (``product_scores``).

    Args:
        model: Fitted estimator or link predictor.
        graph: Training graph.
        settings: Settings of the attack.

    Returns:
        The ROC curves of all attackers.

    Raises:
        ConfigError: If a setting is out of range, all sampled pairs are of one kind, or the graph of a link
            predictor has another size.

    Privacy:
        Reads: the exact edges. Charges: nothing, and there is no guarantee. The result is internal.

    >>> import graphveil as gv
    >>> graph = gv.load_dataset("synthetic/tiny")
    >>> model = gv.GCN(unit="none", seed=0, epochs=20).fit(graph)
    >>> report = attack_links(model, graph, LinkSettings(nodes=60))
    >>> report["LinkTeller"].roc.auc > 0.9 > report["feature correlation (public)"].roc.auc
    True
    """
    chosen = settings or LinkSettings()
    edges = SecretEdges.from_adjacency(graph.adjacency)
    pairs = draw_pairs(
        edges, count=chosen.nodes, sampling=chosen.sampling, cutoff=chosen.cutoff, seed=chosen.seed
    )
    x, public = as_float64(graph.x), public_knowledge(graph, pairs)
    scores = {LINKTELLER: np.zeros(len(pairs.joined))}
    if isinstance(model, LinkPredictor):
        guarantee, edge_source, responds = model.guarantee, RELEASED_SUMS, False
        scores[BY_PRODUCTS] = product_scores(model, graph, pairs)
        scores[BY_SCORE] = model.decision_function(np.stack(pairs.ends))
        if graph.directed:
            back = model.decision_function(np.stack(pairs.ends[::-1]))
            scores[BY_SCORE] = np.maximum(scores[BY_SCORE], back)
        matrix = np.zeros((len(pairs.nodes),) * 2)
        matrix[pairs.one, pairs.other] = matrix[pairs.other, pairs.one] = expit(scores[BY_SCORE])
        known = AdversaryKnowledge(public.rows, matrix)
    else:
        answers, influence = serve_model(model, graph), None
        guarantee, edge_source = model.guarantee, answers.edge_source
        responds = edge_source != RELEASED_ROWS  # whether features of one node can change other predictions
        if responds:
            influence = influences(answers.predict, x, pairs.nodes, step=chosen.step, nudge=chosen.nudge)
            scores[LINKTELLER] = link_scores(influence, pairs, chosen.direction)
        scores[BY_POSTERIOR] = correlations(answers.proba, pairs)
        known = full_knowledge(public, answers, pairs, influence)
    scores[BY_FEATURES] = correlations(x, pairs)
    if chosen.supervised:
        aggregates = aggregate_knowledge(public, graph, edges, pairs)
        attackers = {SUPERVISED_PUBLIC: public, SUPERVISED: known, CONTROL: aggregates}
        for name, knowledge in attackers.items():
            scores[name] = supervised_scores(knowledge, pairs, seed=chosen.seed)
    notes = {BY_PRODUCTS: ONE_RELEASE, **({} if responds else {LINKTELLER: BY_CONSTRUCTION})}
    found = {
        name: Attacker(name, values, RocCurve.from_scores(values, pairs.joined), notes.get(name, ""))
        for name, values in scores.items()
    }
    return LinkReport(pairs, found, theoretical_bound_of(guarantee, "edge"), edge_source, chosen)


@checked
def attack_predict(predict: Predict, x: Matrix, pairs: Pairs, settings: LinkSettings) -> Attacker:
    """Run LinkTeller against any function from features to scores, such as a live endpoint.

    Args:
        predict: Function from features (N, d) to scores (N, C).
        x: Features that the attacker sends.
        pairs: Pairs to score.
        settings: Size, kind and direction of the perturbations.

    Returns:
        The scores and their ROC curve.

    Raises:
        ConfigError: If ``predict`` does not return one row per node.

    Privacy:
        Reads: predictions, and the true state of the pairs. The result is internal.
    """
    found = influences(predict, x, pairs.nodes, step=settings.step, nudge=settings.nudge)
    scores = link_scores(found, pairs, settings.direction)
    return Attacker(LINKTELLER, scores, RocCurve.from_scores(scores, pairs.joined))


# -- attackers who compare rows ----------------------------------------------------------------------------


@checked
def correlations(rows: Matrix, pairs: Pairs) -> Floats:
    """Compute the correlation of the rows of each pair's ends.

    With posteriors this is LSA2-post, with features LSA2-attr (Wu et al., after He et al.). The latter uses
    public data only, and is the baseline of every attack.

    Args:
        rows: Rows (N, d), an array, a tensor or a SciPy matrix.
        pairs: Pairs to score.

    Returns:
        One score per pair.

    Privacy:
        Reads: the given rows only. Charges: nothing. The result is as private as the rows.
    """
    drawn = dense_rows(rows, pairs.nodes)
    return np.asarray(_cosines(drawn - drawn.mean(axis=1, keepdims=True))[pairs.one, pairs.other])


# -- attackers who know some of the edges ------------------------------------------------------------------


@checked
@dataclass(frozen=True, eq=False)
class AdversaryKnowledge:
    """Attacker's knowledge about the sampled nodes.

    Args:
        rows: Matrices (n, d) by name: features, public labels, posteriors, released aggregates.
        influence: Influence of each sampled node on each other (n, n), if it was measured; or the probability
            of an edge, which a link predictor predicts.

    Privacy:
        Contains what an attacker is assumed to know, which may include private features. Internal.
    """

    rows: Mapping[str, Floats]
    influence: Floats | None = None
    _likeness: dict[str, list[Floats]] = field(default_factory=dict, init=False, repr=False)

    @checked
    def columns(self, one: Integers, other: Integers) -> Floats:
        """Return the features of each pair, independent of the order of its ends.

        Args:
            one, other: Indices of the nodes of each pair (m).

        Returns:
            The features (m, k).

        Raises:
            ConfigError: If an index is out of range.
        """
        for rows in self.rows.values():
            checks.places(len(rows), one=one, other=other)
        parts = []
        for name, rows in self.rows.items():
            if name not in self._likeness:  # of all pairs, for columns of many blocks of pairs
                self._likeness[name] = [rows @ rows.T, _cosines(rows), _cosines(rows - rows.mean(axis=0))]
            parts += [matrix[one, other][:, None] for matrix in self._likeness[name]]
            if rows.shape[1] <= _NARROW:
                parts += [np.abs(rows[one] - rows[other]), rows[one] * rows[other]]
        if self.influence is not None:
            there, back = (np.log(self.influence[ends] + _MIN_NORM) for ends in ((one, other), (other, one)))
            parts += [np.maximum(there, back)[:, None], np.minimum(there, back)[:, None]]
        return np.concatenate(parts, axis=1)


def _cosines(rows: Floats) -> Floats:
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _MIN_NORM)
    return np.asarray(unit @ unit.T)


@checked
def public_knowledge(graph: Graph, pairs: Pairs) -> AdversaryKnowledge:
    """Return the public data under edge-level units: features, and labels of training and validation nodes.

    Args:
        graph: Training graph.
        pairs: Sampled pairs.

    Privacy:
        Reads: features and labels, which are public under edge-level units and private under others. Edges
        are not read. Charges: nothing. The result is internal.
    """
    rows = {"features": dense_rows(as_float64(graph.x), pairs.nodes)}
    if graph.has_split:
        known = (graph.labeled_in("train", "val")).numpy()
        labels = np.zeros((graph.num_nodes, graph.num_classes))
        labels[known, graph.y.numpy()[known]] = 1
        rows["labels"] = labels[pairs.nodes]
    return AdversaryKnowledge(rows)


def aggregate_knowledge(
    public: AdversaryKnowledge, graph: Graph, edges: SecretEdges, pairs: Pairs
) -> AdversaryKnowledge:
    """Return the knowledge of a control attacker: the true class and number of neighbors of every node.

    It shows which part of an attacker's gain is about nodes, which a guarantee for one edge does not hide.
    """
    labels = np.eye(graph.num_classes)[graph.y.numpy()] * graph.labeled.numpy()[:, None]
    degrees = np.log1p(edges.degrees.astype(np.float64))[:, None]
    return AdversaryKnowledge({**public.rows, "labels": labels[pairs.nodes], "degrees": degrees[pairs.nodes]})


@checked
def full_knowledge(
    public: AdversaryKnowledge, answers: ServedModel, pairs: Pairs, influence: Floats | None
) -> AdversaryKnowledge:
    """Add a model's predictions, released aggregates and influences to public knowledge.

    Args:
        public: Public knowledge.
        answers: Served model.
        pairs: Sampled pairs.
        influence: Influences of the sampled nodes (n, n); None if they were not measured.

    Privacy:
        Reads: predictions and released aggregates. Charges: nothing. The result is internal.
    """
    posteriors = np.log(answers.proba[pairs.nodes] + 1e-6)
    released = {name: rows[pairs.nodes] for name, rows in answers.released.items()}
    return AdversaryKnowledge({**public.rows, "posteriors": posteriors, **released}, influence)


@checked
def supervised_scores(known: AdversaryKnowledge, pairs: Pairs, *, seed: int = 0) -> Floats:
    """Score each half of the pairs by a classifier that is trained on the other half.

    This is the strongest knowledge of a link attacker in the literature (He et al., Stealing links from
    graph neural networks, 2021: with part of the graph). Pairs are assigned to the halves at random. Scores
    are ranks within their half, so that both are comparable.

    Args:
        known: Attacker's knowledge about the nodes.
        pairs: Pairs to score, with their true state.
        seed: Seed of the halves and the classifiers.

    Returns:
        One score per pair.

    Privacy:
        Reads: the true state of the pairs. The result is internal.
    """
    rng = PublicStreams(seed).numpy("folds")
    fold = rng.integers(2, size=len(pairs.joined))
    scores = np.zeros(len(pairs.joined))
    for number in range(2):
        kinds = (pairs.joined, ~pairs.joined)
        edges, apart = (rng.permutation(np.flatnonzero((fold != number) & kind)) for kind in kinds)
        edges = edges[:_MAX_TRAIN_EDGES]
        train_pairs = np.concatenate([edges, apart[: max(_NON_EDGES_PER_EDGE * len(edges), 1)]])
        judged = np.flatnonzero(fold == number)
        model = fit_discriminator(
            known.columns(pairs.one[train_pairs], pairs.other[train_pairs]),
            pairs.joined[train_pairs],
            seed=seed + number,
            weight_decay=_DECAY,
        )
        for start in range(0, len(judged), _AT_ONCE):
            some = judged[start : start + _AT_ONCE]
            scores[some] = model.scores(known.columns(pairs.one[some], pairs.other[some]))
        scores[judged] = rankdata(scores[judged], method="max") / len(judged)  # ties have one rank
    return scores


@checked
def product_scores(model: LinkPredictor, graph: Graph, pairs: Pairs) -> Floats:
    """Score each pair by the released products, given all edges but the pair's own.

    The attacker subtracts the products of all other edges from the released sum W, and projects the rest on
    the change D that an edge between the two nodes makes. In standard deviations of the noise the result is
    normal with mean |D| / sigma for an edge, and 0 without one. This is the most powerful test of one pair
    on W, and every pair has the same distribution without an edge. A threshold for all pairs is therefore
    subject to the bound for one edge.

    Args:
        model: Fitted link predictor.
        graph: Training graph.
        pairs: Pairs to score.

    Returns:
        One score per pair. A pair that was held out of the sum has noise only.

    Raises:
        ConfigError: If the model was fitted to a graph of another size.

    Privacy:
        Reads: the exact edges. Charges: nothing. The result is internal.
    """
    if graph.num_nodes != model.num_nodes:
        raise ConfigError(
            f"The graph has {graph.num_nodes} nodes, but the model was trained on {model.num_nodes}. "
            "Pass the training graph."
        )
    assert model.plan_ is not None
    query = next(one for one in model.plan_.queries if isinstance(one, EdgeProductQuery))
    vectors, released = model.products_
    x = np.trunc(vectors * 2.0**query.grid_bits) / 2.0**query.grid_bits
    edges = graph.adjacency.edge_index().numpy().astype(np.int64)
    edges = edges[:, ~query.held_out.contains(*edges)]
    ones = np.full(edges.shape[1], 0.5 if query.symmetric else 1.0)  # both directions of an edge are stored
    summed = sparse.csr_array((ones, tuple(edges)), shape=(len(x), len(x)))
    rest = released - x.T @ (summed @ x)
    sources, targets, inside = _directed(pairs, edges, graph.num_nodes)
    scores = np.zeros(len(sources))
    for first in range(0, len(sources), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        ours, theirs = x[sources[some]], x[targets[some]]
        size = (ours**2).sum(axis=1) * (theirs**2).sum(axis=1)
        if query.symmetric:
            size = (size + (ours * theirs).sum(axis=1) ** 2) / 2
        change = np.sqrt(np.maximum(size, _MIN_NORM**2))
        scores[some] = ((ours @ rest) * theirs).sum(axis=1) / change + inside[some] * change
    return scores / query.sigma[0]


def _directed(pairs: Pairs, edges: Integers, nodes: int) -> tuple[Integers, Integers, Floats]:
    """Return both ends of each pair in the direction of its edge, and 1 for pairs whose edge was summed.

    If both directions are edges, the attacker knows one of them.
    """
    keys, (one, other) = edges[0] * nodes + edges[1], pairs.ends
    there, back = np.isin(one * nodes + other, keys), np.isin(other * nodes + one, keys)
    turned = back & ~there
    ends = np.where(turned, other, one), np.where(turned, one, other)
    return *ends, (there | back).astype(np.float64)
