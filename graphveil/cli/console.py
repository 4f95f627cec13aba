"""What people see: tables and bars. Results go to standard output unless it is kept for JSON."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

_PATIENCE = 2.0  # seconds before a bar is worth showing


class Screen:
    """The two consoles of a command: ``notes`` for what goes on, ``results`` for what came out."""

    def __init__(self, *, as_json: bool) -> None:
        """Send results to standard error if standard output is for JSON."""
        self.as_json = as_json
        self.notes = Console(stderr=True, highlight=False, soft_wrap=True)
        self.results = self.notes if as_json else Console(highlight=False, soft_wrap=True)

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line of result, exactly as it is."""
        self.results.print(text, style=style, markup=False)

    def prose(self, text: str) -> None:
        """Print sentences of result: broken between words on a terminal, one line for another program."""
        self.results.print(text, markup=False, soft_wrap=not self.results.is_terminal)

    def facts(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Print names and values before the work begins."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in rows:
            grid.add_row(name, _plain(value))
        self.notes.print(title, style="bold", markup=False)
        self.notes.print(grid, soft_wrap=False)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        """Print a table of results; ``right`` are the columns to align on the right."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for number, name in enumerate(head):
            table.add_column(name, justify="right" if number in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_plain(cell) for cell in row))
        self.results.print(table, soft_wrap=False)

    def emit(self, record: Mapping[str, Any]) -> None:
        """Print the one JSON object, if it was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")

    def write(self, text: str) -> None:
        """Write text to standard output as it is, for a file or another program to read."""
        sys.stdout.write(text)

    def bars(self) -> "Bars":
        """Return progress bars that appear on a terminal once the work takes long enough to need them."""
        return Bars(self.notes)


class Bars:
    """One progress bar, of the stage under way; call it with a stage, what is done, and the total."""

    def __init__(self, console: Console) -> None:
        """Prepare the bars without showing them."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._shown = console.is_terminal
        self._tasks: dict[str, TaskID] = {}
        self._began = time.monotonic()

    def __enter__(self) -> "Bars":
        """Start the clock, not the bars."""
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bars."""
        self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is."""
        if not self._shown:
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        for name, task in self._tasks.items():
            self._progress.update(task, visible=name == stage)
        self._progress.update(self._tasks[stage], completed=done, total=total)
        if time.monotonic() - self._began > _PATIENCE:
            self._progress.start()


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
