"""The guarantee of a trained object: a frozen record, and the words that go with it.

The wording is fixed: ``docs/guarantees.md``, section 7, gives each sentence and why it says no more.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from graphveil._local_words import exact_sum, local_statement
from graphveil.errors import PrivacyError, UnitError
from graphveil.privacy import wording
from graphveil.privacy.accountant import Curve, NoPrivacyCurve, Total, privacy_curve, total_mu, totals_of
from graphveil.privacy.events import (
    Event,
    Gaussian,
    LocalReport,
    PoissonGaussian,
    compose,
    within_partition,
)
from graphveil.privacy.gaussian import epsilon_of
from graphveil.privacy.unit import (
    DirectedEdge,
    NodeFeatures,
    NodePromise,
    NodeUnit,
    NoUnit,
    Unit,
    parse_unit,
)

Mode = Literal["strict", "paper"]
EdgeUse = Literal["never", "asked", "read"]
Part = Literal["features", "label"]
PARTS: tuple[Part, ...] = ("features", "label")  # of a record that its own node randomises
EDGE_USES: tuple[EdgeUse, ...] = ("never", "asked", "read")  # each one tells more than those before it
FRIENDSHIPS = (10, 100)  # fixed and public: never a measured degree
FALSE_ALARMS = 0.01


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
    replace_one: bool = False
    max_degree: int | None = None
    edge_use: EdgeUse = "asked"
    edge_mu: float | None = None
    received: bool = False

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
        edge_use: EdgeUse = "asked",
        edge_mu: float | None = None,
        received: bool = False,
    ) -> "Guarantee":
        """Account for an event.

        Args:
            unit: what is protected.
            event: what was done, as the unit prices it.
            delta: the delta to account for.
            releases: how many answers about the protected data the event stands for.
            slack: the part of delta that the noise's finite resolution costs.
            mode: strict, or a paper's.
            deviations: why the promise is not kept, if it is not.
            notes: what the statement says besides.
            one_way: False marks rows alone, of equal weights and noise in both directions of an edge.
            edge_use: under node units: whether edges are ``never`` read, ``asked`` through noisy answers
                alone, or also ``read`` where a prediction is made, from its node's own list.
            edge_mu: under ``node-owner``: a bound on the mu of one mutual edge, which stands in two records;
                None if there is no such bound.
            received: under ``node-features``: only reports arrived here, and nobody randomised them here.

        Raises:
            UnitError: a prediction reads edges that the unit protects as somebody else's.

        >>> from graphveil.privacy import ByGroup, Gaussian, NodeOwner, PoissonGaussian
        >>> event = ByGroup("train/val", (PoissonGaussian(2.0, 0.0128, 781), Gaussian(0.2)))
        >>> owner = Guarantee.of(NodeOwner(), event, delta=1e-5, releases=2, edge_mu=0.1)
        >>> figure_up(owner.epsilon), "edge by edge, at eps = 0.3407." in owner.statement()
        ('0.7256', True)
        """
        if isinstance(unit, NodePromise) and edge_use == "read":
            raise UnitError(
                "under unit 'node-promise' an edge belongs to both of its ends, so a prediction that reads "
                "its node's list tells about the others on it; use 'node-owner', or do not read own edges"
            )
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
            not_covered=wording.LIST_NOT_COVERED if edge_use == "read" else unit.not_covered,
            deviations=deviations,
            notes=notes,
            one_way=one_way,
            replace_one=isinstance(unit, NodeUnit) and unit.replace_one,
            max_degree=unit.max_degree if isinstance(unit, NodePromise) else None,
            edge_use=edge_use,
            edge_mu=edge_mu,
            received=received,
        )

    @classmethod
    def together(cls, guarantees: "Sequence[Guarantee]") -> "Guarantee":
        """Return the guarantee of several releases on the same data, everything told about them included.

        Each has groups of its own: two runs have two splits, so a record that trains in one may validate in
        the other, and the worst combination counts. Words and delta are the first one's, deviations are
        everybody's.

        Raises:
            PrivacyError: they protect different units, whose costs do not add up.
        """
        first, slack = guarantees[0], sum(guarantee.slack for guarantee in guarantees)
        if len({guarantee.protected for guarantee in guarantees}) > 1:
            raise PrivacyError("guarantees of different units do not add up: state each on its own")
        numbered = [within_partition(one.event, str(number)) for number, one in enumerate(guarantees)]
        event = compose(*numbered)
        local = isinstance(first.protected, NodeFeatures)  # whose reports have a delta of their own each
        delta = float(exact_sum([guarantee.delta for guarantee in guarantees])) if local else first.delta
        whole = replace(
            first,
            event=event,
            delta=delta,
            slack=slack,
            releases=sum(guarantee.releases for guarantee in guarantees),
            valid=all(guarantee.valid for guarantee in guarantees),
            deviations=tuple(
                dict.fromkeys(word for guarantee in guarantees for word in guarantee.deviations)
            ),
            one_way=any(guarantee.one_way for guarantee in guarantees),
            edge_use=max((guarantee.edge_use for guarantee in guarantees), key=EDGE_USES.index),
            edge_mu=_together(guarantees),
            received=all(guarantee.received for guarantee in guarantees),
        )
        left = delta - slack
        return replace(whole, epsilon=whole.curve.epsilon(left) if left > 0 or slack == 0 else math.inf)

    @classmethod
    def worst_of(cls, guarantees: "Sequence[Guarantee]") -> "Guarantee":
        """Return the guarantee of releases on data sets of which any unit is in one only: the worst of them.

        Words and delta are the first one's, deviations are everybody's, and all releases count. Of records
        that are randomised one by one it is the largest budget of each part: who is in one data set only has
        told no more about its features than the largest sum over one of them, nor about its label.

        Raises:
            PrivacyError: they protect different units, or a record that is in the sums of several data sets.

        >>> from graphveil.privacy import Gaussian, UndirectedEdge
        >>> one, two = (
        ...     Guarantee.of(UndirectedEdge(), Gaussian(mu), delta=1e-7, releases=1) for mu in (0.1, 0.2)
        ... )
        >>> Guarantee.worst_of([one, two]).epsilon == two.epsilon < Guarantee.together([one, two]).epsilon
        True
        """
        first = guarantees[0]
        if len(guarantees) == 1:
            return first
        if isinstance(first.protected, NodeUnit) or len({one.protected for one in guarantees}) > 1:
            raise PrivacyError(
                "only edges of one unit lie in one data set each; what protects records, or different units, "
                "is stated each on its own"
            )
        if isinstance(first.protected, NodeFeatures):
            return _worst_of_reports(guarantees)
        worst = max(guarantees, key=lambda one: one._mu())
        slack = max(one.slack for one in guarantees)
        left = first.delta - slack
        return replace(
            first,
            event=worst.event,
            slack=slack,
            releases=sum(one.releases for one in guarantees),
            epsilon=worst.curve.epsilon(left) if left > 0 else math.inf,
            valid=all(one.valid for one in guarantees),
            deviations=tuple(dict.fromkeys(word for one in guarantees for word in one.deviations)),
            one_way=any(one.one_way for one in guarantees),
        )

    @property
    def protected(self) -> Unit:
        """The unit of protection."""
        return parse_unit(self.unit, replace_one=self.replace_one, max_degree=self.max_degree)

    @property
    def curve(self) -> Curve:
        """The whole privacy curve."""
        return NoPrivacyCurve() if self.unit == NoUnit.name else privacy_curve(self.event)

    @property
    def attacker_rate(self) -> float:
        """The most that any attacker catches (true positives) at 1 % false alarms, for one unit."""
        return min(1.0, self.curve.true_positive_rate(FALSE_ALARMS) + self.slack)

    @property
    def local_budgets(self) -> tuple[float, float] | None:
        """Under ``node-features``: what the reports on one record's features cost, and those on its label."""
        if self.unit != NodeFeatures.name:
            return None
        features, label = (float(exact_sum(self._reported(part))) for part in ("features", "label"))
        return features, label

    @property
    def edge_epsilon(self) -> float | None:
        """Epsilon of one mutual edge under ``node-owner``, None where no figure is proved."""
        if self.edge_use == "never":
            return 0.0
        return None if self.edge_mu is None or self.edge_use == "read" else self._epsilon_at(self.edge_mu)

    @property
    def mutual_epsilon(self) -> float:
        """Epsilon for both stored directions of one friendship: two rows, or worse."""
        return self._epsilon_of_several(2, 2 if self.one_way else math.sqrt(2))

    def with_deviations(self, *more: str) -> "Guarantee":
        """Return the guarantee with further deviations listed, each once; with any it is not valid."""
        listed = tuple(dict.fromkeys((*self.deviations, *more)))
        return replace(self, deviations=listed, valid=self.valid and not listed)

    def repeated(self, runs: int) -> "Guarantee":
        """Return the guarantee of ``runs`` equal releases on the same data together, each of a split."""
        return Guarantee.together([self] * runs)

    def statement(self) -> str:
        """Return the guarantee in words, beginning with its deviations if it has any."""
        parts = self._core()
        parts += [f"Note: {note}." for note in self.notes]
        if self.unit != NoUnit.name:
            parts.append(wording.LOCAL_ADDS_UP if self.local_budgets else wording.ADDS_UP)
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
        } | self._of_records()

    def _of_records(self) -> dict[str, Any]:
        """Return what the record says under units of records only."""
        if self.local_budgets is not None:
            finite = [each if math.isfinite(each) else None for each in self.local_budgets]
            return dict(zip(("eps_x", "eps_y"), finite, strict=True))
        if not isinstance(self.protected, NodeUnit):
            return {}
        edge = self.edge_epsilon
        return {
            "replace_one": self.replace_one,
            "max_degree": self.max_degree,
            "edge_epsilon": edge if edge is not None and math.isfinite(edge) else None,
        }

    def _core(self) -> list[str]:
        unit = self.protected
        if isinstance(unit, NodeUnit):
            return self._core_of_records(unit)
        if isinstance(unit, NodeFeatures):
            deltas = [part.delta for part in self._reports()]
            said = self._reported("features"), self._reported("label")
            return [local_statement(*said, deltas, on_devices=None if self.received else False)]
        if isinstance(unit, NoUnit):
            return [wording.NONE]
        if self.releases == 0:
            return [wording.UNTOUCHED]
        text = wording.DIRECTED if isinstance(unit, DirectedEdge) else wording.UNDIRECTED
        groups = {f"eps_{k}": figure_up(self._group_epsilon(k)) for k in FRIENDSHIPS}
        return [self._filled(text, mutual=figure_up(self.mutual_epsilon), **groups)]

    def _core_of_records(self, unit: NodeUnit) -> list[str]:
        if isinstance(unit, NodePromise):
            text = wording.PROMISE_NEVER if self.edge_use == "never" else wording.PROMISE
            first = [self._filled(text, degree=f"{unit.max_degree}"), wording.PUBLIC]
        else:
            first = [self._filled(wording.OWNER[self.edge_use], edge=self._edge_words())]
        sampled = [] if math.isfinite(self._mu()) else [wording.SAMPLED]
        return [*first, wording.REPLACED if unit.replace_one else wording.NULLED, *sampled]

    def _reports(self) -> list[LocalReport]:
        return [part for part in compose(self.event).events if isinstance(part, LocalReport)]

    def _reported(self, part: str) -> list[float]:
        """Return the budgets of all reports on one part of a record."""
        return [report.epsilon for report in self._reports() if report.part == part]

    def _edge_words(self) -> str:
        edge = self.edge_epsilon
        if edge is None:
            return wording.NO_EDGE_FIGURE
        return wording.EDGE_FIGURE.format(epsilon=figure_up(edge))

    def _filled(self, text: str, **figures: str) -> str:
        return text.format(
            epsilon=figure_up(self.epsilon), delta=f"{self.delta:g}", releases=self.releases, **figures
        )

    def _group_epsilon(self, friendships: int) -> float:
        """Return epsilon for all of one person's k friendships together.

        Shifts add up at worst in length: k mu. Rows of equal weight and noise leave less: k edges meet in one
        row only, and k other rows move by one edge each.

        In sampled steps k edges change k sampled gradients. Their sum with noise z tells no more than each of
        them with noise z / sqrt k of its own, which adds up to z.
        """
        edges = 2 if self.unit == DirectedEdge.name else 1  # stored edges that differ in one friendship
        if self.one_way:
            return self._epsilon_of_several(friendships * edges, friendships * edges)
        longest = math.sqrt(friendships * (friendships + 1) * edges / 2)
        return self._epsilon_of_several(friendships * edges, longest)

    def _epsilon_of_several(self, edges: int, longest: float) -> float:
        """Return epsilon for several edges, whose shifts together are that many times one edge's."""
        (total,) = totals_of(self.event)
        if not total.rest:
            return self._epsilon_at(longest * math.sqrt(total.mu_squared))
        event = compose(Gaussian(longest * math.sqrt(total.mu_squared)), *_repeated(total, edges))
        left = self.delta - self.slack
        return privacy_curve(event).epsilon(left) if left > 0 else math.inf

    def _epsilon_at(self, mu: float) -> float:
        left = self.delta - self.slack
        return epsilon_of(mu, left) if left > 0 else math.inf

    def _mu(self) -> float:
        mu = total_mu(self.event)
        return math.inf if mu is None else mu


def _worst_of_reports(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Return the guarantee of reports of which any person made one data set's only: each part's largest."""
    event = compose(*(report for part in PARTS if (report := _largest(guarantees, part)) is not None))
    delta = float(exact_sum([report.delta for report in event.events if isinstance(report, LocalReport)]))
    return replace(
        guarantees[0],
        event=event,
        epsilon=privacy_curve(event).epsilon(delta),
        delta=delta,
        releases=sum(one.releases for one in guarantees),
        valid=all(one.valid for one in guarantees),
        deviations=tuple(dict.fromkeys(word for one in guarantees for word in one.deviations)),
        received=all(one.received for one in guarantees),
    )


def _largest(guarantees: Sequence[Guarantee], part: Part) -> LocalReport | None:
    """Return the largest sums of epsilon and of delta that one data set has on a part, None for nothing."""
    own = [[report for report in one._reports() if report.part == part] for one in guarantees]
    if not any(own):
        return None
    epsilon = max(exact_sum([report.epsilon for report in reports]) for reports in own)
    delta = max(exact_sum([report.delta for report in reports]) for reports in own)
    return LocalReport(part, float(epsilon), float(delta))


def _repeated(total: Total, edges: int) -> Iterator[Event]:
    """Yield what is no Gaussian, when so many edges differ in it."""
    for part, count in total.rest.items():
        if not isinstance(part, PoissonGaussian):
            yield part
            continue
        noise = part.noise_multiplier / math.sqrt(edges)
        yield replace(part, noise_multiplier=noise, steps=part.steps * count * edges)


def _together(guarantees: Sequence[Guarantee]) -> float | None:
    """Return the mu of one mutual edge over all of these, None if any has no bound."""
    squares = [
        0.0 if guarantee.edge_use == "never" else None if guarantee.edge_mu is None else guarantee.edge_mu**2
        for guarantee in guarantees
    ]
    known = [square for square in squares if square is not None]
    return math.sqrt(sum(known)) if len(known) == len(squares) else None
