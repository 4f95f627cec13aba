"""Tasks side by side in processes of their own, which end with the process that started them.

What only one process may do, such as keeping a ledger or a screen, the first one does: a worker asks it.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from types import FrameType
from typing import Any, Generic, TypeVar

from graphveil.errors import GraphveilError, RunError

# -- signals ----
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: int | None = None


def interrupt_on_termination() -> None:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP as on SIGINT, and remember which signal came.

    A signal that the process ignores, or handles by itself, stays as it is.
    """
    owner = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _received
        if os.getpid() != owner:  # a forked child ends as it would without this handler
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        _received = number
        raise KeyboardInterrupt

    for number in _ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)


def ignore_signals() -> None:
    """Ignore further signals that end a command, once it has ended."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def signal_received() -> bool:
    """Return whether a signal came: a library may have raised another error than KeyboardInterrupt for it."""
    return _received is not None


def signal_exit_code() -> int:
    """Return the exit code of a command that was interrupted: 128 and the number of the signal."""
    return 128 + (signal.SIGINT if _received is None else _received)


# -- workers ----
Task = TypeVar("Task")
Done = TypeVar("Done")
ParentRequest = Callable[[Any], Any]  # a question to the first process, and its answer


def reject_requests(payload: Any) -> Any:
    """Answer tasks that ask nothing."""
    raise RunError(f"a worker asked {payload!r}, and nobody answers")


class Workers(Generic[Task, Done]):
    """Processes that do tasks, one each at a time; with one job, this process does them.

    A process of its own is started anew (spawned), so that no thread and no lock is copied half-way. It gets
    an end of a pipe that nobody else has: when this process is gone, killed or not, the pipe ends, and a
    thread that waits for that ends a worker that is busy.

    Args:
        jobs: how many.
        do: what is done with a task, and with a way to ask this process; it is sent to each worker once.
        answer: what this process answers.
    """

    def __init__(
        self, jobs: int, do: Callable[[Task, ParentRequest], Done], answer: ParentRequest = reject_requests
    ) -> None:
        """Prepare; processes start with the first tasks."""
        self._jobs, self._do, self._answer = jobs, do, answer

    def each(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Done]]:
        """Yield each task with what came of it, as soon as it is done.

        Raises:
            RunError: a worker died, or failed.
        """
        if min(self._jobs, len(tasks)) <= 1:
            yield from ((task, self._do(task, self._answer)) for task in tasks)
            return
        left = list(reversed(tasks))
        busy: dict[Connection, Task] = {}
        processes: list[SpawnProcess] = []
        try:
            for _ in range(min(self._jobs, len(tasks))):
                pipe, process = _started(self._do)
                processes.append(process)
                busy[pipe] = left.pop()
                pipe.send(busy[pipe])
            while busy:
                for end in wait(list(busy)):
                    assert isinstance(end, Connection)
                    is_request, found = _received_from(end)
                    if is_request:
                        end.send(_outcome(self._answer, found))
                        continue
                    task = busy.pop(end)
                    if left:
                        busy[end] = left.pop()
                        end.send(busy[end])
                    yield task, found
        finally:
            for process in processes:
                process.terminate()
                process.join()


def _started(do: Callable[[Any, ParentRequest], Any]) -> tuple[Connection, SpawnProcess]:
    """Return a worker, and our end of the pipe to it."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, do), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _received_from(end: Connection) -> tuple[bool, Any]:
    """Return whether a worker asks, and what it asks or found; or raise what went wrong with it."""
    try:
        is_request, (found, problem) = end.recv()
    except (EOFError, ConnectionError):
        raise RunError(
            "a worker died, of too little memory perhaps, or because a script that starts workers has to do "
            "so under `if __name__ == '__main__':`; mend that, or try again with fewer jobs"
        ) from None
    if problem is not None:
        raise problem
    return is_request, found


def _serve(end: Connection, do: Callable[[Any, ParentRequest], Any]) -> None:
    """Do tasks until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it is over
    Thread(target=_end_with_parent, daemon=True).start()
    request = partial(_request_from_parent, end)
    with suppress(EOFError, ConnectionError):
        while True:
            end.send((False, _outcome(partial(do, end.recv()), request)))


def _request_from_parent(end: Connection, payload: Any) -> Any:
    """Ask the first process, and wait for its answer."""
    end.send((True, (payload, None)))
    found, problem = end.recv()
    if problem is not None:
        raise problem
    return found


def _outcome(call: Callable[[Any], Any], given: Any) -> tuple[Any, GraphveilError | None]:
    """Return what a call returned, or the error that it raised, so that either can be sent."""
    try:
        return call(given), None
    except GraphveilError as error:
        return None, error
    except (EOFError, ConnectionError):
        raise  # the other end of the pipe is gone
    except Exception as error:
        return None, RunError(f"a cell failed: {type(error).__name__}: {error}")


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
