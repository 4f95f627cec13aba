"""Counts of records: of correct and of wrong ones, and of correct ones for each candidate."""

import pytest
import torch
from contracts.laws import has_the_law

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
    OutcomeCountData,
    OutcomeCountQuery,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.errors import CalibrationError, ConfigError, ReleaseError, UnitError

EMPTY = Adjacency.from_edges([], [], num_nodes=4, directed=True)
YES, NO = torch.tensor([True, True, False, False]), torch.tensor([False, False, True, False])


def opened(query: Query, seed: int | None = None) -> Release:
    key = None if seed is None else ReleaseKey.from_seed(seed, "counts")
    return Release.open(
        ReleasePlan(NodeRecord(), (query,), delta=1e-5), EMPTY, budget=MemoryLedger(), key=key
    )


def test_records_in_neither_or_both_bins_are_not_counted() -> None:
    plan = zero_noise_plan(NodeRecord(), (OutcomeCountQuery(sigma=2.0),) * 2)
    release = Release.open(plan, EMPTY, budget=MemoryLedger())
    counts = release.answer(OutcomeCountData(YES, NO))
    assert (counts.dtype, counts.tolist()) == (torch.float64, [2, 1])
    assert release.answer(OutcomeCountData(YES, YES)).tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(2))
def test_both_outcome_counts_have_the_charged_noise(seed: int) -> None:
    query, data = OutcomeCountQuery(sigma=7.0), OutcomeCountData(YES, NO)
    answers = [opened(query, 3000 * seed + n).answer(data) for n in range(1500)]
    drawn = torch.stack(answers) - torch.tensor([2, 1])
    for counts in drawn.T:
        has_the_law(counts.numpy() * query.unit_steps, 7.0 * query.unit_steps)
    assert abs(torch.corrcoef(drawn.T)[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("correct", "wrong"), [(YES, NO[:3]), (YES.float(), NO), (YES, NO[:, None]), (YES[:, None], NO[:, None])]
)
def test_columns_that_do_not_fit_are_rejected(correct: torch.Tensor, wrong: torch.Tensor) -> None:
    release = opened(OutcomeCountQuery(sigma=2.0))
    with pytest.raises(ReleaseError, match="two bool columns of"):
        release.answer(OutcomeCountData(correct, wrong))
    assert release.answer(OutcomeCountData(YES, NO)).shape == (2,)


def test_outcome_counts_support_record_units_only() -> None:
    query = OutcomeCountQuery(sigma=2.0)
    assert query.sensitivity(NodeBoundedDegree(max_degree=3)) == 1
    assert query.sensitivity(NodeRecord(replace_one=True)) == pytest.approx(2**0.5)
    with pytest.raises(UnitError):
        query.event(UndirectedEdge())


# -- accuracy counts of candidates -------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"candidates": 0}, {"sigma": 0.0}, {"grid_bits": 40}, {"pays": (False,)}])
def test_rejects_accuracy_count_fields_outside_their_range(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        AccuracyCountQuery(**({"candidates": 2, "sigma": 3.0} | fields))  # type: ignore[arg-type]


def test_rejects_accuracy_counts_on_too_coarse_a_grid() -> None:
    with pytest.raises(CalibrationError, match="Use larger grid_bits"):
        ReleasePlan(NodeRecord(), (AccuracyCountQuery(candidates=2, sigma=3.0, grid_bits=5),), delta=1e-5)


def test_accuracy_counts_are_the_correct_records_of_each_candidate() -> None:
    correct = torch.tensor([[True, False], [True, True], [True, False]])
    plan = zero_noise_plan(NodeRecord(), (AccuracyCountQuery(candidates=2, sigma=3.0),))
    counts = Release.open(plan, EMPTY, budget=MemoryLedger()).answer(AccuracyCountData(correct))
    assert counts.dtype == torch.float64
    assert counts.tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    "correct", [torch.ones(3, 4), torch.ones(3, 2, dtype=torch.bool), torch.ones(4, dtype=torch.bool)]
)
def test_rejects_a_table_that_does_not_match_the_candidates(correct: torch.Tensor) -> None:
    release = opened(AccuracyCountQuery(candidates=4, sigma=10.0))
    with pytest.raises(ReleaseError, match="4 columns"):
        release.answer(AccuracyCountData(correct))
    assert release.answer(AccuracyCountData(torch.ones(3, 4, dtype=torch.bool))).shape == (4,)
