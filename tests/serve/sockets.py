"""A server on a real socket, in a thread of the test, and clients that say what they like."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from graphveil.serve.server import bind_socket, server_config


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """Run a server; yield its port."""
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


def request(question: object, *headers: str, page: str = "/v1/predict") -> bytes:
    """Return a whole request; text is sent as it is."""
    body = question.encode() if isinstance(question, str) else json.dumps(question).encode()
    head = [f"POST {page} HTTP/1.1", "Host: here", "Content-Type: application/json", *headers]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


class Client:
    """One connection; ``reads`` bounds what is received before anybody reads it."""

    def __init__(self, port: int, reads: int | None = None) -> None:
        self._line, self._heard = socket.socket(), b""
        self._line.settimeout(90)
        if reads is not None:
            self._line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, reads)
        self._line.connect(("127.0.0.1", port))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()

    def say(self, text: bytes) -> "Client":
        self._line.sendall(text)
        return self

    def response(self) -> tuple[int, dict[str, str], bytes]:
        """Read one response: status, headers, body."""
        head = self._until(lambda heard: b"\r\n\r\n" in heard).partition(b"\r\n\r\n")[0]
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if "content-length" not in headers:  # the server's own 400, which ends with the connection
            while piece := self._line.recv(1 << 16):
                self._heard += piece
            body, self._heard = self._heard[len(head) + 4 :], b""
            return int(first.split(" ")[1]), headers, body
        length = int(headers["content-length"])
        whole = len(head) + 4 + length
        self._heard = self._until(lambda heard: len(heard) >= whole)
        body, self._heard = self._heard[whole - length : whole], self._heard[whole:]
        return int(first.split(" ")[1]), headers, body

    def status(self) -> int:
        return self.response()[0]

    def closed(self) -> bool:
        """Whether the server closes the connection, and says nothing more before."""
        try:
            return self._heard + self._line.recv(1 << 16) == b""
        except ConnectionResetError:
            return True

    def _until(self, enough: Callable[[bytes], bool]) -> bytes:
        while not enough(self._heard):
            piece = self._line.recv(1 << 16)
            if not piece:
                raise ConnectionError(f"closed after {self._heard[:200]!r}")
            self._heard += piece
        return self._heard


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something that is soon to be."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
