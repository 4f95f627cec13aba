"""Error responses, and bodies of requests and responses.

Errors are fixed texts by name, which repeat no value of the request. From the bodies, pydantic models,
FastAPI makes the OpenAPI description.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SkipValidation,
    StrictBool,
    StrictInt,
    StrictStr,
)
from pydantic.json_schema import SkipJsonSchema

_SHOWN = 20  # positions of unknown ids in a message
_NAMES = 8  # of columns in a message
_CLOSE = {"Connection": "close"}
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_KINDS = {  # status and kind of each error
    "malformed_request": (400, "BadRequest"),
    "missing_key": (401, "Unauthorized"),
    "forbidden_row": (403, "Forbidden"),  # the row of another subject, or one that does not exist
    "release_forbidden": (403, "Forbidden"),
    "unknown_endpoint": (404, "NotFound"),
    "unknown_run": (404, "NotFound"),
    "wrong_method": (405, "WrongMethod"),
    "request_timeout": (408, "TooSlow"),
    "release_required": (409, "NeedsRelease"),
    "ids_not_found": (409, "NeedsRelease"),
    "pair_ids_not_found": (409, "NeedsRelease"),
    "other_model": (422, "OtherModel"),
    "budget_exhausted": (409, "NoBudget"),
    "too_many_ids": (413, "TooLarge"),
    "body_too_large": (413, "TooLarge"),
    "unsupported_media_type": (415, "MediaType"),
    "invalid_body": (422, "Malformed"),
    "other_features": (422, "InvalidFeatures"),
    "no_features": (422, "InvalidFeatures"),
    "no_graph": (422, "InvalidGraph"),
    "server_busy": (429, "Overload"),
    "rate_limited": (429, "RateLimit"),
    "internal_error": (500, "Failed"),
    "ledger_unavailable": (503, "NoLedger"),
    "run_changed": (503, "Changed"),
}
_TEXTS = {
    "malformed_request": "Not a valid HTTP/1.1 request. Send the length of the body once, and a head of at "
    "most 16 KiB.",
    "missing_key": "A valid API key is required. Send the header `Authorization: Bearer KEY`.",
    "forbidden_row": "A row is only returned to its own subject, and this key is not valid for all rows of "
    "the request.",
    "release_forbidden": "This key may not make new releases. Use one that was made with `graphveil keys "
    "FILE --releases`.",
    "unknown_endpoint": "There is no such endpoint. GET /docs lists them.",
    "unknown_run": "Set `run` to one of the runs that GET /v1/privacy lists. Models of pairs answer at "
    "/v1/pairs, and other runs at /v1/predict.",
    "wrong_method": "This endpoint needs another method. GET /docs lists them.",
    "request_timeout": "The request did not arrive in time.",
    "release_required": "New records, columns other than id, and unknown ids need a new release, which this "
    "server does not make for this request. Run `graphveil predict RUN --nodes FILE --edges FILE` to make "
    "one.",
    "ids_not_found": "The run does not have the ids at indices {shown} of `ids`.{numbers} New records need "
    "a new release. Run `graphveil predict RUN --nodes FILE --edges FILE` to make one.",
    "pair_ids_not_found": "The model does not have the ids at positions {shown} of the request, counted in "
    "order.",
    "other_model": "Models of links take `pairs` or `ids`, and recommenders take `lists`. GET /docs shows "
    "both.",
    "budget_exhausted": "The remaining privacy budget is too small for this release. GET /v1/privacy shows "
    "it to your key.",
    "too_many_ids": "A request may have {most:,} {what}. Send several requests.",
    "body_too_large": "A body may have {most:,} bytes. Send several requests.",
    "unsupported_media_type": "The body must be JSON. Send the header `Content-Type: application/json`.",
    "invalid_body": "The body does not match the schema of this endpoint{field}. GET /docs shows it.",
    "other_features": "Each x must be {named}{listed}.{bad}",
    "no_features": "The run has no feature columns. Send the records without x.",
    "no_graph": "The ids of records must be all text or all numbers, each listed once, and both ends of "
    "every edge must be ids of records.",
    "server_busy": "Too many requests are being answered. Try again later.",
    "rate_limited": "Too many requests with this key. Try again later.",
    "internal_error": "The server failed. Its log has the class of the error.",
    "ledger_unavailable": "The privacy ledger cannot be reached. Try again later.",
    "run_changed": "The run folder has changed since the server started. Restart the server.",
}
_HEADERS = {
    "malformed_request": _CLOSE,
    "missing_key": {"WWW-Authenticate": "Bearer"},
    "request_timeout": _CLOSE,
    "body_too_large": _CLOSE,
    "server_busy": {"Retry-After": "1"},
    "ledger_unavailable": {"Retry-After": "5"},
}


class RequestError(Exception):
    """An error response.

    Args:
        name: Name of an error of the table.
        headers: Headers of the response, in addition to those of the table.
        values: Values of the server for the error text; never a value of the request.
    """

    def __init__(self, name: str, headers: Mapping[str, str] | None = None, **values: object) -> None:
        self.status, self.kind = _KINDS[name]
        self.message = _TEXTS[name].format_map(defaultdict(str, values))
        self.headers = {**_HEADERS.get(name, {}), **(headers or {})}
        super().__init__(self.message)

    @property
    def body(self) -> bytes:
        return to_json_bytes({"error": {"kind": self.kind, "message": self.message}})


def to_json_bytes(record: object) -> bytes:
    """Return a record as JSON, the same bytes each time."""
    return _ENCODER.encode(record).encode()


def invalid_body(*fields: object) -> RequestError:
    """Return the error for a body that does not match; of its fields only names of the schema are shown."""
    ours = {name for body in (PredictRequest, PairsRequest) for name in body.model_fields}
    named = ", ".join(f"`{one}`" for one in fields if one in ours)
    return RequestError("invalid_body", field=f" at {named}" if named else "")


def ids_not_found(positions: Sequence[int], *, quoted: bool) -> RequestError:
    numbers = ' The ids of this run are numbers: send 7 and not "7".' if quoted else ""
    return RequestError("ids_not_found", shown=_shown(positions), numbers=numbers)


def pair_ids_not_found(positions: Sequence[int]) -> RequestError:
    return RequestError("pair_ids_not_found", shown=_shown(positions))


def _shown(positions: Sequence[int]) -> str:
    more = f" and {len(positions) - _SHOWN:,} more" if len(positions) > _SHOWN else ""
    return ", ".join(str(position) for position in positions[:_SHOWN]) + more


def other_features(width: int, names: Sequence[str], wrong: Sequence[str] = ()) -> RequestError:
    """Return the error for new records whose features differ from those of the run.

    The columns of the run are public.

    Args:
        wrong: Columns that are missing, or whose values cannot be read.
    """
    listed = f"a list of {width:,} numbers in the order of the training's columns"
    named = f"an object with a value for each of the {len(names):,} columns {_quoted(names)} and no other"
    bad = f" Missing or of a wrong type: {_quoted(wrong)}." if wrong else ""
    return RequestError("other_features", named=f"{named}, or " if names else "", listed=listed, bad=bad)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMES])) + (" ..." if len(names) > _NAMES else "")


LARGEST = 1e15  # of a feature: a network's sums of squares stay finite in 32 bits, and so does its answer


def _whole(one: object) -> object:
    """Return 7 for 7.0: JSON schemas count it as an integer."""
    return int(one) if isinstance(one, float) and one.is_integer() else one


_Whole = Annotated[StrictInt, Field(ge=-(2**63), lt=2**64), BeforeValidator(_whole)]
Identity = _Whole | Annotated[StrictStr, Field(max_length=1000)]
_Ids = Annotated[list[Identity], Field(min_length=1)]
RunName = Annotated[
    str | SkipJsonSchema[None], Field(description="Name of the run. Optional if the server has only one.")
]
_Feature = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]


_EXAMPLES: list[JsonValue] = [
    {"ids": ["u17", "u4"]},
    {"records": [{"id": "n1", "x": [0.5, 2]}, {"id": "n2", "x": [0, 1]}], "edges": [["n1", "n2"]]},
    {"records": [{"id": "n1", "x": {"age": 41, "city": "Bonn"}}]},
]


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewNodeRecord(_RequestBody):
    """One node: its id, and its features by column name, or in the order of the training's columns.

    A run without feature columns needs none.
    """

    id: Identity
    x: list[_Feature] | dict[str, StrictBool | _Feature | StrictStr | list[_Feature] | None] | None = None


class PredictRequest(_RequestBody):
    """Ids of nodes of one run, or new records, which need a new release."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": _EXAMPLES,
            "oneOf": [
                {"required": ["ids"], "not": {"anyOf": [{"required": ["records"]}, {"required": ["edges"]}]}},
                {"required": ["records"], "not": {"required": ["ids"]}},
            ],
        }
    )

    ids: _Ids | SkipJsonSchema[None] = Field(
        default=None,
        description="Ids of predictions.parquet. Where all of them are text, a number means the id that is "
        'spelled like it: 7 means "7".',
    )
    run: RunName = None
    # The items are read by a release, if there is to be one.
    records: list[SkipValidation[NewNodeRecord]] | SkipJsonSchema[None] = Field(
        default=None,
        json_schema_extra={"minItems": 1},
        description="New records instead of ids. x holds the features: an object of values by column name, "
        "in any order, or a list of numbers in the order of the training's columns. Leave x out if the "
        "training had no feature columns. Predicting them needs a new release, which is charged once, where "
        "the operator allowed a budget for it.",
    )
    edges: list[SkipValidation[tuple[Identity, Identity]]] | SkipJsonSchema[None] = Field(
        default=None, description="Edges of new records, as pairs of their ids."
    )

    @property
    def needs_new_release(self) -> bool:
        if (self.ids is None) == (self.records is None) or (self.ids is not None and self.edges is not None):
            raise invalid_body("ids", "records", "edges")
        return self.records is not None


_Pair = Annotated[list[Identity], Field(min_length=2, max_length=2)]


class PairsRequest(_RequestBody):
    """Pairs to score, nodes whose best candidates are wanted, or lists of items to recommend for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"pairs": [["u17", "u4"]]},
                {"ids": ["u17"], "k": 3},
                {"lists": [["game 1", "game 7"]], "k": 3},
            ],
            "oneOf": [{"required": ["pairs"]}, {"required": ["ids"]}, {"required": ["lists"]}],
        }
    )

    pairs: Annotated[list[_Pair], Field(min_length=1)] | SkipJsonSchema[None] = Field(
        default=None, description="Pairs of node ids, for models of links."
    )
    ids: _Ids | SkipJsonSchema[None] = Field(
        default=None, description="Node ids whose best candidates are returned, for models of links."
    )
    lists: Annotated[list[list[Identity]], Field(min_length=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="Lists of item ids, for recommenders: one list for each user. They are not stored, and "
        "their items are not recommended again.",
    )
    k: Annotated[StrictInt, Field(ge=1, le=1000)] = Field(
        default=10, description="Number of candidates per node or list."
    )
    run: RunName = None

    @property
    def known(self) -> str:
        found = [name for name in ("pairs", "ids", "lists") if getattr(self, name) is not None]
        if len(found) != 1:
            raise invalid_body("pairs", "ids", "lists")
        return found[0]


class ScoredCandidate(BaseModel):
    """A node or an item, with its score."""

    id: int | str
    score: float


class PairsResponse(BaseModel):
    """Scores of pairs, or candidates, in the order of the request."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"run": "links", "probabilities": [0.75]},
                {"run": "links", "candidates": [[{"id": "u4", "score": 2.5}]]},
            ]
        }
    )

    run: str = Field(description="The name of the run.")
    probabilities: list[float] | SkipJsonSchema[None] = Field(
        default=None, description="Probability of each pair of the request that it is an edge."
    )
    candidates: list[list[ScoredCandidate]] | SkipJsonSchema[None] = Field(
        default=None, description="Best candidates of each node or list, best first."
    )


class PredictionRow(BaseModel):
    """One row of predictions.parquet: a class with the probability p_CLASS of each, or a predicted number."""

    model_config = ConfigDict(extra="allow")

    node: int | str
    prediction: str | float


_ROW: dict[str, JsonValue] = {"node": "u17", "prediction": "t2", "p_t0": 0.125, "p_t1": 0.25, "p_t2": 0.625}


class PredictionsResponse(BaseModel):
    """Rows of one run, in the order of the request."""

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

    new_releases: bool = Field(description="Whether the server can make new releases.")
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


STATUS_DESCRIPTIONS = {
    400: "Not a valid HTTP/1.1 request.",
    401: "No key, or an unknown key.",
    403: "A row of another subject, or a new release with a key that may not make one.",
    404: "Unknown endpoint or run.",
    405: "Wrong method.",
    408: "The request did not arrive in time.",
    409: "Needs a new release: unknown ids, other columns, or new records without a sufficient budget.",
    413: "The body is too large, or has too many ids.",
    415: "The body is not declared as JSON.",
    422: "The body does not match the schema, or new records have other features or are no graph.",
    429: "Too many requests; Retry-After states when to send it again.",
    500: "The server failed; its log has the class of the error.",
    503: "The ledger cannot be reached, or the run folder has changed.",
}
PREDICTION_ERRORS = (401, 403, 408, 409, 413, 415, 422, 429)


def responses(answer: type[BaseModel] | None, *errors: int) -> dict[int | str, dict[str, Any]]:
    """Return the responses of an endpoint: its answer, its errors, and those of every endpoint."""
    text: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    found: dict[int | str, dict[str, Any]] = {200: text if answer is None else {"model": answer}}
    found[200]["description"] = "The response."
    for status in sorted({400, 404, 405, 500, 503, *errors}):
        found[status] = {"model": ErrorResponse, "description": STATUS_DESCRIPTIONS[status]}
    return found
