"""From events to a privacy curve: closed form for Gaussian and pure releases, else a distribution of losses.

All accounting is exact or pessimistic; Renyi bounds appear in ``graphveil.papers.as_published`` only, as
the papers' own accounting. Docs: ``docs/privacy/proofs/accounting.md``.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from graphveil._util.checks import checked
from graphveil._util.figures import exact_sum
from graphveil.core.accounting import gaussian, loss
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    Gaussian,
    LocalReport,
    NonPrivate,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    cases_of,
    compose,
)
from graphveil.errors import ConfigError, PrivacyError

SEARCH_INTERVAL = 1e-3  # discretization of the privacy loss while searching
_ROUNDING = 1e-15  # of delta, for each step that is composed: four times the largest that was measured
CERTIFY_INTERVAL = 1e-4  # the coarsest discretization of any printed number, but for the widest losses
_SEARCH_SHARE, _CERTIFY_SHARE = 0.25, 0.05  # discretization over the standard deviation of one step's loss
_MIN_INTERVAL = 1e-12
_MAX_POINTS = 1 << 20  # of one step's distribution
# Of one step at CERTIFY_INTERVAL and above: a wider loss (26, as of epsilon 20 and more) has a coarser grid.
_MOST_WIDE_POINTS = 1 << 18
MAX_LOSS = 500.0  # training that loses more than this is taken to have no privacy, and not accounted for
MAX_LOSSES = 1 << 12  # of pure releases, stored separately; more are put on a grid
MAX_KINDS = 8  # of training or pure releases that are composed one after the other
MAX_CASES = 8  # combinations of groups that are tracked separately


class Curve(ABC):
    """Privacy curve of a transcript: delta as a function of epsilon, and the inverse.

    Privacy:
        Computed from events, which contain no protected data. Charges: nothing.
    """

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return delta at an epsilon.

        Args:
            epsilon: Epsilon of the guarantee.

        Returns:
            The smallest delta, or an upper bound on it.
        """

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at a delta.

        Args:
            delta: Delta of the guarantee.

        Returns:
            Epsilon, or an upper bound on it; infinity if there is none.
        """

    def tpr(self, fpr: float) -> float:
        """Return the attack bound: an upper bound on the true-positive rate of any attacker.

        By default it is the least of e^epsilon FPR + delta(epsilon).

        Args:
            fpr: False-positive rate of the attacker.

        Returns:
            The bound, as a fraction.
        """
        return _smallest_tpr(self, fpr)


@dataclass(frozen=True)
class GaussianCurve(Curve):
    """The exact curve of a composition of Gaussian releases.

    >>> round(GaussianCurve(1.0).epsilon(1e-7), 6)
    5.349345
    """

    mu: float

    def delta(self, epsilon: float) -> float:
        return gaussian.delta_of(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        return gaussian.epsilon_of(self.mu, delta)

    def tpr(self, fpr: float) -> float:
        """Return Phi(Phi^-1(FPR) + mu), which an attacker who knows all but one edge attains."""
        return gaussian.tpr(fpr, self.mu)


@dataclass(frozen=True)
class NoPrivacyCurve(Curve):
    """The curve of a transcript that nothing bounds."""

    def delta(self, epsilon: float) -> float:
        return 1.0

    def epsilon(self, delta: float) -> float:
        return math.inf

    def tpr(self, fpr: float) -> float:
        return 1.0


@dataclass(frozen=True)
class LocalCurve(Curve):
    """The curve of releases with a budget each, as of reports on one record: budgets and deltas add up.

    >>> LocalCurve(1.5).epsilon(0.0), LocalCurve(1.5, 1e-10).epsilon(1e-11)
    (1.5, inf)
    """

    total: float
    least: float = 0.0  # the delta that the reports need

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.total:
            return self.least
        return min(1.0, self.least - math.expm1(epsilon - self.total))

    def epsilon(self, delta: float) -> float:
        """Return the sum of the budgets at their delta or a larger one, infinity at a smaller one."""
        return self.total if delta >= self.least else math.inf

    def tpr(self, fpr: float) -> float:
        """Return the least of e^epsilon FPR + delta and 1 - e^-epsilon (1 - delta - FPR)."""
        if self.total > MAX_LOSS:
            return 1.0
        missed = math.exp(-self.total) * (1 - self.least - fpr)
        return min(1.0, math.exp(self.total) * fpr + self.least, 1 - max(0.0, missed))


@dataclass(frozen=True)
class ShiftedCurve(Curve):
    """Another curve, and with it releases whose losses add up to at most ``more``, but for ``lost`` of delta.

    The loss of both together is at most the other's and ``more``, so delta(epsilon + more) of the whole is
    at most delta(epsilon) of the other. Below ``more``, with t = more - epsilon > 0, an outcome of loss L
    adds at most (1 - e^(-L))_+ + 1 - e^(-t).

    >>> ShiftedCurve(GaussianCurve(1.0), 0.5, 0.0).epsilon(1e-7) - GaussianCurve(1.0).epsilon(1e-7)
    0.5
    """

    curve: Curve
    more: float
    lost: float

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.more:
            return min(1.0, self.curve.delta(epsilon - self.more) + self.lost)
        return min(1.0, self.curve.delta(0.0) - math.expm1(epsilon - self.more) + self.lost)

    def epsilon(self, delta: float) -> float:
        left = delta - self.lost
        return self.curve.epsilon(left) + self.more if left >= 0 else math.inf

    def tpr(self, fpr: float) -> float:
        rate = self.curve.tpr(fpr)
        if self.more > MAX_LOSS:
            return 1.0
        return min(1.0, math.exp(self.more) * rate + self.lost)


@dataclass(frozen=True)
class PureCurve(Curve):
    """The exact curve of a composition of pure releases, each with the loss of randomized response.

    A loss is +epsilon with probability e^epsilon / (1 + e^epsilon), and otherwise -epsilon; losses of several
    releases add up. With loss l of probability p_l,

        delta(x) = sum over l > x of p_l (1 - e^(x - l)).

    >>> one = PureCurve.from_epsilon_counts(((1.0, 1),))
    >>> one.epsilon(0.0), round(one.delta(0.0), 6), round(one.tpr(0.01), 6)
    (1.0, 0.462117, 0.027183)
    """

    losses: tuple[float, ...]
    masses: tuple[float, ...]

    @classmethod
    def from_epsilon_counts(cls, releases: Iterable[tuple[float, int]]) -> "PureCurve":
        masses = {0.0: 1.0}
        for epsilon, count in releases:
            if not epsilon:
                continue
            kept = 1 / (1 + math.exp(-epsilon))
            if count == 1:
                won = [math.exp(-epsilon) * kept, kept]
            else:
                from scipy.stats import binom  # slow to import

                won = binom.pmf(np.arange(count + 1), count, kept).tolist()
            spread: dict[float, float] = defaultdict(float)
            for loss_before, mass in masses.items():
                for wins, share in enumerate(won):
                    # An exact sum of floats: 0.1 three times is 0.3, so equal losses meet in one place.
                    more = [math.copysign(epsilon, 2 * wins - count)] * abs(2 * wins - count)
                    spread[float(exact_sum([loss_before, *more]))] += mass * share
            masses = spread
        ordered = sorted(masses, reverse=True)
        return cls(tuple(ordered), tuple(masses[each] for each in ordered))

    def delta(self, epsilon: float) -> float:
        """Return delta at this epsilon, 0 from the largest loss on."""
        found = zip(self.losses, self.masses, strict=True)
        return min(
            1.0, math.fsum(-mass * math.expm1(epsilon - each) for each, mass in found if each > epsilon)
        )

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon: the largest loss at delta 0, whose deltas are lines in e^epsilon."""
        if delta < 0:
            return math.inf
        if delta == 0:
            return max(0.0, self.losses[0])
        above, weighed = 0.0, 0.0
        for one, mass in zip(self.losses, self.masses, strict=True):
            if above - math.exp(one) * weighed > delta:
                break
            above, weighed = above + mass, weighed + mass * math.exp(-one)
        if above <= delta:
            return 0.0
        return max(0.0, math.log((above - delta) / weighed))

    def tpr(self, fpr: float) -> float:
        """Return the least of e^x FPR + delta(x), which is attained at one of the losses."""
        return min(1.0, *(math.exp(x) * fpr + self.delta(x) for x in self.losses))


@dataclass(frozen=True)
class PureGaussianCurve(Curve):
    """The exact curve of pure releases and Gaussian releases together.

    Losses add up. With loss l of the pure releases of probability p_l,

        delta(x) = sum over l of p_l delta(x - l; mu).

    >>> both = PureGaussianCurve(PureCurve.from_epsilon_counts(((1.0, 1),)), 0.2)
    >>> round(both.epsilon(1e-7), 4), round(both.tpr(0.01), 6)
    (1.919, 0.041346)
    """

    pure: PureCurve
    mu: float

    def delta(self, epsilon: float) -> float:
        found = gaussian.deltas_of(epsilon - np.asarray(self.pure.losses), self.mu)
        return min(1.0, math.fsum(np.asarray(self.pure.masses) * found))

    def epsilon(self, delta: float) -> float:
        if delta <= 0:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        upper = self.pure.losses[0] + gaussian.epsilon_of(self.mu, delta)
        if self.delta(upper) >= delta:
            return upper
        root = float(brentq(lambda e: self.delta(e) - delta, 0.0, upper, xtol=1e-12, rtol=1e-14))
        return min(upper, root + 1e-12 + 1e-14 * root)  # the tolerance keeps it on the safe side


@dataclass(frozen=True)
class WorstCurve(Curve):
    """The worst of several curves: the differing record is in one unknown group."""

    curves: tuple[Curve, ...]

    def delta(self, epsilon: float) -> float:
        return max(curve.delta(epsilon) for curve in self.curves)

    def epsilon(self, delta: float) -> float:
        return max(curve.epsilon(delta) for curve in self.curves)

    def tpr(self, fpr: float) -> float:
        return max(curve.tpr(fpr) for curve in self.curves)


@dataclass(frozen=True)
class PldCurve(Curve):
    """A pessimistic curve from a privacy-loss distribution.

    ``delta_error`` is what the distribution's delta may miss: composing n steps by Fourier transforms rounds,
    which is not pessimistic, by up to about 2.5e-16 n as measured against exact Gaussian compositions.
    ``largest_loss`` bounds every loss of the distribution, which is then epsilon at delta 0.
    """

    pld: Any
    delta_error: float = 0.0
    largest_loss: float = math.inf

    def delta(self, epsilon: float) -> float:
        return min(1.0, float(self.pld.get_delta_for_epsilon(epsilon)) + self.delta_error)

    def epsilon(self, delta: float) -> float:
        left = delta - self.delta_error
        if left <= 0:
            return self.largest_loss if delta >= 0 else math.inf
        # The two directions compose separately, so the larger epsilon counts, not a mixture of both.
        directions = (
            [self.pld._pmf_remove] if self.pld._symmetric else [self.pld._pmf_remove, self.pld._pmf_add]
        )
        return max(loss.smallest_epsilon(direction, left) for direction in directions)


@lru_cache(maxsize=256)
def _smallest_tpr(curve: Curve, fpr: float) -> float:
    """Return min over epsilon of e^epsilon FPR + delta(epsilon)."""

    def bound(epsilon: float) -> float:
        return math.exp(epsilon) * fpr + curve.delta(epsilon)

    # delta is convex in e^epsilon, so the bound has one minimum; every epsilon gives a valid bound. Beyond
    # the highest one nothing is gained: e^epsilon FPR is 1 there, or delta as small as an FPR can be.
    highest = max(1.0, -math.log(max(fpr, _LEAST_FPR)))
    best = minimize_scalar(bound, bounds=(0.0, highest), method="bounded", options={"xatol": 1e-4})
    return min(1.0, float(best.fun), bound(highest))


_LEAST_FPR = 1e-300  # of those that are not zero


def total_mu(event: Event) -> float | None:
    """Return the exact mu of a composition of Gaussians, or None if it contains anything else.

    >>> total_mu(Composed((Gaussian(3.0), Gaussian(4.0))))
    5.0
    """
    worst = 0.0
    for total in worst_case_compositions(event):
        if total.rest:
            return None
        worst = max(worst, total.mu_squared)
    return math.sqrt(worst)


def adaptive_choice(cases: Sequence[Event]) -> Event:
    """Return an event that costs at least as much as one of several, chosen by the outputs before it.

    The alternatives are Gaussian compositions: for a record of group g, alternative a is mu_a(g)-GDP. After
    any earlier outputs the chosen one is then max over a of mu_a(g)-GDP, whatever the rule of the choice
    (``docs/privacy/proofs/accounting.md``, "Adaptive choices"). A maximum of privacy curves is no bound for
    other noise, where the outputs can favor the alternative that is worse for what they suggest.

    >>> adaptive_choice([Gaussian(1.0), Composed((Gaussian(3.0), Gaussian(4.0)))])
    Gaussian(mu=5.0)
    >>> adaptive_choice([Gaussian(1.0), ByGroup("train/other", (Gaussian(2.0), Composed(())))]).events
    (Gaussian(mu=2.0), Gaussian(mu=1.0))
    """
    parts = [compose(case).events for case in cases]
    grouped = {(one.partition, len(one.events)) for case in parts for one in case if isinstance(one, ByGroup)}
    if len(grouped) > 1:
        raise ConfigError("all alternatives of a plan must use the same groups of records")
    partition, count = next(iter(grouped), ("", 1))
    worst = [0.0] * count
    for case in parts:
        for group in range(count):
            mu = total_mu(compose(*(one.events[group] if isinstance(one, ByGroup) else one for one in case)))
            if mu is None:
                raise ConfigError(
                    "alternatives of a plan must use Gaussian noise without sampling, because no bound is "
                    "proved for a choice among other mechanisms; choose one by public facts instead"
                )
            worst[group] = max(worst[group], mu)
    events = tuple(map(Gaussian, worst))
    return ByGroup(partition, events) if grouped else events[0]


def search_interval(event: Event, mu: float) -> float:
    """Return a discretization for searching a composition that costs about this total mu.

    Rounding the losses of n steps to a grid of interval h adds up to n h^2 / 4 to the variance of their sum.
    A quarter of mu / sqrt(n) therefore adds at most 2 % to a variance of mu^2.
    """
    count = max(sum(total.rest.values()) for total in worst_case_compositions(event))
    return min(SEARCH_INTERVAL, _SEARCH_SHARE * mu / math.sqrt(max(1, count)))


@checked
def privacy_curve(event: Event, *, interval: float | None = None) -> Curve:
    """Return the privacy curve of an event: the worst one of any group of records.

    Args:
        event: Released event.
        interval: Discretization of the privacy loss. By default 1e-4, or less if the losses of single steps
            are so small that rounding them to multiples of 1e-4 would dominate their sum, or more if one step
            may lose more than 26.

    Returns:
        The curve; it is exact or pessimistic.

    Raises:
        PrivacyError: If no accounting is known for a part of the event.

    Privacy:
        Reads: no protected data. Charges: nothing.

    >>> round(privacy_curve(Gaussian(0.5)).epsilon(1e-5), 6)
    1.993091
    """
    return _cached_curve(compose(event), interval)


@lru_cache(maxsize=256)
def _cached_curve(event: Composed, interval: float | None) -> Curve:
    curves = [_curve(total, interval) for total in worst_case_compositions(event)]
    return curves[0] if len(curves) == 1 else WorstCurve(tuple(curves))


@dataclass(frozen=True)
class CanonicalComposition:
    """A composition in normal form: its Gaussians as one mu^2, and everything else by kind."""

    mu_squared: float = 0.0
    rest: Counter[Event] = field(default_factory=Counter)

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> "CanonicalComposition":
        """Sort plain events; steps of one kind of training add up."""
        total = cls()
        for part in compose(*events).events:
            if isinstance(part, PoissonGaussian | PoissonRoots):
                total += cls._training(part)
            elif isinstance(part, Gaussian):
                total += cls(part.mu * part.mu)  # no power, which raises where a product is infinite
            else:
                total += cls(0.0, Counter([part]))
        return total

    @classmethod
    def _training(cls, part: PoissonGaussian | PoissonRoots) -> "CanonicalComposition":
        if part.sampling_rate == 1:  # every record is in every step: plain Gaussian releases
            mu = part.change / part.noise_multiplier
            return cls(part.steps * mu * mu)
        if not part.steps or not part.sampling_rate:
            return cls()
        # One root is a sampled record: equal kinds have equal keys, and are composed together.
        if isinstance(part, PoissonRoots) and part.roots == 1:
            part = PoissonGaussian(part.noise_multiplier, part.sampling_rate, part.steps, part.relation)
        return cls(0.0, Counter({replace(part, steps=1): part.steps}))

    def __add__(self, other: "CanonicalComposition") -> "CanonicalComposition":
        return CanonicalComposition(self.mu_squared + other.mu_squared, self.rest + other.rest)

    def __or__(self, other: "CanonicalComposition") -> "CanonicalComposition":
        return CanonicalComposition(max(self.mu_squared, other.mu_squared), self.rest | other.rest)

    def covers(self, other: "CanonicalComposition") -> bool:
        return self | other == self


def worst_case_compositions(event: Event) -> list[CanonicalComposition]:
    """Return the totals of which the worst counts: one for each combination of groups that costs its own.

    A record has a group in every partition, in any combination; an edge is in one of several datasets. Where
    these are too many, a bound on all of them takes their place.
    """
    # Limited after each partition: the number of combinations is the product of all numbers of groups.
    found: list[CanonicalComposition] = []
    for case in cases_of(event):
        totals = [CanonicalComposition()]
        for groups in _by_partition(case):
            totals = _limit_cases([total + group for total in totals for group in groups])
        found += totals
    return _limit_cases(found)


def dominating_composition(totals: list[CanonicalComposition]) -> CanonicalComposition:
    bound = CanonicalComposition()
    for total in totals:
        bound |= total
    return bound


def _limit_cases(totals: list[CanonicalComposition]) -> list[CanonicalComposition]:
    """Return the totals that no other one covers, or a bound on all of them where these are too many."""
    kept: list[CanonicalComposition] = []
    for total in totals:
        if not any(other.covers(total) for other in kept):
            kept = [other for other in kept if not total.covers(other)] + [total]
    return [dominating_composition(kept)] if len(kept) > MAX_CASES else kept


def _by_partition(event: Event) -> list[list[CanonicalComposition]]:
    """Return, for each partition, the totals of its groups; events for all groups are one additional case."""
    plain: list[Event] = []
    pairwise: dict[str, list[PairwiseGaussian]] = defaultdict(list)
    grouped: dict[str, list[ByGroup]] = defaultdict(list)
    for part in compose(event).events:
        if isinstance(part, PairwiseGaussian):
            pairwise[part.partition].append(part)
        elif isinstance(part, ByGroup):
            grouped[part.partition].append(part)
        else:
            plain.append(part)
    all_records = CanonicalComposition.from_events(plain) + CanonicalComposition(
        sum(_worst_pair(tables) for tables in pairwise.values())
    )
    return [[all_records], *map(_groups, grouped.values())]


def _groups(parts: list[ByGroup]) -> list[CanonicalComposition]:
    if len({len(part.events) for part in parts}) > 1:
        raise PrivacyError("two training steps use the same partition with different numbers of groups")
    return [
        CanonicalComposition.from_events(events)
        for events in zip(*(part.events for part in parts), strict=True)
    ]


def _worst_pair(tables: list[PairwiseGaussian]) -> float:
    """Return the largest sum of mu^2 over any pair of groups."""
    if len({len(table.mu_squared) for table in tables}) > 1:
        raise PrivacyError("two releases use the same partition with different numbers of groups")
    return float(np.sum([table.mu_squared for table in tables], axis=0).max(initial=0.0))


def _curve(total: CanonicalComposition, interval: float | None) -> Curve:
    if not total.rest:
        return GaussianCurve(math.sqrt(total.mu_squared))
    if all(isinstance(part, LocalReport | ApproximateDP) for part in total.rest) and not total.mu_squared:
        return _local_curve(total.rest)
    bounded: Counter[Event] = Counter()
    bounded.update({part: n for part, n in total.rest.items() if isinstance(part, ApproximateDP)})
    if bounded:
        sums, others = _local_curve(bounded), CanonicalComposition(total.mu_squared, total.rest - bounded)
        return ShiftedCurve(_curve(others, interval), sums.total, sums.least)
    pure = all(isinstance(part, PureDP) for part in total.rest)
    few = math.prod(count + 1 for count in total.rest.values()) <= MAX_LOSSES
    if pure and not total.mu_squared:
        if _pure_epsilon(total) > MAX_LOSS:
            return LocalCurve(_pure_epsilon(total))  # their sum, at any delta
        if few:
            return PureCurve.from_epsilon_counts(_pure(total))
    for part in total.rest:
        if not isinstance(part, PoissonGaussian | PoissonRoots | PureDP | NonPrivate):
            raise PrivacyError(f"the accountant does not support the event {type(part).__name__}")
    if _out_of_bounds(total):
        return NoPrivacyCurve()
    if pure and few:
        return PureGaussianCurve(PureCurve.from_epsilon_counts(_pure(total)), math.sqrt(total.mu_squared))
    interval = _double_interval(interval or _display_interval(total), total)
    composed = _losses(tuple(total.rest.items()), interval)
    if total.mu_squared:
        composed = composed.compose(loss.gaussian_loss(math.sqrt(total.mu_squared), interval))
    # Likelihood ratios multiply, so losses of pure releases add up to at most the sum of their epsilons.
    largest_loss = _pure_epsilon(total) if pure and not total.mu_squared else math.inf
    return PldCurve(composed, _ROUNDING * sum(total.rest.values()), largest_loss)


def _pure_epsilon(total: CanonicalComposition) -> float:
    """Return the sum of the pure releases' epsilons; it is exact, so that 0.1 three times is 0.3."""
    return float(exact_sum([epsilon for epsilon, count in _pure(total) for _ in range(count)]))


def _pure(total: CanonicalComposition) -> list[tuple[float, int]]:
    return [(part.epsilon, count) for part, count in total.rest.items() if isinstance(part, PureDP)]


def _local_curve(reports: Counter[Event]) -> LocalCurve:
    """Return the curve of releases with separate budgets; sums are exact: 0.1 three times is 0.3."""
    found = [
        (part, count) for part, count in reports.items() if isinstance(part, LocalReport | ApproximateDP)
    ]
    epsilons = [epsilon for part, count in found for epsilon in [part.epsilon] * count]
    deltas = [delta for part, count in found for delta in [part.delta] * count]
    return LocalCurve(float(exact_sum(epsilons)), float(exact_sum(deltas)))


def _out_of_bounds(total: CanonicalComposition) -> bool:
    """Whether the loss is unbounded, or so large that its distribution would take all memory."""
    expected = total.mu_squared / 2 + _pure_epsilon(total)
    for part, steps in total.rest.items():
        if isinstance(part, PureDP):
            continue
        if not isinstance(part, PoissonGaussian | PoissonRoots):
            return True
        if loss.unsampled_loss(part) > MAX_LOSS:
            return True
        expected += steps * loss.expected_loss(part)
    return expected > MAX_LOSS


def _display_interval(total: CanonicalComposition) -> float:
    """Return the discretization of a printed number: a small share of the standard deviation of one loss.

    An expected loss is about half of the variance.
    """
    expected, count = total.mu_squared / 2, sum(total.rest.values())
    for part, times in total.rest.items():
        if isinstance(part, PureDP):
            expected += times * part.epsilon * math.tanh(part.epsilon / 2)
        elif isinstance(part, PoissonGaussian | PoissonRoots):
            expected += times * loss.expected_loss(part)
    return min(CERTIFY_INTERVAL, max(_MIN_INTERVAL, _CERTIFY_SHARE * math.sqrt(2 * expected / count)))


def _double_interval(interval: float, total: CanonicalComposition) -> float:
    """Return an interval, doubled until one step has at most the given number of points.

    Any interval gives a pessimistic curve; where one step loses so much, doubling it hardly raises epsilon.
    """
    sampled = [part for part in total.rest if isinstance(part, PoissonGaussian | PoissonRoots)]
    longest = max((loss.width(part) for part in sampled), default=0.0)
    while interval < CERTIFY_INTERVAL and longest > interval * _MAX_POINTS:
        interval *= 2
    widest = max((loss.width(part) for part in total.rest if isinstance(part, PoissonGaussian)), default=0.0)
    while interval >= CERTIFY_INTERVAL and widest > interval * _MOST_WIDE_POINTS:
        interval *= 2
    return interval


@lru_cache(maxsize=64)
def _losses(kinds: tuple[tuple[PoissonGaussian | PoissonRoots | PureDP, int], ...], interval: float) -> Any:
    # Of several bounds on where to cut the tails, one may overflow and is then not the smallest.
    with np.errstate(over="ignore"):
        if len(kinds) > MAX_KINDS:
            return _halves(kinds, interval)
        composed = [_loss(kind, interval).self_compose(count) for kind, count in kinds]
        return reduce(lambda one, other: one.compose(other), composed)


@lru_cache(maxsize=256)
def _halves(kinds: tuple[tuple[PoissonGaussian | PoissonRoots | PureDP, int], ...], interval: float) -> Any:
    """Compose many kinds half by half, where each half stays small, and keep the halves for more kinds."""
    if len(kinds) == 1:
        ((kind, count),) = kinds
        return _loss(kind, interval).self_compose(count)
    half = 1 << ((len(kinds) - 1).bit_length() - 1)
    return _halves(kinds[:half], interval).compose(_halves(kinds[half:], interval))


def _loss(kind: PoissonGaussian | PoissonRoots | PureDP, interval: float) -> Any:
    if isinstance(kind, PureDP):
        return loss.pure_loss(kind.epsilon, interval)
    return loss.step_loss(kind, interval)


def multi_edge_epsilon(event: Event, edges: int, longest: float, delta: float) -> float:
    """Return epsilon for k edges, bounded by k times the shift of one edge.

    In sampled steps k edges change k sampled gradients. Their sum with noise z reveals no more than k
    separate gradients with noise z / sqrt k each, whose noises add up to z.

    Edges may belong to different datasets, which different steps read. Every edge is then charged for an
    event that costs at least as much as any of these cases.
    """
    total = dominating_composition(worst_case_compositions(event))
    pure = not total.mu_squared and all(isinstance(part, ApproximateDP | PureDP) for part in total.rest)
    if delta <= 0 and not (pure and delta == 0):
        return math.inf
    mu = longest * math.sqrt(total.mu_squared)
    if not total.rest:
        return epsilon_of(mu, delta)
    events: list[Event] = [Gaussian(mu)]
    for part, count in total.rest.items():
        if isinstance(part, ApproximateDP):
            events += [_group(part, edges)] * count
        elif isinstance(part, PureDP):  # one edge after the other: each costs epsilon once more
            events.append(PureDP(edges * count * part.epsilon))
        elif isinstance(part, PoissonGaussian):
            noise = part.noise_multiplier / math.sqrt(edges)
            events.append(replace(part, noise_multiplier=noise, steps=part.steps * count * edges))
        else:
            events.append(NonPrivate())  # no bound is proved for several edges of any other kind of event
    return privacy_curve(compose(*events)).epsilon(delta)


def _group(part: ApproximateDP, edges: int) -> ApproximateDP:
    """Return the cost of a release for k edges: k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1).

    One edge is changed after another; the delta of each change is multiplied by the later factors.
    """
    if not part.delta:
        return ApproximateDP(edges * part.epsilon)
    if edges * part.epsilon > MAX_LOSS:  # no delta is left, and its exponential overflows later
        return ApproximateDP(edges * part.epsilon, 1.0)
    factor = math.expm1(edges * part.epsilon) / math.expm1(part.epsilon) if part.epsilon else edges
    return ApproximateDP(edges * part.epsilon, min(1.0, factor * part.delta))
