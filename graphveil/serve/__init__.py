"""HTTP server of released predictions. Docs: ``docs/how-to/serve.md``.

By default it reads release folders only, and has no estimator and no graph, so it cannot make a
release. The same request returns the same bytes. Needs the extra ``serve``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from graphveil._util.memory import check_room
from graphveil.serve.access import Keys, Limits, ReleaseBudget
from graphveil.serve.runs import ServedRun, read_runs
from graphveil.serve.service import Service, make_app, missing_extra

if TYPE_CHECKING:
    from fastapi import FastAPI

_WORKER = 230e6  # bytes of memory that a worker has for itself, most of them of libraries

__all__ = ["Keys", "Limits", "ReleaseBudget", "ServedRun", "Service", "create_app", "read_runs", "serve"]


def create_app(
    runs: Sequence[ServedRun], keys: Keys | None = None, limits: Limits | None = None
) -> "FastAPI":
    """Return the ASGI application that serves some runs.

    Args:
        runs: Runs from ``read_runs``.
        keys: API keys. Required under node-level units, where a row is only returned to a key of its subject.
        limits: Limits of requests. Deadlines of connections only apply to ``serve``.

    Returns:
        The application.

    Raises:
        ConfigError: If a run under a node-level unit has no keys, or is served together with another one.
        MissingDependencyError: If the extra ``serve`` is not installed.

    Privacy:
        Reads: released outputs. Charges: nothing; the application cannot make a release.
    """
    return make_app(tuple(runs), keys, limits or Limits())


def serve(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    app: "FastAPI | None" = None,
    on_bound: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, and finish the requests in progress.

    Port 0 takes any free port; the first line of the log has its number.

    Args:
        service: Settings of the server.
        host: Address to bind.
        port: Port to bind; 0 for any free port.
        app: Result of ``service.app()``, if that was called before. Used by a single worker.
        on_bound: Function that is called once the server accepts connections.

    Raises:
        ConfigError: If the runs cannot be served, or the address cannot be used.
        ArtifactError: If a run folder is damaged.
        GraphError: If there is not enough memory for the workers.
        MissingDependencyError: If the extra ``serve`` is not installed.

    Privacy:
        Charges: nothing, unless ``service.release_budget`` allows new releases; each of those is charged
        before it is computed.
    """
    if service.workers > 1:  # a system without memory kills any process
        what = f"{service.workers} workers"
        check_room(_WORKER * service.workers, what, "use fewer (--workers)")
    try:
        from graphveil.serve.server import bind_socket, log_startup, run_server, run_workers
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    app = service.app() if app is None else app
    with bind_socket(host, port) as listener:
        on_bound()
        # The line comes once signals are handled: any signal after it ends the server with exit code 0.
        ready = partial(log_startup, listener, host, service.workers)
        if service.workers > 1:
            run_workers(service, listener, ready)
        else:
            run_server(app, listener, ready)
