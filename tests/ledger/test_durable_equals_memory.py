"""The durable ledger records the same releases and costs as the ledger in memory."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphveil as gv
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.events import compose
from graphveil.core.ledger import Entry, ledger_of
from graphveil.data import Graph
from graphveil.ledger import Ledger
from tests.fits import FITS

DELTA = 1e-7
Attach = Callable[[object, str], None]
Steps = Callable[[Graph, Path, Attach], dict[str, Graph]]


def gap(seed: int = 0) -> gv.GAP:
    return gv.GAP(unit="undirected-edge", epsilon=1.0, delta=DELTA, seed=seed, epochs=1)


def tiny(edges_seed: int | None = None) -> Graph:
    """Return the small graph, or another one of the same people with random edges."""
    graph = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    if edges_seed is None:
        return graph
    ends = np.random.default_rng(edges_seed).integers(graph.num_nodes, size=(2, 300))
    return Graph.from_edges(graph.x, graph.y, ends[0], ends[1], directed=False)


def grown_data(first: Graph, folder: Path, attach: Attach) -> dict[str, Graph]:
    gap().fit(first)
    size = first.num_nodes
    second = first.grow(x=first.x[:2], source=[size, size + 1], target=[0, 1], y=first.y[:2])
    attach(second.edge_set.parts[-1], "data")  # the new edges are a separate set of the same data
    gap().fit(second)
    return {"data": first}


def two_units(first: Graph, folder: Path, attach: Attach) -> dict[str, Graph]:
    gap().fit(first)
    gv.MLP(unit="node-record", epsilon=4.0, delta=1e-5, seed=0, epochs=1).fit(first)
    gap(1).fit(first)
    return {"data": first}


def resumed_run(first: Graph, folder: Path, attach: Attach) -> dict[str, Graph]:
    gap().fit(first, workspace=folder)
    gap().fit(first, workspace=folder)
    gap(1).fit(first)
    return {"data": first}


def predictions(first: Graph, folder: Path, attach: Attach) -> dict[str, Graph]:
    others = {"other": tiny(2), "apart": tiny(3), "late": tiny(4)}
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


def by_unit(entries: tuple[Entry, ...]) -> dict[str, tuple[int, float]]:
    """Return the number of releases under each unit, and their epsilon."""
    found = {}
    for unit in dict.fromkeys(entry.unit for entry in entries):
        mine = [entry for entry in entries if entry.unit == unit]
        curve = privacy_curve(compose(*(entry.event for entry in mine)))
        assert unit is not None
        found[unit.name] = len(mine), curve.epsilon(DELTA - sum(entry.slack for entry in mine))
    return found


@pytest.mark.parametrize("steps", RELEASES, ids=lambda steps: steps.__name__)
def test_records_the_same_releases_and_costs(steps: Steps, tmp_path: Path) -> None:
    graphs = steps(tiny(), tmp_path / "memory", lambda edge_set, name: None)
    in_memory = {name: by_unit(ledger_of(graph.edge_set.parts[0]).entries) for name, graph in graphs.items()}
    assert {name: sum(n for n, _ in units.values()) for name, units in in_memory.items()} == RELEASES[steps]
    ledger = Ledger(tmp_path / "ledger.sqlite")

    def attach(edge_set: object, name: str) -> None:
        if name not in ledger.names():
            for unit in ("undirected-edge", "node-record"):
                ledger.init(name, unit)
        gv.attach_ledger(edge_set, ledger.data_set(name))

    first = tiny()
    attach(first.edge_set, "data")
    steps(first, tmp_path / "durable", attach)
    for name, units in in_memory.items():
        accounts = {one.unit: one for one in ledger.accounts(name) if one.releases}
        assert {unit: account.releases for unit, account in accounts.items()} == {
            unit: releases for unit, (releases, _) in units.items()
        }
        for unit, (_, epsilon) in units.items():
            assert accounts[unit].total.epsilon(DELTA) == pytest.approx(epsilon, rel=1e-6)
    assert ledger.verify() == []


FORMS: tuple[Any, ...] = (2, np.float32(1), np.int64(3), Fraction(1, 2))
ENTRANCES = ("sage", "links", "noisy graph", "noisy sums")  # each way to give a number; methods share one


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [*product(ENTRANCES, FORMS), ("classcode", Fraction(1, 2)), ("spectral", np.float32(1))],
    ids=lambda one: one if isinstance(one, str) else repr(one),
)
def test_the_ledger_verifies_after_fits_with_numbers_of_any_form(
    name: str, epsilon: Any, tmp_path: Path
) -> None:
    ledger, (data, fit) = Ledger(tmp_path / "ledger.sqlite"), FITS[name]
    ledger.init("data", "undirected-edge", epsilon=20, delta="1e-6")
    for _ in range(2):
        one = data()
        gv.attach_ledger(one, ledger.data_set("data"))
        fit(one, epsilon=epsilon)
    assert ledger.verify() == []
    ledger.close()
    (account,) = Ledger(tmp_path / "ledger.sqlite").accounts("data")
    assert account.releases == 2
    assert float(epsilon) < account.total.epsilon(1e-6) <= 2 * float(epsilon)
