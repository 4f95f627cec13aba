"""Results as text for a terminal, as tables for a notebook, and progress bars for both."""

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphveil._util.escape import html, terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from rich.progress import TaskID

    OnProgress = Callable[[str, int, int], None]

BAR_DELAY = 2.0  # seconds before a bar is worth showing
NOTE_INTERVAL = 15.0  # seconds between progress lines in a pipe

Row = tuple[str, str]


class Facts:
    """A result that prints as names and values, and is a table in a notebook."""

    @abstractmethod
    def facts(self) -> list[Row]:
        """Return names and values, in order. They hold no protected data."""

    def __str__(self) -> str:
        return facts_text(self.facts())

    def _repr_html_(self) -> str:
        return html_table((), self.facts())


def facts_text(rows: Sequence[Row]) -> str:
    """Return one line for each name and value, with aligned values.

    >>> print(facts_text([("unit", "node-record"), ("epsilon", "1")]))
    unit     node-record
    epsilon  1
    """
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name:<{width}}  {terminal(value)}" for name, value in rows)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table; the first cell of each row is its name.

    >>> html_table((), [("epsilon", "<1")])
    '<table><tr><th>epsilon</th><td>&lt;1</td></tr></table>'
    """
    lines = ["<tr>" + "".join(f"<th>{html(cell)}</th>" for cell in head) + "</tr>"] if head else []
    for name, *cells in rows:
        lines.append(
            f"<tr><th>{html(name)}</th>" + "".join(f"<td>{html(one)}</td>" for one in cells) + "</tr>"
        )
    return f"<table>{''.join(lines)}</table>"


class ProgressBars:
    """One progress bar for the current stage; call it with a stage, the finished steps, and the total."""

    def __init__(self, console: "Console", clock: "Callable[[], float]" = time.monotonic) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._shown = console.is_terminal or console.is_jupyter
        self._tasks: dict[str, TaskID] = {}
        self._clock, self._began = clock, clock()
        self._last_note = self._began
        self._console = console

    def __enter__(self) -> "ProgressBars":
        self._began = self._clock()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self._shown:
            # In a pipe the progress is printed as a line from time to time.
            if self._clock() - self._last_note > NOTE_INTERVAL:
                self._last_note = self._clock()
                self._console.print(terminal(f"{stage}: {done:,} of {total:,}"))
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        for name, task in self._tasks.items():
            self._progress.update(task, visible=name == stage)
        self._progress.update(self._tasks[stage], completed=done, total=total)
        if self._clock() - self._began > BAR_DELAY:
            self._progress.start()


@contextmanager
def shown_progress(on_progress: "OnProgress", *, progress: bool) -> "Iterator[OnProgress]":
    """Yield a function of stage, finished and total steps that also shows bars on standard error if asked."""
    if not progress:
        yield on_progress
        return
    from rich.console import Console

    with ProgressBars(Console(stderr=True)) as bars:

        def both(stage: str, done: int, total: int) -> None:
            on_progress(stage, done, total)
            bars(stage, done, total)

        yield both
