"""The device's secret, and the random words of its answers: the same ones for the same question and record.

Equal noise on two different records would tell their difference, so the record is part of what the words
depend on; and a survey that is answered again is told nothing new, since the answer is the same to the bit.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphveil.errors import ConfigError
from graphveil.local.collect.nodes import Node, node_text
from graphveil.local.collect.protocol import CollectionProtocol
from graphveil.mechanisms.sampling import Integers, Words

SECRET_BYTES = 32


def client_secret(path: Path | None = None) -> bytes:
    """Return the device's secret, 32 bytes from a file that is made the first time.

    Whoever has it, a node's record and its LDP report can tell whether they belong together, and test every
    record that they think of: it never leaves the device. Without it answers differ at every call, and each
    one tells more; so it is kept as long as its owner answers surveys.

    Args:
        path: by default ``graphveil/device-secret`` in the user's state folder (``XDG_STATE_HOME``).

    Raises:
        ConfigError: the file cannot be read or made, or it is no secret.
    """
    try:
        path = _default() if path is None else path
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except (OSError, RuntimeError) as error:  # the latter where there is no home
        why = error.strerror if isinstance(error, OSError) else "there is no home directory"
        raise ConfigError(
            f"cannot keep the device's secret ({why}); name a file of your own (path=, --secret)"
        ) from None
    return checked_secret(secret)


def checked_secret(secret: bytes) -> bytes:
    """Return a secret.

    Raises:
        ConfigError: it has another size, so it is none that was drawn for this.
    """
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise ConfigError(f"a device's secret is {SECRET_BYTES} random bytes; take one from client_secret()")
    return secret


class ClientRandomness:
    """Words that follow from a secret, a survey, and a node's id and record: HMAC-SHA-256, then SHAKE-256.

    Whoever lacks the secret cannot tell them from random ones.

    Args:
        secret: 32 bytes.
        part: what is randomized; features and label share no words.
        protocol: the public parameters.
        nodes: ids, one for each row.
        records: the bytes of each record.
    """

    def __init__(
        self,
        secret: bytes,
        part: str,
        protocol: CollectionProtocol,
        nodes: Sequence[Node],
        records: Sequence[bytes],
    ) -> None:
        """Derive a key for each row."""
        begin = hmac.new(secret, f"graphveil-answer/1\0{part}\0".encode() + protocol.digest, "sha256")
        self._keys = [_key(begin, node, record) for node, record in zip(nodes, records, strict=True)]

    def reserve_rows(self, rows: Integers) -> None:
        """Serve every row: its words are those of its record, however often it is asked for."""

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        """Return the first words of each row, shape (rows, words_per_row)."""
        size = 8 * words_per_row
        drawn = [hashlib.shake_256(self._keys[row] + b"words").digest(size) for row in rows.tolist()]
        return _as_words(drawn).reshape(len(rows), words_per_row)

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        """Return the two words of a block of each row, shape (rows, 2)."""
        pairs = zip(rows.tolist(), offsets.tolist(), strict=True)
        drawn = [
            hashlib.shake_256(self._keys[row] + b"block" + offset.to_bytes(8, "big")).digest(16)
            for row, offset in pairs
        ]
        return _as_words(drawn).reshape(len(rows), 2)


def _key(begin: hmac.HMAC, node: Node, record: bytes) -> bytes:
    """Return the key of one answer; the length of the id says where it ends."""
    text, code = node_text(node), begin.copy()
    code.update(len(text).to_bytes(8, "big") + text + record)
    return code.digest()


def _as_words(drawn: list[bytes]) -> Words:
    return np.frombuffer(b"".join(drawn), dtype="<u8")


def _default() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "graphveil" / "device-secret"


def _make(path: Path) -> None:
    """Write a fresh secret that only its owner reads, unless another process was first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(own, path)  # whole, and never over one that is there
    except FileExistsError:
        pass
    finally:
        own.unlink()
