"""Run a grid: each cell once, several in parallel; an interrupted grid can be resumed."""

import os
import shutil
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from graphveil._util.files import make_folder
from graphveil.errors import ArtifactError
from graphveil.papers.as_published.measures import Measurement, MeasurementPaths, measure
from graphveil.papers.as_published.published import SUFFIX
from graphveil.papers.as_published.target import (
    ReproductionCell,
    ReproductionOptions,
    ReproductionTarget,
    Work,
    cells_of,
)
from graphveil.runs.grid import CELLS, OnProgress, open_grid, run_tasks
from graphveil.runs.run_folder import RunFolder, read_checked, write_checked


@dataclass(frozen=True, kw_only=True)
class ReproductionGrid:
    """A target that runs in a folder.

    ``cells/`` has one file per cell, which several targets may share; ``internal/`` the unfinished work.

    Args:
        cells: Another folder of finished cells; None for the grid's own.
    """

    target: ReproductionTarget
    run_options: ReproductionOptions
    folder: RunFolder
    root: Path | None = None
    jobs: int = 1
    cells: Path | None = None

    def run(
        self, on_progress: OnProgress = lambda stage, done, total: None
    ) -> tuple[tuple[ReproductionCell, Measurement], ...]:
        """Run the missing cells; ``on_progress`` receives the number of finished cells."""
        begun, mode, seed = self.folder.lock.is_file(), self.run_options.mode, self.run_options.seed
        # A resumed call may have more runs or data sets than the first one, so these are not compared.
        configuration = {"reproduce": self.target.name, "mode": mode, "seed": seed}
        self.folder.check(configuration, resume=begun)
        store, work_folder = self.cells or self.folder.root / CELLS, self.folder.work / CELLS
        paths = MeasurementPaths(root=self.root, work=work_folder, cache=self.folder.work / "public")
        with open_grid(self.folder, configuration, resume=begun):
            cells, found = cells_of(self.target, self.run_options), dict[str, Measurement]()
            for path in (store / f"{name}.json" for name in {cell.work.name for cell in cells}):
                if path.is_file():
                    try:
                        found[path.stem] = Measurement.from_dict(read_checked(path))
                    except (ArtifactError, TypeError, KeyError):
                        path.unlink()  # it is damaged, and its cell is run again
            every = {cell.work.name: cell.work for cell in cells}
            works = [work for name, work in every.items() if name not in found]
            on_progress("cells", len(found), len(every))
            run = partial(_measure_timed, paths=paths)
            for work, (result, seconds) in run_tasks(works, run, jobs=self.jobs):
                write_checked(store / f"{work.name}.json", result.as_dict())
                shutil.rmtree(work_folder / work.name, ignore_errors=True)  # what only a killed cell needs
                # Times are stored separately, so that results are bit-identical in every run.
                flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
                log = os.open(self.folder.internal / "seconds.csv", flags, 0o600)
                with os.fdopen(log, "a", encoding="utf-8") as file:
                    file.write(f"{work.name},{seconds:.2f}\n")
                found[work.name] = result
                on_progress("cells", len(found), len(every))
            return tuple((cell, found[cell.work.name]) for cell in cells)


def _measure_timed(work: Work, _: OnProgress, *, paths: MeasurementPaths) -> tuple[Measurement, float]:
    assert paths.work is not None and paths.cache is not None
    own, began = paths.work / work.name, time.process_time()
    make_folder(paths.cache, private=True)
    if work.method.endswith(SUFFIX):  # the same bytes when done again, so nothing is kept
        own_paths = replace(paths, work=None)
    else:
        make_folder(own, private=True)
        own_paths = replace(paths, work=own)
    return measure(work, own_paths), time.process_time() - began
