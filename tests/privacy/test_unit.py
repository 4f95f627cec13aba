import math
from collections.abc import Callable

import pytest

from graphveil._util.checks import suggestion
from graphveil.core.unit import (
    UNITS,
    DirectedEdge,
    NodeBoundedDegree,
    NodeRecord,
    NodeUnit,
    NoUnit,
    UndirectedEdge,
    Unit,
    parse_unit,
)
from graphveil.errors import ConfigError, UnitError


@pytest.mark.parametrize(
    ("unit", "changes", "sensitivity"),
    [
        (UndirectedEdge(), (1.0, 1.0), math.sqrt(2)),  # both end rows change
        (UndirectedEdge(), (3.0, 4.0), 5.0),
        (DirectedEdge(), (1.0, 1.0), 1.0),  # one row changes
        (DirectedEdge(), (0.3, 0.7), 0.7),
        (NodeBoundedDegree(max_degree=16), (0.5, 1.0), 4.0),  # as many rows as the node has edges
        (NodeBoundedDegree(max_degree=16, replace_one=True), (0.5, 1.0), 8.0),
        (NoUnit(), (0.0, 0.0), math.inf),
    ],
)
def test_pair_sensitivity(unit: Unit, changes: tuple[float, float], sensitivity: float) -> None:
    assert unit.pair_sensitivity(*changes) == pytest.approx(sensitivity)


def test_one_record_has_no_bound_in_a_plain_sum() -> None:
    with pytest.raises(UnitError, match="OutEdgeSumQuery"):
        NodeRecord().pair_sensitivity(1.0, 1.0)


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


def test_only_the_degree_is_a_positional_argument() -> None:
    assert NodeBoundedDegree(9) == NodeBoundedDegree(max_degree=9, replace_one=False)
    with pytest.raises(TypeError):
        NodeRecord(True)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        NodeBoundedDegree()  # type: ignore[call-arg]
    for degree in (0, -1, 1.5):
        with pytest.raises(ConfigError, match="max_degree="):
            NodeBoundedDegree(max_degree=degree)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(UNITS))
def test_every_unit_is_found_by_its_name(name: str) -> None:
    assert parse_unit(name, max_degree=3 if name == "node-bounded-degree" else None).name == name


KINDS = {
    "node": "'node-record' .*'node-bounded-degree' .*'local-attributes' ",
    "edge": "'undirected-edge' .*'directed-edge' ",
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, r"no default privacy unit.*undirected-edge, directed-edge, row, node, node-record, person"),
        ("undirected_edge", "did you mean 'undirected-edge'"),
        ("X", r"is not a privacy unit\. Choose one of: undirected-edge"),
        *((name, KINDS["node"]) for name in ("node-level", "user")),
        *((name, KINDS["edge"]) for name in ("edge", "edges", "edge-level")),
        ("non", "undirected-edge, "),
        ("nome", "."),
        ("", "undirected-edge, "),
    ],
)
def test_an_unknown_unit_lists_units_that_protect(name: str | None, words: str) -> None:
    with pytest.raises(UnitError, match=words) as error:
        parse_unit(name)
    text = str(error.value)
    assert name is None or ("'none'" not in text and "none" not in text.replace(repr(name), ""))
    assert name != "X" or all(unit in text for unit in UNITS if unit != "none")


def test_arguments_must_fit_the_unit() -> None:
    with pytest.raises(UnitError, match="max-degree"):
        parse_unit("node-bounded-degree")
    with pytest.raises(UnitError, match="replace_one"):
        parse_unit("undirected-edge", replace_one=True)


@pytest.mark.parametrize(("value", "choices"), [("papr", ["strict", "paper"]), ("non", ["none", "auto"])])
def test_choices_without_a_guarantee_are_never_suggested(value: str, choices: list[str]) -> None:
    assert suggestion(value, choices) == ""
