"""Run folders as a training leaves them, made of plain data."""

from pathlib import Path

import numpy as np
import torch

from graphveil.core.events import Gaussian
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.privacy import Guarantee
from graphveil.publish.release_folder import PER_NODE, withheld_files, write_release
from graphveil.publish.schemas import Snapshot

SECRET = "xyzzy-4711"
UNITS = {
    "undirected-edge": UndirectedEdge(),
    "node-record": NodeRecord(),
    "node-bounded-degree": NodeBoundedDegree(max_degree=9),
}
IDS = ("ann", "bob", "cem")
PROBA = torch.tensor([[0.1, 0.9], [0.75, 0.25], [0.5, 0.5]])


def run_of(unit: str, folder: Path, ids: tuple[str, ...] | None = IDS) -> Path:
    """Write a run folder, with ``per_node`` where the unit withholds predictions."""
    snapshot = Snapshot(
        method="gap",
        parameters={},
        features=2,
        classes=2,
        nodes=3,
        class_names=("no", "yes"),
        guarantee=Guarantee.from_event(UNITS[unit], Gaussian(0.2), delta=1e-6, releases=1),
        state={"w": torch.zeros(2)},
        released={"hop": torch.zeros(3, 2)},
        proba=PROBA,
        ids=None if ids is None else np.array(ids, dtype=object),
    )
    write_release(snapshot, folder / "release", per_node=folder / PER_NODE if withheld_files(unit) else None)
    return folder
