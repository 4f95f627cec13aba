"""Running a grid: each cell once, whole or not at all, several side by side; a killed grid goes on."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from graphveil._util.files import make_folder
from graphveil.errors import ArtifactError
from graphveil.lab.papers.measures import Measurement, MeasurementPaths, measure
from graphveil.lab.papers.target import (
    ReproductionCell,
    ReproductionOptions,
    ReproductionTarget,
    Work,
    cells_of,
)
from graphveil.runs.grid import CELLS, Answer, open_grid, run_tasks
from graphveil.runs.run_folder import RunFolder, read_checked, write_checked

SECONDS = "seconds"


class ProgressListener(Protocol):
    """What is told of a grid under way."""

    def begin(self, cells: Sequence[ReproductionCell], done: Mapping[str, Measurement]) -> None:
        """Take all cells, and what was found before, by the name of its work."""

    def done(self, cell: ReproductionCell, found: Measurement, seconds: float) -> None:
        """Take a cell that is done."""


class SilentListener:
    """Nobody looks on."""

    def begin(self, cells: Sequence[ReproductionCell], done: Mapping[str, Measurement]) -> None:
        """Do nothing."""

    def done(self, cell: ReproductionCell, found: Measurement, seconds: float) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class ReproductionGrid:
    """A target under way in a folder.

    ``cells/`` has a file a cell, which several targets may share; ``internal/`` the work under way.

    Args:
        target: what is run.
        run_options: how.
        folder: where.
        root: the folder of the data sets; None for the default.
        jobs: how many cells at a time.
        cells: another folder of finished cells; None for the grid's own.
    """

    target: ReproductionTarget
    run_options: ReproductionOptions
    folder: RunFolder
    root: Path | None = None
    jobs: int = 1
    cells: Path | None = None

    @property
    def store(self) -> Path:
        """Where finished cells lie."""
        return self.cells or self.folder.root / CELLS

    def configuration(self) -> dict[str, object]:
        """Return what a resumed call has in common with the first: more runs or data sets may be asked."""
        return {"reproduce": self.target.name, "mode": self.run_options.mode, "seed": self.run_options.seed}

    def run(
        self, listener: ProgressListener | None = None
    ) -> tuple[tuple[ReproductionCell, Measurement], ...]:
        """Run what is not there yet, and return everything.

        Raises:
            ConfigError: the folder belongs to something else, or to another process.
            RunError: a cell failed; what is finished is kept.
        """
        begun = self.folder.lock.is_file()
        self.folder.check(self.configuration(), resume=begun)
        with open_grid(self.folder, self.configuration(), resume=begun):
            return self._run(listener or SilentListener())

    def _run(self, listener: ProgressListener) -> tuple[tuple[ReproductionCell, Measurement], ...]:
        cells = cells_of(self.target, self.run_options)
        found = dict(self._finished_cells(cells))
        listener.begin(cells, found)
        missing = {cell.work.name: cell for cell in cells if cell.work.name not in found}
        works = [cell.work for cell in missing.values()]
        run = partial(_measure_timed, paths=self._measurement_paths())
        for work, (result, seconds) in run_tasks(works, run, jobs=self.jobs):
            write_checked(self.store / f"{work.name}.json", result.as_dict())
            self._discard_partial_work(work)
            self._log_seconds(work, seconds)
            found[work.name] = result
            listener.done(missing[work.name], result, seconds)
        return tuple((cell, found[cell.work.name]) for cell in cells)

    def _finished_cells(self, cells: Sequence[ReproductionCell]) -> Iterator[tuple[str, Measurement]]:
        """Yield what finished cells found; a damaged file is as good as none."""
        for name in {cell.work.name for cell in cells}:
            path = self.store / f"{name}.json"
            if path.is_file():
                try:
                    yield name, Measurement.from_dict(read_checked(path))
                except (ArtifactError, TypeError, KeyError):
                    path.unlink()

    def _measurement_paths(self) -> "MeasurementPaths":
        return MeasurementPaths(
            root=self.root, work=self.folder.work / CELLS, cache=self.folder.work / "public"
        )

    def _discard_partial_work(self, work: Work) -> None:
        """Drop what a killed cell would have gone on from."""
        shutil.rmtree(self.folder.work / CELLS / work.name, ignore_errors=True)

    def _log_seconds(self, work: Work, seconds: float) -> None:
        """Note how long a cell took: beside the results, which have the same bytes whenever they are made."""
        path = self.folder.internal / f"{SECONDS}.csv"
        with os.fdopen(
            os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a", encoding="utf-8"
        ) as file:
            file.write(f"{work.name},{seconds:.2f}\n")


def _measure_timed(work: Work, _: Answer, *, paths: MeasurementPaths) -> tuple[Measurement, float]:
    """Measure a cell in a folder of its own, and its processor time."""
    assert paths.work is not None and paths.cache is not None
    own, began = paths.work / work.name, time.process_time()
    make_folder(paths.cache, private=True)
    if work.parameters.get("mode") == "paper":  # the same bytes when done again; nothing to go on from
        own_places = MeasurementPaths(root=paths.root, cache=paths.cache)
    else:
        make_folder(own, private=True)
        own_places = MeasurementPaths(root=paths.root, work=own, cache=paths.cache)
    return measure(work, own_places), time.process_time() - began
