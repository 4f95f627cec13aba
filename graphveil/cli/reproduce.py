"""``reproduce``: tables and figures of papers next to our results."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Interval

from graphveil.cli.console import Screen
from graphveil.cli.failures import explain_resume_on_failure, report_output_failure
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.papers.as_published.grid import ReproductionGrid
    from graphveil.papers.as_published.outputs import Results

LIST = "list"
_MAX_JOBS = 4  # by default: each cell needs about a gigabyte
_MODES = {
    "paper": "paper: the paper's algorithm, accounting and search; no valid guarantee",
    "strict": "strict: one valid guarantee per cell; the data are public, and no ledger is charged",
}


def reproduce(
    target: str,
    described: str | None = None,
    *,
    datasets: str | None = None,
    root: Path | None = None,
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
        with screen.bars() as bars:
            finished = grid.run(bars)
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
