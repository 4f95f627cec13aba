"""What devices sent, in the place of records that are randomised here: a survey's choices and its reports."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil.collect import Collector, Survey
from graphveil.errors import ConfigError, GraphError
from graphveil.graph import Adjacency, Graph
from graphveil.graph.splits import random_split
from graphveil.mechanisms import FeatureRR, MultiBit, Weights
from graphveil.models.lpgnn.label_reports import name_of
from graphveil.models.lpgnn.randomised import Randomised, sparse_estimates
from graphveil.networks.inputs import Estimates
from graphveil.privacy import NodeFeatures

Ids: TypeAlias = npt.NDArray[Any]
_TRAIN = 2 / 3  # of the nodes that have answered


def agreed(survey: Survey, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration completed by what a survey says.

    Raises:
        ConfigError: a keyword contradicts the survey, or it is none to learn from.

    >>> from graphveil.mechanisms import LabelRR
    >>> asked = Survey(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=2.0, classes=3))
    >>> agreed(asked, {"eps_x": 3.0})
    Traceback (most recent call last):
    graphveil.errors.ConfigError: eps_x=3.0 contradicts the survey, whose answers have eps_x=1.0; drop it
    """
    return _completed(configuration, _said(survey))


def agreed_label(survey: Survey, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration completed by what a survey of a label alone says.

    Raises:
        ConfigError: a keyword contradicts the survey, or it asks for no label, or for features, too.

    >>> from graphveil.mechanisms import SubsetSelection
    >>> agreed_label(Survey(label=SubsetSelection(epsilon=1.0, classes=7)), {})["labels"]
    'subset'
    """
    if survey.features is not None:
        raise ConfigError(
            "the survey asks for features, too, and nothing would be learned from them; ask for the label "
            "alone, or learn with 'lpgnn' or 'simgat'"
        )
    return _completed(configuration, _said_of_label(survey))


def _completed(configuration: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in said.items():
        if name in configuration and configuration[name] != value:
            raise ConfigError(
                f"{name}={configuration[name]!r} contradicts the survey, whose answers have "
                f"{name}={value!r}; drop it"
            )
    return {**configuration, **said}


def _said(survey: Survey) -> dict[str, Any]:
    """Return the constructor keywords that a survey decides."""
    law, common = survey.features, _said_of_label(survey)
    if law is None:
        return {**common, "eps_x": math.inf}  # public ones
    if law.bounds.from_data:
        raise ConfigError(
            "the survey's bounds were taken from data and depend on them; ask with public bounds"
        )
    return {
        **common,
        "eps_x": law.epsilon,
        "low": law.bounds.low,
        "high": law.bounds.high,
        **(_multi_bit(law) if isinstance(law, MultiBit) else _feature_rr(law)),
        "scaling": "none",
    }


def _said_of_label(survey: Survey) -> dict[str, Any]:
    """Return the constructor keywords that a survey decides, whatever it asks about features."""
    if survey.label is None:
        raise ConfigError("the survey collects no labels, so there is nothing to learn; ask for them, too")
    return {
        "unit": NodeFeatures.name,
        "eps_y": survey.label.epsilon,
        "labels": name_of(survey.label),
        "unsafe_noise_seed": None,  # the devices' noise has no seed
    }


def _multi_bit(law: MultiBit) -> dict[str, Any]:
    if law.m == "all":
        return {"features": "1bm", "m": "best", "theta": None, **_bins("auto", "stochastic", "unbiased")}
    return {"features": "multi-bit", "m": law.m, "theta": None, **_bins("auto", "stochastic", "unbiased")}


def _feature_rr(law: FeatureRR) -> dict[str, Any]:
    theta = law.allocation.theta if isinstance(law.allocation, Weights) else None
    return {"features": "feature-rr", "m": "best", "theta": theta, **_bins(law.k, law.mode, law.decode)}


def _bins(k: int | str, rounding: str, decode: str) -> dict[str, Any]:
    return {"k": k, "rounding": rounding, "decode": decode}


def as_graph(
    collector: Collector,
    adjacency: Adjacency,
    *,
    seed: int | None,
    ids: Ids | None = None,
    public: Estimates | None = None,
) -> tuple[Graph, Randomised]:
    """Return what the server has as a graph with a split, and as randomised records.

    The graph's features are the estimates' deviations, or public ones where the survey asked for none, and
    its labels the randomised ones. Nodes that have not answered are in no part of the split.

    Raises:
        GraphError: the edges are of other nodes, or fewer than two nodes have answered.
    """
    survey, answered = collector.survey, collector.answered
    assert survey.label is not None
    if adjacency.num_nodes != collector.nodes:
        raise GraphError(
            f"the edges are of {adjacency.num_nodes} nodes and the LDP reports of {collector.nodes}; number "
            "nodes alike in both"
        )
    if answered.sum() < 2:
        raise GraphError("fewer than two nodes have answered: one to learn from, one to choose by; wait")
    labels = survey.label.silent(collector.nodes)
    labels[answered] = collector.labels()
    estimates, said = estimates_of(collector) if public is None else public, torch.from_numpy(labels)
    graph = Graph(
        x=estimates.deviations,
        y=said.reshape(collector.nodes, -1)[:, 0],  # of several classes one, to show who has answered
        adjacency=adjacency,
        num_classes=survey.label.classes,
        class_names=survey.class_names,
        ids=ids,
        name="collected",
    )
    graph = random_split(graph, train=_TRAIN, val=1 - _TRAIN, seed=seed)
    return graph, Randomised(estimates, said, release_id="", reproducible=False)


def estimates_of(collector: Collector) -> Estimates:
    """Return the estimated features of all nodes; of one that has not answered, the middle of the range."""
    law, reports, answered = collector.survey.features, collector.reports(), collector.answered
    assert law is not None and reports is not None
    if reports.indices is None:
        rows = law.bounds.real(np.full((collector.nodes, law.dim), 0.5, dtype=np.float32))
        rows[answered] = law.estimate(reports)
        return Estimates(torch.from_numpy(rows))
    told = sparse_estimates(law, reports)
    assert isinstance(told.deviations, sparse.csr_array)
    starts = np.concatenate([[0], np.cumsum(answered * reports.indices.shape[1])])
    entries: Any = (told.deviations.data, told.deviations.indices, starts)
    return Estimates(sparse.csr_array(entries, shape=(collector.nodes, law.dim)), told.middle)
