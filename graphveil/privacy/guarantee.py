"""The guarantee of a trained object: a frozen record, and the words that go with it.

The wording is fixed: ``docs/guarantees.md``, section 7, gives each sentence and why it says no more.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from graphveil.privacy.accountant import Curve, NoPrivacyCurve, privacy_curve, stand_alone, total_mu
from graphveil.privacy.events import Event, compose
from graphveil.privacy.gaussian import epsilon_of
from graphveil.privacy.unit import DirectedEdge, NoUnit, Unit

Mode = Literal["strict", "paper"]
FRIENDSHIPS = (10, 100)  # fixed and public: never a measured degree
FALSE_ALARMS = 0.01

_UNDIRECTED = (
    "Node identities, features and labels are treated as public. For any two graphs that differ in one "
    "undirected edge, all outputs of this object (noisy aggregates, trained weights, predictions for every "
    "node, and scores computed from them) are ({epsilon}, {delta})-indistinguishable. This covers {releases} "
    "release(s) recorded in the ledger. It does not hide whether a person is in the data, their features or "
    "their labels; a person with k friendships is protected as a whole only at eps_k: {eps_10} for k=10, "
    "{eps_100} for k=100."
)
_DIRECTED = (
    "Node identities, features and labels are treated as public. For any two graphs that differ in one "
    "stored directed edge, all outputs of this object (noisy aggregates, trained weights, predictions for "
    "every node, and scores computed from them) are ({epsilon}, {delta})-indistinguishable. This covers "
    "{releases} release(s) recorded in the ledger. It does not hide whether a person is in the data, their "
    "features or their labels; a person with k friendships is protected as a whole only at eps_k: {eps_10} "
    "for k=10, {eps_100} for k=100. A mutual edge is two stored edges and is protected at eps = {mutual}."
)
_UNTOUCHED = (
    "The edges were never read: nothing that this object gives out depends on them. Node identities, "
    "features and labels are treated as public and are not protected."
)
_NONE = "No privacy: this object was computed from the raw graph, and anything it gives out may reveal it."
_ADDS_UP = "Other runs on the same data add up: r equal releases have mu sqrt(r)."


def figure_up(value: float, digits: int = 4) -> str:
    """Return an epsilon (or a mu) with so many digits, rounded up: what is printed as a bound has to be one.

    >>> figure_up(5.99201), figure_up(4.0), figure_up(0.1 + 0.2)
    ('5.993', '4', '0.3')
    """
    nearest = float(f"{value:.{digits}g}")
    if nearest < value * (1 - 1e-9):  # an excess that small is a figure's own rounding
        nearest += 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{nearest:.{digits}g}"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What a trained object promises, to whom, and what it does not.

    ``valid`` is False in paper mode, with reproducible noise, or when any step has a known deviation; the
    statement then says so first.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> g = Guarantee.of(UndirectedEdge(), Gaussian(0.21373627), delta=1e-7, releases=1)
    >>> round(g.epsilon, 3), round(g.attacker_rate, 4)
    (1.0, 0.0173)
    """

    unit: str
    epsilon: float
    delta: float
    releases: int
    event: Event
    slack: float = 0.0
    valid: bool = True
    mode: Mode = "strict"
    covers: str = ""
    not_covered: str = ""
    deviations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    one_way: bool = True

    @classmethod
    def of(
        cls,
        unit: Unit,
        event: Event,
        *,
        delta: float,
        releases: int,
        slack: float = 0.0,
        mode: Mode = "strict",
        deviations: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        one_way: bool = True,
    ) -> "Guarantee":
        """Account for an event.

        ``slack`` is the part of delta that the noise's finite resolution costs; ``one_way`` False marks rows
        alone, of equal weights and noise in both directions of an edge.
        """
        curve: Curve = NoPrivacyCurve() if isinstance(unit, NoUnit) else privacy_curve(event)
        return cls(
            unit=unit.name,
            epsilon=curve.epsilon(delta - slack),
            delta=delta,
            releases=releases,
            event=event,
            slack=slack,
            valid=not deviations and not isinstance(unit, NoUnit),
            mode=mode,
            covers=unit.covers,
            not_covered=unit.not_covered,
            deviations=deviations,
            notes=notes,
            one_way=one_way,
        )

    @property
    def curve(self) -> Curve:
        """The whole privacy curve."""
        return NoPrivacyCurve() if self.unit == NoUnit.name else privacy_curve(self.event)

    @property
    def attacker_rate(self) -> float:
        """The most that any attacker catches (true positives) at 1 % false alarms, for one unit."""
        return min(1.0, self.curve.true_positive_rate(FALSE_ALARMS) + self.slack)

    def repeated(self, runs: int) -> "Guarantee":
        """Return the guarantee of ``runs`` equal releases on the same data together, each of a split."""
        event, slack = compose(*[stand_alone(self.event)] * runs), self.slack * runs
        curve = NoPrivacyCurve() if self.unit == NoUnit.name else privacy_curve(event)
        left = self.delta - slack
        return replace(
            self,
            event=event,
            slack=slack,
            epsilon=curve.epsilon(left) if left > 0 or slack == 0 else math.inf,
            releases=self.releases * runs,
        )

    def statement(self) -> str:
        """Return the guarantee in words, beginning with its deviations if it has any."""
        parts = [self._core()]
        parts += [f"Note: {note}." for note in self.notes]
        if self.unit != NoUnit.name:
            parts.append(_ADDS_UP)
        if self.deviations:
            listed = "; ".join(self.deviations)
            parts.insert(
                0, f"NOT A VALID GUARANTEE ({self.mode} mode). Known deviations: {listed}. It would read:"
            )
        return " ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON values, without the event's internals."""
        return {
            "valid": self.valid,
            "unit": self.unit,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "mu": total_mu(self.event),
            "releases": self.releases,
            "mode": self.mode,
            "covers": self.covers,
            "not_covered": self.not_covered,
            "deviations": list(self.deviations),
            "notes": list(self.notes),
            "tpr_at_1pct_fpr": self.attacker_rate,
            "statement": self.statement(),
        }

    def _core(self) -> str:
        if self.unit == NoUnit.name:
            return _NONE
        if self.releases == 0:
            return _UNTOUCHED
        text = _DIRECTED if self.unit == DirectedEdge.name else _UNDIRECTED
        groups = {f"eps_{k}": figure_up(self._group_epsilon(k)) for k in FRIENDSHIPS}
        return text.format(
            epsilon=figure_up(self.epsilon),
            delta=f"{self.delta:g}",
            releases=self.releases,
            mutual=figure_up(self._mutual_epsilon()),
            **groups,
        )

    def _group_epsilon(self, friendships: int) -> float:
        """Return epsilon for all of one person's k friendships together.

        Shifts add up at worst in length: k mu. Rows of equal weight and noise leave less: k edges meet in one
        row only, and k other rows move by one edge each.
        """
        edges = 2 if self.unit == DirectedEdge.name else 1  # stored edges that differ in one friendship
        if self.one_way:
            return self._epsilon_at(self._mu() * friendships * edges)
        return self._epsilon_at(self._mu() * math.sqrt(friendships * (friendships + 1) * edges / 2))

    def _mutual_epsilon(self) -> float:
        """Return epsilon for both stored directions of one friendship: two rows, or worse."""
        return self._epsilon_at(self._mu() * (2 if self.one_way else math.sqrt(2)))

    def _epsilon_at(self, mu: float) -> float:
        left = self.delta - self.slack
        return epsilon_of(mu, left) if left > 0 else math.inf

    def _mu(self) -> float:
        mu = total_mu(self.event)
        return math.inf if mu is None else mu
