"""The queries of recipes S and R: every group of records is charged the total, and no more."""

from typing import Any

import pytest

from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.events import ByGroup, compose
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.record_counts import OutcomeCountQuery
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.core.unit import NodeRecord
from graphveil.estimators.classcode.node import NodeLevelClassCode, encoder_share
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes

SIZES = PublicSizes(nodes=20_000, features=437, classes=6, train_records=14235)


def make(unit: NodeRecord | None = None, metrics: bool = False, **changes: Any) -> NodeLevelClassCode:
    privacy_config = PrivacyConfig(unit=unit or NodeRecord(), epsilon=1.0, private_metrics=metrics)
    return NodeLevelClassCode(name="classcode", privacy_config=privacy_config, **changes)


def costs(method: NodeLevelClassCode, mu: float) -> list[float]:
    """Return the mu that is charged to a record of each group."""
    each: list[list[object]] = [[], [], []]
    for query in method.queries(SIZES, mu):
        event = query.event(method.privacy_config.unit)
        for group, events in enumerate(each):
            events.append(event.events[group] if isinstance(event, ByGroup) else event)
    return [total_mu(compose(*events)) or 0.0 for events in each]  # type: ignore[arg-type]


@pytest.mark.parametrize("replace_one", [False, True])
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("mu", [0.05, 0.27, 2.9])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [1, 1, 1]),
        ({"targets": "test"}, [1, 1, 1]),
        ({"metrics": True}, [1, 1, 1]),
        ({"encoder_share": 0.4}, [1, 1, 1]),
        ({"unlabeled_send": False}, [1, 1, 0]),
    ],
    ids=str,
)
def test_every_group_that_takes_part_is_charged_the_total(
    replace_one: bool, reads: bool, mu: float, changes: dict[str, object], expected: list[int]
) -> None:
    plan = make(unit=NodeRecord(replace_one=replace_one), reads_own_edges=reads, **changes)
    assert costs(plan, mu) == pytest.approx([mu * part for part in expected], rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "noise"),
    [(1.0, (91.3814, 6.2177, 7.1796, 7.1796)), (16.0, (8.4306, 0.5736, 0.6624, 0.6624))],
)
def test_recipe_s_is_encoder_and_three_aggregations(epsilon: float, noise: tuple[float, ...]) -> None:
    plan = make(encoder_share=0.1, targets="test")
    first, *aggregations = plan.queries(SIZES, mu_of(epsilon, 1e-5))
    assert isinstance(first, DPSGDQuery) and first.parameters == 438 * 6 and first.steps == 60
    assert first.pays == (True, True, False)
    assert (first.noise_multiplier, *(query.noise[0] for query in aggregations)) == pytest.approx(
        noise, abs=1e-4
    )
    assert all(query.bounds == pytest.approx((1, 1, 1.054093)) for query in aggregations)
    assert aggregations[0].levels == (0, 16) and len(aggregations[1].levels) == 21


def test_recipe_s_gives_unlabeled_nodes_weight_four_and_fits_weights_with_a_small_share() -> None:
    first, aggregation, *_, last = make(encoder_share=0.1).queries(SIZES, 0.5)
    assert (min(aggregation.levels), max(aggregation.levels)) == (0, 256)
    assert isinstance(last, DPSGDQuery) and (last.parameters, last.steps) == (2, 20)
    assert last.pays == first.pays
    assert last.event(NodeRecord()).events[0].mu == pytest.approx(0.5 * 0.02**0.5)


@pytest.mark.parametrize(
    ("epsilon", "share", "noise", "bound"),
    [
        (0.25, 0.1, (325.4276, 14.853669, 265.7105), 1.118034),
        (1.0, 0.1, (91.3814, 4.170973, 74.6126), 1.118034),
        (1.0, 0.4, (45.6907, 5.27591, 74.6126), 1.414214),
        (16.0, 0.4, (4.2153, 0.48674, 6.8835), 1.414214),
    ],
)
def test_recipe_r_is_encoder_aggregation_and_combiner(
    epsilon: float, share: float, noise: tuple[float, ...], bound: float
) -> None:
    encoder, aggregation, combiner = make(encoder_share=share, reads_own_edges=True).queries(
        SIZES, mu_of(epsilon, 1e-5)
    )
    assert [query.kind for query in (encoder, aggregation, combiner)] == ["steps", "rows", "steps"]
    found = [query.noise[0] for query in (encoder, aggregation, combiner)]
    assert found == pytest.approx(noise, rel=1e-5)
    assert max(aggregation.bounds) == pytest.approx(bound) and aggregation.levels == (0, 16)
    assert combiner.parameters == 23 * 6 and combiner.pays == (True, True, False)


def test_accuracies_are_counted_on_records_outside_of_training() -> None:
    plan = make(metrics=True).queries(SIZES, 0.5)
    counts = [query for query in plan if isinstance(query, OutcomeCountQuery)]
    assert [count.pays for count in counts] == [(False, True, False), (False, False, True)]
    assert plan[0].pays == (True, False, False)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 16.0, 50.0])
@pytest.mark.parametrize("reads", [False, True])
def test_every_budget_is_met_with_discrete_gaussian_noise(epsilon: float, reads: bool) -> None:
    plan = make(reads_own_edges=reads, out_degree_bound=20)
    whole = ReleasePlan(NodeRecord(), plan.queries(SIZES, mu_of(epsilon, 0.999e-5)), 1e-5)
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
    assert make(encoder_share=0.3).budget_split(SIZES, 1.0).encoder == 0.3
    assert make(reads_own_edges=True).budget_split(SIZES, 1.0).encoder == 0.2
