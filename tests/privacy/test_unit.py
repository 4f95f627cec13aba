import math

import pytest

from graphveil.errors import NotYetError, UnitError
from graphveil.privacy import DirectedEdge, NoUnit, UndirectedEdge, parse_unit
from graphveil.privacy.gaussian import epsilon_of, mu_of
from graphveil.privacy.unit import LATER_UNITS, UNITS
from privacy.golden import DIRECTED_IS_UNDIRECTED


def test_an_undirected_edge_changes_both_of_its_rows() -> None:
    assert UndirectedEdge().pair_shift(1.0, 1.0) == pytest.approx(math.sqrt(2))
    assert UndirectedEdge().pair_shift(3.0, 4.0) == 5.0


def test_a_directed_edge_changes_one_row() -> None:
    assert DirectedEdge().pair_shift(1.0, 1.0) == 1.0
    assert DirectedEdge().pair_shift(0.3, 0.7) == 0.7


def test_nothing_bounds_an_unprotected_change() -> None:
    assert NoUnit().pair_shift(0.0, 0.0) == math.inf


@pytest.mark.parametrize(("delta", "directed", "mutual"), DIRECTED_IS_UNDIRECTED)
def test_a_mutual_edge_under_a_directed_claim_is_golden(delta: float, directed: float, mutual: float) -> None:
    assert epsilon_of(math.sqrt(2) * mu_of(directed, delta), delta) == pytest.approx(mutual, abs=6e-4)


@pytest.mark.parametrize("name", list(UNITS))
def test_every_unit_is_found_by_its_name(name: str) -> None:
    assert parse_unit(name).name == name


def test_no_unit_is_never_guessed() -> None:
    with pytest.raises(UnitError, match=r"never guessed.*undirected-edge, directed-edge, none"):
        parse_unit(None)


def test_a_misspelt_unit_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnitError, match="did you mean 'undirected-edge'"):
        parse_unit("undirected_edge")


@pytest.mark.parametrize("name", LATER_UNITS)
def test_a_later_unit_says_what_there_is(name: str) -> None:
    with pytest.raises(NotYetError, match="available are undirected-edge"):
        parse_unit(name)
