"""One budget over steps, hops and counts: every group of records pays what the scale says, and no more."""

from typing import Any

import pytest

from graphveil.models.training.private import Training
from graphveil.models.training.record_plan import RecordPlan
from graphveil.privacy import ByGroup, NodeOwner, NodePromise, NodeUnit, compose
from graphveil.privacy.accountant import total_mu
from graphveil.release import AccuracyCountQuery, DPSGDQuery, NeighborSumQuery, PushQuery
from graphveil.train import PrivateSchedule

UNITS = [
    NodeOwner(),
    NodeOwner(replace_one=True),
    NodePromise(max_degree=9),
    NodePromise(max_degree=9, replace_one=True),
]
FULL = Training(schedule=PrivateSchedule(epochs=20, batch_size=None), parameters=40, records=500)
BOTH = {"trainings": (FULL, FULL), "shares": (0.2, 0.1), "hops": 2, "dim": 4}
ALONE = {"trainings": (FULL,), "shares": (1.0,)}
COUNTED = [{}, {"metrics": True}, {"candidates": 5}, {"metrics": True, "candidates": 5}]
units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.name}-{unit.replace_one}")


def by_group(plan: RecordPlan, scale: float) -> list[float]:
    """Return what each group of records pays, in mu."""
    events = [query.event(plan.unit) for query in plan.queries(scale)]
    return [
        total_mu(compose(*(e.events[group] if isinstance(e, ByGroup) else e for e in events))) or 0.0
        for group in range(3)
    ]


@units
@pytest.mark.parametrize(
    "counted", [{}, {"metrics": True}, {"candidates": 5}, {"metrics": True, "candidates": 5}]
)
@pytest.mark.parametrize("fields", [BOTH, ALONE], ids=["gap", "mlp"])
def test_no_group_pays_more_than_the_scale(unit: NodeUnit, fields: dict[str, Any], counted: dict[str, Any]):
    plan = RecordPlan(unit=unit, **fields, **counted)
    for scale in (0.1, 1.0, 3.0):
        paid = by_group(plan, scale)
        assert paid[0] == pytest.approx(scale, rel=1e-9)
        assert max(paid) <= scale * (1 + 1e-9)
        if counted.get("metrics"):
            assert paid[1:] == pytest.approx([scale] * 2)  # nothing is left over


def test_the_order_is_that_of_the_fit():
    plan = RecordPlan(unit=NodeOwner(), **BOTH, metrics=True, candidates=7)
    kinds = [type(query) for query in plan.queries(1.0)]
    assert kinds == [
        DPSGDQuery,
        PushQuery,
        PushQuery,
        DPSGDQuery,
        AccuracyCountQuery,
        AccuracyCountQuery,
        AccuracyCountQuery,
    ]
    assert [query.pays for query in plan.queries(1.0)[4:]] == [
        (False, True, False),
        (False, True, False),
        (False, False, True),
    ]
    assert [query.candidates for query in plan.queries(1.0)[4:]] == [7, 1, 1]


def test_a_given_multiplier_leaves_the_scale_to_the_hops():
    plan = RecordPlan(unit=NodeOwner(), **BOTH, multiplier=12.0)
    steps, push, _, _ = plan.queries(0.5)
    assert steps.noise_multiplier == 12.0
    assert push.sigma == pytest.approx(2**0.5 / 0.5)


@units
def test_papers_take_one_multiplier_for_everything(unit: NodeUnit):
    steps, *hops, last = RecordPlan(unit=unit, **BOTH).equal_queries(1.3)
    assert steps.noise_multiplier == last.noise_multiplier == 1.3
    for hop in hops:
        assert isinstance(hop, PushQuery if isinstance(unit, NodeOwner) else NeighborSumQuery)
        assert hop.noise[0] / hop.sensitivity(unit) == pytest.approx(1.3 / unit.change)
