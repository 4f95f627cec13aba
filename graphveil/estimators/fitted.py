"""The value that a fit leaves, the attributes that read it, and its release folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import numpy.typing as npt
from torch import Tensor

from graphveil.artifacts.cards import Card
from graphveil.artifacts.release_folder import write_release
from graphveil.artifacts.snapshot import ReleaseRow, Snapshot, no_predictions_note
from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ConfigError
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.method import Method, State, TrainedModel
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.privacy import Guarantee
from graphveil.release import ReleasePlan
from graphveil.training import EpochRecord


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedModel:
    """What an estimator keeps of a fit. Parameters that are set later cannot reach it.

    Predictions, prices and saved files read this value only.

    Args:
        method: as it was configured for the fit.
        parameters: the constructor keywords of that configuration.
        sizes: public sizes of the fitted graph.
        plan: what was asked of it; None for nothing, or for a model from a file.
        guarantee: that of the fit.
        trained: answers for other graphs.
        proba: probabilities (N, C); None where a release does not hold them, or no guarantee covers them.
        released: noisy answers by name.
        rows: what was released, for tables.
        sampler: the name of the noise's sampler.
        private_accuracy: from booked noisy counts.
        learned: attributes of the method's own.
        class_names: labels by class number; empty where they have no names.
        ids: the nodes' own ids.
        scaling: how feature columns are scaled before networks read them.
        encoding: how columns of the table of nodes became features, where the graph was read from one.
        history: the epochs of all trainings.
        seconds: by stage.
    """

    method: Method
    parameters: Mapping[str, Any]
    sizes: PublicSizes
    guarantee: Guarantee
    trained: TrainedModel
    plan: ReleasePlan | None = None
    proba: Tensor | None = None
    released: State = field(default_factory=dict)
    rows: tuple[ReleaseRow, ...] = ()
    sampler: str | None = None
    private_accuracy: Mapping[str, float] = field(default_factory=dict)
    learned: Mapping[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    ids: npt.NDArray[Any] | None = None
    scaling: FeatureScaling = field(default_factory=FeatureScaling)
    encoding: Encoding | None = None
    history: list[tuple[str, EpochRecord]] = field(default_factory=list)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def own_proba(self) -> Tensor:
        """Probabilities (N, C) of the fitted graph.

        Raises:
            ArtifactError: they are withheld from the release that this fit was read from.
        UnitError: the guarantee covers no predictions, and there are none.
        """
        if self.proba is None:
            raise no_predictions_note(self.guarantee)
        return self.proba


T = TypeVar("T")


class HasFit(Protocol):
    """Whatever keeps a fit."""

    _fit: FittedModel | None


class FittedAttribute(Generic[T]):
    """A read-only attribute that is taken from the fit, and has a plain value before there is one.

    Args:
        read: takes it from the fit.
        absent: makes the value that stands where nothing is fitted.
    """

    def __init__(self, read: Callable[[FittedModel], T], absent: Callable[[], T]) -> None:
        """Take both ways to the value."""
        self._read, self._absent = read, absent

    def __get__(self, model: HasFit | None, owner: type | None = None) -> T:
        """Return the value."""
        return self._absent() if model is None or model._fit is None else self._read(model._fit)

    def __set__(self, model: HasFit, value: T) -> NoReturn:
        """Refuse: what was learned is not set."""
        raise ConfigError("learned attributes follow from the fit and cannot be set; fit again instead")


def learned(name: str, absent: Callable[[], T]) -> FittedAttribute[T]:
    """Return an attribute that the method itself calls by this name in its outcome."""

    def read(fit: FittedModel) -> T:
        found: T = fit.learned.get(name, absent())
        return found

    return FittedAttribute(read, absent)


def none_before_fit() -> None:
    """Return None, for what is absent before a fit."""


def save_fitted(
    fitted: FittedModel, folder: Path, card: Card | None = None, *, per_node: Path | None = None
) -> None:
    """Write what may be published of a fit to a new folder, whole or not at all.

    Args:
        fitted: the fit; parameters that were set after it are no part of it.
        folder: a path that does not exist yet, or an empty folder.
        card: what the model card says about the data and the accuracy.
        per_node: a second such folder, for what the unit withholds from the first.

    Raises:
        ConfigError: a folder holds something, or nothing is withheld.
    """
    write_release(snapshot_of(fitted), folder, card, per_node=per_node)


def snapshot_of(fitted: FittedModel) -> Snapshot:
    """Return a fit as plain data."""
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
    )
