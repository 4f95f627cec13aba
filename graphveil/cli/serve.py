"""``serve`` and ``keys``: released predictions over HTTP, and API keys."""

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.options import flag
from graphveil.errors import ConfigError

_SERVER = "Server"


def serve(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Run folders, or copies of their release/ folders.", show_default=False
        ),
    ],
    keys: Annotated[
        Path | None,
        flag(
            _SERVER,
            "--keys",
            "File of API keys. Required for node-level privacy units and for --allow-releases.",
        ),
    ] = None,
    host: Annotated[str, flag(_SERVER, "--host", "Address of the server.")] = "127.0.0.1",
    port: Annotated[
        int, flag(_SERVER, "--port", "Port of the server. 0 selects a free port.", min=0, max=65535)
    ] = 8000,
    max_body: Annotated[
        int, flag(_SERVER, "--max-body", "Maximum size of a request body in bytes.", min=1)
    ] = 1 << 20,
    max_under_way: Annotated[
        int,
        flag(
            _SERVER,
            "--max-under-way",
            "Maximum number of concurrent requests per worker.",
            min=1,
        ),
    ] = 64,
    rate: Annotated[
        float | None,
        flag(_SERVER, "--rate", "Maximum number of requests per second and key. Default: no limit."),
    ] = None,
    burst: Annotated[
        int,
        flag(_SERVER, "--burst", "Maximum burst size under --rate, in requests.", min=1),
    ] = 50,
    workers: Annotated[int, flag(_SERVER, "--workers", "Number of worker processes.", min=1, max=256)] = 1,
    allow_releases: Annotated[
        str | None,
        flag(
            _SERVER,
            "--allow-releases",
            "Total epsilon for predictions of new records. Default: no such predictions. "
            "Requires --ledger and --keys.",
            metavar="EPSILON",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        flag(
            _SERVER,
            "--ledger",
            "Ledger account to charge for --allow-releases: a name in your ledger, or a database URL and a "
            "name.",
            metavar="NAME|URL|URL#NAME",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Serve the released predictions of finished runs over HTTP."""
    from graphveil.serve import Limits, ReleaseBudget, Service
    from graphveil.serve import serve as answer

    screen, budget = Screen(as_json=json), None
    if (allow_releases is None) != (ledger is None):
        raise ConfigError(
            "--allow-releases EPSILON and --ledger NAME must be given together. Add the other one."
        )
    if allow_releases is not None and ledger is not None:
        try:
            budget = ReleaseBudget(epsilon=Decimal(allow_releases), ledger=ledger)
        except InvalidOperation:
            raise ConfigError("--allow-releases needs an epsilon above 0, for example 1.0.") from None
    service = Service(
        runs=tuple(runs),
        keys=keys,
        limits=Limits(body_bytes=max_body, under_way=max_under_way, rate=rate, burst=burst),
        workers=workers,
        release_budget=budget,
    )
    app = service.app()
    found = [(run.name, run.guarantee) for run in app.state.runs]
    for name, guarantee in found:
        screen.note(f"{name}: {guarantee.formal_statement()}")
    served = {"runs": [name for name, _ in found], "units": [one.unit for _, one in found]}
    answer(service, host, port, app=app, on_bound=lambda: screen.emit_json(served))


def keys(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of API keys. Created if it does not exist.")
    ],
    subject: Annotated[
        list[str] | None,
        typer.Option(
            "--subject",
            help="Node id whose prediction the key may read, for node-level privacy units. Repeatable.",
            metavar="ID",
        ),
    ] = None,
    releases: Annotated[
        bool,
        typer.Option("--releases", help="Allow the key to make new releases, which spend privacy budget."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Create an API key for `serve`, print it, and store its hash."""
    from graphveil.serve import Keys

    screen = Screen(as_json=json)
    key = Keys.add(file, subject or (), releases=releases)
    screen.note(f"The hash of the key is in {file}. Restart the server to use it.")
    screen.emit_json({"key": key})
    if not json:
        screen.write(key + "\n")
