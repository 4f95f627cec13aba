"""Non-private training, for public labels and features: keep the best epoch on validation nodes.

Networks are trained on all nodes, or on a hash-based sample by node id. A network of some ten thousand
parameters gains nothing from more than about a hundred thousand nodes, but every epoch takes longer. The rule
is public, applies to every training of a fit, and reads node ids only. Neither the order of a table nor the
other nodes affect the hash of a node. It is for public nodes only; noisy steps on protected records do their
own sampling.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graphveil.data import Graph
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session
from graphveil.estimators.training.objective import Objective
from graphveil.training import TrainingSchedule, train
from graphveil.training.heads import MULTICLASS, TaskHead

MAX_TRAINING_NODES = 1 << 17

_UInt64Array = npt.NDArray[np.uint64]


def sample_training_nodes(view: Graph, nodes: Tensor, max_nodes: int = MAX_TRAINING_NODES) -> Tensor:
    """Return the nodes, or if there are more than the maximum, those whose ids have the smallest hashes.

    >>> graph = Graph.from_edges(torch.eye(9), [0, 1, 2] * 3, [0], [1], directed=False)
    >>> sample_training_nodes(graph, torch.arange(9), max_nodes=4).tolist()
    [3, 4, 5, 7]
    """
    if len(nodes) <= max_nodes:
        return nodes
    hashes = _hashes(nodes.numpy() if view.ids is None else view.ids[nodes.numpy()])
    chosen = np.argsort(hashes, kind="stable")[:max_nodes]
    return nodes[torch.from_numpy(np.sort(chosen))]


def training_sample_description(view: Graph) -> str:
    """Return the description of the sample for a plan; empty if all nodes are used."""
    training = int(view.labeled_in("train").sum())
    if training <= MAX_TRAINING_NODES:
        return ""
    return (
        f"networks learn from {MAX_TRAINING_NODES:,} of the {training:,} labeled training nodes, "
        "chosen by their ids"
    )


def _hashes(ids: npt.NDArray[np.generic]) -> _UInt64Array:
    """Return a 64-bit hash of each id."""
    if ids.dtype.kind in "iu":
        return _splitmix64(ids.astype(np.int64).view(np.uint64))
    digests = (hashlib.blake2b(str(one).encode(), digest_size=8).digest() for one in ids.tolist())
    return np.frombuffer(b"".join(digests), dtype="<u8")


def _splitmix64(values: _UInt64Array) -> _UInt64Array:
    """Return Steele, Lea and Flood's SplitMix64 of each word."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def fit_nonprivate(
    network: nn.Module,
    logits: Callable[[Tensor], Tensor],
    view: Graph,
    schedule: TrainingSchedule,
    session: Session,
    *,
    stage: str,
    generator: torch.Generator,
    checkpoint: str | None = None,
    objective: Objective,
    head: TaskHead = MULTICLASS,
    every: bool = False,
) -> None:
    """Train a network on the training nodes, and load the parameters of its best epoch.

    Args:
        network: Network, trained in place.
        logits: Maps node indices to the network's logits.
        view: Labels and split.
        schedule: Epochs, learning rate, batches.
        session: Progress, history, and the workspace to resume from.
        stage: Name for progress and history.
        generator: Shuffles batches.
        checkpoint: Name in the workspace; by default the stage.
        objective: Class weights, and the metric that selects the epoch; by default that of the schedule.
        head: Meaning of logits, and the labels to learn.
        every: Train on every node, for networks that compute all of them anyway.
    """
    train_nodes, val_nodes = (
        nodes_of(view.labeled_in(part))
        if every
        else sample_training_nodes(view, nodes_of(view.labeled_in(part)))
        for part in ("train", "val")
    )
    if objective.metric is not None:
        schedule = replace(schedule, select=objective.metric, positive=objective.positive_number)
    history = train(
        network,
        lambda index: logits(index).cpu(),
        head.labels(view) if objective.class_weight is None else objective.targets(view),
        train_nodes,
        val_nodes,
        schedule,
        generator=generator,
        on_epoch=session.epochs(stage, schedule.epochs),
        checkpoint=session.checkpoint(checkpoint or stage),
        head=head,
    )
    session.record(stage, history)
