"""Contents of a release as plain data, independent of estimators: single queries, and the whole folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import Tensor

from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ArtifactError, UnitError
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """All contents of a release folder, and the per-node results if they are available.

    Args:
        features, classes, nodes, train_records: Public sizes; None for those that a file omits.
        class_names: Labels by class number; empty for unnamed classes.
        proba: Probabilities (N, C), or predicted numbers (N, 1); None if they are not public.
        ids: The nodes' own ids, or None for numbers.
        scaling: Scaling of feature columns, as plain values; None without scaling.
        encoding: Names of feature columns, and how each became features; None without a table.
        chosen_method: Method that was chosen among several, for the model card; None if there was no choice.
    """

    method: str
    parameters: Mapping[str, Any]
    features: int
    classes: int
    guarantee: Guarantee
    nodes: int | None = None
    train_records: int | None = None
    class_names: tuple[str, ...] = ()
    rows: tuple[QueryRow, ...] = ()
    sampler: str | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)
    released: Mapping[str, Tensor] = field(default_factory=dict)
    proba: Tensor | None = None
    ids: npt.NDArray[Any] | None = None
    scaling: Mapping[str, Any] | None = None
    encoding: Encoding | None = None
    chosen_method: str | None = None

    @property
    def own_proba(self) -> Tensor:
        """Probabilities (N, C)."""
        if self.proba is None:
            raise no_predictions_note(self.guarantee)
        return self.proba

    @property
    def named_classes(self) -> tuple[str, ...]:
        """The label of each class, or its number if labels have no names; empty if a number is predicted."""
        if self.classes == 1:
            return ()
        return self.class_names or tuple(str(number) for number in range(self.classes))


def no_predictions_note(guarantee: Guarantee) -> ArtifactError | UnitError:
    """Return the error message of a release without predictions."""
    if guarantee.edge_use == "neighbors":
        return uncovered_weights_note()
    return ArtifactError(
        f"This release contains no predictions, because under unit {guarantee.unit!r} they are "
        "only for people authorized to access the record of a node. Load the run folder that has "
        "per_node/ next to release/, or name it: load_model(..., per_node=...)."
    )


def uncovered_weights_note() -> UnitError:
    """Return the error for parameters trained on exact neighbors, where no prediction is covered."""
    return UnitError(
        "The guarantee of this model covers its parameters only: a prediction reads the exact "
        "records of neighbors without protection. Run model.module_ only if every viewer is "
        "authorized to access these records, or fit with neighborhood='published', which covers "
        "predictions."
    )
