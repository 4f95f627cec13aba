"""What a script prints and a notebook shows of guarantees, plans, metrics and sweeps."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import graphveil as gv
from graphveil._util.display import ProgressBars
from graphveil.data import Graph

EDGE: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-7, "seed": 0}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return gv.load_dataset("synthetic/tiny")


def test_a_plan_prints_as_names_and_values_and_is_a_table_in_a_notebook(graph: Graph) -> None:
    model = gv.GAP(**EDGE, hops=2)
    prepared = model.prepare(graph)
    for shown in (prepared, prepared.plan, prepared.guarantee):
        text, page = str(shown), shown._repr_html_()  # type: ignore[union-attr]  # there is a plan
        assert "undirected-edge" in text and "epsilon 1" in text and "(" not in text.split()[0]
        assert max(map(len, text.splitlines())) < 400
        assert page.startswith("<table>") and page.count("<tr>") == len(text.splitlines())
    assert "2 times" in str(prepared) and "noise standard deviation" in str(prepared)
    assert "attack bound" in str(prepared.guarantee)


def test_a_deviation_is_shown(graph: Graph) -> None:
    guarantee = gv.GAP(**EDGE, unsafe_noise_seed=0).prepare(graph).guarantee
    seeded = guarantee.with_deviations("<a flaw>")
    assert "no valid guarantee" in str(seeded) and "&lt;a flaw&gt;" in seeded._repr_html_()


def test_metrics_are_tables_in_a_notebook(graph: Graph) -> None:
    model = gv.MLP(unit="none", seed=0).fit(graph)
    page = model.evaluate(graph)._repr_html_()
    assert page.count("<table>") == 2 and "<th>accuracy</th>" in page and "recall" in page


def test_a_sweep_has_a_folder_and_a_table(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = gv.sweep(["mlp"], graph, unit="none")
    assert found.out.parent == Path("runs") and (found.out / "sweep.csv").exists()
    page = found._repr_html_()
    assert page.count("<tr>") == 2 and "<th>accuracy</th>" in page and "mlp" in page


@pytest.mark.parametrize("model", [gv.GAP(**EDGE), gv.LinkPredictor(unit="undirected-edge", epsilon=1.0)])
def test_progress_shows_the_stages_of_a_fit(
    model: Any, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, called = list[str](), list[str]()
    monkeypatch.setattr(ProgressBars, "__call__", lambda bars, stage, done, total: stages.append(stage))
    model.fit(graph, progress=True, on_progress=lambda stage, done, total: called.append(stage))
    assert stages == called and len(set(stages)) > 2
    model.fit(graph)
    assert stages == called


def test_a_bar_appears_after_two_seconds() -> None:
    now = [0.0]
    console = Console(force_terminal=True, record=True, width=80)
    with ProgressBars(console, clock=lambda: now[0]) as bars:
        bars("training", 1, 10)
        assert not bars._progress.live.is_started
        now[0] = 2.5
        bars("training", 2, 10)
        assert bars._progress.live.is_started
