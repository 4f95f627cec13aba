"""Poisoning of a collection: the loss of accuracy from malicious clients, who choose their LDP reports."""

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
from graphveil.audit.secret_edges import SecretEdges
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.local.lpgnn import LPGNN
from graphveil.local.reports import UNKNOWN, RandomizedRecords, known
from graphveil.mechanisms import LabelMechanism, LocalHashing
from graphveil.nn.lpgnn import FeatureEstimates
from graphveil.privacy import Guarantee

PoisoningStrategy = Literal["random", "label", "same", "deny", "feature", "unbounded"]
_ABOUT_LABELS = ("label", "same", "deny")
_POSTERIOR_STEPS = 16  # of robust decoding, if the model does not use the posterior itself
_UNBOUNDED_FACTOR = 100.0  # times the largest valid LDP report, for a server without checks


@checked
@dataclass(frozen=True)
class PoisoningReport:
    """Test accuracies of one collection, with and without malicious clients. Internal.

    Args:
        strategy: Strategy of the malicious clients.
        share: Share of malicious clients among all nodes.
        unpoisoned: Accuracy without malicious clients.
        poisoned: Accuracy of a server that accepts every LDP report.
        checked: Accuracy of a server that rejects impossible LDP reports.
        robust: Accuracy of a server that also decodes robustly (``attack_collection``).
        unpoisoned_robust: Accuracy of robust decoding without malicious clients.

    Privacy:
        Computed from true test labels, without a guarantee. Internal.
    """

    strategy: str
    share: float
    unpoisoned: float
    poisoned: float
    checked: float
    robust: float
    unpoisoned_robust: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON output of ``graphveil attack poisoning``."""
        found = dict(vars(self))
        lost = {f"lost_{name}": self.unpoisoned - found[name] for name in ("poisoned", "checked")}
        lost["lost_robust"] = self.unpoisoned_robust - self.robust
        return {"internal": True, "attack": "poisoning", **found, **lost}


@dataclass(frozen=True, eq=False)
class PoisonedCollection:
    """One collection of unpoisoned LDP reports and its accuracy."""

    model: LPGNN
    graph: Graph
    reports_sent: RandomizedRecords
    guarantee: Guarantee
    unpoisoned: float

    @classmethod
    def from_model(cls, model: LPGNN, graph: Graph) -> "PoisonedCollection":
        if model.unit != "local-attributes":
            raise ConfigError(
                "The poisoning attack needs a model trained on LDP reports (unit 'local-attributes'), "
                f"not unit {model.unit!r}. Use a method such as lpgnn."
            )
        fitted = LPGNN(**model.get_params()).fit(graph)
        return cls(fitted, graph, reports_of(fitted), fitted.guarantee, fitted.score(graph))

    def accuracy(self, reports: RandomizedRecords, **changes: Any) -> float:
        fresh = LPGNN(**{**self.model.get_params(), **changes})
        received = dataclasses.replace(reports, guarantee=self.guarantee)
        return fresh.fit_from_reports(self.graph, received).score(self.graph)

    def robust(self, reports: RandomizedRecords) -> float:
        steps = self.model.posterior_steps or _POSTERIOR_STEPS
        return self.accuracy(reports, posterior_steps=steps, prior="robust", posterior_use="evidence")

    @cached_property
    def unpoisoned_robust(self) -> float:
        return self.robust(self.reports_sent)

    def with_malicious_clients(
        self, strategy: PoisoningStrategy, *, share: float, hubs: bool = False, seed: int = 0
    ) -> PoisoningReport:
        checks.within(0, 0.5, share=share)
        clients = malicious_clients(self.graph, share, hubs=hubs, seed=seed)
        law, rng = self.model.label_mechanism(self.graph.num_classes), PublicStreams(seed).numpy("lies")
        sent = poison_reports(self.reports_sent, self.graph, law, clients, strategy, rng)
        poisoned = self.accuracy(sent)
        rejected = strategy == "unbounded"
        kept = drop_reports(self.reports_sent, clients) if rejected else sent
        return PoisoningReport(
            strategy=strategy,
            share=share,
            unpoisoned=self.unpoisoned,
            poisoned=poisoned,
            checked=self.accuracy(kept) if rejected else poisoned,
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
    """Measure the accuracy loss of LPGNN from malicious clients, and the part that robust decoding recovers.

    All fits use one collection with the same noise, in which malicious clients replace their own LDP reports:

    * ``"random"``: any valid LDP report.
    * ``"label"``, ``"same"``, ``"deny"``: true features, and as label the next class, the rarest class, or
      any class but their own.
    * ``"feature"``: the largest value for every reported feature.
    * ``"unbounded"``: a hundred times the largest value. Only a server without checks accepts it;
      ``graphveil.local.collect`` rejects it.

    A hash of the client's id determines which features it reports, and with ``labels="hashing"`` the groups
    of classes. The client can compute them but not choose them.

    Robust decoding selects the network, the posterior of the labels reported around each node, or their
    product, by how well they predict held-out LDP reports (``prior="robust"``, ``posterior_use="evidence"``).
    A network that fits false labels predicts badly. Classes that are reported more often than neighbors
    support are not assumed to be more common. Robust decoding needs no knowledge of the clients. How often
    malicious clients report a class cannot be identified.

    Args:
        model: LPGNN of unit ``local-attributes``, fitted or not; its keywords are used.
        graph: Graph whose records are randomized again.
        strategy: LDP reports of malicious clients.
        share: Share of malicious clients among all nodes.
        hubs: Whether malicious clients are the nodes with most neighbors, instead of random ones.
        seed: Seed of the choice of clients and of random LDP reports.

    Returns:
        The accuracies with and without malicious clients.

    Raises:
        ConfigError: If the unit is not ``local-attributes``, or an argument is out of range.
        NotImplementedGuaranteeError: If clients report several classes.

    Privacy:
        Unit: ``local-attributes``. Reads: LDP reports, and the true test labels for the accuracies. Charges:
        one collection. The result is internal.
    """
    checks.within(0, 0.5, share=share)  # before the collection is charged
    return PoisonedCollection.from_model(model, graph).with_malicious_clients(
        strategy, share=share, hubs=hubs, seed=seed
    )


def reports_of(fitted: LPGNN) -> RandomizedRecords:
    reports: RandomizedRecords | None = fitted.fitted.trained.reports
    if reports is None or (reports.labels.ndim != 1 and fitted.labels != "hashing"):
        raise NotImplementedGuaranteeError(
            "The poisoning attack needs label reports of one class or one group of classes. Use "
            "labels='rr' or labels='hashing'."
        )
    return reports


def malicious_clients(graph: Graph, share: float, *, hubs: bool, seed: int) -> Tensor:
    count = round(share * graph.num_nodes)
    if hubs:
        order = np.argsort(-SecretEdges.from_adjacency(graph.adjacency).degrees, kind="stable")
    else:
        order = PublicStreams(seed).numpy("false-clients").permutation(graph.num_nodes)
    return torch.from_numpy(np.sort(order[:count]))


def poison_reports(
    reports_sent: RandomizedRecords,
    graph: Graph,
    law: LabelMechanism,
    clients: Tensor,
    strategy: PoisoningStrategy,
    rng: np.random.Generator,
) -> RandomizedRecords:
    """Return the LDP reports in which malicious clients have replaced their own.

    The label of a client is a class, or the classes of a group of its hash.
    """
    labels = reports_sent.labels.clone()
    reporting = clients[known(reports_sent.labels)[clients]]
    if strategy == "random" or strategy in _ABOUT_LABELS:
        own, each = graph.y[reporting].clamp_min(0).numpy(), np.arange(len(reporting))
        groups, count = np.tile(np.arange(law.classes), (len(reporting), 1)), law.classes  # one class each
        if isinstance(law, LocalHashing):
            groups, count = law.hashes_of_rows(reporting.numpy()), law.groups
        if strategy == "random":
            sent = rng.integers(count, size=len(reporting))
        elif strategy == "deny":
            sent = (groups[each, own] + rng.integers(1, count, size=len(reporting))) % count
        else:
            rarest = int(torch.bincount(graph.y[graph.y >= 0], minlength=law.classes).argmin())
            aim = np.full(len(reporting), rarest) if strategy == "same" else (own + 1) % law.classes
            sent = groups[each, aim]
        if isinstance(law, LocalHashing):
            sent = law.classes_of_groups(groups, sent)
        labels[reporting] = torch.from_numpy(sent)
    if strategy in _ABOUT_LABELS:
        return dataclasses.replace(reports_sent, labels=labels)
    signs = rng.choice([-1.0, 1.0], size=reports_sent.features.stored) if strategy == "random" else 1.0
    factor = _UNBOUNDED_FACTOR if strategy == "unbounded" else 1.0
    features = _replace_rows(reports_sent.features, clients, lambda values: factor * np.abs(values) * signs)
    return dataclasses.replace(reports_sent, labels=labels, features=features)


def drop_reports(reports_sent: RandomizedRecords, clients: Tensor) -> RandomizedRecords:
    labels = reports_sent.labels.clone()
    labels[clients] = UNKNOWN
    features = _replace_rows(reports_sent.features, clients, np.zeros_like)
    return dataclasses.replace(reports_sent, labels=labels, features=features)


def _replace_rows(
    features: FeatureEstimates, clients: Tensor, change: Callable[[Any], Any]
) -> FeatureEstimates:
    """Return estimates in which the deviations from the middle of some rows are changed."""
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
