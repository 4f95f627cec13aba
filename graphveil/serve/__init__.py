"""HTTP server of released predictions. Docs: ``docs/how-to/serve.md``.

By default it reads release folders only, and has no estimator and no graph, so it cannot make a
release. The same request returns the same bytes. Needs the extra ``serve``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil._util.process import check_room
from graphveil.errors import ConfigError, MissingDependencyError
from graphveil.serve.access import Keys, Limits, ReleaseBudget
from graphveil.serve.runs import ServedPairs, ServedRun, read_runs

if TYPE_CHECKING:
    from fastapi import FastAPI

    from graphveil.serve.releases import ReleaseService

_WORKER = 230e6  # bytes of memory that a worker has for itself, most of them of libraries

__all__ = ["Keys", "Limits", "ReleaseBudget", "ServedRun", "Service", "create_app", "read_runs", "serve"]


@dataclass(frozen=True, kw_only=True)
class Service:
    """Settings of a server.

    Args:
        runs: Run folders.
        keys: File of keys; None for a server without keys.
        limits: Limits of each worker.
        workers: Number of worker processes.
        release_budget: Budget of new releases; None for a server that makes none.
    """

    runs: tuple[Path, ...]
    keys: Path | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    release_budget: ReleaseBudget | None = None

    def app(self, shared: Path | None = None) -> "FastAPI":
        """Read the runs and keys, and return the application of one worker.

        Args:
            shared: Folder that workers share; None for a single worker.

        Returns:
            The application of one worker.

        Raises:
            ConfigError: If the runs or the keys cannot be served.
            ArtifactError: If a run folder is damaged.
            MissingDependencyError: If the extra ``serve`` is not installed.
        """
        keys = None if self.keys is None else Keys.read(self.keys)
        runs, release_service = read_runs(self.runs), None
        if self.release_budget is not None:
            if len(runs) != 1:
                raise ConfigError(
                    "--allow-releases needs exactly one run. Start a separate server for each run."
                )
            if keys is None:
                raise ConfigError(
                    "--allow-releases needs API keys, because the privacy cost of a request is charged to "
                    "its caller. Create keys with `graphveil keys FILE --releases`, and pass --keys FILE."
                )
            from graphveil.serve.releases import ReleaseService

            if not isinstance(runs[0], ServedRun):
                raise ConfigError(
                    "--allow-releases is only for classifiers. A model of pairs answers from its existing "
                    "release. Remove --allow-releases."
                )
            release_service = ReleaseService(self.runs[0], runs[0], self.release_budget, self.limits.releases)
        return make_app(runs, keys, self.limits, release_service, shared)


def make_app(
    runs: tuple[ServedRun | ServedPairs, ...],
    keys: Keys | None,
    limits: Limits,
    release_service: "ReleaseService | None" = None,
    shared: Path | None = None,
) -> "FastAPI":
    try:
        from graphveil.serve.app import AdmissionControl, application
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    return application(runs, AdmissionControl(keys, limits, shared), release_service)


def missing_extra(error: ModuleNotFoundError) -> Exception:
    """Return an error that names the missing extra, or the error itself for our own modules."""
    if (error.name or "").startswith("graphveil"):
        return error
    return MissingDependencyError(
        "The server needs FastAPI, uvicorn and prometheus_client. Install them with "
        "`pip install 'graphveil[serve]'`."
    )


def create_app(
    runs: Sequence[ServedRun], keys: Keys | None = None, limits: Limits | None = None
) -> "FastAPI":
    """Return the ASGI application that serves some runs.

    Args:
        runs: Runs from ``read_runs``.
        keys: API keys. Required under node-level units, where a row is only returned to a key of its subject.
        limits: Limits of requests. Deadlines of connections only apply to ``serve``.

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
            run_workers(service.app, service.limits, service.workers, listener, ready)
        else:
            run_server(app, listener, ready)
