"""``report``: several runs side by side, as one page."""

from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.errors import ArtifactError, ConfigError

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.")]
Page = Annotated[Path, typer.Option("--out", help="The page, one HTML file.", rich_help_panel="Run")]


def report(runs: Runs, out: Page = Path("report.html"), json: options.Json = False) -> None:
    """Write one page about several runs: accuracy over epsilon, attackers, budgets, guarantees. Internal.

    It reads finished run folders and spends nothing. The page has no script and loads nothing.
    """
    from datetime import UTC, datetime

    from graphveil._util.files import write_atomic
    from graphveil.privacy.formatting import counted
    from graphveil.runs.html_pages import compared_page
    from graphveil.runs.results import FinishedRun

    if out.is_dir():
        raise ConfigError(f"--out {out} is a folder; give a file, for example {out / 'report.html'}")
    if out.is_file() and not out.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise ConfigError(f"--out {out} is there and no report; name a new file, or remove this one")
    found = [FinishedRun.read(run) for run in {run.resolve(): run for run in runs}.values()]
    screen = Screen(as_json=json)
    try:
        page = compared_page(found, today=datetime.now(UTC).date())
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ArtifactError(
            "The figures of a run cannot be read, so the page was not written: a run folder is damaged "
            f"({type(error).__name__}). `graphveil explain` and `graphveil predict` read its release."
        ) from None
    write_atomic(out, page.encode())
    screen.print_line(f"{out}: {counted(len(found), 'run')} side by side; internal, do not publish it")
    screen.emit_json({"page": str(out), "runs": [run.name for run in found]})
