"""HTTP server of released predictions. Docs: ``docs/serve.md``.

By default it reads release folders only, and has no estimator and no graph, so it cannot make a
release. The same request returns the same bytes. Needs the extra ``serve``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from graphveil._memory import check_room
from graphveil.serve.counters import CELLS
from graphveil.serve.keys import Keys
from graphveil.serve.limits import Allowance, Limits
from graphveil.serve.runs import ServedRun, read_runs
from graphveil.serve.service import Service, door_of, made, missing
from graphveil.serve.shared import Shared

if TYPE_CHECKING:
    from fastapi import FastAPI

_WORKER = 230e6  # bytes of memory that a worker has for itself, most of them of libraries

__all__ = ["Allowance", "Keys", "Limits", "ServedRun", "Service", "app_of", "read_runs", "serve"]


def app_of(runs: Sequence[ServedRun], keys: Keys | None = None, limits: Limits | None = None) -> "FastAPI":
    """Return the ASGI application that serves some runs.

    Args:
        runs: runs from ``read_runs``.
        keys: API keys. Required under node-level units, where a row is only returned to a key of its subject.
        limits: limits of requests. Deadlines of connections only apply to ``serve``.

    Raises:
        ConfigError: a run under a node-level unit without keys, or together with another one.
        MissingDependencyError: the extra ``serve`` is not installed.
    """
    numbers = Shared.alone(CELLS, max(1, len(keys or ())))
    return made(tuple(runs), door_of(keys, limits or Limits(), numbers))


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
        service: settings of the server.
        host, port: address to listen on.
        app: result of ``service.app()``, if that was called before. Used by a single worker.
        on_bound: called once the server listens.

    Raises:
        ConfigError, ArtifactError: the runs cannot be served, or the address cannot be used.
        GraphError: there is not enough memory for the workers.
        MissingDependencyError: the extra ``serve`` is not installed.
    """
    if service.workers > 1:  # a system without memory kills any process
        what = f"{service.workers} workers"
        check_room(_WORKER * service.workers, what, "use fewer (--workers)")
    try:
        from graphveil.serve.listen import announce, bound, listen
        from graphveil.serve.workers import supervise
    except ModuleNotFoundError as error:
        raise missing(error) from None
    app = service.app() if app is None else app
    with bound(host, port) as line:
        on_bound()
        # The line comes once signals are handled: any signal after it ends the server with exit code 0.
        ready = partial(announce, line, host, service.workers)
        if service.workers > 1:
            supervise(service, line, ready)
        else:
            listen(app, line, on_ready=ready)
