"""Replays: run anybody's mechanism on neighboring graphs, and compare what is told with what is claimed."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from itertools import count
from typing import Any

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.certify import Mechanism, certified
from graphveil.audit.laws import Exact, Law, LossLowerBound, same
from graphveil.audit.noise import DivergedError, NoiseRecorder, NoiseStep, arrays_of
from graphveil.audit.report import Finding, NeighborTestResult, PrivacyClaim
from graphveil.audit.small_graphs import NODES, Drawing, Neighbors, SmallGraph, neighbors_of, pairs_of
from graphveil.errors import ConfigError

SECONDS, RUNS = 20.0, 16_000
_HIDDEN_DRAWS = 12
_FINALISTS, _FEW_RUNS, _TO_CHOOSE = 3, 1200, 0.8  # suspects of either kind, and what chooses among them
_JUDGED = 3


@checked
def neighbor_test(
    function: Callable[..., Any],
    *,
    unit: str,
    epsilon: float | None = None,
    delta: float = 0.0,
    mu: float | None = None,
    sensitivity: float | None = None,
    neighbors: Drawing | None = None,
    seconds: float = SECONDS,
    pairs: int | None = None,
    nodes: int = NODES,
    runs: int = RUNS,
    seed: int = 0,
) -> NeighborTestResult:
    """Try to refute a claim: run a mechanism on random neighbors, and compare what is told with it.

    The mechanism is ``function(graph, noise)``: it draws all its noise from ``noise``
    (:class:`~graphveil.audit.noise.NoiseRecorder`) and may return anything else that it gives out. The
    neighbor is run with the outcomes of the first graph's run, so each step is compared given the same
    answers before it. With ``sensitivity=`` it is ``function(graph)``, which returns what noise is added to,
    and the claim is that no neighbor moves it further, in L2.

    A refutation is a proof up to rounding, or up to chance of one in ten million where secret samples are
    drawn. No refutation is no proof.

    Args:
        function: the mechanism.
        unit: ``undirected-edge``, ``directed-edge``, ``node-record``, ``node`` or ``local-attributes``.
        epsilon, delta, mu, sensitivity: what is claimed.
        neighbors: draws a pair of :class:`SmallGraph`, instead of the unit's own.
        seconds: the budget; ``pairs`` sets a number instead.
        pairs: how many neighbors to compare.
        nodes: graphs of up to so many are drawn.
        runs: of either side of a pair that counts decide about.
        seed: of everything that is drawn.

    Raises:
        ConfigError: the claim is incomplete, or the unit is not known.

    >>> def degrees(graph, noise):
    ...     noise.laplace(graph.a.sum(axis=0), scale=1.0)
    >>> found = neighbor_test(degrees, unit="undirected-edge", epsilon=1.0, pairs=50)
    >>> found.kinds, found.largest  # an undirected edge changes two degrees
    (('change',), 2.0)
    >>> neighbor_test(degrees, unit="directed-edge", epsilon=1.0, pairs=50).broken
    False
    """
    if sensitivity is not None:
        checks.positive(sensitivity=sensitivity)
        mu = sensitivity
    checks.integer_at_least(0, seed=seed)
    checks.integer_at_least(1, nodes=nodes, runs=runs, **({} if pairs is None else {"pairs": pairs}))
    search = _Search(
        _mechanism(function, sensitivity is not None),
        PrivacyClaim(epsilon=epsilon, delta=delta, mu=mu),
        seed,
        runs,
    )
    started = time.perf_counter()
    drawing = neighbors or neighbors_of(unit, nodes)
    for number, pair in zip(_within(seconds, pairs, started), pairs_of(drawing, seed), strict=False):
        search.compare(pair, number)
    search.finish()
    return search.report(unit, time.perf_counter() - started)


def _mechanism(function: Callable[..., Any], plain: bool) -> Mechanism:
    if not plain:
        if len(signature(function).parameters) < 2:
            raise ConfigError(
                "a mechanism takes (graph, noise); for a function of the graph alone, which returns what "
                "noise is added to, say sensitivity="
            )
        return function

    def with_noise(graph: SmallGraph, noise: NoiseRecorder) -> None:
        for array in arrays_of(function(graph)):
            noise.gaussian(array, 1.0)

    return with_noise


def _within(seconds: float, pairs: int | None, started: float) -> Iterator[int]:
    """Count pairs until there are as many, or the time is up."""
    for number in count():
        if number >= pairs if pairs is not None else time.perf_counter() - started > seconds:
            return
        yield number


@dataclass(frozen=True, eq=False)
class _Run:
    """What one run told: its steps, what it returned, and how it ended if it failed."""

    steps: list[NoiseStep]
    returned: list[np.ndarray[Any, Any]]
    failure: str
    hidden: bool


def _run(mechanism: Mechanism, graph: SmallGraph, noise: NoiseRecorder) -> _Run:
    returned: list[np.ndarray[Any, Any]] = []
    failure = ""
    try:
        returned = arrays_of(mechanism(graph, noise))
    except DivergedError:
        failure = "diverged"
    except ArithmeticError as error:  # seen from outside, and a function of the data
        failure = type(error).__name__
    return _Run(noise.steps, returned, failure, noise.used_hidden)


class _Search:
    """A replay under way: the worst of each kind, and the pairs that look worst."""

    def __init__(self, mechanism: Mechanism, claim: PrivacyClaim, seed: int, runs: int) -> None:
        self._mechanism, self._claim, self._seed, self._runs = mechanism, claim, seed, runs
        self._found: dict[str, Finding] = {}
        self._suspects: list[tuple[float, int, Neighbors]] = []
        self._pairs = self._steps = 0
        self._largest = LossLowerBound()
        self._most_epsilon = 0.0
        self._hidden = False

    def compare(self, pair: Neighbors, number: int) -> None:
        """Run both sides, the second with the first's outcomes."""
        self._pairs += 1
        first = _run(self._mechanism, pair[0], NoiseRecorder(self._rng(number)))
        self._steps = max(self._steps, len(first.steps))
        if first.hidden:
            self._hidden = True
            self._suspect(pair, number)
            return
        second = _run(self._mechanism, pair[1], NoiseRecorder(self._rng(number), given=first.steps))
        for kind, loss in _differences(first, second, self._claim.at[1]):
            self._note(kind, loss, pair)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, number, 1])

    def _note(self, kind: str, loss: LossLowerBound, pair: Neighbors) -> None:
        epsilon = loss.epsilon(self._claim.at[1])
        if loss.mu_squared > self._largest.mu_squared:
            self._largest = loss
        self._most_epsilon = max(self._most_epsilon, epsilon)
        if self._claim.is_satisfied_by(loss):
            return
        finding = Finding(kind, epsilon, loss.mu, *pair)
        known = self._found.get(kind)
        if known is None or finding.size < known.size:
            self._found[kind] = finding

    def _suspect(self, pair: Neighbors, number: int) -> None:
        """Score a pair by how far means over secret randomness lie apart, in units of the noise."""
        means = [self._mean(graph, number) for graph in pair]
        apart = float(np.linalg.norm(means[0] - means[1])) if means[0].shape == means[1].shape else math.inf
        if apart > 0:
            self._suspects.append((-apart, number, pair))

    def _mean(self, graph: SmallGraph, number: int) -> np.ndarray[Any, Any]:
        rows = []
        for draw in range(_HIDDEN_DRAWS):
            hidden = np.random.default_rng([self._seed, number, 2, draw])
            noise = NoiseRecorder(self._rng(number), hidden=hidden, zero_noise=True)
            run = _run(self._mechanism, graph, noise)
            parts = [_in_noise(step) for step in run.steps] + [array.ravel() for array in run.returned]
            rows.append(
                np.concatenate([np.asarray(part, dtype=np.float64) for part in parts] or [np.zeros(0)])
            )
        return np.mean(rows, axis=0) if len({len(row) for row in rows}) == 1 else np.full(1, np.nan)

    def finish(self) -> None:
        """Judge the suspects by counts of runs: a few of each, and then many of the worst."""
        delta = self._claim.at[1]
        few = min(_FEW_RUNS, self._runs)
        ways = [(n, way) for _, n, pair in self._suspected() for way in (pair, pair[::-1])]
        tried = [certified(self._mechanism, way, few, delta, n + 1, _TO_CHOOSE) for n, way in ways]
        worst = sorted(range(len(ways)), key=lambda i: -tried[i].epsilon)[:_JUDGED]
        for n, way in (ways[i] for i in worst):
            bound = certified(self._mechanism, way, self._runs, delta, self._seed + 7 * n)
            self._note("mixture", LossLowerBound(alone=bound.epsilon), way)
            if self._found:
                return

    def _suspected(self) -> list[tuple[float, int, Neighbors]]:
        """Return the pairs whose means lie furthest apart, and the smallest ones, which dilute least."""
        small = sorted(self._suspects, key=lambda s: (s[2][0].nodes, len(s[2][0].edges) + len(s[2][1].edges)))
        worst = sorted(self._suspects, key=lambda s: s[:2])
        return worst[:_FINALISTS] + [s for s in small if s not in worst[:_FINALISTS]][:_FINALISTS]

    def report(self, unit: str, seconds: float) -> NeighborTestResult:
        """Return what was found, the worst first."""
        order = sorted(self._found.values(), key=lambda finding: -finding.epsilon)
        return NeighborTestResult(
            unit=unit,
            claim=self._claim,
            findings=tuple(order),
            pairs=self._pairs,
            seconds=seconds,
            largest=self._most_epsilon,
            largest_mu=self._largest.mu,
            steps=self._steps,
            hidden=self._hidden,
        )


def _in_noise(step: NoiseStep) -> np.ndarray[Any, Any]:
    """Return a step's value in units of its noise."""
    value = np.asarray(getattr(step.law, "value", step.outcome), dtype=np.float64)
    scale = getattr(step.law, "sigma", getattr(step.law, "scale", 1.0))
    return np.ravel(value / scale)


def _differences(first: _Run, second: _Run, delta: float) -> Iterator[tuple[str, LossLowerBound]]:
    """Yield each kind of difference between two runs, and how much it tells."""
    if kind := _structural_difference(first, second):
        yield kind, LossLowerBound(certain=1.0)
        return
    total, streams = LossLowerBound(), set[Any]()
    for one, other in zip(first.steps, second.steps, strict=True):
        if one.stream is not None and one.sort in streams:
            continue  # its noise is that of an earlier step, and losses do not add up
        streams.add(one.sort)
        loss = _worst_way(one.law, other.law, delta)
        if isinstance(one.law, Exact):
            yield "exact output", loss
        elif one.law.scale_differs(other.law):
            yield "noise scale", loss
        else:
            total += loss
    yield "change", total
    for mass in _reused(first.steps, second.steps):
        yield "reused noise", LossLowerBound(certain=mass)
    if not all(map(same, first.returned, second.returned)):
        yield "exact output", LossLowerBound(certain=1.0)


def _structural_difference(first: _Run, second: _Run) -> str | None:
    """Return how the two runs look different before any value is compared."""
    if first.failure != second.failure or len(first.steps) != len(second.steps):
        last = min(len(first.steps), len(second.steps)) - 1
        if last >= 0 and second.failure == "diverged":
            one, other = first.steps[last].sort, second.steps[last].sort
            if len(second.steps) <= len(first.steps) and one[0] == other[0] and one[1] != other[1]:
                return "shape"
        return "control flow"
    if [part.shape for part in first.returned] != [part.shape for part in second.returned]:
        return "shape"
    return None


def _worst_way(one: Law, other: Law, delta: float) -> LossLowerBound:
    """Return the larger loss of the two directions."""
    both = one.against(other, delta), other.against(one, delta)
    return max(both, key=lambda loss: loss.epsilon(delta))


def _reused(first: list[NoiseStep], second: list[NoiseStep]) -> Iterator[float]:
    """Yield how likely it shows that two steps of one stream differ by something exact."""
    for i, one in enumerate(first):
        for j in range(i):
            if one.stream is None or one.sort != first[j].sort:
                continue
            difference, other = first[j].law.shared(one.law), second[j].law.shared(second[i].law)
            if difference is not None and not same(difference, other):
                yield first[j].law.shared_mass()
