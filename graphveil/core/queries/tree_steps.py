"""Noisy training steps on trees of exact neighbors, in which one record reaches several roots."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil._util import checks
from graphveil.core.events import Event, PoissonRoots
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.query import require_record_unit
from graphveil.core.unit import NodeBoundedDegree, NodeUnit, Unit
from graphveil.errors import CalibrationError, ConfigError

MAX_SHIFT = 4.0  # maximum shift of a sum by a record's roots, in noise deviations: the exact law is
# known within 13 of them (docs/privacy/proofs/noise.md, Proposition 9)


@dataclass(frozen=True)
class Reach:
    """The number of roots that one record can change, with list bound D and trees of depth r.

    ``slots`` is None if whole lists are used, which an asserted degree bounds.

    >>> from graphveil.privacy import NodeRecord
    >>> Reach.from_unit(NodeRecord(), slots=2, depth=2), Reach.from_unit(NodeRecord(replace_one=True),
    ...     slots=2, depth=1)
    (Reach(slots=2, roots=7), Reach(slots=2, roots=5))
    """

    slots: int | None
    roots: int

    @classmethod
    def from_unit(cls, unit: NodeUnit, *, slots: int, depth: int) -> "Reach":
        """Return the reach under a unit; under an assumption about degrees, the smaller of two mechanisms.

        ``node-record``: 1 + D + ... + D^r. ``node-bounded-degree`` with a degree of at most M: with whole
        lists, the ball 1 + M (1 + (M - 1) + ... + (M - 1)^(r - 1)); or with bounded lists, where a neighbor
        replaces q by another node, 1 + (D + M) (1 + D + ... + D^(r - 1)). Replacing a record is nulling it
        and filling it again: all roots but its own count twice.
        """
        checks.integer_at_least(1, slots=slots, depth=depth)
        below = sum(slots**level for level in range(depth))
        kept: int | None = slots
        others = slots * below
        if isinstance(unit, NodeBoundedDegree):
            ball = unit.max_degree * sum((unit.max_degree - 1) ** level for level in range(depth))
            others = (slots + unit.max_degree) * below
            if slots >= unit.max_degree or ball <= others:
                kept, others = None, ball
        return cls(kept, 1 + (2 if unit.replace_one else 1) * others)


@dataclass(frozen=True, kw_only=True)
class TreeStepsQuery(DPSGDQuery):
    """Release noisy steps on clipped gradients of roots, each with its tree (``BoundedTrees``).

    Step t releases the sum over a Poisson sample of roots, each with norm at most C, plus N(0, (z C)^2).

    Args:
        slots: List bound D.
        depth: Depth r of the trees.

    Raises:
        CalibrationError: On ``event``, if there is too little noise for the proof of its exact law.

    Privacy:
        Unit: node-level. Theorem A (``proofs/accounting.md``) for the number of roots that a record
        reaches (``Reach``), T times. It covers the sums, and so the parameters after all steps. It covers
        nothing else that is computed from the trees.

    >>> from graphveil.privacy import NodeRecord
    >>> steps = TreeStepsQuery(parameters=9, steps=200, noise_multiplier=5.0, sampling_rate=0.125, slots=1,
    ...                        depth=1)
    >>> steps.event(NodeRecord())
    PoissonRoots(noise_multiplier=5.0, sampling_rate=0.125, steps=200, roots=2, relation='add_remove')
    """

    wire_name: ClassVar[str] = "TreeStepsQuery"
    without_example: ClassVar[str] = (
        "the method decides what the steps read; tests of sampled ego graphs cover them"
    )

    slots: int
    depth: int

    def __post_init__(self) -> None:
        """Check every field; every record of every group is charged, since all reach roots."""
        super().__post_init__()
        checks.integer_at_least(1, slots=self.slots, depth=self.depth)
        if self.reach or len(self.pays) > 1:
            raise ConfigError(
                "the reach of an ego graph must follow from its slots and depth, and all records must be "
                "charged"
            )

    def event(self, unit: Unit) -> Event:
        """Return the steps with the privacy cost of Theorem A."""
        records = require_record_unit(unit)
        roots = Reach.from_unit(records, slots=self.slots, depth=self.depth).roots
        event = PoissonRoots(self.noise_multiplier, self.sampling_rate, self.steps, roots, records.relation)
        if event.change > MAX_SHIFT * self.noise_multiplier:
            raise CalibrationError(
                f"noise_multiplier={self.noise_multiplier:.4g} is too small if one record is in {roots} "
                f"ego graphs. It must be at least {event.change / MAX_SHIFT:.4g}. Use a smaller epsilon."
            )
        return event

    def sensitivity(self, unit: Unit) -> float:
        """Return (2 N - 1) C for the sum of one step, or 2 N C under replace-one."""
        records = require_record_unit(unit)
        roots = Reach.from_unit(records, slots=self.slots, depth=self.depth).roots
        return (2 * roots - (not records.replace_one)) * self.clip
