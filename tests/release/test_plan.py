"""Queries and plans: prices, grids, and what may be said about a person's edges together."""

import math

import pytest

from graphveil.estimators.classcode.edge_plan import BudgetAllocation
from graphveil.privacy import DirectedEdge, UndirectedEdge
from graphveil.release import GroupWeights, NeighborSumQuery, ReleasePlan
from graphveil.release.plan import hops


@pytest.mark.parametrize("back", [0.0, 0.1, 0.3, 0.71, 1.0])
def test_grid_steps_are_a_power_of_two_for_any_weights(back: float) -> None:
    # Only then does going back to vectors round nothing, whatever float type a block's sums needed.
    weights = GroupWeights.few_labels(back)
    steps = NeighborSumQuery(weights, (1.0, 1.0, 1.0), dim=2).unit_steps
    assert math.log2(steps).is_integer()
    assert 2**9 < steps * weights.largest <= 2**10


def test_only_rows_of_equal_weight_and_noise_get_the_smaller_group_figure() -> None:
    unit = DirectedEdge()
    assert not ReleasePlan(unit, hops(0.5, 2, 4, unit), delta=1e-7).linear_group_scaling
    counted = BudgetAllocation.choose(unit, 0.05, few_labels=False, reverse_weight=0.3).queries(
        0.5, classes=3
    )
    assert ReleasePlan(unit, counted, delta=1e-7).linear_group_scaling
    target_weighted = NeighborSumQuery(GroupWeights.target_weighted(), (1.0, 1.0, 1.0), dim=2)
    assert ReleasePlan(UndirectedEdge(), (target_weighted,), delta=1e-7).linear_group_scaling
