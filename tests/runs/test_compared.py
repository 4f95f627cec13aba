"""The page of several runs: its numbers, what it rejects, and how it looks in a browser."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from browser import AXE, BROWSER, DRIVER, printed_by, window
from command import Invoke

from graphveil.cli import main
from graphveil.publish.reports import compared_page
from graphveil.publish.results import FinishedRun, interval
from graphveil.runs.run_folder import read_finished_run

pytestmark = pytest.mark.drawn_charts
TODAY = date(2026, 1, 2)
# Posts what a test checks of its layout.
PROBE = """<script>window.onload = () => {
  const ours = [...document.querySelectorAll("svg[role=img]")];
  const scale = svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const size = (text, svg) => parseFloat(getComputedStyle(text).fontSize) * scale(svg);
  const sizes = ours.flatMap(svg => [...svg.querySelectorAll("text")].map(text => size(text, svg)));
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  top.postMessage(`${innerWidth} wide, ${wide} beyond, smallest ${Math.min(99, ...sizes)}`, "*");
}</script>"""


def trained(method: str, out: Path, *flags: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", method, "--dataset", "synthetic/tiny", "--out", str(out), *flags])
    assert not stop.value.code


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name, epsilon, count in (("one", "1", "1"), ("four", "4", "2")):
        flags = ("--unit", "undirected-edge", "--set", "epochs=3", "--epsilon", epsilon, "--runs", count)
        trained("gap", root / name, *flags)
    return root


@pytest.fixture(scope="module")
def runs(root: Path) -> list[FinishedRun]:
    return [read_finished_run(root / name) for name in ("one", "four")]


def test_every_run_has_a_row_a_curve_and_a_guarantee(runs: list[FinishedRun]) -> None:
    page = compared_page(runs, today=TODAY)
    assert "2026-01-02" in page and "internal: do not publish" in page
    for run in runs:
        assert f">{run.name}</td>" in page
        assert run.accuracy.percent() in page
        assert run.guarantee.formal_statement() in page
    assert page.count("<svg") == 2 and "<script" not in page and "http:" not in page and "https:" not in page
    assert "different" not in page


def test_private_metrics_have_a_column(runs: list[FinishedRun], tmp_path: Path) -> None:
    trained("mlp", tmp_path / "p", "--unit", "node-record", "--epsilon", "8", "--private-metrics")
    private = read_finished_run(tmp_path / "p")
    assert private.metric == "macro_f1"
    found = private.metrics["private_metrics"][0]["metrics"]["macro_f1"]
    page = compared_page([*runs, private], today=TODAY)
    assert ">macro F1</th>" in page
    assert f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]" in page
    assert "macro F1</th>" not in compared_page(runs, today=TODAY)


def test_warns_that_runs_of_different_units_are_not_comparable(runs: list[FinishedRun]) -> None:
    other = replace(runs[1], metrics={**runs[1].metrics, "unit": "directed-edge", "delta": 1e-5})
    assert "different units and deltas" in compared_page([runs[0], other], today=TODAY)


def test_runs_of_equal_epsilon_are_drawn_next_to_each_other(runs: list[FinishedRun]) -> None:
    again = {**runs[1].metrics, "guarantee": runs[0].metrics["guarantee"]}
    page = compared_page([runs[0], replace(runs[1], metrics=again)], today=TODAY)
    assert runs[0].accuracy != runs[1].accuracy
    assert all(run.accuracy.percent() in page for run in runs)


def test_escapes_names(runs: list[FinishedRun]) -> None:
    page = compared_page([replace(runs[0], name="<script>x</script>")], today=TODAY)
    assert "<script>x" not in page and "&lt;script&gt;x" in page


def test_lists_results_of_attacks(runs: list[FinishedRun]) -> None:
    found = {
        "linkteller": {"attackers": [{"attacker": "averaged", "auc": 0.625, "max_tpr_at_1pct_fpr": None}]}
    }
    page = compared_page([replace(runs[0], attacks=found)], today=TODAY)
    assert "averaged" in page and "0.625" in page
    assert ">Attacks</h2>" not in compared_page(runs, today=TODAY)


def test_a_single_run_has_the_interval_of_its_test_nodes(runs: list[FinishedRun]) -> None:
    one, two = runs
    assert one.metrics["tested"] == sum(k["tested"] for k in one.metrics["per_class"]) > 0
    right = sum(k["recall"] * k["tested"] for k in one.metrics["per_class"])
    assert right / one.metrics["tested"] == pytest.approx(one.accuracy.mean, abs=1e-5)
    assert one.accuracy.ci95 is not None and one.accuracy.ci95[0] < one.accuracy.mean < one.accuracy.ci95[1]
    assert two.accuracy.ci95 == tuple(two.metrics["test_accuracy"]["ci95"])
    assert interval({"values": [0.0]}, 50).ci95 == pytest.approx((0.0, 0.0713), abs=1e-4)


def test_private_labels_are_not_counted_by_class(tmp_path: Path) -> None:
    trained("mlp", tmp_path / "run", "--unit", "node-record", "--epsilon", "8")
    metrics = read_finished_run(tmp_path / "run").metrics
    assert metrics["tested"] is None and metrics["per_class"] == []


def test_the_command_writes_the_page_or_names_the_reason(invoke: Invoke, tmp_path: Path) -> None:
    data = ("--dataset", "synthetic/tiny", "--unit", "undirected-edge", "--set", "tuned=false")
    assert invoke("train", "mlp", *data, "--out", tmp_path / "run").code == 0
    result = invoke("report", tmp_path / "run", "--out", tmp_path / "page.html", "--json")
    assert result.code == 0 and result.json["runs"] == ["run"]
    assert "0 " in (tmp_path / "page.html").read_text()
    rejected = invoke("report", tmp_path, "--out", tmp_path / "other.html")
    assert rejected.code != 0 and "does not contain a finished run" in rejected.err
    assert not (tmp_path / "other.html").exists()


@pytest.mark.skipif(BROWSER is None, reason="no chromium is installed")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["of several runs", "of one run"])
def test_fits_narrow_and_wide_screens(
    root: Path, runs: list[FinishedRun], kind: str, width: int, tmp_path: Path
) -> None:
    whole = compared_page(runs, today=TODAY)
    if kind == "of one run":
        whole = (root / "one" / "internal" / "report.html").read_text()
    page = tmp_path / "page.html"
    page.write_text(whole.replace("</body>", PROBE + "</body>"))
    said = printed_by(page.as_uri(), width=width, folder=tmp_path)
    found = re.fullmatch(rf"{width} wide, (-?\d+) beyond, smallest ([\d.]+)", said)
    assert found is not None, said
    beyond, smallest = map(float, found.groups())
    assert beyond <= 0 and smallest >= 11


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None or AXE is None, reason="no chromedriver, or AXE names no axe.min.js")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_serious_in_a_report(
    runs: list[FinishedRun], width: int, dark: bool, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(compared_page(runs, today=TODAY), encoding="utf-8")
    with window(width=width, dark=dark) as shown:
        shown.open(page.as_uri())
        assert shown.serious() + shown.errors() == []


def test_replaces_only_pages(root: Path, tmp_path: Path) -> None:
    table, page = tmp_path / "nodes.csv", tmp_path / "page.html"
    table.write_text("id,label\n")
    for out, code in ((table, 2), (page, 0), (page, 0)):
        with pytest.raises(SystemExit) as stop:
            main(["report", str(root / "one"), "--out", str(out)])
        assert (stop.value.code or 0) == code
    assert table.read_text() == "id,label\n"
