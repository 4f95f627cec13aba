"""What all private GNNs have in common: who teaches, in which batches, and whose coins are public."""

from dataclasses import replace

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.method import State
from graphveil.estimators.public_sizes import members
from graphveil.estimators.session import Session
from graphveil.training import PrivateSchedule

_BATCHES = 20  # a batch is this part of those who teach, where nothing else is asked for


def training_members(graph: Graph, *, metrics: bool = False) -> Tensor:
    """Return the public members of the groups that teach, with or without a label, bool (N).

    Nothing is selected on validation nodes, so they teach, too, unless they are counted (``metrics``).
    """
    is_training_member = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for split in ("train",) if metrics else ("train", "val"):
        is_training_member[members(graph, split)] = True
    return is_training_member


def with_batch_size(schedule: PrivateSchedule, records: int) -> PrivateSchedule:
    """Return the schedule with a batch size: by default a twentieth of the records."""
    batch_size = schedule.batch_size
    return replace(schedule, batch_size=-(-records // _BATCHES) if batch_size is None else batch_size)


def public_randomness_key(session: Session, name: str) -> bytes:
    """Return the key of public coins; a run that is resumed has the first one's."""

    def draw() -> State:
        drawn = session.streams.numpy(name).integers(256, size=32, dtype="uint8")
        return {"key": torch.from_numpy(drawn)}

    return session.load_or_compute(name, draw)["key"].numpy().tobytes()
