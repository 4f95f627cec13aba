"""The floor under node units: what features alone can tell where records, labels included, are protected."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphveil.data import Graph, rows
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.features.noisy_softmax import STEPS, NoisySoftmax, fit_softmax, softmax_schedule
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.membership import OTHER, PARTITION, VAL, record_groups
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.estimators.training.dpsgd import tensors_of
from graphveil.estimators.training.record_plan import accuracy_count_query, release_accuracies
from graphveil.privacy import NodeUnit
from graphveil.release import DPSGDData, DPSGDQuery, Query, Release, ReleasePlan, calibrate_plan
from graphveil.training.devices import device_tag


@dataclass(frozen=True, kw_only=True)
class NodeLevelSoftmax(Method):
    """Softmax regression by full-batch noisy steps, its settings a public rule of sizes and budget.

    Validation records teach like training records, since nothing is selected on them, unless noisy counts
    of them are asked for: then each record pays once, for teaching or for being counted.

    Guarantee: a record that is nulled moves each of T clipped sums by at most 1, so that all steps cost one
    Gaussian of mu = sqrt(T) / z; a replaced record moves them by 2. Step size, scaling and steps are
    functions of epsilon, delta and public sizes. A prediction reads its node's own features alone.
    """

    reads_edges: ClassVar[bool] = False
    copies: ClassVar[float] = 16.0  # chosen twice in float32, and scaled in float64

    def learned(self, graph: Graph) -> int:
        """Return how many records every step reads: those of training and validation nodes."""
        return int((graph.mask("train") | graph.mask("val")).sum())

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, and the counts that are paid for beside them."""
        privacy_config, unit = self.privacy_config, self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        delta = privacy_config.delta_for(sizes.nodes)

        def queries(mu: float) -> tuple[Query, ...]:
            counted = (VAL, OTHER) if privacy_config.private_metrics else ()
            return (
                self._steps(unit, sizes, mu),
                *(accuracy_count_query(unit, group, mu) for group in counted),
            )

        return calibrate_plan(unit, privacy_config.budget, delta, queries, num_nodes=sizes.nodes)

    def _steps(self, unit: NodeUnit, sizes: PublicSizes, mu: float) -> DPSGDQuery:
        return DPSGDQuery(
            parameters=(sizes.width + 1) * sizes.classes,
            steps=STEPS,
            noise_multiplier=unit.change * math.sqrt(STEPS) / mu,
            partition=PARTITION,
            pays=(True, not self.privacy_config.private_metrics, False),
        )

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Take the steps, and release the accuracies that were planned."""
        release = session.open(graph, record_groups(graph))
        with session.stage("classifier"):
            trained = TrainedSoftmax(_train_or_load(graph, _steps_of(session), release, session))
        proba, accuracy = trained.proba(graph), dict[str, float]()
        if self.privacy_config.private_metrics:
            accuracy = release_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return FitResult(trained=trained, proba=proba, private_accuracy=accuracy)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedSoftmax":
        """Return the fit with these weights."""
        if state["encoder"].shape != (sizes.width + 1, sizes.classes):
            raise ArtifactError(
                f"the model's weights are not those of {sizes.width} features and {sizes.classes} classes; "
                "take them from the original run"
            )
        return TrainedSoftmax(NoisySoftmax.restore(state))


@dataclass(frozen=True, eq=False)
class TrainedSoftmax(TrainedModel):
    """Released weights: a prediction reads its node's own features, and nothing else that is protected."""

    model: NoisySoftmax

    def proba(self, graph: Graph) -> Tensor:
        """Return probabilities (N, C)."""
        return self.model.log_posteriors(graph.x).exp().to(torch.float32)

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict from features alone."""
        return CachedPrediction(None, (), self.proba(graph))

    def state(self) -> State:
        """Return the weights."""
        return self.model.state()


def _steps_of(session: Session) -> DPSGDQuery:
    """Return the steps that the session's plan begins with."""
    query = None if session.plan is None else session.plan.queries[0]
    if not isinstance(query, DPSGDQuery):
        raise ConfigError("an MLP on records learns under a plan of noisy steps, and this session has none")
    return query


def _train_or_load(graph: Graph, query: DPSGDQuery, release: Release, session: Session) -> NoisySoftmax:
    """Ask for the steps' noise and take them, or take the weights from the workspace."""
    labeled = torch.tensor(query.pays)[record_groups(graph)]
    nodes = labeled.nonzero()[:, 0]
    bound = (*tensors_of(rows(graph.x, nodes)), graph.y[nodes], *device_tag(session.private_device))
    noise = release.answer(DPSGDData(*bound))

    def train() -> State:
        return fit_softmax(
            graph.x,
            graph.y,
            labeled,
            graph.num_classes,
            descent=softmax_schedule(query.noise_multiplier, len(nodes), graph.num_features),
            noise_multiplier=query.noise_multiplier,
            noise=noise,
            device=session.private_device,
            on_step=lambda done: session.on_progress("classifier", done, query.steps),
        ).state()

    return NoisySoftmax.restore(session.load_or_compute("classifier", train))
