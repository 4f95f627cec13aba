"""Error responses: fixed texts by status, which repeat no value of the request."""

import json
import math
from collections.abc import Mapping, Sequence

Headers = Mapping[str, str]
_SHOWN = 20  # positions of unknown ids in a message
_NAMES = 8  # of columns in a message


class RequestError(Exception):
    """An error response.

    Args:
        status: of the response.
        kind: a word for programs.
        message: what is wrong, why, and what to do; never a value of the request.
        headers: of the response.
    """

    def __init__(self, status: int, kind: str, message: str, headers: Headers | None = None) -> None:
        """Keep the parts."""
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        """The JSON object that is sent."""
        return to_json_bytes({"error": {"kind": self.kind, "message": self.message}})


def to_json_bytes(record: object) -> bytes:
    """Return a record as JSON, the same bytes each time."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def invalid_body() -> RequestError:
    """Return that a body does not match the schema."""
    return RequestError(422, "Malformed", "The body does not match the schema of this endpoint, see /docs.")


def release_required() -> RequestError:
    """Return that an answer would query private data."""
    return RequestError(
        409,
        "NeedsRelease",
        "New records, columns other than id, and unknown ids need a new release, which this server does not "
        "make for this request. Run `graphveil predict RUN --nodes FILE --edges FILE` to make one.",
    )


def ids_not_found(positions: Sequence[int], *, quoted: bool) -> RequestError:
    """Return that the run does not have some ids, by their positions in the request."""
    shown = ", ".join(str(position) for position in positions[:_SHOWN])
    more = f" and {len(positions) - _SHOWN:,} more" if len(positions) > _SHOWN else ""
    numbers = ' The ids of this run are numbers: send 7 and not "7".' if quoted else ""
    return RequestError(
        409,
        "NeedsRelease",
        f"The run does not have the ids at positions {shown}{more}, counted from 0.{numbers} New records "
        "need a new release. Run `graphveil predict RUN --nodes FILE --edges FILE` to make one.",
    )


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
    return RequestError(
        422, "InvalidFeatures", f"Each x must be {f'{named}, or ' if names else ''}{listed}.{bad}"
    )


def no_features() -> RequestError:
    """Return that new records have features, and the run has none."""
    return RequestError(422, "InvalidFeatures", "The run has no feature columns. Send the records without x.")


def no_graph() -> RequestError:
    """Return that new records and their edges are no graph."""
    return RequestError(
        422,
        "InvalidGraph",
        "The ids of records must be all text or all numbers, each listed once, and both ends of every edge "
        "must be ids of records.",
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMES])) + (" ..." if len(names) > _NAMES else "")


def budget_exhausted() -> RequestError:
    """Return that a ledger rejects the release."""
    return RequestError(
        409,
        "NoBudget",
        "The remaining privacy budget is too small for this release. GET /v1/privacy shows it to your key.",
    )


def ledger_unavailable() -> RequestError:
    """Return that the ledger cannot be reached, so nothing is released."""
    return RequestError(
        503, "NoLedger", "The privacy ledger cannot be reached. Try again later.", {"Retry-After": "5"}
    )


def run_changed() -> RequestError:
    """Return that the run is not the one whose guarantee is shown."""
    return RequestError(
        503, "Changed", "The run folder has changed since the server started. Restart the server."
    )


def release_forbidden() -> RequestError:
    """Return that a key may not make new releases."""
    return RequestError(
        403,
        "Forbidden",
        "This key may not make new releases. Use one that was made with `graphveil keys FILE --releases`.",
    )


def too_many_ids(most: int) -> RequestError:
    """Return that a request has too many ids."""
    return RequestError(413, "TooLarge", f"A request may have {most:,} ids. Send several requests.")


def missing_key() -> RequestError:
    """Return that a key is missing or unknown."""
    return RequestError(
        401,
        "Unauthorized",
        "A valid API key is required. Send the header `Authorization: Bearer KEY`.",
        {"WWW-Authenticate": "Bearer"},
    )


def forbidden_row() -> RequestError:
    """Return that a row belongs to another subject or does not exist; both have the same text."""
    return RequestError(
        403,
        "Forbidden",
        "A row is only returned to its own subject, and this key is not valid for all rows of the request.",
    )


def body_too_large(most: int) -> RequestError:
    """Return that a body is too large."""
    return RequestError(413, "TooLarge", f"A body may have {most:,} bytes. Send several requests.", _CLOSE)


def request_timeout() -> RequestError:
    """Return that a body did not arrive in time."""
    return RequestError(408, "TooSlow", "The request did not arrive in time.", _CLOSE)


def server_busy() -> RequestError:
    """Return that too many requests are being answered."""
    return RequestError(
        429, "Overload", "Too many requests are being answered. Try again later.", {"Retry-After": "1"}
    )


def rate_limited(wait: float) -> RequestError:
    """Return that a key has sent too many requests."""
    seconds = str(max(1, math.ceil(wait)))
    return RequestError(
        429, "RateLimit", "Too many requests with this key. Try again later.", {"Retry-After": seconds}
    )


def malformed_request() -> RequestError:
    """Return that what came over a connection is not one request at a time in HTTP/1.1."""
    return RequestError(
        400,
        "BadRequest",
        "Not a valid HTTP/1.1 request. Send one at a time, with a head of at most 16 KiB.",
        _CLOSE,
    )


def internal_error() -> RequestError:
    """Return that the server failed."""
    return RequestError(500, "Failed", "The server failed. Its log has the class of the error.")


def unsupported_media_type() -> RequestError:
    """Return that a body is not declared as JSON."""
    return RequestError(
        415, "MediaType", "The body must be JSON. Send the header `Content-Type: application/json`."
    )


def from_status(status: int, headers: Headers | None = None) -> RequestError:
    """Return the error for what the web framework rejects itself."""
    known = {
        404: ("NotFound", "There is no such endpoint. GET /docs lists them."),
        405: ("WrongMethod", "This endpoint needs another method. GET /docs lists them."),
    }
    if status not in known:
        return invalid_body()
    kind, message = known[status]
    return RequestError(status, kind, message, headers)


_CLOSE = {"Connection": "close"}
