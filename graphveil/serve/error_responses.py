"""Error responses: fixed texts by name, which repeat no value of the request."""

import json
from collections.abc import Mapping, Sequence

_SHOWN = 20  # positions of unknown ids in a message
_NAMES = 8  # of columns in a message
_CLOSE = {"Connection": "close"}
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_ERRORS: dict[str, tuple[int, str, str]] = {  # status, kind, message
    "malformed_request": (
        400,
        "BadRequest",
        "Not a valid HTTP/1.1 request. Send the length of the body once, and a head of at most 16 KiB.",
    ),
    "missing_key": (
        401,
        "Unauthorized",
        "A valid API key is required. Send the header `Authorization: Bearer KEY`.",
    ),
    "forbidden_row": (  # the row of another subject, or one that does not exist
        403,
        "Forbidden",
        "A row is only returned to its own subject, and this key is not valid for all rows of the request.",
    ),
    "release_forbidden": (
        403,
        "Forbidden",
        "This key may not make new releases. Use one that was made with `graphveil keys FILE --releases`.",
    ),
    "unknown_endpoint": (404, "NotFound", "There is no such endpoint. GET /docs lists them."),
    "unknown_run": (404, "NotFound", "Set `run` to one of the runs that GET /v1/privacy lists."),
    "wrong_method": (405, "WrongMethod", "This endpoint needs another method. GET /docs lists them."),
    "request_timeout": (408, "TooSlow", "The request did not arrive in time."),
    "release_required": (
        409,
        "NeedsRelease",
        "New records, columns other than id, and unknown ids need a new release, which this server does not "
        "make for this request. Run `graphveil predict RUN --nodes FILE --edges FILE` to make one.",
    ),
    "ids_not_found": (
        409,
        "NeedsRelease",
        "The run does not have the ids at positions {shown}, counted from 0.{numbers} New records need a new "
        "release. Run `graphveil predict RUN --nodes FILE --edges FILE` to make one.",
    ),
    "budget_exhausted": (
        409,
        "NoBudget",
        "The remaining privacy budget is too small for this release. GET /v1/privacy shows it to your key.",
    ),
    "too_many_ids": (413, "TooLarge", "A request may have {most:,} ids. Send several requests."),
    "body_too_large": (413, "TooLarge", "A body may have {most:,} bytes. Send several requests."),
    "unsupported_media_type": (
        415,
        "MediaType",
        "The body must be JSON. Send the header `Content-Type: application/json`.",
    ),
    "invalid_body": (422, "Malformed", "The body does not match the schema of this endpoint, see /docs."),
    "other_features": (422, "InvalidFeatures", "Each x must be {named}{listed}.{bad}"),
    "no_features": (422, "InvalidFeatures", "The run has no feature columns. Send the records without x."),
    "no_graph": (
        422,
        "InvalidGraph",
        "The ids of records must be all text or all numbers, each listed once, and both ends of every edge "
        "must be ids of records.",
    ),
    "server_busy": (429, "Overload", "Too many requests are being answered. Try again later."),
    "rate_limited": (429, "RateLimit", "Too many requests with this key. Try again later."),
    "internal_error": (500, "Failed", "The server failed. Its log has the class of the error."),
    "ledger_unavailable": (503, "NoLedger", "The privacy ledger cannot be reached. Try again later."),
    "run_changed": (
        503,
        "Changed",
        "The run folder has changed since the server started. Restart the server.",
    ),
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
        name: of an error of the table.
        headers: of the response, with those of the table.
        values: of the server, to put into the message; never a value of the request.
    """

    def __init__(self, name: str, headers: Mapping[str, str] | None = None, **values: object) -> None:
        """Look up the parts."""
        self.status, self.kind, text = _ERRORS[name]
        self.message = text.format(**values)
        self.headers = {**_HEADERS.get(name, {}), **(headers or {})}
        super().__init__(self.message)

    @property
    def body(self) -> bytes:
        """The JSON object that is sent."""
        return to_json_bytes({"error": {"kind": self.kind, "message": self.message}})


def to_json_bytes(record: object) -> bytes:
    """Return a record as JSON, the same bytes each time."""
    return _ENCODER.encode(record).encode()


def ids_not_found(positions: Sequence[int], *, quoted: bool) -> RequestError:
    """Return that the run does not have some ids, by their positions in the request."""
    shown = ", ".join(str(position) for position in positions[:_SHOWN])
    more = f" and {len(positions) - _SHOWN:,} more" if len(positions) > _SHOWN else ""
    numbers = ' The ids of this run are numbers: send 7 and not "7".' if quoted else ""
    return RequestError("ids_not_found", shown=shown + more, numbers=numbers)


def other_features(width: int, names: Sequence[str], wrong: Sequence[str] = ()) -> RequestError:
    """Return that new records have other features than the run; its own are public.

    Args:
        width: number of features of the run.
        names: its feature columns.
        wrong: those of them that are missing, or whose values cannot be read.
    """
    listed = f"a list of {width:,} numbers in the order of the training's columns"
    named = f"an object with a value for each of the {len(names):,} columns {_quoted(names)} and no other"
    bad = f" Missing or of a wrong type: {_quoted(wrong)}." if wrong else ""
    return RequestError("other_features", named=f"{named}, or " if names else "", listed=listed, bad=bad)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMES])) + (" ..." if len(names) > _NAMES else "")
