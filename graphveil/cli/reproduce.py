"""``reproduce``: tables and figures of papers next to our results; a live grid of progress."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

from annotated_types import Interval
from rich.live import Live
from rich.table import Table
from rich.text import Text

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import explain_resume_on_failure, report_output_failure
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.papers.as_published.grid import ReproductionGrid
    from graphveil.papers.as_published.measures import Measurement
    from graphveil.papers.as_published.outputs import Results
    from graphveil.papers.as_published.target import ReproductionCell, ReproductionOptions, ReproductionTarget

LIST = "list"
_MAX_JOBS = 4  # by default: each cell needs about a gigabyte
_NOTE_INTERVAL = 30.0  # seconds between two lines without a live grid
_MODES = {
    "paper": "paper: the paper's algorithm, accounting and search; no valid guarantee",
    "strict": "strict: one valid guarantee per cell; the data are public, and no ledger is charged",
}


def reproduce(
    target: str,
    described: str | None = None,
    *,
    datasets: str | None = None,
    root: options.Root = None,
    mode: str | None = None,
    runs: Annotated[int, Interval(ge=1, le=100)] = 3,
    seed: int = 0,
    quick: bool = False,
    at: str | None = None,
    jobs: Annotated[int, Interval(ge=1, le=256)] | None = None,
    out: Path | None = None,
    cells: Path | None = None,
    resume: bool = False,
    json: bool = False,
) -> None:
    """Reproduce a table or figure of a paper on published datasets.

    Args:
        target (TARGET): Table or figure to reproduce, or `list` for all targets.
        described (NAME): Target to describe, after `list`.

    Data:
        datasets (NAME,...): Comma-separated datasets to use.

    Privacy:
        mode (paper|strict): Privacy mode. paper (default, if the target has it): the paper's algorithm,
            accounting and search. strict: valid guarantees and fixed settings.

    Run:
        runs: Number of runs per setting, each with its own split.
        quick: Use fewer points and a smaller search. Takes minutes.
        at (X,...): Points of the x-axis, as printed by `list TARGET`.
        jobs: Number of worker processes. Default: number of cores, at most 4.
        out (FOLDER): Folder for tables, figures and cells. Default: reproduce/TARGET-MODE. The same
            command continues an interrupted reproduction.
        cells (FOLDER): Folder of finished cells to share between targets.
        resume: Finish the reproduction in --out.

    Examples:
        graphveil reproduce list
        graphveil reproduce gap:table2 --quick
    """
    screen = Screen(as_json=json)
    if target == LIST:
        _list(described, root, screen)
        return
    if described is not None:
        raise ConfigError(f"Unexpected argument {described!r}. Name one target.")
    from graphveil._util import checks
    from graphveil.data.datasets import entry_of
    from graphveil.papers.as_published.grid import ReproductionGrid
    from graphveil.papers.as_published.outputs import Results
    from graphveil.papers.as_published.target import ReproductionOptions
    from graphveil.papers.as_published.targets import target_named
    from graphveil.runs.parameters import list_items
    from graphveil.runs.run_folder import RunFolder

    names = list_items("--datasets", datasets)
    for name in names:
        entry_of(name)  # raises an error for an unknown dataset
    try:
        points = tuple(float(x) for x in list_items("--at", at))
    except ValueError:
        raise ConfigError(f"--at {at!r} is not a list of numbers. Write, for example, --at 0.5,4.") from None
    named = target_named(target).on(tuple(dict.fromkeys(names))).at(points)
    if mode is not None:
        checks.one_of(named.modes, mode=mode)
    chosen = next((one for one in named.modes if one == mode), named.modes[0])
    run_options = ReproductionOptions(mode=chosen, runs=runs, seed=seed, quick=quick)
    folder = RunFolder(out or Path("reproduce") / f"{target.replace(':', '-')}-{chosen}")
    if resume and not folder.lock.is_file():
        raise ConfigError(f"{folder.root} contains nothing to resume. Correct --out, or remove --resume.")
    jobs = jobs or min(_MAX_JOBS, os.cpu_count() or 1)
    grid = ReproductionGrid(
        target=named, run_options=run_options, folder=folder, root=root, jobs=jobs, cells=cells
    )
    screen.print_facts(f"{named.title} ({named.source})", _facts(grid))
    with explain_resume_on_failure(folder.root, by_flag=False):
        with LiveProgress(screen, named, run_options, jobs) as listener:
            finished = grid.run(listener)
        results = Results(named, run_options, finished)
        files = results.write(folder.root)
        with report_output_failure(folder.root, again=True):
            _show(results, files, folder.root, screen)


# -- the list ----------------------------------------------------------------------------------------------


def _list(name: str | None, root: Path | None, screen: Screen) -> None:
    from graphveil.papers.as_published.target import describe, overview
    from graphveil.papers.as_published.targets import TARGETS, target_named

    if name is None:
        rows = [overview(TARGETS[each], root) for each in TARGETS]
        head = ("target", "content", "data", "cells", "minutes: paper, quick, strict")
        keys = ("target", "title", "data", "cells", "minutes")
        screen.table(head, [tuple(str(row[key]) for key in keys) for row in rows], right=(3, 4))
        screen.print_line("Minutes are for three runs and two jobs. Details: graphveil reproduce list TARGET")
        screen.emit_json({"targets": rows})
        return
    facts = describe(target_named(name), root)
    screen.table(("", name), [(key, words) for key, words in facts])
    screen.emit_json({"target": name, "facts": [list(fact) for fact in facts]})


def _facts(grid: "ReproductionGrid") -> list[tuple[str, str]]:
    from graphveil._util.figures import counted
    from graphveil.papers.as_published.target import cells_of

    target, run_options = grid.target, grid.run_options
    cells = len({cell.work.name for cell in cells_of(target, run_options)})
    rows = [
        ("data", ", ".join(target.datasets)),
        ("compared with", "; ".join(dict.fromkeys(map(target.comparison_note, target.datasets)))),
        ("grid", f"{counted(cells, 'cell')}; runs of a setting: {run_options.runs}"),
        ("mode", _MODES[run_options.mode]),
    ]
    if target.needs:
        rows.append(("needs", target.needs))
    return [*rows, ("folder", str(grid.folder.root))]


def _show(results: "Results", files: "Sequence[Path]", folder: Path, screen: Screen) -> None:
    for block in results.tables:
        screen.print_line("")
        screen.print_line(block.title, style="bold")
        screen.table(block.head, block.rows, right=range(block.words, len(block.head)))
    for why, lines in results.rejections.items():
        screen.print_line("")
        screen.print_paragraph(f"Not supported: {', '.join(lines)}. {why}")
    screen.print_line("")
    screen.print_facts("Files", [(path.name, str(path)) for path in files])
    screen.emit_json({**results.verdict(), "out": str(folder)})


class LiveProgress:
    """The progress grid: a row for each line, a column for each point, finished cells, and the time left.

    On a terminal it is redrawn after every cell; elsewhere the progress is printed from time to time.
    """

    def __init__(
        self, screen: Screen, target: "ReproductionTarget", run_options: "ReproductionOptions", jobs: int
    ) -> None:
        self._screen, self._target, self._run_options, self._jobs = screen, target, run_options, jobs
        self._live = Live(console=screen.notes, transient=True, auto_refresh=False)
        self._shown = screen.notes.is_terminal
        self._cells: Sequence[ReproductionCell] = ()
        self._found: dict[str, Measurement] = {}
        self._seconds: dict[str, list[float]] = {}
        self._began = self._last_note = time.monotonic()

    def __enter__(self) -> "LiveProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._live.stop()

    def begin(self, cells: "Sequence[ReproductionCell]", done: "Mapping[str, Measurement]") -> None:
        from graphveil._util.figures import counted

        self._cells, self._found = cells, dict(done)
        self._began = self._last_note = time.monotonic()
        if done:
            self._screen.note(f"{counted(len(done), 'cell')} finished before")
        if self._shown:
            self._live.start()
            self._live.update(self._table(), refresh=True)

    def done(self, cell: "ReproductionCell", found: "Measurement", seconds: float) -> None:
        self._found[cell.work.name] = found
        self._seconds.setdefault(cell.line, []).append(seconds)
        if self._shown:
            self._live.update(self._table(), refresh=True)
        elif time.monotonic() - self._last_note > _NOTE_INTERVAL:
            self._last_note = time.monotonic()
            self._screen.note(self._status_text())

    def _status_text(self) -> str:
        from graphveil._util.figures import counted

        names = {cell.work.name for cell in self._cells}
        done = sum(name in self._found for name in names)
        passed = time.monotonic() - self._began
        status = f"{done:,} of {counted(len(names), 'cell')}, {_clock(passed)} passed"
        every = [seconds for line in self._seconds.values() for seconds in line]
        if not every:
            return f"{status}, time left unknown"
        # Cells of a line take about as long as those before them; unknown lines take the mean.
        known = {line: sum(some) / len(some) for line, some in self._seconds.items()}
        lines = {cell.work.name: cell.line for cell in self._cells}
        mean = sum(every) / len(every)
        left = sum(known.get(lines[name], mean) for name in names if name not in self._found)
        overhead = passed * self._jobs / sum(every) if sum(every) else 1.0
        return f"{status}, about {_clock(left * max(1.0, overhead) / self._jobs)} left"

    def _table(self) -> Table:
        table = Table(
            box=None,
            padding=(0, 2, 0, 0),
            header_style="bold",
            title=Text(self._status_text()),
            title_justify="left",
        )
        xs = list(dict.fromkeys(cell.x for cell in self._cells))
        for name in ("dataset", "", "", *("" if x is None else f"{x:g}" for x in xs)):
            table.add_column(name)
        rows: dict[tuple[str, str, str], dict[float | None, list[ReproductionCell]]] = {}
        for cell in self._cells:
            rows.setdefault(cell.place[:3], {}).setdefault(cell.x, []).append(cell)
        for row, places in rows.items():
            table.add_row(*row, *(self._point(places.get(x, [])) for x in xs))
        return table

    def _point(self, cells: "Sequence[ReproductionCell]") -> Text:
        there = [self._found[cell.work.name] for cell in cells if cell.work.name in self._found]
        metric, scale = self._target.metric, 100 if self._target.percent else 1
        values = [scale * found.values[metric] for found in there if metric in found.values]
        if not cells:
            return Text("")
        if len(there) < len(cells):
            return Text(f"{len(there)}/{len(cells)}", style="dim" if not there else "")
        return Text(f"{sum(values) / len(values):.4g}" if values else "n/a", style="bold")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
