"""Text from outside is shown, and nowhere obeyed: one hostile name through every sink."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphveil._util import escape

HOSTILE = "\x1b]0;owned\x07\u202e\ud800<img src=x>|[a](b)`c`\r\n# \x85\u2028*d*"


@pytest.mark.parametrize("escape", [escape.one_line, escape.markdown, escape.html, escape.csv_cell])
def test_nothing_that_a_terminal_obeys_is_left(escape: object) -> None:
    assert callable(escape)
    shown = escape(HOSTILE)
    assert shown.replace("\n", "").isprintable()
    shown.encode()  # no half of a pair is left


@given(st.text())
def test_markdown_is_one_line_without_markup(text: str) -> None:
    shown = escape.markdown(text)
    assert len(shown.splitlines()) <= 1
    assert not re.search(r"(?<!\\)[<>|`*\[\]]", re.sub(r"\\\\", "", shown))


@given(st.text())
def test_a_cell_is_no_formula_and_comes_back(text: str) -> None:
    written = io.StringIO()
    csv.writer(written).writerow([escape.csv_cell(text)])
    ((cell,),) = csv.reader(io.StringIO(written.getvalue()), strict=True)
    assert not cell.startswith(("=", "@")) and (not cell.startswith(("+", "-")) or float(cell) is not None)


def test_harmless_text_stays_as_it_is() -> None:
    for text in ("t0", "größe", "facebook_pages", "class 3", "日本", "-5"):
        assert {escape(text) for escape in (escape.terminal, escape.markdown, escape.csv_cell)} == {text}
