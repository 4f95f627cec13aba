"""Whether two neighbors are told apart too well, by runs of the mechanism as it is, with its noise.

For mechanisms with secret randomness besides their noise, whose laws are mixtures: an event is looked for in
one half of the runs and counted in the other, so the bound of its counts holds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.audit.bounds import LowerBound, repeated_runs
from graphveil.audit.noise import NoiseRecorder, arrays_of
from graphveil.audit.small_graphs import Neighbors, SmallGraph

Mechanism = Callable[[SmallGraph, NoiseRecorder], Any]
Floats = npt.NDArray[np.float64]

CONFIDENCE = 1 - 1e-7  # several pairs are tried, and no sound mechanism is to be accused in years
_QUANTILES = np.linspace(0.01, 0.99, 60)
_MAX_ATOMS = 4
_WIDEST = 64  # entries of an output in which single values are looked for


@dataclass(frozen=True, eq=False)
class Event:
    """Something to look for in an output: an entry with one of some values, or a sum beyond a threshold."""

    weights: Floats | None
    threshold: float
    atoms: frozenset[bytes]

    def occurs_in(self, outputs: Floats) -> npt.NDArray[np.bool_]:
        """Return for each row whether it does."""
        if self.weights is not None:
            return np.asarray(outputs @ self.weights > self.threshold)
        return np.array([any(entry.tobytes() in self.atoms for entry in row) for row in outputs])


def certified(
    mechanism: Mechanism,
    pair: Neighbors,
    runs: int,
    delta: float,
    seed: int,
    confidence: float = CONFIDENCE,
) -> LowerBound:
    """Return the lower bound on epsilon of one pair, from this many runs on either side."""
    both = [outputs(mechanism, graph, runs, seed + side) for side, graph in enumerate(pair)]
    if both[0].shape[1] != both[1].shape[1]:
        return repeated_runs(runs, runs, 0, runs, delta=delta, confidence=confidence)
    half = runs // 2
    event = most_distinguishing_event(both[0][:half], both[1][:half], delta)
    tp, fp = (int(event.occurs_in(rows[half:]).sum()) for rows in both)
    return repeated_runs(tp, runs - half, fp, runs - half, delta=delta, confidence=confidence)


def outputs(mechanism: Mechanism, graph: SmallGraph, runs: int, seed: int) -> Floats:
    """Return what runs give out, a row each; a run that fails gives out nothing but that."""
    rng = np.random.default_rng(seed)
    rows = [_output(mechanism, graph, rng) for _ in range(runs)]
    width = max(map(len, rows))
    return np.array([np.pad(row, (0, width - len(row)), constant_values=np.inf) for row in rows])


def _output(mechanism: Mechanism, graph: SmallGraph, rng: np.random.Generator) -> Floats:
    noise = NoiseRecorder(rng)
    returned = mechanism(graph, noise)
    parts = [np.asarray(step.outcome, dtype=np.float64).ravel() for step in noise.steps]
    parts += [array.astype(np.float64).ravel() for array in arrays_of(returned)]
    return np.concatenate(parts) if parts else np.zeros(0)


def most_distinguishing_event(first: Floats, second: Floats, delta: float) -> Event:
    """Return the event that tells first from second best, in these runs."""
    events = _thresholds(first, second)
    if first.shape[1] <= _WIDEST:
        events.append(_atoms(first, second))

    def bound_of(event: Event) -> float:
        tp, fp = (int(event.occurs_in(rows).sum()) for rows in (first, second))
        return repeated_runs(tp, len(first), fp, len(second), delta=delta, confidence=0.99).epsilon

    return max(events, key=bound_of)


def _thresholds(first: Floats, second: Floats) -> list[Event]:
    """Return thresholds of the sum in which the means differ most, each entry by its variance."""
    finite = np.isfinite(first).all(axis=0) & np.isfinite(second).all(axis=0)
    a, b = first[:, finite], second[:, finite]
    shift, spread = a.mean(axis=0) - b.mean(axis=0), a.var(axis=0) + b.var(axis=0)
    shift = np.where(np.abs(shift) > 2 * np.sqrt(spread / len(a)), shift, 0.0)  # the rest is chance
    weights = np.zeros(first.shape[1])
    weights[finite] = shift / (spread + 1e-12)
    clean = np.where(np.isfinite(first), first, 0.0) @ weights
    return [Event(weights, float(t), frozenset()) for t in np.unique(np.quantile(clean, _QUANTILES))]


def _atoms(first: Floats, second: Floats) -> Event:
    """Return the values that occur again and again, and on the other side never."""
    ours, theirs = (Counter(entry.tobytes() for row in rows for entry in row) for rows in (first, second))
    alone = [(count, value) for value, count in ours.items() if count > 1 and not theirs[value]]
    return Event(None, 0.0, frozenset(value for _, value in sorted(alone, reverse=True)[:_MAX_ATOMS]))
