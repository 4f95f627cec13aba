"""Results of runs: chosen settings, verdicts, tables, CSV files and figures."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

import pytest

from graphveil.errors import ArtifactError
from graphveil.papers.as_published.figures import COLORS, figures_of
from graphveil.papers.as_published.measures import Measurement
from graphveil.papers.as_published.outputs import Results, read_results_csv
from graphveil.papers.as_published.results import Point, holm, interval, points_of
from graphveil.papers.as_published.target import (
    PublishedValue,
    ReproductionCell,
    ReproductionOptions,
    ReproductionTarget,
    cells_of,
)
from tests.reproduce.small import SMALL

OPTIONS = ReproductionOptions(mode="paper", runs=3)


def found(cell: ReproductionCell, test: float, val: float) -> tuple[ReproductionCell, Measurement]:
    return cell, Measurement(values={"test": test, "val": val})


def results() -> Results:
    """Return made-up runs: two hops are better on test nodes, and one hop on validation nodes."""
    runs = []
    for cell in cells_of(SMALL, OPTIONS):
        one_hop = cell.settings.get("hops") == 1
        base = 0.5 if cell.line == "MLP" else 0.7 if one_hop else 0.9
        runs.append(found(cell, base + 0.01 * cell.work.seed, 0.8 if one_hop else 0.6))
    return Results(SMALL, OPTIONS, tuple(runs))


def test_settings_are_chosen_by_validation_accuracy() -> None:
    points = {point.place[2:]: point for point in results().points}
    assert points["GAP", 4.0].settings == {"hops": 1}
    assert points["GAP", 4.0].mean == pytest.approx(0.71)


def test_published_values_belong_to_one_metric() -> None:
    both = replace(SMALL, metrics={"test": "test accuracy, %", "val": "validation accuracy, %"})
    first, other = (points_of(both, OPTIONS, results().runs, metric) for metric in both.metrics)
    assert [point.published for point in first if point.place[2:] == ("GAP", 4.0)] == [
        PublishedValue(99.0, 0.5)
    ]
    assert not any(point.published for point in other)


def test_csv_has_every_run_and_the_chosen_settings() -> None:
    rows = list(csv.DictReader(io.StringIO(results().csv())))
    assert len(rows) == len(cells_of(SMALL, OPTIONS)) == 15
    chosen = [row for row in rows if row["line"] == "GAP" and row["chosen"] == "yes"]
    assert {row["settings"] for row in chosen} == {"hops=1"} and len(chosen) == 6


def test_differences_are_paired_by_run_and_corrected() -> None:
    grid = results()
    assert [(one.place[3], one.other, round(one.mean, 3)) for one in grid.comparisons] == [
        (1.0, "MLP", 0.2),
        (4.0, "MLP", 0.2),
    ]
    assert all(one.significant for one in grid.comparisons)  # the difference does not vary
    assert holm([0.04, 0.03])[0] == holm([0.04, 0.03])[1] == pytest.approx(0.06)


CASES: dict[str, tuple[Sequence[float], PublishedValue | None, bool, str]] = {
    "meets": ((0.69, 0.71), PublishedValue(71.4, 0.5), True, "agrees"),
    "apart": ((0.69, 0.71), PublishedValue(72.0, 0.5), True, "below"),
    "better": ((0.69, 0.71), PublishedValue(68.0, 0.5), True, "above"),
    "another graph": ((0.69, 0.71), PublishedValue(70.0, 0.5), False, "other data"),
    "nothing known": ((0.69, 0.71), None, False, "not published"),
    "one run": ((0.69,), PublishedValue(69.0, 0.5), True, "one run"),
}


@pytest.mark.parametrize("case", CASES)
def test_verdict_compares_intervals_on_the_same_data(case: str) -> None:
    values, known, same, verdict = CASES[case]
    runs = {seed: {"test": value} for seed, value in enumerate(values)}
    place = ("cora", "", "GAP", None)
    point = Point(place=place, settings={}, runs=runs, metric="test", published=known, same_data=same)
    assert point.verdict(100) == verdict


def test_interval_is_that_of_a_bootstrap() -> None:
    values = [0.1 * number for number in range(11)]
    low, high = interval(values) or (0, 0)
    assert low < 0.5 < high and 0.1 < high - 0.5 < 0.25  # 1.96 standard errors are 0.187
    assert interval(values) == (low, high)


def test_tables_have_published_values_below_each_line() -> None:
    grid = results()
    table = grid.tables[0]
    assert table.head == ("epsilon", "1", "4")
    assert [row[0] for row in table.rows] == ["GAP", "GAP, published", "MLP"]
    assert table.rows[1] == ("GAP, published", "", "99.0 ± 0.5 (below)")
    page = grid.page()
    assert "| GAP | 71.0 [70.0, 72.0] | 71.0 [70.0, 72.0] |" in page
    assert "A made-up source." in page
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_empty_columns_are_left_out() -> None:
    differences = results().tables[-1]
    assert differences.head[:3] == ("data set", "difference", "at")  # there are no panels
    no_axis = replace(SMALL, axis=None, lines=SMALL.lines[2:3], compared=())
    runs = tuple(found(cell, 0.7, 0.6) for cell in cells_of(no_axis, OPTIONS))
    (table,) = Results(no_axis, OPTIONS, runs).tables
    assert table.head == ("method", "ours", "published", "verdict") and table.words == 1
    assert table.rows == (("MLP", "70.0 [70.0, 70.0]", "", "not published"),)


@pytest.mark.parametrize("target", [SMALL, SMALL.at((1.0,))], ids=["whole", "one place"])
def test_csv_makes_the_same_page(target: ReproductionTarget) -> None:
    runs = tuple(found(cell, 0.7, 0.6) for cell in cells_of(target, OPTIONS))
    grid = Results(target, OPTIONS, runs)
    read = read_results_csv(grid.csv(), SMALL, "paper")
    assert read.target == target and read.page() == grid.page() and read.csv() == grid.csv()


def test_left_out_parts_are_listed_and_not_run() -> None:
    first, *others = SMALL.lines
    short = replace(first, starts={"synthetic/tiny": 4.0}, left_out="it would take hours")
    elsewhere = replace(others[-1], datasets=("cora",), left_out="it is of cora")
    target = replace(SMALL, lines=(short, *others[:-1], elsewhere))
    run_options = ReproductionOptions(mode="strict", runs=1)
    runs = tuple(found(cell, 0.7, 0.6) for cell in cells_of(target, run_options))
    assert {(cell.line, cell.x) for cell, _ in runs if cell.line in ("GAP", "SAGE-NDP")} == {("GAP", 4.0)}
    grid = Results(target, run_options, runs)
    expected = [
        "GAP, on synthetic/tiny below epsilon 4: it would take hours",
        "SAGE-NDP, on synthetic/tiny: it is of cora",
    ]
    assert grid.verdict()["not_run"] == expected
    assert f"## Not run\n\n* {expected[0]}.\n* {expected[1]}.\n" in grid.page()
    assert read_results_csv(grid.csv(), target, "strict").page() == grid.page()
    with pytest.raises(ValueError, match="what is omitted"):  # nothing is left out without a reason
        replace(target, lines=(replace(short, left_out=""),))


def test_line_has_one_color_in_all_figures() -> None:
    both = replace(SMALL, datasets=("synthetic/tiny", "cora"), compared=())
    first, *others = both.lines
    lines = (replace(first, datasets=("cora",), left_out="words"), *others)
    run_options = ReproductionOptions(mode="strict", runs=2)
    cells = cells_of(replace(both, lines=lines), run_options)
    points = points_of(both, run_options, [found(cell, 0.7, 0.6) for cell in cells])
    drawn = figures_of(replace(both, lines=lines), points, ("svg",))
    color = COLORS[2].encode()  # of the MLP, the third line
    assert all(color in content for content in drawn.values()) and len(drawn) == 2


def test_single_place_of_an_axis_is_drawn_as_rows() -> None:
    target = SMALL.at((4.0,))
    points = points_of(target, OPTIONS, [found(cell, 0.7, 0.6) for cell in cells_of(target, OPTIONS)])
    (drawn,) = figures_of(target, points, ("svg",)).values()
    assert b"test accuracy, %, at epsilon 4" in drawn


def test_each_metric_has_a_panel() -> None:
    labels = {"test": "test accuracy, %", "val": "validation accuracy, %"}
    target = replace(SMALL, metrics=labels, plots_all_metrics=True)
    for shown in (target, target.at((4.0,))):  # curves, and rows of the first metric
        grid = Results(shown, OPTIONS, tuple(found(cell, 0.7, 0.6) for cell in cells_of(shown, OPTIONS)))
        assert {point.metric for point in grid.plotted} == set(labels)
        (drawn,) = figures_of(shown, grid.plotted, ("svg",)).values()
        assert labels["test"].encode() in drawn
        assert (labels["val"].encode() in drawn) == (shown is target)


def test_rejects_the_csv_of_another_target() -> None:
    text = results().csv().replace("GAP", "GAPP")
    with pytest.raises(ArtifactError, match="12 of 15 rows"):
        read_results_csv(text, SMALL, "paper")
    with pytest.raises(ArtifactError, match="a column is missing"):
        read_results_csv("a,b\n1,2\n", SMALL, "paper")
