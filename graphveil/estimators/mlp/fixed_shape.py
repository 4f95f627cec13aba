"""One multi-layer perceptron of a given shape: in the clear, or by private training on records."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.keywords import TrainingConfig
from graphveil.estimators.membership import check_members, record_groups
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.estimators.training.dpsgd import DPSGDTraining, count_parameters
from graphveil.estimators.training.node_level import fit_node_level, plan_node_level
from graphveil.estimators.training.nonprivate import fit_nonprivate
from graphveil.estimators.training.record_plan import RecordPlan, release_accuracies
from graphveil.nn.layers import FeedForward, batch_of, batches_of
from graphveil.privacy import NodeUnit
from graphveil.release import ReleasePlan
from graphveil.training.null_records import finite_rows


@dataclass(frozen=True, kw_only=True)
class NonPrivateMLP(Method):
    """An MLP whose features and labels are public, or protected by nobody.

    Args:
        training_config: how it learns.
        depth: number of layers, the output layer included.
    """

    reads_edges: ClassVar[bool] = False

    training_config: TrainingConfig
    depth: int

    @property
    def samples(self) -> bool:
        """Whether the network learns from a sample of very many nodes: a paper's learns from all."""
        return not self.privacy_config.paper

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Train in the clear, and keep the best epoch."""
        generator = session.streams.torch("mlp")
        network = self.build(self.sizes_of(graph), generator).to(session.device)
        inputs = batches_of(graph.x, session.device)
        with session.stage("classifier"):
            fit_nonprivate(
                network,
                lambda index: network(inputs(index)),
                graph,
                self.training_config.nonprivate_schedule(),
                session,
                stage="classifier",
                generator=generator,
                checkpoint="mlp",
                every=not self.samples,
            )
        trained = TrainedMLP(network)
        return FitResult(trained=trained, proba=trained.proba(graph))

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedMLP":
        """Return the network with these weights."""
        network = self.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict(state)
        network.eval()
        return TrainedMLP(network)

    def build(self, sizes: PublicSizes, generator: torch.Generator) -> FeedForward:
        """Return an untrained network."""
        return FeedForward(self.widths(sizes), generator=generator, **self.training_config.layers)

    def widths(self, sizes: PublicSizes) -> list[int]:
        """Return the widths of input, hidden layers and output."""
        return [sizes.width, *[self.training_config.hidden] * (self.depth - 1), sizes.classes]


@dataclass(frozen=True, kw_only=True)
class PrivateMLP(NonPrivateMLP):
    """An MLP that learns from protected records by noisy steps, one question of a release."""

    @property
    def samples(self) -> bool:
        """Return False: noisy steps read all records, each with a chance."""
        return False

    def check(self, graph: Graph) -> None:
        """Refuse a graph without members to learn from, or to select on."""
        super().check(graph)
        if self.training_config.selection.kind == "private":
            check_members(graph, "val")

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the training, and the counts that are paid for beside it."""
        training, unit = self.training(sizes), self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        record_plan = RecordPlan(
            unit=unit,
            trainings=(training,),
            shares=(1.0,),
            candidates=self.training_config.selection.num_counts(training),
            metrics=self.privacy_config.private_metrics,
        )
        return plan_node_level(self.privacy_config, record_plan, sizes.nodes)

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        """Return the steps, before the size of their noise is chosen."""
        parameters = count_parameters(*self.widths(sizes))
        return DPSGDTraining(
            schedule=self.training_config.private(), parameters=parameters, records=sizes.records
        )

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Train by noisy steps, and release the accuracies that were planned."""
        release, sizes = session.open(graph, record_groups(graph)), self.sizes_of(graph)
        network = self.build(sizes, session.streams.torch("mlp"))
        with session.stage("classifier"):
            fit_node_level(
                network,
                graph.x,
                lambda index: network(batch_of(graph.x, index)),
                graph,
                self.training(sizes),
                release,
                session,
                stage="classifier",
                selection=self.training_config.selection,
                final=True,
            )
        trained = TrainedMLP(network)
        proba, accuracy = trained.proba(graph), dict[str, float]()
        if self.privacy_config.private_metrics:
            accuracy = release_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return FitResult(trained=trained, proba=proba, private_accuracy=accuracy)


@dataclass(frozen=True, eq=False)
class TrainedMLP(TrainedModel):
    """A trained network: a prediction reads its node's own features, and nothing else that is protected."""

    network: FeedForward

    @torch.no_grad()
    def proba(self, graph: Graph) -> Tensor:
        """Return probabilities (N, C); they are equal for a node whose logits are beyond float32."""
        device = next(self.network.parameters()).device
        logits: Tensor = self.network(batch_of(graph.x, device=device))
        return finite_rows(logits).softmax(dim=1).cpu()

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict from features alone."""
        return CachedPrediction(None, (), self.proba(graph))

    def state(self) -> dict[str, Any]:
        """Return the weights."""
        return dict(self.network.state_dict())
