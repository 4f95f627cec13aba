"""LPGNet: a stack of MLPs that read noisy counts of neighbors by predicted class.

Kolluri, Baluta, Hooi, Saxena: LPGNet: Link Private Graph Networks for Node Classification, CCS 2022. It is a
predecessor of ClassCode and is here as a rival. ClassCode counts an undirected edge at one end only, which
halves the noise, and turns counts into posteriors instead of training a network on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.features import Features
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import MAX_EPSILON, NeighborCountData, NeighborCountQuery
from graphveil.core.release import Release
from graphveil.core.unit import NoUnit, UndirectedEdge
from graphveil.data import Graph
from graphveil.errors import ArtifactError
from graphveil.estimators.base import Estimator
from graphveil.estimators.keywords import NetworkKeywords, TrainingConfig
from graphveil.estimators.method import FitResult, Method, State, TrainedModel, networks_state, part_of
from graphveil.estimators.objective import fit_nonprivate
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PARTITION, PublicSizes
from graphveil.estimators.requirements import Rejections, rejected
from graphveil.estimators.session import Session
from graphveil.nn.layers import FeedForward, batch_of, batches_of

MAX_STACKS = 8  # more stacks divide the budget into shares that leave only noise
_STACK = "stack"


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """The networks of a stack and their queries.

    Args:
        stacks: Number of queries, each followed by a network.
    """

    training_config: TrainingConfig
    layers: int
    stacks: int

    def networks(self, sizes: PublicSizes, generator: torch.Generator) -> tuple[FeedForward, ...]:
        hidden = [self.training_config.hidden] * (self.layers - 1)
        inputs = [sizes.width, *(2 * sizes.classes * (k + 1) for k in range(self.stacks))]
        return tuple(
            FeedForward([width, *hidden, sizes.classes], generator=generator, **self.training_config.layers)
            for width in inputs
        )

    def plan(self, privacy_config: PrivacyConfig, sizes: PublicSizes) -> ReleasePlan:
        """Return equal queries. An undirected edge is counted at both ends, so each has half of its share."""
        ends = 2 if isinstance(privacy_config.unit, UndirectedEdge) else 1
        epsilon = min(privacy_config.budget / (self.stacks * ends), MAX_EPSILON)
        query = NeighborCountQuery(PARTITION, None, epsilon, sizes.classes)
        return ReleasePlan(privacy_config.unit, (query,) * self.stacks, privacy_config.delta_for(sizes.nodes))


@torch.no_grad()
def _logits(network: FeedForward, x: Features) -> Tensor:
    """Return the logits of all nodes, in evaluation mode."""
    network.eval()
    logits: Tensor = network(batch_of(x))
    return logits.cpu()


def _next_inputs(before: Tensor | None, logits: Tensor, counts: Tensor) -> Tensor:
    return torch.cat([*([] if before is None else [before]), logits, counts], dim=1)


@dataclass(frozen=True, kw_only=True)
class LPGNetMethod(Method):
    """A stack of networks; each but the first reads the noisy counts of one query."""

    selects_by_metric: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True

    stack: StackConfig

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        return self.stack.plan(self.privacy_config, sizes)

    def fit(self, view: Graph, session: Session) -> FitResult:
        release = session.open(view)
        generator = session.streams.torch("lpgnet")
        networks = self.stack.networks(self.sizes_of(view), generator)
        counts, inputs = list[Tensor](), None
        for k, network in enumerate(networks):
            x: Features = view.x if inputs is None else inputs
            self._train(network, x, view, session, generator, k)
            logits = _logits(network, x)
            if k < self.stack.stacks:
                # Stored in the workspace: a resumed release needs bit-identical inputs.
                classes = session.load_or_compute(f"classes{k}", lambda: {"classes": logits.argmax(dim=1)})  # noqa: B023 called at once
                counts.append(release.answer(NeighborCountData(classes["classes"])))
                inputs = _next_inputs(inputs, logits, counts[-1])
        release.close()
        trained = TrainedLPGNet(self.stack, self.privacy_config, networks)
        released = {f"counts{k}": table for k, table in enumerate(counts)}
        return FitResult(trained=trained, proba=logits.softmax(dim=1), released=released)

    def _train(
        self,
        network: FeedForward,
        x: Features,
        view: Graph,
        session: Session,
        generator: torch.Generator,
        number: int,
    ) -> None:
        stage, batches = f"network {number}", batches_of(x)
        with session.stage(stage):
            fit_nonprivate(
                network,
                lambda index: network(batches(index)),
                view,
                self.stack.training_config.nonprivate_schedule(),
                session,
                stage=stage,
                generator=generator,
                checkpoint=f"network{number}",
                objective=self.objective,
                every=True,
            )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLPGNet":
        networks = self.stack.networks(sizes, torch.Generator())
        try:
            for k, network in enumerate(networks):
                network.load_state_dict(part_of(state, f"{_STACK}/{k}/"))
                network.eval()
        except RuntimeError as error:
            raise ArtifactError(
                f"The model's parameters do not fit {sizes.width} features, {sizes.classes} classes and "
                f"{self.stack.stacks} stacks. Copy the model folder from the original run again."
            ) from error
        return TrainedLPGNet(self.stack, self.privacy_config, networks)


@dataclass(frozen=True, eq=False)
class TrainedLPGNet(TrainedModel):
    """Trained networks of LPGNet. Predicting another graph is a new release."""

    stack: StackConfig
    privacy_config: PrivacyConfig
    networks: tuple[FeedForward, ...]

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan:
        return self.stack.plan(self.privacy_config, sizes)

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        release: Release = session.open(view)
        counts, inputs = list[Tensor](), None
        for network in self.networks[:-1]:
            logits = _logits(network, view.x if inputs is None else inputs)
            counts.append(release.answer(NeighborCountData(logits.argmax(dim=1))))
            inputs = _next_inputs(inputs, logits, counts[-1])
        release.close()
        assert inputs is not None  # for the type checker: there is at least one stack
        proba = _logits(self.networks[-1], inputs).softmax(dim=1)
        return CachedPrediction(session.plan, tuple(counts), proba)

    def state(self) -> State:
        return networks_state(_STACK, self.networks)


@dataclass(kw_only=True, eq=False, repr=False)
class LPGNet(NetworkKeywords, Estimator):
    """Train a stack of MLPs on noisy counts of neighbors by predicted class.

    Kolluri, Baluta, Hooi, Saxena: LPGNet: Link Private Graph Networks for Node Classification, CCS 2022. The
    first network reads features. Each of ``stacks`` queries counts the neighbors of every node by the class
    that the last network predicts. The next network reads the logits and noisy counts of all stacks so far:

        c_k = A^T onehot(argmax l_{k-1}) + discrete Laplace noise,   l_k = MLP_k(l_0, c_1, ..., l_{k-1}, c_k).

    It is a rival for comparisons. ``ClassCode`` counts an undirected edge at one end, with half the noise.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        stacks: Number of queries; they share the budget equally.
        layers: Layers of each network, including the output layer.

    Raises:
        ConfigError: If a parameter is outside its range.
        UnitError: If the unit is not edge-level.

    Privacy:
        Unit: ``undirected-edge`` or ``directed-edge``. Reads: private edges; features and labels are public.
        Charges: one release of ``stacks`` queries, recorded before the edges are read. An undirected edge
        moves one count by one at each of its two ends, so the noise of a query of epsilon e has scale 2 / e.
        A directed edge moves one count. The total is epsilon-DP. Public: the noisy counts and everything
        computed from them.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LPGNet(unit="undirected-edge", epsilon=2.0, seed=0, epochs=5).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon <= 2.0
    (True, True)
    """

    method: ClassVar[str] = "lpgnet"
    removed: ClassVar[Mapping[str, Any]] = {"selection": "last"}
    rejections: ClassVar[Rejections] = Estimator.rejections | rejected(
        "lpgnet counts neighbors, and the sensitivity of these counts is unbounded under unit {unit!r}. Use "
        "unit 'undirected-edge' or 'directed-edge', or method 'classcode' or 'gap'.",
        NoUnit.name,
    )

    stacks: int = 2
    layers: int = 2

    def _build_method(self) -> LPGNetMethod:
        privacy_config = self.privacy_config
        checks.depth(stacks=self.stacks, layers=self.layers)
        checks.within(1, MAX_STACKS, stacks=self.stacks)
        return self._method(
            LPGNetMethod,
            stack=StackConfig(
                training_config=TrainingConfig.from_keywords(self, privacy_config),
                layers=self.layers,
                stacks=self.stacks,
            ),
        )
