"""Privacy events: what was done to private data. The accountant computes their cost.

The meaning of a record never changes once it exists; a new mechanism is a new record.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Literal

from graphveil._util import checks
from graphveil._util.figures import exact_sum
from graphveil.errors import ConfigError

Relation = Literal["add_remove", "replace"]
Part = Literal["features", "label"]
PARTS: tuple[Part, ...] = ("features", "label")  # of a record that its own node randomizes

MAX_ROOTS = 1 << 8  # that a record may reach: noise for more would dominate the gradients


def _store_numbers(event: Any) -> None:
    """Store every number in one form: ledgers and run folders compare the text of events."""
    for part in fields(event):
        value = checks.plain(getattr(event, part.name))
        if part.type is float:
            value = checks.real(value)
        object.__setattr__(event, part.name, value)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian release with mu = sensitivity / standard deviation, for every neighboring pair.

    Args:
        mu: Sensitivity over the standard deviation of the noise.

    Raises:
        ConfigError: If ``mu`` is negative or not finite.

    >>> Gaussian(0.5).mu
    0.5
    """

    mu: float

    def __post_init__(self) -> None:
        _store_numbers(self)
        checks.non_negative(mu=self.mu)


@dataclass(frozen=True)
class PairwiseGaussian:
    """Gaussian release with a mu^2 that depends on the public groups of an edge's ends.

    ``mu_squared[g][h]`` is for a pair with ends in groups g and h, and is symmetric. Two releases over the
    same ``partition`` compose pair by pair, and the cost is the worst pair's: max over pairs of the sum,
    never the sum of the maxima.

    Args:
        partition: Name of the partition into groups.
        mu_squared: Symmetric table of mu^2 by pair of groups.

    Raises:
        ConfigError: If the table is not square, symmetric and non-negative.

    >>> PairwiseGaussian("labels", ((0.5, 1.0), (1.0, 0.0))).worst
    1.0
    """

    partition: str
    mu_squared: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        table = tuple(tuple(checks.real(checks.plain(value)) for value in row) for row in self.mu_squared)
        object.__setattr__(self, "mu_squared", table)
        for g, row in enumerate(table):
            for h, value in enumerate(row):
                checks.non_negative(mu_squared=value)
                if len(row) != len(table) or value != table[h][g]:
                    raise ConfigError("mu_squared must be a square symmetric table over pairs of groups")

    @property
    def worst(self) -> float:
        """The largest mu^2 of any pair of groups."""
        return max((max(row) for row in self.mu_squared), default=0.0)


@dataclass(frozen=True)
class PureDP:
    """Release that is (epsilon, 0)-indistinguishable for every neighboring pair, and no better.

    What the exact law of its noise is worth at larger deltas is not kept: binary randomized response at the
    same epsilon, which reveals at least as much, takes its place (Kairouz, Oh, Viswanath, 2015).

    Args:
        epsilon: Epsilon of the release.

    Raises:
        ConfigError: If ``epsilon`` is negative or not finite.

    >>> PureDP(0.5)
    PureDP(epsilon=0.5)
    """

    epsilon: float

    def __post_init__(self) -> None:
        _store_numbers(self)
        checks.non_negative(epsilon=self.epsilon)


@dataclass(frozen=True)
class PoissonGaussian:
    """Gaussian releases, each on a Poisson sample with the given rate (DP-SGD).

    Args:
        noise_multiplier: Standard deviation of the noise over the clipping norm C.
        sampling_rate: Probability that a record is in a sample.
        steps: Number of steps.
        relation: Neighboring relation of one record: ``add_remove`` (null record, change C) or ``replace``
            (change 2C).

    Raises:
        ConfigError: If a field is out of range.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    relation: Relation = "add_remove"

    def __post_init__(self) -> None:
        _store_numbers(self)
        checks.positive(noise_multiplier=self.noise_multiplier)
        checks.within(0, 1, sampling_rate=self.sampling_rate)
        checks.integer_at_least(0, steps=self.steps)
        checks.one_of(("add_remove", "replace"), relation=self.relation)

    @property
    def change(self) -> float:
        """The most that the differing record moves one step's sum, in clipping norms."""
        return 2.0 if self.relation == "replace" else 1.0


@dataclass(frozen=True)
class PoissonRoots:
    """Gaussian releases on Poisson samples of roots, of which one record reaches several.

    Every root's gradient has norm at most C and may read other records, so that the differing record changes
    N = ``roots`` of them: under ``add_remove`` its own from null, and N - 1 others from one gradient to
    another; under ``replace`` each from one to another. The multiplier is the noise over C, and roots are
    sampled one by one (``docs/privacy/proofs/accounting.md``, Theorem A).

    Args:
        noise_multiplier: Standard deviation of the noise over the clipping norm C.
        sampling_rate: Probability that a root is in a sample.
        steps: Number of steps.
        roots: Number of roots that one record reaches.
        relation: Neighboring relation of one record: ``add_remove`` or ``replace``.

    Raises:
        ConfigError: If a field is out of range.

    >>> PoissonRoots(2.0, 0.02, 500, 3).change, PoissonRoots(2.0, 0.02, 500, 3, "replace").change
    (5.0, 6.0)
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    roots: int
    relation: Relation = "add_remove"

    def __post_init__(self) -> None:
        _store_numbers(self)
        PoissonGaussian(self.noise_multiplier, self.sampling_rate, self.steps, self.relation)
        checks.integer_at_least(1, roots=self.roots)
        checks.within(1, MAX_ROOTS, roots=self.roots)

    @property
    def change(self) -> float:
        """The most that the differing record moves one step's sum, in clipping norms."""
        return 2.0 * self.roots - (self.relation == "add_remove")


@dataclass(frozen=True)
class NonPrivate:
    """Release without noise, which has an unbounded privacy loss."""


@dataclass(frozen=True)
class LocalReport:
    """Report of a local randomizer for one part of a record: its features or its label.

    It is (epsilon, delta)-indistinguishable for all values of the record; epsilon inf means not randomized.

    Args:
        part: Randomized part of the record.
        epsilon: Epsilon of the report; infinity if it is not randomized.
        delta: Delta of the report.

    Raises:
        ConfigError: If a field is out of range.

    >>> LocalReport("label", 1.0)
    LocalReport(part='label', epsilon=1.0, delta=0.0)
    """

    part: Part
    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _store_numbers(self)
        checks.one_of(PARTS, part=self.part)
        checks.within(0, math.inf, epsilon=self.epsilon)
        checks.within(0, 1, delta=self.delta)


@dataclass(frozen=True)
class ApproximateDP:
    """Release that is (epsilon, delta)-indistinguishable for every neighboring pair.

    Randomized response and Laplace noise have delta 0; a random walk observed for finitely many steps
    has a larger one. The epsilons and the deltas of such events add up.

    Args:
        epsilon: Epsilon of the release.
        delta: Delta of the release.

    Raises:
        ConfigError: If a field is out of range.

    >>> ApproximateDP(1.0)
    ApproximateDP(epsilon=1.0, delta=0.0)
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _store_numbers(self)
        checks.non_negative(epsilon=self.epsilon)
        checks.within(0, 1, delta=self.delta)


@dataclass(frozen=True)
class ByGroup:
    """Effect of a step on one record, by the public group of the record: one event per group.

    ``Composed(())`` is a group that the step does not affect. Steps over the same ``partition`` compose
    group by group, and the cost is that of the worst group. A training record is charged for training, a
    validation record for selection, and no record for both.

    Args:
        partition: Name of the partition into groups.
        events: Event of each group.

    Raises:
        ConfigError: If there are no groups, or an event is a table or has groups.

    >>> ByGroup("train/val", (Gaussian(1.0), Composed(()))).events[1]
    Composed(events=())
    """

    partition: str
    events: tuple["Event", ...]

    def __post_init__(self) -> None:
        if not self.events:
            raise ConfigError("an event by group needs one event per group, but it has none")
        flat = [compose(event) for event in self.events]
        for event in flat:
            if any(isinstance(part, PairwiseGaussian | ByGroup | OneOf) for part in event.events):
                raise ConfigError(
                    "an event by group can contain plain events only, not tables or other events by group"
                )
        object.__setattr__(self, "events", tuple(e.events[0] if len(e.events) == 1 else e for e in flat))


@dataclass(frozen=True)
class OneOf:
    """Releases on several datasets, of which only one, which is unknown, contains the difference.

    The cost is that of the worst case at each epsilon, since no single case need be the worst everywhere.
    Nested cases are distinguished.

    >>> OneOf((Gaussian(1.0), OneOf((Gaussian(2.0), Gaussian(3.0))))).cases[1:]
    (Composed(events=(Gaussian(mu=2.0),)), Composed(events=(Gaussian(mu=3.0),)))
    """

    cases: tuple["Event", ...]

    def __post_init__(self) -> None:
        if not self.cases:
            raise ConfigError("an event with alternatives needs at least one case, but it has none")
        object.__setattr__(self, "cases", tuple(case for event in self.cases for case in cases_of(event)))


@dataclass(frozen=True)
class Composed:
    """Several events on the same data, in order, which may depend on the outputs before them.

    Args:
        events: Events in order.
    """

    events: tuple["Event", ...]


Event = (
    Gaussian
    | PairwiseGaussian
    | PureDP
    | PoissonGaussian
    | PoissonRoots
    | NonPrivate
    | LocalReport
    | ApproximateDP
    | ByGroup
    | OneOf
    | Composed
)


def compose(*events: Event) -> Composed:
    """Return the composition of the events, flattened.

    Args:
        events: Events on the same data.

    Returns:
        One event with all parts in order.

    >>> compose(Gaussian(1.0), compose(Gaussian(2.0)))
    Composed(events=(Gaussian(mu=1.0), Gaussian(mu=2.0)))
    """
    flat: list[Event] = []
    for event in events:
        flat.extend(compose(*event.events).events if isinstance(event, Composed) else (event,))
    return Composed(tuple(flat))


def without_failures(event: Event) -> Composed:
    """Return a composition without its failure probabilities, which are added to delta.

    >>> without_failures(compose(Gaussian(1.0), ApproximateDP(0.0, 1e-6)))
    Composed(events=(Gaussian(mu=1.0),))
    """
    parts = compose(event).events
    return compose(*(part for part in parts if not (isinstance(part, ApproximateDP) and not part.epsilon)))


def cases_of(event: Event) -> list[Composed]:
    """Return the cases of an event: one composition for each combination of its cases.

    >>> len(cases_of(compose(OneOf((Gaussian(1.0), Gaussian(2.0))), Gaussian(3.0))))
    2
    """
    choices = [part.cases if isinstance(part, OneOf) else (part,) for part in compose(event).events]
    return [compose(*chosen) for chosen in product(*choices)]


def within_partition(event: Event, groups: str, prefix: str = "") -> Composed:
    """Return the event with its partitions named by the nodes that form their groups.

    Events of one partition compose pair by pair, or group by group, which is right only for the same groups:
    two releases under two splits must not share a name.

    Args:
        event: Event of one release.
        groups: Name of the groups, unique for each split.
        prefix: Beginning of the names of the partitions that are renamed; empty for all.

    Returns:
        The same event with other names of its partitions.

    >>> within_partition(PairwiseGaussian("labels", ((1.0,),)), "4f2a").events[0].partition
    'labels/4f2a'
    """
    return Composed(
        tuple(
            replace(part, partition=f"{part.partition}/{groups}")
            if isinstance(part, PairwiseGaussian | ByGroup) and part.partition.startswith(prefix)
            else OneOf(tuple(within_partition(case, groups, prefix) for case in part.cases))
            if isinstance(part, OneOf)
            else part
            for part in compose(event).events
        )
    )


def ldp_reports_of(event: Event) -> list[LocalReport]:
    return [part for part in compose(event).events if isinstance(part, LocalReport)]


def budgets_of(event: Event, part: Part) -> list[float]:
    return [report.epsilon for report in ldp_reports_of(event) if report.part == part]


def worst_case_ldp_reports(events: Sequence[Event]) -> Composed:
    """Return reports that cost each part at least as much as the most expensive of these events.

    For a person who made the reports of one event only, the reports depend on its features no more than the
    largest sum over one event, and likewise for its label.

    >>> one = compose(LocalReport("features", 1.0), LocalReport("label", 0.5))
    >>> [report.epsilon for report in ldp_reports_of(worst_case_ldp_reports([one, LocalReport("label",
    ...     2.0)]))]
    [1.0, 2.0]
    """
    worst = []
    for part in PARTS:
        own = [[report for report in ldp_reports_of(event) if report.part == part] for event in events]
        if any(own):
            epsilon = max(exact_sum([report.epsilon for report in reports]) for reports in own)
            delta = max(exact_sum([report.delta for report in reports]) for reports in own)
            worst.append(LocalReport(part, float(epsilon), float(delta)))
    return compose(*worst)
