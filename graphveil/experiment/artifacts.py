"""The run folder: ``release/`` may be published, ``internal/`` must not be.

Under units of records ``per_node/`` holds what is for single nodes: row v only for someone entitled to v's
record.
``release/`` appears whole at the very end or not at all. Until then everything lives in
``internal/work``, from which an interrupted run resumes at no further cost.
"""

import csv
import io
import json
import platform
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from graphveil._files import write_atomic
from graphveil.artifacts.release_folder import PER_NODE
from graphveil.errors import ConfigError
from graphveil.models.inference.own_graph import FILE as OWN_GRAPH

_FORMAT = {"format": "graphveil-run", "version": 1}
_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "pyarrow",
    "dp-accounting",
    "cryptography",
    "safetensors",
    "torch_geometric",
)
HISTORY_COLUMNS = ("seed", "model", "stage", "epoch", "train_loss", "val_loss", "val_accuracy")


def default_folder(method: str, dataset: str) -> Path:
    """Return a new folder name under ``runs/`` that says method, data and time."""
    words = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in dataset)
    base = Path("runs") / f"{method}-{words}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (base, *(base.with_name(f"{base.name}-{number}") for number in range(2, 1000)))
    return next(name for name in names if not name.exists())


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run, and the rules for writing them."""

    root: Path

    @property
    def release(self) -> Path:
        """What may be published."""
        return self.root / "release"

    @property
    def per_node(self) -> Path:
        """What a unit of records withholds from the release: row v only for someone entitled to it."""
        return self.root / PER_NODE

    @property
    def internal(self) -> Path:
        """What must not be published."""
        return self.root / "internal"

    @property
    def work(self) -> Path:
        """What a resume needs; gone when the run is complete."""
        return self.internal / "work"

    @property
    def lock(self) -> Path:
        """The configuration that the folder was opened with."""
        return self.internal / "config.lock.json"

    @property
    def metrics(self) -> Path:
        """The figures that ``train --json`` prints."""
        return self.internal / "metrics.json"

    @property
    def complete(self) -> bool:
        """Whether the run has been published."""
        return self.release.is_dir() and self.metrics.is_file()

    def check(self, configuration: Mapping[str, Any], *, resume: bool) -> None:
        """Refuse a folder that holds anything but the run to be resumed; nothing is written.

        Raises:
            ConfigError: the folder is in use, or its configuration differs from the one asked for.
        """
        unused = not self.root.exists() or (self.root.is_dir() and not any(self.root.iterdir()))
        if unused and not resume:
            return
        if not resume:
            raise ConfigError(
                f"{self.root} exists and is not an empty folder; choose another --out, or finish the run "
                "that it holds with --resume"
            )
        if not self.lock.is_file():  # a new run would spend what a resumed one does not
            raise ConfigError(f"{self.root} holds no run to resume; correct --out, or drop --resume")
        differing = _differences(self._locked(), json.loads(json.dumps(configuration)))
        if differing:
            raise ConfigError(
                f"{self.root} holds a run with another configuration: {', '.join(differing)} differ; resume "
                "with the flags of the first call, or choose another --out"
            )

    def open(self, configuration: Mapping[str, Any]) -> None:
        """Create the folder and lock its configuration, unless a resumed run has done so."""
        if not self.lock.exists():
            content = {**_FORMAT, "configuration": dict(configuration), "versions": versions()}
            try:
                self.internal.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_json(self.lock, content)
            except OSError as error:
                raise ConfigError(
                    f"cannot write to {self.root} ({error.strerror}); choose another --out"
                ) from None

    def workspace(self, seed: int) -> Path:
        """Return where the run of a seed keeps its state."""
        return self.work / f"run-{seed}"

    def publish(self, workspace: Path) -> None:
        """Move a workspace's whole release into place, in one step, and drop the working state.

        What is withheld from it goes first, and what recognises the fitted graph: a run that has its release
        lacks nothing.
        """
        for place in (self.internal / OWN_GRAPH, self.per_node, self.release):
            staged = workspace / place.name
            if staged.exists() and not place.exists():
                staged.replace(place)
        shutil.rmtree(self.work, ignore_errors=True)

    def _locked(self) -> dict[str, Any]:
        try:
            content = json.loads(self.lock.read_text(encoding="utf-8"))
            found: dict[str, Any] = content["configuration"]
            if {name: content[name] for name in _FORMAT} != _FORMAT or not isinstance(found, dict):
                raise KeyError
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.lock} is damaged or of another version, so the run cannot be resumed; choose "
                "another --out"
            ) from None
        return found


def versions() -> dict[str, str]:
    """Return the versions that a run was made with."""
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


def read_json(path: Path) -> Any:
    """Read JSON that this library wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_history(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write training histories as CSV, atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HISTORY_COLUMNS)
    writer.writerows(rows)
    write_atomic(path, text.getvalue().encode())


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    names = sorted(set(ours) | set(theirs))
    return [name.partition(".")[2] or name for name in names if ours.get(name) != theirs.get(name)]
