"""Non-private training, for public labels and features: keep the best epoch on validation nodes."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from graphveil.data import Graph
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session
from graphveil.estimators.training.objective import Objective
from graphveil.estimators.training.sample import sample_training_nodes
from graphveil.training import TrainingSchedule, train
from graphveil.training.heads import MULTICLASS, TaskHead


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
