"""The figure of a sweep as PDF: the same marks and words at the same places, and nothing else."""

import re

import pytest

from graphveil.runs.pages.pdf import pdf_of
from graphveil.runs.results import Summary
from graphveil.runs.sweeps.sweep_chart import Series, sweep_chart

NAME = "gap (a) \\ größe"


@pytest.fixture(scope="module")
def svg() -> str:
    three = Summary.from_values([0.7, 0.72, 0.75])
    lines = [
        Series.from_points(NAME, [(4.0, three), (0.5, three)]),
        Series.from_points("mlp", [(None, three)]),
    ]
    drawn = sweep_chart(lines)
    assert drawn is not None
    return drawn


def test_every_mark_and_word_of_the_figure_is_on_the_page(svg: str) -> None:
    page = pdf_of(svg).decode("cp1252")
    for points in re.findall(r'<polyline class="[^"]*" points="([^"]*)"', svg):
        first, *others = (point.replace(",", " ") for point in points.split())
        assert "\n".join([f"{first} m", *(f"{point} l" for point in others), "S"]) in page
    assert len(re.findall(r" c(?=[ \n])", page)) == 4 * svg.count("<circle")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    shown = [re.sub(r"\\(.)", r"\1", text) for text in re.findall(r"\((.*)\) Tj", page)]
    assert shown == words and NAME in shown


def test_the_page_is_one_document_with_the_same_bytes_each_time(svg: str) -> None:
    page = pdf_of(svg)
    assert page == pdf_of(svg) and page.endswith(b"%%EOF\n")
    start = int(re.findall(rb"startxref\n(\d+)", page)[0])
    assert page[start : start + 4] == b"xref"
    places = [int(place) for place in re.findall(rb"\n(\d{10}) 00000 n", page)]
    assert [page[place:].split(b" ", 1)[0] for place in places] == [b"1", b"2", b"3", b"4", b"5"]
    (length,) = re.findall(rb"/Length (\d+)", page)
    assert len(page.split(b"stream\n", 1)[1].split(b"\nendstream")[0]) == int(length)


def test_what_is_not_understood_is_refused(svg: str) -> None:
    with pytest.raises(ValueError, match="'ellipse'"):
        pdf_of(svg.replace("</svg>", "<ellipse/></svg>"))
