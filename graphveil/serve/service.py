"""A server as plain values, from which each of its workers is made."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil.errors import ConfigError, MissingDependencyError
from graphveil.serve.counters import CELLS, Counters
from graphveil.serve.keys import Keys
from graphveil.serve.limits import Limits, ReleaseBudget
from graphveil.serve.middleware import AdmissionControl
from graphveil.serve.rate_limiter import RateLimiter
from graphveil.serve.runs import ServedRun, read_runs
from graphveil.serve.shared_counters import SharedCounters

if TYPE_CHECKING:
    from fastapi import FastAPI

    from graphveil.serve.releases.release_service import ReleaseService


@dataclass(frozen=True, kw_only=True)
class Service:
    """Settings of a server.

    Args:
        runs: folders.
        keys: file of keys; None for a server without keys.
        limits: bounds of each worker.
        workers: how many processes answer.
        release_budget: budget of new releases; None for a server that makes none.
    """

    runs: tuple[Path, ...]
    keys: Path | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    release_budget: ReleaseBudget | None = None

    def app(self, shared: Path | None = None, worker: int = 0) -> "FastAPI":
        """Read the runs and keys, and return the application of one worker.

        Args:
            shared: the file that workers share; None for one that is alone.
            worker: which one it is.

        Raises:
            ConfigError, ArtifactError: the runs or the keys cannot be served.
            MissingDependencyError: the extra ``serve`` is not installed.
        """
        keys = None if self.keys is None else Keys.read(self.keys)
        places = 1 if keys is None else max(1, len(keys))
        if shared is None:
            numbers = SharedCounters.in_memory(CELLS, places)
        else:
            numbers = SharedCounters.in_file(shared, self.workers, CELLS, places)
        runs = read_runs(self.runs)
        return create_application(
            runs, admission_control(keys, self.limits, numbers, worker), self._release_service(runs)
        )

    def _release_service(self, runs: tuple[ServedRun, ...]) -> "ReleaseService | None":
        if self.release_budget is None:
            return None
        if len(runs) != 1:
            raise ConfigError(
                "--allow-releases needs exactly one run. Serve the others with their own servers."
            )
        if self.keys is None:
            raise ConfigError(
                "--allow-releases needs API keys, because each caller is charged for its own requests. Make "
                "one with `graphveil keys FILE --releases` and pass --keys FILE."
            )
        from graphveil.serve.releases.release_service import ReleaseService

        return ReleaseService(self.runs[0], runs[0], self.release_budget, self.limits.releases)


def admission_control(
    keys: Keys | None, limits: Limits, numbers: SharedCounters, worker: int = 0
) -> AdmissionControl:
    """Return the keys, limits and counters of a worker."""
    rate_limiter = None if limits.rate is None else RateLimiter(limits.rate, limits.burst, numbers)
    return AdmissionControl(
        keys=keys, limits=limits, counters=Counters(numbers.counts, worker), rate_limiter=rate_limiter
    )


def create_application(
    runs: tuple[ServedRun, ...], admission: AdmissionControl, release_service: "ReleaseService | None" = None
) -> "FastAPI":
    """Return an application.

    Raises:
        MissingDependencyError: the extra ``serve`` is not installed.
    """
    try:
        from graphveil.serve.app import application
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    return application(runs, admission, release_service)


def missing_extra(error: ModuleNotFoundError) -> Exception:
    """Return which extra is missing; a missing module of graphveil is raised as it is."""
    if (error.name or "").startswith("graphveil"):
        return error
    return MissingDependencyError(
        "The server needs FastAPI and uvicorn. Install them with `pip install 'graphveil[serve]'`."
    )
