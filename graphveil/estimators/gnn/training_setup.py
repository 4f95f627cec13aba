"""Shared setup of private GNNs: training nodes, batch sizes, and public randomness."""

from dataclasses import replace

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.method import State
from graphveil.estimators.public_sizes import members
from graphveil.estimators.session import Session
from graphveil.training import PrivateSchedule

_BATCHES = 20  # default batch size as a share of the training records


def training_members(graph: Graph, *, metrics: bool = False) -> Tensor:
    """Return the public members of the training groups, with or without a label, bool (N).

    Nothing is selected on validation nodes, so they are training nodes, unless they are counted
    (``metrics``).
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
    """Return the key of public randomness; a resumed run has the same key."""

    def draw() -> State:
        drawn = session.streams.numpy(name).integers(256, size=32, dtype="uint8")
        return {"key": torch.from_numpy(drawn)}

    return session.load_or_compute(name, draw)["key"].numpy().tobytes()
