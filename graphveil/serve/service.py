"""A server as plain values: what each of its workers is made of."""

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
    """What is served, to whom, and how much of it at once.

    Args:
        runs: folders.
        keys: file of keys; None where everybody may ask.
        limits: bounds of each worker.
        workers: how many processes answer.
        allowance: what may be spent on fresh releases; None where none are made.
    """

    runs: tuple[Path, ...]
    keys: Path | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = 1
    allowance: Allowance | None = None

    def app(self, shared: Path | None = None, worker: int = 0) -> "FastAPI":
        """Read everything anew, and return the application of one worker.

        Args:
            shared: the file that workers share; None for one that is alone.
            worker: which one it is.

        Raises:
            ConfigError, ArtifactError: what is to be served cannot be.
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
            raise ConfigError("--allow-releases is for one run; serve the others apart")
        if self.keys is None:
            raise ConfigError(
                "--allow-releases needs API keys, because each caller is charged for its own requests; make "
                "one with `graphveil keys FILE --releases` and pass --keys FILE"
            )
        from graphveil.serve.releases.office import Office

        return Office(self.runs[0], runs[0], self.allowance, self.limits.releases)


def door_of(keys: Keys | None, limits: Limits, numbers: Shared, worker: int = 0) -> Door:
    """Return who is let in, and where that is counted."""
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
    """Return which extra is missing; a part of ours that is missing stays what it is."""
    if (error.name or "").startswith("graphveil"):
        return error
    return MissingDependencyError(
        "the server needs FastAPI and uvicorn; install them with `pip install 'graphveil[serve]'`"
    )
