"""What devices sent, in the place of records that are randomized here: a survey's choices and its reports."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil.data import Adjacency, Graph
from graphveil.data.splits import random_split
from graphveil.errors import ConfigError, GraphError
from graphveil.local.collect import CollectionProtocol, Collector
from graphveil.local.lpgnn.label_reports import label_mechanism_name
from graphveil.local.lpgnn.randomized_records import RandomizedRecords, sparse_estimates
from graphveil.mechanisms import FeatureRR, MultiBit, WeightedAllocation
from graphveil.nn.inputs import FeatureEstimates
from graphveil.privacy import LocalAttributes

Ids: TypeAlias = npt.NDArray[Any]
_TRAIN = 2 / 3  # of the nodes that have answered


def complete_from_protocol(protocol: CollectionProtocol, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration completed by what a survey says.

    Raises:
        ConfigError: a keyword contradicts the survey, or it is none to learn from.

    >>> from graphveil.mechanisms import LabelRR
    >>> asked = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=2.0,
    ...     classes=3))
    >>> complete_from_protocol(asked, {"eps_x": 3.0})
    Traceback (most recent call last):
    graphveil.errors.ConfigError: eps_x=3.0 contradicts the survey, whose answers have eps_x=1.0; drop it
    """
    return _merge_parameters(configuration, _protocol_parameters(protocol))


def complete_label_from_protocol(
    protocol: CollectionProtocol, configuration: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration completed by what a survey of a label alone says.

    Raises:
        ConfigError: a keyword contradicts the survey, or it asks for no label, or for features, too.

    >>> from graphveil.mechanisms import SubsetSelection
    >>> complete_label_from_protocol(CollectionProtocol(label=SubsetSelection(epsilon=1.0, classes=7)),
    ...     {})["labels"]
    'subset'
    """
    if protocol.features is not None:
        raise ConfigError(
            "the survey asks for features, too, and nothing would be learned from them; ask for the label "
            "alone, or learn with 'lpgnn' or 'simgat'"
        )
    return _merge_parameters(configuration, _protocol_label_parameters(protocol))


def _merge_parameters(configuration: Mapping[str, Any], reported: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in reported.items():
        if name in configuration and configuration[name] != value:
            raise ConfigError(
                f"{name}={configuration[name]!r} contradicts the survey, whose answers have "
                f"{name}={value!r}; drop it"
            )
    return {**configuration, **reported}


def _protocol_parameters(protocol: CollectionProtocol) -> dict[str, Any]:
    """Return the constructor keywords that a survey decides."""
    mechanism, common = protocol.features, _protocol_label_parameters(protocol)
    if mechanism is None:
        return {**common, "eps_x": math.inf}  # public ones
    if mechanism.bounds.from_data:
        raise ConfigError(
            "the survey's bounds were taken from data and depend on them; ask with public bounds"
        )
    return {
        **common,
        "eps_x": mechanism.epsilon,
        "low": mechanism.bounds.low,
        "high": mechanism.bounds.high,
        **(_multi_bit(mechanism) if isinstance(mechanism, MultiBit) else _feature_rr(mechanism)),
        "scaling": "none",
    }


def _protocol_label_parameters(protocol: CollectionProtocol) -> dict[str, Any]:
    """Return the constructor keywords that a survey decides, whatever it asks about features."""
    if protocol.label is None:
        raise ConfigError("the survey collects no labels, so there is nothing to learn; ask for them, too")
    return {
        "unit": LocalAttributes.name,
        "eps_y": protocol.label.epsilon,
        "labels": label_mechanism_name(protocol.label),
        "unsafe_noise_seed": None,  # the devices' noise has no seed
    }


def _multi_bit(mechanism: MultiBit) -> dict[str, Any]:
    if mechanism.m == "all":
        return {"features": "1bm", "m": "best", "theta": None, **_bins("auto", "stochastic", "unbiased")}
    return {
        "features": "multi-bit",
        "m": mechanism.m,
        "theta": None,
        **_bins("auto", "stochastic", "unbiased"),
    }


def _feature_rr(mechanism: FeatureRR) -> dict[str, Any]:
    theta = mechanism.allocation.theta if isinstance(mechanism.allocation, WeightedAllocation) else None
    return {
        "features": "feature-rr",
        "m": "best",
        "theta": theta,
        **_bins(mechanism.k, mechanism.mode, mechanism.decode),
    }


def _bins(k: int | str, rounding: str, decode: str) -> dict[str, Any]:
    return {"k": k, "rounding": rounding, "decode": decode}


def as_graph(
    collector: Collector,
    adjacency: Adjacency,
    *,
    seed: int | None,
    ids: Ids | None = None,
    public: FeatureEstimates | None = None,
) -> tuple[Graph, RandomizedRecords]:
    """Return what the server has as a graph with a split, and as randomized records.

    The graph's features are the estimates' deviations, or public ones where the survey asked for none, and
    its labels the randomized ones. Nodes that have not answered are in no part of the split.

    Raises:
        GraphError: the edges are of other nodes, or fewer than two nodes have answered.
    """
    protocol, answered = collector.protocol, collector.answered
    assert protocol.label is not None
    if adjacency.num_nodes != collector.nodes:
        raise GraphError(
            f"the edges are of {adjacency.num_nodes} nodes and the LDP reports of {collector.nodes}; number "
            "nodes alike in both"
        )
    if answered.sum() < 2:
        raise GraphError("fewer than two nodes have answered: one to learn from, one to choose by; wait")
    labels = protocol.label.missing_reports(collector.nodes)
    labels[answered] = collector.labels()
    estimates, reported = estimates_of(collector) if public is None else public, torch.from_numpy(labels)
    graph = Graph(
        x=estimates.deviations,
        y=reported.reshape(collector.nodes, -1)[:, 0],  # of several classes one, to show who has answered
        adjacency=adjacency,
        num_classes=protocol.label.classes,
        class_names=protocol.class_names,
        ids=ids,
        name="collected",
    )
    graph = random_split(graph, train=_TRAIN, val=1 - _TRAIN, seed=seed)
    return graph, RandomizedRecords(estimates, reported, release_id="", reproducible=False)


def estimates_of(collector: Collector) -> FeatureEstimates:
    """Return the estimated features of all nodes; of one that has not answered, the middle of the range."""
    mechanism, reports, answered = collector.protocol.features, collector.reports(), collector.answered
    assert mechanism is not None and reports is not None
    if reports.indices is None:
        rows = mechanism.bounds.real(np.full((collector.nodes, mechanism.dim), 0.5, dtype=np.float32))
        rows[answered] = mechanism.estimate(reports)
        return FeatureEstimates(torch.from_numpy(rows))
    sparse_reports = sparse_estimates(mechanism, reports)
    assert isinstance(sparse_reports.deviations, sparse.csr_array)
    starts = np.concatenate([[0], np.cumsum(answered * reports.indices.shape[1])])
    entries: Any = (sparse_reports.deviations.data, sparse_reports.deviations.indices, starts)
    return FeatureEstimates(
        sparse.csr_array(entries, shape=(collector.nodes, mechanism.dim)), sparse_reports.middle
    )
