"""Sweeps: the grid, its price, and that a kill changes nothing."""

import csv
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import graphveil as gv
from graphveil.core.events import PureDP
from graphveil.core.ledger import Entry, MemoryLedger, attach_ledger, ledger_of
from graphveil.core.unit import UndirectedEdge
from graphveil.data import Graph
from graphveil.errors import BudgetError, ConfigError, GraphError, RunError, UnitError
from graphveil.ledger import Ledger
from graphveil.privacy import Guarantee
from graphveil.publish.charts import Series, accuracy_chart, has_epsilon, pdf_file, svg_file
from graphveil.publish.results import Summary
from graphveil.runs import sweep as sweeps
from graphveil.runs.run_folder import RunFolder
from graphveil.runs.source import Source
from graphveil.runs.sweep import Sweep, plan_sweep

pytestmark = pytest.mark.usefixtures("quick_workers")
TINY = Source(dataset="synthetic/tiny")
EDGES: dict[str, Any] = {"unit": "undirected-edge", "delta": 1e-7}
QUICK = {"epochs": (2,), "hops": (1, 2)}
PAPER: dict[str, Any] = {**EDGES, "unsafe_noise_seed": 7}


def grid(**given: Any) -> Sweep:
    usual: dict[str, Any] = {
        "methods": ("gap", "mlp"),
        "source": TINY,
        "epsilons": (1.0, 4.0),
        "settings": QUICK,
        "parameters": EDGES,
        "runs": 2,
    }
    return Sweep(**{**usual, **given})


@pytest.fixture
def graph() -> Graph:
    return gv.load_dataset("synthetic/tiny", recipe=None)


def swept(graph: Graph, out: Path, **given: Any) -> Any:
    usual: dict[str, Any] = {"epsilon": [1, 4], "settings": QUICK, "runs": 2, **EDGES}
    return gv.sweep(["gap", "mlp"], graph, out=out, **{**usual, **given})


def test_one_account_has_the_receipts_of_every_graph_that_a_grid_queries(tmp_path: Path) -> None:
    plan, place = plan_sweep(grid(methods=("gap",))), f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    other = gv.Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False)
    plan = replace(plan, previews=(replace(plan.previews[0], data=other), *plan.previews[1:]))
    Ledger(place).init("tiny", "undirected-edge")
    account = sweeps.account_of(plan, f"{place}#tiny")
    for name, graph in (("first", other), ("second", plan.previews[1].graph)):
        ledger_of(graph.edge_set).record(Entry(name, "rows", PureDP(0.1), unit=UndirectedEdge()))
    assert account is not None
    assert [receipt.release for receipt in account.receipts] == ["first", "second"]


def test_a_grid_is_method_by_settings_by_epsilon_and_what_no_budget_changes_is_one_cell() -> None:
    assert [cell.name for cell in grid(include_nonprivate=True).cells] == [
        "001-gap-epochs-2-hops-1-epsilon-1",
        "002-gap-epochs-2-hops-1-epsilon-4",
        "003-gap-epochs-2-hops-2-epsilon-1",
        "004-gap-epochs-2-hops-2-epsilon-4",
        "005-mlp-epochs-2",
        "006-gap-epochs-2-hops-1-without-privacy",
        "007-gap-epochs-2-hops-2-without-privacy",
    ]
    records = {"unit": "node-record", "delta": 1e-5}
    budgets = [cell.epsilon for cell in grid(methods=("mlp",), parameters=records, settings={}).cells]
    assert budgets == [1.0, 4.0]  # there the MLP pays, too


def test_a_method_without_a_form_without_privacy_has_no_ceiling() -> None:
    cells = grid(methods=("classcode",), settings={}, include_nonprivate=True).cells
    assert [cell.include_nonprivate for cell in cells] == [False, False]


INVALID: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "unknown method": ({"methods": ("gap", "gaap")}, ConfigError, "gaap"),
    "no method": ({"methods": ()}, ConfigError, "no configurations"),
    "no value": ({"settings": {"hops": ()}}, ConfigError, "no configurations"),
    "a method twice": ({"methods": ("gap", "gap")}, ConfigError, "spend privacy budget"),
    "a budget twice": ({"epsilons": (1.0, 1.0)}, ConfigError, "spend privacy budget"),
    "no budget": ({"epsilons": ()}, ConfigError, "needs a privacy budget"),
    "a setting of nobody": ({"settings": {"hoops": (1,)}}, ConfigError, "hoops"),
    "a setting that has a flag": (
        {"settings": {"epsilon": (1.0,)}},
        ConfigError,
        "separate argument of a sweep",
    ),
    "a bad value in one cell": ({"settings": {"hops": (1, 0)}}, ConfigError, "hops"),
    "too many cells": ({"settings": {"hidden": tuple(range(1, 600))}}, ConfigError, "cells"),
    "no unit": ({"parameters": {}}, UnitError, "unit"),
}


@pytest.mark.parametrize("case", INVALID)
def test_what_cannot_be_a_grid_is_rejected_before_any_data(case: str) -> None:
    given, error, words = INVALID[case]
    with pytest.raises(error, match=words):
        grid(**given)


def test_the_total_is_the_composition_of_all_runs_of_all_cells() -> None:
    plan = plan_sweep(grid(include_nonprivate=True))
    guarantees = [
        one.guarantee
        for cell, one in zip(plan.sweep.cells, plan.previews, strict=True)
        if cell.epsilon is not None
    ]
    assert plan.total is not None
    assert len(guarantees) == 4
    assert plan.total.epsilon == Guarantee.compose([one for one in guarantees for _ in range(2)]).epsilon
    assert plan.total.epsilon > 2 * max(one.epsilon for one in guarantees)
    assert plan.total.releases == 2 * sum(one.releases for one in guarantees)
    assert all(len(ledger_of(graph.edge_set)) == 0 for graph in (one.graph for one in plan.previews))


def test_what_is_charged_is_what_was_shown(graph: Graph, tmp_path: Path) -> None:
    shown: list[sweeps.SweepPlan] = []

    def look(plan: sweeps.SweepPlan) -> None:
        assert not ledger_of(graph.edge_set).entries
        shown.append(plan)

    found = swept(graph, tmp_path / "s", on_plan=look)
    (plan,) = shown
    entries = ledger_of(graph.edge_set).entries
    charged = [
        Guarantee.from_event(one.unit, one.event, delta=1e-7, releases=1, slack=one.slack) for one in entries
    ]
    assert plan.total is not None
    assert Guarantee.compose(charged).epsilon == pytest.approx(plan.total.epsilon, rel=1e-6)
    assert found.total == plan.total
    rows = list(csv.DictReader((tmp_path / "s" / "sweep.csv").read_text().splitlines()))
    assert [row["cell"] for row in rows] == [cell.name for cell in plan.sweep.cells]
    assert [row["epsilon"] for row in rows] == ["1.0", "4.0", "1.0", "4.0", ""]
    assert [float(row["accuracy"]) for row in rows] == [one["test_accuracy"]["mean"] for one in found.cells]
    assert not found.uncovered
    assert not (tmp_path / "s" / "internal" / "work").exists()


class Killed(BaseException):
    """The process ends here."""


def published(root: Path) -> dict[str, bytes]:
    """Return the bytes that two sweeps alike must share: releases, table and figure."""
    files = [*root.glob("cells/*/release/*"), root / "sweep.csv", root / "curve.svg", root / "curve.pdf"]
    return {str(file.relative_to(root)): file.read_bytes() for file in files}


def broken_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> None:
    from graphveil.runs import run

    real: Callable[..., Any] = getattr(run, name)
    calls = [0]

    def killed(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return real(*given, **named)

    monkeypatch.setattr(run, name, killed)


def of_two_epochs(out: Path, **given: Any) -> tuple[Any, Graph]:
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    return swept(graph, out, settings={"epochs": (2,)}, **PAPER, **given), graph


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Graph, Path]:
    """A sweep that nothing interrupts, its graph, and its folder."""
    out = tmp_path_factory.mktemp("swept") / "whole"
    return *of_two_epochs(out), out


@pytest.mark.parametrize(("where", "call"), [("_record", 4), ("write_reports", 2), ("check_data", 2)])
def test_a_killed_sweep_resumes_to_the_same_bytes(
    where: str, call: int, whole: tuple[Any, Graph, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, paid, uninterrupted = whole
    parts = tmp_path / "parts"
    with monkeypatch.context() as patch:
        broken_at(patch, where, call)
        with pytest.raises(Killed):
            of_two_epochs(parts)
    first = RunFolder(parts / "cells" / wanted.grid[0].name)
    assert first.complete
    before = first.metrics.read_bytes()
    assert not (parts / "sweep.csv").exists()
    resumed, left = of_two_epochs(parts, resume=True)
    assert first.metrics.read_bytes() == before  # it was skipped
    assert len(ledger_of(left.edge_set)) < len(ledger_of(paid.edge_set))
    assert published(parts) == published(uninterrupted)
    assert [one["test_accuracy"] for one in resumed.cells] == [one["test_accuracy"] for one in wanted.cells]


def test_side_by_side_gives_the_same_bytes_and_one_ledger(tmp_path: Path) -> None:
    charged = []
    for out, jobs in (("one", 1), ("two", 2)):
        graph = gv.load_dataset("synthetic/tiny", recipe=None)
        brief = {"epsilon": [1, 4], "settings": {"epochs": (2,)}, "include_nonprivate": True, **PAPER}
        gv.sweep(["gap"], graph, out=tmp_path / out, jobs=jobs, **brief)
        charged.append(sorted((one.label, str(one.event)) for one in ledger_of(graph.edge_set).entries))
    assert published(tmp_path / "one") == published(tmp_path / "two")
    assert charged[0] == charged[1] and len(charged[0]) == 2


def test_workers_show_their_progress_and_share_the_limit_of_a_ledger_in_memory(tmp_path: Path) -> None:
    brief: dict[str, Any] = {"epsilon": [1, 4], "settings": {"epochs": (2,)}, "jobs": 2, **EDGES}
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    attach_ledger(graph, MemoryLedger(epsilon=4.05, delta=1e-7))  # 1 and 4 fit, each on its own
    with pytest.raises(BudgetError, match=r"the limit of 4\.05"):
        gv.sweep(["gap"], graph, out=tmp_path / "s", **brief)
    assert not ledger_of(graph).entries and not (tmp_path / "s").exists()
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    limit = MemoryLedger(epsilon=4.2, delta=1e-7)
    attach_ledger(graph, limit)
    shown: list[tuple[str, int, int]] = []
    gv.sweep(["gap"], graph, out=tmp_path / "s", on_progress=lambda *one: shown.append(one), **brief)
    assert {stage.partition(" ")[2][:3] for stage, _, _ in shown} == {"1/2", "2/2"}
    assert [entry.label for entry in limit.entries] == ["gap", "gap"]
    assert not any(limit.refund(entry.release_id) for entry in limit.entries)


def test_an_interrupted_sweep_in_workers_leaves_its_entries_and_charges_them_once(tmp_path: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    brief: dict[str, Any] = {"settings": {"epochs": (2,), "hops": (1, 2, 3, 4)}, "jobs": 2, **EDGES}

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage.startswith(("cell 3", "cell 4")):  # the first cells were charged
            raise Killed

    with pytest.raises(Killed):
        gv.sweep(["gap"], graph, epsilon=[1], out=tmp_path / "s", on_progress=interrupt, **brief)
    left = ledger_of(graph).entries
    assert 1 <= len(left) <= 4 and {entry.label for entry in left} == {"gap"}
    gv.sweep(["gap"], graph, epsilon=[1], out=tmp_path / "s", resume=True, **brief)
    entries = ledger_of(graph).entries
    assert len(entries) == 4 and entries[: len(left)] == left


def test_workers_charge_a_registered_data_set_and_count_their_own_receipts(tmp_path: Path) -> None:
    place, graph = f"sqlite:///{tmp_path}/team.sqlite", gv.load_dataset("synthetic/tiny", recipe=None)
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge", epsilon="4.2", delta="1e-7")
    ledger.data_set("friends").record(Entry("a", "rows", PureDP(1e-3), unit=UndirectedEdge()))
    brief: dict[str, Any] = {"epsilon": [1, 4], "settings": {"epochs": (2,)}, "ledger": f"{place}#friends"}
    found = gv.sweep(["gap"], graph, out=tmp_path / "s", jobs=2, **brief, **EDGES)
    receipts = [cell["ledger"]["receipts"] for cell in found.cells]
    assert [len(own) for own in receipts] == [1, 1]
    assert {own["release"] for (own,) in receipts} == {
        entry.release_id for entry in ledger.data_set("friends").entries[1:]
    }
    assert not ledger.missing_receipts([own for (own,) in receipts])
    ledger.close()


def test_a_cell_that_is_rejected_in_a_worker_leaves_the_charges_of_others(tmp_path: Path) -> None:
    place, graph = f"sqlite:///{tmp_path}/team.sqlite", gv.load_dataset("synthetic/tiny", recipe=None)
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge", epsilon="2", delta="1e-7")
    friends = ledger.data_set("friends")
    spent: list[Entry] = []

    def spend(stage: str, done: int, total: int) -> None:
        if not spent:  # another process spends what the later cells need
            spent.append(Entry("other", "rows", PureDP(1.4), unit=UndirectedEdge()))
            friends.record(spent[0])

    with pytest.raises(RunError, match="Other cells that began stay charged"):
        gv.sweep(
            ["gap"],
            graph,
            epsilon=[0.4],
            settings={"epochs": (2,), "hops": (1, 2, 3, 4, 5, 6)},
            out=tmp_path / "s",
            ledger=f"{place}#friends",
            jobs=2,
            on_progress=spend,
            **EDGES,
        )
    assert 2 <= len(friends) < 7
    ledger.close()


@pytest.mark.slow
def test_a_killed_command_resumes_with_other_jobs_to_the_same_bytes(tmp_path: Path) -> None:
    def command(out: Path, jobs: int, *more: str) -> list[str]:
        flags = "--dataset synthetic/tiny --unit undirected-edge --delta 1e-7"
        grid = [
            "--epsilon",
            "0.5,1,2,4",
            "--runs",
            "2",
            "--set",
            "epochs=5",
            "--include-nonprivate",
            "--unsafe-noise-seed",
            "7",
        ]
        run = [sys.executable, "-m", "graphveil", "sweep", "gap,mlp", *flags.split(), *grid]
        return [*run, "--include-nonprivate", "--out", str(out), "--jobs", str(jobs), *more]

    killed = tmp_path / "killed"
    quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command(killed, 2), start_new_session=True, **quiet)
    while not list(killed.glob("cells/*/release")):
        time.sleep(0.02)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "sweep.csv").exists()
    with suppress(ProcessLookupError):
        while True:  # until the system has ended its workers, whose pipe is gone
            os.killpg(process.pid, 0)
            time.sleep(0.02)
    subprocess.run(command(killed, 1, "--resume"), check=True, capture_output=True)
    subprocess.run(command(tmp_path / "whole", 2), check=True, capture_output=True)
    assert published(killed) == published(tmp_path / "whole")


def test_jobs_are_a_number_and_a_grown_graph_is_not_sent(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jobs"):
        swept(graph, tmp_path / "s", jobs=0)
    x = graph.x[:1] if isinstance(graph.x, torch.Tensor) else graph.x[:1].toarray()
    grown = graph.grow(x, None, [graph.num_nodes], [0])
    with pytest.raises(GraphError, match="has grown"):
        swept(grown, tmp_path / "s", jobs=2)
    assert not (tmp_path / "s").exists()


def test_a_cell_that_was_killed_before_its_configuration_starts_again(graph: Graph, tmp_path: Path) -> None:
    one = {"epsilon": [1], "runs": 1, "settings": {"epochs": [2]}}
    whole = swept(graph, tmp_path / "s", **one)
    root = tmp_path / "s" / "cells" / whole.grid[0].name
    kept = root.rename(tmp_path / "kept")
    (root / "internal").mkdir(parents=True)
    assert len(swept(graph, tmp_path / "s", **one, resume=True).cells) == 2
    assert RunFolder(root).complete
    assert RunFolder(kept).complete


def test_a_folder_of_another_sweep_is_rejected_and_nothing_is_spent(graph: Graph, tmp_path: Path) -> None:
    one = {"epsilon": [1], "runs": 1, "settings": {"epochs": [2]}}
    swept(graph, tmp_path / "s", **one)
    charged = len(ledger_of(graph.edge_set))
    with pytest.raises(ConfigError, match="not an empty folder"):
        swept(graph, tmp_path / "s", **one)
    with pytest.raises(ConfigError, match="epsilon differs"):
        swept(graph, tmp_path / "s", **{**one, "epsilon": [1, 2]}, resume=True)
    with pytest.raises(ConfigError, match="does not contain a run to resume"):
        swept(graph, tmp_path / "t", **one, resume=True)
    assert len(ledger_of(graph.edge_set)) == charged


@pytest.mark.drawn_charts
def test_the_figure_has_every_series_its_intervals_and_levels() -> None:
    three, two = Summary.from_values([0.7, 0.8, 0.9]), Summary.from_values([0.7, 0.8])
    series = [
        Series.from_points("gap <1>", [(4.0, three), (0.5, two)]),
        Series.from_points("mlp", [(None, three)]),
        Series.from_points("nobody", [(1.0, Summary.from_values([None]))]),
    ]
    figure = accuracy_chart(series)
    (axes,) = figure.axes
    line, level, nobody = (one for one in axes.lines if one.get_linestyle() != "None")
    assert list(line.get_xdata()) == pytest.approx([0.5, 4.0], rel=0.02)  # aside of the other line
    assert list(line.get_ydata()) == pytest.approx([75.0, 80.0])
    assert list(level.get_ydata()) == pytest.approx([80.0, 80.0]) and not len(nobody.get_xdata())
    (bars,) = axes.collections
    ends = [tuple(segment[:, 1]) for segment in bars.get_segments()]
    assert ends == [pytest.approx([100 * end for end in one.ci95]) for one in (two, three) if one.ci95]
    (band,) = axes.patches
    assert three.ci95 is not None
    assert band.get_extents().transformed(axes.transData.inverted()).height == pytest.approx(
        100 * (three.ci95[1] - three.ci95[0])
    )
    root = ET.fromstring(svg_file(lambda: accuracy_chart(series), "accuracy"))  # our own text
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"gap <1>", "mlp", "nobody", "0.5", "4", "epsilon", "test accuracy, %"} <= words
    assert any("95 %" in word for word in words if word)
    assert not has_epsilon([Series.from_points("mlp", [(None, three)]), series[2]])


@pytest.mark.drawn_charts
def test_the_figure_has_the_same_bytes_each_time() -> None:
    three = Summary.from_values([0.7, 0.8, 0.9])
    series = [Series.from_points(f"gap (a) \\ größe {k}", [(4.0, three), (0.5, three)]) for k in range(9)]
    for write in (svg_file, pdf_file):
        assert write(lambda: accuracy_chart(series), "t") == write(lambda: accuracy_chart(series), "t")
    assert pdf_file(lambda: accuracy_chart(series), "t").startswith(b"%PDF")


def test_a_grid_that_does_not_fit_as_a_whole_spends_nothing(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/team.sqlite"
    ledger = Ledger(place)
    ledger.init("friends", "undirected-edge", epsilon="4.05", delta="1e-7")
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    with pytest.raises(BudgetError):  # 1 and 4 fit, each on its own
        swept(
            graph, tmp_path / "s", runs=1, settings={"epochs": (2,), "hops": (1,)}, ledger=f"{place}#friends"
        )
    spent = len(ledger.data_set("friends"))
    ledger.close()
    assert spent == 0, f"{spent} cells were run"
