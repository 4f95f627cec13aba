"""Contents of a release as plain data, independent of estimators: single queries, and the whole folder."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from torch import Tensor

from graphveil.artifacts.schemas import check_query_kind
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import ByGroup, Event, compose
from graphveil.core.queries.held_out import PAIR_PARTS
from graphveil.core.unit import NodeUnit, Unit
from graphveil.data.tables.encoding import Encoding
from graphveil.errors import ArtifactError, UnitError
from graphveil.privacy import Guarantee

if TYPE_CHECKING:
    from graphveil.core.plan import ReleasePlan


_PARTS = (
    "train",
    "val",
    "other",
)  # default groups of records, if a partition's name lists none


@dataclass(frozen=True)
class ReleaseRow:
    """One noisy query of protected data: its kind, its sensitivity, and its noise by group of rows.

    For training steps the noise is the noise multiplier of each step, and ``steps`` their number. ``pays``
    names the public groups of records that are charged; it is empty for edges. ``words`` names the local
    randomizer of an LDP report, instead of its noise.
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
    """All contents of a release folder, and the per-node results if they are available.

    Args:
        method: Name of the method.
        parameters: Constructor keywords.
        features, classes, nodes, train_records: Public sizes; None for those that a file omits.
        class_names: Labels by class number; empty for unnamed classes.
        guarantee: Guarantee of the release.
        rows: Released queries, for tables.
        sampler: Name of the noise sampler.
        state: Trained parameters by name.
        released: Noisy query results by name.
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
    rows: tuple[ReleaseRow, ...] = ()
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
        """Probabilities (N, C).

        Raises:
            ArtifactError: They are not in the release, and per-node results are not available.
            UnitError: The guarantee covers no predictions, and there are none.
        """
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


def release_rows(plan: "ReleasePlan") -> tuple[ReleaseRow, ...]:
    """Return a plan's queries in order; alternatives are one row with the noise that is charged for them.

    Raises:
        ConfigError: If a query has a kind that release folders and model cards have no words for.
    """
    common = len(plan.queries) - sum(plan.alternatives)
    rows = tuple(
        ReleaseRow(
            kind=check_query_kind(described.kind),
            sensitivity=query.sensitivity(plan.unit),
            noise_std=list(described.noise),
            values_per_node=described.values_per_node,
            steps=described.steps,
            pays=list(charged_groups(query.event(plan.unit), plan.unit)),
        )
        for query in plan.queries[:common]
        for described in (query.describe(),)
    )
    if not plan.alternatives:
        return rows
    chosen = compose(plan.event).events[-1]
    worst = ReleaseRow(
        kind="chosen",
        sensitivity=1.0,
        noise_std=[1 / (total_mu(chosen) or math.inf)],
        values_per_node=None,
        pays=list(charged_groups(chosen, plan.unit)),
    )
    return (*rows, worst)


def charged_groups(event: Event, unit: Unit) -> tuple[str, ...]:
    """Return the names of the public groups of records, or parts of node pairs, that an event affects.

    It is empty for edges that are not divided into parts.

    >>> from graphveil.privacy import Composed, Gaussian, NodeRecord
    >>> charged_groups(ByGroup("records", (Gaussian(1.0), Composed(()), Composed(()))), NodeRecord())
    ('train',)
    """
    if not isinstance(event, ByGroup):
        return ("all",) if isinstance(unit, NodeUnit) else ()
    count = len(event.events)
    names: Sequence[str] = event.partition.split("/")
    if not isinstance(unit, NodeUnit):
        names = PAIR_PARTS.split("/")
    elif len(names) != count:  # the partition's own name does not list its groups
        names = _PARTS if count == len(_PARTS) else [f"group {group}" for group in range(1, count + 1)]
    paying = tuple(name for name, part in zip(names, event.events, strict=True) if total_mu(part) != 0)
    return ("all",) if len(paying) == count else paying


def charged_to_text(pays: Sequence[str]) -> str:
    """Return the charged groups as text; the part that is neither train nor val contains the test nodes.

    >>> charged_to_text(["val", "other"])
    'val, test and unsplit'
    """
    return ", ".join("test and unsplit" if name == _PARTS[-1] else name for name in pays)
