"""The application on a socket, until a signal."""

import json
import logging
import socket

import uvicorn
from fastapi import FastAPI

from graphveil.serve.gate import LOG
from graphveil.serve.limits import Limits


def listen(app: FastAPI, limits: Limits, host: str, port: int) -> None:
    """Answer at an address; see :func:`graphveil.serve.serve`. Log lines are JSON on standard error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=256) as line:
        _log_lines()
        LOG.info(json.dumps({"listening": host, "port": line.getsockname()[1]}))
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,  # it would quote whole addresses
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, round(limits.grace_seconds)),
            )
        )
        server.run(sockets=[line])


def _log_lines() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOG.handlers, LOG.propagate = [handler], False
    LOG.setLevel(logging.INFO)
