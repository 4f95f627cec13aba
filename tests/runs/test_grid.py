"""Workers of grids: every task once, progress, failures, and that no worker outlives the grid."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from graphveil.errors import ConfigError, RunError
from graphveil.runs.grid import run_tasks
from tests.runs.tasks import endless, half, shown


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_is_run_once_and_its_progress_is_shown(jobs: int) -> None:
    assert sorted(run_tasks([1, 2, 3], half, jobs=jobs)) == [(1, 0.5), (2, 1.0), (3, 1.5)]
    progress: list[tuple[str, int, int]] = []
    list(run_tasks([1, 2, 3], shown, jobs=jobs, on_progress=lambda *one: progress.append(one)))
    assert sorted(progress) == [("half", 1, 2), ("half", 2, 4), ("half", 3, 6)]
    assert not active_children()


def test_what_goes_wrong_in_a_worker_is_raised_here() -> None:
    with pytest.raises(RunError, match="ValueError: 13"):
        list(run_tasks([13, 13], half, jobs=2))
    with pytest.raises(RunError, match="worker process ended unexpectedly"):
        list(run_tasks([99, 99], half, jobs=2))
    with pytest.raises(ConfigError, match="14 is not allowed"):
        list(run_tasks([14, 14], half, jobs=2))
    assert not active_children()


def test_tasks_under_way_are_given_up_with_the_rest(tmp_path: Path) -> None:
    folders = [tmp_path / "short", tmp_path / "long"]
    for folder in folders:
        folder.mkdir()
    results = run_tasks(folders, endless, jobs=2)
    assert next(results) == (folders[0], None)
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert not active_children()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(how: signal.Signals, tmp_path: Path) -> None:
    begun, script = tmp_path / "begun", tmp_path / "script.py"
    begun.mkdir()
    script.write_text(
        "from tests.runs.tasks import run_endless\n"
        f"if __name__ == '__main__':\n    run_endless({str(begun)!r})\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    while len(list(begun.iterdir())) < 2:
        time.sleep(0.02)
        assert process.poll() is None
    if how is signal.SIGKILL:
        os.kill(process.pid, how)
    else:
        os.killpg(process.pid, how)  # as a terminal does on Ctrl-C
    process.wait(timeout=60)
    deadline = time.monotonic() + 60
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.02)
