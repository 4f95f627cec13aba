"""What hangs in the gallery: a mechanism as it was published, restated in a few lines, and what it claims."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from graphveil.audit.neighbor_test import NeighborTestResult, neighbor_test
from graphveil.audit.noise import NoiseRecorder
from graphveil.audit.small_graphs import SmallGraph


@dataclass(frozen=True, kw_only=True)
class PublishedValue:
    """A figure, and the same from a restatement.

    Args:
        what: it is.
        location: where: a statement, formula, program or pseudo-code of the source; of a cost, what it
            follows from.
        published: the figure.
        restated: returns what the restatement has.
        tolerance: relative: as many digits as are known.
    """

    what: str
    location: str
    published: float
    restated: Callable[[], float]
    tolerance: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class PublishedMechanism:
    """One mechanism, its claim, and what is wrong with it.

    Args:
        name: short.
        source: where the claim stands.
        explanation: what is claimed, why it fails, and what would mend it.
        unit: what is claimed to be protected.
        claim: keywords of :func:`~graphveil.audit.neighbor_test`.
        mechanism: the restatement.
        kind: of finding that refutes it; empty for a sound mechanism.
        figure: one figure of the source about the step that fails, reproduced, so that what is restated is
            what was published; None where no source gives one.
        cost: what the flaw costs, worked out apart from the restatement; None where nobody has.
        search: how replays look for a pair, where defaults do not do (larger graphs).
    """

    name: str
    source: str
    explanation: str
    unit: str
    claim: dict[str, Any]
    mechanism: Callable[[SmallGraph, NoiseRecorder], Any]
    kind: str = ""
    figure: PublishedValue | None = None
    cost: PublishedValue | None = None
    search: dict[str, Any] = field(default_factory=dict)

    def run_neighbor_test(self, **search: Any) -> NeighborTestResult:
        """Return what a replay finds, within a budget (``seconds=``, ``pairs=``, ``seed=``)."""
        return neighbor_test(self.mechanism, unit=self.unit, **self.claim, **{**self.search, **search})
