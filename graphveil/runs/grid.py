"""Grids of cells in a folder: each cell is run once, whole or not at all, several side by side.

``sweep`` and ``reproduce`` are grids. One process at a time works in a grid's folder. A cell leaves its whole
result or none, so an interrupted grid is resumed by running the cells that are missing. Cells run side by
side in worker processes. What only one process may do, such as keeping a ledger or a screen, the first
process does: a worker sends it a request and waits for the answer.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import Synchronized
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from graphveil.errors import GraphveilError, InputError, MissingDependencyError, PrivacyError, RunError

if TYPE_CHECKING:
    from graphveil.runs.run_folder import RunFolder

CELLS = "cells"  # the folder of the cells' results
Task = TypeVar("Task")
Done = TypeVar("Done")
Answer = Callable[[Any], Any]  # a request to the first process, and its answer
RunTask = Callable[[Task, Answer], Done]


@contextmanager
def open_grid(folder: "RunFolder", configuration: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Lock a grid's folder while its cells are run.

    A grid that is rejected before a cell began leaves no folder behind. When all cells are finished, files
    that only an interrupted grid needs are removed.

    Raises:
        ConfigError: The folder belongs to another configuration, or to another process.
    """
    from graphveil.runs.run_folder import forget_data  # not at the top: workers start without torch

    missing = folder.missing
    with folder.locked(configuration, resume=resume):
        try:
            yield
        except (InputError, PrivacyError, MissingDependencyError):
            cells = folder.root / CELLS
            with suppress(OSError):  # it contains cells, or does not exist
                cells.rmdir()
            if not resume and not cells.exists():
                forget_data(folder)
                folder.drop(made=missing)
            raise
        forget_data(folder)
        shutil.rmtree(folder.work, ignore_errors=True)


def reject_requests(request: Any) -> Any:
    """Answer the requests of tasks that have none."""
    raise RunError(f"A worker sent an unknown request {request!r}.")


def run_tasks(
    tasks: Sequence[Task], run: RunTask[Task, Done], *, jobs: int, answer: Answer = reject_requests
) -> Iterator[tuple[Task, Done]]:
    """Run tasks in parallel, and yield each with its result as soon as it is done.

    With one job or one task, this process runs them, in order. Workers end with this process, killed or not,
    and when the iterator is closed: unfinished tasks are then abandoned.

    Args:
        tasks: The tasks. Each is sent to a worker.
        run: Runs one task. It may send requests. It is sent to each worker once, and keeps its state there.
        jobs: The number of workers.
        answer: Answers requests, in this thread, in the order of their arrival.

    Raises:
        RunError: A worker exited, or a task failed.
        GraphveilError: Error raised by a task.
    """
    count = min(jobs, len(tasks))
    if count <= 1:
        yield from ((task, run(task, answer)) for task in tasks)
        return
    context = get_context("spawn")  # a fork would copy locks that threads of this process hold
    ours, theirs = zip(*(context.Pipe() for _ in range(count)), strict=True)
    closed, alive = context.Pipe(duplex=False)  # only this process holds ``alive``
    events: SimpleQueue[Any] = (
        SimpleQueue()
    )  # finished futures, and requests with the pipes that they came from
    reader = Thread(target=_forward_requests, args=(ours, events), daemon=True)
    executor = ProcessPoolExecutor(
        count, context, _start_worker, (run, theirs, context.Value("i", 0), closed)
    )
    try:
        with _without_interrupts():  # workers start here, and never receive one, not even while they import
            futures = {executor.submit(_run_task, task): task for task in tasks}
        for future in futures:
            future.add_done_callback(events.put)
        reader.start()
        left = len(futures)
        while left:
            event = events.get()
            if isinstance(event, Future):
                left -= 1
                yield futures[event], event.result()
            else:
                pipe, request = event
                pipe.send(_outcome(answer, request))
    except BrokenProcessPool:
        raise RunError(
            "A worker process ended unexpectedly, perhaps because memory ran out. In a script, start "
            "workers under `if __name__ == '__main__':`. Otherwise, use fewer jobs."
        ) from None
    finally:
        alive.close()  # workers end now, in the middle of a task as well
        executor.shutdown(cancel_futures=True)
        for pipe in (*theirs, closed):
            pipe.close()
        if reader.is_alive():
            reader.join()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; processes that start in it never receive it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forward_requests(pipes: Sequence[Connection], events: "SimpleQueue[Any]") -> None:
    """Put what workers send into the queue, until the other ends of all pipes are closed."""
    open_pipes = list(pipes)
    while open_pipes:
        for pipe in wait(open_pipes):
            assert isinstance(pipe, Connection)
            try:
                events.put((pipe, pipe.recv()))
            except (EOFError, OSError):  # OSError: closed in the middle of a request
                open_pipes.remove(pipe)
                pipe.close()


def _outcome(answer: Answer, request: Any) -> tuple[Any, GraphveilError | None]:
    """Return an answer, or the error that was raised, so that either can be sent."""
    try:
        return answer(request), None
    except Exception as error:
        return None, _as_ours(error)


def _as_ours(error: Exception) -> GraphveilError:
    if isinstance(error, GraphveilError):
        return error
    return RunError(f"A configuration of the sweep failed: {type(error).__name__}: {error}")


# -- in a worker -------------------------------------------------------------------------------------------

_worker: tuple[RunTask[Any, Any], Connection]  # what a worker runs, and its pipe; set when it starts


def _start_worker(
    run: RunTask[Any, Any], pipes: Sequence[Connection], taken: "Synchronized[int]", closed: Connection
) -> None:
    """Prepare a worker: it takes one of the pipes."""
    global _worker
    Thread(target=_exit_when_closed, args=(closed,), daemon=True).start()
    with taken.get_lock():
        pipe = pipes[taken.value]
        taken.value += 1
    _worker = run, pipe


def _exit_when_closed(closed: Connection) -> None:
    """End this process, even during a task, when the first one exits or closes the pipe."""
    wait([closed])
    os._exit(1)


def _run_task(task: Any) -> Any:
    """Run a task in a worker; its requests go to the first process, and its errors are ours."""
    run, pipe = _worker

    def send_request(request: Any) -> Any:
        pipe.send(request)
        found, problem = pipe.recv()
        if problem is not None:
            raise problem
        return found

    try:
        return run(task, send_request)
    except Exception as error:
        raise _as_ours(error) from error
