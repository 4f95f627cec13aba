"""The memory of a release: what it has committed to, so that a resumed run finishes it and never redraws.

Committing comes before drawing. One key serves one plan and, within it, one descriptor a query; a resume
with any other is refused, because it would draw the same noise for different data or parameters.

A finished release has lost its key, so it recognizes its data by fingerprints under a key of their own, which
stays in the folder: who holds both can test guesses of the edges, so neither may leave it.
"""

import hmac
import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from graphveil._util.files import load_checked, save_checked, write_atomic
from graphveil._util.random import KEY_BYTES
from graphveil.errors import ArtifactError, ReleaseError
from graphveil.release.keys import KeyStore, ReleaseKey, canonical

Record = Mapping[str, object]


class Journal(ABC):
    """Remembers what a release has committed to."""

    durable: ClassVar[bool]  # whether another process may resume from it

    @abstractmethod
    def resume(self, plan: Record) -> ReleaseKey | None:
        """Return the key of the release that was begun here, or None; refuse one of another plan."""

    @abstractmethod
    def begin(self, key: ReleaseKey, plan: Record) -> None:
        """Commit to a new release."""

    @abstractmethod
    def check_fingerprint(self, name: str, fingerprint: Callable[[bytes], str]) -> None:
        """Refuse data whose fingerprint is not that of the first run's data of this name.

        Data of a name that the release has not seen are taken, unless it is closed.
        """

    @abstractmethod
    def commit(self, index: int, descriptor: bytes) -> None:
        """Record a query's descriptor, canonical JSON, before its first draw; refuse a different one."""

    @abstractmethod
    def load(self, index: int) -> Tensor | None:
        """Return a finished query's noisy answer, if there is one."""

    @abstractmethod
    def store(self, index: int, answer: Tensor) -> None:
        """Keep a finished query's noisy answer."""

    @abstractmethod
    def close(self) -> None:
        """All answers are out: forget the key."""


@dataclass
class MemoryJournal(Journal):
    """A journal that lives as long as its release: there is nothing to resume."""

    durable: ClassVar[bool] = False

    _descriptors: dict[int, bytes] = field(default_factory=dict, repr=False)

    def resume(self, plan: Record) -> ReleaseKey | None:
        """Return None."""
        return None

    def begin(self, key: ReleaseKey, plan: Record) -> None:
        """Serve one release only."""
        if self._descriptors:
            raise ReleaseError("this journal belongs to another release; give each release its own")

    def check_fingerprint(self, name: str, fingerprint: Callable[[bytes], str]) -> None:
        """Recognize nothing: no other process answers from here."""

    def commit(self, index: int, descriptor: bytes) -> None:
        """Record the descriptor; one key serves one descriptor."""
        _same(self._descriptors.setdefault(index, descriptor), descriptor)

    def load(self, index: int) -> Tensor | None:
        """Return None: nothing is kept."""
        return None

    def store(self, index: int, answer: Tensor) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing: the key dies with the process."""


class FolderJournal(Journal):
    """A journal in a run's internal folder; the master key stays in the key store until publication."""

    durable: ClassVar[bool] = True

    def __init__(self, folder: Path, keys: KeyStore | None = None) -> None:
        """Take the run's internal folder, and where keys are kept meanwhile."""
        self._folder = folder
        self._keys = keys or KeyStore()
        self._fingerprint_keys = KeyStore(folder)

    def resume(self, plan: Record) -> ReleaseKey | None:
        """Return the key of the folder's release: without its master if it is closed."""
        if not self._path.exists():
            return None
        record = self._read()
        _same(str(record["plan"]).encode(), canonical(plan))
        master = b"" if record["closed"] else self._keys.load(record["release_id"])
        if record["closed"]:  # a run killed while closing may have left the key
            self._keys.erase(record["release_id"])
        return ReleaseKey(
            record["release_id"], bytes.fromhex(record["nonce"]), master, bool(record["reproducible"])
        )

    def begin(self, key: ReleaseKey, plan: Record) -> None:
        """Commit id, nonce and key; the folder holds one release."""
        self._keys.save(key)
        self._fingerprint_keys.save(ReleaseKey(key.release_id, b"", secrets.token_bytes(KEY_BYTES)))
        self._write(
            {
                "release_id": key.release_id,
                "nonce": key.nonce.hex(),
                "reproducible": key.reproducible,
                "closed": False,
                "plan": canonical(plan).decode(),
                "descriptors": {},
                "fingerprints": {},
            }
        )

    def check_fingerprint(self, name: str, fingerprint: Callable[[bytes], str]) -> None:
        """Compare with the fingerprint on disk, or write the first one."""
        record = self._read()
        computed = fingerprint(self._fingerprint_key(record["release_id"]))
        known = record["fingerprints"].get(name)
        if known is None and not record["closed"]:
            record["fingerprints"][name] = computed
            self._write(record)
        elif known is None or not hmac.compare_digest(str(known), computed):
            raise ReleaseError(_FINISHED if record["closed"] else _RESUMED)

    def commit(self, index: int, descriptor: bytes) -> None:
        """Record the descriptor on disk before the first draw."""
        record = self._read()
        known = record["descriptors"].setdefault(str(index), descriptor.decode())
        _same(known.encode(), descriptor)
        self._write(record)

    def load(self, index: int) -> Tensor | None:
        """Return the answer on disk, if the query was finished."""
        path = self._answer(index)
        if not path.exists():
            return None
        tensors, words = load_checked(path)
        if words != self._own(index):
            raise ArtifactError(
                f"{path.name} in the run's internal folder is not an answer of this release; start a new run "
                "in a new folder (the abandoned release stays charged)"
            )
        return tensors["answer"]

    def store(self, index: int, answer: Tensor) -> None:
        """Write the noisy answer; a killed run leaves a whole file or none."""
        save_checked(self._answer(index), {"answer": answer}, self._own(index))

    def close(self) -> None:
        """Mark the release closed, then erase the master key: it can never be redrawn."""
        record = self._read()
        self._write({**record, "closed": True})
        self._keys.erase(record["release_id"])

    def _fingerprint_key(self, release_id: str) -> bytes:
        try:
            return self._fingerprint_keys.load(release_id)
        except ReleaseError:
            raise ReleaseError(
                "the key by which this folder recognizes its data is gone, so it cannot tell whether the "
                "release is about these: start a new run in a new folder, which is a new release"
            ) from None

    @property
    def _path(self) -> Path:
        return self._folder / "release.json"

    def _own(self, index: int) -> dict[str, str]:
        """Return the words by which an answer is known: those of other folders, and places, have others."""
        return {"release": self._read()["release_id"], "index": str(index)}

    def _answer(self, index: int) -> Path:
        return self._folder / f"answer-{index}.safetensors"

    def _read(self) -> dict[str, Any]:
        try:
            record = json.loads(self._path.read_text(encoding="utf-8"))
            missing = _FIELDS - set(record)
            missing |= {name for name in _TABLES - missing if not isinstance(record[name], dict)}
        except (ValueError, TypeError):
            missing = _FIELDS
        if missing:
            raise ArtifactError(
                "release.json in the run's internal folder is damaged; start a new run in a new folder (the "
                "abandoned release stays charged)"
            )
        return dict(record)

    def _write(self, record: Record) -> None:
        write_atomic(self._path, json.dumps(record, indent=1).encode())


_FIELDS = {"release_id", "nonce", "reproducible", "closed", "plan", "descriptors", "fingerprints"}
_TABLES = {"descriptors", "fingerprints"}
_RESUMED = (
    "a resumed release would draw the same noise for different data or parameters, and refuses: resume with "
    "the configuration and files of the first run, or start a new run in a new folder (the abandoned release "
    "stays charged)"
)
_FINISHED = (
    "this folder holds a finished release of other data or parameters, whose answers are not about these: "
    "start a new run in a new folder, which is a new release"
)


def _same(known: bytes, descriptor: bytes) -> None:
    if known != descriptor:
        raise ReleaseError(_RESUMED)
