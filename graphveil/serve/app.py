"""The endpoints of the server."""

from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from graphveil import __version__
from graphveil.errors import ConfigError
from graphveil.serve import error_responses, openapi
from graphveil.serve.counters import INVOCATIONS, PREDICT
from graphveil.serve.docs_page import render_docs
from graphveil.serve.error_responses import to_json_bytes
from graphveil.serve.middleware import AdmissionControl, RequestMiddleware
from graphveil.serve.prediction_handler import PredictionHandler
from graphveil.serve.runs import ServedRun

if TYPE_CHECKING:
    from graphveil.serve.releases.release_service import ReleaseService

_NO_SCRIPTS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def application(
    runs: tuple[ServedRun, ...], admission: AdmissionControl, release_service: "ReleaseService | None" = None
) -> FastAPI:
    """Return the application; see ``graphveil.serve.create_app``."""
    _check(runs, admission)
    app = FastAPI(
        title="graphveil",
        version=__version__,
        description=openapi.ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.admission, app.state.runs = admission, runs
    prediction_handler = PredictionHandler({run.name: run for run in runs}, admission.limits, release_service)
    app.add_middleware(
        RequestMiddleware,
        admission=admission,
        answers={PREDICT: prediction_handler.predict, INVOCATIONS: prediction_handler.invocations},
    )
    app.add_exception_handler(HTTPException, _framework_error)
    _add_pages(app, runs, admission, release_service)
    return app


def _check(runs: tuple[ServedRun, ...], admission: AdmissionControl) -> None:
    """Reject a server that would show a row to another subject."""
    if not runs:
        raise ConfigError("There is no run to serve. Name at least one run folder.")
    personal = [run for run in runs if run.by_subject]
    if personal and admission.keys is None:
        raise ConfigError(
            f"Under unit {personal[0].guarantee.unit!r} a row is only returned to its own subject, so the "
            "server needs keys. Make them with `graphveil keys FILE --subject ID` and pass --keys FILE."
        )
    if len(personal) > 1:
        raise ConfigError(
            "Two runs under node-level units may use one id for two people, and a key is for an id. Serve "
            "each run with its own server and its own file of keys."
        )


def _add_pages(
    app: FastAPI,
    runs: tuple[ServedRun, ...],
    admission: AdmissionControl,
    release_service: "ReleaseService | None",
) -> None:
    """Add the endpoints that need no key."""
    guarantees = [{"run": run.name, "guarantee": run.guarantee.as_dict()} for run in runs]

    @app.get(
        "/v1/privacy",
        responses=openapi.PRIVACY,
        summary="Privacy guarantee of each run, and the remaining budget",
    )
    async def privacy(request: Request) -> Response:
        # The budget shows what other callers do, so only a key that may spend it can read it.
        budget = None
        if release_service is not None and "authorization" in request.headers:
            key = admission.authenticate(request.scope)
            budget = await release_service.budget() if key is not None and key.releases else None
        return _json({"fresh_releases": release_service is not None, "budget": budget, "runs": guarantees})

    @app.get("/healthz", responses=openapi.HEALTH, summary="Whether the server answers")
    async def healthz() -> Response:
        return _json({"status": "ok"})

    app.add_api_route("/healthz", healthz, methods=["HEAD"], include_in_schema=False)

    @app.get("/metrics", responses=openapi.METRICS, summary="Counters in the text format of Prometheus")
    async def metrics() -> Response:
        return Response(admission.counters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page, headers=_NO_SCRIPTS)

    page = render_docs(openapi.complete(app, keyed=admission.keys is not None))  # once all pages are there


def _json(record: object) -> Response:
    return Response(to_json_bytes(record), media_type="application/json")


async def _framework_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
    response = error_responses.from_status(error.status_code, allowed)
    return Response(response.body, response.status, response.headers, "application/json")
