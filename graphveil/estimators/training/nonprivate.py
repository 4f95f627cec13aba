"""Training in the clear, where labels and features are public: the best epoch on validation nodes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from graphveil.data import Graph
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session
from graphveil.estimators.training.sample import sample_training_nodes
from graphveil.training import TrainingSchedule, train
from graphveil.training.heads import MULTICLASS, TaskHead


def fit_nonprivate(
    network: nn.Module,
    logits: Callable[[Tensor], Tensor],
    graph: Graph,
    schedule: TrainingSchedule,
    session: Session,
    *,
    stage: str,
    generator: torch.Generator,
    checkpoint: str | None = None,
    head: TaskHead = MULTICLASS,
    every: bool = False,
) -> None:
    """Train a network on the training nodes, and leave it with the weights of its best epoch.

    Args:
        network: trained in place.
        logits: maps node indices to the network's logits, on any device.
        graph: labels and split.
        schedule: epochs, rates, batches.
        session: progress, history, and where an interrupted training resumes.
        stage: what progress and history call it.
        generator: shuffles batches.
        checkpoint: what the workspace calls it, by default as the stage.
        head: what logits mean, and which labels are learned.
        every: learn from every node, however many; for networks that compute all of them anyway.
    """
    train_nodes, val_nodes = (
        nodes_of(graph.mask(part)) if every else sample_training_nodes(graph, nodes_of(graph.mask(part)))
        for part in ("train", "val")
    )
    history = train(
        network,
        lambda index: logits(index).cpu(),
        head.labels(graph),
        train_nodes,
        val_nodes,
        schedule,
        generator=generator,
        on_epoch=session.epochs(stage, schedule.epochs),
        checkpoint=session.checkpoint(checkpoint or stage),
        head=head,
    )
    session.record(stage, history)
