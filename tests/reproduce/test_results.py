"""From runs to figures: settings are chosen on validation nodes, verdicts compare intervals."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

import pytest

from graphveil.errors import ArtifactError
from graphveil.lab.papers.figures import COLORS, figures_of
from graphveil.lab.papers.measures import Measurement
from graphveil.lab.papers.outputs import Results, read_results_csv
from graphveil.lab.papers.results import Point, holm, interval, points_of
from graphveil.lab.papers.target import PublishedValue, ReproductionCell, ReproductionOptions, cells_of
from tests.reproduce.small import SMALL

ASKED = ReproductionOptions(mode="paper", runs=3)


def found(cell: ReproductionCell, test: float, val: float) -> tuple[ReproductionCell, Measurement]:
    return cell, Measurement(values={"test": test, "val": val})


def results() -> Results:
    """Return made-up runs: two hops are better on test nodes, and one hop on validation nodes."""
    runs = []
    for cell in cells_of(SMALL, ASKED):
        one_hop = cell.settings.get("hops") == 1
        base = 0.5 if cell.line == "MLP" else 0.7 if one_hop else 0.9
        runs.append(found(cell, base + 0.01 * cell.work.seed, 0.8 if one_hop else 0.6))
    return Results(SMALL, ASKED, tuple(runs))


def test_settings_are_chosen_on_validation_nodes() -> None:
    points = {point.place[2:]: point for point in results().points}
    assert points["GAP", 4.0].settings == {"hops": 1}
    assert points["GAP", 4.0].mean == pytest.approx(0.71)


def test_what_was_published_stands_beside_its_own_metric_alone() -> None:
    both = replace(SMALL, metrics={"test": "test accuracy, %", "val": "validation accuracy, %"})
    first, other = (points_of(both, ASKED, results().runs, metric) for metric in both.metrics)
    assert [point.published for point in first if point.place[2:] == ("GAP", 4.0)] == [
        PublishedValue(99.0, 0.5)
    ]
    assert not any(point.published for point in other)


def test_the_csv_has_every_run_and_says_which_were_chosen() -> None:
    rows = list(csv.DictReader(io.StringIO(results().csv())))
    assert len(rows) == len(cells_of(SMALL, ASKED)) == 15
    chosen = [row for row in rows if row["line"] == "GAP" and row["chosen"] == "yes"]
    assert {row["settings"] for row in chosen} == {"hops=1"} and len(chosen) == 6


def test_differences_are_paired_by_run_and_corrected_for_being_several() -> None:
    made = results()
    assert [(one.place[3], one.other, round(one.mean, 3)) for one in made.comparisons] == [
        (1.0, "MLP", 0.2),
        (4.0, "MLP", 0.2),
    ]
    assert all(one.significant for one in made.comparisons)  # the difference does not vary
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
def test_a_verdict_compares_intervals_on_the_same_data(case: str) -> None:
    values, known, same, verdict = CASES[case]
    runs = {seed: {"test": value} for seed, value in enumerate(values)}
    place = ("cora", "", "GAP", None)
    point = Point(place=place, settings={}, runs=runs, metric="test", published=known, same_data=same)
    assert point.verdict(100) == verdict


def test_intervals_are_those_of_means_drawn_anew() -> None:
    values = [0.1 * number for number in range(11)]
    low, high = interval(values) or (0, 0)
    assert low < 0.5 < high and 0.1 < high - 0.5 < 0.25  # 1.96 standard errors are 0.187
    assert interval(values) == (low, high)


def test_tables_hold_in_markdown_and_in_latex() -> None:
    made = results()
    table = made.tables[0]
    assert table.head == ("epsilon", "1", "4")
    assert [row[0] for row in table.rows] == ["GAP", "GAP, published", "MLP"]
    assert table.rows[1] == ("GAP, published", "", "99.0 ± 0.5 (below)")
    page, tex = made.page(), made.tables[0]
    assert "| GAP | 71.0 [70.0, 72.0] | 71.0 [70.0, 72.0] |" in page
    assert "A made-up source." in page
    assert len({len(row) for row in tex.rows} | {len(tex.head)}) == 1


def test_columns_that_say_nothing_are_left_out() -> None:
    made = results()
    differences = made.tables[-1]
    assert differences.head[:3] == ("data set", "difference", "at")  # there are no panels
    no_axis = replace(SMALL, axis=None, lines=SMALL.lines[2:3], compared=())
    runs = tuple(found(cell, 0.7, 0.6) for cell in cells_of(no_axis, ASKED))
    (table,) = Results(no_axis, ASKED, runs).tables
    assert table.head == ("method", "ours", "published", "verdict") and table.words == 1
    assert table.rows == (("MLP", "70.0 [70.0, 70.0]", "", "not published"),)


def test_a_kept_csv_makes_the_same_page_again() -> None:
    made = results()
    again = read_results_csv(made.csv(), SMALL, "paper")
    assert again.page() == made.page()
    assert again.csv() == made.csv()


def test_places_that_were_chosen_are_read_from_the_csv() -> None:
    target = SMALL.at((1.0,))
    runs = tuple(found(cell, 0.7, 0.6) for cell in cells_of(target, ASKED))
    made = Results(target, ASKED, runs)
    assert {cell.x for cell, _ in runs} == {1.0, None}
    read = read_results_csv(made.csv(), SMALL, "paper")
    assert read.target == target and read.page() == made.page()


def test_what_is_left_out_is_said_and_not_run() -> None:
    first, *others = SMALL.lines
    short = replace(first, starts={"synthetic/tiny": 4.0}, left_out="it would take hours")
    elsewhere = replace(others[-1], datasets=("cora",), left_out="it is of cora")
    target = replace(SMALL, lines=(short, *others[:-1], elsewhere))
    run_options = ReproductionOptions(mode="strict", runs=1)
    runs = tuple(found(cell, 0.7, 0.6) for cell in cells_of(target, run_options))
    assert {(cell.line, cell.x) for cell, _ in runs if cell.line in ("GAP", "SAGE-NDP")} == {("GAP", 4.0)}
    made = Results(target, run_options, runs)
    said = [
        "GAP, on synthetic/tiny below epsilon 4: it would take hours",
        "SAGE-NDP, on synthetic/tiny: it is of cora",
    ]
    assert made.verdict()["not_run"] == said
    assert f"## Not run\n\n* {said[0]}.\n* {said[1]}.\n" in made.page()
    assert read_results_csv(made.csv(), target, "strict").page() == made.page()
    with pytest.raises(ValueError, match="left out"):  # nothing is left out without a reason
        replace(target, lines=(replace(short, left_out=""),))


def test_a_line_has_one_color_wherever_it_is_drawn() -> None:
    both = replace(SMALL, datasets=("synthetic/tiny", "cora"), compared=())
    first, *others = both.lines
    lines = (replace(first, datasets=("cora",), left_out="words"), *others)
    run_options = ReproductionOptions(mode="strict", runs=2)
    cells = cells_of(replace(both, lines=lines), run_options)
    points = points_of(both, run_options, [found(cell, 0.7, 0.6) for cell in cells])
    drawn = figures_of(replace(both, lines=lines), points, ("svg",))
    color = COLORS[2].encode()  # of the MLP, which stands third
    assert all(color in content for content in drawn.values()) and len(drawn) == 2


def test_one_place_of_an_axis_is_drawn_as_rows() -> None:
    target = SMALL.at((4.0,))
    points = points_of(target, ASKED, [found(cell, 0.7, 0.6) for cell in cells_of(target, ASKED)])
    (drawn,) = figures_of(target, points, ("svg",)).values()
    assert b"test accuracy, %, at epsilon 4" in drawn


def test_a_csv_of_another_target_is_refused() -> None:
    text = results().csv().replace("GAP", "GAPP")
    with pytest.raises(ArtifactError, match="12 of 15 rows"):
        read_results_csv(text, SMALL, "paper")
    with pytest.raises(ArtifactError, match="lacks a column"):
        read_results_csv("a,b\n1,2\n", SMALL, "paper")
