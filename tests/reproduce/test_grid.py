"""A grid: each cell once, stopped anywhere and resumed to the same bytes; refusals are findings."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import graphveil
from graphveil.errors import ConfigError
from graphveil.lab.papers.grid import ReproductionGrid
from graphveil.lab.papers.measures import Measurement
from graphveil.lab.papers.outputs import Results
from graphveil.lab.papers.target import ReproductionCell, cells_of, code_digest, digest_of
from tests.reproduce.small import SMALL, grid_in


class StoppedError(Exception):
    """What a watch raises to stop a grid."""


class StopAfter:
    """Lets some cells finish, and counts them."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.before, self.made = most, 0, 0

    def begin(self, cells: Sequence[ReproductionCell], done: Mapping[str, Measurement]) -> None:
        self.before = len(done)

    def done(self, cell: ReproductionCell, found: Measurement, seconds: float) -> None:
        self.made += 1
        if self.made == self.most:
            raise StoppedError


def written(grid: ReproductionGrid) -> dict[str, bytes]:
    """Run a grid, write its results, and return all bytes but those of its inner folder."""
    Results(grid.target, grid.run_options, grid.run()).write(grid.folder.root)
    return contents(grid.folder.root)


def contents(root: Path) -> dict[str, bytes]:
    files = {path.relative_to(root): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if name.parts[0] != "internal"}


def test_a_stopped_grid_is_finished_to_the_same_bytes(tmp_path: Path) -> None:
    whole = written(grid_in(tmp_path / "whole"))
    assert {"results.csv", "table.md", "table.tex", "verdict.json"} < set(whole)
    assert {"synthetic-tiny.svg", "synthetic-tiny.pdf"} < set(whole)
    watch = StopAfter(4)
    with pytest.raises(StoppedError):
        grid_in(tmp_path / "stopped").run(watch)
    assert len(list((tmp_path / "stopped" / "cells").iterdir())) == 4
    again = StopAfter()
    grid_in(tmp_path / "stopped").run(again)
    assert (again.before, again.made) == (4, 6)
    assert written(grid_in(tmp_path / "stopped")) == whole


def test_a_damaged_cell_is_made_again_and_more_runs_keep_the_first(tmp_path: Path) -> None:
    first = written(grid_in(tmp_path / "a", runs=1))
    victim = next(path for path in (tmp_path / "a" / "cells").iterdir())
    victim.write_bytes(victim.read_bytes()[:-9])
    watch = StopAfter()
    grid_in(tmp_path / "a", runs=2).run(watch)
    assert (watch.before, watch.made) == (4, 6)
    assert victim.read_bytes() == first[f"cells/{victim.name}"]


def test_two_targets_share_finished_cells(tmp_path: Path) -> None:
    shared, watch = tmp_path / "cells", StopAfter()
    for name in ("one", "two"):
        grid = grid_in(tmp_path / name, runs=1)
        watch = StopAfter()
        ReproductionGrid(**{**vars(grid), "cells": shared}).run(watch)
    assert (watch.before, watch.made) == (5, 0)


def test_cells_that_other_code_made_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_in(tmp_path, runs=1)
    first = {name for name in written(grid) if name.startswith("cells/")}
    monkeypatch.setattr("graphveil.lab.papers.target.code_digest", lambda: "other code")
    watch = StopAfter()
    grid.run(watch)
    assert (watch.before, watch.made) == (0, 5)
    assert not first & {f"cells/{cell.work.name}.json" for cell in cells_of(SMALL, grid.run_options)}


def test_the_digest_of_code_is_of_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    path = tmp_path / "part" / "one.py"
    path.write_text("x = 1\n", encoding="utf-8")
    found = [digest_of(tmp_path)]
    path.write_text("x = 2\n", encoding="utf-8")
    found.append(digest_of(tmp_path))
    path.rename(path.with_name("two.py"))
    found.append(digest_of(tmp_path))
    (tmp_path / "part" / "compiled.pyc").write_bytes(b"not read")
    assert digest_of(tmp_path) == found[-1] and len(set(found)) == 3
    assert code_digest() == digest_of(Path(graphveil.__file__).parent) and len(code_digest()) == 10


def test_what_strict_mode_refuses_is_a_cell_with_its_reason(tmp_path: Path) -> None:
    grid = grid_in(tmp_path, "strict", runs=1)
    results = Results(SMALL, grid.run_options, grid.run())
    (why,) = results.refusals
    assert "paper mode only" in why and results.refusals[why] == ["SAGE-NDP"]
    verdicts = {point.place[2]: point.verdict(100) for point in results.points}
    assert verdicts["SAGE-NDP"] == "refused"
    endless = {point["line"]: point["ours"] for point in results.verdict()["points"] if point["x"] == "inf"}
    assert endless["budget of any size"] > 0 and json.dumps(results.verdict(), allow_nan=False)
    assert f",{why}" in results.csv().replace('"', "")
    costs = [found.cost for cell, found in results.runs if cell.line == "GAP"]
    assert all(cost and cost["valid"] and cost["unit"] == "undirected-edge" for cost in costs)


def test_a_folder_of_another_grid_is_refused(tmp_path: Path) -> None:
    grid_in(tmp_path, runs=1).run()
    with pytest.raises(ConfigError, match="mode"):
        grid_in(tmp_path, "strict", runs=1).run()


@pytest.mark.slow
def test_killed_with_its_workers_and_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    def command(out: str, jobs: int) -> list[str]:
        flags = ["--datasets", "synthetic/tiny", "--runs", "2", "--jobs", str(jobs), "--out", out]
        return [sys.executable, "-m", "graphveil", "reproduce", "gap:figure8", *flags]

    killed = tmp_path / "killed"
    process = subprocess.Popen(command(str(killed), 2), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while len(list((killed / "cells").glob("*.json"))) < 5:
        time.sleep(0.05)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (killed / "results.csv").exists()
    for out, jobs in ((killed, 1), (tmp_path / "whole", 2)):
        subprocess.run(command(str(out), jobs), check=True, capture_output=True)
    assert contents(killed) == contents(tmp_path / "whole")
