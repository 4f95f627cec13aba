"""Why a question is not answered: fixed words by status, which repeat nothing of what was asked."""

import json
import math
from collections.abc import Mapping, Sequence

Headers = Mapping[str, str]
_SHOWN = 20  # positions of unknown ids in a message
_NAMES = 8  # of columns in a message


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """An answer that says no.

    Args:
        status: of the response.
        kind: a word for programs.
        message: what, why and what to do; never a value of the question.
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
        return as_bytes({"error": {"kind": self.kind, "message": self.message}})


def as_bytes(record: object) -> bytes:
    """Return a record as JSON, the same bytes each time."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def unreadable() -> Refusal:
    """Return that a question is none that this page takes."""
    return Refusal(422, "Malformed", "the body is not a question that this page takes; /docs shows its shape")


def needs_a_release() -> Refusal:
    """Return that an answer would read private data anew."""
    return Refusal(
        409,
        "NeedsRelease",
        "only predictions that are released already are served. New records, columns besides id, and ids "
        "that the run does not know would need a fresh release, which this server does not make of this: "
        "`graphveil predict RUN --nodes .. --edges ..` prices and books one",
    )


def unknown_ids(positions: Sequence[int], *, quoted: bool) -> Refusal:
    """Return that the run does not have some ids, by their positions in the request."""
    shown = ", ".join(str(position) for position in positions[:_SHOWN])
    more = f" and {len(positions) - _SHOWN:,} more" if len(positions) > _SHOWN else ""
    numbers = ' The ids of this run are numbers: send 7 and not "7".' if quoted else ""
    return Refusal(
        409,
        "NeedsRelease",
        f"the run does not have the ids at positions {shown}{more}, counted from 0.{numbers} New records "
        "would need a fresh release, which this server does not make: `graphveil predict RUN` makes one",
    )


def other_features(width: int, names: Sequence[str], wrong: Sequence[str] = ()) -> Refusal:
    """Return that new records have other features than the run; its own are public.

    Args:
        width: number of features of the run.
        names: its feature columns.
        wrong: those of them that are missing, or whose values cannot be read.
    """
    listed = f"a list of {width:,} numbers in the order of the training's columns"
    named = f"an object with a value for each of the {len(names):,} columns {_quoted(names)} and no other"
    bad = f" Missing or of a wrong type: {_quoted(wrong)}." if wrong else ""
    return Refusal(422, "InvalidFeatures", f"Each x must be {f'{named}, or ' if names else ''}{listed}.{bad}")


def no_features() -> Refusal:
    """Return that new records have features, and the run has none."""
    return Refusal(422, "InvalidFeatures", "The run has no feature columns. Send the records without x.")


def no_graph() -> Refusal:
    """Return that new records and their edges are no graph."""
    return Refusal(
        422,
        "InvalidGraph",
        "The ids of records must be all text or all numbers, each listed once, and both ends of every edge "
        "must be ids of records.",
    )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:_NAMES])) + (" ..." if len(names) > _NAMES else "")


def no_budget() -> Refusal:
    """Return that the books refuse."""
    return Refusal(
        409,
        "NoBudget",
        "what is left of the budget does not suffice for this release; /v1/privacy shows it to your key",
    )


def no_ledger() -> Refusal:
    """Return that the ledger cannot be asked, so nothing is released."""
    return Refusal(
        503, "NoLedger", "the ledger cannot be reached, so nothing is released now", {"Retry-After": "5"}
    )


def changed() -> Refusal:
    """Return that the run is not the one whose guarantee is shown."""
    return Refusal(
        503, "Changed", "the run has changed since the server started, so nothing is released; start it anew"
    )


def may_not_release() -> Refusal:
    """Return that a key is not for fresh releases."""
    return Refusal(403, "Forbidden", "this key may not ask for fresh releases")


def too_many_ids(most: int) -> Refusal:
    """Return that a question is about too many."""
    return Refusal(413, "TooLarge", f"a question may name {most:,} ids; ask in several")


def no_key() -> Refusal:
    """Return that a key is missing or unknown."""
    return Refusal(
        401,
        "Unauthorized",
        "this server answers to its keys only; send the header `Authorization: Bearer KEY`",
        {"WWW-Authenticate": "Bearer"},
    )


def not_entitled() -> Refusal:
    """Return that a row belongs to somebody else, or to nobody: the two are not told apart."""
    return Refusal(
        403, "Forbidden", "a row is only for its own subject, and this key is not that of all that were asked"
    )


def too_large(most: int) -> Refusal:
    """Return that a body is too large."""
    return Refusal(413, "TooLarge", f"a body may have {most:,} bytes; ask in several", _CLOSE)


def too_slow() -> Refusal:
    """Return that a body did not arrive in time."""
    return Refusal(408, "TooSlow", "the body did not arrive in time", _CLOSE)


def too_many() -> Refusal:
    """Return that enough is under way."""
    return Refusal(429, "Overload", "too many questions are under way; ask again later", {"Retry-After": "1"})


def too_often(wait: float) -> Refusal:
    """Return that a key has asked too much lately."""
    seconds = str(max(1, math.ceil(wait)))
    return Refusal(429, "RateLimit", "this key asks too often; ask again later", {"Retry-After": seconds})


def no_request() -> Refusal:
    """Return that what came over a connection is not one request at a time in HTTP/1.1."""
    return Refusal(
        400,
        "BadRequest",
        "this is no request: HTTP/1.1, one at a time, with a head of 16 KiB at most",
        _CLOSE,
    )


def failed() -> Refusal:
    """Return that the fault is ours."""
    return Refusal(500, "Failed", "the server failed; its log says where")


def no_json() -> Refusal:
    """Return that a body does not say that it is JSON."""
    return Refusal(415, "MediaType", "the body is JSON; send the header `Content-Type: application/json`")


def of_status(status: int, headers: Headers | None = None) -> Refusal:
    """Return the words for what the web framework refuses itself."""
    known = {
        404: ("NotFound", "there is no such page; /docs lists them"),
        405: ("WrongMethod", "this page takes another method; /docs lists them"),
    }
    if status not in known:
        return unreadable()
    kind, message = known[status]
    return Refusal(status, kind, message, headers)


_CLOSE = {"Connection": "close"}
