"""A fit is a value: the frozen method that ran, what it trained, and its guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
from torch import Tensor

from graphveil.artifacts.rows import ReleaseRow
from graphveil.artifacts.snapshot import no_predictions_note
from graphveil.data.tables.encoding import Encoding
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.method import Method, State, TrainedModel
from graphveil.estimators.sizes import PublicSizes
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
