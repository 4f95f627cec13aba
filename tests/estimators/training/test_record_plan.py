"""One budget over steps, hops and counts: every group of records is charged the scale, and no more."""

import math
from typing import Any

import pytest
import torch

from graphveil.core.accounting.accountant import total_mu
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.events import ByGroup, compose, without_failures
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeSumQuery
from graphveil.core.queries.record_counts import (
    OutcomeCountData,
    OutcomeCountQuery,
    RecordHistogramQuery,
)
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.unit import Node, NodeBoundedDegree, NodeRecord, NodeUnit
from graphveil.data import Graph
from graphveil.estimators.private_training import (
    DPSGDTraining,
    RecordPlan,
    accuracy_from_counts,
    release_accuracies,
)
from graphveil.papers.as_published.published import equal_queries

UNITS = [
    Node(),
    Node(replace_one=True),
    NodeRecord(),
    NodeRecord(replace_one=True),
    NodeBoundedDegree(max_degree=9),
    NodeBoundedDegree(max_degree=9, replace_one=True),
]
FULL = DPSGDTraining(schedule=PrivateSchedule(epochs=20, batch_size=None), parameters=40, records=500)
BOTH = {"trainings": (FULL, FULL), "shares": (0.2, 0.1), "hops": 2, "dim": 4, "nodes": 600, "delta": 1e-5}
ALONE = {"trainings": (FULL,), "shares": (1.0,)}
COUNTED = [{}, {"metrics": True}]
units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.name}-{unit.replace_one}")


def by_group(plan: RecordPlan, scale: float) -> list[float]:
    """Return the mu that is charged to each group of records."""
    events = [query.event(plan.unit) for query in plan.queries(scale)]
    return [
        total_mu(
            without_failures(compose(*(e.events[group] if isinstance(e, ByGroup) else e for e in events)))
        )
        or 0.0
        for group in range(3)
    ]


@units
@pytest.mark.parametrize("num_counts", COUNTED)
@pytest.mark.parametrize("fields", [BOTH, ALONE], ids=["gap", "mlp"])
def test_no_group_is_charged_more_than_the_scale(
    unit: NodeUnit, fields: dict[str, Any], num_counts: dict[str, Any]
):
    plan = RecordPlan(unit=unit, **fields, **num_counts)
    for scale in (0.1, 1.0, 3.0):
        charged = by_group(plan, scale)
        assert charged[0] == pytest.approx(scale, rel=1e-9)
        assert max(charged) <= scale * (1 + 1e-9)
        if num_counts.get("metrics"):
            assert charged[1:] == pytest.approx([scale] * 2)  # nothing is left over


def test_queries_are_in_the_order_of_the_fit():
    plan = RecordPlan(unit=NodeRecord(), **BOTH, metrics=True)
    kinds = [type(query) for query in plan.queries(1.0)]
    assert kinds == [
        DPSGDQuery,
        OutEdgeSumQuery,
        OutEdgeSumQuery,
        DPSGDQuery,
        OutcomeCountQuery,
        OutcomeCountQuery,
        RecordHistogramQuery,
    ]
    assert [query.pays for query in plan.queries(1.0)[4:]] == [
        (False, True, False),
        (False, False, True),
        (False, False, True),
    ]


def test_a_given_multiplier_leaves_the_scale_to_the_hops():
    plan = RecordPlan(unit=NodeRecord(), **BOTH, multiplier=12.0)
    steps, push, _, _ = plan.queries(0.5)
    assert steps.noise_multiplier == 12.0
    assert push.sigma == pytest.approx(2**0.5 / 0.5)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.name != "node"], ids=str)
def test_the_papers_have_one_multiplier_for_all_queries(unit: NodeUnit):
    steps, *hops, last = equal_queries(RecordPlan(unit=unit, **BOTH), 1.3)
    assert steps.noise_multiplier == last.noise_multiplier == 1.3
    for hop in hops:
        assert isinstance(hop, OutEdgeSumQuery if isinstance(unit, NodeRecord) else NeighborSumQuery)
        assert hop.noise[0] / hop.sensitivity(unit) == pytest.approx(1.3 / unit.change)


# -- accuracies from counts --------------------------------------------------------------------------------


class GivenAnswers:
    """A release with given answers, which stores the counts of each query."""

    def __init__(self, *answers: tuple[float, float]) -> None:
        self.answers, self.counts = list(answers), []

    def answer(self, data: OutcomeCountData) -> torch.Tensor:
        self.counts.append((int(data.correct.sum()), int(data.wrong.sum())))
        return torch.tensor(self.answers.pop(0), dtype=torch.float64)


def test_released_accuracies_depend_on_the_counts_only():
    y = torch.tensor([0, 1, -1, 1, 0, -1, 0, 1, 1, 0])
    masks = torch.zeros(3, 10, dtype=torch.bool)
    masks[0, :2], masks[1, 2:6], masks[2, 6:] = True, True, True
    graph = Graph.from_edges(torch.eye(10), y, [0], [1], directed=False, num_classes=2).with_split(*masks)
    release = GivenAnswers((7.5, 2.5), (-3.0, 1.0))
    found = release_accuracies(release, torch.eye(2)[[0] * 10], graph)  # type: ignore[arg-type]
    assert release.counts == [(1, 1), (2, 2)]  # nodes without a label are neither correct nor wrong
    assert found == {"val": 1.0, "test": 0.0}
    assert accuracy_from_counts(torch.tensor([2.0, 1.0]), 4) == pytest.approx(2 / 3)
    assert accuracy_from_counts(torch.tensor([3.0, 5.0]), 4) == 0.75  # more than four have no label


@units
def test_counts_cost_other_records_as_much_as_training(unit: NodeUnit):
    plan = RecordPlan(unit=unit, **ALONE, metrics=True)
    steps, val, *tested = plan.queries(1.0)
    cost = total_mu(steps.event(unit))
    for count in (val, *tested):
        assert count.sensitivity(unit) == pytest.approx(unit.change**0.5)
    assert val.sensitivity(unit) / val.noise[0] == pytest.approx(cost)
    # The accuracy and the histogram of test nodes share the budget of their records.
    shares = [count.sensitivity(unit) / count.noise[0] for count in tested]
    assert shares == pytest.approx([cost / math.sqrt(2)] * 2)
