"""The pages of the server."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from graphveil import __version__
from graphveil._escape import html
from graphveil.errors import ConfigError
from graphveil.serve import refusals
from graphveil.serve.counters import Counters
from graphveil.serve.gate import Gate
from graphveil.serve.keys import Key, Keys
from graphveil.serve.limits import Limits
from graphveil.serve.questions import Invocation, PredictQuestion, within
from graphveil.serve.refusals import Refusal, as_bytes
from graphveil.serve.runs import Row, ServedRun

_ABOUT = (
    "Predictions that are released already: the same question has the same bytes and costs no budget. What "
    "would need a fresh release is refused."
)
_NOT_KEPT = {"Cache-Control": "no-store"}  # a row may be for its subject alone
_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"description": "No key, or an unknown one."},
    403: {"description": "A row of another subject."},
    404: {"description": "No such run."},
    408: {"description": "The body came too slowly."},
    409: {"description": "It would need a fresh release."},
    413: {"description": "Too large."},
    422: {"description": "Not a question."},
    429: {"description": "Too many are under way."},
}


def application(runs: tuple[ServedRun, ...], keys: Keys | None, limits: Limits) -> FastAPI:
    """Return the application; see :func:`graphveil.serve.app_of`."""
    _check(runs, keys)
    counters, by_name = Counters(), {run.name: run for run in runs}
    app = FastAPI(
        title="graphveil",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(Gate, keys=keys, limits=limits, counters=counters)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _not_ours)
    _add_questions(app, by_name, keys, limits)
    _add_pages(app, runs, counters)
    return app


def _check(runs: tuple[ServedRun, ...], keys: Keys | None) -> None:
    """Refuse what would show a row to somebody else."""
    if not runs:
        raise ConfigError("there is no run to serve; name at least one run folder")
    personal = [run for run in runs if run.by_subject]
    if personal and keys is None:
        raise ConfigError(
            f"under unit {personal[0].guarantee.unit!r} row v is only for somebody entitled to v's record, "
            "so the server needs keys: make them with `graphveil keys FILE --subject ID` and pass --keys FILE"
        )
    if len(personal) > 1:
        raise ConfigError(
            "two runs of units of records may call two people by one id, and a key is for an id; serve them "
            "apart, each with a file of keys of its own"
        )


def _add_questions(app: FastAPI, runs: Mapping[str, ServedRun], keys: Keys | None, limits: Limits) -> None:
    """Add the two pages that answer for ids."""
    shown = [] if keys is None else [Depends(HTTPBearer(auto_error=False))]  # for the OpenAPI page alone

    @app.post("/v1/predict", dependencies=shown, responses=_REFUSALS, summary="Released rows of some ids")
    async def predict(question: PredictQuestion, request: Request) -> Response:
        run = _chosen(runs, question.run)
        return _json({"run": run.name, "predictions": _rows(run, question.asked(), request, limits)})

    @app.post("/invocations", dependencies=shown, responses=_REFUSALS, summary="The same in MLflow's shape")
    async def invocations(question: Invocation, request: Request, run: str | None = None) -> Response:
        return _json({"predictions": _rows(_chosen(runs, run), question.asked(), request, limits)})


def _rows(run: ServedRun, ids: list[int | str], request: Request, limits: Limits) -> list[Row]:
    """Return released rows to a caller who may read all of them.

    Whether an id is known is looked at after that: a stranger's question about it has one answer.
    """
    key: Key | None = request.state.key
    if run.by_subject and (key is None or not key.entitled(within(ids, limits.ids))):
        raise refusals.not_entitled()
    rows = run.rows(within(ids, limits.ids))
    if rows is None:
        raise refusals.needs_a_release()
    return rows


def _chosen(runs: Mapping[str, ServedRun], name: str | None) -> ServedRun:
    if name is None and len(runs) == 1:
        return next(iter(runs.values()))
    if name is None or name not in runs:
        raise Refusal(404, "NotFound", "name one of the runs that /v1/privacy lists, as `run`")
    return runs[name]


def _add_pages(app: FastAPI, runs: tuple[ServedRun, ...], counters: Counters) -> None:
    """Add the pages that are for everybody."""
    promises = as_bytes(
        {
            "fresh_releases": False,
            "runs": [{"run": run.name, "guarantee": run.guarantee.as_dict()} for run in runs],
        }
    )

    @app.get("/v1/privacy", summary="The guarantee and the statement of each run")
    async def privacy() -> Response:
        return Response(promises, media_type="application/json")

    @app.get("/healthz", summary="Whether the server answers")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse, summary="Counters in Prometheus' text format")
    async def metrics() -> Response:
        return Response(counters.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    async def docs() -> Response:
        return HTMLResponse(_page(app.openapi()))


def _page(schema: dict[str, Any]) -> str:
    """Return the OpenAPI description as a page that loads nothing from elsewhere."""
    rows = "".join(
        f"<tr><td>{method.upper()}</td><td><code>{html(path)}</code></td><td>{html(told['summary'])}</td></tr>"
        for path, methods in schema["paths"].items()
        for method, told in methods.items()
    )
    whole = html(json.dumps(schema, indent=2))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>graphveil</title>'
        "<style>body{font-family:sans-serif;margin:2em;max-width:60em}td{padding:.3em 1em .3em 0}</style>"
        f"<h1>graphveil</h1><p>{html(_ABOUT)}</p><table>{rows}</table>"
        f'<h2><a href="openapi.json">openapi.json</a></h2><pre>{whole}</pre></html>'
    )


def _json(record: object) -> Response:
    return Response(as_bytes(record), media_type="application/json", headers=_NOT_KEPT)


def _answer(refusal: Refusal) -> Response:
    return Response(refusal.body, refusal.status, refusal.headers, "application/json")


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _answer(error)


async def _unreadable(_: Request, __: Exception) -> Response:
    return _answer(refusals.unreadable())


async def _not_ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(refusals.of_status(error.status_code))
