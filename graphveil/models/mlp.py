"""MLP: the baseline that never reads an edge."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.graph import Graph
from graphveil.models.base import Estimator
from graphveil.models.inference.cache import Answer
from graphveil.models.keywords import NetworkKeywords, Recipe
from graphveil.models.membership import check_members, record_groups
from graphveil.models.method import Method, Outcome, State, Trained
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.models.training.clear import fit_in_clear
from graphveil.models.training.on_records import fit_on_records, plan_on_records
from graphveil.models.training.private import Training, count_parameters
from graphveil.models.training.record_plan import RecordPlan, released_accuracies
from graphveil.networks.layers import FeedForward, batch_of, batches_of
from graphveil.privacy import NodeUnit
from graphveil.release import ReleasePlan


@dataclass(kw_only=True, eq=False)
class MLP(NetworkKeywords, Estimator):
    """A multi-layer perceptron on the nodes' own features.

    It reads no edge, so at edge level it costs nothing: every private method must beat it, or is not worth
    its epsilon.

    Guarantee under node units: its training steps are one question to the training nodes' records, booked
    before the first one. A record that is nulled moves each clipped sum by at most C, and the noise is the
    least whose exact accounting meets (epsilon, delta). The prediction for a node reads that node's features
    and the released weights, no other record. In paper mode (MLP-DP of Sajadmanesh et al.: GAP, 2023) the
    noise follows the paper's Renyi accounting, and the epoch of the best exact validation accuracy is kept.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        layers: number of layers, the output layer included; None for 3, under node units 2, since more
            weights are more noise, in paper mode there 3.

    Raises:
        ConfigError: a parameter is outside its range or not for the unit; on ``fit``, the batch is larger
            than the training set.

    >>> from graphveil.graph.synthetic import synthetic
    >>> from graphveil.graph.recipes import RECIPES
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = MLP(unit="undirected-edge", seed=0, epochs=20).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon
    (True, 0.0)
    >>> private = MLP(unit="node-owner", epsilon=4.0, seed=0, epochs=20).fit(graph)
    >>> private.guarantee.releases, private.guarantee.epsilon <= 4.0
    (1, True)
    """

    method: ClassVar[str] = "mlp"
    reads_edges: ClassVar[bool] = False
    node_units: ClassVar[tuple[str, ...]] = ("node-owner", "node-promise")
    paper_deviations: ClassVar[tuple[str, ...]] = (
        "noise calibrated by the paper's Renyi accounting",
        "the epoch of the best exact validation accuracy is kept, for which nobody pays",
    )

    layers: int | None = None

    def _check_config(self) -> None:
        super()._check_config()
        self._configured()

    def _configured(self) -> "ClearMLP":
        terms = self._terms()
        depth = (2 if terms.on_records and not terms.paper else 3) if self.layers is None else self.layers
        _check.depth(layers=depth)
        kind = PrivateMLP if terms.on_records else ClearMLP
        recipe = Recipe.of(self, terms, self.device)
        return kind(name=self.method, terms=terms, device=self.device, recipe=recipe, depth=depth)


@dataclass(frozen=True, kw_only=True)
class ClearMLP(Method):
    """An MLP whose features and labels are public, or protected by nobody.

    Args:
        recipe: how it learns.
        depth: number of layers, the output layer included.
    """

    reads_edges: ClassVar[bool] = False

    recipe: Recipe
    depth: int

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Train in the clear, and keep the best epoch."""
        generator = session.streams.torch("mlp")
        network = self.build(self.sizes_of(graph), generator).to(session.device)
        inputs = batches_of(graph.x, session.device)
        with session.stage("classifier"):
            fit_in_clear(
                network,
                lambda index: network(inputs(index)),
                graph,
                self.recipe.in_clear(),
                session,
                stage="classifier",
                generator=generator,
                checkpoint="mlp",
            )
        trained = TrainedMLP(network)
        return Outcome(trained=trained, proba=trained.proba(graph))

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedMLP":
        """Return the network with these weights."""
        network = self.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict(state)
        network.eval()
        return TrainedMLP(network)

    def build(self, sizes: PublicSizes, generator: torch.Generator) -> FeedForward:
        """Return an untrained network."""
        return FeedForward(self.widths(sizes), generator=generator, **self.recipe.layers)

    def widths(self, sizes: PublicSizes) -> list[int]:
        """Return the widths of input, hidden layers and output."""
        return [sizes.width, *[self.recipe.hidden] * (self.depth - 1), sizes.classes]


@dataclass(frozen=True, kw_only=True)
class PrivateMLP(ClearMLP):
    """An MLP that learns from protected records by noisy steps, one question of a release."""

    def check(self, graph: Graph) -> None:
        """Refuse a graph without members to learn from, or to select on."""
        super().check(graph)
        if self.recipe.selection.kind == "private":
            check_members(graph, "val")

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the training, and the counts that are paid for beside it."""
        training, unit = self.training(sizes), self.terms.unit
        assert isinstance(unit, NodeUnit)
        asked = RecordPlan(
            unit=unit,
            trainings=(training,),
            shares=(1.0,),
            candidates=self.recipe.selection.counted(training),
            metrics=self.terms.private_metrics,
        )
        return plan_on_records(self.terms, asked, sizes.nodes)

    def training(self, sizes: PublicSizes) -> Training:
        """Return the steps, before the size of their noise is chosen."""
        parameters = count_parameters(*self.widths(sizes))
        return Training(schedule=self.recipe.private(), parameters=parameters, records=sizes.records)

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Train by noisy steps, and release the accuracies that were planned."""
        release, sizes = session.open(graph, record_groups(graph)), self.sizes_of(graph)
        network = self.build(sizes, session.streams.torch("mlp"))
        with session.stage("classifier"):
            fit_on_records(
                network,
                graph.x,
                lambda index: network(batch_of(graph.x, index)),
                graph,
                self.training(sizes),
                release,
                session,
                stage="classifier",
                selection=self.recipe.selection,
                final=True,
            )
        trained = TrainedMLP(network)
        proba, accuracy = trained.proba(graph), dict[str, float]()
        if self.terms.private_metrics:
            accuracy = released_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return Outcome(trained=trained, proba=proba, private_accuracy=accuracy)


@dataclass(frozen=True, eq=False)
class TrainedMLP(Trained):
    """A trained network: a prediction reads its node's own features, and nothing else that is protected."""

    network: FeedForward

    @torch.no_grad()
    def proba(self, graph: Graph) -> Tensor:
        """Return probabilities (N, C)."""
        device = next(self.network.parameters()).device
        logits: Tensor = self.network(batch_of(graph.x, device=device))
        return logits.softmax(dim=1).cpu()

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        """Predict from features alone."""
        return Answer(None, (), self.proba(graph))

    def state(self) -> dict[str, Any]:
        """Return the weights."""
        return dict(self.network.state_dict())
