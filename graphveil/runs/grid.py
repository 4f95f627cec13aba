"""Grids of cells in a folder: each cell is run once, whole or not at all, several side by side.

``sweep`` and ``reproduce`` are grids. One process at a time works in a grid's folder. A cell leaves its whole
result or none, so an interrupted grid is resumed by running the cells that are missing. Cells run side by
side in worker processes, which report only their progress to the first process.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from graphveil.errors import GraphveilError, RunError

if TYPE_CHECKING:
    from graphveil.runs.run_folder import RunFolder

CELLS = "cells"  # the folder of the cells' results
_POLL = 0.1  # seconds between two looks at the progress of workers
Task = TypeVar("Task")
Done = TypeVar("Done")
OnProgress = Callable[[str, int, int], None]
RunTask = Callable[[Task, OnProgress], Done]


@contextmanager
def open_grid(folder: "RunFolder", configuration: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Lock a grid's folder while its cells are run.

    A grid that is rejected before a cell began leaves no folder behind. When all cells are finished, files
    that only an interrupted grid needs are removed.
    """
    from graphveil.runs.run_folder import forget_data  # not at the top: workers start without torch

    cells = folder.root / CELLS

    def begun() -> bool:
        with suppress(OSError):  # it contains cells, or does not exist
            cells.rmdir()
        return cells.exists()

    with folder.opened(configuration, resume=resume, spent=begun):
        yield
        forget_data(folder)
        shutil.rmtree(folder.work, ignore_errors=True)


def run_tasks(
    tasks: Sequence[Task],
    run: RunTask[Task, Done],
    *,
    jobs: int,
    on_progress: OnProgress = lambda stage, done, total: None,
) -> Iterator[tuple[Task, Done]]:
    """Run tasks in parallel, and yield each with its result as soon as it is done.

    With one job or one task, this process runs them, in order. Workers end with this process, killed or not,
    and when the iterator is closed: unfinished tasks are then abandoned.

    Args:
        tasks: The tasks. Each is sent to a worker.
        run: Runs one task, and shows its progress. It is sent to each worker once, and keeps its state there.
        on_progress: Shows the progress of all workers, in this thread.
    """
    count = min(jobs, len(tasks))
    if count <= 1:
        yield from ((task, run(task, on_progress)) for task in tasks)
        return
    context = get_context("spawn")  # a fork would copy locks that threads of this process hold
    closed, alive = context.Pipe(duplex=False)  # only this process holds ``alive``
    progress = context.SimpleQueue()
    executor = ProcessPoolExecutor(count, context, _start_worker, (run, progress.put, closed))
    try:
        with _without_interrupts():  # workers start here, and never receive one, not even while they import
            futures = {executor.submit(_run_task, task): task for task in tasks}
        unfinished = set(futures)
        while unfinished:
            finished, unfinished = wait(unfinished, _POLL, FIRST_COMPLETED)
            while not progress.empty():
                on_progress(*progress.get())
            for future in finished:
                yield futures[future], future.result()
    except BrokenProcessPool:
        raise RunError(
            "A worker process ended unexpectedly, perhaps because memory ran out. In a script, start "
            "workers under `if __name__ == '__main__':`. Otherwise, use fewer jobs."
        ) from None
    finally:
        alive.close()  # workers end now, in the middle of a task as well
        executor.shutdown(cancel_futures=True)
        closed.close()
        progress.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; processes that start in it never receive it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in a worker -------------------------------------------------------------------------------------------

_worker: tuple[RunTask[Any, Any], OnProgress]  # what a worker runs; set when it starts


def _start_worker(
    run: RunTask[Any, Any], send: Callable[[tuple[str, int, int]], None], closed: Connection
) -> None:
    """Prepare a worker: it ends, even during a task, when the first process exits or closes the pipe."""
    global _worker
    Thread(target=lambda: (connection.wait([closed]), os._exit(1)), daemon=True).start()
    _worker = run, lambda *progress: send(progress)


def _run_task(task: Any) -> Any:
    run, show = _worker
    try:
        return run(task, show)
    except GraphveilError:
        raise
    except Exception as error:
        raise RunError(f"A configuration of the sweep failed: {type(error).__name__}: {error}") from error
