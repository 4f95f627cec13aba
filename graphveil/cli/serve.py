"""``serve`` and ``keys``: released predictions over HTTP, and API keys."""

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

from annotated_types import Interval

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.errors import ConfigError


def serve(
    runs: list[Path],
    *,
    keys: Path | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000,
    max_body: options.OneOrMore = 1048576,
    max_under_way: options.OneOrMore = 64,
    rate: float | None = None,
    burst: options.OneOrMore = 50,
    workers: Annotated[int, Interval(ge=1, le=256)] = 1,
    allow_releases: str | None = None,
    ledger: str | None = None,
    json: bool = False,
) -> None:
    """Serve the released predictions of finished runs over HTTP.

    Args:
        runs (RUN): Run folders, or copies of their release/ folders.

    Server:
        keys: File of API keys. Required for node-level privacy units and for --allow-releases.
        host: Address of the server.
        port: Port of the server. 0 selects a free port.
        max_body: Maximum size of a request body in bytes.
        max_under_way: Maximum number of concurrent requests per worker.
        rate: Maximum number of requests per second and key. Default: no limit.
        burst: Maximum burst size under --rate, in requests.
        workers: Number of worker processes.
        allow_releases (EPSILON): Total epsilon for predictions of new records. Default: no such
            predictions. Requires --ledger and --keys.
        ledger (NAME|URL|URL#NAME): Ledger account to charge for --allow-releases: a name in your ledger,
            or a database URL and a name.

    Examples:
        graphveil serve runs/first
        graphveil serve runs/first --port 8080 --keys keys.json
    """
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


def keys(file: Path, *, subject: list[str] | None = None, releases: bool = False, json: bool = False) -> None:
    """Create an API key for `serve`, print it, and store its hash.

    Args:
        file (FILE): File of API keys. Created if it does not exist.
        subject (ID): Node id whose prediction the key may read, for node-level privacy units. Repeatable.
        releases: Allow the key to make new releases, which spend privacy budget.

    Examples:
        graphveil keys keys.json
        graphveil keys keys.json --subject alice --subject bob
    """
    from graphveil.serve import Keys

    screen = Screen(as_json=json)
    key = Keys.add(file, subject or (), releases=releases)
    screen.note(f"The hash of the key is in {file}. Restart the server to use it.")
    screen.emit_json({"key": key})
    if not json:
        screen.write(key + "\n")
