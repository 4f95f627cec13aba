"""Learning from randomised records: LPGNN as a frozen method, and what it trains."""

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.graph import Graph, rows
from graphveil.models.inference.cache import Answer
from graphveil.models.lpgnn.drop import SELECT, NoisyLabels, Select, fit_noisy
from graphveil.models.lpgnn.inductive import CollectedReports, TrainedOnRecords, joined
from graphveil.models.lpgnn.keywords import POSTERIOR_USE, LpgnnKeywords, PosteriorUse
from graphveil.models.lpgnn.method import LocalMethod
from graphveil.models.lpgnn.mixture import (
    AROUND,
    Around,
    Mixed,
    Surroundings,
    Way,
    likeliest,
    mixed_posterior,
    predicted,
    silenced,
)
from graphveil.models.lpgnn.posterior import log_posterior
from graphveil.models.lpgnn.randomised import known, told_in
from graphveil.models.lpgnn.scaling import scaled
from graphveil.models.lpgnn.through import KPropThrough, Through
from graphveil.models.method import Outcome, State
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.networks.backbones import BACKBONES, Backbone, Widths, backbone
from graphveil.networks.inputs import Estimates, Inputs, propagated
from graphveil.networks.layers import ACTIVATIONS
from graphveil.privacy import Guarantee
from graphveil.propagation import Propagation
from graphveil.train import EpochRecord, Schedule

_TOLD = ("train", "val")


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How the network learns; see :class:`~graphveil.models.lpgnn.keywords.LpgnnKeywords`."""

    backbone: str
    hidden: int
    activation: str
    dropout: float
    forward_correction: bool
    missing_labels: float
    posterior_steps: int
    around: Around
    posterior_use: PosteriorUse
    select: Select
    schedule: Schedule

    @classmethod
    def of(cls, given: LpgnnKeywords) -> "Learning":
        """Check the keywords.

        >>> Learning.of(LpgnnKeywords(hidden=8)).hidden
        8
        """
        _check.one_of(tuple(BACKBONES), backbone=given.backbone)
        _check.one_of(ACTIVATIONS, activation=given.activation)
        _check.one_of(SELECT, select=given.select)
        _check.one_of(tuple(AROUND), around=given.around)
        _check.one_of(POSTERIOR_USE, posterior_use=given.posterior_use)
        if not given.posterior_steps and (given.around, given.posterior_use) != ("diffusion", "product"):
            raise ConfigError(
                "around and posterior_use say how a posterior is heeded, and posterior_steps=0 heeds none; "
                "set it (16 for sparse graphs, 8 for denser ones), or drop them"
            )
        _check.integer_at_least(0, posterior_steps=given.posterior_steps)
        _check.width(hidden=given.hidden)
        _check.within(0, 0.99, dropout=given.dropout, missing_labels=given.missing_labels)
        return cls(
            backbone=given.backbone,
            hidden=given.hidden,
            activation=given.activation,
            dropout=given.dropout,
            forward_correction=given.forward_correction,
            missing_labels=given.missing_labels,
            posterior_steps=given.posterior_steps,
            around=given.around,
            posterior_use=given.posterior_use,
            select=given.select,
            schedule=Schedule(
                epochs=given.epochs, learning_rate=given.learning_rate, weight_decay=given.weight_decay
            ),
        )

    def build(self, sizes: PublicSizes, generator: torch.Generator) -> Backbone:
        """Return an untrained network, on no edges yet."""
        widths = Widths(features=sizes.width, hidden=self.hidden, classes=sizes.classes)
        return backbone(
            self.backbone, widths, activation=self.activation, dropout=self.dropout, generator=generator
        )


@dataclass(frozen=True, kw_only=True)
class LpgnnMethod(LocalMethod):
    """LPGNN, whatever its features are propagated through.

    Args:
        through: what features are propagated through.
        smoothing: what labels are; None for nothing.
        learning: the network, and how it learns.
    """

    through: Through
    smoothing: KPropThrough | None
    learning: Learning

    def __post_init__(self) -> None:
        """Refuse a share of missing labels where nobody randomises one, and missing ones are left out."""
        if self.learning.missing_labels and not self.hides_labels:
            raise ConfigError(
                f"missing_labels={self.learning.missing_labels:g} is for labels that are randomised, which "
                "without a finite eps_y none is; drop it"
            )

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be used, and a propagation that cannot be computed."""
        super().check(graph)
        self.through.check()

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Have records randomised, propagate what was told, and learn from it."""
        through = self.through.propagation(graph, session)  # before records pay: it may prove impossible
        with session.stage("randomise"):
            collected = self.collected(graph, session)
        records = collected.records
        with session.stage("aggregate"):
            inputs = propagated(records.features, through)
        noisy = self.noisy(graph, records.labels)
        with session.stage("classifier"):
            network, history = self._trained(graph, inputs, noisy, session)
        session.record("classifier", history)
        with torch.no_grad():
            alone: Tensor = network(inputs).softmax(dim=1)
        way: Way = "product"
        if self.learning.posterior_use == "evidence":
            with session.stage("evidence"):
                way = self._way(graph, inputs, noisy, session)
        agreement = {part: noisy.agreement(alone, told_in(graph, records.labels, part)) for part in _TOLD}
        return Outcome(
            trained=TrainedLpgnn(reports=records, method=self, network=network, way=way),
            proba=self.heeding(alone, graph, records.labels, way),
            released={"labels": records.labels} if self.terms.protects else {},
            learned={"clipped": collected.clipped, "agreement": agreement, "way": way},
        )

    def _trained(
        self, graph: Graph, inputs: Inputs, noisy: NoisyLabels, session: Session
    ) -> tuple[Backbone, list[EpochRecord]]:
        """Return a network that learned from told labels, and its epochs."""
        network = self.learning.build(self.sizes_of(graph), session.streams.torch(self.name))
        network.on(graph.adjacency)
        epochs = session.epochs("classifier", self.learning.schedule.epochs)
        history = fit_noisy(
            network, inputs, noisy, self.learning.schedule, select=self.learning.select, on_epoch=epochs
        )
        return network, history

    def _way(self, graph: Graph, inputs: Inputs, noisy: NoisyLabels, session: Session) -> Way:
        """Return what to predict by, by labels that no network and no guess heard: one network a part."""
        found = self._surroundings(graph, noisy)
        without = torch.full((graph.num_nodes, graph.num_classes), 1 / graph.num_classes)
        for away in found.parts:
            left = silenced(noisy, away)
            if len(left.train) and len(left.val):
                network, _ = self._trained(graph, inputs, left, session)
                with torch.no_grad():
                    without[away] = network(inputs).softmax(dim=1)[away]
        return likeliest(without, found, noisy)

    def noisy(self, graph: Graph, labels: Tensor) -> NoisyLabels:
        """Return what is known about a graph's randomised labels."""
        label = self.reporting.label(graph.num_classes)
        keep = label.keep_with(self.learning.missing_labels)
        corrected = self.learning.forward_correction and keep < 1
        return NoisyLabels(
            labels=labels,
            classes=graph.num_classes,
            train=told_in(graph, labels, "train"),
            val=told_in(graph, labels, "val"),
            keep=keep,
            blind=label.blind,
            transition=self._transition(graph) if corrected else None,
            smoothing=None if self.smoothing is None else self.smoothing.along(graph.adjacency),
        )

    def heeding(self, proba: Tensor, graph: Graph, labels: Tensor, way: Way) -> Tensor:
        """Return probabilities that heed what was told around each node, if they are to."""
        if not self.learning.posterior_steps or way == "network":
            return proba
        noisy = self.noisy(graph, labels)
        if self.learning.around == "diffusion":
            steps = self.learning.posterior_steps
            heard = log_posterior(noisy, self._transition(graph), graph.adjacency, steps)
        else:
            heard = self._surroundings(graph, noisy).log_proba
        return predicted(way, proba, heard)

    def _surroundings(self, graph: Graph, noisy: NoisyLabels) -> Mixed:
        """Return what is said around each node; the seed deals the parts that are held out."""
        return mixed_posterior(
            noisy,
            self._transition(graph),
            Surroundings(graph.adjacency, self.learning.posterior_steps),
            PublicStreams(self.terms.seed or 0).torch("held-out labels"),
            names=AROUND[self.learning.around],
            robust=self.learning.around == "robust",
        )

    def _transition(self, graph: Graph) -> Tensor:
        """Return the law of what is said for each class, where a share of those asked has no label."""
        label = self.reporting.label(graph.num_classes)
        return torch.from_numpy(label.transition_with(self.learning.missing_labels)).float()

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLpgnn":
        """Return the network with these weights; reports are not kept with them."""
        network = self.learning.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict(state)
        network.eval()
        return TrainedLpgnn(reports=None, method=self, network=network)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLpgnn(TrainedOnRecords):
    """A trained network, and the choices by which nodes of another graph randomise what it reads.

    Args:
        method: how records are randomised and propagated.
        network: its weights; which edges it is on is of no importance.
        way: what predicts where labels were told: the network, the posterior or both.
    """

    method: LpgnnMethod
    network: Backbone
    way: Way = "product"

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        """Predict another graph from exact features and nobody's labels, without a unit."""
        if self.method.terms.protects:
            raise ConfigError("nodes of another graph must report their records before they are predicted")
        estimates = Estimates(scaled(graph.x, self.method.reporting.scaling))
        return Answer(None, (), self.proba(graph, estimates, self.method.through.propagation(graph, session)))

    def price(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of one report on the features of each node."""
        return self.method.price_of_features(graph, fitted)

    def hear(
        self,
        graph: Graph,
        before: CollectedReports | None,
        session: Session,
        occasion: int,
    ) -> CollectedReports:
        """Have the nodes that were not asked before randomise their features, and predict the graph."""
        through = self.method.through.propagation(graph, session)  # before its nodes pay
        first = 0 if before is None else before.nodes
        own = scaled(rows(graph.x, torch.arange(first, graph.num_nodes)), self.method.reporting.scaling)
        randomiser = self.method.reporting.randomiser(graph.num_features, graph.num_classes)
        found = self.method.booked(
            graph, session, lambda: randomiser.features_alone(own, session.noise_seed, occasion)
        )
        records = joined(before, randomiser.received(found, own))
        proba = self.proba(graph, records.features, through)
        if bool(known(records.labels).any()):  # labels are heeded if anybody told one
            proba = self.method.heeding(proba, graph, records.labels, self.way)
        return CollectedReports(None, (), proba, records)

    @torch.no_grad()
    def proba(self, graph: Graph, estimates: Estimates, through: Propagation) -> Tensor:
        """Return probabilities (N, C) from what nodes told."""
        network = copy(self.network).on(graph.adjacency)  # the same weights, on other edges
        logits: Tensor = network(propagated(estimates, through))
        return logits.softmax(dim=1)

    def state(self) -> State:
        """Return the weights."""
        return dict(self.network.state_dict())
