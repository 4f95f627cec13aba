"""What is claimed, what a replay found, and how it is said."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.laws import LossLowerBound
from graphveil.audit.small_graphs import SmallGraph
from graphveil.errors import ConfigError
from graphveil.privacy.gaussian import epsilon_of
from graphveil.privacy.statements import counted

TOLERANCE = 1e-7  # relative; rounding is below it
_OF_MU = 1e-6  # at which delta a claim of mu is compared with what is no Gaussian

KINDS = {
    "change": "a neighbor changes what is released by more than the claim allows",
    "control flow": "which steps are taken depends on the data beyond what was released",
    "shape": "the shape of what is released depends on the data",
    "noise scale": "the noise depends on the data",
    "reused noise": "two steps draw the same noise, which cancels",
    "exact output": "something is given out that is no function of the noisy answers",
    "mixture": "secret samples hide less than is claimed, by counts of runs",
    "privacy_cost": "a pair costs more than the whole release is charged for",
    "reach": "a row changes that what differs does not reach",
}


@checked
@dataclass(frozen=True, eq=False)
class Finding:
    """One way in which a claim breaks, and the pair of neighbors that shows it.

    ``epsilon`` is a lower bound at the claim's delta, ``mu`` the measured Gaussian part.
    """

    kind: str
    epsilon: float
    mu: float
    first: SmallGraph
    second: SmallGraph

    @property
    def size(self) -> tuple[int, int]:
        """Nodes and edges: the smaller the pair, the easier it is read."""
        return self.first.nodes, len(self.first.edges) + len(self.second.edges)

    def __str__(self) -> str:
        """Say it, and show the pair."""
        shown = "everything" if math.isinf(self.epsilon) else f"epsilon >= {self.epsilon:.4g}"
        return (
            f"{self.kind}: {KINDS[self.kind]} ({shown})\n    one graph:  {self.first}\n"
            f"    the other:  {self.second}{_records(self.first, self.second)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON; infinity is None."""
        shown = None if math.isinf(self.epsilon) else self.epsilon
        return {
            "kind": self.kind,
            "epsilon": shown,
            "mu": self.mu,
            "first": str(self.first),
            "second": str(self.second),
        }


def _records(first: SmallGraph, second: SmallGraph) -> str:
    """Return whose records differ, and how."""
    differ = [v for v in range(first.nodes) if (first.x[v] != second.x[v]).any() or first.y[v] != second.y[v]]
    return "".join(
        f"\n    record {v}:   {first.x[v].round(3).tolist()}, class {first.y[v]} / "
        f"{second.x[v].round(3).tolist()}, class {second.y[v]}"
        for v in differ
    )


@checked
@dataclass(frozen=True, kw_only=True)
class PrivacyClaim:
    """What is guaranteed for neighboring datasets: (epsilon, delta), or a Gaussian parameter mu."""

    epsilon: float | None = None
    delta: float = 0.0
    mu: float | None = None

    def __post_init__(self) -> None:
        """Require one of both."""
        if (self.epsilon is None) == (self.mu is None):
            raise ConfigError("a claim is epsilon= (with delta=) or mu=, one of both")
        checks.within(0, 1, delta=self.delta)
        checks.non_negative(
            **{k: v for k, v in (("epsilon", self.epsilon), ("mu", self.mu)) if v is not None}
        )

    @property
    def at(self) -> tuple[float, float]:
        """The (epsilon, delta) that is compared."""
        if self.mu is not None:
            return epsilon_of(self.mu, _OF_MU), _OF_MU
        assert self.epsilon is not None
        return self.epsilon, self.delta

    @checked
    def is_satisfied_by(self, loss: LossLowerBound) -> bool:
        """Whether a measured loss is within the claim."""
        if self.mu is not None and not loss.pure and not loss.certain and not loss.alone:
            return loss.mu <= self.mu * (1 + TOLERANCE) + 1e-12
        epsilon, delta = self.at
        return loss.epsilon(delta) <= epsilon * (1 + TOLERANCE) + TOLERANCE

    def __str__(self) -> str:
        """Say it."""
        if self.mu is not None:
            return f"mu = {self.mu:g}"
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"


@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class NeighborTestResult:
    """What a replay found; each kind of finding once, with the smallest pair that shows it.

    Args:
        unit, claim: what was claimed.
        findings: ways in which the claim breaks; empty if none was found.
        pairs: how many neighbors were compared.
        seconds: how long it took.
        largest: the largest epsilon, at the claim's delta, of any pair.
        largest_mu: the largest Gaussian part.
        steps: how many steps a run took at most.
        hidden: whether secret randomness was used, so that counts of runs decide.
        attained: of replayed plans, by the public groups of what differed: the largest share of its price
            that a pair took.
    """

    unit: str
    claim: PrivacyClaim
    findings: tuple[Finding, ...]
    pairs: int
    seconds: float
    largest: float
    largest_mu: float
    steps: int
    hidden: bool
    attained: Mapping[str, float] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """Whether the claim was refuted."""
        return bool(self.findings)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of what was found."""
        return tuple(finding.kind for finding in self.findings)

    def __str__(self) -> str:
        """Return the report as text."""
        verdict = "BROKEN" if self.broken else "not refuted"
        effort = f"{self.pairs:,} pairs in {self.seconds:.1f} s"
        head = f"claim: {self.claim} for unit {self.unit}: {verdict} by {effort}"
        measured = f"largest measured: {_measured(self)}; {counted(self.steps, 'noisy step')}"
        return "\n".join([head, measured, *map(str, self.findings), _limits(self)])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "unit": self.unit,
            "claim": asdict(self.claim),
            "broken": self.broken,
            "pairs": self.pairs,
            "seconds": self.seconds,
            "largest_epsilon": None if math.isinf(self.largest) else self.largest,
            "largest_mu": self.largest_mu,
            "hidden_randomness": self.hidden,
            "attained": dict(self.attained),
            "findings": [finding.as_dict() for finding in self.findings],
        }


def _measured(report: NeighborTestResult) -> str:
    epsilon = "everything is told" if math.isinf(report.largest) else f"epsilon {report.largest:.4g}"
    return epsilon + (f", mu {report.largest_mu:.4g}" if report.largest_mu else "")


def _limits(report: NeighborTestResult) -> str:
    if report.hidden:
        return (
            "limits: secret samples were drawn, so a few pairs were judged by counts of runs; a small excess "
            "over the claim, or one on pairs that were not drawn, would not be seen"
        )
    return "limits: only pairs that were drawn, of small graphs, and only what the noise object was told"
