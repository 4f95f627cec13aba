"""Noise keys: one nonce and one master key per release, one descriptor per query.

The noise of a query is a function of its key, and the key is a function of a *descriptor* that determines the
exact integers and their scale. The same descriptor therefore draws the same noise, which a resumed run
needs, and a different one draws independent noise.
"""

import hashlib
import hmac
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from graphveil._util import checks
from graphveil.core.noise.random import KEY_BYTES
from graphveil.errors import ConfigError, ReleaseError

# Keys are derived from descriptors with these names: another name would change the results of a seed.
NAMES_IN_KEYS = {
    "node-record": "node-owner",
    "node-bounded-degree": "node-promise",
    "local-attributes": "node-features",
    "edge-subset": "private-slot-edge",
    "out_degree_bound": "degree_budget",
    "use_public_edges": "heed_public",
    "labeled": "labelled",
}


@dataclass(frozen=True)
class ReleaseKey:
    """The secrets of one release. ``reproducible`` keys come from a seed and invalidate the guarantee."""

    release_id: str
    nonce: bytes
    master: bytes = field(repr=False)
    reproducible: bool = False

    @property
    def erased(self) -> bool:
        """Whether the master key is erased: the release is closed and its noise cannot be drawn again."""
        return not self.master

    @classmethod
    def fresh(cls) -> "ReleaseKey":
        return cls(secrets.token_hex(16), secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: int, label: str) -> "ReleaseKey":
        seed = checks.plain(seed)
        checks.integer_at_least(0, unsafe_noise_seed=seed)
        parts = [
            hashlib.sha256(f"graphveil/unsafe/{seed}/{label}/{part}".encode()).digest()
            for part in ("id", "nonce", "master")
        ]
        # The id is always new: two runs with one seed are two releases in the privacy ledger.
        return cls(secrets.token_hex(16), parts[1], parts[2], reproducible=True)

    def digest(self, *arrays: torch.Tensor) -> str:
        """Return the keyed digest of private arrays; an unkeyed one would reveal differences."""
        return keyed_digest(self.master, *arrays)

    def query_key(self, descriptor: bytes) -> bytes:
        """Return HMAC(master, nonce || SHA-256(descriptor)) for a descriptor as canonical JSON."""
        return hmac.digest(self.master, self.nonce + hashlib.sha256(descriptor).digest(), "sha256")


def keyed_digest(key: bytes, *arrays: torch.Tensor) -> str:
    """Return HMAC(key, arrays with their types and shapes): without the key it reveals nothing about them."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for array in arrays:
        flat = np.ascontiguousarray(array.numpy())
        mac.update(f"{flat.dtype}{flat.shape}".encode())
        mac.update(flat.data.cast("B") if flat.size else b"")
    return mac.hexdigest()


def canonical(descriptor: object) -> bytes:
    """Return a descriptor as canonical JSON: equal descriptors, and no others, are equal bytes."""
    return json.dumps(descriptor, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


class KeyStore:
    """Master keys of unfinished releases: files that only their owner can read, outside any run folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _state() / "graphveil" / "keys"

    def save(self, key: ReleaseKey) -> None:
        """Write the master key; a release id is written once."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._path(key.release_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key.master)
            file.flush()
            os.fsync(file.fileno())

    def load(self, release_id: str) -> bytes:
        try:
            return self._path(release_id).read_bytes()
        except FileNotFoundError:
            raise ReleaseError(
                f"The noise key of release {release_id} is missing, so the run cannot be resumed. The "
                "release stays charged. Start a new run in a new folder (without --resume), which is "
                "charged again."
            ) from None

    def bind(self, release_id: str, index: int, descriptor: bytes) -> bool:
        """Bind a query to the first descriptor that draws its noise; return whether it is this one.

        A copy of a run folder has the same release, and the descriptors in the folder bind one copy only.
        """
        path = self._path(release_id).with_suffix(f".{index}.query")
        digest = hashlib.sha256(descriptor).hexdigest().encode()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        written = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with written.open("wb") as file:
            file.write(digest)
            file.flush()
            os.fsync(file.fileno())  # before any noise of the query is drawn
        try:
            os.link(written, path)  # all or nothing, and by one process only
        except FileExistsError:
            return path.read_bytes() == digest
        finally:
            written.unlink()
        return True

    def erase(self, release_id: str) -> None:
        """Delete the master key and the data bindings of its queries."""
        self._path(release_id).unlink(missing_ok=True)
        for path in self._folder.glob(f"{release_id}.*.query*"):
            path.unlink(missing_ok=True)

    def _path(self, release_id: str) -> Path:
        if not release_id.isalnum():
            raise ReleaseError("release ids must consist of letters and digits")
        return self._folder / f"{release_id}.key"


def _state() -> Path:
    named = os.environ.get("XDG_STATE_HOME")
    try:
        return Path(named) if named else Path.home() / ".local" / "state"
    except RuntimeError:
        raise ConfigError(
            "There is no home directory to store noise keys in. Set one: export "
            "XDG_STATE_HOME=/path/to/folder"
        ) from None


def check_process(opened: int) -> None:
    """Raise if this process is not the one that opened a release.

    A fork copies memory including the key, and the difference of two sums with equal noise is exact.
    """
    if os.getpid() != opened:
        raise ReleaseError(
            "This release was opened in another process. A forked copy would reuse its noise for "
            "other data, which reveals exact answers. Open a new release in this process, which is "
            "charged again."
        )
