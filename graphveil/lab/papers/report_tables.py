"""Results as tables of text, for a page, for LaTeX, and for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from graphveil.lab.papers.results import PairedComparison, Point
from graphveil.lab.papers.target import PublishedValue, ReproductionTarget

NONE = ""  # where there is no figure
PUBLISHED, REFUSED = "published", "refused"


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """One table.

    Args:
        title: what stands above it.
        head: its columns.
        rows: text, as many cells a row as there are columns.
        words: how many columns are words; the others are figures.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1

    @property
    def filled(self) -> "ReportTable":
        """The table without columns of words in which no row says anything."""
        blank = {place for place in range(self.words) if not any(row[place] for row in self.rows)}
        head, *rows = (
            tuple(cell for place, cell in enumerate(row) if place not in blank)
            for row in (self.head, *self.rows)
        )
        return replace(self, head=head, rows=tuple(rows), words=self.words - len(blank))


@dataclass(frozen=True)
class ReportTables:
    """The tables of a target's points.

    Args:
        target: what was run.
        points: in its order.
    """

    target: ReproductionTarget
    points: Sequence[Point]

    def main(self, what: str = "") -> list[ReportTable]:
        """Return a table for each data set and panel; without an axis one for each data set.

        Args:
            what: stands after the title: the words for the metric, where there are several.
        """
        after = f" ({what})" if what else ""
        if self.target.axis is None:
            return [self._rows(dataset, after) for dataset in self._datasets()]
        return [
            self._columns(dataset, panel, after)
            for dataset in self._datasets()
            for panel in dict.fromkeys(p.place[1] for p in self.points if p.place[0] == dataset)
        ]

    def _datasets(self) -> list[str]:
        return list(dict.fromkeys(point.place[0] for point in self.points))

    def _comparison_note(self, dataset: str) -> str:
        known = self.target.published_dataset(dataset)
        return PUBLISHED if known in (None, dataset) else f"{PUBLISHED}, on {known}"

    def _rows(self, dataset: str, after: str) -> ReportTable:
        """Return a table of one line a row."""
        there = [point for point in self.points if point.place[0] == dataset]
        searched = any(point.settings for point in there)
        head = [
            "panel",
            "method",
            *(["chosen"] if searched else []),
            "ours",
            self._comparison_note(dataset),
            "verdict",
        ]
        rows = []
        for point in there:
            settings = " ".join(f"{key}={value}" for key, value in point.settings.items())
            rows.append(
                (
                    point.place[1],
                    point.place[2],
                    *([settings] if searched else []),
                    self.figure(point),
                    self._published(point.published),
                    point.verdict(self.scale),
                )
            )
        words = 2 + searched
        return ReportTable(title=f"{dataset}{after}", head=tuple(head), rows=tuple(rows), words=words).filled

    def _columns(self, dataset: str, panel: str, after: str) -> ReportTable:
        """Return a table of one place a column, with what was published below each line."""
        there = [point for point in self.points if point.place[:2] == (dataset, panel)]
        xs = sorted({point.place[3] for point in there if point.place[3] is not None})
        rows = []
        for name in dict.fromkeys(point.place[2] for point in there):
            own = {point.place[3]: point for point in there if point.place[2] == name}
            level = own.get(None)
            shown = [own.get(x, level) for x in xs] if xs else [level]
            rows.append((name, *(NONE if p is None else self.figure(p) for p in shown)))
            if any(point.published for point in own.values()):
                rows.append((f"{name}, {self._comparison_note(dataset)}", *map(self._published_value, shown)))
        label = self.target.axis.label if self.target.axis else ""
        head = tuple(f"{x:g}" for x in xs) or ("",)
        title = f"{dataset}{f', {panel}' if panel else ''}{after}"
        return ReportTable(title=title, head=(label, *head), rows=tuple(rows))

    @property
    def scale(self) -> float:
        """What a figure is multiplied by to be shown."""
        return 100.0 if self.target.percent else 1.0

    def figure(self, point: Point) -> str:
        """Return a point's mean and interval, or that it was refused."""
        if point.mean is None:
            return REFUSED
        text = self.number(point.mean)
        ends = point.interval
        return text if ends is None else f"{text} [{self.number(ends[0])}, {self.number(ends[1])}]"

    def number(self, value: float) -> str:
        """Return a figure with as many digits as are shown."""
        if self.target.percent:
            return f"{self.scale * value:.1f}"
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"

    def _published(self, known: PublishedValue | None) -> str:
        if known is None:
            return NONE
        sign = "~" if known.source == "read off" else ""
        if not self.target.percent:
            return f"{known.value:,}"
        digits = f".{1 + (known.error < 0.05)}f"
        error = f" ± {known.error:g}" if known.error and known.source != "read off" else ""
        return f"{sign}{known.value:{digits}}{error}"

    def _published_value(self, point: Point | None) -> str:
        if point is None or point.published is None:
            return NONE
        verdict = point.verdict(self.scale)
        judged = f" ({verdict})" if verdict in ("agrees", "above", "below") else ""
        return f"{self._published(point.published)}{judged}"

    def tested(self, comparisons: Sequence[PairedComparison]) -> ReportTable | None:
        """Return the table of tested differences; None if there are none."""
        if not comparisons:
            return None
        unit = "points" if self.target.percent else "units"
        rows = tuple(self._tested(comparison) for comparison in comparisons)
        head = ("data set", "panel", "difference", "at", f"mean, {unit}", "p (Holm)", "beyond chance")
        return ReportTable(title="Differences, paired by run", head=head, rows=rows, words=4).filled

    def _tested(self, one: PairedComparison) -> tuple[str, ...]:
        dataset, panel, line, x = one.place
        p = "one run" if one.p_value is None else f"{one.p_value:.2g}"
        gain = f"{self.scale * one.mean:+.1f}" if self.target.percent else f"{one.mean:+.4g}"
        at = NONE if x is None else f"{x:g}"
        return dataset, panel, f"{line} - {one.other}", at, gain, p, "yes" if one.significant else "no"


def markdown(block: ReportTable) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield from (f"## {block.title}", "")
    yield f"| {' | '.join(block.head)} |"
    yield f"|{'---|' * block.words}{'---:|' * (len(block.head) - block.words)}"
    yield from (f"| {' | '.join(row)} |" for row in block.rows)
    yield ""


def latex(block: ReportTable) -> Iterator[str]:
    """Yield the lines of a table in LaTeX, for the package booktabs."""
    shape = "l" * block.words + "r" * (len(block.head) - block.words)
    yield from (r"\begin{table}", r"\centering", rf"\caption{{{_tex(block.title)}}}")
    yield from (rf"\begin{{tabular}}{{{shape}}}", r"\toprule")
    yield f"{' & '.join(map(_tex, block.head))} \\\\"
    yield r"\midrule"
    yield from (f"{' & '.join(map(_tex, row))} \\\\" for row in block.rows)
    yield from (r"\bottomrule", r"\end{tabular}", r"\end{table}", "")


_TEX = {"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$", "~": r"$\sim$", "∞": r"$\infty$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)
