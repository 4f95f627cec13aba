"""Plans with alternatives: one of them is answered, and the most expensive one is charged."""

import math
from pathlib import Path

import pytest
import torch

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import ByGroup
from graphveil.core.journal import FolderJournal
from graphveil.core.keys import KeyStore
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, calibrate_plan
from graphveil.core.queries.out_edge_sums import (
    OutDegreeSumData,
    OutDegreeSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
)
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.release import Release
from graphveil.core.unit import NodeRecord, UndirectedEdge
from graphveil.errors import ConfigError, ReleaseError, UnitError

UNIT, NODES = NodeRecord(), 6
PATH = Adjacency.from_edges([0, 1, 2], [1, 2, 3], num_nodes=NODES, directed=False)
DEGREES = OutDegreeSumQuery(bound=4, sigma=40.0)
CHEAP, EXPENSIVE = OutEdgeSumQuery(dim=2, sigma=10.0), OutEdgeSumQuery(dim=2, sigma=5.0)
PLAN = ReleasePlan(UNIT, (DEGREES, CHEAP, EXPENSIVE, EXPENSIVE), 1e-5, alternatives=(1, 2))
DATA = OutEdgeSumData(torch.eye(NODES, dtype=torch.float64)[:, :2], None)


def test_the_most_expensive_alternative_is_charged_whatever_is_chosen() -> None:
    charged = math.hypot(0.1, 0.2 * math.sqrt(2))
    assert PLAN.mu == pytest.approx(charged)
    assert PLAN.epsilon == pytest.approx(epsilon_of(charged, 1e-5), rel=1e-3)
    for chosen, answers in ((0, 1), (1, 2)):
        ledger = MemoryLedger()
        release = Release.open(PLAN, PATH, budget=ledger)
        release.answer(OutDegreeSumData())
        release.choose(chosen)
        for _ in range(answers):
            release.answer(DATA)
        release.close()
        assert [entry.event for entry in ledger.entries] == [PLAN.event]
        with pytest.raises(ReleaseError, match="every query"):
            release.answer(DATA)


def test_each_group_is_charged_its_own_most_expensive_alternative() -> None:
    left = OutEdgeSumQuery(dim=2, sigma=1.0, bounds=(0.1, 0.4), partition="p")
    right = OutEdgeSumQuery(dim=2, sigma=1.0, bounds=(0.3, 0.2), partition="p")
    (event,) = ReleasePlan(UNIT, (left, right), 1e-5, alternatives=(1, 1)).event.events
    assert isinstance(event, ByGroup)
    assert [part.mu for part in event.events] == pytest.approx([0.3, 0.4])


def test_a_choice_is_made_once_after_the_first_queries() -> None:
    release = Release.open(PLAN, PATH, budget=MemoryLedger())
    with pytest.raises(ReleaseError, match="chosen once, after"):
        release.choose(0)
    release.answer(OutDegreeSumData())
    with pytest.raises(ReleaseError, match="goes on with alternatives"):
        release.answer(DATA)
    with pytest.raises(ReleaseError, match="no alternative of the plan"):
        release.close()
    with pytest.raises(ConfigError, match="alternative"):
        release.choose(2)
    release.choose(0)
    with pytest.raises(ReleaseError, match="chosen once, after"):
        release.choose(1)


def test_a_resumed_release_rejects_another_choice(tmp_path: Path) -> None:
    def opened() -> Release:
        journal = FolderJournal(tmp_path / "run", KeyStore(tmp_path / "keys"))
        return Release.open(PLAN, PATH, budget=ledger, journal=journal)

    ledger = MemoryLedger()
    first = opened()
    total = first.answer(OutDegreeSumData())
    first.choose(1)
    noisy = first.answer(DATA)
    other = opened()
    assert torch.equal(other.answer(OutDegreeSumData()), total)
    with pytest.raises(ReleaseError):
        other.choose(0)
    again = opened()
    again.answer(OutDegreeSumData())
    again.choose(1)
    assert torch.equal(again.answer(DATA), noisy)
    assert len(ledger.entries) == 1


def test_alternatives_without_a_proof_are_rejected() -> None:
    sampled = DPSGDQuery(parameters=3, steps=9, noise_multiplier=2.0, sampling_rate=0.25)
    with pytest.raises(ConfigError, match="Gaussian noise without sampling"):
        ReleasePlan(UNIT, (EXPENSIVE, sampled), 1e-5, alternatives=(1, 1))
    with pytest.raises(ConfigError, match="more queries than the plan"):
        ReleasePlan(UNIT, (CHEAP,), 1e-5, alternatives=(1, 1))
    with pytest.raises(ConfigError, match="same groups"):
        other = OutEdgeSumQuery(dim=2, sigma=1.0, bounds=(0.1, 0.4), partition="q")
        one = OutEdgeSumQuery(dim=2, sigma=1.0, bounds=(0.1, 0.4), partition="p")
        ReleasePlan(UNIT, (one, other), 1e-5, alternatives=(1, 1))


def test_a_calibrated_plan_with_alternatives_meets_its_budget() -> None:
    def queries(mu: float) -> tuple[OutDegreeSumQuery | OutEdgeSumQuery, ...]:
        first = OutDegreeSumQuery(bound=4, sigma=4 / (0.6 * mu))
        return first, OutEdgeSumQuery(dim=2, sigma=9 / mu), OutEdgeSumQuery(dim=2, sigma=1 / (0.8 * mu))

    plan = calibrate_plan(UNIT, 1.0, 1e-5, queries, num_nodes=NODES, alternatives=(1, 1))
    assert 0.999 < plan.epsilon <= 1.0


@pytest.mark.parametrize("edges", [[(0, 1)], [(0, 1), (2, 3)], [(0, 1), (0, 2), (0, 3)]])
def test_the_sum_of_out_degrees_is_clipped(edges: list[tuple[int, int]]) -> None:
    graph = Adjacency.from_edges(*zip(*edges, strict=True), num_nodes=NODES, directed=False)
    query = OutDegreeSumQuery(bound=2, sigma=1.0)
    release = Release.open(zero_noise_plan(UNIT, (query,)), graph, budget=MemoryLedger())
    lengths = torch.bincount(torch.tensor(edges).flatten(), minlength=NODES)
    assert float(release.answer(OutDegreeSumData())) == float(lengths.clamp_max(2).sum())


def test_out_degrees_have_no_bound_under_an_edge_unit() -> None:
    with pytest.raises(UnitError, match="node-record"):
        DEGREES.event(UndirectedEdge())


def test_a_mutual_edge_moves_the_sum_by_what_is_stated() -> None:
    query, sums = OutDegreeSumQuery(bound=4, sigma=1.0), []
    for edges in (([0], [1]), ([0, 1], [1, 2])):
        graph = Adjacency.from_edges(*edges, num_nodes=NODES, directed=False)
        release = Release.open(zero_noise_plan(UNIT, (query,)), graph, budget=MemoryLedger())
        sums.append(float(release.answer(OutDegreeSumData())))
    assert sums[1] - sums[0] == query.edge_shift
