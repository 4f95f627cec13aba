"""MLP: the no-graph baseline, which reads features only.

Four methods: ``NonPrivateMLP`` and ``PrivateMLP`` train one network of a given architecture. ``TunedMLP``
chooses it on held-out public labels. ``NodeLevelSoftmax`` is its counterpart for protected records.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.clipping.isolation import finite_rows
from graphveil.core.features import Features, rows
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.unit import NodeUnit
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.features.crossfit import FoldEnsemble, public_posteriors
from graphveil.estimators.keywords import NetworkKeywords, TrainingConfig
from graphveil.estimators.method import FeatureModel, FitResult, Method, State, check_fits
from graphveil.estimators.objective import fit_nonprivate
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.private_training import (
    STEPS,
    DPSGDTraining,
    NoisySoftmax,
    RecordPlan,
    count_parameters,
    fit_node_level,
    fit_softmax,
    full_batch_steps,
    metric_queries,
    softmax_schedule,
)
from graphveil.estimators.public_sizes import (
    PublicSizes,
    charged_members,
    members,
    nodes_of,
    record_groups,
)
from graphveil.estimators.requirements import EXACT_RECORDS, Rejections
from graphveil.estimators.session import Session
from graphveil.nn.layers import FeedForward, batch_of, batches_of
from graphveil.training.heads import MULTICLASS, TaskHead


@dataclass(frozen=True, kw_only=True)
class MLPArchitecture:
    """A network of a given depth, and its training configuration."""

    training_config: TrainingConfig
    depth: int

    def widths(self, sizes: PublicSizes) -> list[int]:
        return [sizes.width, *[self.training_config.hidden] * (self.depth - 1), sizes.classes]

    def build(self, sizes: PublicSizes, generator: torch.Generator) -> FeedForward:
        return FeedForward(self.widths(sizes), generator=generator, **self.training_config.layers)

    def restore(self, state: State, sizes: PublicSizes, head: TaskHead) -> "TrainedMLP":
        head = head.restored(state)
        network = self.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict({name: part for name, part in state.items() if name not in head.state()})
        network.eval()
        return TrainedMLP(network, head)


@dataclass(frozen=True, kw_only=True)
class NonPrivateMLP(Method):
    """An MLP on public or unprotected features and labels; of several, the best one on validation nodes."""

    reads_edges: ClassVar[bool] = False
    trains_on_sample: ClassVar[bool] = True
    selects_by_metric: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True

    shapes: tuple[MLPArchitecture, ...]

    def fit(self, view: Graph, session: Session) -> FitResult:
        head, inputs, networks = self.head.fitted(view), batches_of(view.x), list[FeedForward]()
        with session.stage("classifier"):
            for number, shape in enumerate(self.shapes):
                name = f"mlp-{number}" if len(self.shapes) > 1 else "mlp"
                generator = session.streams.torch(name)
                network = shape.build(self.sizes_of(view), generator)
                fit_nonprivate(
                    network,
                    lambda index, network=network: network(inputs(index)),  # type: ignore[misc]
                    view,
                    shape.training_config.nonprivate_schedule(),
                    session,
                    stage="classifier",
                    generator=generator,
                    objective=self.objective,
                    checkpoint=name,
                    every=not self.samples,
                    head=head,
                )
                networks.append(network)
        trained = TrainedMLP(networks[0], head)
        if len(networks) > 1:
            val, labels = nodes_of(view.labeled_in("val")), head.labels(view)
            with torch.no_grad():
                scores = [head.accuracy(each(inputs(val)).cpu(), labels[val]) for each in networks]
            best = scores.index(max(scores))
            trained = TrainedMLP(networks[best], head, best)
        return FitResult(trained=trained, proba=trained.proba(view))

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedMLP":
        if len(self.shapes) == 1:
            return self.shapes[0].restore(state, sizes, self.head)
        number = int(state[_CANDIDATE])
        if not 0 <= number < len(self.shapes):
            raise ArtifactError(
                "The parameters do not belong to a supported network. Copy the model folder from the "
                "original run again."
            )
        kept = {name: part for name, part in state.items() if name != _CANDIDATE}
        return replace(self.shapes[number].restore(kept, sizes, self.head), candidate=number)


@dataclass(frozen=True, kw_only=True)
class PrivateMLP(Method):
    """An MLP that is trained on protected records by noisy steps, one query of a release."""

    reads_edges: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = True
    trainer: ClassVar[Callable[..., object]] = staticmethod(fit_node_level)

    shape: MLPArchitecture

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the training, and the counts that are charged with it."""
        return self.privacy_config.calibrated(sizes, self.record_plan(sizes).queries)

    def record_plan(self, sizes: PublicSizes) -> RecordPlan:
        unit = self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        return RecordPlan(
            unit=unit,
            trainings=(self.training(sizes),),
            shares=(1.0,),
            classes=sizes.classes,
            metrics=self.privacy_config.private_metrics,
        )

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        return DPSGDTraining(
            schedule=self.shape.training_config.private(),
            parameters=count_parameters(*self.shape.widths(sizes)),
            records=sizes.records,
        )

    def fit(self, view: Graph, session: Session) -> FitResult:
        release, sizes = session.open(view, record_groups(view)), self.sizes_of(view)
        network = self.shape.build(sizes, session.streams.torch("mlp"))
        with session.stage("classifier"):
            self.trainer(
                network,
                view.x,
                view,
                self.objective,
                self.training(sizes),
                release,
                session,
                stage="classifier",
                head=self.head,
            )
        trained = TrainedMLP(network, self.head)
        return self.closed(release, trained, trained.proba(view), view, session)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedMLP":
        return self.shape.restore(state, sizes, self.head)


@dataclass(frozen=True, eq=False)
class TrainedMLP(FeatureModel):
    """A trained network. ``candidate`` is its number if it was chosen from several."""

    network: FeedForward
    head: TaskHead = MULTICLASS
    candidate: int | None = None

    @torch.no_grad()
    def proba(self, view: Graph) -> Any:
        """Return the head's outputs, such as probabilities (N, C); of zeros if logits overflow float32."""

        def of(x: Features) -> Tensor:
            return self.head.proba(finite_rows(self.network(batch_of(x)))).cpu()

        return map_records(of, view.x)

    def state(self) -> dict[str, Any]:
        chosen = {} if self.candidate is None else {_CANDIDATE: torch.tensor(self.candidate)}
        return dict(self.network.state_dict()) | self.head.state() | chosen


_FEATURES, _UNIT_ROWS, _CANDIDATE = "features", "unit_rows", "candidate"


@dataclass(frozen=True, kw_only=True)
class TunedMLP(Method):
    """The cross-fitted networks and votes of similar nodes that ClassCode starts from, as a method.

    With the same seed both have the same posteriors, so any difference in accuracy comes from the edges.
    """

    reads_edges: ClassVar[bool] = False
    trains_on_sample: ClassVar[bool] = True
    selects_by_metric: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    tables: ClassVar[float] = 6.0

    def fit(self, view: Graph, session: Session) -> FitResult:
        with session.stage("classifier"):
            public = public_posteriors(view, session, self.objective)
        return FitResult(
            trained=TrainedFoldEnsemble(public.ensemble), proba=public.log.exp().to(torch.float32)
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedFoldEnsemble":
        ensemble = FoldEnsemble.restore(state, _FEATURES, bool(state[_UNIT_ROWS]))
        check_fits(ensemble.fits(sizes.width, sizes.classes), sizes)
        return TrainedFoldEnsemble(ensemble)


@dataclass(frozen=True, eq=False)
class TrainedFoldEnsemble(FeatureModel):
    """One network per fold. Together they predict nodes of other graphs from features."""

    ensemble: FoldEnsemble

    def proba(self, view: Graph) -> Tensor:
        """Return probabilities (N, C): the geometric mean of the networks, without votes of similar nodes."""
        return self.ensemble.log_posteriors(view.x).exp().to(torch.float32)

    def state(self) -> State:
        return {**self.ensemble.state(_FEATURES), _UNIT_ROWS: torch.tensor(self.ensemble.unit_rows)}


def regression_candidates(privacy_config: PrivacyConfig) -> tuple[MLPArchitecture, ...]:
    small, wide = NetworkKeywords(), NetworkKeywords(hidden=64, dropout=0.5, weight_decay=1e-3)
    depths = ((small, 1), (small, 3), (wide, 3))
    return tuple(
        MLPArchitecture(training_config=TrainingConfig.from_keywords(keywords, privacy_config), depth=depth)
        for keywords, depth in depths
    )


@dataclass(frozen=True, kw_only=True)
class NodeLevelSoftmax(Method):
    """Softmax regression by full-batch noisy steps, with settings from public sizes and the budget.

    Validation records are used for training, since nothing is selected on them. With ``private_metrics`` they
    are counted instead, so each record is charged for one of both.

    Guarantee: nulling a record changes each of T clipped sums by at most 1, so all steps are one Gaussian of
    mu = sqrt(T) / z. Replacing a record changes them by 2. Step size, scaling and number of steps are
    functions of epsilon, delta and public sizes. A prediction reads the node's own features only.
    """

    reads_edges: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = True
    copies: ClassVar[float] = 16.0  # chosen twice in float32, and scaled in float64

    def learned(self, view: Graph) -> int:
        return len(np.union1d(*(members(view, split).numpy() for split in ("train", "val"))))

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, and the counts that are charged with them."""
        return self.privacy_config.calibrated(sizes, partial(self.queries, sizes))

    def queries(self, sizes: PublicSizes, mu: float) -> tuple[Query, ...]:
        """Return the queries that cost every record a total of at most mu."""
        unit, metrics = self.privacy_config.unit, self.privacy_config.private_metrics
        assert isinstance(unit, NodeUnit)
        steps = full_batch_steps(
            (sizes.width + 1) * sizes.classes, STEPS, unit.change * math.sqrt(STEPS) / mu, metrics=metrics
        )
        return steps, *(metric_queries(unit, sizes.classes, mu) if metrics else ())

    def fit(self, view: Graph, session: Session) -> FitResult:
        query = session.query(0, DPSGDQuery)
        release = session.open(view, record_groups(view))
        with session.stage("classifier"):
            nodes = nodes_of(charged_members(view, query.pays))
            model = fit_softmax(
                release,
                query,
                rows(view.x, nodes),
                rows(self.objective.clipped_targets(view), nodes),
                view.num_classes,
                softmax_schedule(query.noise_multiplier, len(nodes), view.num_features),
                on_step=session.epochs("classifier", query.steps),
            )
        trained = TrainedSoftmax(model)
        return self.closed(release, trained, trained.proba(view), view, session)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedSoftmax":
        check_fits(state["encoder"].shape == (sizes.width + 1, sizes.classes), sizes)
        return TrainedSoftmax(NoisySoftmax.restore(state))


@dataclass(frozen=True, eq=False)
class TrainedSoftmax(FeatureModel):
    """Released parameters of a softmax regression."""

    model: NoisySoftmax

    def proba(self, view: Graph) -> Any:
        return map_records(lambda x: self.model.log_posteriors(x).exp().to(torch.float32), view.x)

    def state(self) -> State:
        return self.model.state()


@dataclass(kw_only=True, eq=False, repr=False)
class MLP(NetworkKeywords, Estimator):
    """Train the no-graph baseline: a network that reads features only.

    A private graph method is useful only if it is more accurate than this baseline.

    **Tuned** (edge-level units and ``none``; the default). Five networks are each trained
    without one fifth of the labeled nodes. Their hyperparameters are chosen among three candidates on
    held-out labels, and they are blended with votes of nodes with similar features. Validation labels are
    used for training. No node's own label affects its prediction, so validation accuracy is meaningful.
    ClassCode starts from the same posteriors.

    **Tuned under node-level units.** Softmax regression by full-batch noisy steps, with settings from public
    sizes and the budget (``NodeLevelSoftmax``). Validation records are used for training.

    **Small.** One network of the given architecture, as papers use for comparison (GAP: three layers of 16
    units). Used if any keyword of the network differs from its default.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        tuned: Whether all settings are chosen automatically, on held-out public labels or, under node-level
            units, from public sizes. None for yes, unless a keyword of the network or its
            training is given.
        layers: Number of layers, including the output layer. None for 3. Under node-level units 2, since more
            parameters need more noise.

    Raises:
        ConfigError: If a parameter is outside its range, not supported under the unit, or contradicts
            ``tuned=True``. On ``fit``, if the batch is larger than the training set.

    Privacy:
        Unit: edge-level. Reads: public features and labels. Charges: nothing, since no edge is read.

        Unit: node-level. Reads: features and labels. Charges: the training steps as one query to the training
        records, recorded before the first step. Nulling a record changes each clipped sum by at most C. The
        noise is the smallest whose exact accounting meets (epsilon, delta). Public: the parameters. A
        prediction reads the node's own features and the parameters, no other record.

    >>> from graphveil.data import synthetic
    >>> from graphveil.data.recipes import RECIPES
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = MLP(unit="undirected-edge", seed=0).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon
    (True, 0.0)
    >>> private = MLP(unit="node-record", epsilon=4.0, seed=0, epochs=20).fit(graph)
    >>> private.guarantee.releases, private.guarantee.epsilon <= 4.0
    (1, True)
    """

    method: ClassVar[str] = "mlp"
    predicts_numbers: ClassVar[bool] = True
    reads_edges: ClassVar[bool] = False
    reads_tables: ClassVar[bool] = True  # the attributes of persons
    rejections: ClassVar[Rejections] = EXACT_RECORDS
    removed: ClassVar[Mapping[str, Any]] = {"selection": "last"}

    tuned: bool | None = None
    layers: int | None = None

    def _build_method(self) -> Method:
        tuned, numbers = self._is_tuned(), self.task == REGRESSION
        methods = {"node": self._on_records, "edge": self._on_public, "none": self._on_public}
        return methods[self.protected_unit.level](tuned, numbers)

    def _on_records(self, tuned: bool, numbers: bool) -> Method:
        if tuned and not numbers:
            return self._method(NodeLevelSoftmax)
        return self._method(PrivateMLP, shape=self._shape(2))

    def _on_public(self, tuned: bool, numbers: bool) -> Method:
        if tuned and not numbers:
            return self._method(TunedMLP)
        shapes = regression_candidates(self.privacy_config) if tuned else (self._shape(3),)
        return self._method(NonPrivateMLP, shapes=shapes)

    def _shape(self, usual_depth: int) -> MLPArchitecture:
        depth = usual_depth if self.layers is None else self.layers
        checks.depth(layers=depth)
        training_config = TrainingConfig.from_keywords(self, self.privacy_config)
        return MLPArchitecture(training_config=training_config, depth=depth)

    def _is_tuned(self) -> bool:
        named = [field.name for field in dataclasses.fields(NetworkKeywords)] + ["layers"]
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        given = [name for name in named if getattr(self, name) != defaults[name]]
        if self.tuned is None:
            return not given
        if self.tuned and given:
            raise ConfigError(
                f"tuned=True chooses {', '.join(given)} itself. Omit tuned, or omit {', '.join(given)}."
            )
        return self.tuned
