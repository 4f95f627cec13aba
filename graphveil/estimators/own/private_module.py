"""PrivateModule: a custom torch module trained on protected records, without edges."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphveil.core.clipping.clipped_sums import per_record_logits, probe_labels
from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.clipping.isolation import synthetic_records
from graphveil.core.features import Features, rows, to_dense
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import NodeUnit, NoUnit
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.estimators.base import Estimator
from graphveil.estimators.method import FeatureModel, FitResult, Method, State
from graphveil.estimators.own.code import Factory, build_module, check_factory, check_registered
from graphveil.estimators.own.module_checks import (
    reject_mixing,
    reject_unsupported_types,
    training_error_message,
)
from graphveil.estimators.private_training import DPSGDTraining, RecordPlan, fit_dpsgd
from graphveil.estimators.public_sizes import PublicSizes, members, record_groups
from graphveil.estimators.requirements import EDGE_LEVEL, EXACT_RECORDS, Rejections, rejected
from graphveil.estimators.session import Session
from graphveil.training import copied_state
from graphveil.training.heads import MULTICLASS, TaskHead

_STAGE, _PROBES, _AT_ONCE = "module", 6, 4096


@dataclass(frozen=True, kw_only=True)
class NodeLevelModule(Method):
    """A module that is trained on protected records by noisy steps, one query of a release."""

    reads_edges: ClassVar[bool] = False
    weighs_classes: ClassVar[bool] = True

    module: Factory | str = field(repr=False)
    schedule: PrivateSchedule

    def check(self, view: Graph) -> None:
        super().check(view)
        sizes = self.sizes_of(view)
        module = self.build_module(sizes, PublicStreams(0))
        reject_unsupported_types(module)
        reject_mixing(module, sizes.width, sizes.classes, edges=False)
        try:
            _fingerprint(module, sizes)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(training_error_message(module, error)) from error

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the training, and the counts that are charged with it."""
        unit = self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        metrics, training = self.privacy_config.private_metrics, self.training(sizes)
        record_plan = RecordPlan(
            unit=unit, trainings=(training,), shares=(1.0,), classes=sizes.classes, metrics=metrics
        )
        return self.privacy_config.calibrated(sizes, record_plan.queries)

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        module = self.build_module(sizes, PublicStreams(0))
        return DPSGDTraining.for_module(module, self.schedule, sizes.records)

    def build_module(self, sizes: PublicSizes, streams: PublicStreams) -> nn.Module:
        return build_module(self.module, sizes.width, sizes.classes, streams.torch(_STAGE)).eval()

    def fit(self, view: Graph, session: Session) -> FitResult:
        sizes = self.sizes_of(view)
        module = self.build_module(sizes, session.streams)
        release = session.open(view, record_groups(view))
        with session.stage("classifier"):
            nodes = members(view, "train")
            x = map_records(to_dense, rows(view.x, nodes))
            labels = rows(self.objective.clipped_targets(view, self.head), nodes)
            fit_dpsgd(
                _STAGE,
                module,
                lambda: clipped_sum(module, x, labels),
                self.training(sizes),
                release,
                session,
                fingerprint=(_fingerprint(module, sizes),),
            )
        trained = TrainedModule(module, sizes.classes, self.head)
        return self.closed(release, trained, trained.proba(view), view, session)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedModule":
        check_registered(self.module)
        module = self.build_module(sizes, PublicStreams(0))
        module.load_state_dict(state)
        return TrainedModule(module, sizes.classes, self.head)


@dataclass(frozen=True, eq=False)
class TrainedModule(FeatureModel):
    """Released parameters of a module."""

    module: nn.Module
    classes: int
    head: TaskHead = MULTICLASS

    def proba(self, view: Graph) -> Any:
        """Return probabilities (N, C), each record evaluated on its own."""

        def of(x: Features) -> Tensor:
            return self.head.proba(_logits(self.module, x, self.classes)).to(torch.float32)

        return map_records(of, view.x)

    def state(self) -> State:
        return copied_state(self.module)


def _logits(module: nn.Module, x: Features, classes: int) -> Tensor:
    return torch.cat(
        [per_record_logits(module, part, classes) for part in torch.split(to_dense(x), _AT_ONCE)]
    )


def _fingerprint(module: nn.Module, sizes: PublicSizes) -> Tensor:
    """Return the module's outputs on fixed random records, which the noise is bound to."""
    x = torch.randn(_PROBES, sizes.width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.random.fork_rng(devices=[]), synthetic_records():
        gradients = clipped_sum(module, x, probe_labels(_PROBES, sizes.classes))
        gradients.add(torch.arange(_PROBES), 1.0)
        logits = _logits(module, x, sizes.classes)
        found = logits if sizes.classes == 1 else logits.softmax(dim=1).to(torch.float32).double()
        return torch.cat([gradients.sums, found.flatten()])


@dataclass(kw_only=True, eq=False)
class PrivateModule(Estimator):
    """Train a custom torch module on protected records by DP-Adam, without edges.

    ``module(inputs, classes)`` builds a module that maps features (B, inputs) to logits (B, classes), each
    record independently. Per-record gradients are computed by ``vmap(grad)`` and clipped. The noise is
    exactly sampled.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        module: Factory of the module, or the name that it was registered under.
        epochs: Expected passes over the training records.
        batch_size: Expected training records in a batch; None for all of them in every step.
        clip: Clipping norm of per-record gradients.
        learning_rate: Step size of Adam.

    Raises:
        ConfigError: If a parameter is outside its range, or the module cannot be trained on ``fit``.
        NotImplementedGuaranteeError: If the unit does not protect records. Train the module without privacy
            instead.

    Privacy:
        Unit: node-level. Reads: features and labels, no edges. Charges: all training steps as one query, with
        exact accounting. Public: the parameters. A prediction reads the node's own features and the
        parameters. Modules that mix records are rejected before anything is charged
        (``docs/how-to/custom-model.md``).

    >>> import torch
    >>> from graphveil.data import RECIPES, synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = PrivateModule(module=torch.nn.Linear, unit="node-record", epsilon=4, seed=0, epochs=5)
    >>> model = model.fit(graph)
    >>> model.guarantee.valid, model.guarantee.epsilon <= 4
    (True, True)
    """

    method: ClassVar[str] = "module"
    predicts_numbers: ClassVar[bool] = True
    reads_edges: ClassVar[bool] = False
    rejections: ClassVar[Rejections] = EXACT_RECORDS | rejected(
        "unit {unit!r} leaves features and labels public, so a module can be trained on them without noise, "
        "with torch itself. To protect node records use unit 'node-record' or 'node-bounded-degree'.",
        *EDGE_LEVEL,
        NoUnit.name,
        error=NotImplementedGuaranteeError,
    )

    module: Factory | str = ""
    epochs: int = 60
    batch_size: int | None = None
    clip: float = 1.0
    learning_rate: float = 0.03

    def _check_config(self) -> None:
        super()._check_config()
        if not self.module:
            raise ConfigError(
                "module= is missing. Pass a class that is constructed as module(inputs, classes), such "
                "as module=MyModule."
            )
        check_factory(self.module)

    def _build_method(self) -> NodeLevelModule:
        return self._method(NodeLevelModule, schedule=PrivateSchedule(**self._named(PrivateSchedule)))
