"""What a data set has spent, kept so that neither its size nor its price grows with the number of releases.

Gaussian releases add up in mu squared, equal ones of any other kind are counted, and both sums are exact:
fractions, never floats that are compared with floats. A figure that was given as a decimal counts as that
decimal, so that 0.0245 fits into 0.0245 and three times 0.1 into 0.3.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from graphveil.privacy import Entry, compose, privacy_curve
from graphveil.privacy.events import (
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
)
from graphveil.privacy.serialization import events_from_plain, events_to_plain

_SEARCHES = 16  # halvings of the largest release that still fits: it is shown with four digits
_MOST_COPIES = 1 << 40


def exact(figure: float | str | Decimal) -> Fraction:
    """Return a figure as the decimal that it is written as.

    >>> exact(0.1) * 3 == exact(0.3), exact("0.0245") == exact(0.0245)
    (True, True)
    """
    return Fraction(Decimal(repr(figure) if isinstance(figure, float) else figure))


@dataclass(frozen=True)
class Limit:
    """What may be spent at most, as decimals: they are written down and read again as they were given."""

    epsilon: Decimal
    delta: Decimal


@dataclass(frozen=True)
class Total:
    """A composition of releases: mu squared of the Gaussian ones, and how many there are of each other kind.

    Args:
        mu_squared: of all Gaussian releases together.
        slack: the part of delta that the finite resolution of noise has cost.
        others: each event that is no Gaussian, as canonical JSON, and how often it happened.

    >>> from graphveil.privacy.events import PureDP
    >>> third = Total.of(Entry("a", "rows", PureDP(0.1)))
    >>> Total().plus(third, 3).fits(Limit(Decimal("0.3"), Decimal(0)))
    True
    """

    mu_squared: Fraction = Fraction(0)
    slack: Fraction = Fraction(0)
    others: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: Entry) -> "Total":
        """Return what one release costs."""
        mu_squared, others = Fraction(0), dict[str, int]()
        for part in compose(entry.event).events:
            if isinstance(part, Gaussian):
                mu_squared += Fraction(part.mu) ** 2
            else:
                kind = json.dumps(events_to_plain(part), sort_keys=True)
                others[kind] = others.get(kind, 0) + 1
        return cls(mu_squared, exact(float(entry.slack)), others)

    def plus(self, other: "Total", copies: int = 1) -> "Total":
        """Return this total and so many copies of another."""
        others = dict(self.others)
        for kind, count in other.others.items():
            others[kind] = others.get(kind, 0) + copies * count
        return Total(self.mu_squared + copies * other.mu_squared, self.slack + copies * other.slack, others)

    def minus(self, other: "Total") -> "Total":
        """Return what is left when a release that never drew is given back."""
        left = {kind: count - other.others.get(kind, 0) for kind, count in self.others.items()}
        return Total(
            self.mu_squared - other.mu_squared,
            self.slack - other.slack,
            {kind: count for kind, count in left.items() if count},
        )

    def fits(self, limit: Limit) -> bool:
        """Whether all of it keeps within a limit.

        A bound that adds up decides where it can, and then a composition of somewhat more than all of it, at
        somewhat less of delta, which stays the same for many bookings and is kept. All of it is composed anew
        only where the limit is near.
        """
        left = exact(limit.delta) - self.slack
        if left < 0:
            return False
        epsilon = exact(limit.epsilon)
        if self._sum_of_epsilons(left) <= epsilon:
            return True
        larger = _epsilon_of_larger(*self._rounded_up, _rounded(left, up=False))
        return larger <= epsilon or self._composed(left) <= epsilon

    def epsilon(self, delta: Decimal | float) -> float:
        """Return the smallest epsilon that all of it keeps at this delta; infinity if there is none."""
        left = exact(delta) - self.slack
        if left < 0:
            return math.inf
        found = min(self._sum_of_epsilons(left), self._composed(left))
        return float(found)

    def left_for(self, entry: Entry, limit: Limit) -> int:
        """Return how many releases like this one still fit."""
        one = Total.of(entry)
        if not self.plus(one).fits(limit):
            return 0
        most = 1
        while most < _MOST_COPIES and self.plus(one, 2 * most).fits(limit):
            most *= 2
        few, many = most, 2 * most
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (middle, many) if self.plus(one, middle).fits(limit) else (few, middle)
        return few

    def room(self, limit: Limit, like: Entry | None = None) -> float:
        """Return an epsilon, at the limit's delta, that would still fit: of a release like another one.

        That is of the same kind, pure or Gaussian; without another one, of the kind that was recorded.
        """
        kind = self if like is None else Total.of(like)
        if not kind.mu_squared and kind._adds_up:
            spent = min(self._sum_of_epsilons(exact(limit.delta) - self.slack), exact(limit.epsilon))
            return float(exact(limit.epsilon) - spent)
        low, high = 0.0, 1.0
        while self._with_mu(high).fits(limit):
            low, high = high, 2 * high
        for _ in range(_SEARCHES):
            middle = (low + high) / 2
            low, high = (middle, high) if self._with_mu(middle).fits(limit) else (low, middle)
        return privacy_curve(Gaussian(low)).epsilon(float(limit.delta)) if low else 0.0

    def as_plain(self) -> dict[str, Any]:
        """Return the total as plain JSON values; fractions are text."""
        return {"mu_squared": str(self.mu_squared), "slack": str(self.slack), "others": dict(self.others)}

    @classmethod
    def from_plain(cls, record: Mapping[str, Any]) -> "Total":
        """Return what :meth:`as_plain` wrote."""
        return cls(Fraction(record["mu_squared"]), Fraction(record["slack"]), dict(record["others"]))

    @cached_property
    def event(self) -> Event:
        """All releases as one event that costs the same."""
        mu = math.sqrt(self.mu_squared)
        gaussian = [Gaussian(mu)] if mu else []
        return compose(*gaussian, *(part for kind, n in self.others.items() for part in _repeated(kind, n)))

    @property
    def _rounded_up(self) -> tuple[Fraction, tuple[tuple[str, int], ...]]:
        """Squares and counts, each rounded up to four bits: they change a few times in a doubling."""
        counts = sorted((kind, math.ceil(_rounded(Fraction(n), up=True))) for kind, n in self.others.items())
        return _rounded(self.mu_squared, up=True), tuple(counts)

    def _with_mu(self, mu: float) -> "Total":
        return self.plus(Total(Fraction(mu) ** 2))

    @property
    def _adds_up(self) -> bool:
        """Whether all of it, or all but Gaussian releases, has an epsilon of its own at delta 0."""
        return all(isinstance(_parsed(kind), PureDP | ApproximateDP) for kind in self.others)

    def _sum_of_epsilons(self, delta: Fraction) -> Fraction | float:
        """Return a bound by adding up: pure epsilons, and at a share of delta each, what Gaussians have."""
        pure, lost = Fraction(0), Fraction(0)
        for kind, count in self.others.items():
            part = _parsed(kind)
            if isinstance(part, LocalReport | ApproximateDP) and part.epsilon < math.inf:
                pure, lost = pure + count * exact(part.epsilon), lost + count * exact(part.delta)
            elif isinstance(part, PureDP):
                pure += count * exact(part.epsilon)
            else:
                return math.inf
        left = float(delta - lost)
        if left < 0:
            return math.inf
        if not self.mu_squared:
            return pure
        found = _gaussian_epsilon(math.sqrt(self.mu_squared), left) if left else math.inf
        return exact(found) + pure if found < math.inf else math.inf

    def _composed(self, delta: Fraction) -> Fraction | float:
        if not delta and (self.mu_squared or not self._adds_up):
            return math.inf
        found = privacy_curve(self.event).epsilon(float(delta))
        return exact(found) if found < math.inf else math.inf


def total_of(entries: Iterable[Entry]) -> Total:
    """Return the total of some releases."""
    total = Total()
    for entry in entries:
        total = total.plus(Total.of(entry))
    return total


@lru_cache(maxsize=1024)
def _epsilon_of_larger(
    mu_squared: Fraction, counts: tuple[tuple[str, int], ...], delta: Fraction
) -> Fraction | float:
    """Return the composed epsilon of a total that is rounded up, at least that of what it came from."""
    return Total(mu_squared, others=dict(counts))._composed(delta)


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


@lru_cache(maxsize=1024)
def _parsed(kind: str) -> Event:
    return events_from_plain(json.loads(kind)).events[0]


def _repeated(kind: str, count: int) -> list[Event]:
    """Return an event that happened so often, as few events as there can be."""
    part = _parsed(kind)
    if isinstance(part, PoissonGaussian | PoissonRoots):
        return [_longer(part, count)]
    if isinstance(part, PairwiseGaussian):
        table = tuple(tuple(count * value for value in row) for row in part.mu_squared)
        return [PairwiseGaussian(part.partition, table)]
    if isinstance(part, NonPrivate):
        return [part]
    if isinstance(part, ByGroup):
        return [ByGroup(part.partition, tuple(_several(event, count) for event in part.events))]
    assert isinstance(part, PureDP | LocalReport | ApproximateDP | OneOf)
    return [part] * count


def _several(event: Event, count: int) -> Event:
    """Return a plain event of one group, so often."""
    parts = [
        Gaussian(part.mu * math.sqrt(count))
        if isinstance(part, Gaussian)
        else _longer(part, count)
        if isinstance(part, PoissonGaussian | PoissonRoots)
        else None
        for part in compose(event).events
    ]
    if None in parts:
        return compose(*[event] * count)
    return compose(*(part for part in parts if part is not None))


def _longer(part: PoissonGaussian | PoissonRoots, count: int) -> Event:
    return replace(part, steps=part.steps * count)
