"""Node-level fits: a null record in place of a record changes each sum by at most its cost.

A fit runs once, and its transcript is stored: every noisy mean gradient and every noisy hop. The fit runs
again with one record nulled, and receives that transcript in place of its own noisy values. The sums before
noise are compared step by step. Messages and predictions of all other nodes must be bit-identical.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.auto import AutoClassifier
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.clipping.clipped_sums import ClippedSum
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import ByGroup, compose
from graphveil.core.features import to_dense
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.steps import StepNoise
from graphveil.core.queries import training_steps
from graphveil.core.queries.neighbor_sums import NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import (
    OutDegreeSumData,
    OutDegreeSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
)
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.view import unwrapped
from graphveil.data import Graph
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator
from graphveil.estimators.choice import ChosenModel, OutDegreeChoice
from graphveil.estimators.public_sizes import PublicSizes, record_groups
from tests.estimators.gnn.modules import Branching, Mean, Records

NODES, CLASSES = 24, 3
NODE_RECORD: dict[str, Any] = {
    "unit": "node-record",
    "epsilon": 8.0,
    "delta": 1e-5,
    "seed": 3,
    "unsafe_noise_seed": 1,
}
COMMON: dict[str, Any] = {**NODE_RECORD, "hidden": 4, "epochs": 3, "learning_rate": 0.1}
BOUNDED_DEGREE = {"unit": "node-bounded-degree", "max_degree": 2 * NODES}
NUMBERS = {"task": "regression", "target_range": (-1.0, 1.0)}
STARS: dict[str, Any] = {**NODE_RECORD, "module": Mean, "leaves": NODES, "epochs": 1, "batch_size": 20}  # all
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", COMMON),
    "mlp-tuned": ("mlp", NODE_RECORD),
    "mlp-tuned-bounded-degree": ("mlp", {**NODE_RECORD, **BOUNDED_DEGREE}),
    "mlp-numbers": ("mlp", {**COMMON, **NUMBERS}),
    "mlp-numbers-bounded-degree": ("mlp", {**NODE_RECORD, **BOUNDED_DEGREE, **NUMBERS}),
    "gap-numbers": ("gap", {**COMMON, **NUMBERS, "out_degree_bound": 2, "hops": 3}),
    "gap-numbers-bounded-degree": ("gap", {**COMMON, **BOUNDED_DEGREE, **NUMBERS}),
    "module-numbers": ("module", {**NODE_RECORD, **NUMBERS, "module": Records, "epochs": 3}),
    "mlp-sampled": ("mlp", {**COMMON, "batch_size": 6}),
    "gap": ("gap", {**COMMON, "out_degree_bound": 1}),
    "gap-sampled": ("gap", {**COMMON, "out_degree_bound": 5, "batch_size": 6, "hops": 3}),
    "gap-features": ("gap", {**COMMON, "out_degree_bound": 2, "use_encoder": False}),
    "gap-bounded-degree": ("gap", {**COMMON, **BOUNDED_DEGREE}),
    "gap-bounded-degree-features": ("gap", {**COMMON, **BOUNDED_DEGREE, "hops": 3, "use_encoder": False}),
    "classcode-S": ("classcode", {**NODE_RECORD, "out_degree_bound": 2}),
    "classcode-R": ("classcode", {**NODE_RECORD, "out_degree_bound": 3, "read_own_edges": True}),
    "module": ("module", {**NODE_RECORD, "module": Records, "epochs": 3}),
    "gnn": ("gnn", STARS),
    "gnn-long": (
        "gnn",
        {**STARS, "leaves": 2, "out_degree_bound": 3, "module": Branching, "batch_size": 6, "epsilon": 2.0},
    ),
    "auto-classcode": ("auto", {**NODE_RECORD, "epsilon": 64.0, "out_degree_bound": 3}),
    "auto-mlp": ("auto", {**NODE_RECORD, "epsilon": 0.5}),
    "classcode-targets": ("classcode", {**NODE_RECORD, "out_degree_bound": 2, "targets": "unlabeled"}),
}


@dataclass
class Transcript:
    """What a fit summed and sent, and what it was given in place of the sums."""

    sums: list[Tensor] = field(default_factory=list)
    sent: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    given: list[Tensor] = field(default_factory=list)
    noise: list[StepNoise] = field(default_factory=list)
    records: list[int] = field(default_factory=list)  # in each step, by which means are divided


@dataclass
class Replay:
    """Takes the place of noisy steps and hops: notes sums, and hands out a transcript if there is one."""

    known: Transcript | None = None
    seen: Transcript = field(default_factory=Transcript)

    def step(self, gradients: ClippedSum, clip: float, noise: StepNoise, number: int) -> Tensor:
        """Record the clipped sum of the batch that the transcript's noise draws."""
        place = len(self.seen.given)
        drawn = noise if self.known is None else self.known.noise[place]
        gradients._total.zero_()
        gradients.add(drawn.batch(number, gradients.count), clip)
        self.seen.sums.append(gradients._total / clip)
        self.seen.records.append(gradients.count)
        return self._hand(MEAN(gradients, clip, drawn, number), drawn)

    def answer(self, release: Release, data: Any) -> Any:
        """Record what hops send and sum."""
        if not isinstance(data, OutEdgeSumData | NeighborSumData | OutDegreeSumData):
            return ASK(release, data)
        query = release.next_query
        plan = zero_noise_plan(release._plan.unit, (query,))
        exact = Release.open(plan, release._private._adjacency, release._public.groups, budget=MemoryLedger())
        levels = data.levels if isinstance(data, OutEdgeSumData) else None
        if not isinstance(data, OutDegreeSumData):
            self.seen.sent.append(
                (unwrapped(data.vectors).clone(), None if levels is None else levels.clone())
            )
        self.seen.sums.append(ASK(exact, data).double())
        return self._hand(ASK(release, data))

    def _hand(self, own: Tensor, noise: StepNoise | None = None) -> Tensor:
        place = len(self.seen.given)
        answer = own if self.known is None else self.known.given[place]
        self.seen.given.append(answer.clone())
        self.seen.noise.append(noise or StepNoise(bytes(32), parameters=1, noise_multiplier=1))
        return answer.clone()


MEAN, ASK = training_steps.noisy_mean, Release.answer


def drawn(seed: int = 0) -> Graph:
    """A directed graph whose lists are long, short and empty, and whose split has all three parts."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(CLASSES, size=NODES))
    x = torch.from_numpy((rng.random((NODES, 6)) < 0.4).astype(np.float32))
    wanted = rng.random(NODES) ** 2  # some nodes list nearly all others
    wanted[0] = 0.0
    edges = rng.random((NODES, NODES)) < wanted[:, None]
    source, target = np.nonzero(edges)
    graph = Graph.from_edges(x, y, source, target, directed=True, num_classes=CLASSES)
    rank = torch.from_numpy(rng.permutation(NODES)) / NODES
    return graph.with_split(rank < 0.6, (rank >= 0.6) & (rank < 0.8), rank >= 0.8)


def nulled(graph: Graph, q: int, *, all_edges: bool = False) -> Graph:
    """Return the graph with a null record in q's place: no features, no label, no own edges (or none)."""
    x, y = to_dense(graph.x).clone(), graph.y.clone()
    x[q], y[q] = 0.0, -1
    source, target = graph.adjacency.edge_index()
    gone = (source == q) | ((target == q) & all_edges)
    adjacency = Adjacency.from_edges(source[~gone], target[~gone], num_nodes=NODES, directed=True)
    return graph.replace(x=x, y=y, adjacency=adjacency)


def run(model: Estimator, graph: Graph, known: Transcript | None) -> Transcript:
    """Fit with what a transcript says, or freely, and return the transcript."""
    replay = Replay(known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_steps, "noisy_mean", replay.step)
        patch.setattr(Release, "answer", lambda release, data: replay.answer(release, data))
        model.fit(graph)
    return replay.seen


def answered(model: Estimator) -> list[Query]:
    """Return the queries of the plan that the fit answered: of alternatives, those that were chosen."""
    plan, trained = model.plan_, model.fitted.trained
    return [plan.queries[k] for k in plan.paths[trained.chosen if isinstance(trained, ChosenModel) else 0]]


def scales(model: Estimator) -> list[float]:
    """Return the noise of each sum, in clipping norms for steps."""
    found: list[float] = []
    for query in answered(model):
        count = query.steps if isinstance(query, DPSGDQuery) else 1
        found += [query.noise[-1]] * count
    return found


def bounds(model: Estimator, group: int) -> list[float]:
    """Return how far a record of the group may move each sum."""
    found: list[float] = []
    for query in answered(model):
        if isinstance(query, OutDegreeSumQuery):
            found.append(query.sensitivity(model.protected_unit))
        elif isinstance(query, DPSGDQuery):
            grid = 1 + 2 * math.sqrt(query.parameters) / 2**20
            found += [grid if query.pays[group] else 0.0] * query.steps
        elif isinstance(query, OutEdgeSumQuery):
            found.append(query.bounds[group if len(query.bounds) > 1 else 0])
        else:
            assert isinstance(query, NeighborSumQuery)
            found.append(query.sensitivity(model.protected_unit))
    return found


def sampled(model: Estimator) -> bool:
    """Whether some steps see a sample of the records, so that they have no mu."""
    return any(isinstance(query, DPSGDQuery) and query.sampling_rate < 1 for query in model.plan_.queries)


def privacy_cost(model: Estimator, group: int) -> float:
    """Return what the plan charges the group, in mu."""
    events = model.plan_.event.events
    own = [event.events[group] if isinstance(event, ByGroup) else event for event in events]
    return total_mu(compose(*own)) or 0.0


@pytest.mark.parametrize("case", CASES)
def test_a_record_changes_sums_by_at_most_its_cost(case: str) -> None:
    """Null records under one transcript: sums change within their cost, other nodes not at all.

    Every third record in the order of their lists is nulled, the longest and an empty one among them.
    """
    method, settings = CASES[case]
    bounded = settings["unit"] == "node-bounded-degree"
    graph, model = drawn(), METHODS[method](**settings)
    if settings.get("task") == "regression":  # some targets are far outside of the public range
        numbers = np.random.default_rng(1).normal(scale=1000.0, size=NODES)
        graph = graph.replace(targets=torch.from_numpy(numbers))
    transcript = run(model, graph, None)
    groups, noise, attained = record_groups(graph), scales(model), [0.0]
    assert len(noise) == len(transcript.sums)
    lengths = torch.bincount(graph.adjacency.edge_index()[0], minlength=NODES)
    for q in [*lengths.argsort(descending=True).tolist()[::3], 0]:
        other = METHODS[method](**settings)
        seen = run(other, nulled(graph, q, all_edges=bounded), transcript)
        others = torch.arange(NODES) != q
        check_other_messages_are_equal(transcript, seen, others)
        assert seen.records == transcript.records, "a mean is divided by a private number of records"
        allowed = bounds(model, int(groups[q]))
        moved = [
            change(was, now, q if bounded else None)
            for was, now in zip(transcript.sums, seen.sums, strict=True)
        ]
        for found, bound in zip(moved, allowed, strict=True):
            assert found <= bound * (1 + 1e-5) + 1e-7, f"a record moves a sum by {found:.6f}, not {bound:.6f}"
        attained += [found / bound for found, bound in zip(moved, allowed, strict=True) if bound]
        shift = math.hypot(*(found / std for found, std in zip(moved, noise, strict=True)))
        assert sampled(model) or shift <= privacy_cost(model, int(groups[q])) * (1 + 1e-5)
        assert torch.equal(model.proba_[others], other.proba_[others]), "predictions of other nodes changed"
    assert max(attained) > 0.999


def test_a_record_that_flips_the_choice_without_noise_does_not_flip_it_under_one_transcript() -> None:
    """The choice is a function of the noisy answer: neighbors that differ without noise choose alike."""
    graph = drawn()
    longest = int(torch.bincount(graph.adjacency.edge_index()[0], minlength=NODES).argmax())
    other, sizes = nulled(graph, longest), PublicSizes.from_graph(graph)

    def exact_choice(epsilon: float, one: Graph) -> int:
        method = AutoClassifier(**{**NODE_RECORD, "epsilon": epsilon}).config
        assert isinstance(method, OutDegreeChoice)
        return method.choose(len(one.adjacency.indices) / NODES, method.plan(sizes), sizes)

    low, high = 0.5, 64.0  # the choice without noise depends on the budget, and flips once
    for _ in range(20):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if exact_choice(middle, graph) else (middle, high)
    assert (exact_choice(high, graph), exact_choice(high, other)) == (1, 0)
    seen = set()
    for seed in range(4):
        settings = {**NODE_RECORD, "epsilon": high, "unsafe_noise_seed": seed}
        first, second = AutoClassifier(**settings), AutoClassifier(**settings)
        run(second, other, run(first, graph, None))
        assert first.chosen_ == second.chosen_
        assert first.guarantee.event == second.guarantee.event
        seen.add(first.chosen_)
    assert seen == {"mlp", "classcode"}


def check_other_messages_are_equal(was: Transcript, now: Transcript, others: Tensor) -> None:
    """Check that levels, and the messages of all others, are the same bits."""
    for (before, levels), (after, again) in zip(was.sent, now.sent, strict=True):
        assert torch.equal(before[others], after[others]), "another node sends a different message"
        assert levels is None or torch.equal(levels, again), "a level follows from more than the answers"


def change(was: Tensor, now: Tensor, own: int | None) -> float:
    """Return how far a sum moved; a row that is for its own node alone is left out."""
    difference = now - was
    if own is not None and len(difference) == NODES:
        difference[own] = 0.0
    return float(difference.norm())
