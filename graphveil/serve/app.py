"""The endpoints of the server: which rows a caller may read, which rows are released, and a page about them.

The page shows the OpenAPI description. It loads nothing from other sites and runs no script.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from graphveil import __version__
from graphveil._util.escape import render
from graphveil.errors import ConfigError
from graphveil.serve import schemas
from graphveil.serve.access import Key
from graphveil.serve.middleware import AdmissionControl, RequestMiddleware
from graphveil.serve.pairs import ServedPairs
from graphveil.serve.runs import Id, Row, ServedRun
from graphveil.serve.schemas import (
    Invocation,
    PairsRequest,
    PredictRequest,
    RequestError,
    ids_not_found,
    to_json_bytes,
)

if TYPE_CHECKING:
    from graphveil.serve.releases import ReleaseService

_ABOUT = (
    "Released predictions. The same request returns the same bytes and does not spend privacy budget. "
    "Requests that need a new release are rejected, unless the operator allowed a budget for them."
)
_NO_SCRIPTS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
_NOT_KEPT = {"Cache-Control": "no-store"}  # a row may be private to its subject


def application(
    runs: "tuple[ServedRun | ServedPairs, ...]",
    admission: AdmissionControl,
    release_service: "ReleaseService | None" = None,
) -> FastAPI:
    """Return the application; see ``graphveil.serve.create_app``."""
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
    if classifiers:
        _add_predictions(app, classifiers, admission, release_service)
    if models:
        _add_pairs(app, models, admission)
    _add_pages(app, runs, admission, release_service)
    return app


def _check(runs: "tuple[ServedRun | ServedPairs, ...]", admission: AdmissionControl) -> None:
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


def _add_predictions(
    app: FastAPI,
    runs: tuple[ServedRun, ...],
    admission: AdmissionControl,
    release_service: "ReleaseService | None",
) -> None:
    """Add the endpoints that return rows."""
    by_name, most = {run.name: run for run in runs}, admission.limits.ids
    # Only described: the middleware has checked the key before the body was read.
    keyed = None if admission.keys is None else {"security": [{"key": list[str]()}]}

    def find_run(name: str | None) -> ServedRun:
        if name is None and len(runs) == 1:
            return runs[0]
        if name is None or name not in by_name:
            raise RequestError("unknown_run")
        return by_name[name]

    @app.post(
        "/v1/predict",
        responses=schemas.responses(schemas.RunPredictionsResponse, *schemas.PREDICTION_ERRORS),
        operation_id="predict",
        summary="Rows of some ids, or predictions of new records",
        openapi_extra=keyed,
    )
    async def predict(request: Request, question: PredictRequest) -> Response:
        key, run = request.state.key, find_run(question.run)
        if not question.needs_new_release:
            rows = _released_rows(run, question.ids or [], key, most)
        elif release_service is None:
            raise RequestError("release_required")
        elif key is None or not key.releases:
            raise RequestError("release_forbidden")
        else:
            rows = await release_service.rows(question.records, question.edges, most, key)
        return _json({"run": run.name, "predictions": rows}, _NOT_KEPT)

    @app.post(
        "/invocations",
        responses=schemas.responses(schemas.PredictionsResponse, *schemas.PREDICTION_ERRORS),
        operation_id="invocations",
        summary="Rows of some ids, in the formats of MLflow",
        openapi_extra=keyed,
    )
    async def invocations(
        request: Request,
        question: Invocation,
        run: Annotated[
            str | None, Query(description="Name of the run. Optional if the server has only one.")
        ] = None,
    ) -> Response:
        rows = _released_rows(find_run(run), question.column_ids(), request.state.key, most)
        return _json({"predictions": rows}, _NOT_KEPT)


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


def _add_pairs(app: FastAPI, models: tuple[ServedPairs, ...], admission: AdmissionControl) -> None:
    """Add the endpoint of models of pairs."""
    by_name, most = {run.name: run for run in models}, admission.limits.ids
    keyed = None if admission.keys is None else {"security": [{"key": list[str]()}]}

    @app.post(
        "/v1/pairs",
        responses=schemas.responses(schemas.PairsResponse, *schemas.PREDICTION_ERRORS),
        operation_id="pairs",
        summary="Scores of pairs, best candidates of nodes, or items for lists",
        openapi_extra=keyed,
    )
    async def pairs(question: PairsRequest) -> Response:
        name = models[0].name if question.run is None and len(models) == 1 else question.run
        if name is None or name not in by_name:
            raise RequestError("unknown_run")
        found = await run_in_threadpool(by_name[name].answer, question, most)
        return _json({"run": name, **found}, _NOT_KEPT)


def _add_pages(
    app: FastAPI,
    runs: "tuple[ServedRun | ServedPairs, ...]",
    admission: AdmissionControl,
    release_service: "ReleaseService | None",
) -> None:
    """Add the endpoints that need no key."""
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
    page = render_docs(description)


def _json(record: object, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json_bytes(record), headers=headers, media_type="application/json")


async def _framework_error(_: Request, error: Exception) -> Response:
    """Return the server's own error for what the web framework rejects, without a value of the request."""
    status = error.status_code if isinstance(error, HTTPException) else 422
    allowed = getattr(error, "headers", None) or {}
    name = {404: "unknown_endpoint", 405: "wrong_method"}.get(status)
    if name is None:
        places = [one["loc"] for one in error.errors()] if isinstance(error, RequestValidationError) else []
        found = schemas.invalid_body(*dict.fromkeys(place[1] for place in places if len(place) > 1))
        return Response(found.body, found.status, found.headers, "application/json")
    found = RequestError(name, {key: value for key, value in allowed.items() if key.lower() == "allow"})
    return Response(found.body, found.status, found.headers, "application/json")


def render_docs(described: dict[str, Any]) -> str:
    """Return the page: one section for each endpoint, and one for errors."""
    schemas = described["components"]["schemas"]

    def json_body(body: dict[str, Any]) -> tuple[list[str], list[tuple[str, str]]] | None:
        """Return examples and fields of a JSON body; None for another body."""
        reference = body["content"].get("application/json", {}).get("schema", {}).get("$ref")
        if reference is None:
            return None
        schema = schemas[reference.rpartition("/")[2]]
        fields = [(name, one.get("description", "")) for name, one in schema["properties"].items()]
        return [json.dumps(one) for one in schema.get("examples", ())], fields

    operations = [
        {
            "path": path,
            "method": method,
            "id": one["operationId"],
            "summary": one["summary"],
            "keyed": "security" in one,
            "parameters": [(each["name"], each["description"]) for each in one.get("parameters", ())],
            "request": json_body(one["requestBody"]) if "requestBody" in one else None,
            "response": json_body(one["responses"]["200"]),
            "described": one["responses"]["200"]["description"],
        }
        for path, methods in described["paths"].items()
        for method, one in methods.items()
    ]
    errors = {
        status: one["description"]
        for methods in described["paths"].values()
        for operation in methods.values()
        for status, one in operation["responses"].items()
        if status >= "400"
    }
    return render(
        "server_docs.html", about=described["info"], operations=operations, errors=sorted(errors.items())
    )
