"""From events to a privacy curve: closed form for Gaussians, privacy-loss distributions for the rest.

All accounting is exact or pessimistic; Renyi bounds appear in :mod:`graphveil.privacy.renyi` only, as the
papers' own accounting.
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from graphveil.errors import PrivacyError
from graphveil.privacy import gaussian
from graphveil.privacy.events import Composed, Event, Gaussian, NonPrivate, PairwiseGaussian, PoissonGaussian

SEARCH_INTERVAL = 1e-3  # discretisation of the privacy loss while searching
CERTIFY_INTERVAL = 1e-4  # and for every figure that is printed


class Curve(ABC):
    """The privacy of a whole transcript: epsilon for any delta, and back."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return delta at this epsilon."""

    @abstractmethod
    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at this delta."""

    @abstractmethod
    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return an upper bound on an attacker's true-positive rate at this false-positive rate."""


@dataclass(frozen=True)
class GaussianCurve(Curve):
    """The exact curve of a composition of Gaussian releases.

    >>> round(GaussianCurve(1.0).epsilon(1e-7), 6)
    5.349345
    """

    mu: float

    def delta(self, epsilon: float) -> float:
        """Return delta(epsilon; mu)."""
        return gaussian.delta_of(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        """Return epsilon(mu, delta)."""
        return gaussian.epsilon_of(self.mu, delta)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return Phi(Phi^-1(FPR) + mu), which an attacker who knows all but one edge attains."""
        return gaussian.true_positive_rate(false_positive_rate, self.mu)


@dataclass(frozen=True)
class NoPrivacyCurve(Curve):
    """The curve of a transcript that nothing bounds."""

    def delta(self, epsilon: float) -> float:
        """Return 1: any event may separate the two graphs."""
        return 1.0

    def epsilon(self, delta: float) -> float:
        """Return infinity."""
        return math.inf

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class PldCurve(Curve):
    """A pessimistic curve from a privacy-loss distribution."""

    pld: Any

    def delta(self, epsilon: float) -> float:
        """Return the distribution's delta at this epsilon."""
        return float(self.pld.get_delta_for_epsilon(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return the distribution's epsilon at this delta."""
        return float(self.pld.get_epsilon_for_delta(delta))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return min over epsilon of e^epsilon FPR + delta(epsilon)."""

        def bound(epsilon: float) -> float:
            return math.exp(epsilon) * false_positive_rate + self.delta(epsilon)

        # delta is convex in e^epsilon, so the bound has one minimum; every epsilon gives a valid bound.
        highest = max(1.0, math.log(1 / false_positive_rate))
        best = minimize_scalar(bound, bounds=(0.0, highest), method="bounded", options={"xatol": 1e-4})
        return min(1.0, float(best.fun))


def total_mu(event: Event) -> float | None:
    """Return the exact mu of a composition of Gaussians, or None if it holds anything else.

    >>> total_mu(Composed((Gaussian(3.0), Gaussian(4.0))))
    5.0
    """
    scalar, pairwise, rest = _split(event)
    if rest:
        return None
    return math.sqrt(scalar + sum(_worst_pair(tables) for tables in pairwise.values()))


def stand_alone(event: Event) -> Event:
    """Return the event with its pairwise tables reduced to their worst pair.

    Tables add pair by pair within one release only. Two releases may share a partition's name and not its
    groups (another split moves nodes), and then the worst pairs of both must be added.

    >>> table = PairwiseGaussian("train/val/target", ((1.0, 0.0), (0.0, 0.25)))
    >>> total_mu(stand_alone(table))
    1.0
    """
    scalar, pairwise, rest = _split(event)
    worst = scalar + sum(_worst_pair(tables) for tables in pairwise.values())
    return Composed((Gaussian(math.sqrt(worst)), *rest) if worst else tuple(rest))


def privacy_curve(event: Event, *, interval: float = CERTIFY_INTERVAL) -> Curve:
    """Return the privacy curve of an event.

    >>> round(privacy_curve(Gaussian(0.5)).epsilon(1e-5), 6)
    1.993091
    """
    scalar, pairwise, rest = _split(event)
    mu = math.sqrt(scalar + sum(_worst_pair(tables) for tables in pairwise.values()))
    if not rest:
        return GaussianCurve(mu)
    if any(isinstance(part, NonPrivate) for part in rest):
        return NoPrivacyCurve()
    pld = _gaussian_pld(mu, interval)
    for part in rest:
        if not isinstance(part, PoissonGaussian):
            raise PrivacyError(f"no accounting is known for the event {type(part).__name__}")
        if part.steps and part.sampling_rate:
            step = _poisson_pld(part, interval)
            pld = pld.compose(step.self_compose(part.steps))
    return PldCurve(pld)


def _split(event: Event) -> tuple[float, dict[str, list[PairwiseGaussian]], list[Event]]:
    """Sort a transcript into plain mu^2, pairwise tables by partition, and everything else."""
    scalar = 0.0
    pairwise: dict[str, list[PairwiseGaussian]] = defaultdict(list)
    rest: list[Event] = []
    for part in event.events if isinstance(event, Composed) else (event,):
        if isinstance(part, Gaussian):
            scalar += part.mu**2
        elif isinstance(part, PairwiseGaussian):
            pairwise[part.partition].append(part)
        elif isinstance(part, Composed):
            inner_scalar, inner_pairwise, inner_rest = _split(part)
            scalar += inner_scalar
            rest.extend(inner_rest)
            for partition, tables in inner_pairwise.items():
                pairwise[partition].extend(tables)
        else:
            rest.append(part)
    return scalar, pairwise, rest


def _worst_pair(tables: list[PairwiseGaussian]) -> float:
    """Return the largest sum of mu^2 over any pair of groups."""
    if len({len(table.mu_squared) for table in tables}) > 1:
        raise PrivacyError("two releases name one partition but disagree on its number of groups")
    return float(np.sum([table.mu_squared for table in tables], axis=0).max())


@lru_cache(maxsize=64)
def _gaussian_pld(mu: float, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as plds

    if mu == 0:
        return plds.identity(value_discretization_interval=interval)
    # Charged by its mu under either relation: never through a replace-one event, which doubles the change.
    return plds.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval)


@lru_cache(maxsize=64)
def _poisson_pld(event: PoissonGaussian, interval: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as plds

    relations = {"add_remove": "ADD_OR_REMOVE_ONE", "replace": "REPLACE_ONE"}
    return plds.from_gaussian_mechanism(
        event.noise_multiplier,
        value_discretization_interval=interval,
        sampling_prob=event.sampling_rate,
        neighboring_relation=NeighboringRelation[relations[event.relation]],
    )
