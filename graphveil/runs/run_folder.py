"""The run folder: ``release/`` is public, ``internal/`` must not be published.

Under node-level privacy units ``per_node/`` contains results for single nodes: row v is only for someone
authorized to access v's record. ``release/`` appears complete at the end or not at all. Until then all files
are in ``internal/work``, from which an interrupted run resumes without spending additional budget. One
process works in a folder: a new run creates ``internal/``, and every run locks ``internal/work``.

Runs in one folder have the same data, which a keyed fingerprint recognizes while a run can be resumed. An
unkeyed digest of private data would distinguish neighboring graphs, so this is an HMAC. It is stored in
``internal/work``, and its key with those of the noise in the user's own state folder. Both are erased when
the release is published.
"""

import csv
import errno
import hashlib
import hmac
import io
import json
import os
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from graphveil._util.files import make_folder, write_atomic
from graphveil.core.keys import KeyStore, ReleaseKey
from graphveil.data.fingerprint import GRAPH_FINGERPRINT_FILE, graph_arrays
from graphveil.errors import (
    ArtifactError,
    ConfigError,
    InputError,
    MissingDependencyError,
    PrivacyError,
    ReleaseError,
)
from graphveil.publish.release_folder import PER_NODE, read_guarantee
from graphveil.publish.results import FinishedRun

if TYPE_CHECKING:
    from graphveil.data import Graph

_FORMAT = {"format": "graphveil-run", "version": 1}
_PACKAGES = (
    *("torch", "numpy", "scipy", "pyarrow", "dp-accounting"),
    *("cryptography", "safetensors", "torch_geometric"),
)
_LONGEST_NAME = 100  # bytes of a default folder's; a file system takes 255 in all
_DIGEST = "sha256"
HISTORY_COLUMNS = ("seed", "model", "stage", "epoch", "train_loss", "val_loss", "val_accuracy")


def default_folder(method: str, dataset: str) -> Path:
    """Return a new folder name under ``runs/`` from method, data and time; no two calls return the same."""
    words = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in dataset)
    short = words.encode()[:_LONGEST_NAME].decode(errors="ignore")
    return Path("runs") / f"{method}-{short}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


class RunFolder:
    """Paths of a run, and the rules for writing them."""

    def __init__(self, root: Path) -> None:
        """Name the paths below a folder, which need not exist."""
        self.root = root
        self.release = root / "release"  # what may be published
        self.per_node = root / PER_NODE  # row v is only for people authorized to access the record of v
        self.internal = root / "internal"  # what must not be published
        self.work = self.internal / "work"  # what a resume needs; gone when the run is complete
        self.data = self.work / "data.json"  # the fingerprint of the data, while a run is left to resume
        self.lock = self.internal / "config.lock.json"
        self.metrics = self.internal / "metrics.json"
        self.columns = self.internal / "columns.json"  # how the columns of the table of nodes became features
        self.receipts = self.internal / "receipts.json"
        self.prediction_charges = self.internal / "prediction_charges"  # a file for each prediction

    @property
    def configuration(self) -> dict[str, Any]:
        """The locked configuration; empty if there is only a release."""
        found: dict[str, Any] = read_json(self.lock).get("configuration", {}) if self.lock.is_file() else {}
        return found

    @property
    def data_options(self) -> dict[str, Any]:
        """The options of the data that the run was trained on; empty if there is only a release."""
        named = ([*name.split(".", 1), value] for name, value in self.configuration.items() if "." in name)
        return {option: value for part, option, value in named if part == "data"}

    @property
    def complete(self) -> bool:
        return self.release.is_dir() and self.metrics.is_file()

    def check(self, configuration: Mapping[str, Any], *, resume: bool) -> None:
        """Raise an error for a folder that contains anything but the run to resume; nothing is written."""
        try:
            held, unused = self.lock.is_file(), self._unused
        except OSError as error:
            raise self._unusable(error) from None
        if unused and not resume:
            return
        if not resume:
            raise ConfigError(
                f"{self.root} exists and is not an empty folder. Choose another --out, or finish the run "
                "in it with --resume."
            )
        if not held:  # a new run would spend what a resumed one does not
            raise ConfigError(
                f"{self.root} does not contain a run to resume. Correct --out, or remove --resume."
            )
        locked, given = self._locked(), json.loads(json.dumps(configuration))
        names = [name for name in sorted({*locked, *given}) if locked.get(name) != given.get(name)]
        if names:
            differing = [name.partition(".")[2] or name for name in names]  # without data. or set.
            raise ConfigError(
                f"{self.root} contains a run with another configuration: {', '.join(differing)} "
                f"{'differs' if len(differing) == 1 else 'differ'}. Resume with the original options, or "
                "choose another --out."
            )

    @property
    def _unused(self) -> bool:
        """Whether there is no folder, an empty one, or what a process left that was killed in ``_make``."""
        if self.lock.exists() or not self.root.exists():
            return not self.root.exists()
        left = (file.name.startswith(f".{self.lock.name}.") for file in self.internal.glob("*"))
        return self.root.is_dir() and {*self.root.iterdir()} <= {self.internal} and all(left)

    @contextmanager
    def opened(
        self, configuration: Mapping[str, Any], *, resume: bool, spent: Callable[[], bool]
    ) -> Iterator[None]:
        """Hold the folder as ``locked`` does; a new run that is rejected leaves no trace.

        Args:
            spent: Called after an error of a new run; whether anything of the data was recorded.
        """
        made = self.missing
        with self.locked(configuration, resume=resume):
            try:
                yield
            except (InputError, PrivacyError, MissingDependencyError):
                if not resume and not spent():
                    forget_data(self)
                    self.drop(made=made)
                raise

    @contextmanager
    def locked(self, configuration: Mapping[str, Any], *, resume: bool = False) -> Iterator[None]:
        """Hold the folder while a run works in it: made by this process alone, or locked and then compared.

        Between ``check`` and this call another process may have come first, so nothing that was seen
        there counts here.
        """
        if not resume:
            self._make(configuration)
        try:
            make_folder(self.work, private=True)
            # The lock ends with the process, also if that is killed.
            lock = FileLock(self.work / "lock", timeout=0, mode=0o600).acquire()
        except Timeout:
            raise ConfigError(
                f"Another process uses {self.root}. Wait until it has ended, or choose another --out."
            ) from None
        except OSError as error:
            raise self._unusable(error) from None
        with lock:
            if resume:
                self.check(configuration, resume=True)
                if self.complete:
                    shutil.rmtree(self.work, ignore_errors=True)  # the lock, which a finished run is without
                    raise ConfigError(
                        f"Another process has finished the run in {self.root} in the meantime. Run the "
                        "command "
                        "with --resume again to see the result."
                    )
            yield

    def _make(self, configuration: Mapping[str, Any]) -> None:
        """Create the folder and lock its configuration; of two concurrent processes one gets an error."""
        content = {**_FORMAT, "configuration": dict(configuration), "versions": versions()}
        try:
            make_folder(self.root)
            make_folder(self.internal, private=True)
            # Under a name of its own, and linked: one of two processes makes the file, and a process that is
            # killed before it leaves a folder in which no run has begun.
            with TemporaryDirectory(prefix=f".{self.lock.name}.", dir=self.internal) as work:
                write_json(Path(work) / self.lock.name, content)
                os.link(Path(work) / self.lock.name, self.lock)
        except FileExistsError:
            raise ConfigError(
                f"Another process has started a run in {self.root}. Choose another --out, or resume that "
                "run with --resume after the process has ended."
            ) from None
        except OSError as error:
            raise self._unusable(error) from None

    @property
    def missing(self) -> tuple[Path, ...]:
        """The run folder and the folders above it that do not exist, the innermost first."""
        return tuple(folder for folder in (self.root, *self.root.parents) if not folder.exists())

    def drop(self, *, made: Sequence[Path]) -> None:
        """Remove what ``locked`` has made, where nothing came of it.

        Args:
            made: Folders that were missing before; those that are empty now are removed.
        """
        for part in self.internal.glob("*"):
            if part.is_dir():
                shutil.rmtree(part, ignore_errors=True)
            elif part != self.lock:
                part.unlink(missing_ok=True)
        self.lock.unlink(missing_ok=True)  # last: without it, no run has begun
        with suppress(OSError):  # it is no longer empty
            self.internal.rmdir()
            for folder in made:
                folder.rmdir()

    def _unusable(self, error: OSError) -> ConfigError:
        shorter = " a shorter" if error.errno == errno.ENAMETOOLONG else " another"
        return ConfigError(f"Cannot write to {self.root} ({error.strerror}). Choose{shorter} --out.")

    def workspace(self, seed: int) -> Path:
        return self.work / f"run-{seed}"

    def staged(self, workspace: Path) -> dict[str, str]:
        return {
            f"{place.name}/{file.name}": _digest(file.read_bytes())
            for place in (self.per_node, self.release)
            for file in sorted((workspace / place.name).glob("*"))
        }

    def publish(self, workspace: Path, digests: Mapping[str, str]) -> None:
        """Move a workspace's whole release into place, in one step, and delete the working state.

        The internal part of the release and the fingerprint of the fitted graph are moved first, so a run
        with a release is complete.

        Args:
            digests: Value of ``staged`` when it was written.

        Raises:
            ArtifactError: A staged file has changed since; nothing more is published.
        """
        for place in (self.internal / GRAPH_FINGERPRINT_FILE, self.per_node, self.release):
            staged = workspace / place.name
            if not staged.exists() or place.exists():
                continue
            changed = {*digests.items()} ^ {*self.staged(workspace).items()}
            if any(file.startswith(f"{place.name}/") for file, _ in changed):
                raise ArtifactError(
                    f"The unpublished files of {place.name}/ in {workspace} were changed after the run wrote "
                    "them, so they are not published. Start a new run in a new folder (what was recorded "
                    "stays charged)."
                )
            staged.replace(place)
        shutil.rmtree(self.work, ignore_errors=True)

    def _locked(self) -> dict[str, Any]:
        try:
            content = json.loads(self.lock.read_bytes())
            found: dict[str, Any] = content["configuration"]
            if {name: content[name] for name in _FORMAT} != _FORMAT or not isinstance(found, dict):
                raise KeyError
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.lock} is damaged or has another version, so the run cannot be resumed. Choose "
                "another --out."
            ) from None
        return found


def versions() -> dict[str, str]:
    from graphveil import __version__

    found = {"graphveil": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write indented JSON, atomically."""
    write_atomic(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise damaged_file_error(path) from None
    if not isinstance(content, dict):
        raise damaged_file_error(path)
    return content


def read_finished_run(path: Path) -> FinishedRun:
    from graphveil.links import find_link_folder

    folder = RunFolder(path)
    if not folder.complete:
        raise ArtifactError(
            f"{path} does not contain a finished run. Pass the folder that train created (--out), or "
            "finish the run with --resume."
        )
    linked = find_link_folder(path)
    lock = _read_plain(folder.lock)
    return FinishedRun(
        path.resolve().name,
        _read_plain(folder.metrics),
        read_guarantee(path).guarantee,
        lock["configuration"],
        lock["versions"],
        {file.stem: _read_plain(file) for file in sorted((folder.internal / "attacks").glob("*.json"))},
        None if linked is None else _read_plain(linked.path / f"{linked.kind}.json").get("curves"),
    )


def _read_plain(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ArtifactError:
        raise ArtifactError(f"{path} cannot be read as a JSON object. Train the run again.") from None


def write_checked(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its own digest, atomically: the state that a resumed run starts from."""
    write_json(path, {**content, _DIGEST: _digest_of(content)})


def read_checked(path: Path) -> dict[str, Any]:
    """Read what ``write_checked`` wrote, to the last bit."""
    content = read_json(path)
    if content.pop(_DIGEST, None) != _digest_of(content):
        raise damaged_file_error(path)
    return content


def damaged_file_error(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged, so the run cannot be resumed. Start a new run with another --out "
        "(what was recorded stays charged)."
    )


def _digest_of(content: Mapping[str, Any]) -> str:
    return _digest(json.dumps(content, sort_keys=True, allow_nan=False).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_history(path: Path, rows: Iterable[Iterable[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HISTORY_COLUMNS)
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())


# -- the data of a folder's runs ---------------------------------------------------------------------------


def check_data(folder: RunFolder, graph: "Graph") -> None:
    """Store the fingerprint of the data of a folder's first run, or compare it if runs are resumed.

    Args:
        graph: The prepared graph, not split yet.

    Raises:
        ConfigError: The data differ from those of the first call, or cannot be compared without the key.
    """
    known = _known_data(folder)
    if known is None:
        key, keys = ReleaseKey.fresh(), KeyStore()
        _write_data(folder, key.release_id, None)
        try:
            keys.save(key)
        except OSError as error:
            folder.data.unlink()
            raise ConfigError(
                f"Cannot store a key in the state folder ({error.strerror}). Set the environment variable "
                "XDG_STATE_HOME to a folder that can be written."
            ) from None
        _write_data(folder, key.release_id, key.digest(*graph_arrays(graph)))
        return
    name, digest = known
    try:
        key = ReleaseKey(name, b"", KeyStore().load(name))
    except ReleaseError:
        raise ConfigError(
            f"The key that identifies the data of {folder.root} is missing, so its runs cannot be "
            "resumed. Start a new run with another --out (what was recorded stays charged)."
        ) from None
    if not hmac.compare_digest(key.digest(*graph_arrays(graph)), digest):
        raise ConfigError(
            f"{folder.root} contains runs on other data, and results on different graphs cannot be "
            "combined. Resume with the original files, or choose another --out (what was recorded "
            "stays charged)."
        )


def forget_data(folder: RunFolder) -> None:
    """Erase the fingerprint and its key, when no run is left that could meet other data."""
    known = _known_data(folder)
    if known is not None:
        _write_data(folder, known[0], None)
        _erase_data(folder, known[0])


def _known_data(folder: RunFolder) -> tuple[str, str] | None:
    """Return the key and the digest of a folder's data; a key without a digest is erased."""
    if not folder.data.exists():
        return None
    content = read_checked(folder.data)
    try:
        key, digest = content["key"], content["digest"]
    except KeyError:
        raise damaged_file_error(folder.data) from None
    if digest is None:  # a process was killed before the key was used, or before it was erased
        _erase_data(folder, key)
        return None
    return key, digest


def _erase_data(folder: RunFolder, key: str) -> None:
    KeyStore().erase(key)
    folder.data.unlink()


def _write_data(folder: RunFolder, key: str, digest: str | None) -> None:
    """Write the record, which names the key before there is one and until it is erased."""
    make_folder(folder.work, private=True)
    write_checked(folder.data, {"key": key, "digest": digest})
