"""The OpenAPI description: shapes of answers and refusals, by page."""

from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from graphveil.serve.counters import INVOCATIONS, PREDICT
from graphveil.serve.questions import Invocation, PredictQuestion

ABOUT = (
    "Predictions that are released already: the same question has the same bytes and costs no budget. What "
    "would need a fresh release is refused, unless the operator allowed a budget for it."
)
Responses = dict[int | str, dict[str, Any]]


class Row(BaseModel):
    """One row of predictions.parquet; beside it p_CLASS for each class, its probability."""

    model_config = ConfigDict(extra="allow")

    node: int | str
    prediction: str


_ROW: dict[str, JsonValue] = {"node": "u17", "prediction": "t2", "p_t0": 0.125, "p_t1": 0.25, "p_t2": 0.625}


class Predictions(BaseModel):
    """Rows in the order that was asked."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"predictions": [_ROW]}]})

    predictions: list[Row] = Field(description="The released rows, in the order that was asked.")


class RunPredictions(BaseModel):
    """Rows of one run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run": "first", "predictions": [_ROW]}]})

    run: str = Field(description="Its name.")
    predictions: list[Row] = Field(description="The released rows, in the order that was asked.")


class Health(BaseModel):
    """That the server answers."""

    status: str = Field(description="ok, whenever there is an answer.")


class PrivacyOfRun(BaseModel):
    """The guarantee of one run."""

    run: str
    guarantee: dict[str, Any]


class Privacy(BaseModel):
    """The guarantee, and what may still be spent."""

    fresh_releases: bool = Field(description="Whether new records are released at all.")
    budget: dict[str, Any] | None = Field(
        description="Limit, spent and remaining epsilon of this server and of its data set. Null without a "
        "key that may ask for releases."
    )
    runs: list[PrivacyOfRun] = Field(description="Each run's name and guarantee, with the statement.")


class Complaint(BaseModel):
    """Fixed words, which repeat nothing of the question."""

    kind: str
    message: str


class Refused(BaseModel):
    """Why there is no answer."""

    error: Complaint


_ALL = {
    400: "No request of HTTP/1.1, or more than one at a time over a connection.",
    404: "No such page or run.",
    405: "This page takes another method.",
    500: "The server failed; its log says where.",
}
_QUESTION = {
    401: "No key, or an unknown one.",
    403: "A row of another subject, or a release that this key may not ask for.",
    408: "The body came too slowly.",
    409: "It would need a fresh release, for which there is no budget.",
    413: "Too large.",
    415: "The body does not say that it is JSON.",
    422: "Not a question.",
    503: "The ledger cannot be reached, or the run has changed: there is no fresh release.",
    429: "Too many are under way, or this key asks too often; Retry-After says when to come back.",
}
_FRAMEWORK: Responses = {status: {"model": Refused, "description": told} for status, told in _ALL.items()}
PRIVACY: Responses = {
    200: {"model": Privacy, "description": "Guarantees and budgets."},
    401: {"model": Refused, "description": "An unknown key."},
    429: {"model": Refused, "description": "This key asks too often; Retry-After says when to come back."},
    503: {"model": Refused, "description": "The ledger cannot be reached, so nobody can say what is left."},
    **_FRAMEWORK,
}
HEALTH: Responses = {200: {"model": Health, "description": "It does."}, **_FRAMEWORK}
METRICS: Responses = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The counters."},
    **_FRAMEWORK,
}

_SCHEMAS = "#/components/schemas/"
_RUN = {
    "name": "run",
    "in": "query",
    "required": False,
    "description": "The run's name; may be left out if there is one.",
    "schema": {"type": "string"},
}


@dataclass(frozen=True)
class _Operation:
    """A page that the gate answers, so that FastAPI does not know of it."""

    name: str
    summary: str
    question: type[BaseModel]
    answer: type[BaseModel]
    parameters: tuple[dict[str, Any], ...] = ()

    def told(self, parts: dict[str, Any], *, keyed: bool) -> dict[str, Any]:
        """Return it as OpenAPI has it; the shapes that it names are added to ``parts``."""
        said, refused = sorted((_QUESTION | _ALL).items()), _content(Refused, parts)
        responses = {str(status): {"description": told, "content": refused} for status, told in said}
        return {
            "operationId": self.name,
            "summary": self.summary,
            "parameters": list(self.parameters),
            "requestBody": {"required": True, "content": _content(self.question, parts)},
            "responses": {
                "200": {"description": "The rows.", "content": _content(self.answer, parts)},
                **responses,
            },
            **({"security": [{"key": []}]} if keyed else {}),
        }


_OPERATIONS = {
    PREDICT: _Operation("predict", "Released rows of some ids", PredictQuestion, RunPredictions),
    INVOCATIONS: _Operation("invocations", "The same in MLflow's shape", Invocation, Predictions, (_RUN,)),
}


def complete(app: FastAPI, *, keyed: bool) -> dict[str, Any]:
    """Add to an application's description the pages that its gate answers; return it."""
    described = app.openapi()
    parts = described["components"]["schemas"]
    questions = {path: {"post": one.told(parts, keyed=keyed)} for path, one in _OPERATIONS.items()}
    described["paths"] = questions | described["paths"]
    if keyed:
        described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return described


def _content(kind: type[BaseModel], parts: dict[str, Any]) -> dict[str, Any]:
    schema = kind.model_json_schema(ref_template=_SCHEMAS + "{model}")
    parts |= schema.pop("$defs", {}) | {kind.__name__: schema}
    return {"application/json": {"schema": {"$ref": _SCHEMAS + kind.__name__}}}
