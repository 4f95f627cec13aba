"""Terminal output: tables and bars. Results go to standard output, except if it is reserved for JSON."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.measure import Measurement
from rich.panel import Panel
from rich.status import Status
from rich.table import Table
from rich.text import Text

from graphveil._util.display import ProgressBars
from graphveil._util.escape import terminal
from graphveil.cli.failures import MISUSE, CommandError, report_output_failure, unwritable_output_error

if TYPE_CHECKING:
    from graphveil.data import tables
    from graphveil.privacy import Guarantee

_MAX_WIDTH = 10_000


class _Stream:
    """Standard output or error; it may be closed, or its disk full.

    Progress notes that cannot be written are dropped. A result is ``needed`` and raises an error instead.
    """

    def __init__(self, stream: TextIO | None, *, needed: bool) -> None:
        """Store the stream; it is None if the command was started with it closed."""
        self._stream, self._needed = stream, needed

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # closed since
            return False

    def write(self, text: str) -> int:
        if self._stream is None and self._needed:
            raise unwritable_output_error(None)
        try:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
            return len(text)
        except (OSError, ValueError) as error:
            self._stream = None  # every other write would fail again, also at exit
            if self._needed:
                raise unwritable_output_error(error) from None
            return len(text)

    def flush(self) -> None:
        """Do nothing: all text has been written."""


def _console(stream: TextIO | None, *, needed: bool) -> Console:
    """Return a console that does not interpret text as markup."""
    file = cast(TextIO, _Stream(stream, needed=needed))
    return Console(file=file, markup=False, emoji=False, highlight=False, soft_wrap=True)


class Screen:
    """The two consoles of a command: ``notes`` for progress, ``results`` for output."""

    def __init__(self, *, as_json: bool) -> None:
        """Send results to standard error if standard output is for JSON, which must then be writable."""
        self.as_json = as_json
        self.notes = _console(sys.stderr, needed=False)
        self.results = self.notes if as_json else _console(sys.stdout, needed=True)
        if as_json:
            # Only a write detects an output that is closed or full, and JSON may begin with a blank.
            try:
                _write(" ")
            except CommandError as error:
                raise CommandError(MISUSE, f"{error} No privacy budget was spent.", error.kind) from None

    def print_line(self, text: str, *, style: str = "") -> None:
        """Print a line of result unchanged, except for escaped control characters."""
        self.results.print(terminal(text), style=style)

    def note(self, text: str, *, style: str = "") -> None:
        self.notes.print(terminal(text), style=style)

    def print_paragraph(self, text: str, *, style: str = "") -> None:
        """Print sentences of result: wrapped on a terminal, one line for another program."""
        self.results.print(terminal(text), style=style, soft_wrap=not self.results.is_terminal)

    def spinner(self, text: str) -> Status:
        return self.notes.status(Text(terminal(text)))

    def print_facts(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        self.note(title, style="bold")
        self.notes.print(_grid(rows, style="dim", no_wrap=True), soft_wrap=False)

    def box(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        grid = _grid(rows, style="bold", no_wrap=True)
        self.results.print(Panel(grid, title=title, title_align="left", expand=False), soft_wrap=False)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        table = _table(head, rows, right)
        if len(head) <= 2 or _fits(table, self.results):
            if not self.results.is_terminal:  # what is no screen takes any width
                self.results.width = max(self.results.width, _unfolded_width(table, self.results))
            self.results.print(table, soft_wrap=False)
            return
        # Folded cells would be hard to compare: one block per row, its first cell, then the others by name.
        for first, *others in rows:
            self.print_line(first, style="bold")
            named = [(f"  {name}", cell) for name, cell in zip(head[1:], others, strict=True)]
            self.results.print(_grid(named, style="dim", overflow="fold"), soft_wrap=False)

    def dry_run(self, total: "Guarantee | None") -> None:
        self.note("Dry run: no privacy budget was spent, and nothing was written.")
        self.emit_json({"dry_run": True, "total": None if total is None else total.as_dict()})

    def emit_json(self, record: Mapping[str, Any]) -> None:
        if self.as_json:
            _write(json.dumps(record, allow_nan=False) + "\n")

    def write(self, text: str) -> None:
        """Write text to standard output: unchanged for another program, escaped for a terminal."""
        if self.results.is_terminal:
            self.results.file.write(terminal(text))
        else:
            _write(text)

    def bars(self) -> ProgressBars:
        return ProgressBars(self.notes)


def _grid(rows: Sequence[tuple[str, str]], **names: Any) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(**names)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, terminal(value))
    return grid


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, name in enumerate(head):
        table.add_column(name, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(terminal, row))
    return table


def _fits(table: Table, console: Console) -> bool:
    return not console.is_terminal or _unfolded_width(table, console) <= console.width


def _unfolded_width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=_MAX_WIDTH), table).maximum


def _write(text: str) -> None:
    """Write data to standard output, unbuffered, and in UTF-8 for any locale."""
    if sys.stdout is None:
        raise unwritable_output_error(None)
    buffer = getattr(sys.stdout, "buffer", None)
    try:
        sys.stdout.flush()
        if buffer is None:
            sys.stdout.write(text)
        else:
            buffer.write(text.encode(errors="backslashreplace"))
            buffer.flush()
    except (OSError, ValueError) as error:
        raise unwritable_output_error(error) from None


def deliver(
    table: "tables.Table",
    out: Path | None,
    screen: Screen,
    record: dict[str, Any],
    *,
    count: str,
    key: str,
    shown: Sequence[str] | None = None,
) -> None:
    """Write a table of predictions to a file, or print it.

    Args:
        key: Where the JSON object has the rows.
    """
    from graphveil.data import tables

    if out is not None:
        tables.write(out, tables.without_formulas(table) if out.suffix == ".csv" else table)
        record["out"] = str(out)
    part = table if shown is None else table.select(list(shown))
    with report_output_failure(out):
        if out is not None:
            screen.print_line(f"{count} in {out}")
        elif screen.as_json:
            record[key] = part.to_pylist()
        else:
            screen.write(tables.encode(tables.without_formulas(part), ".csv").decode())
        screen.emit_json(record)
