"""What recipes S and R ask, and that every record's own questions cost the total and no more."""

import pytest

from graphveil.estimators.classcode.node_plan import NodeLevelReleasePlan, encoder_share
from graphveil.privacy import ByGroup, NodeRecord, compose
from graphveil.privacy.accountant import total_mu
from graphveil.privacy.gaussian import mu_of
from graphveil.release import DPSGDQuery, OutcomeCountQuery, OutEdgeSumQuery, ReleasePlan


def make(**changes: object) -> NodeLevelReleasePlan:
    sizes: dict[str, object] = {"unit": NodeRecord(), "features": 437, "classes": 6, "records": 14235}
    return NodeLevelReleasePlan(**{**sizes, **changes})  # type: ignore[arg-type]  # keywords are checked at run time


def costs(plan: NodeLevelReleasePlan, mu: float) -> list[float]:
    """Return the mu that a record of each group pays."""
    each: list[list[object]] = [[], [], []]
    for query in plan.queries(mu):
        event = query.event(plan.unit)
        for group, events in enumerate(each):
            events.append(event.events[group] if isinstance(event, ByGroup) else event)
    return [total_mu(compose(*events)) or 0.0 for events in each]  # type: ignore[arg-type]


@pytest.mark.parametrize("replace_one", [False, True])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("mu", [0.05, 0.27, 2.9])
def test_every_group_pays_the_total(replace_one: bool, reads: bool, mu: float) -> None:
    unit = NodeRecord(replace_one=replace_one)
    for changes in (
        {},
        {"fits_evidence_weights": False},
        {"train_on_val": False},
        {"metrics": True},
        {"share": 0.4},
    ):
        plan = make(unit=unit, reads_own_edges=reads, **changes)
        assert costs(plan, mu) == pytest.approx([mu] * 3, rel=1e-9), changes


def test_silent_nodes_pay_nothing() -> None:
    assert costs(make(unlabeled_send=False), 0.5) == pytest.approx([0.5, 0.5, 0.0])
    assert costs(make(unlabeled_send=False, train_on_val=False), 0.5) == pytest.approx([0.5, 0.0, 0.0])


def test_recipe_s_is_encoder_and_three_pushes() -> None:
    first, *pushes = make(share=0.1, train_on_val=False, fits_evidence_weights=False).queries(
        mu_of(1.0, 1e-5)
    )
    assert isinstance(first, DPSGDQuery) and first.parameters == 438 * 6 and first.steps == 60
    assert first.noise_multiplier == pytest.approx(91.3814, abs=1e-4)
    assert first.pays == (True, False, False)
    assert all(isinstance(push, OutEdgeSumQuery) for push in pushes)
    assert [push.noise[0] for push in pushes] == pytest.approx([6.2177, 7.1796, 7.1796], abs=1e-4)
    assert all(push.bounds == pytest.approx((1, 1.054093, 1.054093)) for push in pushes)
    assert pushes[0].levels == (0, 16) and len(pushes[1].levels) == 21
    weighed = [query for query in make().queries(0.5) if isinstance(query, OutEdgeSumQuery)]
    assert (min(weighed[0].levels), max(weighed[0].levels)) == (0, 256)  # rows of unlabeled nodes: weight 4
    neighborhood_sum = [
        query for query in make(reads_own_edges=True).queries(0.5) if isinstance(query, OutEdgeSumQuery)
    ]
    assert neighborhood_sum[0].levels == (0, 16)


def test_recipe_s_weighs_with_a_small_share() -> None:
    first, *_, last = make(share=0.1).queries(0.5)
    assert isinstance(last, DPSGDQuery) and (last.parameters, last.steps) == (2, 20)
    assert last.pays == first.pays
    assert last.event(NodeRecord()).events[0].mu == pytest.approx(0.5 * 0.02**0.5)


def test_recipe_r_is_encoder_push_and_combiner() -> None:
    plan = make(share=0.1, reads_own_edges=True).queries(mu_of(1.0, 1e-5))
    assert [query.kind for query in plan] == ["steps", "rows", "steps"]
    assert [query.noise[0] for query in plan] == pytest.approx([91.3814, 4.170973, 74.6126], rel=1e-5)
    assert plan[2].parameters == 23 * 6 and plan[2].pays == (True, True, False)


def test_metrics_are_counted_on_records_that_do_not_teach() -> None:
    plan = make(metrics=True).queries(0.5)
    tallies = [query for query in plan if isinstance(query, OutcomeCountQuery)]
    assert [tally.pays for tally in tallies] == [(False, True, False), (False, False, True)]
    assert plan[0].pays == (True, False, False)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 16.0, 50.0])
@pytest.mark.parametrize("reads", [False, True])
def test_a_grid_is_found_for_every_budget(epsilon: float, reads: bool) -> None:
    plan = make(reads_own_edges=reads, out_degree_bound=20)
    whole = ReleasePlan(plan.unit, plan.queries(mu_of(epsilon, 0.999e-5)), 1e-5)
    assert whole.epsilon <= epsilon
    assert whole.sampler.__name__ == "DiscreteGaussian"


def test_the_encoders_share_falls_with_budget_and_records_and_grows_with_width() -> None:
    assert encoder_share(0.3, 2600, 14000) > encoder_share(0.6, 2600, 14000)
    assert encoder_share(0.3, 2600, 14000) > encoder_share(0.3, 2600, 28000)
    assert encoder_share(0.3, 2600, 14000) < encoder_share(0.3, 7600, 14000)
    assert (encoder_share(9, 2600, 14000), encoder_share(0.01, 2600, 14000)) == (0.1, 0.8)
    assert encoder_share(0.1, 2600, 14000) == 0.6
    assert encoder_share(9, 2600, 14000, classes=2) == pytest.approx(0.3)  # few classes: k = 3
    assert encoder_share(9, 2600, 14000, classes=40) == 0.1
    assert make(share=0.3).budget_split(1.0).encoder == 0.3
    assert make(reads_own_edges=True).budget_split(1.0).encoder == 0.2
