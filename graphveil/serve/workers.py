"""Several processes on one socket: a worker that exits is replaced, and all of them stop together."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from graphveil.errors import GraphveilError
from graphveil.serve.middleware import LOG
from graphveil.serve.server import configure_logging, run_server
from graphveil.serve.service import Service

_TRIES = 3  # of workers in a row that ended before they answered
_PATIENCE = 5.0  # seconds beyond the grace, before a worker is killed


def supervise(service: Service, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Answer on a socket with several workers until a signal.

    They are spawned, not forked, because a forked copy of a process with threads may block. Clients of a
    killed worker send their requests again: requests that wait on the socket go to other workers, and charges
    are in the ledger.

    Raises:
        GraphveilError: workers exit as soon as they start.
    """
    with TemporaryDirectory(prefix="graphveil-serve-") as folder:
        workers = _WorkerProcesses(service, listener, Path(folder) / "shared")
        with _signals() as stopping:
            try:
                on_ready()
                workers.start()
                while not stopping.requested and not workers.failed:
                    wait([*workers.sentinels, stopping.fileno])
                    if not stopping.requested:
                        workers.replace()
            finally:
                workers.stop()
        if workers.failed:
            raise GraphveilError("A worker exits as soon as it starts. The log has the class of its error.")


class _WorkerProcesses:
    """The workers, by number."""

    def __init__(self, service: Service, listener: socket.socket, shared: Path) -> None:
        self._service, self._listener, self._shared = service, listener, shared
        self._context = get_context("spawn")
        self._reader, self._writer = self._context.Pipe(duplex=False)  # its end is the workers' end
        self._running: dict[int, tuple[SpawnProcess, Connection]] = {}
        self._early = 0

    def start(self) -> None:
        for number in range(self._service.workers):
            self._spawn(number)

    def _spawn(self, number: int) -> None:
        ready_receiver, ready_sender = self._context.Pipe(duplex=False)
        given = (self._service, self._listener, self._reader, ready_sender, self._shared, number)
        process = self._context.Process(target=_work, args=given)
        process.start()
        ready_sender.close()
        self._running[number] = process, ready_receiver

    @property
    def sentinels(self) -> list[int]:
        return [process.sentinel for process, _ in self._running.values()]

    @property
    def failed(self) -> bool:
        return self._early >= _TRIES

    def replace(self) -> None:
        """Replace each worker that exited, unless workers exit as soon as they start."""
        for number, (process, ready_receiver) in list(self._running.items()):
            if process.is_alive():
                continue
            LOG.info(json.dumps({"worker": number, "ended": process.exitcode}))
            failed = not _was_ready(ready_receiver) and process.exitcode != -signal.SIGKILL
            self._early = self._early + 1 if failed else 0
            if self.failed:
                return
            self._spawn(number)

    def stop(self) -> None:
        """Stop all workers, and kill those that do not exit in time."""
        until = time.monotonic() + self._service.limits.grace_seconds + _PATIENCE
        for process, _ in self._running.values():
            process.terminate()
        for process, _ in self._running.values():
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._writer.close()


def _was_ready(ready_receiver: Connection) -> bool:
    """Whether a worker that exited had reported that it answers."""
    with ready_receiver:
        try:
            return ready_receiver.poll() and bool(ready_receiver.recv_bytes())
        except EOFError:
            return False


def _work(
    service: Service,
    listener: socket.socket,
    parent: Connection,
    ready_sender: Connection,
    shared: Path,
    number: int,
) -> None:
    """Run one worker, and report once it answers."""
    ready = threading.Event()
    threading.Thread(target=_end_with_parent, args=(parent, ready), daemon=True).start()
    configure_logging()
    try:
        app = service.app(shared, number)
    except Exception as error:
        LOG.info(json.dumps({"worker": number, "fault": type(error).__name__}))
        raise SystemExit(1) from None

    def started() -> None:
        ready.set()
        ready_sender.send_bytes(b"!")

    run_server(app, listener, parent.fileno(), on_ready=started)


def _end_with_parent(parent: Connection, ready: threading.Event) -> None:
    """Exit if the parent is killed while this worker starts: otherwise it would keep the port.

    A worker that answers watches the parent itself, and finishes its requests.
    """
    wait([parent])
    if not ready.is_set():
        os._exit(1)


class _StopRequest:
    """Whether a signal has arrived, and a file that can be read from then on."""

    def __init__(self, fileno: int) -> None:
        self.requested, self.fileno = False, fileno


@contextmanager
def _signals() -> Iterator[_StopRequest]:
    """Note SIGTERM and SIGINT."""
    reading, writing = os.pipe()
    found = _StopRequest(reading)

    def request_stop(*_: object) -> None:
        found.requested = True
        os.write(writing, b"!")

    before = {one: signal.signal(one, request_stop) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield found
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        os.close(reading)
        os.close(writing)
