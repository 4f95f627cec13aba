"""Cells side by side in processes of their own, which end with the process that started them."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any, Generic, TypeVar

from graphveil.errors import GraphveilError, RunError

Task = TypeVar("Task")
Done = TypeVar("Done")


class Workers(Generic[Task, Done]):
    """Processes that do tasks, one each at a time; with one job, this process does them.

    A process of its own is started anew (spawned), so that no thread and no lock is copied half-way. It gets
    an end of a pipe that nobody else has: when this process is gone, killed or not, the pipe ends, and a
    thread that waits for that ends a worker that is busy.

    Args:
        jobs: how many.
        do: what is done with a task; a function of a module.
    """

    def __init__(self, jobs: int, do: Callable[[Task], Done]) -> None:
        """Prepare; processes start with the first tasks."""
        self._jobs, self._do = jobs, do

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Done]]:
        """Yield each task with what came of it, as soon as it is done.

        Raises:
            RunError: a worker died, or failed.
        """
        if min(self._jobs, len(tasks)) <= 1:
            yield from ((task, self._do(task)) for task in tasks)
            return
        left = list(reversed(tasks))
        busy: dict[Connection, Task] = {}
        ends: list[Connection] = []
        context = get_context("spawn")
        try:
            for _ in range(min(self._jobs, len(tasks))):
                ours, theirs = context.Pipe()
                ends.append(ours)
                context.Process(target=_serve, args=(theirs, self._do), daemon=True).start()
                theirs.close()
                busy[ours] = left.pop()
                ours.send(busy[ours])
            while busy:
                for end in wait(list(busy)):
                    assert isinstance(end, Connection)
                    task = busy.pop(end)
                    done: Done = _received(end)
                    if left:
                        busy[end] = left.pop()
                        end.send(busy[end])
                    yield task, done
        finally:
            for end in ends:
                end.close()  # which ends the workers


def _received(end: Connection) -> Any:
    """Return what a worker found, or raise what went wrong with it."""
    try:
        done, problem = end.recv()
    except (EOFError, ConnectionError):
        raise RunError("a worker died, of too little memory perhaps; try again with fewer --jobs") from None
    if problem is not None:
        raise problem
    return done


def _serve(end: Connection, do: Callable[[Any], Any]) -> None:
    """Do tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it is over
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = end.recv()
        except (EOFError, ConnectionError):  # the latter where an answer was left unread
            return
        answer: tuple[Any, GraphveilError | None]
        try:
            answer = do(task), None
        except GraphveilError as error:
            answer = None, error
        except Exception as error:
            answer = None, RunError(f"a cell failed: {type(error).__name__}: {error}")
        try:
            end.send(answer)
        except BrokenPipeError:
            return


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
