"""The application: keys, limits, counters and the log of every request, and the endpoints behind them.

Requests are counted by endpoint and status, never by caller or id. The page ``/docs`` shows the OpenAPI
description. It loads nothing from other sites and runs no script.
"""

import asyncio
import json
import logging
import math
import os
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from graphveil import __version__
from graphveil._util.escape import render
from graphveil.errors import ConfigError
from graphveil.serve import schemas
from graphveil.serve.access import Key, Keys, Limits, RateLimiter
from graphveil.serve.runs import Id, Row, ServedPairs, ServedRun
from graphveil.serve.schemas import (
    PairsRequest,
    PredictRequest,
    RequestError,
    ids_not_found,
    to_json_bytes,
)

if TYPE_CHECKING:
    from graphveil.serve.releases import ReleaseService


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # of prometheus_client: the folder of all workers
OTHER = "other"
PREDICTION_PATHS = ("/v1/predict", "/v1/pairs")
PATHS = (*PREDICTION_PATHS, "/v1/privacy", "/healthz", "/metrics", "/docs", "/openapi.json", OTHER)
CLIENT_CLOSED_REQUEST = 499  # the caller went before the answer
LOG = logging.getLogger("graphveil.serve")
_JSON = re.compile(rb"\s*application/json\s*(;|$)", re.IGNORECASE)
_TWO_LENGTHS = {b"content-length", b"transfer-encoding"}
_HEAD_BYTES = 16 << 10  # of a request's first line and headers; the parser bounds incomplete heads alone
# Times the limit of a body: read and dropped above it, as a client that still writes may miss the answer.
_DRAIN_FACTOR = 8
_SMALL_ANSWER = 64 << 10  # bytes that fit into the buffers of a connection, whether or not the client reads


class Metrics:
    """Counters of one worker. With several workers, ``text`` returns the sums of all."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry, multiprocess_mode="livesum")
        self._requests = counter(
            "graphveil_requests", "Answered requests, by endpoint and status.", ["page", "status"]
        )
        self._seconds = counter(
            "graphveil_request_seconds", "Seconds to answer requests, by endpoint.", ["page"]
        )
        self._under_way = gauge(
            "graphveil_requests_under_way", "Requests for predictions that are being answered."
        )
        gauge("graphveil_workers", "Worker processes.").set(1)
        self.under_way = 0

    def record_request(self, page: str, status: int, seconds: float) -> None:
        self._requests.labels(page, status).inc()
        self._seconds.labels(page).inc(seconds)

    def begin_request(self, most: int) -> bool:
        """Count a request in progress, if this worker is below the limit."""
        if self.under_way >= most:
            return False
        self.under_way += 1
        self._under_way.set(self.under_way)
        return True

    def end_request(self) -> None:
        self.under_way -= 1
        self._under_way.set(self.under_way)

    def text(self) -> bytes:
        """Return the counters of all workers.

        >>> metrics = Metrics()
        >>> metrics.record_request("/healthz", 200, 0.5)
        >>> print(metrics.text().decode().splitlines()[2])
        graphveil_requests_total{page="/healthz",status="200"} 1.0
        """
        registry = self._registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def forget_dead_workers(folder: Path) -> None:
    """Remove the gauges of killed workers, which would be counted as active without end."""
    for file in folder.glob("gauge_livesum_*.db"):
        process = int(file.stem.rpartition("_")[2])
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            mark_process_dead(process, str(folder))  # type: ignore[no-untyped-call]


class AdmissionControl:
    """Keys, limits, counters and log lines."""

    def __init__(self, keys: Keys | None, limits: Limits, shared: Path | None = None) -> None:
        """Store what decides about requests.

        Args:
            keys: Keys of callers; None for a server without keys.
            shared: Folder that workers share; None for a single worker.
        """
        self.keys, self.limits, self.metrics = keys, limits, Metrics()
        self.rate_limiter: RateLimiter | None = None
        if limits.rate is not None:
            file = None if shared is None else shared / "rates"
            self.rate_limiter = RateLimiter(
                limits.rate, limits.burst, keys=max(1, len(keys or ())), file=file
            )

    def log_request(self, page: str, status: int, seconds: float, fault: str | None = None) -> None:
        """Count a request, and log its endpoint, status and time, and nothing of its contents."""
        self.metrics.record_request(page, status, seconds)
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
                raise RequestError("missing_key")
            place = self.keys.place(key)
        wait = 0.0 if self.rate_limiter is None else self.rate_limiter.wait(place)
        if wait:
            raise RequestError("rate_limited", {"Retry-After": str(max(1, math.ceil(wait)))})
        return key


class RequestMiddleware:
    """Checks each request before the web framework answers it, and logs it.

    A request for predictions is rejected before its body is read if its key is unknown. It takes a place
    among the requests under way only once its body is there and until its answer is computed. So clients that
    send or read slowly take no places, and what they hold is bounded in bytes. A failure is 500, and the log
    only has the class of the error, because its text may quote data.
    """

    def __init__(self, app: App, admission: AdmissionControl) -> None:
        self._app, self._admission, self._limits = app, admission, admission.limits
        self._arriving: dict[asyncio.Timeout, int] = {}  # bytes of each incomplete body, the oldest first
        self._unread = 0  # bytes of large answers that clients have not read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        page = scope["path"] if scope["path"] in PATHS else OTHER
        began, status, fault = time.perf_counter(), 0, None

        async def send_recorded(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            if {name for name, _ in scope["headers"]} >= _TWO_LENGTHS:
                raise RequestError("malformed_request")  # a proxy may have used the other one
            line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") + 16
            head = line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
            if head > _HEAD_BYTES:
                raise RequestError("malformed_request")
            if page in PREDICTION_PATHS:
                await self._answer_prediction(scope, receive, send_recorded)
            else:
                await self._app(scope, receive, send_recorded)
        except Exception as error:
            if not isinstance(error, RequestError):
                fault = type(error).__name__
                error = RequestError("internal_error")
            if not status:
                await _error_response(error)(scope, receive, send_recorded)
        self._admission.log_request(page, status or CLIENT_CLOSED_REQUEST, time.perf_counter() - began, fault)

    async def _answer_prediction(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise RequestError("wrong_method", {"Allow": "POST"})
        scope.setdefault("state", {})["key"] = self._admission.authenticate(scope)
        body = await self._body(scope, receive)
        if body is None:
            return
        metrics, answer = self._admission.metrics, list[Message]()
        if not metrics.begin_request(self._limits.under_way):
            raise RequestError("server_busy")

        async def receive_body() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def collect(message: Message) -> None:
            answer.append(message)

        try:
            await self._app(scope, receive_body, collect)
        finally:  # however the request ended, it is no longer in progress
            metrics.end_request()
        start, content = answer
        await self._send_answer(start, content, send)

    async def _send_answer(self, start: Message, content: Message, send: Send) -> None:
        """Send an answer, and wait until the client has read it if it is large."""
        size = len(content["body"])
        if size <= _SMALL_ANSWER:
            await send(start)
            await send(content)
            return
        if self._unread + size > self._limits.held_bytes:
            raise RequestError("server_busy")
        self._unread += size
        try:
            await send(start)
            await send({**content, "more_body": True})
            await send({**content, "body": b""})  # the server waits here until the buffer is almost empty
        finally:
            self._unread -= size

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        most, headers = self._limits.body_bytes, scope["headers"]
        if any(int(value) > _DRAIN_FACTOR * most for name, value in headers if name == b"content-length"):
            raise RequestError("body_too_large", most=most)
        try:
            async with asyncio.timeout(self._limits.body_seconds) as clock:
                try:
                    body = await self._read_body(receive, clock)
                finally:
                    self._arriving.pop(clock, None)
        except TimeoutError:
            raise RequestError("request_timeout") from None
        if not any(name == b"content-type" and _JSON.match(value) for name, value in headers):
            # browsers send this type to another site only after a preflight request
            raise RequestError("unsupported_media_type")
        return body

    async def _read_body(self, receive: Receive, clock: asyncio.Timeout) -> bytes | None:
        most, size, body, more = self._limits.body_bytes, 0, bytearray(), True
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
                while sum(self._arriving.values()) > self._limits.held_bytes:
                    oldest = next(iter(self._arriving))
                    del self._arriving[oldest]
                    oldest.reschedule(0.0)  # its deadline is now
        if size > most:
            raise RequestError("body_too_large", most=most)
        return bytes(body)


_ABOUT = (
    "Released predictions. The same request returns the same bytes and does not spend privacy budget. "
    "Requests that need a new release are rejected, unless the operator allowed a budget for them."
)
_NO_SCRIPTS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
AnyRun = TypeVar("AnyRun", ServedRun, ServedPairs)
_NOT_KEPT = {"Cache-Control": "no-store"}  # a row may be private to its subject


def application(
    runs: tuple[ServedRun | ServedPairs, ...],
    admission: AdmissionControl,
    release_service: "ReleaseService | None" = None,
) -> FastAPI:
    _check(runs, admission)
    app = FastAPI(
        title="graphveil",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.admission, app.state.runs = admission, runs
    app.add_middleware(RequestMiddleware, admission=admission)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(RequestValidationError, _framework_error)
    classifiers = tuple(run for run in runs if isinstance(run, ServedRun))
    models = tuple(run for run in runs if isinstance(run, ServedPairs))
    most = admission.limits.ids
    # This describes that a key is needed: the middleware checks it before the body is read.
    keyed = None if admission.keys is None else {"security": [{"key": list[str]()}]}
    if classifiers:

        @app.post(
            "/v1/predict",
            responses=schemas.responses(schemas.PredictionsResponse, *schemas.PREDICTION_ERRORS),
            operation_id="predict",
            summary="Rows of some ids, or predictions of new records",
            openapi_extra=keyed,
        )
        async def predict(request: Request, question: PredictRequest) -> Response:
            key, run = request.state.key, _run_named(classifiers, question.run)
            if not question.needs_new_release:
                rows = _released_rows(run, question.ids or [], key, most)
            elif release_service is None:
                raise RequestError("release_required")
            elif key is None or not key.releases:
                raise RequestError("release_forbidden")
            else:
                rows = await release_service.rows(question.records, question.edges, most, key)
            return _json({"run": run.name, "predictions": rows}, _NOT_KEPT)

    if models:

        @app.post(
            "/v1/pairs",
            responses=schemas.responses(schemas.PairsResponse, *schemas.PREDICTION_ERRORS),
            operation_id="pairs",
            summary="Scores of pairs, best candidates of nodes, or items for lists",
            openapi_extra=keyed,
        )
        async def pairs(question: PairsRequest) -> Response:
            run = _run_named(models, question.run)
            found = await run_in_threadpool(run.answer, question, most)
            return _json({"run": run.name, **found}, _NOT_KEPT)

    guarantees = [{"run": run.name, "guarantee": run.guarantee.as_dict()} for run in runs]

    @app.get(
        "/v1/privacy",
        responses=schemas.responses(schemas.PrivacyResponse, 401, 429, 503),
        summary="Privacy guarantee of each run, and the remaining budget",
    )
    async def privacy(request: Request) -> Response:
        # The budget shows what other callers do, so only a key that may spend it can read it.
        budget = None
        if release_service is not None and "authorization" in request.headers:
            key = admission.authenticate(request.scope)
            budget = await release_service.budget() if key is not None and key.releases else None
        return _json({"new_releases": release_service is not None, "budget": budget, "runs": guarantees})

    @app.get(
        "/healthz", responses=schemas.responses(schemas.HealthResponse), summary="Whether the server answers"
    )
    async def healthz() -> Response:
        return _json({"status": "ok"})

    app.add_api_route("/healthz", healthz, methods=["HEAD"], include_in_schema=False)

    @app.get(
        "/metrics",
        responses=schemas.responses(None),
        summary="Counters in the text format of Prometheus",
        response_class=Response,
    )
    async def metrics() -> Response:
        text = admission.metrics.text()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page, headers=_NO_SCRIPTS)

    description = app.openapi()  # once all pages are there
    if admission.keys is not None:
        description["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    page = render("server_docs.html", api=description, errors=schemas.STATUS_DESCRIPTIONS, dumps=json.dumps)
    return app


def _check(runs: tuple[ServedRun | ServedPairs, ...], admission: AdmissionControl) -> None:
    """Reject a server that would show a row to another subject."""
    if not runs:
        raise ConfigError(
            "No run was given. Name at least one run folder, for example `graphveil serve run`."
        )
    personal = [run for run in runs if run.by_subject]
    if personal and admission.keys is None:
        raise ConfigError(
            f"Under unit {personal[0].guarantee.unit!r} a row is only returned to the person it "
            "belongs to, so the server needs API keys. Create them with `graphveil keys FILE "
            "--subject ID`, and pass --keys FILE."
        )
    if len(personal) > 1:
        raise ConfigError(
            "Several runs under node-level units cannot share a server, because the same id may "
            "belong to different people in each run. Start one server per run, each with its own "
            "file of API keys."
        )


def _run_named(runs: Sequence[AnyRun], name: str | None) -> AnyRun:
    found = [run for run in runs if name in (None, run.name)]
    if len(found) != 1:
        raise RequestError("unknown_run")
    return found[0]


def _released_rows(run: ServedRun, ids: Sequence[Id], key: Key | None, most: int) -> list[Row]:
    """Return released rows to a caller who may read all of them.

    Unknown ids are checked after that, so that other callers get one answer for known and unknown ids.
    """
    if len(ids) > most:
        raise RequestError("too_many_ids", most=most, what="ids")
    if run.by_subject and (key is None or not key.authorizes(ids)):
        raise RequestError("forbidden_row")
    ids = run.spelled(ids)
    unknown = run.unknown(ids)
    if unknown:
        quoted = run.id_type is int and any(isinstance(ids[position], str) for position in unknown)
        raise ids_not_found(unknown, quoted=quoted)
    return run.rows(ids)


def _json(record: object, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json_bytes(record), headers=headers, media_type="application/json")


async def _framework_error(_: Request, error: Exception) -> Response:
    """Return the server's own error for what the web framework rejects, without a value of the request."""
    places = [one["loc"] for one in error.errors()] if isinstance(error, RequestValidationError) else []
    found = schemas.invalid_body(*dict.fromkeys(place[1] for place in places if len(place) > 1))
    if isinstance(error, HTTPException) and error.status_code == 404:
        found = RequestError("unknown_endpoint")
    elif isinstance(error, HTTPException) and error.status_code == 405:
        found = RequestError("wrong_method", error.headers)
    return _error_response(found)


def _error_response(error: RequestError) -> Response:
    return Response(error.body, error.status, error.headers, "application/json")
