"""A server as plain values, from which each of its workers is made."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil.errors import ConfigError, MissingDependencyError
from graphveil.serve.access import Keys, Limits, ReleaseBudget
from graphveil.serve.runs import ServedRun, read_runs

if TYPE_CHECKING:
    from fastapi import FastAPI

    from graphveil.serve.pairs import ServedPairs
    from graphveil.serve.releases import ReleaseService


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
    runs: "tuple[ServedRun | ServedPairs, ...]",
    keys: Keys | None,
    limits: Limits,
    release_service: "ReleaseService | None" = None,
    shared: Path | None = None,
) -> "FastAPI":
    """Return an application."""
    try:
        from graphveil.serve.access import RateLimiter
        from graphveil.serve.app import application
        from graphveil.serve.middleware import AdmissionControl
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    rate_limiter = None
    if limits.rate is not None:
        file = None if shared is None else shared / "rates"
        rate_limiter = RateLimiter(limits.rate, limits.burst, keys=max(1, len(keys or ())), file=file)
    admission = AdmissionControl(keys=keys, limits=limits, rate_limiter=rate_limiter)
    return application(runs, admission, release_service)


def missing_extra(error: ModuleNotFoundError) -> Exception:
    """Return an error that names the missing extra, or the error itself for our own modules."""
    if (error.name or "").startswith("graphveil"):
        return error
    return MissingDependencyError(
        "The server needs FastAPI, uvicorn and prometheus_client. Install them with "
        "`pip install 'graphveil[serve]'`."
    )
