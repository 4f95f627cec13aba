"""API keys: a file of their hashes, each with the subjects whose rows it may read."""

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock
from pydantic import Field, ValidationError

from graphveil._util import checks
from graphveil._util.files import can_create, write_atomic
from graphveil.artifacts.schemas import StrictSchema, first_complaint
from graphveil.errors import ConfigError

_MAX_BYTES = 64 << 20
_KEY_BYTES = 32
_MAX_LETTERS = 1000  # of an id


class Key(StrictSchema):
    """One key: the hash of its text, and what it may do.

    Args:
        subjects: ids whose rows it may read under node-level units, as text.
        releases: whether it may make new releases, which spend privacy budget.
    """

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
    """The keys of a file.

    A key is 256 random bits that are made here, so a plain hash cannot be searched. Keys that people choose
    would need a slow hash, and are not supported.
    """

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        """Take keys; without any, every request is rejected."""
        self._by_hash = {key.sha256: key for key in keys}
        self._places = {hashed: place for place, hashed in enumerate(self._by_hash)}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._by_hash)

    def find(self, text: str) -> Key | None:
        """Return the key with this text, or None."""
        return self._by_hash.get(_hash(text))

    def place(self, key: Key) -> int:
        """Return which one it is, from 0 on."""
        return self._places[key.sha256]

    @classmethod
    def read(cls, path: str | Path) -> "Keys":
        """Read a file of keys.

        Raises:
            ConfigError: it is missing, or is not a file of keys.
        """
        return cls(_read(Path(path)).keys)

    @staticmethod
    def add(path: str | Path, subjects: Sequence[str | int] = (), *, releases: bool = False) -> str:
        """Make a key, add its hash to a file, and return the key, which is not stored.

        Raises:
            ConfigError: the file is not a file of keys or cannot be made, or a subject is not an id.
        """
        file, text = Path(path), secrets.token_urlsafe(_KEY_BYTES)
        key = Key(sha256=_hash(text), subjects=[_subject(one) for one in subjects], releases=releases)
        if not file.exists() and not can_create(file):
            raise ConfigError(f"{file} cannot be created. Choose another place.")
        file.parent.mkdir(parents=True, exist_ok=True)
        # Otherwise a key that is added concurrently would be lost.
        with FileLock(file.parent / ".graphveil-keys.lock", mode=0o600):
            known = _read(file).keys if file.exists() else []
            write_atomic(file, (_KeysFile(keys=[*known, key]).model_dump_json(indent=1) + "\n").encode())
        return text


def _subject(one: str | int) -> str:
    """Return an id as the text that a file of keys holds."""
    text = str(one)
    if len(text) > _MAX_LETTERS:
        raise ConfigError(f"A subject has more than {_MAX_LETTERS:,} characters. Use the id of a node.")
    checks.letters(subject=text)
    return text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> _KeysFile:
    """Read and check the file; an error names the field, never its value."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder. Name a file of keys, or make one with `graphveil keys FILE`.")
    if not path.is_file():
        raise ConfigError("There is no such file of keys. Make one with `graphveil keys FILE`.")
    if path.stat().st_size > _MAX_BYTES:
        raise ConfigError(f"The file of keys is larger than {_MAX_BYTES >> 20} MiB.")
    try:
        return _KeysFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ConfigError(
            f"The file of keys: {first_complaint(error)}. Make a new one with `graphveil keys FILE`."
        ) from None
