"""What a release holds as plain data, which knows no estimator: answer by answer, and the whole folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import Tensor

from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ArtifactError, UnitError
from graphveil.privacy import ByGroup, Event, Guarantee, NodeUnit, Unit
from graphveil.privacy.accountant import total_mu

if TYPE_CHECKING:
    from graphveil.release import ReleasePlan


_PARTS = ("train", "val", "other")  # public groups of records, unless a partition's name says otherwise


@dataclass(frozen=True)
class ReleaseRow:
    """One noisy answer about protected data: its kind, its sensitivity, and its noise by group of rows.

    For training steps the noise is the multiplier of each step, and ``steps`` says how many there are.
    ``pays`` names the public groups of records that the answer can touch; it is empty for edges. ``words``
    say what randomizes a report, in place of its noise.
    """

    kind: str
    sensitivity: float
    noise_std: list[float]
    values_per_node: int | None
    steps: int | None = None
    pays: list[str] = field(default_factory=list)
    words: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """Everything that a release folder says, and what is withheld from it where that is at hand.

    Args:
        method: its name.
        parameters: the constructor keywords.
        features, classes, nodes, train_records: public sizes; those that a file leaves out are None.
        class_names: labels by class number; empty where they have no names.
        guarantee: that of the release.
        rows: what was released, for tables.
        sampler: the name of the noise's sampler.
        state: trained weights by name.
        released: noisy answers by name.
        proba: probabilities (N, C), or None where they are withheld.
        ids: the nodes' own ids, or None for numbers.
        scaling: how feature columns are scaled, as plain values; None if they are not.
        encoding: names of feature columns, and how each became features; None without a table.
    """

    method: str
    parameters: Mapping[str, Any]
    features: int
    classes: int
    guarantee: Guarantee
    nodes: int | None = None
    train_records: int | None = None
    class_names: tuple[str, ...] = ()
    rows: tuple[ReleaseRow, ...] = ()
    sampler: str | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)
    released: Mapping[str, Tensor] = field(default_factory=dict)
    proba: Tensor | None = None
    ids: npt.NDArray[Any] | None = None
    scaling: Mapping[str, Any] | None = None
    encoding: Encoding | None = None

    @property
    def own_proba(self) -> Tensor:
        """Probabilities (N, C).

        Raises:
            ArtifactError: they are withheld from the release, and not at hand.
            UnitError: the guarantee covers no predictions, and there are none.
        """
        if self.proba is None:
            raise no_predictions_note(self.guarantee)
        return self.proba

    @property
    def named_classes(self) -> tuple[str, ...]:
        """The label of each class, or its number where labels have no names."""
        return self.class_names or tuple(str(number) for number in range(self.classes))


def no_predictions_note(guarantee: Guarantee) -> ArtifactError | UnitError:
    """Return what is said where a release holds no predictions."""
    if guarantee.edge_use == "neighbors":
        return uncovered_weights_note()
    return ArtifactError(
        f"this release holds no predictions: under unit {guarantee.unit!r} the prediction for a node is only "
        "for someone entitled to its record. Load the run folder that has per_node/ beside release/, or name "
        "that folder: load_model(..., per_node=...)"
    )


def uncovered_weights_note() -> UnitError:
    """Return what is said where weights were trained on exact neighbors, and no prediction is covered."""
    return UnitError(
        "this model was trained on exact neighbors, and its guarantee covers the weights alone: a "
        "prediction reads the records of all nodes that reach its own, and nothing hides them. Run "
        "model.module_ where whoever sees the result is entitled to all of these records, or fit with "
        "neighborhood='published', whose predictions are covered"
    )


def release_rows(plan: "ReleasePlan") -> tuple[ReleaseRow, ...]:
    """Return a plan's answers in order."""
    return tuple(
        ReleaseRow(
            kind=described.kind,
            sensitivity=query.sensitivity(plan.unit),
            noise_std=list(described.noise),
            values_per_node=described.values_per_node,
            steps=described.steps,
            pays=list(charged_groups(query.event(plan.unit), plan.unit)),
        )
        for query in plan.queries
        for described in (query.describe(),)
    )


def charged_groups(event: Event, unit: Unit) -> tuple[str, ...]:
    """Return the names of the public groups of records that an event can touch; edges have none.

    >>> from graphveil.privacy import Composed, Gaussian, NodeRecord
    >>> charged_groups(ByGroup("records", (Gaussian(1.0), Composed(()), Composed(()))), NodeRecord())
    ('train',)
    """
    if not isinstance(unit, NodeUnit):
        return ()
    if not isinstance(event, ByGroup):
        return ("all",)
    names = _groups_of(event)
    paying = tuple(name for name, part in zip(names, event.events, strict=True) if total_mu(part) != 0)
    return ("all",) if len(paying) == len(names) else paying


def charged_to_text(pays: Sequence[str]) -> str:
    """Return who pays, in words: the part that is neither train nor val holds the test nodes.

    >>> charged_to_text(["val", "other"])
    'val, test and unsplit'
    """
    return ", ".join("test and unsplit" if name == _PARTS[-1] else name for name in pays)


def _groups_of(event: ByGroup) -> Sequence[str]:
    """Return the groups' names: those in the partition's own, if it lists them."""
    described, count = event.partition.split("/"), len(event.events)
    if len(described) == count:
        return described
    return _PARTS if count == len(_PARTS) else [f"group {group}" for group in range(1, count + 1)]
