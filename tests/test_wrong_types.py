"""Arguments of a wrong type, shape or range raise an error of this library before any budget is spent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wrong_types
from wrong_types import Call

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.data import Graph
from graphveil.errors import ConfigError, GraphveilError

TABLES: dict[str, Callable[[], list[Call]]] = {
    "attacks": wrong_types.attack_calls,
    "audit": wrong_types.audit_calls,
    "privacy": wrong_types.privacy_calls,
    "collect": wrong_types.collection_calls,
    "links": wrong_types.link_calls,
    "recommender": wrong_types.recommendation_calls,
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder that a wrong path may be written to."""
    monkeypatch.chdir(tmp_path)


def foreign_errors(calls: list[Call]) -> list[str]:
    """Return the wrong arguments that raise an error of another kind, or after a charge."""
    found, ledger = [], ledger_of(wrong_types.graph().edge_set)
    for valid in calls:
        for description, wrong in valid.with_one_wrong_argument():
            before = len(ledger)
            try:
                wrong.run()
            except GraphveilError:
                if len(ledger) > before:
                    found.append(f"{description}: charged")
            except Exception as error:
                found.append(f"{description}: {type(error).__name__}")
    return found


@pytest.mark.filterwarnings("ignore")  # of arithmetic with infinite numbers
@pytest.mark.parametrize("module", TABLES)
def test_public_functions_reject_wrong_arguments_with_typed_errors(module: str) -> None:
    calls = TABLES[module]()
    for valid in calls:
        valid.run()
    assert foreign_errors(calls) == []


@pytest.mark.parametrize("module", ["attacks", "audit"])
def test_every_public_function_is_called(module: str) -> None:
    public = getattr(gv, module)
    functions = {
        name for name, found in vars(public).items() if callable(found) and found.__module__ != "typing"
    }
    assert functions - {"Predict"} <= {valid.name for valid in TABLES[module]()}


@pytest.mark.filterwarnings("ignore")
def test_estimators_and_their_methods_reject_wrong_arguments_with_typed_errors(tmp_path: Path) -> None:
    calls = wrong_types.estimator_calls(tmp_path)
    for valid in calls:
        valid.run()
    assert foreign_errors(calls) == []


def test_sweeps_reject_wrong_arguments_before_anything_is_charged(tmp_path: Path) -> None:
    valid = wrong_types.sweep_call(tmp_path)
    with pytest.raises(ConfigError, match="planned"):
        valid.run()
    assert foreign_errors([valid]) == []
    assert not len(ledger_of(valid.arguments["graph"].edge_set))


# -- sweeps ----


def sweep(out: Path, **given: Any) -> tuple[Graph, Callable[[], object]]:
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    usual: dict[str, Any] = {"methods": ["gap"], "epsilon": [1], "settings": {"epochs": [1]}, "delta": 1e-7}
    arguments: dict[str, Any] = {"unit": "undirected-edge", **usual, **given}
    return graph, lambda: gv.sweep(graph=graph, out=out, **arguments)


TEXTS = ["48", b"x", bytearray(b"48"), "1,2", {"1": 2}]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
@pytest.mark.parametrize("place", ["methods", "epsilon", "settings"])
def test_text_is_not_a_sequence_of_choices(tmp_path: Path, place: str, text: Any) -> None:
    given = {place: text} if place != "settings" else {"settings": {"hops": text}}
    graph, run = sweep(tmp_path / "out", **given)
    with pytest.raises(ConfigError, match=f"{place}="):
        run()
    assert not len(ledger_of(graph.edge_set)) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "values",
    [[np.arange(2), np.arange(2)], ["two"], [1.5], [None], [{}]],
    ids=["arrays", "text", "float", "none", "dict"],
)
def test_settings_must_be_of_the_type_of_their_keyword(tmp_path: Path, values: list[Any]) -> None:
    graph, run = sweep(tmp_path / "out", settings={"hops": values})
    with pytest.raises(ConfigError, match="hops="):
        run()
    assert not len(ledger_of(graph.edge_set)) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("epsilon", [2, 2.0, np.float32(2), [2], (2.0,), np.array([2.0])], ids=repr)
def test_a_single_number_is_one_budget(tmp_path: Path, epsilon: Any) -> None:
    class PlannedError(Exception):
        pass

    def stop(plan: Any) -> None:
        assert plan.sweep.epsilons == (2.0,)
        raise PlannedError

    _, run = sweep(tmp_path / "out", epsilon=epsilon, on_plan=stop)
    with pytest.raises(PlannedError):
        run()


# -- single arguments ----


@pytest.mark.parametrize("on_progress", [None, 5, "x", []], ids=repr)
def test_fit_rejects_a_wrong_callback_before_the_charge(on_progress: Any) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    with pytest.raises(ConfigError, match="on_progress="):
        gv.GAP(unit="undirected-edge", epsilon=1.0, epochs=1).fit(graph, on_progress=on_progress)
    assert not len(ledger_of(graph.edge_set))


@pytest.mark.parametrize("name", ["assume_disjoint_edges", "assume_disjoint_nodes", "allow_spend"])
@pytest.mark.parametrize("value", ["no", 1, 0, None], ids=repr)
def test_assumptions_must_be_bools(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        wrong_types.fitted().predict_proba(wrong_types.graph(), **{name: value})
