"""The application on a socket: uvicorn and its workers, until a signal.

uvicorn parses HTTP, replaces killed workers and stops in order. What it lacks is added here: deadlines for
clients that do not send a request or do not read an answer. See ``docs/decisions/096-http-server.md``.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from functools import cached_property, partial
from multiprocessing import parent_process
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState
from uvicorn.supervisors import Multiprocess

from graphveil.errors import ConfigError, GraphveilError
from graphveil.serve.access import Limits
from graphveil.serve.app import LOG, SHARED_FOLDER, forget_dead_workers
from graphveil.serve.schemas import RequestError

_BACKLOG = 256
_WORKER_START_SECONDS = 30  # a worker that does not answer its supervisor for so long is replaced


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a bound server socket; connections wait there until a worker accepts them."""
    if not host:
        raise ConfigError(
            "--host is empty. Set it to an address such as 127.0.0.1, or to 0.0.0.0 for all "
            "addresses of this machine."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a host name"
        raise ConfigError(
            f"Cannot listen on {host}, port {port} ({why}). Choose another --host or --port."
        ) from None
    # Named as TCP: asyncio sends small packets at once only on sockets that say so, and else every answer
    # would wait 40 ms for the acknowledgement of its head.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, fileno=listener.detach())


def server_config(app: Any, limits: Limits, *, workers: int = 1, factory: bool = False) -> uvicorn.Config:
    # JSON lines on standard error: of the server, and only the class of errors of other parts.
    output = {"handlers": ["stderr"], "propagate": False}
    log_config: dict[str, Any] = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonLogFormatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {
            LOG.name: {**output, "level": "INFO"},
            "uvicorn.error": {**output, "level": "WARNING"},
            "asyncio": {**output, "level": "ERROR"},
        },
    }
    return uvicorn.Config(
        app,
        factory=factory,
        workers=workers,
        http=cast(Any, ConnectionLimits(limits.connections, limits.head_seconds).open),
        ws="none",
        lifespan="off",
        log_config=log_config,
        access_log=False,  # it would quote whole addresses
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=max(1, round(limits.head_seconds)),
        timeout_graceful_shutdown=max(1, round(limits.grace_seconds)),
        timeout_worker_healthcheck=_WORKER_START_SECONDS,
    )


class _Connection(H11Protocol):
    """A connection whose answer to what is not HTTP is an error like all others."""

    def send_400_response(self, msg: str) -> None:
        error = RequestError("malformed_request")
        headers = [("Content-Type", "application/json"), *error.headers.items()]
        for event in (
            h11.Response(status_code=error.status, headers=headers, reason=b"Bad Request"),
            h11.Data(data=error.body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class ConnectionLimits:
    """Opens connections of uvicorn, and closes those whose clients keep others out.

    uvicorn waits without end for the head of a request and for a client that does not read an answer, and its
    own limit of connections would reject all clients while some are silent.

    Args:
        most: Maximum number of connections of a worker. For one more, the oldest that waits for its client is
            closed.
        seconds: Seconds between two checks of a connection. It is closed if it has waited for its client
            since the last check: for the head of a request, or to read an answer.
    """

    def __init__(self, most: int, seconds: float) -> None:
        """Keep the limits; workers get a copy before any connection is open."""
        self._most, self._seconds = most, seconds

    @cached_property
    def _opened(self) -> "WeakKeyDictionary[H11Protocol, None]":
        return WeakKeyDictionary()

    def open(self, *, server_state: ServerState, **given: Any) -> H11Protocol:
        alive = [one for one in list(self._opened) if one.transport is None or not one.transport.is_closing()]
        excess = max(0, len(alive) + 1 - self._most)
        # Those without a request first: clients that send bodies are not closed in favor of silent ones.
        # In a burst, the last ones have no transport yet, and are closed for the next connection instead.
        silent = [one for one in alive if _waits_for_client(one)]
        for one in silent[:excess]:
            one.transport.abort()
        if excess and not silent and all(one.transport is not None for one in alive):
            for one in [one for one in alive if _waits_for_client(one, body=True)][:1]:
                one.transport.abort()
        connection = _Connection(server_state=server_state, **given)
        self._opened[connection] = None
        self._check_later(ref(connection), None)
        return connection

    def _check_later(
        self, connection: "ref[H11Protocol]", request: "ref[RequestResponseCycle] | None"
    ) -> None:
        # By reference: what is closed before does not stay in memory until then.
        asyncio.get_running_loop().call_later(self._seconds, self._check, connection, request)

    def _check(self, reference: "ref[H11Protocol]", before: "ref[RequestResponseCycle] | None") -> None:
        connection = reference()
        if connection is None or connection.transport.is_closing():
            return
        request = cast("RequestResponseCycle | None", connection.cycle)
        if _waits_for_client(connection) and request is (None if before is None else before()):
            connection.transport.abort()
        else:
            self._check_later(reference, None if request is None else ref(request))


def _waits_for_client(connection: H11Protocol, *, body: bool = False) -> bool:
    """Whether the client has to send a request, or to read an answer, or (``body``) to send the body.

    Bodies have a separate deadline, which answers 408.
    """
    transport = cast("asyncio.Transport | None", connection.transport)
    if transport is None or transport.is_closing():
        return False
    request = cast("RequestResponseCycle | None", connection.cycle)
    idle = request is None or request.response_complete or (body and request.more_body)
    return idle or transport.get_write_buffer_size() > 0


def run_server(app: FastAPI, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    server = uvicorn.Server(server_config(app, app.state.admission.limits))
    # Set before the address is shown. uvicorn raises its signals again at the end, which these receive, so
    # that the exit code is 0.
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, server.handle_exit)
    on_ready()
    server.run(sockets=[listener])


def run_workers(
    make_app: Callable[[Path], FastAPI],
    limits: Limits,
    workers: int,
    listener: socket.socket,
    on_ready: Callable[[], None],
) -> None:
    """Answer with several workers until a signal.

    They are spawned, not forked, because a forked copy of a process with threads may block. Clients of a
    killed worker send their requests again: requests that wait on the socket go to other workers, and charges
    are in the ledger.
    """
    with TemporaryDirectory(prefix="graphveil-serve-") as folder:
        os.environ[SHARED_FOLDER] = folder  # read by workers when they import prometheus_client
        app = partial(_worker_app, make_app)
        config = server_config(app, limits, workers=workers, factory=True)
        supervisor = Multiprocess(config, sockets=[listener])  # handles signals from here on
        on_ready()
        try:
            supervisor.run()
        finally:
            del os.environ[SHARED_FOLDER]
    if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        raise GraphveilError(
            "A worker process exited during startup. See the log for the class of its error."
        )


def _worker_app(make_app: Callable[[Path], FastAPI]) -> FastAPI:
    """Return the application of one worker. An error stops the supervisor, which would start others."""

    def stop_with_parent() -> None:
        """Finish the requests and exit if the supervisor is killed; else workers would keep the port."""
        if (parent := parent_process()) is not None:
            wait([parent.sentinel])
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    folder = Path(os.environ[SHARED_FOLDER])
    try:
        forget_dead_workers(folder)
        return make_app(folder)
    except Exception as error:
        LOG.info(json.dumps({"worker": os.getpid(), "fault": type(error).__name__}))
        raise SystemExit(STARTUP_FAILURE) from None


def log_startup(listener: socket.socket, host: str, workers: int) -> None:
    port = listener.getsockname()[1]
    page = f"http://{f'[{host}]' if ':' in host else host}:{port}/docs"
    LOG.info(json.dumps({"listening": host, "port": port, "workers": workers, "page": page}))


class JsonLogFormatter(logging.Formatter):
    """Formats log lines of the server unchanged, and no text of other parts, which may quote data."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == LOG.name:
            return record.getMessage()
        fault = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else record.levelname
        return json.dumps({"part": record.name, "fault": fault})
