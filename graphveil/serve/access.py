"""Who may send requests to a server, how often, and how much they may spend."""

import hashlib
import secrets
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from filelock import FileLock
from pydantic import Field, ValidationError

from graphveil._util import checks
from graphveil._util.files import can_create, write_atomic
from graphveil.errors import ConfigError
from graphveil.publish.schemas import StrictSchema, first_complaint


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one server process; the rate applies to all its workers together.

    Args:
        body_bytes: Largest body of a request; a larger one gets 413.
        ids: Largest number of ids or records in a request; more get 413.
        under_way: Number of requests for predictions that are answered at a time; one more gets 429. A
            request counts from when its body has arrived until its answer is computed.
        connections: Number of connections, with or without a request. For one more, the oldest that waits for
            its client is closed.
        held_bytes: Bytes of bodies in arrival, and as many of large answers that are not read yet. Above it,
            the oldest body gets 408, and a request for another large answer gets 429.
        rate: Requests per second and key on average, or of all callers together for a server without keys;
            more get 429. None for no limit.
        burst: Number of requests that may arrive at once.
        releases: Number of requests that may wait for a new release, of which one is made at a time; more get
            429.
        head_seconds: Seconds between checks that close connections. A connection is closed if it has waited
            since the last check for the head of a request, or for its client to read an answer.
        body_seconds: Seconds until the whole body must have arrived; else 408.
        grace_seconds: Seconds to finish requests when the server stops.

    Raises:
        ConfigError: If a limit is not above zero.
    """

    body_bytes: int = 1 << 20
    ids: int = 10_000
    under_way: int = 64
    connections: int = 256
    held_bytes: int = 64 << 20
    rate: float | None = None
    burst: int = 50
    releases: int = 4
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    grace_seconds: float = 10.0

    def __post_init__(self) -> None:
        for one in fields(self):
            bound = getattr(self, one.name)
            if bound is not None and not bound > 0:
                raise ConfigError(f"{one.name} must be above 0. With 0 every request would be rejected.")


@dataclass(frozen=True, kw_only=True)
class ReleaseBudget:
    """Epsilon that an operator allows for all new releases of a server together.

    Args:
        epsilon: Limit of epsilon, at the delta of the served run.
        ledger: ``NAME``, ``URL`` or ``URL#NAME`` of a registered dataset, which is charged for all graphs
            that callers send.

    Raises:
        ConfigError: If ``epsilon`` is not above 0.
    """

    epsilon: Decimal
    ledger: str

    def __post_init__(self) -> None:
        if not (self.epsilon.is_finite() and self.epsilon > 0):
            raise ConfigError("--allow-releases needs an epsilon above 0, for example 1.0.")


_POLL_SECONDS = 0.001  # the lock is held for microseconds


class RateLimiter:
    """A limit of requests per second and key.

    The generic cell rate algorithm: one instant per key, the time at which its next request would be due if
    they arrived evenly. A request moves it by 1 / rate, and is rejected while it is further ahead than a
    burst of requests. No history is stored.

    Args:
        keys: Number of keys; a server without keys uses place 0.
        file: File where several workers share the instants; None in one process.

    >>> rates = RateLimiter(2.0, 2, keys=1)
    >>> [rates.wait(0, now=now) for now in (10.0, 10.0, 10.0, 10.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, per_second: float, burst: int, *, keys: int, file: Path | None = None) -> None:
        self._step, self._ahead = 1 / per_second, (burst - 1) / per_second
        self._lock = None if file is None else FileLock(file.with_suffix(".lock"), mode=0o600)
        if file is None:
            self._due = np.zeros(keys)
        else:
            with file.open("ab") as opened:
                opened.truncate(8 * keys)
            self._due = np.memmap(file, dtype=np.float64, mode="r+", shape=(keys,)).view(np.ndarray)

    def wait(self, place: int, now: float | None = None) -> float:
        """Return 0 and count a request, or the seconds until the next one is allowed."""
        now = time.monotonic() if now is None else now  # one clock for all processes of a machine
        with nullcontext() if self._lock is None else self._lock.acquire(poll_interval=_POLL_SECONDS):
            due = max(now, float(self._due[place]))
            early = due - now - self._ahead
            if early <= 1e-9:
                self._due[place] = due + self._step
                return 0.0
        return early


_MAX_BYTES = 64 << 20
_KEY_BYTES = 32
_MAX_LETTERS = 1000  # of an id


class Key(StrictSchema):
    """One key: the hash of its text, and what it may do."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    subjects: list[Annotated[str, Field(max_length=_MAX_LETTERS)]] = Field(default=[])
    releases: bool = False

    def authorizes(self, ids: Sequence[int | str]) -> bool:
        """Whether all of these rows may be read with this key.

        >>> Key(sha256="0" * 64, subjects=["17"]).authorizes([17])
        True
        """
        return {str(one) for one in ids} <= set(self.subjects)


class _KeysFile(StrictSchema):
    format: Literal["graphveil-keys"] = "graphveil-keys"
    version: Literal[1] = 1
    keys: list[Key] = Field(default=[])


class Keys:
    """API keys of a file.

    A key is 256 random bits that are made here, so a plain hash cannot be searched. Keys that people choose
    would need a slow hash, and are not supported.
    """

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        """Store the keys.

        Args:
            keys: Keys; without any, every request is rejected.
        """
        self._by_hash = {key.sha256: key for key in keys}
        self._places = {hashed: place for place, hashed in enumerate(self._by_hash)}

    def __len__(self) -> int:
        return len(self._by_hash)

    def find(self, text: str) -> Key | None:
        """Return the key with a text.

        Args:
            text: Text of the key, as a caller sends it.
        """
        return self._by_hash.get(_hash(text))

    def place(self, key: Key) -> int:
        """Return the position of a key, from 0 on.

        Args:
            key: Key of this object.
        """
        return self._places[key.sha256]

    @classmethod
    def read(cls, path: str | Path) -> "Keys":
        """Read a file of keys.

        Args:
            path: File of keys.

        Returns:
            The keys.

        Raises:
            ConfigError: If it is missing, or is not a file of keys.
        """
        return cls(_read(Path(path)).keys)

    @staticmethod
    def add(path: str | Path, subjects: Sequence[str | int] = (), *, releases: bool = False) -> str:
        """Make a key, add its hash to a file, and return the key, which is not stored.

        Args:
            path: File of keys; it is created if it is missing.
            subjects: Ids whose rows the key may read under node-level units.
            releases: Whether the key may make new releases.

        Returns:
            Text of the key.

        Raises:
            ConfigError: If the file is not a file of keys or cannot be created, or a subject is not an id.

        Privacy:
            Under node-level units, a key reads the rows of its subjects. With ``releases`` it spends privacy
            budget.
        """
        file, text = Path(path), secrets.token_urlsafe(_KEY_BYTES)
        texts = [str(one) for one in subjects]
        for subject in texts:
            if len(subject) > _MAX_LETTERS:
                raise ConfigError(
                    f"A subject is longer than {_MAX_LETTERS:,} characters. Use the id of a node as the "
                    "subject."
                )
            checks.letters(subject=subject)
        key = Key(sha256=_hash(text), subjects=texts, releases=releases)
        if not file.exists() and not can_create(file):
            raise ConfigError(f"Cannot create {file}. Choose another path.")
        file.parent.mkdir(parents=True, exist_ok=True)
        # Otherwise a key that is added concurrently would be lost.
        with FileLock(file.parent / ".graphveil-keys.lock", mode=0o600):
            known = _read(file).keys if file.exists() else []
            write_atomic(file, (_KeysFile(keys=[*known, key]).model_dump_json(indent=1) + "\n").encode())
        return text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> _KeysFile:
    """Read and check the file; an error names the field, never its value."""
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder. Pass a file of API keys, or create one with `graphveil keys FILE`."
        )
    if not path.is_file():
        raise ConfigError("The file of API keys does not exist. Create one with `graphveil keys FILE`.")
    if path.stat().st_size > _MAX_BYTES:
        raise ConfigError(
            f"The file of API keys is larger than {_MAX_BYTES >> 20} MiB. Create a smaller one with "
            "`graphveil keys FILE`."
        )
    try:
        return _KeysFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ConfigError(
            f"The file of API keys is not valid: {first_complaint(error)}. Create a new one with "
            "`graphveil keys FILE`."
        ) from None
