"""What a release holds, answer by answer, as the plan page, the cards and the files list it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphveil.privacy import ByGroup, Event, NodeUnit, Unit
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
