import math

import pytest

from graphveil.errors import ConfigError
from graphveil.privacy import DirectedEdge, UndirectedEdge
from graphveil.release import GroupWeights


def test_the_steered_table_is_the_specified_one() -> None:
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
def test_a_table_that_is_no_square_of_shares_is_refused(table: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ConfigError, match="weight"):
        GroupWeights("labels", table)
