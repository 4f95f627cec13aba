"""A grid runs each cell once, and an interrupted one resumes to the same bytes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import graphveil
from graphveil.errors import ConfigError
from graphveil.papers.as_published.grid import ReproductionGrid
from graphveil.papers.as_published.outputs import Results
from graphveil.papers.as_published.target import cells_of, code_digest, digest_of
from tests.reproduce.small import SMALL, grid_in

PACKAGE = Path(graphveil.__file__).parent


class StoppedError(Exception):
    """Interruption of a grid."""


class StopAfter:
    """Counts finished cells, and stops the grid after some."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.before, self.made = most, -1, 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self.before < 0:
            self.before = done
        self.made = done - self.before
        if self.made == self.most:
            raise StoppedError


def written(grid: ReproductionGrid) -> dict[str, bytes]:
    """Run a grid, write its results, and return all bytes but those of its inner folder."""
    Results(grid.target, grid.run_options, grid.run()).write(grid.folder.root)
    return contents(grid.folder.root)


def contents(root: Path) -> dict[str, bytes]:
    files = {path.relative_to(root): path for path in sorted(root.rglob("*")) if path.is_file()}
    return {str(name): path.read_bytes() for name, path in files.items() if name.parts[0] != "internal"}


def test_stopped_grid_resumes_to_the_same_bytes(tmp_path: Path) -> None:
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


def test_damaged_cell_is_run_again_and_finished_cells_are_kept(tmp_path: Path) -> None:
    first = written(grid_in(tmp_path / "a", runs=1))
    victim = next(path for path in (tmp_path / "a" / "cells").iterdir())
    victim.write_bytes(victim.read_bytes()[:-9])
    watch = StopAfter()
    grid_in(tmp_path / "a", runs=2).run(watch)
    assert (watch.before, watch.made) == (4, 6)
    assert victim.read_bytes() == first[f"cells/{victim.name}"]


def test_grids_share_finished_cells(tmp_path: Path) -> None:
    shared, watch = tmp_path / "cells", StopAfter()
    for name in ("one", "two"):
        grid = grid_in(tmp_path / name, runs=1)
        watch = StopAfter()
        ReproductionGrid(**{**vars(grid), "cells": shared}).run(watch)
    assert (watch.before, watch.made) == (5, 0)


def test_cells_are_named_by_the_code_of_the_package(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "graphveil")
    with (tmp_path / "graphveil" / "errors.py").open("a", encoding="utf-8") as file:
        file.write("\n# other code\n")
    work = cells_of(SMALL, grid_in(tmp_path).run_options)[0].work
    program = f"from graphveil.papers.as_published.target import Work; print(Work(**{vars(work)!r}).name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    other = done.stdout.decode().strip()
    assert other != work.name and other[:-10] == work.name[:-10]


def test_digest_of_code_is_of_names_and_contents(tmp_path: Path) -> None:
    path, found = tmp_path / "one.py", []
    for text in ("x = 1\n", "x = 2\n"):
        path.write_text(text, encoding="utf-8")
        found.append(digest_of(tmp_path))
    path.rename(path.with_name("two.py"))
    (tmp_path / "compiled.pyc").write_bytes(b"not read")
    assert digest_of(tmp_path) not in found and found[0] != found[1]
    assert code_digest() == digest_of(PACKAGE) and len(code_digest()) == 10


def test_rejected_configuration_is_a_result_with_its_reason(tmp_path: Path) -> None:
    grid = grid_in(tmp_path, "strict", runs=1)
    results = Results(SMALL, grid.run_options, grid.run())
    (why,) = results.rejections
    assert "supports unit 'none' only" in why and results.rejections[why] == ["SAGE-NDP"]
    verdicts = {point.place[2]: point.verdict(100) for point in results.points}
    assert verdicts["SAGE-NDP"] == "rejected"
    endless = {point["line"]: point["ours"] for point in results.verdict()["points"] if point["x"] == "inf"}
    assert endless["budget of any size"] > 0 and json.dumps(results.verdict(), allow_nan=False)
    assert f",{why}" in results.csv().replace('"', "")
    costs = [found.cost for cell, found in results.runs if cell.line == "GAP"]
    assert all(cost and cost["valid"] and cost["unit"] == "undirected-edge" for cost in costs)


def test_rejects_the_folder_of_another_grid(tmp_path: Path) -> None:
    grid_in(tmp_path, runs=1).run()
    with pytest.raises(ConfigError, match="mode"):
        grid_in(tmp_path, "strict", runs=1).run()


@pytest.mark.slow
def test_killed_command_resumes_to_the_same_bytes(tmp_path: Path) -> None:
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
