"""What stands before every page: keys, limits, counters and the log."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from graphveil.serve import refusals
from graphveil.serve.counters import Counters
from graphveil.serve.keys import Keys
from graphveil.serve.limits import Limits
from graphveil.serve.refusals import Refusal

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("graphveil.serve")
QUESTIONS = ("/v1/predict", "/invocations")
PAGES = (*QUESTIONS, "/v1/privacy", "/healthz", "/metrics", "/docs", "/openapi.json")
_HEARD = 8  # times the bound of a body: read and dropped, as who still writes may miss the answer


class Gate:
    """Lets a request in, and writes one line about it: page, status and time, and nothing that it holds.

    A question is refused before its body is read where its key is unknown or enough is under way. Its body is
    read here, whole, within its bounds. Whatever fails behind the gate is 500, and the log has the name of
    the error's class: its text may quote data.

    Args:
        app: what answers.
        keys: who may ask; None for everybody.
        limits: how much at once.
        counters: where requests are counted.
    """

    def __init__(self, app: App, keys: Keys | None, limits: Limits, counters: Counters) -> None:
        """Stand before an application."""
        self._app, self._keys, self._limits, self._counters = app, keys, limits, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        page = scope["path"] if scope["path"] in PAGES else "other"
        began, noted, fault = time.perf_counter(), _Noted(send), None
        try:
            await self._let_in(page, scope, receive, noted)
        except Refusal as refusal:
            await noted.refuse(refusal)
        except Exception as error:
            fault = type(error).__name__
            await noted.refuse(refusals.failed())
        self._counters.requests[page, noted.status] += 1
        _log(page=page, status=noted.status, seconds=round(time.perf_counter() - began, 6), fault=fault)

    async def _let_in(self, page: str, scope: Scope, receive: Receive, send: Send) -> None:
        if page not in QUESTIONS:
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["key"] = self._key(scope)
        if self._counters.under_way >= self._limits.under_way:
            raise refusals.too_many()
        self._counters.under_way += 1
        try:
            body = await self._body(scope, receive)
            if body is not None:
                await self._app(scope, _replay(body, receive), send)
        finally:
            self._counters.under_way -= 1

    def _key(self, scope: Scope) -> object:
        """Return the caller's key, or None where nobody needs one."""
        if self._keys is None:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, text = (given[0] if len(given) == 1 else b"").partition(b" ")
        key = self._keys.find(text.strip().decode("latin-1")) if scheme.lower() == b"bearer" else None
        if key is None:
            raise refusals.no_key()
        return key

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole body; None if the caller has gone."""
        most, size, body, more = self._limits.body_bytes, 0, bytearray(), True
        heard = _HEARD * most
        if any(int(value) > heard for name, value in scope["headers"] if name == b"content-length"):
            raise refusals.too_large(most)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while more and size <= heard:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    more, piece = message.get("more_body", False), message.get("body", b"")
                    size += len(piece)
                    if size <= most:
                        body += piece
        except TimeoutError:
            raise refusals.too_slow() from None
        if size > most:
            raise refusals.too_large(most)
        return bytes(body)


class _Noted:
    """Sends on, and remembers the status."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal, unless an answer has begun."""
        if self.status:
            return
        headers = {"Content-Type": "application/json"} | refusal.headers
        plain = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        length = (b"content-length", str(len(refusal.body)).encode())
        await self({"type": "http.response.start", "status": refusal.status, "headers": [*plain, length]})
        await self({"type": "http.response.body", "body": refusal.body})


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what hands over a body that was read, and then what comes after it."""
    left = [body]

    async def replayed() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return replayed


def _log(**facts: object) -> None:
    LOG.info(json.dumps({name: value for name, value in facts.items() if value is not None}))
