"""Charts of tests that do not look at them: their words are written, and nothing is laid out or drawn.

Drawing takes most of the time of a small command. Figures are made in each test; those with the marker
``drawn_charts`` also draw them, as users see them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class QuickCharts:
    """Takes the place of ``save`` in the module that encodes the charts of reports."""

    def __init__(self) -> None:
        """Start without drawing."""
        self._drawn = False

    def install(self) -> None:
        """Replace ``save``."""
        from graphveil.publish import charts

        draw = charts.save

        def save(figure: "Figure", form: str, *, title: str = "", **options: Any) -> bytes:
            return (draw if self._drawn else in_words)(figure, form, title=title, **options)

        charts.save = save

    @contextmanager
    def drawn(self, wanted: bool) -> Iterator[None]:
        """Draw charts, or write their words, for a while."""
        before, self._drawn = self._drawn, wanted
        try:
            yield
        finally:
            self._drawn = before


def in_words(figure: "Figure", form: str, *, title: str = "", **options: Any) -> bytes:
    """Return an SVG file of the words of a figure, whatever the form."""
    from graphveil._util.escape import html

    width, height = (72 * size for size in figure.get_size_inches())
    keys = [key.get_text() for legend in figure.legends for key in legend.get_texts()]
    names = [part() for axes in figure.axes for part in (axes.get_title, axes.get_xlabel, axes.get_ylabel)]
    words = "".join(f"<text>{html(word)}</text>" for word in (*keys, *names))
    size = f'width="{width:g}pt" height="{height:g}pt"'
    return f"<svg {size}><title>{html(title)}</title>{words}</svg>".encode()
