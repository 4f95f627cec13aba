"""Arguments of a wrong type, shape or range end in an error of this library, before anything is spent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wrong_types

import graphveil as gv
from graphveil.data import Graph
from graphveil.errors import ConfigError, GraphveilError
from graphveil.ledger import ledger_of

TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "attacks": wrong_types.attacks_cases,
    "audit": wrong_types.audit_cases,
    "privacy": wrong_types.privacy_cases,
    "collect": wrong_types.collect_cases,
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where a wrong path may be written to."""
    monkeypatch.chdir(tmp_path)


def raw_errors(function: Callable[..., Any], given: dict[str, Any]) -> list[str]:
    """Return the cases that end in an error of another kind."""
    found = []
    for case, arguments in wrong_types.wrongly(function, given):
        try:
            function(**arguments)
        except GraphveilError:
            continue
        except Exception as error:
            found.append(f"{case}: {type(error).__name__}")
    return found


@pytest.mark.filterwarnings("ignore")  # of arithmetic with infinite numbers
@pytest.mark.parametrize("module", sorted(TABLES))
def test_wrong_arguments_of_public_functions_are_rejected_with_our_errors(module: str) -> None:
    table, found = TABLES[module](), dict[str, list[str]]()
    for name, (function, given) in table.items():
        function(**given)
        found[name] = raw_errors(function, given)
    assert {name: cases for name, cases in found.items() if cases} == {}


@pytest.mark.parametrize("module", ["attacks", "audit"])
def test_the_table_has_every_public_function(module: str) -> None:
    public = getattr(gv, module)
    functions = {
        name
        for name in public.__all__
        if hasattr(getattr(public, name), "__signature__") or callable(getattr(public, name))
    }
    assert functions - {"Predict"} <= TABLES[module]().keys()


@pytest.fixture
def graph() -> Graph:
    return gv.load_dataset("synthetic/tiny", recipe=None)


def swept(graph: Graph, out: Path, **given: Any) -> Any:
    usual: dict[str, Any] = {"epsilon": [1], "settings": {"epochs": [1]}, "unit": "undirected-edge"}
    return gv.sweep(given.pop("methods", ["gap"]), graph, out=out, **{**usual, "delta": 1e-7, **given})


TEXTS = ["48", b"x", bytearray(b"48"), "1,2", {"1": 2}]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
@pytest.mark.parametrize("place", ["methods", "epsilon", "settings"])
def test_text_is_never_a_sequence_of_choices(graph: Graph, tmp_path: Path, place: str, text: Any) -> None:
    given = {place: text} if place != "settings" else {"settings": {"hops": text}}
    if place == "methods" and text == "48":
        given = {"methods": "gap"}
    with pytest.raises(ConfigError, match=f"{place}="):
        swept(graph, tmp_path / "out", **given)
    assert not len(ledger_of(graph.edge_set)) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("epsilon", [2, 2.0, np.float32(2), [2], (2.0,), np.array([2.0])], ids=repr)
def test_a_single_number_is_one_budget(graph: Graph, tmp_path: Path, epsilon: Any) -> None:
    class PlannedError(Exception):
        pass

    def stop(plan: Any) -> None:
        assert plan.sweep.epsilons == (2.0,)
        raise PlannedError

    with pytest.raises(PlannedError):
        swept(graph, tmp_path / "out", epsilon=epsilon, on_plan=stop)


def test_wrong_arguments_of_a_sweep_are_rejected_before_anything_is_spent(tmp_path: Path) -> None:
    table = wrong_types.sweep_cases(tmp_path)
    function, given = table["sweep"]
    assert raw_errors(function, given) == []
    assert not len(ledger_of(given["graph"].edge_set))


@pytest.mark.filterwarnings("ignore")
def test_wrong_arguments_of_estimators_and_functions_are_rejected_with_our_errors(tmp_path: Path) -> None:
    found = dict[str, list[str]]()
    for name, (function, given) in wrong_types.top_cases(tmp_path).items():
        if name not in ("save", "register"):  # which work once
            function(**given)
        found[name] = raw_errors(function, given)
    assert {name: cases for name, cases in found.items() if cases} == {}


@pytest.mark.parametrize("on_progress", [None, 5, "x", []], ids=repr)
def test_a_wrong_callback_of_a_fit_is_rejected_before_the_charge(on_progress: Any) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    with pytest.raises(ConfigError, match="on_progress="):
        gv.GAP(unit="undirected-edge", epsilon=1.0, epochs=1).fit(graph, on_progress=on_progress)
    assert not len(ledger_of(graph.edge_set))


@pytest.mark.parametrize("name", ["assume_disjoint_edges", "assume_disjoint_nodes", "allow_spend"])
@pytest.mark.parametrize("value", ["no", 1, 0, None], ids=repr)
def test_an_assumption_is_true_or_false_and_nothing_else(name: str, value: Any) -> None:
    model = wrong_types.fitted()
    with pytest.raises(ConfigError, match=f"{name}="):
        model.predict_proba(wrong_types.graph(), **{name: value})
