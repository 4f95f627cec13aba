"""The noise that a mechanism is handed in an audit: it draws, and writes down what from.

A replay hands the neighbor the outcomes of the first run. So every step is compared given the same
outcomes before it, which is what adaptive composition is about, and whatever differs beyond the steps was
never covered.
"""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil._util.checks import checked
from graphveil.audit.laws import ChoiceLaw, Exact, FlipLaw, Floats, GaussianLaw, LaplaceLaw, Law
from graphveil.errors import ConfigError


@dataclass(frozen=True, eq=False)
class NoiseStep:
    """One law that was drawn from, the stream of randomness that was named for it, and what came out."""

    law: Law
    stream: Hashable | None
    outcome: Any

    @property
    def sort(self) -> tuple[str, tuple[int, ...], Hashable | None]:
        """What everybody sees of it beforehand."""
        return type(self.law).__name__, self.law.shape, self.stream


class DivergedError(Exception):
    """Raised within a mechanism whose neighbor took another path."""


@checked
class NoiseRecorder:
    """Draws, and remembers the laws; with ``given`` it repeats the outcomes of another run.

    ``stream`` names a source of randomness: steps of one stream draw the same noise, as from one seed.

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
        """Take where randomness comes from; ``zero_noise`` gives out what noise would be added to."""
        self.steps: list[NoiseStep] = []
        self.used_hidden = False
        self._rng, self._hidden, self._given, self._silent = rng, hidden or rng, given, zero_noise
        self._seed = int(rng.integers(1 << 62))

    @property
    def hidden(self) -> np.random.Generator:
        """Secret randomness that no step accounts for: samples of nodes, of edges, of batches."""
        self.used_hidden = True
        return self._hidden

    @checked
    def gaussian(
        self, value: npt.ArrayLike, sigma: npt.ArrayLike, *, stream: Hashable | None = None
    ) -> Floats:
        """Return N(value, sigma^2)."""
        found: Floats = self._step(GaussianLaw(*_spread(value, sigma=sigma)), stream)
        return found

    @checked
    def laplace(
        self, value: npt.ArrayLike, scale: npt.ArrayLike, *, stream: Hashable | None = None
    ) -> Floats:
        """Return the value with Laplace noise."""
        found: Floats = self._step(LaplaceLaw(*_spread(value, scale=scale)), stream)
        return found

    @checked
    def flip(
        self, bits: npt.ArrayLike, epsilon: npt.ArrayLike, *, stream: Hashable | None = None
    ) -> np.ndarray[Any, Any]:
        """Return randomized bits: each is wrong with probability 1 / (1 + e^epsilon)."""
        given, budget = _spread(bits, epsilon=epsilon)
        wrong = np.asarray(1 / (1 + np.exp(budget)))
        found: np.ndarray[Any, Any] = self._step(FlipLaw(given.astype(bool), wrong), stream)
        return found

    @checked
    def choose(self, probabilities: npt.ArrayLike) -> np.ndarray[Any, Any]:
        """Return one choice a row, with these probabilities."""
        table = np.atleast_2d(_floats(probabilities))
        if (table < 0).any() or not np.allclose(table.sum(axis=1), 1, atol=1e-9):
            raise ConfigError("probabilities must be rows that sum to one")
        found: np.ndarray[Any, Any] = self._step(ChoiceLaw(table), None)
        return found

    @checked
    def release(self, value: Any) -> Any:
        """Give something out as it is."""
        return self._step(Exact(np.asarray(_plain(value))), None)

    def _step(self, law: Law, stream: Hashable | None) -> Any:
        number = len(self.steps)
        if self._given is not None:
            before = self._given[number] if number < len(self._given) else None
            self.steps.append(NoiseStep(law, stream, None if before is None else before.outcome))
            if before is None or before.sort != self.steps[-1].sort:
                raise DivergedError
            return before.outcome
        outcome = getattr(law, "value", None) if self._silent else None
        self.steps.append(
            NoiseStep(law, stream, law.draw(self._source(stream)) if outcome is None else outcome)
        )
        return self.steps[-1].outcome

    def _source(self, stream: Hashable | None) -> np.random.Generator:
        if stream is None:
            return self._rng
        digest = hashlib.sha256(f"{self._seed} {stream!r}".encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8]))


def _plain(value: Any) -> Any:
    """Return a torch tensor as an array, and anything else as it is."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _spread(value: npt.ArrayLike, **spread: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return values and how far noise spreads them, which is one number or one for each value."""
    (name, wide), where = next(iter(spread.items())), _floats(value)
    found = _floats(wide)
    if found.shape not in ((), where.shape[found.ndim and -found.ndim :]):
        raise ConfigError(f"{name} has the shape {found.shape}, and the values have {where.shape}.")
    if name != "epsilon" and (found < 0).any():
        raise ConfigError(f"{name} must not be below 0.")
    return where, found


def _floats(value: Any) -> Floats:
    array = np.asarray(_plain(value), dtype=np.float64)
    if not np.isfinite(array).all():
        raise ConfigError("a mechanism hands its noise values that are no numbers")
    return array


def arrays_of(returned: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays in what a mechanism returns: one, or a tuple, list or dictionary of them."""
    if returned is None:
        return []
    if isinstance(returned, dict):
        return [array for key in sorted(returned) for array in arrays_of(returned[key])]
    if isinstance(returned, tuple | list):
        return [array for part in returned for array in arrays_of(part)]
    return [np.asarray(_plain(returned))]
