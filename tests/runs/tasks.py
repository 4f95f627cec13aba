"""Tasks for workers."""

import os
import signal
import time
from pathlib import Path

from graphveil.runs.grid import Answer, run_tasks


def half(number: int, _: Answer) -> float:
    """Return half of a number; 13 is not allowed, and 99 kills the worker."""
    if number == 13:
        raise ValueError(number)
    if number == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


def answered(number: int, send_request: Answer) -> float:
    """Return what the first process answers."""
    return float(send_request(number))


def endless(folder: Path, _: Answer) -> None:
    """Say that the task began, and never end, but for the folder ``short``."""
    (folder / str(os.getpid())).touch()
    while folder.name != "short":
        time.sleep(0.01)


def run_endless(folder: str) -> None:
    """Run endless tasks in two workers."""
    list(run_tasks([Path(folder)] * 2, endless, jobs=2))
