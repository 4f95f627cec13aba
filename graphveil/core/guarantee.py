"""The guarantee of a trained object as an immutable object.

Its words are in ``graphveil/privacy/statements.py``, and ``graphveil.privacy`` installs them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.display import Facts
from graphveil._util.figures import (
    exact_sum,
    format_delta,
    format_epsilon_delta,
    format_upper_bound,
    percent_up,
)
from graphveil.core.accounting.accountant import (
    Curve,
    NoPrivacyCurve,
    multi_edge_epsilon,
    privacy_curve,
    total_mu,
)
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.events import (
    ApproximateDP,
    Event,
    OneOf,
    budgets_of,
    cases_of,
    compose,
    ldp_reports_of,
    within_partition,
    without_failures,
    worst_case_ldp_reports,
)
from graphveil.core.unit import (
    DirectedEdge,
    LocalAttributes,
    Node,
    NodeBoundedDegree,
    NodeRecord,
    NodeUnit,
    NoUnit,
    UndirectedEdge,
    Unit,
)
from graphveil.errors import PrivacyError, UnitError

EdgeUse = Literal["never", "queried", "read", "neighbors", "lists"]
EDGE_USES: tuple[EdgeUse, ...] = (
    "never",
    "queried",
    "read",
    "neighbors",  # each reveals more than those before
    "lists",  # of a recommender: edges are items on the lists of users
)

FALSE_POSITIVE_RATE = 0.01


class Words(Protocol):
    """The sentences about a guarantee, which are no part of the core."""

    def covers(self, guarantee: "Guarantee") -> str:
        """Return the protected part of the data."""

    def not_covered(self, guarantee: "Guarantee") -> str:
        """Return the unprotected part of the data."""

    def summary(self, guarantee: "Guarantee") -> str:
        """Return the meaning of a guarantee, for readers who do not know differential privacy."""

    def formal_statement(self, guarantee: "Guarantee") -> str:
        """Return the formal statement of a guarantee."""


@checked
@dataclass(frozen=True, kw_only=True, repr=False)
class Guarantee(Facts):
    """Guarantee of a trained object: the protected unit, the outputs, and what is not covered.

    It is valid unless any step has a known deviation, such as reproducible noise. The guarantee summary then
    begins with the reasons.

    Args:
        protected: Privacy unit.
        event: Event, accounted for under this unit.
        delta: Delta to account for.
        releases: Number of releases in the event; each is one entry of a privacy ledger, for any number of
            queries.
        slack: Part of delta that covers the finite resolution of the noise.
        deviations: Reasons why the guarantee is not valid, if it is not.
        notes: Additional sentences of the guarantee summary.
        linear_group_scaling: False for aggregates alone, of equal weights and noise in both directions of an
            edge.
        edge_use: Under node-level privacy units: ``never`` if no edges are read; ``queried`` if noisy queries
            alone read them; ``read`` if a prediction also reads the node's own list; or ``neighbors`` if it
            also reads their lists, so that only the parameters are covered. Under every unit: ``lists`` if
            edges are items on the lists of users.
        edge_mu: Under ``node-record``: bound on the mu of one mutual edge, which is in two records; None if
            there is no such bound.
        coalition_mu: Under ``node``: mu if a node keeps its edges with people who see their own predictions,
            which may read their own lists; None if there is no such bound.
        received: Under ``local-attributes``: whether only LDP reports arrived here, randomized elsewhere.
        graph: Whether a whole graph was released, from which all other results follow.
        labels_public: Under ``local-attributes``: whether only features are randomized, and labels are
            public.
        additional: Guarantees for other units or data, which are never added to this one.

    Raises:
        ConfigError: If delta or the slack is outside [0, 1].
        UnitError: If a prediction reads edges that the unit protects as part of other records.

    Privacy:
        Computed from events and public parameters alone. Charges: nothing. All fields are public.

    >>> from graphveil.privacy import Gaussian, UndirectedEdge
    >>> g = Guarantee.from_event(UndirectedEdge(), Gaussian(0.21373627), delta=1e-7, releases=1)
    >>> round(g.epsilon, 3), round(g.max_tpr(), 4)
    (1.0, 0.0173)
    >>> g
    Guarantee(unit='undirected-edge', epsilon=1, delta=1e-07, releases=1)
    """

    protected: Unit
    event: Event
    delta: float
    releases: int
    slack: float = 0.0
    deviations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    linear_group_scaling: bool = True
    edge_use: EdgeUse = "queried"
    edge_mu: float | None = None
    coalition_mu: float | None = None
    received: bool = False
    graph: bool = False
    labels_public: bool = False
    additional: "tuple[Guarantee, ...]" = ()
    words: ClassVar[Words]  # ``graphveil.privacy`` sets it

    def __post_init__(self) -> None:
        unit = self.protected
        checks.within(0, 1, delta=self.delta, slack=self.slack)
        if isinstance(unit, NodeBoundedDegree) and self.edge_use == "read":
            raise UnitError(
                "Under unit 'node-bounded-degree' both ends of an edge own it, so a prediction from a "
                "node's own edges depends on other nodes' records. Use unit 'node-record', or "
                "read_own_edges=False."
            )
        if self.edge_use == "lists" and not isinstance(unit, NodeRecord | DirectedEdge):
            raise UnitError(
                f"unit {unit.name!r} does not protect item lists. Use unit 'node-record' or 'directed-edge'."
            )
        _ = self.epsilon  # which rejects an event without accounting

    @classmethod
    @checked
    def from_event(cls, unit: Unit, event: Event, **details: Any) -> "Guarantee":
        """Account for an event.

        Args:
            unit: Privacy unit.
            event: Event, accounted for under this unit.
            details: Other fields of the guarantee; ``delta`` and ``releases`` are required.

        Returns:
            The guarantee.

        >>> from graphveil.privacy import ByGroup, Gaussian, NodeRecord, PoissonGaussian
        >>> from graphveil._util.figures import format_upper_bound, percent_up
        >>> event = ByGroup("train/val", (PoissonGaussian(2.0, 0.0128, 781), Gaussian(0.2)))
        >>> owner = Guarantee.from_event(NodeRecord(), event, delta=1e-5, releases=2, edge_mu=0.1)
        >>> format_upper_bound(owner.epsilon), "edge by edge, at eps = 0.3407." in owner.formal_statement()
        ('0.7256', True)
        """
        return cls(protected=unit, event=event, **details)

    @classmethod
    def compose(cls, guarantees: "Sequence[Guarantee]") -> "Guarantee":
        """Compose several releases on the same data, including all LDP reports on them.

        Each release has its own groups. Two runs have two splits, so a record that trains in one may validate
        in the other, and the worst combination counts. Wording and delta are those of the first guarantee;
        deviations are those of all.

        Args:
            guarantees: Guarantees under one privacy unit.

        Returns:
            The guarantee of all of them together.

        Raises:
            PrivacyError: If they protect different units, whose costs do not add up.
        """
        if len({(guarantee.protected, guarantee.edge_use == "lists") for guarantee in guarantees}) > 1:
            raise PrivacyError(
                "Guarantees of different privacy units cannot be added. State each one separately."
            )
        first = guarantees[0]
        # Two runs have two splits: their groups must not be taken for the same.
        numbered = [within_partition(one.event, str(number)) for number, one in enumerate(guarantees)]
        event = compose(*numbered)
        local = isinstance(first.protected, LocalAttributes)  # whose reports have a delta of their own each
        delta = float(exact_sum([guarantee.delta for guarantee in guarantees])) if local else first.delta
        # The mu of one mutual edge over all of these: None if any has no bound.
        squares = [
            0.0 if one.edge_use == "never" else None if one.edge_mu is None else one.edge_mu**2
            for one in guarantees
        ]
        known = [square for square in squares if square is not None]
        coalitions = [one.coalition_mu for one in guarantees if one.coalition_mu is not None]
        return replace(
            first,
            **_common(guarantees),
            event=event,
            delta=delta,
            slack=sum(guarantee.slack for guarantee in guarantees),
            edge_use=max((guarantee.edge_use for guarantee in guarantees), key=EDGE_USES.index),
            edge_mu=math.sqrt(sum(known)) if len(known) == len(squares) else None,
            coalition_mu=math.hypot(*coalitions) if len(coalitions) == len(guarantees) else None,
        )

    @classmethod
    def compose_parallel(cls, guarantees: "Sequence[Guarantee]") -> "Guarantee":
        """Compose releases on datasets of which any unit is in one only: the worst of them.

        Each release has its own curve, and the worst at each point counts. An edge with many sampled steps
        may be worse at one delta, and one with a large mu at another. Wording and delta are those of the
        first guarantee, deviations are those of all, and all releases count. For locally randomized records
        the result is the largest budget of each part: reports of a person in one dataset depend on its
        features no more than the largest sum over one dataset, and likewise for its label. Additional
        guarantees still add up, because disjoint edges do not imply disjoint people.

        Args:
            guarantees: Guarantees under one privacy unit.

        Returns:
            The guarantee of all of them together.

        Raises:
            PrivacyError: If they protect different units, or a record that is in the sums of several
                datasets.

        >>> from graphveil.privacy import Gaussian, UndirectedEdge
        >>> one, two = (
        ...     Guarantee.from_event(UndirectedEdge(), Gaussian(mu), delta=1e-7, releases=1)
        ...     for mu in (0.1, 0.2)
        ... )
        >>> Guarantee.compose_parallel([one, two]).epsilon == two.epsilon < Guarantee.compose([one,
        ...     two]).epsilon
        True
        """
        first = guarantees[0]
        if len(guarantees) == 1:
            return first
        if isinstance(first.protected, NodeUnit) or len({one.protected for one in guarantees}) > 1:
            raise PrivacyError(
                "Releases on disjoint edges can be combined only if all have the same edge-level unit. "
                "State guarantees of node-level or different units separately."
            )
        if isinstance(first.protected, LocalAttributes):
            reports = worst_case_ldp_reports([one.event for one in guarantees])
            delta = float(exact_sum([report.delta for report in ldp_reports_of(reports)]))
            return replace(first, **_common(guarantees), event=reports, delta=delta)
        cases, slack = OneOf(tuple(one.event for one in guarantees)), max(one.slack for one in guarantees)
        return replace(first, **_common(guarantees), event=cases, slack=slack)

    @property
    def unit(self) -> str:
        """Name of the privacy unit."""
        return self.protected.name

    @property
    def replace_one(self) -> bool:
        """Whether neighboring datasets replace a record."""
        return isinstance(self.protected, NodeUnit) and self.protected.replace_one

    @property
    def max_degree(self) -> int | None:
        """Maximum degree that the data owner asserts."""
        return self.protected.max_degree if isinstance(self.protected, NodeBoundedDegree) else None

    @property
    def valid(self) -> bool:
        """Whether there is a guarantee: unit ``none`` has none, and deviations invalidate any."""
        return not self.deviations and self.unit != NoUnit.name

    @cached_property
    def epsilon(self) -> float:
        """Epsilon at ``delta``; infinity if the slack is all of it."""
        return self.curve.epsilon(self._left) if self._left > 0 or self.slack == 0 else math.inf

    @property
    def curve(self) -> Curve:
        """The privacy curve."""
        return NoPrivacyCurve() if isinstance(self.protected, NoUnit) else privacy_curve(self.event)

    @property
    def covers(self) -> str:
        """Protected part of the data, as text."""
        return self.words.covers(self)

    @property
    def not_covered(self) -> str:
        """Unprotected part of the data, as text."""
        return self.words.not_covered(self)

    def max_tpr(self, fpr: float = FALSE_POSITIVE_RATE) -> float:
        """Return the attack bound: the largest true-positive rate of any attacker at a false-positive rate.

        Args:
            fpr: The false-positive rate, between 0 and 1.

        Returns:
            The bound for one unit of protection, as a fraction. Its assumptions are those of the guarantee.

        Raises:
            ConfigError: If ``fpr`` is outside [0, 1].

        Privacy:
            Reads: the guarantee alone. Charges: nothing.

        Example:
            >>> from graphveil.privacy import Gaussian, UndirectedEdge
            >>> g = Guarantee.from_event(UndirectedEdge(), Gaussian(0.2), delta=1e-7, releases=1)
            >>> round(g.max_tpr(), 4), round(g.max_tpr(fpr=0.1), 3)
            (0.0167, 0.14)
        """
        checks.within(0, 1, fpr=fpr)
        return min(1.0, self.curve.tpr(fpr) + self.slack)

    @property
    def local_budgets(self) -> tuple[float, float] | None:
        """Under ``local-attributes``: epsilon of the LDP reports on features, and of those on the label."""
        if self.unit != LocalAttributes.name:
            return None
        features, label = budgets_of(self.event, "features"), budgets_of(self.event, "label")
        label = [math.inf] if self.labels_public else label
        return float(exact_sum(features)), float(exact_sum(label))

    @property
    def edge_epsilon(self) -> float | None:
        """Epsilon of one mutual edge under ``node-record``, None if no number is proved."""
        if self.edge_use == "never":
            return 0.0
        if self.edge_mu is None or self.edge_use in ("read", "neighbors", "lists"):
            return None
        return epsilon_of(self.edge_mu, self._left) if self._left > 0 else math.inf

    @property
    def coalition_epsilon(self) -> float | None:
        """Epsilon under ``node`` against people who see their own predictions, None without a bound."""
        left = self._left - self.additive_delta
        if self.coalition_mu is None:
            return None
        if self.edge_use != "read":  # predictions are covered, and no edge has to be known
            return self.epsilon
        return epsilon_of(self.coalition_mu, left) if left > 0 else math.inf

    @property
    def covers_predictions(self) -> bool:
        """Whether predictions for other nodes are covered: under ``node`` not those that read own lists."""
        return self.unit != Node.name or self.edge_use != "read"

    @property
    def mutual_epsilon(self) -> float:
        """Epsilon for both stored directions of one edge: two aggregates, or a larger change."""
        return multi_edge_epsilon(self.event, 2, 2 if self.linear_group_scaling else math.sqrt(2), self._left)

    @checked
    def group_epsilon(self, num_edges: int) -> float:
        """Return epsilon, under edge-level privacy units, for several edges together (group privacy).

        In the worst case the shifts of k edges add up in length: k mu. Aggregates of equal weight and noise
        (``linear_group_scaling`` False) give less: k edges meet in one aggregate only, and k other aggregates
        change by one edge each.

        Args:
            num_edges: Number of edges of one person.

        Returns:
            Epsilon at the delta of the guarantee; infinity if no bound is proved.

        Raises:
            UnitError: If the privacy unit is not edge-level.

        >>> from graphveil.privacy import Gaussian, UndirectedEdge
        >>> g = Guarantee.from_event(UndirectedEdge(), Gaussian(0.21373627), delta=1e-7, releases=1)
        >>> round(g.group_epsilon(10), 3)
        12.892
        """
        checks.integer_at_least(1, num_edges=num_edges)
        if not isinstance(self.protected, UndirectedEdge | DirectedEdge):
            raise UnitError(
                f"unit {self.unit!r} has no guarantee for several edges. The guarantee of a whole record "
                "is epsilon."
            )
        edges = num_edges * (2 if self.unit == DirectedEdge.name else 1)  # a mutual edge is stored twice
        squared = edges**2 if self.linear_group_scaling else edges * (num_edges + 1) / 2
        return multi_edge_epsilon(self.event, edges, math.sqrt(squared), self._left)

    def with_deviations(self, *more: str) -> "Guarantee":
        """Return the guarantee with further deviations, each once; with any it is not valid.

        Args:
            more: Reasons why the guarantee is not valid.

        Returns:
            The new guarantee.
        """
        return replace(self, deviations=tuple(dict.fromkeys((*self.deviations, *more))))

    def with_additional(self, *others: "Guarantee") -> "Guarantee":
        """Return the guarantee with additional ones for other units or data.

        Args:
            others: Guarantees, which are never added to this one.

        Returns:
            The new guarantee.
        """
        return replace(self, additional=others)

    def invalidated_by(self, other: "Guarantee") -> "Guarantee":
        """Return the guarantee with the deviations of another one that it depends on.

        Args:
            other: Guarantee with as many additional ones.

        Returns:
            The new guarantee, with deviations part by part.
        """
        pairs = zip(self.additional, other.additional, strict=True)
        additional = tuple(own.with_deviations(*others.deviations) for own, others in pairs)
        return replace(self.with_deviations(*other.deviations), additional=additional)

    def with_deviations_everywhere(self, *more: str) -> "Guarantee":
        """Return the guarantee with further deviations of all of its parts.

        Args:
            more: Reasons why the guarantees are not valid.

        Returns:
            The new guarantee.
        """
        additional = tuple(one.with_deviations(*more) for one in self.additional)
        return replace(self.with_deviations(*more), additional=additional)

    @property
    def violated(self) -> bool:
        """Whether it has deviations; unit ``none`` guarantees nothing that could be violated."""
        return not self.valid and self.unit != NoUnit.name

    @property
    def all_valid(self) -> bool:
        """Whether this guarantee and all additional ones are valid."""
        return self.valid and all(one.valid for one in self.additional)

    @checked
    def repeated(self, runs: int) -> "Guarantee":
        """Return the guarantee of equal releases on the same data, each with its own split.

        Args:
            runs: Number of releases.

        Returns:
            The guarantee of all of them together.

        Raises:
            ConfigError: If ``runs`` is below 1.
        """
        checks.integer_at_least(1, runs=runs)
        return Guarantee.compose([self] * runs)

    def __repr__(self) -> str:
        parts = [
            f"unit={self.unit!r}",
            f"epsilon={format_upper_bound(self.epsilon)}",
            f"delta={format_delta(self.delta)}",
            f"releases={self.releases}",
            *(["valid=False"] if not self.valid else []),
            *(f"additional {one!r}" for one in self.additional),
        ]
        return f"Guarantee({', '.join(parts)})"

    def facts(self) -> list[tuple[str, str]]:
        """Return the guarantee as names and values, those of additional guarantees last."""
        bound = f"true-positive rate at 1 % false positives: at most {percent_up(self.max_tpr())} %"
        if self.unit == NoUnit.name:
            return [("privacy unit", "none: nothing is protected")]
        rows = [
            ("privacy unit", f"{self.unit}: protects {self.covers}"),
            ("privacy loss", format_epsilon_delta(self.epsilon, self.delta)),
            ("releases", str(self.releases)),
            ("attack bound", bound),
            *(("no valid guarantee", deviation) for deviation in self.deviations),
        ]
        return [*rows, *(row for one in self.additional for row in one.facts())]

    def summary(self) -> str:
        """Return the meaning of the guarantee, for readers who do not know differential privacy.

        Returns:
            Text with the attack bound and its assumptions.

        Example:
            >>> from graphveil.privacy import Gaussian, UndirectedEdge
            >>> invalid = Guarantee.from_event(
            ...     UndirectedEdge(), Gaussian(1.0), delta=1e-5, releases=1, deviations=("a flaw",)
            ... )
            >>> invalid.summary().startswith("No valid guarantee")
            True
        """
        return self.words.summary(self)

    def formal_statement(self) -> str:
        """Return the formal statement, which begins with the deviations if there are any.

        Returns:
            Text that lists the unit, epsilon, delta, and what is not covered.
        """
        return self.words.formal_statement(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the guarantee as JSON values, without the internals of the event.

        Returns:
            JSON object.
        """
        plain: dict[str, Any] = {
            "valid": self.valid,
            "unit": self.unit,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "mu": total_mu(without_failures(self.event)),
            "releases": self.releases,
            "mode": "strict",  # files of earlier versions have it
            "covers": self.covers,
            "not_covered": self.not_covered,
            "deviations": list(self.deviations),
            "notes": list(self.notes),
            "max_tpr_at_1pct_fpr": self.max_tpr(),
            "statement": self.formal_statement(),
        }
        if self.additional:
            plain["additional"] = [one.as_dict() for one in self.additional]
        if self.local_budgets is not None:
            finite = [each if math.isfinite(each) else None for each in self.local_budgets]
            names = ("eps_x",) if self.labels_public else ("eps_x", "eps_y")
            plain |= dict(zip(names, finite, strict=False))
        elif isinstance(self.protected, NodeUnit):
            edge = self.edge_epsilon
            plain |= {
                "replace_one": self.replace_one,
                "max_degree": self.max_degree,
                "edge_epsilon": edge if edge is not None and math.isfinite(edge) else None,
                **({} if self.coalition_mu is None else {"coalition_epsilon": self.coalition_epsilon}),
            }
        return plain

    @property
    def additive_delta(self) -> float:
        """The part of delta that adds up with that of others, however large epsilon is."""
        cases = (case.events for case in cases_of(self.event))
        return max(
            (sum(part.delta for part in parts if isinstance(part, ApproximateDP)) for parts in cases),
            default=0.0,
        )

    @property
    def _left(self) -> float:
        """The part of delta that the slack leaves."""
        return self.delta - self.slack


def _common(guarantees: Sequence[Guarantee]) -> dict[str, Any]:
    """Return what several guarantees have together, for any composition."""
    kinds = zip(*(one.additional for one in guarantees), strict=True)
    return {
        "releases": sum(one.releases for one in guarantees),
        "deviations": tuple(dict.fromkeys(word for one in guarantees for word in one.deviations)),
        "linear_group_scaling": any(one.linear_group_scaling for one in guarantees),
        "received": all(one.received for one in guarantees),
        "graph": all(one.graph for one in guarantees),
        "additional": tuple(Guarantee.compose(kind) for kind in kinds),
    }
