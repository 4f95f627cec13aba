import math
from collections.abc import Callable

import pytest

from graphveil._util.checks import suggestion
from graphveil.errors import ConfigError, UnitError
from graphveil.privacy import (
    DirectedEdge,
    NodeBoundedDegree,
    NodeRecord,
    NodeUnit,
    NoUnit,
    UndirectedEdge,
    parse_unit,
)
from graphveil.privacy.gaussian import epsilon_of, mu_of
from graphveil.privacy.unit import UNITS
from privacy.golden import DIRECTED_IS_UNDIRECTED


def test_an_undirected_edge_changes_both_of_its_rows() -> None:
    assert UndirectedEdge().pair_sensitivity(1.0, 1.0) == pytest.approx(math.sqrt(2))
    assert UndirectedEdge().pair_sensitivity(3.0, 4.0) == 5.0


def test_a_directed_edge_changes_one_row() -> None:
    assert DirectedEdge().pair_sensitivity(1.0, 1.0) == 1.0
    assert DirectedEdge().pair_sensitivity(0.3, 0.7) == 0.7


def test_nothing_bounds_an_unprotected_change() -> None:
    assert NoUnit().pair_sensitivity(0.0, 0.0) == math.inf


@pytest.mark.parametrize(("delta", "directed", "mutual"), DIRECTED_IS_UNDIRECTED)
def test_a_mutual_edge_under_a_directed_claim_is_golden(delta: float, directed: float, mutual: float) -> None:
    both_rows = UndirectedEdge().pair_sensitivity(1.0, 1.0) * mu_of(directed, delta)
    assert epsilon_of(both_rows, delta) == pytest.approx(mutual, abs=6e-4)


@pytest.mark.parametrize("name", list(UNITS))
def test_every_unit_is_found_by_its_name(name: str) -> None:
    assert parse_unit(name, max_degree=3 if name == "node-bounded-degree" else None).name == name


def test_one_record_has_no_bound_in_a_plain_sum() -> None:
    with pytest.raises(UnitError, match="OutEdgeSumQuery"):
        NodeRecord().pair_sensitivity(1.0, 1.0)


def test_a_promised_degree_bounds_the_rows_that_a_node_speaks_into() -> None:
    assert NodeBoundedDegree(max_degree=16).pair_sensitivity(0.5, 1.0) == 4.0
    assert NodeBoundedDegree(max_degree=16, replace_one=True).pair_sensitivity(0.5, 1.0) == 8.0


@pytest.mark.parametrize(
    "unit",
    [
        lambda replace: NodeRecord(replace_one=replace),
        lambda replace: NodeBoundedDegree(4, replace_one=replace),
    ],
)
def test_replacing_a_record_doubles_every_shift(unit: Callable[[bool], NodeUnit]) -> None:
    assert (unit(False).change, unit(False).relation) == (1.0, "add_remove")
    assert (unit(True).change, unit(True).relation) == (2.0, "replace")


def test_nothing_but_the_degree_is_given_by_place() -> None:
    assert NodeBoundedDegree(9) == NodeBoundedDegree(max_degree=9, replace_one=False)
    with pytest.raises(TypeError):
        NodeRecord(True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        NodeBoundedDegree()  # type: ignore[call-arg]


@pytest.mark.parametrize("degree", [0, -1, 1.5])
def test_a_promised_degree_is_a_whole_number_above_zero(degree: int) -> None:
    with pytest.raises(ConfigError, match="max_degree="):
        NodeBoundedDegree(max_degree=degree)


def test_a_promise_is_not_made_up() -> None:
    with pytest.raises(UnitError, match="max-degree"):
        parse_unit("node-bounded-degree")


def test_replacing_is_about_records() -> None:
    with pytest.raises(UnitError, match="replace_one"):
        parse_unit("undirected-edge", replace_one=True)


def test_no_unit_is_never_guessed() -> None:
    with pytest.raises(UnitError, match=r"never guessed.*undirected-edge, directed-edge, node-record"):
        parse_unit(None)


def test_a_misspelt_unit_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnitError, match="did you mean 'undirected-edge'"):
        parse_unit("undirected_edge")


def test_the_choices_are_those_that_there_are() -> None:
    with pytest.raises(UnitError, match=r"is not a privacy unit\. Choose one of: undirected-edge") as refused:
        parse_unit("X")
    assert all(name in str(refused.value) for name in UNITS if name != "none")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("node", "'node-record' .*'node-bounded-degree' .*'local-attributes' "),
        ("nodes", "'node-record' .*'node-bounded-degree' .*'local-attributes' "),
        ("node-level", "'node-record' .*'node-bounded-degree' .*'local-attributes' "),
        ("user", "'node-record' .*'node-bounded-degree' .*'local-attributes' "),
        ("noe", "'node-record' .*'node-bounded-degree' .*'local-attributes' "),
        ("edge", "'undirected-edge' .*'directed-edge' "),
        ("edges", "'undirected-edge' .*'directed-edge' "),
        ("edge-level", "'undirected-edge' .*'directed-edge' "),
        ("non", "undirected-edge, "),
        ("nome", "."),
        ("", "undirected-edge, "),
    ],
)
def test_an_unknown_unit_lists_units_that_protect_and_never_none(name, words):
    with pytest.raises(UnitError, match=words) as refused:
        parse_unit(name)
    assert "'none'" not in str(refused.value) and "none" not in str(refused.value).replace(repr(name), "")


@pytest.mark.parametrize(("value", "choices"), [("papr", ["strict", "paper"]), ("non", ["none", "auto"])])
def test_choices_without_a_guarantee_are_never_suggested(value, choices):
    assert suggestion(value, choices) == ""
