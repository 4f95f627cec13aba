"""A server of predictions that are released already. Docs: ``docs/serve.md``.

What it answers from are release folders: no estimator, no graph. So whatever it is asked, it cannot make a
release, and the same question has the same bytes. Needs the extra ``serve``.
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
    """Return the application that answers for some runs.

    Args:
        runs: what :func:`read_runs` read.
        keys: who may ask. Without it everybody may, which units of records do not allow: there row v is only
            for a key of subject v.
        limits: how much is taken on at once. Deadlines of connections are for :func:`serve` to keep.

    Raises:
        ConfigError: a run of a unit of records without keys, or beside another one.
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
    """Answer until a signal asks to stop; what is under way is finished first.

    Port 0 takes any that is free; the first line of the log says which.

    Args:
        service: what is served.
        host, port: where.
        app: as ``service.app()`` made it, if that was done before: a single worker is this one.
        on_bound: what is called once the address is this server's.

    Raises:
        ConfigError, ArtifactError: what is to be served cannot be, or the address cannot be used.
        GraphError: so many workers have no room in memory.
        MissingDependencyError: the extra ``serve`` is not installed.
    """
    if service.workers > 1:  # a system that runs out kills whoever is there
        what = f"{service.workers} workers, each with libraries of its own,"
        check_room(_WORKER * service.workers, what, "ask for fewer (--workers)")
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
