"""Weights by group, grids of hops, and which plans have the smaller guarantee for several edges."""

import math

import pytest

from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumQuery
from graphveil.core.unit import DirectedEdge, UndirectedEdge
from graphveil.errors import ConfigError
from graphveil.estimators.classcode.edge import code_sum_queries


def test_the_target_weighted_table_is_the_specified_one() -> None:
    s = math.sqrt(0.5)
    assert GroupWeights.target_weighted().table == ((s, 1, 1), (0, s, 1), (0, 0, s))


def test_sensitivities_are_golden() -> None:
    undirected, directed = UndirectedEdge(), DirectedEdge()
    assert GroupWeights.unit_weights().sensitivity(undirected) == pytest.approx(1.41421356, abs=1e-8)
    assert GroupWeights.unit_weights().sensitivity(directed) == 1.0
    assert GroupWeights.target_weighted().sensitivity(undirected) == pytest.approx(1.0, abs=1e-15)
    assert GroupWeights.target_weighted().sensitivity(directed) == 1.0
    assert GroupWeights.equal("labels", 3).sensitivity(undirected) == pytest.approx(math.sqrt(2))
    sigmoid = GroupWeights("all", ((0.731058578630,),))
    assert sigmoid.sensitivity(undirected) == pytest.approx(1.03387295, abs=1e-8)


@pytest.mark.parametrize("back", [0.0, 0.3, 0.71, 1.0])
def test_few_labels_never_charge_a_pair_more_than_one(back: float) -> None:
    weights = GroupWeights.few_labels(back)
    assert weights.sensitivity(UndirectedEdge()) == pytest.approx(1.0)
    assert weights.table[2] == (back, back, math.sqrt(0.5))


def test_rows_with_more_noise_are_moved_less() -> None:
    shifts = GroupWeights.target_weighted().shifts(UndirectedEdge(), (0.5, 0.5, 0.25))
    assert shifts[0][2] == shifts[2][0] == pytest.approx(0.25)
    assert shifts[0][0] == pytest.approx(0.5)


def test_only_equal_weights_both_ways_are_symmetric() -> None:
    assert GroupWeights.unit_weights().symmetric
    assert GroupWeights.equal("labels", 3).symmetric
    assert not GroupWeights.target_weighted().symmetric


@pytest.mark.parametrize(
    "table", [(), ((1.0, 0.5),), ((1.0,), (1.0,)), ((1.5,),), ((-0.1,),), ((float("nan"),),)]
)
def test_rejects_a_table_that_is_not_a_square_of_shares(table: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ConfigError, match="weight"):
        GroupWeights("labels", table)


@pytest.mark.parametrize("back", [0.0, 0.1, 0.3, 0.71, 1.0])
def test_grid_steps_are_a_power_of_two_for_any_weights(back: float) -> None:
    # Only then does going back to vectors round nothing, whatever float type a block's sums needed.
    weights = GroupWeights.few_labels(back)
    steps = NeighborSumQuery(weights, (1.0, 1.0, 1.0), dim=2).unit_steps
    assert math.log2(steps).is_integer()
    assert 2**9 < steps * weights.largest <= 2**10


def test_only_hops_of_equal_weight_and_noise_scale_sublinearly() -> None:
    unit = DirectedEdge()
    assert not ReleasePlan(unit, hops(0.5, 2, 4, unit), delta=1e-7).linear_group_scaling
    counted = code_sum_queries(unit, 0.5, 3, count_share=0.05, few_labels=False, reverse_weight=0.3)
    assert ReleasePlan(unit, counted, delta=1e-7).linear_group_scaling
    target_weighted = NeighborSumQuery(GroupWeights.target_weighted(), (1.0, 1.0, 1.0), dim=2)
    assert ReleasePlan(UndirectedEdge(), (target_weighted,), delta=1e-7).linear_group_scaling
