"""The durable ledger says what the book in memory says: grown data, two units, resumed runs, predictions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import graphveil as gv
from graphveil.data import Graph
from graphveil.ledger import Entry, Ledger, ledger_of
from graphveil.privacy import compose, privacy_curve

DELTA = 1e-7
Steps = Callable[[Graph, Path], dict[str, Graph]]


def gap(seed: int = 0) -> gv.GAP:
    return gv.GAP(unit="undirected-edge", epsilon=1.0, delta=DELTA, seed=seed, epochs=1)


def tiny() -> Graph:
    return gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)


def another(seed: int) -> Graph:
    """The same people, and other edges."""
    first, rng = tiny(), np.random.default_rng(seed)
    ends = rng.integers(first.num_nodes, size=(2, 300))
    return Graph.from_edges(first.x, first.y, ends[0], ends[1], directed=False)


def grown_data(first: Graph, folder: Path) -> dict[str, Graph]:
    gap().fit(first)
    size = first.num_nodes
    second = first.grow(x=first.x[:2], source=[size, size + 1], target=[0, 1], y=first.y[:2])
    attach(second.edge_set.parts[-1], "data")  # the new edges are a set of their own, of the same data
    gap().fit(second)
    return {"data": first}


def two_units(first: Graph, folder: Path) -> dict[str, Graph]:
    gap().fit(first)
    gv.MLP(unit="node-record", epsilon=4.0, delta=1e-5, seed=0, epochs=1).fit(first)
    gap(1).fit(first)
    return {"data": first}


def resumed_run(first: Graph, folder: Path) -> dict[str, Graph]:
    gap().fit(first, workspace=folder)
    gap().fit(first, workspace=folder)
    gap(1).fit(first)
    return {"data": first}


def predictions(first: Graph, folder: Path) -> dict[str, Graph]:
    others = {"other": another(2), "apart": another(3), "late": another(4)}
    for name, graph in others.items():
        attach(graph.edge_set, name)
    model = gap().fit(first)
    model.predict(others["other"])
    model.predict(others["apart"], assume_disjoint_edges=True)
    model.predict(others["late"])
    return {"data": first, **others}


RELEASES = {
    grown_data: {"data": 2},
    two_units: {"data": 3},
    resumed_run: {"data": 2},
    predictions: {"data": 3, "other": 2, "apart": 2, "late": 1},
}
_book: list[Ledger] = []  # the durable one, where there is one


def attach(edge_set: object, name: str) -> None:
    if _book:
        if name not in _book[0].names():
            for unit in ("undirected-edge", "node-record"):
                _book[0].init(name, unit)
        gv.attach_ledger(edge_set, _book[0].data_set(name))


def by_unit(entries: tuple[Entry, ...]) -> dict[str, tuple[int, float]]:
    """Return how many releases there are under each unit, and their epsilon, as a book in memory says it."""
    found = {}
    for unit in dict.fromkeys(entry.unit for entry in entries):
        mine = [entry for entry in entries if entry.unit == unit]
        left = DELTA - sum(entry.slack for entry in mine)
        curve = privacy_curve(compose(*(entry.event for entry in mine)))
        assert unit is not None
        found[unit.name] = len(mine), curve.epsilon(left)
    return found


@pytest.mark.parametrize("steps", RELEASES, ids=lambda steps: steps.__name__)
def test_figures_are_those_of_the_book_in_memory(steps: Steps, tmp_path: Path) -> None:
    forgetful = {
        name: by_unit(ledger_of(graph.edge_set.parts[0]).entries)
        for name, graph in steps(tiny(), tmp_path / "memory").items()
    }
    assert {name: sum(n for n, _ in units.values()) for name, units in forgetful.items()} == RELEASES[steps]
    ledger = Ledger(tmp_path / "ledger.sqlite")
    _book.append(ledger)
    try:
        first = tiny()
        attach(first.edge_set, "data")
        steps(first, tmp_path / "durable")
    finally:
        _book.clear()
    for name, units in forgetful.items():
        kept = {one.unit: one for one in ledger.accounts(name) if one.releases}
        assert kept.keys() == units.keys()
        for unit, (releases, epsilon) in units.items():
            assert kept[unit].releases == releases
            assert kept[unit].total.epsilon(DELTA) == pytest.approx(epsilon, rel=1e-6)
    assert ledger.verify() == []
