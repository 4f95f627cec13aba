"""The result of a fit as a value, the attributes that read it, and its release folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

import numpy.typing as npt
from torch import Tensor

from graphveil.core.plan import ReleasePlan
from graphveil.core.view import per_node
from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ConfigError
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.method import FitResult, Method, PreparedFit
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.privacy import Guarantee
from graphveil.publish.cards import Card
from graphveil.publish.queries import QueryRow
from graphveil.publish.release_folder import write_release
from graphveil.publish.schemas import Snapshot, no_predictions_note
from graphveil.training import EpochRecord


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedModel(FitResult):
    """The stored result of a fit. Parameters that are set later do not affect it.

    Args:
        plan: Query plan of the fit; None for none, or for a model from a file.
        proba: Probabilities (N, C). None if a release does not hold them, or no guarantee covers them.
        private_accuracy: Accuracies from noisy counts that were charged.
        private_metrics: Metrics of test nodes from noisy counts that were charged.
    """

    method: Method
    parameters: Mapping[str, Any]
    sizes: PublicSizes
    guarantee: Guarantee
    plan: ReleasePlan | None = None
    proba: Tensor | None
    rows: tuple[QueryRow, ...] = ()
    sampler: str | None = None
    class_names: tuple[str, ...] = ()
    ids: npt.NDArray[Any] | None = None
    scaling: FeatureScaling = field(default_factory=FeatureScaling)
    encoding: Encoding | None = None
    history: list[tuple[str, EpochRecord]] = field(default_factory=list)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_result(
        cls, result: FitResult, ready: PreparedFit, session: Session, parameters: Mapping[str, Any]
    ) -> "FittedModel":
        return cls(
            **(vars(result) | {"proba": per_node(result.proba)}),
            method=ready.method,
            parameters=parameters,
            sizes=ready.sizes,
            guarantee=session.with_seed(ready.guarantee),
            plan=ready.plan,
            rows=ready.rows,
            sampler=None if ready.plan is None else ready.plan.sampler.__name__,
            class_names=ready.method.head.names(ready.scaled),
            ids=ready.scaled.ids,
            scaling=ready.scaling,
            encoding=ready.scaled.encoding,
            history=session.history,
            seconds=dict(session.seconds),
        )

    @property
    def own_proba(self) -> Tensor:
        """Probabilities (N, C) of the fitted graph.

        Raises:
            ArtifactError: If they are withheld from the release that this fit was read from.
            UnitError: If the guarantee covers no predictions, so there are none.
        """
        if self.proba is None:
            raise no_predictions_note(self.guarantee)
        return self.proba

    @property
    def prediction(self) -> CachedPrediction:
        """The prediction of the fitted graph, as it is cached."""
        released = tuple(self.released.values())
        return CachedPrediction(self.plan, released, self.own_proba, self.trained.reports)


T = TypeVar("T")


class HasFit(Protocol):
    """An object that holds a fit."""

    _fit: FittedModel | None


class FittedAttribute(Generic[T]):
    """A read-only attribute that is read from the fit, with a default value before it, by default None."""

    def __init__(self, read: Callable[[FittedModel], T], absent: Callable[[], Any] = lambda: None) -> None:
        self._read, self._absent = read, absent

    def __get__(self, model: HasFit | None, owner: type | None = None) -> T:
        if model is None or model._fit is None:
            return cast(T, self._absent())
        return self._read(model._fit)

    def __set__(self, model: HasFit, value: T) -> NoReturn:
        raise ConfigError("Learned attributes are read-only. Call fit(graph) again to change them.")


def save_fitted(
    fitted: FittedModel, folder: Path, card: Card | None = None, *, per_node: Path | None = None
) -> None:
    """Write the public part of a fit to a new folder, atomically.

    Args:
        fitted: The fit. Parameters that were set after it are not included.
        folder: A path that does not exist yet, or an empty folder.
        per_node: Second such folder, for outputs that the unit withholds from the first.
    """
    write_release(snapshot_of(fitted), folder, card, per_node=per_node)


def snapshot_of(fitted: FittedModel) -> Snapshot:
    return Snapshot(
        method=fitted.method.name,
        parameters=dict(fitted.parameters),
        features=fitted.sizes.width,
        classes=fitted.sizes.classes,
        nodes=fitted.sizes.nodes,
        train_records=fitted.sizes.train_records,
        class_names=fitted.class_names,
        guarantee=fitted.guarantee,
        rows=fitted.rows,
        sampler=fitted.sampler,
        state=fitted.trained.state(),
        released=fitted.released,
        proba=fitted.proba,
        ids=fitted.ids,
        scaling=fitted.scaling.as_plain(),
        encoding=fitted.encoding,
        chosen_method=fitted.trained.chosen_method,
    )
