"""The chain of a data set's entries: each holds the hash of the one before, so that no past is rewritten."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

START = "0" * 64


def canonical(record: Mapping[str, Any]) -> str:
    """Return a record as the one text that stands for it.

    >>> canonical({"b": 1, "a": [2]})
    '{"a":[2],"b":1}'
    """
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)


def link(previous: str, body: str) -> str:
    """Return the hash of an entry: of its text, and of the hash of the entry before it.

    >>> link(START, "{}") == link(START, "{}"), link(START, "{}") == link(link(START, "{}"), "{}")
    (True, False)
    """
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
