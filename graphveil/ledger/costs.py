"""Spent budget and limits of a dataset, stored in constant size for any number of releases.

Gaussian releases add up in mu squared, and equal ones of any other kind are counted. Both sums are exact
fractions, never floats that are compared with floats. A number that was given as a decimal counts as that
decimal, so that 0.0245 fits into 0.0245 and three times 0.1 into 0.3.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, cast

from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import check_proved_delta
from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Event,
    Gaussian,
    LocalReport,
    NonPrivate,
    OneOf,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    compose,
)
from graphveil.core.ledger import Entry
from graphveil.errors import ConfigError
from graphveil.privacy.serialization import events_from_plain, events_to_plain

_HALVINGS = 80  # of a release, until it fits or counts as zero
_SEARCHES = 12  # halvings between the largest release that was seen to fit and twice as much
_FEW_SEARCHES = 6  # of kinds that take long to compose: their room is short by up to a percent
_MAX_RELEASES = 10**7  # of one kind in an account
_LARGEST = float(1 << 40)  # size of a release that is searched for
_Bounded = PureDP | ApproximateDP | LocalReport  # events whose epsilons add up


def exact(figure: float | str | Decimal) -> Fraction:
    """Return a number as the decimal that it is written as.

    Args:
        figure: Number, or its decimal text.

    >>> exact(0.1) * 3 == exact(0.3), exact("0.0245") == exact(0.0245)
    (True, True)
    """
    return Fraction(Decimal(repr(float(figure)) if isinstance(figure, float) else figure))


@dataclass(frozen=True)
class Limit:
    """Largest allowed epsilon and its delta, as decimals that are stored unchanged.

    Args:
        epsilon: Largest allowed epsilon.
        delta: Delta at which epsilon is computed.
    """

    epsilon: Decimal
    delta: Decimal

    def as_dict(self) -> dict[str, float]:
        """Return the limit as JSON numbers."""
        return {"epsilon": float(self.epsilon), "delta": float(self.delta)}


@dataclass(frozen=True)
class PrivacyCost:
    """A composition of releases: mu squared of the Gaussian ones, and counts of all other kinds.

    Args:
        mu_squared: Sum over all Gaussian releases.
        slack: Part of delta that covers the finite resolution of noise.
        others: Each non-Gaussian event, as canonical JSON, and its count.

    >>> from graphveil.core.events import PureDP
    >>> third = PrivacyCost.from_entry(Entry("a", "rows", PureDP(0.1)))
    >>> PrivacyCost().plus(third, 3).fits(Limit(Decimal("0.3"), Decimal(0)))
    True
    """

    mu_squared: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    others: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_entry(cls, entry: Entry) -> "PrivacyCost":
        """Return the privacy cost of one release.

        Args:
            entry: Recorded release.
        """
        parts = compose(entry.event).events
        squares = (Fraction(part.mu) ** 2 for part in parts if isinstance(part, Gaussian))
        others = Counter(_kind(part) for part in parts if not isinstance(part, Gaussian))
        return cls(sum(squares, Fraction(0)), exact(float(entry.slack)), dict(others))

    def plus(self, other: "PrivacyCost", copies: int = 1) -> "PrivacyCost":
        """Add copies of another cost.

        Args:
            other: Cost to add.
            copies: Number of copies.

        Returns:
            The sum.
        """
        others = dict(self.others)
        for kind, count in other.others.items():
            others[kind] = others.get(kind, 0) + copies * count
        return PrivacyCost(
            self.mu_squared + copies * other.mu_squared, self.slack + copies * other.slack, others
        )

    def minus(self, other: "PrivacyCost") -> "PrivacyCost":
        """Subtract the cost of a refunded release, which never drew noise.

        Args:
            other: Cost of the release.

        Returns:
            The remaining cost.
        """
        left = self.plus(other, -1)
        return replace(left, others={kind: count for kind, count in left.others.items() if count})

    def fits(self, limit: Limit) -> bool:
        """Return whether the total is within a limit.

        An additive bound decides if it can. Otherwise a cached composition of slightly more than the total,
        at a slightly smaller delta, decides; it is valid for many entries. The exact total is composed only
        close to the limit.

        Args:
            limit: Limit to compare with.
        """
        left = exact(limit.delta) - self.slack
        if left < 0:
            return False
        if self.fits_basic_composition(limit):
            return True
        epsilon = exact(limit.epsilon)
        # Squares and counts, each rounded up to four bits, change a few times in a doubling.
        counts = sorted((kind, math.ceil(_rounded(Fraction(n), up=True))) for kind, n in self.others.items())
        larger = _epsilon_of_larger(
            _rounded(self.mu_squared, up=True), tuple(counts), _rounded(left, up=False)
        )
        return larger <= epsilon or self._composed(left) <= epsilon

    def fits_basic_composition(self, limit: Limit) -> bool:
        """Return whether the sum of all epsilons is within a limit, which takes no time.

        Args:
            limit: Limit to compare with.
        """
        left = exact(limit.delta) - self.slack
        return left >= 0 and self._sum_of_epsilons(left) <= exact(limit.epsilon)

    def epsilon(self, delta: Decimal | float) -> float:
        """Return the smallest epsilon of the total at a delta.

        Args:
            delta: Delta of the guarantee.
        """
        left = exact(delta) - self.slack
        if left not in self._known:
            found = min(self._sum_of_epsilons(left), self._composed(left)) if left >= 0 else math.inf
            self._known[left] = float(found)
        return self._known[left]

    def remaining_epsilon(self, limit: Limit, like: Entry | None = None) -> float:
        """Return an epsilon, at the delta of the limit, of a release that still fits.

        The release is composed with the total by the same rule that admits it, so a release with this epsilon
        is admitted. It is the largest such epsilon, up to four digits.

        Args:
            limit: Limit of the account.
            like: Release whose noise is scaled until it fits. Without one, the release has pure ε-DP if all
                recorded epsilons add up, and is Gaussian otherwise.
        """
        one = _PURE if self._has_pure_epsilon and not self.mu_squared else _MU
        if like is not None:
            one = PrivacyCost.from_entry(like)
        if one._has_pure_epsilon and not one.mu_squared:
            return self._remaining_bounded_epsilon(limit, one)
        share = self._largest(one._scaled, limit, start=1.0, slow=not one._has_pure_epsilon)
        return _round_down(one._scaled(share).epsilon(limit.delta)) if share else 0.0

    def _remaining_bounded_epsilon(self, limit: Limit, one: "PrivacyCost") -> float:
        lost = sum(getattr(_parsed(kind), "delta", 0.0) * n for kind, n in one.others.items())
        pure = all(isinstance(_parsed(kind), PureDP) for kind in one.others)

        def bounded(epsilon: float) -> PrivacyCost:
            event = PureDP(epsilon) if pure else ApproximateDP(epsilon, min(lost, 1.0))
            return PrivacyCost(Fraction(0), one.slack, {_kind(event): 1})

        left = exact(limit.delta) - self.slack - one.slack - exact(lost)
        spent = self._sum_of_epsilons(left)
        rest = float(exact(limit.epsilon) - spent) if left >= 0 and spent <= limit.epsilon else 0.0
        if rest and not self.plus(bounded(rest)).fits(limit):  # its last digit was rounded up
            rest = _round_down(rest)
        if not pure and not self.mu_squared and self._has_pure_epsilon:
            return rest
        found = self._largest(bounded, limit, start=rest or float(limit.epsilon))
        near = [float(f"{found:.4g}"), _round_down(found)]
        return max(rest, next((one for one in near if one and self.plus(bounded(one)).fits(limit)), 0.0))

    def _largest(
        self, release: Callable[[float], "PrivacyCost"], limit: Limit, start: float, *, slow: bool = False
    ) -> float:
        """Return nearly the largest size of a release that fits, from a size to begin with; 0 for none."""

        def fits(size: float) -> bool:
            return self.plus(release(size)).fits(limit)

        low = start
        if not low:
            return 0.0
        if fits(low):
            while low < _LARGEST and fits(2 * low):
                low *= 2
        else:
            halved = (start / 2**n for n in range(1, _HALVINGS))
            low = next((size for size in halved if fits(size)), 0.0) if fits(0.0) else 0.0
        high = 2 * low
        for _ in range((_FEW_SEARCHES if slow else _SEARCHES) if low else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _scaled(self, share: float) -> "PrivacyCost":
        """Return releases of the same kinds, each with its noise divided by this share."""
        scaled, others = Fraction(share) ** 2 * self.mu_squared, dict[str, int]()
        for kind, count in self.others.items():
            for part in compose(_scale_loss(_parsed(kind), share)).events:
                others[_kind(part)] = others.get(_kind(part), 0) + count
        return PrivacyCost(scaled, self.slack, others)

    def as_plain(self) -> dict[str, Any]:
        """Return the total as plain JSON values; fractions are text."""
        return {"mu_squared": str(self.mu_squared), "slack": str(self.slack), "others": dict(self.others)}

    @classmethod
    def from_plain(cls, record: Mapping[str, Any]) -> "PrivacyCost":
        """Return the cost that ``as_plain`` wrote.

        Args:
            record: JSON values.

        Raises:
            ValueError: If a ledger did not write the values.
        """
        others = dict[str, int]()
        for kind, count in dict(record["others"]).items():
            # Numbers are compared as numbers: totals from before events stored floats contain whole ones.
            canonical = _kind(_parsed(kind))
            if json.loads(canonical) != json.loads(kind) or type(count) is not int or count < 1:
                raise ValueError("a total can count single events only")
            others[canonical] = others.get(canonical, 0) + count
        found = cls(Fraction(record["mu_squared"]), Fraction(record["slack"]), others)
        sums = all(0 <= float(each) < math.inf for each in (found.mu_squared, found.slack))
        if not sums or any(count > _MAX_RELEASES for count in others.values()):
            raise ValueError("a total must consist of sums and counts of events")
        return found

    @cached_property
    def event(self) -> Event:
        """All releases as one event of the same cost."""
        mu = math.sqrt(self.mu_squared)
        parts: list[Event] = [Gaussian(mu)] if mu else []
        others = [part for kind, n in self.others.items() for part in _repeated(_parsed(kind), n)]
        reports_alone = not parts and all(isinstance(part, LocalReport) for part in others)
        for part in others:
            # An LDP report does not compose with events of other kinds; these cost the same.
            if reports_alone or not isinstance(part, LocalReport):
                parts.append(part)
            elif part.epsilon < math.inf:
                parts.append(ApproximateDP(part.epsilon, part.delta))
            else:
                parts.append(NonPrivate())
        return compose(*parts)

    @cached_property
    def _known(self) -> dict[Fraction, float]:
        """Results of ``epsilon`` by what was left of delta: to compose many kinds takes seconds."""
        return {}

    @property
    def _has_pure_epsilon(self) -> bool:
        """Whether all of it, or all but Gaussian releases, has a finite epsilon at delta 0."""
        return all(isinstance(_parsed(kind), _Bounded) for kind in self.others)

    def _sum_of_epsilons(self, delta: Fraction) -> Fraction | float:
        """Return a bound by adding up: pure epsilons, and at a share of delta each, what Gaussians have."""
        pure, lost = Fraction(0), Fraction(0)
        for kind, count in self.others.items():
            part = _parsed(kind)
            if not isinstance(part, _Bounded) or math.isinf(part.epsilon):
                return math.inf
            pure += count * exact(part.epsilon)
            lost += count * exact(getattr(part, "delta", 0.0))
        left = float(delta - lost)
        if left < 0:
            return math.inf
        if not self.mu_squared:
            return pure
        found = _gaussian_epsilon(math.sqrt(self.mu_squared), left) if left else math.inf
        return exact(found) + pure if found < math.inf else math.inf

    def _composed(self, delta: Fraction) -> Fraction | float:
        if not delta and self.mu_squared:
            return math.inf
        found = privacy_curve(self.event).epsilon(float(delta))
        return exact(found) if found < math.inf else math.inf


@lru_cache(maxsize=1024)
def _epsilon_of_larger(
    mu_squared: Fraction, counts: tuple[tuple[str, int], ...], delta: Fraction
) -> Fraction | float:
    """Return the composed epsilon of a total that is rounded up, at least that of what it came from."""
    return PrivacyCost(mu_squared, others=dict(counts))._composed(delta)


def _rounded(value: Fraction, *, up: bool) -> Fraction:
    """Return a number with four significant bits, at most an eighth above or below it.

    >>> [float(_rounded(Fraction(17), up=up)) for up in (False, True)]
    [16.0, 18.0]
    """
    if not value:
        return value
    unit = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - 3)
    return unit * (math.ceil(value / unit) if up else math.floor(value / unit))


@lru_cache(maxsize=1024)
def _gaussian_epsilon(mu: float, delta: float) -> float:
    return privacy_curve(Gaussian(mu)).epsilon(delta)


@lru_cache(maxsize=1 << 14)
def _parsed(kind: str) -> Event:
    return events_from_plain(json.loads(kind)).events[0]


def _kind(part: Event) -> str:
    return json.dumps(events_to_plain(part), sort_keys=True)


def _scale_loss(event: Event, share: float) -> Event:
    """Return an event of the same kind whose loss is about this share: its noise is divided by the share."""
    if isinstance(event, Gaussian):
        return Gaussian(share * event.mu)
    if isinstance(event, PairwiseGaussian):
        table = tuple(tuple(share * share * value for value in row) for row in event.mu_squared)
        return PairwiseGaussian(event.partition, table)
    if isinstance(event, PoissonGaussian | PoissonRoots):
        return replace(event, noise_multiplier=event.noise_multiplier / share) if share else compose()
    if isinstance(event, _Bounded):
        return replace(event, epsilon=share * event.epsilon if share else 0.0)
    if isinstance(event, ByGroup):
        return ByGroup(event.partition, tuple(_scale_loss(part, share) for part in event.events))
    if isinstance(event, OneOf):
        return OneOf(tuple(_scale_loss(case, share) for case in event.cases))
    if isinstance(event, NonPrivate):
        return event
    return compose(*(_scale_loss(part, share) for part in compose(event).events))


def _round_down(value: float) -> float:
    return float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(value))


_PURE, _MU = PrivacyCost(others={_kind(PureDP(1.0)): 1}), PrivacyCost(Fraction(1))


def _repeated(part: Event, count: int) -> list[Event]:
    """Return an event that happened so often, as few events as there can be."""
    if isinstance(part, Gaussian):
        return [Gaussian(part.mu * math.sqrt(count))]
    if isinstance(part, PoissonGaussian | PoissonRoots):
        return [replace(part, steps=part.steps * count)]
    if isinstance(part, PairwiseGaussian):
        table = tuple(tuple(count * value for value in row) for row in part.mu_squared)
        return [PairwiseGaussian(part.partition, table)]
    if isinstance(part, ByGroup):
        groups = [[_repeated(one, count) for one in compose(event).events] for event in part.events]
        return [ByGroup(part.partition, tuple(compose(*chain.from_iterable(group)) for group in groups))]
    return [part] if isinstance(part, NonPrivate) else [part] * count


_MAX_EPSILON, _LEAST, _LETTERS = 10**9, Decimal("1e-100"), 60  # bounds of the numbers of a limit


def limit_of(epsilon: str | float | Decimal | None, delta: str | float | Decimal | None) -> Limit | None:
    if (epsilon is None) != (delta is None):
        raise ConfigError(
            "A budget needs both epsilon and delta (--epsilon, --delta). Pass both, or omit both for "
            "no limit."
        )
    if epsilon is None or delta is None:
        return None
    try:
        limit = Limit(Decimal(str(epsilon)), Decimal(str(delta)))
    except InvalidOperation:
        raise ConfigError(f"epsilon={epsilon!r} and delta={delta!r} must be numbers") from None
    # Numbers have to fit into a double, and into a column of the database.
    fits = all(
        figure.is_finite()
        and not figure.is_signed()
        and len(str(figure)) <= _LETTERS
        and (not figure or (figure >= _LEAST and float(figure) < most))
        for figure, most in ((limit.epsilon, _MAX_EPSILON), (limit.delta, 1))
    )
    if not fits:
        raise ConfigError(
            f"The budget {limit_words(limit)[:100]} is invalid. epsilon must be at least 0 and below "
            f"{_MAX_EPSILON:,}, and delta in [0, 1). Each must be 0 or at least {_LEAST}, with at "
            f"most {_LETTERS} characters."
        )
    if limit.delta:
        check_proved_delta(float(limit.delta))
    return limit


def stored_limit(epsilon: object, delta: object) -> Limit | None:
    """Return a limit as it was taken once; ValueError if it never was."""
    if not all(part is None or isinstance(part, str) for part in (epsilon, delta)):
        raise TypeError("amounts must be stored as strings")
    try:
        return limit_of(cast(str | None, epsilon), cast(str | None, delta))
    except ConfigError:
        raise ValueError("a budget must consist of epsilon and delta") from None


def limit_plain(limit: Limit | None) -> dict[str, str | None]:
    epsilon, delta = (None, None) if limit is None else (str(limit.epsilon), str(limit.delta))
    return {"epsilon": epsilon, "delta": delta}


def limit_words(limit: Limit | None) -> str:
    return "no limit" if limit is None else f"epsilon {limit.epsilon} at delta {limit.delta}"
