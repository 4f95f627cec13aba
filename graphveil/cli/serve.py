"""``serve`` and ``keys``: released predictions over HTTP, and who may ask."""

from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen

_SERVER = "Server"


def serve(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, or their release parts.", show_default=False),
    ],
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="File of API keys; units of records need it.", rich_help_panel=_SERVER),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address.", rich_help_panel=_SERVER)] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 for a free one.", rich_help_panel=_SERVER)
    ] = 8000,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, help="Bytes of a question.", rich_help_panel=_SERVER)
    ] = 1 << 20,
    max_under_way: Annotated[
        int, typer.Option("--max-under-way", min=1, help="Questions at a time.", rich_help_panel=_SERVER)
    ] = 64,
    json: options.Json = False,
) -> None:
    """Answer questions about finished runs over HTTP, from what is released: it costs no budget."""
    from graphveil.serve import Keys, Limits, app_of, read_runs
    from graphveil.serve import serve as answer

    screen = Screen(as_json=json)
    limits = Limits(body_bytes=max_body, under_way=max_under_way)
    found = read_runs(runs)
    app = app_of(found, None if keys is None else Keys.read(keys), limits)
    for run in found:
        screen.note(f"{run.name}: {run.guarantee.statement()}")
    screen.emit({"runs": [run.name for run in found], "units": [run.guarantee.unit for run in found]})
    answer(app, limits, host, port)


def keys(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of keys; made if it is not there.")],
    subject: Annotated[
        list[str] | None,
        typer.Option(
            "--subject", help="An id whose row the key may read, under units of records; repeatable."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make an API key for `serve` and add its hash to a file. The key is shown once and kept nowhere."""
    from graphveil.serve import Keys

    screen = Screen(as_json=json)
    key = Keys.add(file, subject or ())
    screen.note(f"Its hash is in {file}; a server reads the file when it starts.")
    screen.emit({"key": key})
    if not json:
        screen.write(key + "\n")
