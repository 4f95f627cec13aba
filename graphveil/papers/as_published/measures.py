"""Measures of a cell, by name: most fit a model, and return its scores or the result of an attack."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.features import to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.core.unit import NoUnit
from graphveil.data import RECIPES, Graph
from graphveil.errors import CalibrationError, ConfigError, PrivacyError
from graphveil.estimators.base import Estimator
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.mechanisms import FeatureMechanism, FeatureRR, MultiBit
from graphveil.papers.as_published.target import TEST, VAL, Work
from graphveil.perturb import sample_public_edges
from graphveil.privacy import Guarantee
from graphveil.runs.experiment import Experiment
from graphveil.runs.source import Source
from graphveil.training.metrics import RANKING_METRICS

MAX_DEGREE = 100  # one-hot degrees: larger ones share a column
LINK_NODES = 500
DIM, COLUMNS, RECORDS = 64, 200, 2000  # of records that are read back
RECORD_MECHANISMS: Mapping[str, type[FeatureMechanism]] = {"feature-rr": FeatureRR, "multi-bit": MultiBit}
Labels = npt.NDArray[np.int64 | np.bool_]  # class numbers (N) or label sets (N, L)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Result of a cell, as plain values.

    Args:
        cost: Unit, epsilon, delta and validity of its guarantee; None if it queries no protected data.
        deviations: Reasons for an invalid guarantee.
        rejected: Reason for missing values; empty if there are values.
    """

    values: Mapping[str, float]
    cost: Mapping[str, Any] | None = None
    deviations: tuple[str, ...] = ()
    rejected: str = ""

    @classmethod
    def from_guarantee(cls, values: Mapping[str, float], guarantee: Guarantee) -> "Measurement":
        is_charged = guarantee.releases and guarantee.unit != NoUnit.name
        plain = guarantee.as_dict()
        cost = {name: plain[name] for name in ("unit", "epsilon", "delta", "valid")} if is_charged else None
        return cls(values=values, cost=cost, deviations=tuple(guarantee.deviations))

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Measurement":
        return cls(**{**plain, "deviations": tuple(plain["deviations"])})


@dataclass(frozen=True, kw_only=True)
class MeasurementPaths:
    """Folders of a cell.

    Args:
        work: Folder of the cell, from which an interrupted release is resumed without another charge; None
            to keep nothing.
        cache: Folder of results on public data, for all cells.
    """

    root: Path | None
    work: Path | None = None
    cache: Path | None = None


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return the result of a cell; a rejected configuration is a result, with its reason.

    Configurations are rejected before anything is spent, because a guarantee is not possible or a graph would
    be too large. All other errors are raised.
    """
    try:
        return MEASURES[work.measure](work, paths)
    except (PrivacyError, ConfigError) as rejected:
        return Measurement(values={}, rejected=str(rejected))


# -- fits --------------------------------------------------------------------------------------------------


Values = dict[str, float]


def accuracies(model: Estimator, graph: Graph, seed: int) -> Values:
    return {part: model.score(graph, part) for part in (TEST, VAL)}


def all_scores(model: Estimator, graph: Graph, seed: int) -> Values:
    """Return accuracy (of label sets micro F1), macro F1 and ROC-AUC, and validation accuracy."""
    test, head = graph.labeled_in("test"), model.fitted.method.head
    truth, proba = head.labels(graph)[test].numpy(), model.predict_proba()[test]
    f1, auc = macro_f1(truth, head.predicted(proba).numpy()), mean_auc(truth, proba.double().numpy())
    return {TEST: model.score(graph), "macro_f1": f1, "roc_auc": auc, VAL: model.score(graph, VAL)}


def ranking(model: Estimator, graph: Graph, seed: int) -> Values:
    """Return ROC-AUC, average precision and accuracy of test nodes, and validation accuracy."""
    found = model.evaluate(graph)
    return {name: found[name] for name in RANKING_METRICS} | accuracies(model, graph, seed)


def membership(model: Estimator, graph: Graph, seed: int) -> Values:
    """Return the ROC-AUC of membership inference by a shadow model (GAP, section 7.4.2), and accuracy."""
    from graphveil.attacks import MembershipSettings, attack_membership
    from graphveil.attacks.membership import SHADOW_MLP

    report = attack_membership(model, graph, MembershipSettings(per_class=1000, seed=seed))
    return {"auc": report.attackers[SHADOW_MLP].auc, TEST: model.score(graph)}


def links(model: Estimator, graph: Graph, seed: int) -> Values:
    """Return LinkTeller's ROC-AUC over all pairs of 500 nodes, and that of public features alone."""
    from graphveil.attacks import LinkSettings, attack_links
    from graphveil.attacks.linkteller import BY_FEATURES, LINKTELLER

    report = attack_links(model, graph, LinkSettings(nodes=LINK_NODES, seed=seed))
    aucs = {name: report.attackers[name].roc.auc for name in (LINKTELLER, BY_FEATURES)}
    return {"auc": aucs[LINKTELLER], "by_features": aucs[BY_FEATURES], TEST: model.score(graph)}


def _of_model(values: Callable[[Estimator, Graph, int], Values]) -> "Measure":
    """Return the measure that fits the model of a cell and takes values of it."""

    def measured(work: Work, paths: MeasurementPaths) -> Measurement:
        one = experiment_of(work, paths.root)
        graph = one.split(_prepared_graph(one), 0)
        model = _fit(one, graph, paths)
        return Measurement.from_guarantee(values(model, graph, work.seed), model.guarantee)

    return measured


def measure_one_hop(work: Work, paths: MeasurementPaths) -> Measurement:
    """Fit one hop at the budget at which its noise equals that of K hops at the given budget.

    This separates the cost of the noise of K hops from the information of additional hops.
    """
    one = experiment_of(work, paths.root)
    sizes = one.model(0).config.sizes_of(one.split(_prepared_graph(one), 0))
    epsilon = budget_of_one(type(one.model(0)), dict(one.model(0).get_params()), sizes)
    alone = {**work.parameters, "hops": 1, "epsilon": epsilon}
    return MEASURES["fit"](replace(work, parameters=alone), paths)


def budget_of_one(method: type[Estimator], keywords: dict[str, Any], sizes: PublicSizes) -> float:
    """Return the budget at which one hop has the noise of the keywords' K hops.

    Noise falls as the budget grows, so the budget is found by bisection; K hops at epsilon are never quieter
    than one hop at epsilon.

    >>> from graphveil.estimators.gap import GAP
    >>> keywords = GAP(unit="undirected-edge", epsilon=4.0, delta=1e-7, hops=4).get_params()
    >>> sizes = PublicSizes(nodes=1000, classes=5)
    >>> round(budget_of_one(GAP, keywords, sizes), 3), budget_of_one(GAP, keywords | {"hops": 1}, sizes)
    (1.879, 4.0)
    """

    def noise(**changed: Any) -> float:
        plan = method(**{**keywords, **changed}).config.plan(sizes)
        assert plan is not None
        return plan.noise_std[-1]

    if keywords["hops"] == 1:
        return float(keywords["epsilon"])
    wanted, low, high = noise(), 1e-3, float(keywords["epsilon"])
    while high - low >= 1e-4 * high:
        middle = (low + high) / 2
        try:
            louder = noise(hops=1, epsilon=middle) > wanted
        except CalibrationError:  # the training alone costs more
            louder = True
        low, high = (middle, high) if louder else (low, middle)
    return high


def measure_plain_features(work: Work, paths: MeasurementPaths) -> Measurement:
    """Fit the model with uninformative features, which the options name (LPGNN).

    They are degrees one-hot (``"ohd"``), a column of ones (``"one"``), or uniform numbers (``"rnd"``). Edges
    are public there, and so are degrees.
    """
    one = experiment_of(work, paths.root)
    prepared, kind = _prepared_graph(one), work.options["features"]
    features: Tensor
    if kind == "ohd":
        degrees = prepared.adjacency.indptr.diff().clamp(max=MAX_DEGREE).long()
        features = torch.nn.functional.one_hot(degrees).float()
    elif kind == "one":
        features = torch.ones(prepared.num_nodes, 1)
    else:
        drawn = PublicStreams(work.seed).numpy("features").random((prepared.num_nodes, prepared.num_features))
        features = torch.from_numpy(drawn.astype(np.float32))
    graph = one.split(prepared.replace(x=features), 0)
    model = _fit(one, graph, paths)
    return Measurement.from_guarantee(accuracies(model, graph, work.seed), model.guarantee)


def measure_private_share(work: Work, paths: MeasurementPaths) -> Measurement:
    """Fit the model where a ``fraction`` of the edges is private (unit ``edge-subset``), for all nodes.

    Which they are is drawn by the seed. With ``public_alone`` among the options the private ones are left
    out, which does not spend privacy budget.
    """
    one = experiment_of(work, paths.root)
    whole = _prepared_graph(one)
    public = sample_public_edges(whole.adjacency, work.options["fraction"], seed=work.seed)
    if work.options.get("public_alone"):
        known = whole.replace(adjacency=public)
    else:
        known = whole.with_public(public, torch.ones(whole.num_nodes, dtype=torch.bool))
    graph = one.split(known, 0)
    model = _fit(one, graph, paths)
    return Measurement.from_guarantee(all_scores(model, graph, work.seed), model.guarantee)


# -- records and statistics --------------------------------------------------------------------------------


def measure_records(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return the shares of explained variance and of identified people for the adaptive attacker.

    Records are reconstructed from randomized embeddings by an inverse that is fitted to public records. Half
    of 2,000 records are public, and the others are attacked: their first 200 features, sent as 64 numbers of
    a public random map.
    """
    from graphveil.attacks import attack_records
    from graphveil.attacks.reconstruction import ADAPTIVE, MEAN
    from graphveil.papers.as_published.image_networks import in_unit_range, random_map

    x = to_dense(Source(dataset=work.dataset, root=paths.root).load().x).double().numpy()
    order = np.random.default_rng(work.seed).permutation(len(x))[:RECORDS]
    public, secret = np.array_split(x[order][:, :COLUMNS], 2)
    law = RECORD_MECHANISMS[work.parameters["features"]](epsilon=work.parameters["eps_x"], dim=DIM)
    embed = in_unit_range(random_map(x[:, :COLUMNS].shape[1], DIM), public)
    found = attack_records(public, secret, law, embed=embed, seed=work.seed)
    adaptive, baseline = found.qualities[ADAPTIVE], found.qualities[MEAN]
    values = {"r2": adaptive["r2"], "identified": adaptive["identified"], "r2_of_mean": baseline["r2"]}
    return Measurement(values={name: value for name, value in values.items() if value is not None})


STATISTICS: Mapping[str, Callable[[Graph], float]] = {
    "nodes": lambda graph: float(graph.num_nodes),
    "stored edges": lambda graph: float(len(graph.adjacency.indices)),
    "median degree": lambda graph: float(np.median(graph.adjacency.indptr.diff().numpy())),
    "features": lambda graph: float(graph.num_features),
    "classes": lambda graph: float(graph.num_classes),
}


def measure_statistic(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return a statistic of a published graph, whose edges may be counted, after its recipe."""
    recipe = RECIPES[work.recipe]
    graph = recipe.prepare(Source(dataset=work.dataset, root=paths.root).load(), paper=True)
    return Measurement(values={"value": STATISTICS[work.options["statistic"]](graph)})


Measure = Callable[[Work, MeasurementPaths], Measurement]
MEASURES: Mapping[str, Measure] = {
    "fit": _of_model(accuracies),
    "scores": _of_model(all_scores),
    "ranking": _of_model(ranking),
    "membership": _of_model(membership),
    "links": _of_model(links),
    "statistics": measure_statistic,
    "depth_one": measure_one_hop,
    "plain_features": measure_plain_features,
    "private_share": measure_private_share,
    "records": measure_records,
}


# -- models and their scores -------------------------------------------------------------------------------


def experiment_of(work: Work, root: Path | None) -> Experiment:
    source = Source(dataset=work.dataset, root=root)
    return Experiment(
        work.method, source, dict(work.parameters), work.recipe, runs=1, seed=work.seed, compare=False
    )


def _fit(one: Experiment, graph: Graph, paths: MeasurementPaths) -> Estimator:
    model: Estimator = one.model(0)
    return model.fit(graph, workspace=paths.work, cache=paths.cache)


_PREPARED: dict[tuple[object, ...], Graph] = {}
_MAX_PREPARED = 3


def _prepared_graph(one: Experiment) -> Graph:
    """Return the graph of an experiment before its split; cells that are prepared alike share it."""
    key = (one.source.dataset, one.source.root, *one.preparation)
    if key not in _PREPARED:
        if len(_PREPARED) == _MAX_PREPARED:  # cells of one graph follow each other, so the oldest is done
            del _PREPARED[next(iter(_PREPARED))]
        _PREPARED[key] = one.prepared(_raw(one.source.dataset, one.source.root))
    return _PREPARED[key]


@lru_cache(maxsize=1)
def _raw(dataset: str | None, root: Path | None) -> Graph:
    return Source(dataset=dataset, root=root).load()


def macro_f1(truth: Labels, predicted: Labels) -> float:
    """Return the mean over the labels that occur of 2 TP / (2 TP + FP + FN).

    >>> macro_f1(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    0.7333333333333334
    """
    found = []
    for number, is_so in _present(truth):
        right, wrong = np.sum(is_so & _of(predicted, number)), np.sum(is_so != _of(predicted, number))
        found.append(2 * right / (2 * right + wrong))
    return float(np.mean(found))


def mean_auc(truth: Labels, proba: npt.NDArray[np.float64]) -> float:
    """Return the mean over the labels that occur, and not alone, of the area under each one's ROC curve.

    >>> mean_auc(np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]))
    1.0
    """
    from graphveil.attacks import RocCurve

    several = [(number, is_so) for number, is_so in _present(truth) if not np.all(is_so)]
    return float(np.mean([RocCurve.from_scores(proba[:, number], is_so).auc for number, is_so in several]))


def _present(truth: Labels) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
    numbers = np.unique(truth) if truth.ndim == 1 else np.flatnonzero(truth.any(axis=0))
    return ((int(number), _of(truth, number)) for number in numbers)


def _of(labels: Labels, number: int) -> npt.NDArray[np.bool_]:
    return np.asarray(labels == number if labels.ndim == 1 else labels[:, number])
