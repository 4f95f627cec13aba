"""Servers on real sockets, in a thread of the test or started by the command, and raw clients."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from graphveil.serve.server import bind_socket, server_config

ANN = {"ids": ["ann"]}  # a body that every server of these tests answers


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """Run a server in a thread; yield its port."""
    with bind_socket("127.0.0.1", 0) as line:
        config = server_config(app, app.state.admission.limits)
        server, port = uvicorn.Server(config), line.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [line]})
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def raw(headers: str, body: str = "", page: str = "/v1/predict", method: str = "POST") -> bytes:
    """Return a request that declares a JSON body."""
    lines = [f"{method} {page} HTTP/1.1", "Host: here", "Content-Type: application/json", headers]
    return ("\r\n".join([*filter(None, lines), "", ""]) + body).encode()


def request(content: object, *headers: str, page: str = "/v1/predict") -> bytes:
    """Return a whole request; text is sent unchanged."""
    body = content if isinstance(content, str) else json.dumps(content)
    return raw("\r\n".join([*headers, f"Content-Length: {len(body.encode())}"]), body, page)


class Client:
    """One connection; ``reads`` bounds what is received before the test reads it."""

    def __init__(self, port: int, reads: int | None = None) -> None:
        self._line, self._received = socket.socket(), b""
        self._line.settimeout(90)
        if reads is not None:
            self._line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, reads)
        self._line.connect(("127.0.0.1", port))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def send(self, text: bytes) -> "Client":
        self._line.sendall(text)
        return self

    def head(self) -> tuple[int, dict[str, str], int]:
        """Read the head of a response: status, headers, and its length."""
        head = self._until(lambda received: b"\r\n\r\n" in received).partition(b"\r\n\r\n")[0]
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(first.split(" ")[1]), headers, len(head) + 4

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Read one response: status, headers, body."""
        status, headers, start = self.head()
        if "content-length" not in headers:  # the server's own 400, which ends with the connection
            while piece := self._line.recv(1 << 16):
                self._received += piece
            body, self._received = self._received[start:], b""
            return status, headers, body
        end = start + int(headers["content-length"])
        self._until(lambda received: len(received) >= end)
        body, self._received = self._received[start:end], self._received[end:]
        return status, headers, body

    def status(self) -> int:
        return self.response()[0]

    def closed(self) -> bool:
        """Whether the server closes the connection without sending anything before."""
        try:
            return self._received + self._line.recv(1 << 16) == b""
        except ConnectionResetError:
            return True

    def _until(self, enough: Callable[[bytes], bool]) -> bytes:
        while not enough(self._received):
            piece = self._line.recv(1 << 16)
            if not piece:
                raise ConnectionError(f"closed after {self._received[:200]!r}")
            self._received += piece
        return self._received


def get(port: int, page: str, header: str = "X: y") -> tuple[int, bytes]:
    """Return status and body of a page."""
    with Client(port) as client:
        status, _, body = client.send(raw(header, page=page, method="GET")).response()
    return status, body


def answers(port: int) -> bool:
    """Whether a good request is answered."""
    with Client(port) as client:
        return client.send(request(ANN)).status() == 200


def under_way(port: int) -> int:
    """Return the number of requests for predictions that the server is answering."""
    (found,) = re.findall(rb"^graphveil_requests_under_way (\d+)\.0$", get(port, "/metrics")[1], re.MULTILINE)
    return int(found)


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for a condition that soon becomes true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@dataclass(eq=False)
class Started:
    """The command in a session of its own, and its log."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    port: int = 0

    def members(self, marker: bytes = b"") -> list[int]:
        """Return the processes of the server, whose command contains the marker."""
        found = []
        for one in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                fields = (one / "stat").read_text().rpartition(")")[2].split()
                alive = int(fields[3]) == self.process.pid and fields[0] != "Z"
                if alive and marker in (one / "cmdline").read_bytes():
                    found.append(int(one.name))
        return found

    def workers(self) -> list[int]:
        """Return the processes that answer, of a server with several."""
        return self.members(b"spawn_main")

    def listens(self) -> bool:
        """Whether the log has the address; then the port is known."""
        found = [json.loads(line) for line in list(self.lines) if '"listening"' in line]
        self.port = found[0]["port"] if found else 0
        return bool(found)

    def read(self) -> None:
        """Read the log to its end: a full pipe would block the server."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)


@contextmanager
def starting(*arguments: object, port: int = 0) -> Iterator[Started]:
    """Start the command; yield it at once."""
    command = [sys.executable, "-m", "graphveil", "serve", *map(str, arguments), "--port", str(port)]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )
    one = Started(process)
    reader = threading.Thread(target=one.read, daemon=True)
    reader.start()
    try:
        yield one
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        reader.join(60)
        if process.stderr is not None:
            process.stderr.close()


@contextmanager
def started(*arguments: object, port: int = 0) -> Iterator[Started]:
    """Start the command; yield it once its log has its address, which it may not answer yet."""
    with starting(*arguments, port=port) as one:
        until(lambda: one.listens() or one.process.poll() is not None, 120)
        assert one.port, one.lines
        yield one
