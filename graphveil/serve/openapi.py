"""The OpenAPI description: schemas of answers and errors, by endpoint."""

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from graphveil.serve.counters import INVOCATIONS, PREDICT
from graphveil.serve.request_bodies import Invocation, PredictRequest

ABOUT = (
    "Released predictions. The same request returns the same bytes and does not spend privacy budget. "
    "Requests that need a new release are rejected, unless the operator allowed a budget for them."
)
Responses = dict[int | str, dict[str, Any]]


class PredictionRow(BaseModel):
    """One row of predictions.parquet, with a probability p_CLASS for each class."""

    model_config = ConfigDict(extra="allow")

    node: int | str
    prediction: str


_ROW: dict[str, JsonValue] = {"node": "u17", "prediction": "t2", "p_t0": 0.125, "p_t1": 0.25, "p_t2": 0.625}


class PredictionsResponse(BaseModel):
    """Rows in the order of the request."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"predictions": [_ROW]}]})

    predictions: list[PredictionRow] = Field(description="The released rows, in the order of the request.")


class RunPredictionsResponse(BaseModel):
    """Rows of one run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run": "first", "predictions": [_ROW]}]})

    run: str = Field(description="The name of the run.")
    predictions: list[PredictionRow] = Field(description="The released rows, in the order of the request.")


class HealthResponse(BaseModel):
    """Status of the server."""

    status: str = Field(description="Always ok.")


class RunPrivacy(BaseModel):
    """The guarantee of one run."""

    run: str
    guarantee: dict[str, Any]


class PrivacyResponse(BaseModel):
    """Privacy guarantees, and the remaining budget."""

    fresh_releases: bool = Field(description="Whether the server can make new releases.")
    budget: dict[str, Any] | None = Field(
        description="Limit, spent and remaining epsilon of this server and of its dataset. Only shown to "
        "keys that may make new releases; null for all others."
    )
    runs: list[RunPrivacy] = Field(description="Name and privacy guarantee of each run.")


class ErrorDetail(BaseModel):
    """A fixed text, which repeats no value of the request."""

    kind: str
    message: str


class ErrorResponse(BaseModel):
    """An error."""

    error: ErrorDetail


_ALL = {
    400: "Not a valid HTTP/1.1 request, or a second request before the first answer was sent.",
    404: "Unknown endpoint or run.",
    405: "Wrong method.",
    500: "The server failed; its log has the class of the error.",
}
_QUESTION = {
    401: "No key, or an unknown key.",
    403: "A row of another subject, or a new release with a key that may not make one.",
    408: "The request did not arrive in time.",
    409: "Needs a new release: unknown ids, other columns, or new records without a sufficient budget.",
    413: "The body is too large, or has too many ids.",
    415: "The body is not declared as JSON.",
    422: "The body does not match the schema, or new records have other features or are no graph.",
    503: "The ledger cannot be reached, or the run folder has changed.",
    429: "Too many requests; Retry-After states when to send it again.",
}
_FRAMEWORK: Responses = {
    status: {"model": ErrorResponse, "description": to_openapi} for status, to_openapi in _ALL.items()
}
PRIVACY: Responses = {
    200: {"model": PrivacyResponse, "description": "Guarantees and budgets."},
    401: {"model": ErrorResponse, "description": "An unknown key."},
    429: {
        "model": ErrorResponse,
        "description": "Too many requests; Retry-After states when to send it again.",
    },
    503: {"model": ErrorResponse, "description": "The ledger cannot be reached."},
    **_FRAMEWORK,
}
HEALTH: Responses = {200: {"model": HealthResponse, "description": "The server answers."}, **_FRAMEWORK}
METRICS: Responses = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The counters."},
    **_FRAMEWORK,
}

_SCHEMAS = "#/components/schemas/"
_RUN = {
    "name": "run",
    "in": "query",
    "required": False,
    "description": "Name of the run. Optional if the server has only one.",
    "schema": {"type": "string"},
}


@dataclass(frozen=True)
class _Operation:
    """An endpoint that the gate answers, so that FastAPI has no route for it."""

    name: str
    summary: str
    request_body: type[BaseModel]
    answer: type[BaseModel]
    parameters: tuple[dict[str, Any], ...] = ()

    def to_openapi(self, parts: dict[str, Any], *, keyed: bool) -> dict[str, Any]:
        """Return its OpenAPI description, and add the schemas that it uses to ``parts``."""
        descriptions, error_content = sorted((_QUESTION | _ALL).items()), _content(ErrorResponse, parts)
        responses = {
            str(status): {"description": to_openapi, "content": error_content}
            for status, to_openapi in descriptions
        }
        return {
            "operationId": self.name,
            "summary": self.summary,
            "parameters": list(self.parameters),
            "requestBody": {"required": True, "content": _content(self.request_body, parts)},
            "responses": {
                "200": {"description": "The rows.", "content": _content(self.answer, parts)},
                **responses,
            },
            **({"security": [{"key": []}]} if keyed else {}),
        }


_OPERATIONS = {
    PREDICT: _Operation(
        "predict", "Rows of some ids, or predictions of new records", PredictRequest, RunPredictionsResponse
    ),
    INVOCATIONS: _Operation(
        "invocations", "Rows of some ids, in the formats of MLflow", Invocation, PredictionsResponse, (_RUN,)
    ),
}


def complete(app: FastAPI, *, keyed: bool) -> dict[str, Any]:
    """Add the endpoints of the gate to an application's description, and return it."""
    described = app.openapi()
    parts = described["components"]["schemas"]
    request_bodies = {path: {"post": one.to_openapi(parts, keyed=keyed)} for path, one in _OPERATIONS.items()}
    described["paths"] = request_bodies | described["paths"]
    if keyed:
        described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return described


def _content(kind: type[BaseModel], parts: dict[str, Any]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template=_SCHEMAS + "{model}")
    parts |= schema.pop("$defs", {}) | {kind.__name__: schema}
    return {"application/json": {"schema": {"$ref": _SCHEMAS + kind.__name__}}}
