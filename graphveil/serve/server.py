"""The application on a socket, until a signal."""

import asyncio
import json
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from graphveil.errors import ConfigError
from graphveil.serve.connections import Connection
from graphveil.serve.middleware import LOG

_BACKLOG = 256
_FOREIGN = ("uvicorn.error", "asyncio")


def _no_callback() -> None:
    """Do nothing."""


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; connections wait there until a worker answers.

    Raises:
        ConfigError: the address cannot be used, or is empty, which would mean all addresses of the machine.
    """
    if not host:
        raise ConfigError(
            "The host is empty. Set --host to an address, or to 0.0.0.0 for all addresses of this machine."
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


def log_startup(listener: socket.socket, host: str, workers: int) -> None:
    """Begin the log, with a line that has the address and the port."""
    configure_logging()
    LOG.info(json.dumps({"listening": host, "port": listener.getsockname()[1], "workers": workers}))


def run_server(
    app: FastAPI,
    listener: socket.socket,
    parent: int | None = None,
    on_ready: Callable[[], None] = _no_callback,
) -> None:
    """Answer on a socket until a signal, or until the process at the other end of ``parent`` exits."""
    make_server(app, parent, on_ready).run(sockets=[listener])


def make_server(
    app: FastAPI, parent: int | None = None, on_ready: Callable[[], None] = _no_callback
) -> uvicorn.Server:
    """Return a server that can be run, and stopped by ``should_exit``."""
    admission = app.state.admission
    config = uvicorn.Config(
        app,
        http=cast(Any, partial(Connection, admission=admission)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # it would quote whole addresses
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=max(1, round(admission.limits.grace_seconds)),
    )
    return _Server(config, parent, on_ready)


class _Server(uvicorn.Server):
    """A server that exits with its parent: otherwise it would keep the port."""

    def __init__(self, config: uvicorn.Config, parent: int | None, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._parent, self._on_ready = parent, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()
        if self._parent is not None:
            asyncio.get_running_loop().add_reader(self._parent, self._orphaned, self._parent)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT without raising them again, so that the exit code is 0.

        With several workers the supervisor does the same.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _orphaned(self, parent: int) -> None:
        asyncio.get_running_loop().remove_reader(parent)
        self.should_exit = True


def configure_logging() -> None:
    """Write JSON on standard error: lines of the server, and only the class of errors of other parts."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLogFormatter())
    LOG.handlers, LOG.propagate = [handler], False
    LOG.setLevel(logging.INFO)
    for name in _FOREIGN:
        foreign = logging.getLogger(name)
        foreign.handlers, foreign.propagate = [handler], False
        foreign.setLevel(logging.ERROR)


class _JsonLogFormatter(logging.Formatter):
    """Lines of the server as they are, and no text of other parts, which may quote data."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == LOG.name:
            return record.getMessage()
        fault = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else record.levelname
        return json.dumps({"part": record.name, "fault": fault})
