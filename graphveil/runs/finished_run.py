"""A finished run as others read it: its figures, its guarantee, and what attacks found."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphveil.errors import ArtifactError
from graphveil.privacy import Guarantee
from graphveil.runs.artifacts import RunFolder
from graphveil.runs.results import Summary, interval

ATTACKS = "attacks"


@dataclass(frozen=True)
class FinishedRun:
    """One run folder that is complete.

    Args:
        name: of the folder.
        metrics: what ``train --json`` printed.
        guarantee: that of one run, accounted anew from its events.
        configuration: how it was called.
        versions: of the packages that it ran with.
        attacks: what ``graphveil attack`` found, by attack.
    """

    name: str
    metrics: Mapping[str, Any]
    guarantee: Guarantee
    configuration: Mapping[str, Any]
    versions: Mapping[str, str]
    attacks: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> "FinishedRun":
        """Read a run folder.

        Raises:
            ArtifactError: the folder holds no finished run, or a file of it is damaged.
        """
        from graphveil.artifacts.release_folder import read_guarantee

        folder = RunFolder(path)
        if not folder.complete:
            raise ArtifactError(
                f"{path} holds no finished run; give the folder that train made (--out), or finish it with "
                "--resume"
            )
        found = sorted((folder.internal / ATTACKS).glob("*.json"))
        lock = _read(folder.lock)
        return cls(
            path.resolve().name,
            _read(folder.metrics),
            read_guarantee(path).guarantee,
            lock["configuration"],
            lock["versions"],
            {file.stem: _read(file) for file in found},
        )

    @property
    def group(self) -> str:
        """What runs have in common that differ in their budget alone."""
        mode = "" if self.metrics["mode"] == "strict" else f", {self.metrics['mode']} mode"
        return f"{self.metrics['method']}{mode}"

    @property
    def accuracy(self) -> Summary:
        """Test accuracy; of a single run with Wilson's interval, where the number of test nodes is known."""
        return interval(self.metrics["test_accuracy"], self.metrics.get("tested"))

    @property
    def baseline(self) -> Summary | None:
        """That of the network that reads no edge, if it ran."""
        found = self.metrics["mlp_test_accuracy"]
        return None if found is None else interval(found, self.metrics.get("tested"))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ArtifactError(f"{path} cannot be read as JSON; make the run again") from None
    if not isinstance(found, dict):
        raise ArtifactError(f"{path} does not hold an object; make the run again")
    return found
