import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from graphveil._util.figures import format_upper_bound
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.events import Composed, Event, Gaussian, PoissonGaussian, PureDP
from graphveil.core.unit import NoUnit, UndirectedEdge
from graphveil.privacy import Guarantee
from graphveil.publish.charts import PlotLine, inline_svg, line_chart
from graphveil.publish.reports import ComplianceReport, _attack_curve, report_page

pytestmark = pytest.mark.drawn_charts
HISTORY = [[0, "gap", "classifier", epoch, 1.0 / (epoch + 1), None, 0.5] for epoch in range(5)]
VOID = {"meta", "br"}


def metrics(guarantee: Guarantee, **changes: Any) -> dict[str, Any]:
    accuracy = {"values": [0.8, 0.9]}
    return {
        "method": "gap",
        "dataset": "<b>mine</b>",
        "recipe": "gap",
        "nodes": 10,
        "features": 3,
        "classes": 2,
        "runs": 2,
        "seed": 0,
        "unit": guarantee.unit,
        "covered": guarantee.unit != "none",
        "private_accuracy": None,
        "baseline_guarantee": None,
        "epsilon": guarantee.as_dict()["epsilon"],
        "mode": "strict",
        "guarantee": guarantee.as_dict(),
        "delta": guarantee.delta,
        "max_tpr_at_1pct_fpr": guarantee.max_tpr(),
        "max_tpr_at_1pct_fpr_all_runs": guarantee.max_tpr(),
        "guarantee_all_runs": {"epsilon": 2.0, "delta": guarantee.delta},
        "test_accuracy": accuracy,
        "mlp_test_accuracy": accuracy,
        "releases": [{"kind": "rows", "sensitivity": 1.0, "noise_std": [2.0], "values_per_node": 16}],
        "seconds": {"total": 1.0, "encoder": 0.4},
        "seconds_wall": 3.0,
        "peak_rss_mb": 500,
        **changes,
    }


def private(**changes: Any) -> Guarantee:
    return Guarantee.from_event(UndirectedEdge(), Gaussian(0.5), delta=1e-5, releases=1, **changes)


def notice(guarantee: Guarantee) -> ComplianceReport:
    return ComplianceReport("gap on <b>mine</b>", "2026-01-31", guarantee, True, (), ("graphveil",))


def test_the_report_prints_no_delta_below_the_one_accounted_for() -> None:
    guarantee = Guarantee.from_event(UndirectedEdge(), Gaussian(0.5), delta=1.0000011e-5, releases=1)
    page = report_page(metrics(guarantee), HISTORY, guarantee, notice(guarantee))
    assert page.count("1.00001e-05") >= 3 and " 1e-05" not in page


class Balanced(HTMLParser):
    """Fails on a tag that is closed out of turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Close what opens itself."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_complete_in_itself_and_well_formed() -> None:
    page = report_page(metrics(private()), HISTORY, private(), notice(private()))
    # A chart refers to its own marks and clip paths by #name, and to nothing outside of the page.
    assert not re.search(r"https?:|src=|href=(?!\"#)|@import|url\((?!#)|<script", page)
    parser = Balanced()
    parser.feed(page.removeprefix("<!doctype html>"))
    assert parser.open == []


def test_text_from_outside_is_escaped() -> None:
    page = report_page(metrics(private()), HISTORY, private(), notice(private()))
    assert "<b>mine" not in page
    assert "&lt;b&gt;mine" in page


def test_it_states_what_matters() -> None:
    page = report_page(metrics(private()), HISTORY, private(), notice(private()))
    for words in (
        "mlp (no-graph baseline)",
        "1e-05",
        "do not publish",
        "blind guessing",
        "r equal releases",
        "95 %",
    ):
        assert words in page


def test_no_epsilon_is_printed_below_the_proved_one() -> None:
    both_ways = Gaussian(2**0.5 * mu_of(4.0, 1e-5))
    guarantee = Guarantee.from_event(UndirectedEdge(), both_ways, delta=1e-5, releases=1)
    together = {"epsilon": 7.423042, "delta": 1e-5}
    figures = metrics(guarantee, guarantee_all_runs=together)
    page = report_page(figures, HISTORY, guarantee, notice(guarantee))
    assert "5.992" not in page  # what 5.992008 is to the nearest digit
    assert page.count("5.993") == 3  # tile, table, statement
    assert "epsilon 7.424 at delta" in page


def test_a_void_guarantee_is_marked() -> None:
    void = private(deviations=("the noise is reproducible from a seed",))
    page = report_page(metrics(void), HISTORY, void, notice(void))
    assert 'class="warning"' in page
    assert page.count("(not valid)") == 8  # tiles, row, note, the attacker's curve, its table and that name
    assert page.count("No valid guarantee, because of the deviations") == 2
    assert "Without them: No test about one edge is above the curve" in page
    assert "upper bound for any attacker (not valid)" in page
    assert "(not valid)" not in report_page(metrics(private()), HISTORY, private(), notice(private()))


def test_what_was_accounted_for_is_shown_and_not_the_claim_of_a_paper() -> None:
    paper = private(deviations=("a flaw",))
    page = report_page(metrics(paper, mode="paper", epsilon=1.25), HISTORY, paper, notice(paper))
    assert f">{format_upper_bound(paper.epsilon)} (not valid)</td>" in page
    assert "The paper&#39;s accounting calls this noise epsilon 1.25" in page


@pytest.mark.parametrize(
    "guarantee",
    [
        Guarantee.from_event(NoUnit(), Composed(()), delta=0.0, releases=0),
        Guarantee.from_event(UndirectedEdge(), Composed(()), delta=1e-7, releases=0),
    ],
)
def test_runs_without_a_release_have_a_page_too(guarantee: Guarantee) -> None:
    figures = metrics(guarantee, releases=[], runs=1, recipe=None, tested=100)
    page = report_page(figures, [], guarantee, notice(guarantee))
    assert "No noisy release was made" in page
    assert "Single run: the interval reflects test-set size only" in page


def drawn(*lines: PlotLine) -> str:
    return inline_svg(lambda: line_chart(lines, x_label="x", y_label="y"), "a title")


def test_a_chart_stays_inside_its_frame() -> None:
    svg = drawn(PlotLine("a", [(0, -3.7), (13, 8.1)], 0))
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    assert box is not None
    points = re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", svg)
    assert len(points) > 20
    for x, y in points:
        assert 0 <= float(x) <= int(box[1])
        assert -6 <= float(y) <= int(box[2])


def test_a_flat_line_can_be_drawn() -> None:
    assert "nan" not in drawn(PlotLine("a", [(0, 1), (1, 1)], 0)).lower()
    assert "nan" not in drawn(PlotLine("a", [(2, 1)], 0)).lower()


def test_names_in_a_chart_are_text_whatever_they_are() -> None:
    names = ("$x_1$ & <b>", "_hidden", "\x1b[2J", "\u6f22\u5b57", "a long name " * 20)
    svg = drawn(*(PlotLine(name, [(0, k), (1, k)], k) for k, name in enumerate(names)))
    for shown in ("$x_1$ &amp; &lt;b&gt;", "_hidden", "\\x1b[2J", "\u6f22\u5b57"):
        assert f">{shown}</text>" in svg
    assert "\x1b" not in svg and svg.count("long") == 20


def test_the_same_data_give_the_same_chart_and_charts_of_a_page_share_no_id() -> None:
    svg = drawn(PlotLine("a", [(2, 1)], 0))
    assert svg == drawn(PlotLine("a", [(2, 1)], 0))
    page = report_page(metrics(private()), HISTORY, private(), notice(private()))
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids and len(set(ids)) == len(ids)


def test_colors_are_those_of_the_page_on_light_and_dark_screens() -> None:
    page = report_page(metrics(private()), HISTORY, private(), notice(private()))
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    used = set(re.findall(r"var\((--[a-z0-9]+)\)", "".join(charts)))
    assert len(charts) == 3 and used
    assert not re.search(r"#[0-9a-f]{6}\b", "".join(charts))
    for name in used:
        assert len(re.findall(rf"{name}: #", page)) == 2, name


def test_the_report_names_the_chosen_method() -> None:
    guarantee = private()
    choice = {"chosen": "mlp", "metric": "roc_auc", "candidates": {"mlp": 0.75, "classcode": 0.7}}
    page = report_page(metrics(guarantee, choice=choice), HISTORY, guarantee, notice(guarantee))
    assert "Chosen method: mlp. Validation ROC-AUC: mlp 0.750, classcode 0.700." in page


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(0.2),
        Gaussian(3.0),
        PureDP(0.5),
        PureDP(6.0),
        Composed((Gaussian(0.5), PureDP(1.0))),
        PoissonGaussian(2.0, 0.05, 50),
    ],
)
def test_the_attack_curve_is_an_upper_bound_from_one_grid_of_epsilons(
    event: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarantee = Guarantee.from_event(UndirectedEdge(), event, delta=1e-7, releases=1)
    curve, evaluated = guarantee.curve, list[float]()
    delta = type(curve).delta

    def counted(self: Any, epsilon: float) -> float:
        evaluated.append(epsilon)
        return delta(self, epsilon)

    with monkeypatch.context() as patched:
        patched.setattr(type(curve), "delta", counted)
        points = _attack_curve(guarantee)
    assert 0 < len(evaluated) <= 80  # 60 on the grid, and the search for its end
    false, true = np.array(points).T
    assert (np.diff(true) >= 0).all()
    # `max_tpr` of sampled and mixed noise ignores the second bound, and may be above the curve on the right.
    for rate, bound in zip(false[1:-1], true[1:-1], strict=True):
        exact = guarantee.max_tpr(rate)
        assert bound <= exact + 2e-3
        if isinstance(event, Gaussian | PureDP) or rate < 0.1:
            assert bound >= exact - 1e-9
