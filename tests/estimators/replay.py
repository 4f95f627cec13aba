"""Replay of releases: answers are sums without noise, and those of a known run are returned again.

Vectors and inputs of edge weights must be bit-identical for a neighboring graph, given the same answers,
and so must predictions. The sums may differ by at most their cost.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from graphveil.audit.query_neighbor_tests import charged_loss, zero_noise_plan
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import PureDP, compose
from graphveil.core.ledger import MemoryLedger
from graphveil.core.queries.edge_counts import NeighborCountQuery
from graphveil.core.queries.edge_training import EdgeAttentionData
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge, Unit

Pair = tuple[int, int]


@dataclass
class Replay:
    """Replaces noisy answers: records sums in units of the noise, and repeats those of a known run."""

    known: "Replay | None" = None
    queried: list[tuple[Any, ...]] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    given: list[Tensor] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    groups: Tensor | None = None

    def answer_release(self, release: Release, data: Any, shipped: Any) -> Tensor:
        """Record sums and counts. Attention is learned once; the cost of its steps is tested elsewhere."""
        if isinstance(data, EdgeAttentionData):
            return self._hand(shipped(release, data))
        return self._answered(release, shipped, data)

    def _answered(self, release: Release, shipped: Any, data: Any) -> Tensor:
        query, unit = release._plan.queries[release._position], release._plan.unit
        release._position += 1
        self.groups, plan, ledger = release._public.groups, zero_noise_plan(unit, (query,)), MemoryLedger()
        private = release._private
        alone = Release.open(
            plan,
            private._adjacency,
            self.groups,
            budget=ledger,
            backend=private._backend,
            first_row=private._first_row,
        )
        answer = shipped(alone, data)
        self.queried.append(tuple(vars(data).values()))
        self.queries.append(query)
        self.sums.append(answer.double() / self._scale(query, len(answer)))
        return self._hand(answer)

    def _scale(self, query: Query, rows: int) -> Tensor:
        sigma = torch.tensor(query.noise, dtype=torch.float64)
        return sigma if self.groups is None or len(sigma) == 1 else sigma[self.groups[-rows:]][:, None]

    def _hand(self, answer: Tensor) -> Tensor:
        self.given.append(answer if self.known is None else self.known.given[len(self.given)])
        return self.given[-1].clone()

    @contextmanager
    def in_place(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Answer all releases."""
        with patch.context() as here:
            shipped = Release.answer
            here.setattr(Release, "answer", lambda release, data: self.answer_release(release, data, shipped))
            yield

    def costs(self, unit: Unit, pair: Pair) -> list[float]:
        """Return the cost of this pair by the events, query by query; at most the recorded cost in total."""
        events = [query.event(unit) for query in self.queries]
        u, v = (0, 0) if self.groups is None else (int(self.groups[end]) for end in pair)
        if all(isinstance(event, PureDP) for event in events):
            counts = [query for query in self.queries if isinstance(query, NeighborCountQuery)]
            assert len(counts) == len(events)
            # An edge is charged its epsilon for every count that it changes by one.
            return [query.event(unit).epsilon / query.epsilon / query.noise[0] for query in counts]
        found = [charged_loss(event, (u, v)).mu for event in events]
        assert math.hypot(*found) <= (total_mu(compose(*events)) or 0) * (1 + 1e-9)
        return found


def share_of_price(before: Replay, after: Replay, unit: Unit, pair: Pair) -> float:
    """Check what a toggled pair has changed; return a hop's largest move as a share of its cost."""
    largest, ends = 0.0, set(pair if isinstance(unit, UndirectedEdge) else pair[1:])
    for was, now in zip(before.queried, after.queried, strict=True):
        assert all(_same(*both) for both in zip(was, now, strict=True)), "queries depend on edges"
    costs = before.costs(unit, pair)
    sums = zip(before.queries, before.queried, before.sums, after.sums, costs, strict=True)
    for query, queried, was, now, privacy_cost in sums:
        change = now - was
        counted = isinstance(query, NeighborCountQuery)
        moved = float(change.abs().sum() if counted else change.norm())
        assert moved <= privacy_cost * (1 + 1e-6), f"it moves {moved:.6f}, cost {privacy_cost:.6f}"
        if counted or isinstance(query, NeighborSumQuery):
            skipped = len(queried[0]) - len(change)  # nodes that keep their rows
            assert {row + skipped for row in change.nonzero()[:, 0].tolist()} <= ends, "a third row changed"
            largest = max(largest, moved / privacy_cost if privacy_cost else 0.0)
    return largest


def largest_share(
    predict: Callable[[Pair | None], Tensor], unit: Unit, pairs: Iterable[Pair], patch: pytest.MonkeyPatch
) -> tuple[float, Replay]:
    """Toggle pairs under a fit or a prediction; return the largest move of a hop as a share of its cost.

    Args:
        predict: returns predictions, of the neighbor with this pair toggled.
        unit: what is protected.
        pairs: toggled one at a time.
        patch: puts replays in the place of releases.

    Returns:
        The share, and what was queried without a toggled pair.
    """
    before, largest = Replay(), 0.0
    with before.in_place(patch):
        predicted = predict(None)
    for pair in pairs:
        after = Replay(before)
        with after.in_place(patch):
            assert torch.equal(predict(pair), predicted), "predictions depend on more than the answers"
        largest = max(largest, share_of_price(before, after, unit, pair))
    return largest, before


def _same(was: Any, now: Any) -> bool:
    if isinstance(was, tuple):
        return all(_same(*both) for both in zip(was, now, strict=True))
    return was is now if was is None else torch.equal(was, now)
