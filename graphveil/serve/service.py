"""A server as plain values, from which each of its workers is made."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil.errors import ConfigError, MissingDependencyError
from graphveil.serve.counters import CELLS, Counters
from graphveil.serve.gate import Door
from graphveil.serve.keys import Keys
from graphveil.serve.limits import Allowance, Limits
from graphveil.serve.rates import Rates
from graphveil.serve.runs import ServedRun, read_runs
from graphveil.serve.shared import Shared

if TYPE_CHECKING:
    from fastapi import FastAPI

    from graphveil.serve.releases.office import Office


@dataclass(frozen=True, kw_only=True)
class Service:
    """Settings of a server.

    Args:
        runs: folders.
        keys: file of keys; None for a server without keys.
        limits: bounds of each worker.
        workers: how many processes answer.
        allowance: budget of new releases; None for a server that makes none.
    """

    runs: tuple[Path, ...]
    keys: Path | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    allowance: Allowance | None = None

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
            numbers = Shared.alone(CELLS, places)
        else:
            numbers = Shared.in_file(shared, self.workers, CELLS, places)
        runs = read_runs(self.runs)
        return made(runs, door_of(keys, self.limits, numbers, worker), self._office(runs))

    def _office(self, runs: tuple[ServedRun, ...]) -> "Office | None":
        if self.allowance is None:
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
        from graphveil.serve.releases.office import Office

        return Office(self.runs[0], runs[0], self.allowance, self.limits.releases)


def door_of(keys: Keys | None, limits: Limits, numbers: Shared, worker: int = 0) -> Door:
    """Return the keys, limits and counters of a worker."""
    rates = None if limits.rate is None else Rates(limits.rate, limits.burst, numbers)
    return Door(keys=keys, limits=limits, counters=Counters(numbers.counts, worker), rates=rates)


def made(runs: tuple[ServedRun, ...], door: Door, office: "Office | None" = None) -> "FastAPI":
    """Return an application.

    Raises:
        MissingDependencyError: the extra ``serve`` is not installed.
    """
    try:
        from graphveil.serve.app import application
    except ModuleNotFoundError as error:
        raise missing(error) from None
    return application(runs, door, office)


def missing(error: ModuleNotFoundError) -> Exception:
    """Return which extra is missing; a missing module of graphveil is raised as it is."""
    if (error.name or "").startswith("graphveil"):
        return error
    return MissingDependencyError(
        "The server needs FastAPI and uvicorn. Install them with `pip install 'graphveil[serve]'`."
    )
