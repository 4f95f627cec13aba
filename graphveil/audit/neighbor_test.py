"""Neighbor tests: run a mechanism on neighboring graphs and compare the privacy loss with the claim.

Steps of known laws are compared exactly. A mechanism with secret randomness besides its noise draws from
mixtures: for these an event is searched in one half of the runs and counted in the other half, so the bound
of the counts is valid.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from inspect import signature
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.figures import counted
from graphveil.audit.bounds import LowerBound, repeated_runs
from graphveil.audit.noise import (
    AdditiveLaw,
    DivergedError,
    Exact,
    Floats,
    LossLowerBound,
    NoiseRecorder,
    NoiseStep,
    arrays_of,
    same,
)
from graphveil.audit.small_graphs import NODES, Drawing, Neighbors, SmallGraph, neighbors_of, pairs_of
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.errors import ConfigError

SECONDS, RUNS = 20.0, 16_000
TOLERANCE = 1e-7  # relative; rounding is below it
DELTA_OF_MU = 1e-6  # at which delta a claim of mu is compared with a loss that is not Gaussian
CONFIDENCE = 1 - 1e-7  # several pairs are tried, and a sound mechanism must not be refuted by chance
_HIDDEN_DRAWS = 12  # of secret randomness, whose mean ranks the pairs
_FINALISTS, _FEW_RUNS, _TO_CHOOSE, _JUDGED = 3, 1200, 0.8, 3  # pairs that are tried with few runs, then many
_QUANTILES = np.linspace(0.01, 0.99, 60)
_MAX_ATOMS = 4
_WIDEST = 64  # entries of an output in which single values are searched

KINDS = {
    "change": "a neighbor changes what is released by more than the claim allows",
    "control flow": "the sequence of steps depends on the data beyond earlier outputs",
    "shape": "the shape of the release depends on the data",
    "noise scale": "the scale of the noise depends on the data",
    "reused noise": "two steps draw the same noise, which cancels",
    "exact output": "an output is not a function of the noisy answers",
    "mixture": "secret samples hide less than claimed, by counts of runs",
    "privacy_cost": "a pair costs more than the whole release is charged for",
    "reach": "a row changes that no differing edge or record reaches",
}

Mechanism = Callable[[SmallGraph, NoiseRecorder], Any]


# -- claims and results ------------------------------------------------------------------------------------


@checked
@dataclass(frozen=True, kw_only=True)
class PrivacyClaim:
    """A claimed guarantee for neighboring datasets: (epsilon, delta), or a Gaussian parameter mu.

    Args:
        epsilon: Claimed epsilon; None for a claim of mu.
        delta: Delta of the claim.
        mu: Claimed Gaussian parameter; None for a claim of epsilon.

    Raises:
        ConfigError: If both or neither of ``epsilon`` and ``mu`` are given, or a value is out of range.
    """

    epsilon: float | None = None
    delta: float = 0.0
    mu: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.mu is None):
            raise ConfigError(
                "A guarantee to test is missing or given twice. Pass either epsilon= (with delta=) or mu=."
            )
        checks.within(0, 1, delta=self.delta)
        checks.non_negative(epsilon=self.epsilon or 0.0, mu=self.mu or 0.0)

    @property
    def at(self) -> tuple[float, float]:
        """The (epsilon, delta) to compare with a loss."""
        if self.mu is not None:
            return epsilon_of(self.mu, DELTA_OF_MU), DELTA_OF_MU
        assert self.epsilon is not None
        return self.epsilon, self.delta

    @checked
    def is_satisfied_by(self, loss: LossLowerBound) -> bool:
        """Return whether a measured loss is within the claim.

        Args:
            loss: Lower bound on the privacy loss of a pair.
        """
        if self.mu is not None and not loss.pure and not loss.certain and not loss.alone:
            return loss.mu <= self.mu * (1 + TOLERANCE) + 1e-12
        epsilon, delta = self.at
        return loss.epsilon(delta) <= epsilon * (1 + TOLERANCE) + TOLERANCE

    def __str__(self) -> str:
        if self.mu is not None:
            return f"mu = {self.mu:g}"
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"


@checked
@dataclass(frozen=True, eq=False)
class Finding:
    """One violation of a claim, and the pair of neighbors that shows it.

    Args:
        kind: Kind of violation, a key of ``KINDS``.
        epsilon: Lower bound on epsilon at the claim's delta.
        mu: Gaussian part of the measured loss.
        first, second: The two neighboring graphs.
    """

    kind: str
    epsilon: float
    mu: float
    first: SmallGraph
    second: SmallGraph

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of nodes and edges, by which the smallest pair is chosen."""
        return self.first.nodes, len(self.first.edges) + len(self.second.edges)

    def __str__(self) -> str:
        first, second = self.first, self.second
        differ = [
            v for v in range(first.nodes) if (first.x[v] != second.x[v]).any() or first.y[v] != second.y[v]
        ]
        records = "".join(
            f"\n    record {v}:   {first.x[v].round(3).tolist()}, class {first.y[v]} / "
            f"{second.x[v].round(3).tolist()}, class {second.y[v]}"
            for v in differ
        )
        shown = "everything" if math.isinf(self.epsilon) else f"epsilon >= {self.epsilon:.4g}"
        return (
            f"{self.kind}: {KINDS[self.kind]} ({shown})\n    one graph:  {first}\n"
            f"    the other:  {second}{records}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON; infinity is None."""
        return {
            "kind": self.kind,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "mu": self.mu,
            "first": str(self.first),
            "second": str(self.second),
        }


@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class NeighborTestResult:
    """The result of a neighbor test: each kind of finding once, with the smallest pair that shows it.

    Args:
        unit: Name of the privacy unit.
        claim: Tested claim.
        findings: Violations of the claim; empty if none was found.
        pairs: Number of compared pairs.
        seconds: Duration.
        largest: Largest epsilon of any pair at the claim's delta.
        largest_mu: Largest Gaussian part of any pair.
        steps: Largest number of noisy steps of a run.
        hidden: Whether secret randomness was used, so that counts of runs decide.
        attained: For query plans, the largest share of its privacy cost that a pair attained, by the public
            groups of the nodes that differ.
    """

    unit: str
    claim: PrivacyClaim
    findings: tuple[Finding, ...]
    pairs: int
    seconds: float
    largest: float
    largest_mu: float
    steps: int
    hidden: bool
    attained: Mapping[str, float] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """Whether the claim was refuted."""
        return bool(self.findings)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the findings."""
        return tuple(finding.kind for finding in self.findings)

    def __str__(self) -> str:
        verdict = "BROKEN" if self.broken else "not refuted"
        effort = f"{self.pairs:,} pairs in {self.seconds:.1f} s"
        measured = "everything is revealed" if math.isinf(self.largest) else f"epsilon {self.largest:.4g}"
        if self.largest_mu:
            measured += f", mu {self.largest_mu:.4g}"
        limits = "limits: only pairs that were drawn, of small graphs, and only steps of the noise object"
        if self.hidden:
            limits = (
                "limits: secret samples were drawn, so a few pairs were judged by counts of runs; a small "
                "excess over the claim, or one on pairs that were not drawn, would not be seen"
            )
        return "\n".join(
            [
                f"claim: {self.claim} for unit {self.unit}: {verdict} by {effort}",
                f"largest measured: {measured}; {counted(self.steps, 'noisy step')}",
                *map(str, self.findings),
                limits,
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "unit": self.unit,
            "claim": asdict(self.claim),
            "broken": self.broken,
            "pairs": self.pairs,
            "seconds": self.seconds,
            "largest_epsilon": None if math.isinf(self.largest) else self.largest,
            "largest_mu": self.largest_mu,
            "hidden_randomness": self.hidden,
            "attained": dict(self.attained),
            "findings": [finding.as_dict() for finding in self.findings],
        }


class FindingLog:
    """A test in progress: each kind of finding for the smallest pair that shows it, and the largest loss."""

    def __init__(self) -> None:
        self.found: dict[str, Finding] = {}
        self.pairs, self.largest, self.started = 0, LossLowerBound(), time.perf_counter()

    def add(self, finding: Finding) -> None:
        known = self.found.get(finding.kind)
        if known is None or finding.size < known.size:
            self.found[finding.kind] = finding

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def result(self, unit: str, claim: PrivacyClaim, largest: float, **facts: Any) -> NeighborTestResult:
        return NeighborTestResult(
            unit=unit,
            claim=claim,
            findings=tuple(sorted(self.found.values(), key=lambda finding: -finding.epsilon)),
            pairs=self.pairs,
            seconds=self.seconds,
            largest=largest,
            largest_mu=self.largest.mu,
            **facts,
        )


# -- the test ----------------------------------------------------------------------------------------------


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
    """Run a mechanism on random neighboring graphs and compare its privacy loss with a claim.

    The mechanism is ``function(graph, noise)``. It draws all its noise from ``noise`` (``NoiseRecorder``) and
    may return further output. The run on the neighbor receives the outcomes of the first run, so each step is
    compared given equal earlier outcomes. With ``sensitivity=`` the mechanism is ``function(graph)``, which
    returns the values that noise is added to; the claim is then a bound on their L2 change.

    A refutation is a proof up to rounding. If secret samples are drawn, it is wrong with a probability of at
    most one in ten million. A test without a refutation is not a proof.

    Args:
        function: Mechanism to test.
        unit: ``undirected-edge``, ``directed-edge``, ``node-record``, ``node`` or ``local-attributes``.
        epsilon: Claimed epsilon.
        delta: Delta of the claim.
        mu: Claimed Gaussian parameter, instead of ``epsilon``.
        sensitivity: Claimed L2 sensitivity, instead of ``epsilon`` and ``mu``.
        neighbors: Function that draws a pair of ``SmallGraph``; by default neighbors under ``unit``.
        seconds: Time budget.
        pairs: Number of pairs to compare, instead of a time budget.
        nodes: Largest number of nodes of a graph.
        runs: Number of runs on each side of a pair that is judged by counts.
        seed: Seed of all draws.

    Returns:
        The findings, the smallest pair for each, and the largest measured loss.

    Raises:
        ConfigError: If the claim is incomplete, or the unit is unknown.

    Privacy:
        Reads: random small graphs, and none of your data. Charges: nothing.

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
    mechanism: Mechanism = function
    if sensitivity is not None:

        def add_unit_noise(graph: SmallGraph, noise: NoiseRecorder) -> None:
            for array in arrays_of(function(graph)):
                noise.gaussian(array, 1.0)

        mechanism = add_unit_noise
    elif len(signature(function).parameters) < 2:
        raise ConfigError(
            "The mechanism must take two arguments, (graph, noise). For a function of the graph "
            "alone, to whose values noise is added, pass sensitivity=1.0."
        )
    claim = PrivacyClaim(epsilon=epsilon, delta=delta, mu=mu)
    search = _Search(mechanism, claim, seed, runs)
    drawn = pairs_of(neighbors or neighbors_of(unit, nodes), seed)
    for number in count():
        if number >= pairs if pairs is not None else search.seconds > seconds:
            break
        search.compare(next(drawn), number)
    search.judge_suspects()
    return search.result(unit, claim, search.most_epsilon, steps=search.steps, hidden=search.hidden)


@dataclass(frozen=True, eq=False)
class _Run:
    """One run: its steps, the returned arrays, and how it ended if it failed."""

    steps: list[NoiseStep]
    returned: list[np.ndarray[Any, Any]]
    failure: str
    hidden: bool

    def row(self, *, scaled: bool = False) -> Floats:
        """Return all outcomes, in units of their noise if ``scaled``, and all returned values."""
        parts = [np.zeros(0)]
        for step in self.steps:
            unit = step.law.scale if scaled and isinstance(step.law, AdditiveLaw) else 1.0
            parts.append(np.ravel(np.asarray(step.outcome, dtype=np.float64) / unit))
        return np.concatenate([*parts, *(array.astype(np.float64).ravel() for array in self.returned)])


def _run(mechanism: Mechanism, graph: SmallGraph, noise: NoiseRecorder) -> _Run:
    returned, failure = list[np.ndarray[Any, Any]](), ""
    try:
        returned = arrays_of(mechanism(graph, noise))
    except DivergedError:
        failure = "diverged"
    except ArithmeticError as error:  # visible from outside, and a function of the data
        failure = type(error).__name__
    return _Run(noise.steps, returned, failure, noise.used_hidden)


class _Search(FindingLog):
    """A test in progress: the findings so far, and the suspects, which counts of runs decide about."""

    def __init__(self, mechanism: Mechanism, claim: PrivacyClaim, seed: int, runs: int) -> None:
        super().__init__()
        self._mechanism, self._claim, self._seed, self._runs = mechanism, claim, seed, runs
        self._suspects: list[tuple[float, int, Neighbors]] = []
        self.steps, self.most_epsilon, self.hidden = 0, 0.0, False

    def compare(self, pair: Neighbors, number: int) -> None:
        """Run both sides, the second with the first's outcomes."""
        self.pairs += 1
        first = _run(self._mechanism, pair[0], NoiseRecorder(self._rng(number)))
        self.steps = max(self.steps, len(first.steps))
        if first.hidden:
            self.hidden = True
            means = [self._mean(graph, number) for graph in pair]
            alike = means[0].shape == means[1].shape
            apart = float(np.linalg.norm(means[0] - means[1])) if alike else math.inf
            if apart > 0:
                self._suspects.append((-apart, number, pair))
            return
        second = _run(self._mechanism, pair[1], NoiseRecorder(self._rng(number), given=first.steps))
        for kind, loss in _differences(first, second, self._claim.at[1]):
            self._note(kind, loss, pair)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, number, 1])

    def _mean(self, graph: SmallGraph, number: int) -> np.ndarray[Any, Any]:
        """Return the mean over secret randomness of all steps without noise, in units of their noise."""
        rows = []
        for draw in range(_HIDDEN_DRAWS):
            hidden = np.random.default_rng([self._seed, number, 2, draw])
            noise = NoiseRecorder(self._rng(number), hidden=hidden, zero_noise=True)
            rows.append(_run(self._mechanism, graph, noise).row(scaled=True))
        return np.mean(rows, axis=0) if len({len(row) for row in rows}) == 1 else np.full(1, np.nan)

    def _note(self, kind: str, loss: LossLowerBound, pair: Neighbors) -> None:
        epsilon = loss.epsilon(self._claim.at[1])
        if loss.mu_squared > self.largest.mu_squared:
            self.largest = loss
        self.most_epsilon = max(self.most_epsilon, epsilon)
        if not self._claim.is_satisfied_by(loss):
            self.add(Finding(kind, epsilon, loss.mu, *pair))

    def judge_suspects(self) -> None:
        """Judge pairs by counts of runs: a few runs of each candidate, then many of the worst ones."""
        delta = self._claim.at[1]
        few = min(_FEW_RUNS, self._runs)
        # The pairs with the most different means, and the smallest ones, which dilute a difference least.
        small = sorted(self._suspects, key=lambda s: (s[2][0].nodes, len(s[2][0].edges) + len(s[2][1].edges)))
        worst = sorted(self._suspects, key=lambda s: s[:2])[:_FINALISTS]
        finalists = worst + [s for s in small if s not in worst][:_FINALISTS]
        ways = [(n, way) for _, n, pair in finalists for way in (pair, pair[::-1])]
        tried = [certified(self._mechanism, way, few, delta, n + 1, _TO_CHOOSE) for n, way in ways]
        for i in sorted(range(len(ways)), key=lambda i: -tried[i].epsilon)[:_JUDGED]:
            n, way = ways[i]
            bound = certified(self._mechanism, way, self._runs, delta, self._seed + 7 * n)
            self._note("mixture", LossLowerBound(alone=bound.epsilon), way)
            if self.found:
                return


def _differences(first: _Run, second: _Run, delta: float) -> Iterator[tuple[str, LossLowerBound]]:
    """Yield each kind of difference between two runs, and its privacy loss."""
    everything = LossLowerBound(certain=1.0)
    if first.failure != second.failure or len(first.steps) != len(second.steps):
        # A diverged run ends at the step whose law differs: other shapes of one kind of law are a finding
        # of their own.
        last = min(len(first.steps), len(second.steps)) - 1
        kind = "control flow"
        if last >= 0 and second.failure == "diverged" and len(second.steps) <= len(first.steps):
            (law, shape, _), (other_law, other_shape, _) = first.steps[last].sort, second.steps[last].sort
            kind = "shape" if law == other_law and shape != other_shape else kind
        yield kind, everything
        return
    if [part.shape for part in first.returned] != [part.shape for part in second.returned]:
        yield "shape", everything
        return
    total, streams = LossLowerBound(), set[Any]()
    for one, other in zip(first.steps, second.steps, strict=True):
        if one.stream is not None and one.sort in streams:
            continue  # its noise is that of an earlier step, and losses do not add up
        streams.add(one.sort)
        both_ways = one.law.against(other.law, delta), other.law.against(one.law, delta)
        loss = max(both_ways, key=lambda loss: loss.epsilon(delta))
        if isinstance(one.law, Exact):
            yield "exact output", loss
        elif one.law.scale_differs(other.law):
            yield "noise scale", loss
        else:
            total += loss
    yield "change", total
    # Two steps of one stream have equal noise: an observer sees exactly by how much they differ.
    for i, later in enumerate(first.steps):
        for j, earlier in enumerate(first.steps[:i]):
            if later.stream is None or later.sort != earlier.sort:
                continue
            shared = earlier.law.shared(later.law)
            if shared is not None and not same(shared, second.steps[j].law.shared(second.steps[i].law)):
                yield "reused noise", LossLowerBound(certain=earlier.law.shared_mass())
    if not all(map(same, first.returned, second.returned)):
        yield "exact output", everything


# -- counts of runs ----------------------------------------------------------------------------------------


def certified(
    mechanism: Mechanism, pair: Neighbors, runs: int, delta: float, seed: int, confidence: float = CONFIDENCE
) -> LowerBound:
    both = [outputs(mechanism, graph, runs, seed + side) for side, graph in enumerate(pair)]
    if both[0].shape[1] != both[1].shape[1]:
        return repeated_runs(runs, runs, 0, runs, delta=delta, confidence=confidence)
    half = runs // 2
    event = most_distinguishing_event(both[0][:half], both[1][:half], delta)
    tp, fp = (int(event.occurs_in(rows[half:]).sum()) for rows in both)
    return repeated_runs(tp, runs - half, fp, runs - half, delta=delta, confidence=confidence)


def outputs(mechanism: Mechanism, graph: SmallGraph, runs: int, seed: int) -> Floats:
    """Return the outputs of runs, one row each, filled up with infinity where lengths differ."""
    rng = np.random.default_rng(seed)
    rows = [_run(mechanism, graph, NoiseRecorder(rng)).row() for _ in range(runs)]
    width = max(map(len, rows))
    return np.array([np.pad(row, (0, width - len(row)), constant_values=np.inf) for row in rows])


@dataclass(frozen=True, eq=False)
class OutputEvent:
    """An event in the output: an entry has one of some values, or a weighted sum exceeds a threshold."""

    weights: Floats | None
    threshold: float
    atoms: frozenset[bytes]

    def occurs_in(self, outputs: Floats) -> npt.NDArray[np.bool_]:
        if self.weights is not None:
            return np.asarray(outputs @ self.weights > self.threshold)
        return np.array([any(entry.tobytes() in self.atoms for entry in row) for row in outputs])


def most_distinguishing_event(first: Floats, second: Floats, delta: float) -> OutputEvent:
    # Thresholds of the sum in which the means differ most, each entry weighted by its variance.
    finite = np.isfinite(first).all(axis=0) & np.isfinite(second).all(axis=0)
    a, b = first[:, finite], second[:, finite]
    shift, spread = a.mean(axis=0) - b.mean(axis=0), a.var(axis=0) + b.var(axis=0)
    shift = np.where(np.abs(shift) > 2 * np.sqrt(spread / len(a)), shift, 0.0)  # the rest is chance
    weights = np.zeros(first.shape[1])
    weights[finite] = shift / (spread + 1e-12)
    sums = np.where(np.isfinite(first), first, 0.0) @ weights
    thresholds = np.unique(np.quantile(sums, _QUANTILES))
    events = [OutputEvent(weights, float(threshold), frozenset()) for threshold in thresholds]
    if first.shape[1] <= _WIDEST:
        # Values that occur repeatedly on one side and never on the other.
        ours, theirs = (Counter(entry.tobytes() for row in rows for entry in row) for rows in (first, second))
        alone = [(count, value) for value, count in ours.items() if count > 1 and not theirs[value]]
        atoms = frozenset(value for _, value in sorted(alone, reverse=True)[:_MAX_ATOMS])
        events.append(OutputEvent(None, 0.0, atoms))

    def bound_of(event: OutputEvent) -> float:
        tp, fp = (int(event.occurs_in(rows).sum()) for rows in (first, second))
        return repeated_runs(tp, len(first), fp, len(second), delta=delta, confidence=0.99).epsilon

    return max(events, key=bound_of)
