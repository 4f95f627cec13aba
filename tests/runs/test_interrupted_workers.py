"""Ctrl-C while workers start: they never receive it, and the first process ends them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_SCRIPT = """
import sys, time
from pathlib import Path
from graphveil.runs.grid import run_tasks

def work(task, send):
    return task

if __name__ == "__main__":
    try:
        list(run_tasks([1, 2], work, jobs=2))
    except KeyboardInterrupt:
        sys.exit(130)
else:  # a worker, which takes long to import its modules
    Path(f"started-{time.monotonic_ns()}").touch()
    time.sleep(3)
"""


def test_workers_that_still_import_print_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to the whole group
    )
    until = time.monotonic() + 120
    while len(list(tmp_path.glob("started-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == 130 and printed == ""
