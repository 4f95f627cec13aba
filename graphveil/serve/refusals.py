"""Why a question is not answered: fixed words by status, which repeat nothing of what was asked."""

import json
from collections.abc import Mapping
from typing import Any

Headers = Mapping[str, str]


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
        "that the run does not know would need a fresh release, which this server never makes: `graphveil "
        "predict RUN --nodes .. --edges ..` prices and books one",
    )


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
    return Refusal(
        429, "Overload", "too many questions are under way; ask again later", {"Retry-After": "1", **_CLOSE}
    )


def failed() -> Refusal:
    """Return that the fault is ours."""
    return Refusal(500, "Failed", "the server failed; its log says where")


def of_status(status: int) -> Refusal:
    """Return the words for what the web framework refuses itself."""
    known: dict[int, Any] = {
        404: ("NotFound", "there is no such page; /docs lists them"),
        405: ("WrongMethod", "this page takes another method; /docs lists them"),
    }
    return Refusal(status, *known[status]) if status in known else unreadable()


_CLOSE = {"Connection": "close"}
