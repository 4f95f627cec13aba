"""Charts of tests that do not look at them: their words are written, and no figure is made or drawn.

Charts take most of the time of a small command. Tests with the marker ``drawn_charts`` draw them, as users
see them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class QuickCharts:
    """Takes the place of what makes and encodes figures in the module of the charts of reports."""

    def __init__(self) -> None:
        """Start without drawing."""
        self._drawn = False

    def install(self) -> None:
        """Replace the functions of the module."""
        from graphveil.publish import charts

        for name, quick in {"save": in_words, "_empty": sketch, "chart_style": nullcontext}.items():
            setattr(charts, name, self._either(getattr(charts, name), quick))

    def _either(self, shipped: Any, quick: Any) -> Any:
        def called(*arguments: Any, **options: Any) -> Any:
            return (shipped if self._drawn else quick)(*arguments, **options)

        return called

    @contextmanager
    def drawn(self, wanted: bool) -> Iterator[None]:
        """Draw charts, or write their words, for a while."""
        before, self._drawn = self._drawn, wanted
        try:
            yield
        finally:
            self._drawn = before


class Anything:
    """Takes every call and has every attribute; it stands for axes, lines and legends."""

    def __getattr__(self, name: str) -> "Anything":
        return self

    def __call__(self, *arguments: Any, **options: Any) -> "Anything":
        return self

    def __iter__(self) -> Iterator["Anything"]:
        return iter([self])


class Sketch(Anything):
    """The size and the words of a figure."""

    def __init__(self, height: float, *labels: str) -> None:
        """Start with the labels of the axes."""
        self.words, self.height = list(labels), height

    def legend(self, lines: Iterable[Any], names: Iterable[str], **options: Any) -> Anything:
        """Keep the names."""
        self.words[:0] = names
        return Anything()

    def get_size_inches(self) -> tuple[float, float]:
        """Return width and height."""
        return 5.0, self.height

    def get_figheight(self) -> float:
        """Return the height."""
        return self.height

    def set_figheight(self, height: float) -> None:
        """Change the height."""
        self.height = height


def sketch(x_label: str, y_label: str, height: float = 250) -> tuple[Sketch, Anything]:
    """Return an empty figure and its axes."""
    return Sketch(height / 72, x_label, y_label), Anything()


def in_words(figure: "Figure | Sketch", form: str, *, title: str = "", **options: Any) -> bytes:
    """Return an SVG file of the words of a figure, whatever the form."""
    from graphveil._util.escape import html

    width, height = (72 * size for size in figure.get_size_inches())
    words = figure.words if isinstance(figure, Sketch) else words_of(figure)
    text = "".join(f"<text>{html(word)}</text>" for word in words)
    size = f'width="{width:g}pt" height="{height:g}pt"'
    return f"<svg {size}><title>{html(title)}</title>{text}</svg>".encode()


def words_of(figure: "Figure") -> list[str]:
    """Return the words of a figure that another module has made."""
    keys = [key.get_text() for legend in figure.legends for key in legend.get_texts()]
    names = [part() for axes in figure.axes for part in (axes.get_title, axes.get_xlabel, axes.get_ylabel)]
    return [*keys, *names]
