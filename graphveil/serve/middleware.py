"""Keys, limits, counters and the log of every endpoint."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphveil.serve import error_responses
from graphveil.serve.counters import CLIENT_CLOSED_REQUEST, OTHER, PATHS, Counters
from graphveil.serve.error_responses import RequestError
from graphveil.serve.keys import Key, Keys
from graphveil.serve.limits import Limits
from graphveil.serve.rate_limiter import RateLimiter

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Answer = Callable[[bytes, Key | None, Scope], Awaitable[bytes]]
Headers = Sequence[tuple[bytes, bytes]]

LOG = logging.getLogger("graphveil.serve")
_JSON = re.compile(rb"\s*application/json\s*(;|$)", re.IGNORECASE)
_TWO_LENGTHS = {b"content-length", b"transfer-encoding"}
_NOT_KEPT = [(b"cache-control", b"no-store")]  # a row may be private to its subject
_HEAD_BYTES = 16 << 10  # of a request's first line and headers; the parser bounds incomplete heads alone
_DRAIN_FACTOR = (
    8  # times the limit of a body: read and dropped, because a client that still writes may miss the answer
)


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionControl:
    """Keys, limits, counters and log lines.

    Args:
        keys: keys of callers; None for a server without keys.
        limits: limits of requests.
        counters: where requests are counted.
        rate_limiter: requests per second and key; None for no limit.
    """

    keys: Keys | None
    limits: Limits
    counters: Counters = field(default_factory=Counters)
    rate_limiter: RateLimiter | None = None

    def log_request(self, page: str, status: int, seconds: float, fault: str | None = None) -> None:
        """Count a request, and log its endpoint, status and time, and nothing of its contents."""
        self.counters.record_request(page, status, seconds)
        fault = f',"fault":"{fault}"' if fault else ""
        if LOG.isEnabledFor(logging.INFO):  # without the caller's frame, which takes longer than the rest
            line = f'{{"page":"{page}","status":{status},"seconds":{seconds:.6f}{fault}}}'
            LOG.handle(LOG.makeRecord(LOG.name, logging.INFO, __file__, 0, line, (), None))

    def authenticate(self, scope: Scope) -> Key | None:
        """Return the key of the caller, or None for a server without keys; reject unknown keys."""
        key, place = None, 0
        if self.keys is not None:
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            scheme, _, text = (given[0] if len(given) == 1 else b"").partition(b" ")
            key = self.keys.find(text.strip().decode("latin-1")) if scheme.lower() == b"bearer" else None
            if key is None:
                raise error_responses.missing_key()
            place = self.keys.place(key)
        wait = 0.0 if self.rate_limiter is None else self.rate_limiter.wait(place)
        if wait:
            raise error_responses.rate_limited(wait)
        return key


class RequestMiddleware:
    """Checks a request, answers requests for predictions, and logs each request.

    A request for predictions is rejected before its body is read where its key is unknown. Its body is read
    and answered here, without the web framework, because this is done thousands of times per second. It takes
    a place among the requests under way only once its body is there and until its answer is computed. So
    clients that send or read slowly take no places; what they hold is bounded in bytes, and the oldest gives
    way. A failure is 500, and the log only has the class of the error, because its text may quote data.

    Args:
        app: answers all other requests.
        admission: keys, limits and counters.
        answers: functions that answer requests for predictions, by path.
    """

    def __init__(self, app: App, admission: AdmissionControl, answers: Mapping[str, Answer]) -> None:
        """Wrap an application."""
        self._app, self._admission, self._answers = app, admission, answers
        self._arriving: dict[asyncio.Timeout, int] = {}  # bytes of each incomplete body, the oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        page = scope["path"] if scope["path"] in PATHS else OTHER
        began, response, fault = time.perf_counter(), _StatusRecorder(send), None
        try:
            if {name for name, _ in scope["headers"]} >= _TWO_LENGTHS:
                raise error_responses.malformed_request()  # a proxy may have used the other one
            if _head_bytes(scope) > _HEAD_BYTES:
                raise error_responses.malformed_request()
            if page in self._answers:
                await self._answer_request(page, scope, receive, response)
            else:
                await self._app(scope, receive, response)
        except RequestError as error:
            await response.send_error(error)
        except Exception as error:
            fault = type(error).__name__
            await response.send_error(error_responses.internal_error())
        self._admission.log_request(
            page, response.status or CLIENT_CLOSED_REQUEST, time.perf_counter() - began, fault
        )

    async def _answer_request(
        self, page: str, scope: Scope, receive: Receive, response: "_StatusRecorder"
    ) -> None:
        """Answer a request for predictions, if there is a place for it."""
        if scope["method"] != "POST":
            raise error_responses.from_status(405, {"Allow": "POST"})
        key = self._admission.authenticate(scope)
        body = await self._body(scope, receive)
        if body is None:
            return
        counters = self._admission.counters
        if not counters.begin_request(self._admission.limits.under_way):
            raise error_responses.server_busy()
        try:
            answer = await self._answers[page](body, key, scope)
        finally:  # whatever ended the request, it no longer takes a place
            counters.end_request()
        await response.answer(200, answer, _NOT_KEPT)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole body; None if the client has disconnected."""
        most, headers = self._admission.limits.body_bytes, scope["headers"]
        if any(int(value) > _DRAIN_FACTOR * most for name, value in headers if name == b"content-length"):
            raise error_responses.body_too_large(most)
        try:
            async with asyncio.timeout(self._admission.limits.body_seconds) as clock:
                try:
                    body = await self._read_body(receive, clock)
                finally:
                    self._arriving.pop(clock, None)
        except TimeoutError:
            raise error_responses.request_timeout() from None
        if not any(name == b"content-type" and _JSON.match(value) for name, value in headers):
            # browsers send this type to another site only after a preflight request
            raise error_responses.unsupported_media_type()
        return body

    async def _read_body(self, receive: Receive, clock: asyncio.Timeout) -> bytes | None:
        """Read a body up to the limit."""
        most, size, body, more = self._admission.limits.body_bytes, 0, bytearray(), True
        while more and size <= _DRAIN_FACTOR * most:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            more, piece = message.get("more_body", False), message.get("body", b"")
            size += len(piece)
            if size <= most:
                body += piece
            if more:
                self._arriving[clock] = len(body)
                while sum(self._arriving.values()) > self._admission.limits.held_bytes:
                    oldest = next(iter(self._arriving))
                    del self._arriving[oldest]
                    oldest.reschedule(0.0)  # its deadline is now
        if size > most:
            raise error_responses.body_too_large(most)
        return bytes(body)


def _head_bytes(scope: Scope) -> int:
    """Return the size of a request's first line and headers, with their separators."""
    line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") + 16
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


class _StatusRecorder:
    """Forwards messages, and stores the status."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def send_error(self, error: RequestError) -> None:
        """Send an error, unless an answer has begun."""
        if not self.status:
            headers = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
            await self.answer(error.status, error.body, headers)

    async def answer(self, status: int, body: bytes, headers: Headers) -> None:
        """Send JSON."""
        length = (b"content-length", str(len(body)).encode())
        sent = [(b"content-type", b"application/json"), length, *headers]
        await self({"type": "http.response.start", "status": status, "headers": sent})
        await self({"type": "http.response.body", "body": body})
