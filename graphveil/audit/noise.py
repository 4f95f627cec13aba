"""Noise of a mechanism under test: laws of single steps, and the object that the mechanism draws from.

A ``LossLowerBound`` never exceeds the truth: a privacy loss of ``pure`` has probability ``mass`` at
least, a Gaussian of parameter mu is added to it, and with probability ``certain`` the neighbors are
distinguished exactly. ``alone`` is the epsilon that some event of a single step shows.

A ``NoiseRecorder`` draws and records the laws. In a neighbor test the second run receives the outcomes
of the first one. Each step is therefore compared given equal earlier outcomes, as in adaptive composition.
The claim never covers a difference outside of the steps.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from graphveil._util.checks import checked
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.errors import ConfigError

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator
SAME = 1e-9  # relative; sums in another order differ by less


@dataclass(frozen=True)
class LossLowerBound:
    """Lower bound on the privacy loss between two transcripts."""

    mu_squared: float = 0.0
    pure: float = 0.0
    mass: float = 1.0
    certain: float = 0.0
    alone: float = 0.0

    def __add__(self, other: "LossLowerBound") -> "LossLowerBound":
        return LossLowerBound(
            self.mu_squared + other.mu_squared,
            self.pure + other.pure,
            self.mass * other.mass,
            max(self.certain, other.certain),
            max(self.alone, other.alone),
        )

    @property
    def mu(self) -> float:
        return math.sqrt(self.mu_squared)

    @property
    def none(self) -> bool:
        return not (self.mu_squared or self.pure or self.certain or self.alone)

    def epsilon(self, delta: float) -> float:
        """Return an epsilon that no (epsilon', delta) claim below it can meet.

        With a pure loss L of mass P and a Gaussian, delta(e) >= P delta(e - L; mu).

        >>> LossLowerBound(pure=1.5, mass=0.5).epsilon(0.0)
        1.5
        >>> LossLowerBound(certain=0.4).epsilon(1e-5)
        inf
        """
        if self.certain > delta:
            return math.inf
        if self.mass <= delta:
            return self.alone
        share = delta / self.mass
        gaussian = epsilon_of(self.mu, share) if self.mu_squared else math.log1p(-share)
        return max(self.alone, self.pure + gaussian)


# -- laws --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Law(ABC):
    """Probability distribution of one step's outcome.

    Args:
        value: Exact values, or probabilities of a choice in each row.
        scale: Scale of the noise, or probability of a wrong bit; one, or one for each entry.
    """

    value: Any
    scale: Any = 0.0

    @abstractmethod
    def draw(self, rng: Generator) -> Any:
        """Draw an outcome."""

    @abstractmethod
    def against(self, other: Any, delta: float) -> LossLowerBound:
        """Return the loss of this law against another of the same kind and shape."""

    def scale_differs(self, other: "Law") -> bool:
        return not same(self.scale, other.scale)

    def shared(self, later: Any) -> Floats | None:
        """Return what the released values reveal if a later step reuses the noise; None if nothing."""
        return None

    def shared_mass(self) -> float:
        """Return the probability that reused noise is visible."""
        return 1.0


class Exact(Law):
    """An exact output without noise."""

    def draw(self, rng: Generator) -> Any:
        return self.value

    def against(self, other: "Exact", delta: float) -> LossLowerBound:
        return LossLowerBound() if same(self.value, other.value) else LossLowerBound(certain=1.0)


class AdditiveLaw(Law):
    """Noise of a scale around values, each entry independently."""

    def shared(self, later: "AdditiveLaw") -> Floats:
        return np.asarray(self.value / self.scale - later.value / later.scale)


class GaussianLaw(AdditiveLaw):
    """N(value, scale^2)."""

    def draw(self, rng: Generator) -> Any:
        return self.value + self.scale * rng.standard_normal(self.value.shape)

    def against(self, other: "GaussianLaw", delta: float) -> LossLowerBound:
        """Return mu, or the loss by the length of the noise if its scale differs."""
        if not self.scale_differs(other):
            if not (self.scale > 0).all():
                return LossLowerBound() if same(self.value, other.value) else LossLowerBound(certain=1.0)
            return LossLowerBound(mu_squared=float(np.square((self.value - other.value) / self.scale).sum()))
        if not delta:
            return LossLowerBound(certain=1.0)  # ratios of tails have no bound
        wide, narrow = float(self.scale.mean()), float(other.scale.mean())
        if not wide > narrow:
            return LossLowerBound()  # the other direction gives a better bound
        # One event: the noise of the wider law is longer than some t. The narrower law may have another
        # center, so its probability of the event is bounded by the triangle inequality.
        k, t = self.value.size, wide * np.sqrt(chi2.isf(np.geomspace(1e-12, 0.5, 100), self.value.size))
        apart = float(np.linalg.norm(self.value - other.value))
        likely = chi2.sf(np.square(t / wide), k) - delta
        rare = chi2.logsf(np.square(np.maximum(t - apart, 0) / narrow), k) if narrow > 0 else -np.inf + 0 * t
        seen = likely > 0
        return LossLowerBound(alone=float((np.log(likely[seen]) - rare[seen]).max(initial=0.0)))


class LaplaceLaw(AdditiveLaw):
    """Laplace noise."""

    def draw(self, rng: Generator) -> Floats:
        return np.asarray(self.value + rng.laplace(scale=self.scale, size=self.value.shape))

    def against(self, other: "LaplaceLaw", delta: float) -> LossLowerBound:
        """Return |change| / scale, which half of the outcomes have; another scale has no bound."""
        if not self.scale_differs(other):
            moved = np.abs(self.value - other.value) / self.scale
            return LossLowerBound(pure=float(moved.sum()), mass=0.5 ** int((moved > SAME).sum()))
        if not delta:
            return LossLowerBound(certain=1.0)
        # One event: an entry lies beyond this law's upper 2 delta. The entry with the largest loss counts.
        a, b = (np.broadcast_to(law.scale, self.value.shape) for law in (self, other))
        reach = a * -math.log(4 * delta) if delta < 0.25 else a * 0
        rare = -np.maximum(reach + self.value - other.value, 0) / b + math.log(0.5)
        return LossLowerBound(alone=float(max(0.0, (math.log(delta) - rare).max(initial=0.0))))


class FlipLaw(Law):
    """Randomized response: each bit is replaced by a fair one with probability 2 q, for the scale q."""

    def draw(self, rng: Generator) -> npt.NDArray[np.bool_]:
        chosen, fair = (rng.random(self.value.shape) < share for share in (2 * self.scale, 0.5))
        return np.asarray(np.where(chosen, fair, self.value))

    def against(self, other: "FlipLaw", delta: float) -> LossLowerBound:
        ones = (np.where(law.value, 1 - law.scale, law.scale) for law in (self, other))
        return of_choices(*(np.stack([p, 1 - p], axis=-1).reshape(-1, 2) for p in ones))

    def shared(self, later: "FlipLaw") -> Floats:
        """Return the positions where the bits differ: a bit that is kept reveals it."""
        return np.asarray(self.value != later.value, dtype=np.float64)

    def shared_mass(self) -> float:
        """Return 1 - 2 q."""
        return float(1 - 2 * np.max(self.scale))


class ChoiceLaw(Law):
    """One choice per row, with the row's probabilities."""

    def draw(self, rng: Generator) -> npt.NDArray[np.int64]:
        beyond = np.cumsum(self.value, axis=1) < rng.random((len(self.value), 1))
        return np.asarray(np.minimum(beyond.sum(axis=1), self.value.shape[1] - 1))

    def against(self, other: "ChoiceLaw", delta: float) -> LossLowerBound:
        return of_choices(self.value, other.value)


def of_choices(ours: Floats, theirs: Floats) -> LossLowerBound:
    """Return the loss of each row's most distinguishing choice.

    A choice that has probability zero under the second law reveals everything.
    """
    if not ours.size:
        return LossLowerBound()
    only = np.where(theirs <= 0, ours, 0.0).sum(axis=1).max()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((ours > 0) & (theirs > 0), np.log(ours / theirs), -np.inf)
    best = ratio.argmax(axis=1)
    rows = np.arange(len(ours))
    distinguishing = ratio[rows, best] > SAME
    pure = float(ratio[rows, best][distinguishing].sum())
    return LossLowerBound(pure=pure, mass=float(ours[rows, best][distinguishing].prod()), certain=float(only))


def same(one: Any, other: Any) -> bool:
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return False
    if first.dtype.kind in "fc" or second.dtype.kind in "fc":
        return bool(np.allclose(first, second, rtol=SAME, atol=SAME, equal_nan=True))
    return bool(np.array_equal(first, second))


# -- the object that a mechanism draws from ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NoiseStep:
    """One drawn step: its law, its named stream of randomness, and its outcome."""

    law: Law
    stream: Hashable | None
    outcome: Any

    @property
    def sort(self) -> tuple[str, tuple[int, ...], Hashable | None]:
        """The public facts of the step: kind of law, shape, stream."""
        return type(self.law).__name__, self.law.value.shape, self.stream


class DivergedError(Exception):
    """The mechanism took another path than on the neighboring graph."""


@checked
class NoiseRecorder:
    """Source of a mechanism's noise, which records the law of each step.

    Steps with the same ``stream`` draw the same noise, as from one seed.

    Args:
        rng: Source of randomness.
        hidden: Source of secret randomness; ``rng`` by default.
        given: Steps of another run, whose outcomes are repeated; new outcomes are drawn by default.
        zero_noise: Whether values are returned without noise.

    >>> noise = NoiseRecorder(np.random.default_rng(0))
    >>> noise.gaussian([1.0, 2.0], sigma=0.5).shape
    (2,)
    >>> noise.flip([True], epsilon=1.0).dtype, len(noise.steps)
    (dtype('bool'), 2)
    """

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        hidden: np.random.Generator | None = None,
        given: list[NoiseStep] | None = None,
        zero_noise: bool = False,
    ) -> None:
        self.steps: list[NoiseStep] = []
        self.used_hidden = False
        self._rng, self._hidden, self._given, self._zero_noise = rng, hidden or rng, given, zero_noise
        self._seed = int(rng.integers(1 << 62))

    @property
    def hidden(self) -> np.random.Generator:
        """The secret randomness that no step accounts for: samples of nodes, edges or batches."""
        self.used_hidden = True
        return self._hidden

    @checked
    def gaussian(
        self, value: npt.ArrayLike, sigma: npt.ArrayLike, *, stream: Hashable | None = None
    ) -> Floats:
        """Draw N(value, sigma^2), each entry independently.

        Args:
            value: Exact values.
            sigma: Standard deviations, one or one per value.
            stream: Name of the stream of randomness; None for new randomness.

        Returns:
            The noisy values.

        Raises:
            ConfigError: If values are not finite, or the shapes do not match.
        """
        return self._step(GaussianLaw(*_spread(value, sigma=sigma)), stream)

    @checked
    def laplace(
        self, value: npt.ArrayLike, scale: npt.ArrayLike, *, stream: Hashable | None = None
    ) -> Floats:
        """Draw Laplace noise around values, each entry independently.

        Args:
            value: Exact values.
            scale: Scales of the noise, one or one per value.
            stream: Name of the stream of randomness; None for new randomness.

        Returns:
            The noisy values.

        Raises:
            ConfigError: If values are not finite, or the shapes do not match.
        """
        return self._step(LaplaceLaw(*_spread(value, scale=scale)), stream)

    @checked
    def flip(
        self, bits: npt.ArrayLike, epsilon: npt.ArrayLike, *, stream: Hashable | None = None
    ) -> np.ndarray[Any, Any]:
        """Randomize bits: each is wrong with probability 1 / (1 + e^epsilon).

        Args:
            bits: Exact bits.
            epsilon: Epsilon of each bit, one or one per bit.
            stream: Name of the stream of randomness; None for new randomness.

        Returns:
            The randomized bits.

        Raises:
            ConfigError: If the shapes do not match.
        """
        given, budget = _spread(bits, epsilon=epsilon)
        return self._step(FlipLaw(given.astype(bool), np.asarray(1 / (1 + np.exp(budget)))), stream)

    @checked
    def choose(self, probabilities: npt.ArrayLike) -> np.ndarray[Any, Any]:
        """Draw one choice per row.

        Args:
            probabilities: Probabilities of the choices, shape (rows, choices).

        Returns:
            The indices of the choices (rows).

        Raises:
            ConfigError: If a row does not sum to one.
        """
        table = np.atleast_2d(_floats(probabilities))
        if (table < 0).any() or not np.allclose(table.sum(axis=1), 1, atol=1e-9):
            raise ConfigError("probabilities must have non-negative rows that sum to 1")
        return self._step(ChoiceLaw(table), None)

    @checked
    def release(self, value: Any) -> Any:
        """Release a value without noise.

        Args:
            value: Array or tensor.

        Returns:
            The value.
        """
        return self._step(Exact(np.asarray(_plain(value))), None)

    def _step(self, law: Law, stream: Hashable | None) -> np.ndarray[Any, Any]:
        number, rng = len(self.steps), self._rng
        if self._given is not None:
            before = self._given[number] if number < len(self._given) else None
            self.steps.append(NoiseStep(law, stream, None if before is None else before.outcome))
            if before is None or before.sort != self.steps[-1].sort:
                raise DivergedError
        elif self._zero_noise and isinstance(law, AdditiveLaw):
            self.steps.append(NoiseStep(law, stream, law.value))
        else:
            if stream is not None:  # steps of one stream draw from one seed
                digest = hashlib.sha256(f"{self._seed} {stream!r}".encode()).digest()
                rng = np.random.default_rng(int.from_bytes(digest[:8]))
            self.steps.append(NoiseStep(law, stream, law.draw(rng)))
        outcome: np.ndarray[Any, Any] = self.steps[-1].outcome
        return outcome


def _spread(value: npt.ArrayLike, **spread: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return values and the spread of their noise: one number, or one for each value."""
    (name, wide), where = next(iter(spread.items())), _floats(value)
    found = _floats(wide)
    if found.shape not in ((), where.shape[found.ndim and -found.ndim :]):
        raise ConfigError(f"{name} has the shape {found.shape}, but the values have the shape {where.shape}.")
    if name != "epsilon" and (found < 0).any():
        raise ConfigError(f"{name} must be at least 0.")
    return where, found


def _floats(value: Any) -> Floats:
    array = np.asarray(_plain(value), dtype=np.float64)
    if not np.isfinite(array).all():
        raise ConfigError(
            "The mechanism adds noise to values that are NaN or infinite. Return finite values."
        )
    return array


def _plain(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def arrays_of(returned: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a mechanism's output: one, or a tuple, list or dictionary of them."""
    if returned is None:
        return []
    if isinstance(returned, dict):
        return [array for key in sorted(returned) for array in arrays_of(returned[key])]
    if isinstance(returned, tuple | list):
        return [array for part in returned for array in arrays_of(part)]
    return [np.asarray(_plain(returned))]
