"""Correct and wrong ones are one histogram: what a record moves, and the noise on both counts."""

import pytest
import torch
from contracts.laws import has_the_law

from graphveil.audit.zero_noise import zero_noise_plan
from graphveil.data import Adjacency
from graphveil.errors import ReleaseError, UnitError
from graphveil.ledger import MemoryLedger
from graphveil.privacy import NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.release import OutcomeCountData, OutcomeCountQuery, Release, ReleaseKey, ReleasePlan

EMPTY = Adjacency.from_edges([], [], num_nodes=4, directed=True)
YES, NO = torch.tensor([True, True, False, False]), torch.tensor([False, False, True, False])


def opened(query: OutcomeCountQuery, seed: int | None = None) -> Release:
    key = None if seed is None else ReleaseKey.from_seed(seed, "counts")
    return Release.open(
        ReleasePlan(NodeRecord(), (query,), delta=1e-5), EMPTY, budget=MemoryLedger(), key=key
    )


def test_who_is_neither_is_not_counted_and_who_is_both_neither() -> None:
    plan = zero_noise_plan(NodeRecord(), (OutcomeCountQuery(sigma=2.0),) * 2)
    release = Release.open(plan, EMPTY, budget=MemoryLedger())
    counts = release.answer(OutcomeCountData(YES, NO))
    assert (counts.dtype, counts.tolist()) == (torch.float64, [2, 1])
    assert release.answer(OutcomeCountData(YES, YES)).tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(2))
def test_both_counts_have_the_noise_that_is_booked(seed: int) -> None:
    query, data = OutcomeCountQuery(sigma=7.0), OutcomeCountData(YES, NO)
    answers = [opened(query, 3000 * seed + n).answer(data) for n in range(1500)]
    drawn = torch.stack(answers) - torch.tensor([2, 1])
    for counts in drawn.T:
        has_the_law(counts.numpy() * query.unit_steps, 7.0 * query.unit_steps)
    assert abs(torch.corrcoef(drawn.T)[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("correct", "wrong"), [(YES, NO[:3]), (YES.float(), NO), (YES, NO[:, None]), (YES[:, None], NO[:, None])]
)
def test_columns_that_do_not_fit_are_refused(correct: torch.Tensor, wrong: torch.Tensor) -> None:
    release = opened(OutcomeCountQuery(sigma=2.0))
    with pytest.raises(ReleaseError, match="two columns of bool"):
        release.answer(OutcomeCountData(correct, wrong))
    assert release.answer(OutcomeCountData(YES, NO)).shape == (2,)


def test_it_is_about_records() -> None:
    query = OutcomeCountQuery(sigma=2.0)
    assert query.sensitivity(NodeBoundedDegree(max_degree=3)) == 1
    assert query.sensitivity(NodeRecord(replace_one=True)) == pytest.approx(2**0.5)
    with pytest.raises(UnitError):
        query.event(UndirectedEdge())
