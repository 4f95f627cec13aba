"""The journal of a release: its commitments, so that a resumed run finishes it and never redraws noise.

Commitments are written before noise is drawn. One key is used for one plan and one descriptor per query. A
resume with other ones is rejected, because it would draw the same noise for different data or parameters. The
descriptors are also kept next to the key, which copies of the folder share.

The key of a finished release is erased. The journal recognizes the data by fingerprints under a separate key,
which stays in the folder. A reader of both can test guesses of the edges, so keep both inside the folder.

A snapshot of a training has its tensors, and the settings that they are bound to.
"""

import hmac
import json
import secrets
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from graphveil._util.files import load_checked, save_checked, write_atomic
from graphveil.core.keys import KeyStore, ReleaseKey, canonical
from graphveil.core.noise.random import KEY_BYTES
from graphveil.errors import ArtifactError, ReleaseError

Record = Mapping[str, object]


class Journal(ABC):
    """Store the committed state of a release."""

    durable: ClassVar[bool]  # whether another process may resume from it

    @abstractmethod
    def resume(self, plan: Record) -> ReleaseKey | None:
        """Return the key of the release that was begun here, or None; raise if its plan differs."""

    @abstractmethod
    def begin(self, key: ReleaseKey, plan: Record) -> None:
        """Commit to a new release."""

    @abstractmethod
    def check_fingerprint(self, name: str, fingerprint: Callable[[bytes], str]) -> None:
        """Reject data with another fingerprint than the first data of this name.

        Data with a new name are accepted, unless the release is closed.
        """

    @abstractmethod
    def commit(self, index: int, descriptor: bytes) -> None:
        """Record a query's descriptor, canonical JSON, before its first draw; reject a different one."""

    @abstractmethod
    def load(self, index: int) -> Tensor | None:
        """Return the stored noisy answer of a finished query, or None."""

    @abstractmethod
    def store(self, index: int, answer: Tensor) -> None:
        """Store the noisy answer of a finished query."""

    @abstractmethod
    def close(self) -> None:
        """Erase the key: all queries are answered."""


@dataclass
class MemoryJournal(Journal):
    """A journal with the lifetime of its release: it cannot be resumed."""

    durable: ClassVar[bool] = False

    _descriptors: dict[int, bytes] = field(default_factory=dict, repr=False)

    def resume(self, plan: Record) -> ReleaseKey | None:
        return None

    def begin(self, key: ReleaseKey, plan: Record) -> None:
        if self._descriptors:
            raise ReleaseError("The journal belongs to another release. Use one journal per release.")

    def check_fingerprint(self, name: str, fingerprint: Callable[[bytes], str]) -> None:
        """Accept all data: no other process answers from this journal."""

    def commit(self, index: int, descriptor: bytes) -> None:
        _same(self._descriptors.setdefault(index, descriptor), descriptor)

    def load(self, index: int) -> Tensor | None:
        return None

    def store(self, index: int, answer: Tensor) -> None:
        """Store nothing."""

    def close(self) -> None:
        """Do nothing: the key is lost when the process ends."""


class FolderJournal(Journal):
    """A journal in a run's internal folder; the master key stays in the key store until publication."""

    durable: ClassVar[bool] = True

    def __init__(self, folder: Path, keys: KeyStore | None = None) -> None:
        self._folder = folder
        self._keys = keys or KeyStore()
        self._fingerprint_keys = KeyStore(folder)

    def resume(self, plan: Record) -> ReleaseKey | None:
        """Return the key of the folder's release, without its master key if it is closed."""
        if not self._path.exists():
            return None
        record = self._read()
        _same(str(record["plan"]).encode(), canonical(plan))
        master = b"" if record["closed"] else self._keys.load(record["release_id"])
        if record["closed"]:  # a run interrupted while closing may have left the key
            self._keys.erase(record["release_id"])
        return ReleaseKey(
            record["release_id"], bytes.fromhex(record["nonce"]), master, bool(record["reproducible"])
        )

    def begin(self, key: ReleaseKey, plan: Record) -> None:
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
        record = self._read()
        try:
            key = self._fingerprint_keys.load(record["release_id"])
        except ReleaseError:
            raise ReleaseError(
                "The key with which this folder recognizes its data is missing, so it cannot check that "
                "the data are the same. Start a new run in a new folder, which is charged again."
            ) from None
        computed = fingerprint(key)
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
        if not record["closed"] and not self._keys.bind(record["release_id"], index, descriptor):
            raise ReleaseError(_COPIED)
        self._write(record)

    def load(self, index: int) -> Tensor | None:
        path = self._answer(index)
        if not path.exists():
            return None
        tensors, words = load_checked(path)
        if words != self._own(index):
            raise ArtifactError(
                f"{path.name} in the run's internal folder does not belong to this release. Start a new "
                "run in a new folder, which is charged again; the abandoned release stays charged."
            )
        return tensors["answer"]

    def store(self, index: int, answer: Tensor) -> None:
        save_checked(self._answer(index), {"answer": answer}, self._own(index))

    def close(self) -> None:
        """Mark the release closed, then erase the master key: it can never be redrawn."""
        record = self._read()
        self._write({**record, "closed": True})
        self._keys.erase(record["release_id"])

    @property
    def _path(self) -> Path:
        return self._folder / "release.json"

    def _own(self, index: int) -> dict[str, str]:
        """Return the identity of an answer, which differs for other folders and positions."""
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
                "release.json in the run's internal folder is damaged. Start a new run in a new folder, "
                "which is charged again; the abandoned release stays charged."
            )
        return dict(record)

    def _write(self, record: Record) -> None:
        write_atomic(self._path, json.dumps(record, indent=1).encode())


_FIELDS = {"release_id", "nonce", "reproducible", "closed", "plan", "descriptors", "fingerprints"}
_TABLES = {"descriptors", "fingerprints"}
_RESUMED = (
    "a resumed release would draw the same noise for different data or parameters, and is rejected: resume "
    "with the configuration and files of the first run, or start a new run in a new folder (the abandoned "
    "release stays charged)"
)
_COPIED = (
    "another copy of this folder has answered this query with other data or parameters, and the same noise "
    "would be drawn again: start a new run in a new folder (the abandoned release stays charged)"
)
_FINISHED = (
    "this folder holds a finished release of other data or parameters, whose answers are not about these: "
    "start a new run in a new folder, which is a new release"
)


def _same(known: bytes, descriptor: bytes) -> None:
    if known != descriptor:
        raise ReleaseError(_RESUMED)


Binding = Mapping[str, object]


def save_snapshot(path: Path, tensors: Mapping[str, Tensor], binding: Binding) -> None:
    save_checked(path, tensors, {"binding": _describe_binding(binding)})


def load_snapshot(path: Path, binding: Binding) -> dict[str, Tensor]:
    try:
        tensors, words = load_checked(path)
    except ArtifactError:
        raise ArtifactError(
            f"{path} is not a checkpoint, or is damaged; {_restart_hint(path)}. Queries that have to "
            "be repeated are charged again."
        ) from None
    if words.get("binding") != _describe_binding(binding):
        raise ArtifactError(
            f"{path} was saved with other settings, data or noise. Resume with the original settings, "
            "or use another empty folder (--out, workspace=), which is charged again. To start again "
            f"in this folder: {_restart_hint(path.parent)}"
        )
    return tensors


def _restart_hint(path: Path) -> str:
    """Return a hint that names the file to remove, and the command.

    >>> _restart_hint(Path("my runs/first"))
    "delete it (rm -r 'my runs/first')"
    """
    return f"delete it (rm -r {shlex.quote(str(path))})"


def _describe_binding(binding: Binding) -> str:
    return json.dumps(binding, sort_keys=True)
