"""Tasks for workers."""

import os
import signal
import time
from pathlib import Path

from graphveil.errors import ConfigError
from graphveil.runs.grid import OnProgress, run_tasks


def half(number: int, _: OnProgress) -> float:
    """Return half of a number; 13 and 14 are not allowed, and 99 kills the worker."""
    if number == 13:
        raise ValueError(number)
    if number == 14:
        raise ConfigError("14 is not allowed")
    if number == 99:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


def shown(number: int, show: OnProgress) -> None:
    """Show a number as progress."""
    show("half", number, 2 * number)


def endless(folder: Path, _: OnProgress) -> None:
    """Say that the task began, and never end, but for the folder ``short``."""
    (folder / str(os.getpid())).touch()
    while folder.name != "short":
        time.sleep(0.01)


def run_endless(folder: str) -> None:
    """Run endless tasks in two workers."""
    list(run_tasks([Path(folder)] * 2, endless, jobs=2))
