"""Poisoning of a collection: malicious clients choose their LDP reports; the loss of accuracy."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.lab.attacks.pairs import SecretEdges
from graphveil.local.local_method import ReceivedReports, TrainedOnReports
from graphveil.local.lpgnn import LPGNN
from graphveil.local.randomized_records import UNKNOWN, RandomizedRecords, known
from graphveil.mechanisms import LabelMechanism, LocalHashing
from graphveil.nn.inputs import FeatureEstimates
from graphveil.privacy import Guarantee

PoisoningStrategy = Literal["random", "label", "same", "deny", "feature", "unbounded"]
POISONING_STRATEGIES: tuple[PoisoningStrategy, ...] = (
    "random",
    "label",
    "same",
    "deny",
    "feature",
    "unbounded",
)
_ABOUT_LABELS = ("label", "same", "deny")
_POSTERIOR_STEPS = 16  # of robust decoding, if the model does not use the posterior itself
_UNBOUNDED_FACTOR = 100.0  # times the largest valid LDP report, for a server without checks


@checked
@dataclass(frozen=True)
class PoisoningReport:
    """Test accuracies of one collection, with and without malicious clients. Internal.

    Args:
        strategy: of the malicious clients.
        share: of malicious clients among all nodes.
        unpoisoned: without malicious clients.
        poisoned: with them, and a server that accepts every LDP report.
        checked: the server rejects LDP reports that no client can send.
        robust: the server also decodes robustly, see ``attack_collection``.
        unpoisoned_robust: without malicious clients, with robust decoding.
    """

    strategy: str
    share: float
    unpoisoned: float
    poisoned: float
    checked: float
    robust: float
    unpoisoned_robust: float

    def as_dict(self) -> dict[str, Any]:
        """Return what ``graphveil attack poisoning --json`` prints."""
        found = dict(vars(self))
        lost = {f"lost_{name}": self.unpoisoned - found[name] for name in ("poisoned", "checked")}
        lost["lost_robust"] = self.unpoisoned_robust - self.robust
        return {"internal": True, "attack": "poisoning", **found, **lost}


@dataclass(frozen=True, eq=False)
class PoisonedCollection:
    """One collection of unpoisoned LDP reports, whose accuracy is measured once.

    Args:
        model: The LPGNN of the collection.
        graph: Graph whose records were randomized.
        reports_sent: LDP reports of its nodes.
        guarantee: Their guarantee.
        unpoisoned: Test accuracy.
    """

    model: LPGNN
    graph: Graph
    reports_sent: RandomizedRecords
    guarantee: Guarantee
    unpoisoned: float

    @classmethod
    def from_model(cls, model: LPGNN, graph: Graph) -> "PoisonedCollection":
        """Have the nodes of a graph randomize their records, and learn from them.

        Raises:
            NotImplementedGuaranteeError: clients report several classes, or features of another kind than
                the collection's.
        """
        if model.unit != "local-attributes":
            raise ConfigError(
                "poisoning is of a collection of records, which unit 'local-attributes' has, and not "
                f"{model.unit!r}"
            )
        fitted = LPGNN(**model.get_params()).fit(graph)
        return cls(fitted, graph, _reports_of(fitted), fitted.guarantee, fitted.score(graph))

    def accuracy(self, reports: RandomizedRecords, **changes: Any) -> float:
        """Return the test accuracy of the model, with other keywords perhaps, from some reports."""
        fresh = LPGNN(**{**self.model.get_params(), **changes})
        received = ReceivedReports(records=reports, guarantee=self.guarantee)
        return fresh.fit_from_reports(self.graph, received).score(self.graph)

    def robust(self, reports: RandomizedRecords) -> float:
        """Return the test accuracy of robust decoding from some reports."""
        steps = self.model.posterior_steps or _POSTERIOR_STEPS
        return self.accuracy(reports, posterior_steps=steps, prior="robust", posterior_use="evidence")

    @cached_property
    def unpoisoned_robust(self) -> float:
        """The test accuracy of robust decoding without malicious clients."""
        return self.robust(self.reports_sent)

    def with_malicious_clients(
        self, strategy: PoisoningStrategy, *, share: float, hubs: bool = False, seed: int = 0
    ) -> PoisoningReport:
        """Return the loss of accuracy, see ``attack_collection``."""
        checks.one_of(POISONING_STRATEGIES, strategy=strategy)
        checks.within(0, 0.5, share=share)
        checks.switch(hubs=hubs)
        clients = _malicious_clients(self.graph, share, hubs=hubs, seed=seed)
        law = self.model.label_mechanism(self.graph.num_classes)
        sent = _poison_reports(
            self.reports_sent, self.graph, law, clients, strategy, PublicStreams(seed).numpy("lies")
        )
        poisoned = self.accuracy(sent)
        refused = strategy == "unbounded"
        kept = _drop_reports(self.reports_sent, clients) if refused else sent
        return PoisoningReport(
            strategy=strategy,
            share=share,
            unpoisoned=self.unpoisoned,
            poisoned=poisoned,
            checked=self.accuracy(kept) if refused else poisoned,
            robust=self.robust(kept),
            unpoisoned_robust=self.unpoisoned_robust,
        )


@checked
def attack_collection(
    model: LPGNN,
    graph: Graph,
    *,
    strategy: PoisoningStrategy = "random",
    share: float = 0.05,
    hubs: bool = False,
    seed: int = 0,
) -> PoisoningReport:
    """Measure the accuracy loss of LPGNN from malicious clients, and how much robust decoding recovers.

    All fits learn from one collection with the same noise, in which malicious clients replace their own LDP
    reports. With ``"random"`` they send any valid LDP report. With true features, they send as their label
    with ``"label"`` the next class, with ``"same"`` the rarest class, or with ``"deny"`` any class but their
    own. ``"feature"`` is the largest value for every feature that they report. ``"unbounded"`` is a hundred
    times that, which only a server without checks accepts (``graphveil.local.collect`` rejects it). Which
    features a client reports, and with ``labels="hashing"`` the groups of classes, follow from a hash of its
    id: the client can compute them but not choose them.

    Robust decoding selects the network, the posterior of the labels reported around each node, or their
    product by how well they predict held-out LDP reports (``prior="robust"``, ``posterior_use="evidence"``):
    a network that fits false labels predicts badly. Classes that are reported more often than neighbors
    support are not taken to be more common (decision 084). It needs no knowledge of the clients. Its cost
    without malicious clients is measured on the same collection. How often malicious clients report a class
    cannot be identified (decision 045).

    Args:
        model: An unfitted LPGNN of unit ``local-attributes``, or a fitted one, whose keywords are used.
        graph: Graph whose records are randomized again.
        strategy, share: What malicious clients send, and their share of all nodes.
        hubs: Whether they are the nodes with most neighbors, instead of random ones.
        seed: Seed of the choice of clients and of random LDP reports.

    Raises:
        NotImplementedGuaranteeError: Clients report several classes, or features of another kind than the
            collection's.
    """
    checks.one_of(POISONING_STRATEGIES, strategy=strategy)
    return PoisonedCollection.from_model(model, graph).with_malicious_clients(
        strategy, share=share, hubs=hubs, seed=seed
    )


def _reports_of(fitted: LPGNN) -> RandomizedRecords:
    """Return the reports that a model was fitted to."""
    trained = fitted.fitted.trained
    reports = trained.reports if isinstance(trained, TrainedOnReports) else None
    if reports is None or (reports.labels.ndim != 1 and fitted.labels != "hashing"):
        raise NotImplementedGuaranteeError(
            "poisoning is measured where each node reports one class or one group of classes; use "
            "labels='rr' or 'hashing'"
        )
    return reports


def _malicious_clients(graph: Graph, share: float, *, hubs: bool, seed: int) -> Tensor:
    """Return the malicious clients, ascending."""
    count = round(share * graph.num_nodes)
    if hubs:
        order = np.argsort(-SecretEdges.from_adjacency(graph.adjacency).degrees, kind="stable")
    else:
        order = PublicStreams(seed).numpy("false-clients").permutation(graph.num_nodes)
    return torch.from_numpy(np.sort(order[:count]))


def _poison_reports(
    reports_sent: RandomizedRecords,
    graph: Graph,
    law: LabelMechanism,
    clients: Tensor,
    strategy: PoisoningStrategy,
    rng: np.random.Generator,
) -> RandomizedRecords:
    """Return the LDP reports in which malicious clients have replaced their own."""
    labels = reports_sent.labels.clone()
    reporting = clients[known(reports_sent.labels)[clients]]
    if strategy == "random" or strategy in _ABOUT_LABELS:
        labels[reporting] = _poisoned_labels(graph, law, reporting, strategy, rng)
    if strategy in _ABOUT_LABELS:
        return dataclasses.replace(reports_sent, labels=labels)
    signs = rng.choice([-1.0, 1.0], size=reports_sent.features.stored) if strategy == "random" else 1.0
    factor = _UNBOUNDED_FACTOR if strategy == "unbounded" else 1.0
    features = _replace_rows(reports_sent.features, clients, lambda values: factor * np.abs(values) * signs)
    return dataclasses.replace(reports_sent, labels=labels, features=features)


def _poisoned_labels(
    graph: Graph, law: LabelMechanism, clients: Tensor, strategy: PoisoningStrategy, rng: np.random.Generator
) -> Tensor:
    """Return the labels that malicious clients report: a class, or the classes of a group of their hash."""
    own, classes, all_clients = graph.y[clients].clamp_min(0).numpy(), law.classes, np.arange(len(clients))
    hashes, count = np.tile(np.arange(classes), (len(clients), 1)), classes  # a class is a group of its own
    if isinstance(law, LocalHashing):
        hashes, count = law.hashes_of_rows(clients.numpy()), law.groups
    if strategy == "random":
        reported_labels = rng.integers(count, size=len(clients))
    elif strategy == "deny":
        reported_labels = (hashes[all_clients, own] + rng.integers(1, count, size=len(clients))) % count
    else:
        rarest = int(torch.bincount(graph.y[graph.y >= 0], minlength=classes).argmin())
        aim = np.full(len(clients), rarest) if strategy == "same" else (own + 1) % classes
        reported_labels = hashes[all_clients, aim]
    return torch.from_numpy(
        law.classes_of_groups(hashes, reported_labels) if isinstance(law, LocalHashing) else reported_labels
    )


def _drop_reports(reports_sent: RandomizedRecords, clients: Tensor) -> RandomizedRecords:
    """Return the LDP reports without those of some nodes, which are then missing."""
    labels = reports_sent.labels.clone()
    labels[clients] = UNKNOWN
    features = _replace_rows(reports_sent.features, clients, np.zeros_like)
    return dataclasses.replace(reports_sent, labels=labels, features=features)


def _replace_rows(
    features: FeatureEstimates, clients: Tensor, change: Callable[[Any], Any]
) -> FeatureEstimates:
    """Return estimates of which some rows' deviations from the middle are others."""
    chosen = np.zeros(features.deviations.shape[0], dtype=bool)
    chosen[clients.numpy()] = True
    if isinstance(features.deviations, Tensor):
        dense = features.deviations.numpy()
        middle = 0.5 if features.middle is None else 0.0  # dense estimates are no deviations
        moved = middle + change((dense - middle).ravel()).reshape(dense.shape)
        reports_sent = np.where(chosen[:, None], moved, dense)
        return FeatureEstimates(torch.from_numpy(reports_sent.astype(np.float32)), features.middle)
    sparse = features.deviations.copy()
    rows = np.repeat(chosen, np.diff(sparse.indptr))
    sparse.data = np.where(rows, change(sparse.data), sparse.data).astype(np.float32)
    return FeatureEstimates(sparse, features.middle)
