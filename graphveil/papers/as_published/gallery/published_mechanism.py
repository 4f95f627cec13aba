"""A published mechanism, restated in a few lines, with its claim and the numbers of its source."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any, TypeVar

from graphveil.audit.neighbor_test import NeighborTestResult, neighbor_test
from graphveil.audit.noise import NoiseRecorder
from graphveil.audit.small_graphs import SmallGraph

Mechanism = Callable[[SmallGraph, NoiseRecorder], Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class RestatedValue:
    """A published number, and the same number from a restatement.

    Args:
        location: Statement, formula, program or pseudocode of the source; for a cost, its derivation.
        tolerance: Relative tolerance: as many digits as are known.
    """

    what: str
    location: str
    published: float
    restated: Callable[[], float]
    tolerance: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class PublishedMechanism:
    """One mechanism and its claim.

    Args:
        source: Publication or program with the claim.
        claim: Keywords of ``neighbor_test``.
        kind: Kind of finding that refutes it; empty for a sound mechanism.
        figure: A reproduced number of the source about the step that fails, to show that the restatement is
            the published mechanism; None if no source gives one.
        cost: Privacy cost of the flaw, derived independently of the restatement; None if unknown.
        search: Keywords of the neighbor test if the defaults do not suffice (larger graphs).
    """

    name: str
    source: str
    unit: str
    claim: dict[str, Any]
    mechanism: Mechanism
    kind: str = ""
    figure: RestatedValue | None = None
    cost: RestatedValue | None = None
    search: dict[str, Any] = field(default_factory=dict)

    @property
    def explanation(self) -> str:
        """The claim, why it fails, and a correction: the second paragraph of the function's docstring."""
        return " ".join((getdoc(self.mechanism) or "").split("\n\n")[1].split())

    def run_neighbor_test(self, **search: Any) -> NeighborTestResult:
        """Run a neighbor test within a budget (``seconds=``, ``pairs=``, ``seed=``)."""
        return neighbor_test(self.mechanism, unit=self.unit, **self.claim, **{**self.search, **search})


MECHANISMS: list[PublishedMechanism] = []


def published_mechanism(name: str, source: str, **given: Any) -> Callable[[F], F]:
    """Add a function to the gallery, with the fields of ``PublishedMechanism``."""

    def add(mechanism: F) -> F:
        MECHANISMS.append(PublishedMechanism(name=name, source=source, mechanism=mechanism, **given))
        return mechanism

    return add
