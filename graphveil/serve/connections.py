"""Connections: one request at a time, each with a deadline, and a bound on how many are open."""

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from graphveil.serve import error_responses
from graphveil.serve.counters import OTHER
from graphveil.serve.error_responses import RequestError
from graphveil.serve.middleware import AdmissionControl


class Connection(H11Protocol):
    """One connection as uvicorn keeps it, with bounds on what uvicorn leaves open.

    * The head of a request has a deadline: otherwise a client that sends a byte per minute keeps a connection
      open without end. A client that does not read an answer has a deadline, too.
    * Connections that wait for their client give way to new ones, the longest wait first. So clients that are
      silent or slow, however many they are, cannot keep out a client that sends its request at once.
    * One request at a time. Data that arrive before an answer is sent are not read, and rejected after it.
    * Invalid HTTP is rejected, counted and logged like all other errors.

    Args:
        config, rest: uvicorn's own.
        admission: bounds and counters.
    """

    def __init__(self, config: Config, *rest: Any, admission: AdmissionControl, **more: Any) -> None:
        """Begin without a request."""
        super().__init__(config, *rest, **more)
        self._admission, self._early, self._since = admission, False, 0.0
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection. Above the bound, close the one that has waited longest for its client."""
        super().connection_made(transport)
        self._start_head_timeout()
        if len(self.connections) > self._admission.limits.connections:
            others = [one for one in self._others() if one.is_waiting]
            if others:
                min(others, key=lambda one: one._since).close_if_idle()
            else:
                self._send_error(error_responses.server_busy())

    @property
    def is_waiting(self) -> bool:
        """Whether the client has to send the rest of a request, or to read an answer."""
        idle = self.cycle is None or self.cycle.response_complete
        return idle or self._unread is not None or self.conn.their_state is h11.SEND_BODY

    def close_if_idle(self) -> None:
        """Close a connection that waits for its client."""
        self._cancel_timeouts()
        self.transport.abort()

    def _others(self) -> list["Connection"]:
        return [one for one in self.connections if isinstance(one, Connection) and one is not self]

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines."""
        self._cancel_timeouts()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read, unless the connection is closing."""
        if self.transport.is_closing():
            return
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and self._head is not None:  # the head of a request is there
            self._head.cancel()
            self._head = None
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timeout()
        elif self.conn.their_state is h11.DONE and self.conn.trailing_data[0].strip():
            self._early = True

    def on_response_complete(self) -> None:
        """Continue with the next request, unless it arrived before this answer was sent."""
        if self._early and not self.transport.is_closing():
            self._send_error(error_responses.malformed_request())
        else:
            self._since = self.loop.time()
            super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Reject an invalid request, with the error of this server instead of uvicorn's."""
        self._send_error(error_responses.malformed_request())

    def pause_writing(self) -> None:
        """Set a deadline for a client that does not read, and bound the bytes of all such clients."""
        super().pause_writing()
        self._since = self.loop.time()
        self._unread = self.loop.call_later(self._admission.limits.grace_seconds, self.transport.abort)
        unread = sorted((one for one in self._others() if one._unread), key=lambda one: one._since)
        held = sum(one.transport.get_write_buffer_size() for one in (self, *unread))
        for one in unread:
            if held <= self._admission.limits.held_bytes:
                break
            held -= one.transport.get_write_buffer_size()
            one.close_if_idle()

    def resume_writing(self) -> None:
        """Continue to write."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def _cancel_timeouts(self) -> None:
        for clock in (self._head, self._unread):
            if clock is not None:
                clock.cancel()
        self._head = self._unread = None

    def _start_head_timeout(self) -> None:
        if self._head is None and not self.transport.is_closing():
            self._since = self.loop.time()
            self._head = self.loop.call_later(self._admission.limits.head_seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        if self.conn.trailing_data[0] or self.conn.their_state is not h11.IDLE:
            self._send_error(error_responses.request_timeout())
        else:
            self.transport.close()  # no data arrived

    def _send_error(self, error: RequestError) -> None:
        """Send an error without the application, and close."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_response(error))
            self._admission.log_request(OTHER, error.status, 0.0)
        self.transport.close()


def _response(error: RequestError) -> bytes:
    """Return a whole response."""
    headers = {"Content-Type": "application/json", **error.headers, "Connection": "close"}
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(error.body)}", "", ""]
    return "\r\n".join(lines).encode() + error.body
