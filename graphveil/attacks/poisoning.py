"""Poisoning of a collection: false clients who choose what they send, and what they cost."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.attacks.secret_edges import SecretEdges
from graphveil.errors import ConfigError, NotYetError
from graphveil.graph import Graph
from graphveil.models.lpgnn import LPGNN
from graphveil.models.lpgnn.inductive import TrainedOnReports
from graphveil.models.lpgnn.method import Received
from graphveil.models.lpgnn.randomised import UNKNOWN, Randomised, known
from graphveil.networks.inputs import Estimates

Lie = Literal["random", "label", "feature", "unbounded"]
LIES: tuple[Lie, ...] = ("random", "label", "feature", "unbounded")
_FAR = 100.0  # times the largest honest message, of one that nobody checks


@dataclass(frozen=True)
class PoisoningReport:
    """Test accuracies of one collection, with and without false clients. Internal.

    Args:
        lie: what they send.
        share: of all nodes, how many they are.
        honest: nobody lies.
        poisoned: they lie, and the server takes it.
        checked: the server's checks refuse messages that no device can send.
        robust: besides, the server's model of what is said has them in it.
    """

    lie: str
    share: float
    honest: float
    poisoned: float
    checked: float
    robust: float

    def as_dict(self) -> dict[str, Any]:
        """Return what ``graphveil attack poisoning --json`` prints."""
        found = dict(vars(self))
        lost = {f"lost_{name}": self.honest - found[name] for name in ("poisoned", "checked", "robust")}
        return {"internal": True, "attack": "poisoning", **found, **lost}


def attack_collection(
    model: LPGNN, graph: Graph, *, lie: Lie = "random", share: float = 0.05, hubs: bool = False, seed: int = 0
) -> PoisoningReport:
    """Return what false clients cost LPGNN, and what checks and robust decoding win back.

    All fits learn from one collection: the same noise, of which false clients replace their own part. What
    they may send: ``"random"``, any message there is; ``"label"``, the class after their own, and honest
    features; ``"feature"``, the largest value about every feature that they are asked for; ``"unbounded"``,
    a hundred times that, which a server takes only if it checks nothing (the collector of
    ``graphveil.collect`` refuses it). Which features a client tells about follows from a hash of its id, so
    it cannot choose them.

    Robust decoding (``missing_labels``): the transition from classes to what is said has the share of false
    clients in it, as people who say a class at random. The server has to assume a share; here it knows it.

    Args:
        model: an unfitted LPGNN of unit ``node-features``, or a fitted one, whose keywords are taken.
        graph: its records, which are randomised anew.
        lie, share: what false clients send, and how many of all nodes they are.
        hubs: whether they are the nodes of most neighbours, instead of any.
        seed: of who lies, and of random lies.

    Raises:
        NotYetError: the model tells several classes, or features of another kind than the collection's.
    """
    _check.one_of(LIES, lie=lie)
    _check.within(0, 0.5, share=share)
    _check.switch(hubs=hubs)
    if model.unit != "node-features":
        raise ConfigError(
            f"poisoning is of a collection of records, which unit 'node-features' has, and not {model.unit!r}"
        )
    honest = LPGNN(**model.get_params()).fit(graph)
    told = _reports_of(honest)
    who = _false_clients(graph, share, hubs=hubs, seed=seed)
    poisoned = _lying(told, graph, who, lie, PublicStreams(seed).numpy("lies"))
    checked = _refused(told, who) if lie == "unbounded" else poisoned

    def accuracy(reports: Randomised, **changes: Any) -> float:
        fresh = LPGNN(**{**model.get_params(), **changes})
        return fresh.fit_received(graph, Received(records=reports, guarantee=honest.guarantee)).score(graph)

    return PoisoningReport(
        lie=lie,
        share=share,
        honest=honest.score(graph),
        poisoned=accuracy(poisoned),
        checked=accuracy(checked),
        robust=accuracy(checked, missing_labels=min(0.9, share + model.missing_labels)),
    )


def _reports_of(fitted: LPGNN) -> Randomised:
    """Return the reports that a model was fitted to."""
    trained = fitted.fitted.trained
    reports = trained.reports if isinstance(trained, TrainedOnReports) else None
    if reports is None or reports.labels.ndim != 1:
        raise NotYetError("poisoning is measured where each node says one class; use labels='rr'")
    return reports


def _false_clients(graph: Graph, share: float, *, hubs: bool, seed: int) -> Tensor:
    """Return who lies, ascending."""
    count = round(share * graph.num_nodes)
    if hubs:
        order = np.argsort(-SecretEdges.of(graph.adjacency).degrees, kind="stable")
    else:
        order = PublicStreams(seed).numpy("false-clients").permutation(graph.num_nodes)
    return torch.from_numpy(np.sort(order[:count]))


def _lying(told: Randomised, graph: Graph, who: Tensor, lie: Lie, rng: np.random.Generator) -> Randomised:
    """Return the reports with what false clients send in the place of their own."""
    labels = told.labels.clone()
    saying = who[known(told.labels)[who]]
    if lie == "random":
        labels[saying] = torch.from_numpy(rng.integers(graph.num_classes, size=len(saying)))
    if lie == "label":
        labels[saying] = (graph.y[saying].clamp_min(0) + 1) % graph.num_classes
        return dataclasses.replace(told, labels=labels)
    signs = rng.choice([-1.0, 1.0], size=told.features.stored) if lie == "random" else 1.0
    factor = _FAR if lie == "unbounded" else 1.0
    features = _changed(told.features, who, lambda values: factor * np.abs(values) * signs)
    return dataclasses.replace(told, labels=labels, features=features)


def _refused(told: Randomised, who: Tensor) -> Randomised:
    """Return the reports without those of some nodes, of whom nothing is known then."""
    labels = told.labels.clone()
    labels[who] = UNKNOWN
    features = _changed(told.features, who, np.zeros_like)
    return dataclasses.replace(told, labels=labels, features=features)


def _changed(features: Estimates, who: Tensor, change: Callable[[Any], Any]) -> Estimates:
    """Return estimates of which some rows' deviations from the middle are others."""
    chosen = np.zeros(features.deviations.shape[0], dtype=bool)
    chosen[who.numpy()] = True
    if isinstance(features.deviations, Tensor):
        dense = features.deviations.numpy()
        middle = 0.5 if features.middle is None else 0.0  # dense estimates are no deviations
        moved = middle + change((dense - middle).ravel()).reshape(dense.shape)
        told = np.where(chosen[:, None], moved, dense)
        return Estimates(torch.from_numpy(told.astype(np.float32)), features.middle)
    sparse = features.deviations.copy()
    rows = np.repeat(chosen, np.diff(sparse.indptr))
    sparse.data = np.where(rows, change(sparse.data), sparse.data).astype(np.float32)
    return Estimates(sparse, features.middle)
