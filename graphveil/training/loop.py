"""The training loop of all models that may use an ordinary optimizer: Adam, validation, checkpoints."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.files import load_checked, save_checked
from graphveil.core.clipping.dpsgd import Adam
from graphveil.training.heads import MULTICLASS, TaskHead
from graphveil.training.metrics import METRICS, metric_value

Logits = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor], Tensor]
State = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class TrainingSchedule:
    """Public configuration of training: duration, learning rate, and epoch selection."""

    epochs: int = 100
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    batch_size: int | None = None  # None: the full training set at once
    decay: Literal["constant", "cosine"] = "constant"
    select: str = "accuracy"  # a metric of validation nodes, "likelihood", or "last"
    positive: int | None = None  # the positive class of two, for the metric; None: the rarer one
    patience: int | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        checks.integer_at_least(1, epochs=self.epochs)
        checks.positive(learning_rate=self.learning_rate)
        checks.non_negative(weight_decay=self.weight_decay)
        checks.one_of(("constant", "cosine"), decay=self.decay)
        checks.one_of((*METRICS, "likelihood", "last"), select=self.select)
        if self.batch_size is not None:
            checks.integer_at_least(2, batch_size=self.batch_size)  # not supported by batch norm: 1
        if self.patience is not None:
            checks.integer_at_least(1, patience=self.patience)


@dataclass(frozen=True)
class EpochRecord:
    """One entry of a training history."""

    epoch: int
    train_loss: float
    val_loss: float
    val_accuracy: float


@dataclass
class _Progress:
    """The state of a loop, apart from its tensors."""

    epoch: int = 0
    best_epoch: int = -1
    best_score: float = float("-inf")


def train(
    network: torch.nn.Module,
    logits: Logits,
    labels: Tensor,
    train_nodes: Tensor,
    val_nodes: Tensor,
    schedule: TrainingSchedule,
    *,
    generator: torch.Generator,
    on_epoch: Callable[[int], None] = lambda epoch: None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 10,
    loss: Loss | None = None,
    should_stop: Callable[[list[EpochRecord]], bool] = lambda history: False,
    head: TaskHead = MULTICLASS,
) -> list[EpochRecord]:
    """Train in place and leave the network with the selected epoch's parameters, in evaluation mode.

    Args:
        network: The parameters to train.
        logits: Maps node indices to logits (B, C); it calls ``network``.
        labels: Classes, int64 (N), or class probabilities (N, C) to imitate; accuracy then uses the mode.
            Another ``head`` may read other labels.
        train_nodes: Node indices to fit.
        val_nodes: Node indices to select the epoch on; if empty, the last epoch is kept.
        schedule: Epochs, learning rate, selection.
        generator: Shuffles the batches; share it with the network's dropout so that a resume is exact.
        on_epoch: Called after each epoch, for progress bars.
        checkpoint: File to save the state to. An existing file is resumed from. The result of a finished
            one is returned immediately.
        checkpoint_every: Epochs between two saves.
        loss: Maps a batch of node indices to the loss of a step, by default the head's loss of
            ``logits``: mean cross entropy.
        should_stop: Called after each epoch; True stops training, and the epoch selected so far is kept.
        head: Interprets logits; accuracy is its score.

    Returns:
        One entry per epoch.
    """
    lowered = loss or (lambda batch: head.loss(logits(batch), labels[batch]))
    optimizer = Adam(network.parameters(), weight_decay=schedule.weight_decay)
    best: State = {}
    progress = _Progress()
    history: list[EpochRecord] = []
    if checkpoint is not None and checkpoint.exists():
        best, progress, history = _load(checkpoint, network, optimizer, generator)
    while progress.epoch < schedule.epochs and not _stopped(schedule, progress) and not should_stop(history):
        train_loss = _epoch(network, lowered, train_nodes, optimizer, schedule, progress.epoch, generator)
        val_loss, accuracy, score = _evaluate(network, logits, labels, val_nodes, head, schedule)
        history.append(EpochRecord(progress.epoch, train_loss, val_loss, accuracy))
        if schedule.select == "last":
            score = float(progress.epoch)
        if len(val_nodes) == 0 or not best or score > progress.best_score:
            best = {k: v.detach().clone() for k, v in network.state_dict().items()}
            progress.best_epoch, progress.best_score = progress.epoch, score
        progress.epoch += 1
        done = progress.epoch == schedule.epochs or _stopped(schedule, progress)
        if checkpoint is not None and (done or progress.epoch % checkpoint_every == 0):
            _save(checkpoint, network, optimizer, generator, best, progress, history)
        on_epoch(progress.epoch)
    network.load_state_dict(best)
    network.eval()
    return history


@torch.no_grad()
def _evaluate(
    network: torch.nn.Module,
    logits: Logits,
    labels: Tensor,
    nodes: Tensor,
    head: TaskHead,
    schedule: TrainingSchedule,
) -> tuple[float, float, float]:
    """Return mean negative log-likelihood, accuracy and score on some nodes; NaN and 0 without nodes."""
    if len(nodes) == 0:
        return math.nan, 0.0, 0.0
    network.eval()
    scores = logits(nodes).contiguous()  # argmax reads rows ten times faster than columns
    wanted = labels[nodes]
    loss, accuracy = float(head.loss(scores, wanted)), head.accuracy(scores, wanted)
    if schedule.select in ("accuracy", "last"):
        return loss, accuracy, accuracy
    if schedule.select == "likelihood":
        return loss, accuracy, -loss
    classes = wanted if wanted.ndim == 1 else wanted.argmax(dim=1)
    return loss, accuracy, metric_value(schedule.select, classes, head.proba(scores), schedule.positive)


def _epoch(
    network: torch.nn.Module,
    lowered: Loss,
    nodes: Tensor,
    optimizer: Adam,
    schedule: TrainingSchedule,
    epoch: int,
    generator: torch.Generator,
) -> float:
    """Run one epoch and return its mean loss."""
    network.train()
    batches = _batches(nodes, schedule.batch_size, generator)
    total = 0.0
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = lowered(batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch ships no annotation for it
        optimizer.step(rate=_rate(schedule, (epoch + step / len(batches)) / schedule.epochs))
        total += float(loss.detach()) * len(batch)
    return total / max(1, len(nodes))


def _batches(nodes: Tensor, size: int | None, generator: torch.Generator) -> list[Tensor]:
    """Return the epoch's batches; a last batch of one node is dropped because of batch norm."""
    if size is None or size >= len(nodes):
        return [nodes]
    shuffled = nodes[torch.randperm(len(nodes), generator=generator)]
    batches: tuple[Tensor, ...] = torch.split(shuffled, size)
    return [batch for batch in batches if len(batch) > 1]


def _rate(schedule: TrainingSchedule, done: float) -> float:
    """Return the learning rate after a share of the steps."""
    share = (1 + math.cos(math.pi * done)) / 2 if schedule.decay == "cosine" else 1.0
    return schedule.learning_rate * share


def _stopped(schedule: TrainingSchedule, progress: _Progress) -> bool:
    return schedule.patience is not None and progress.epoch - 1 - progress.best_epoch >= schedule.patience


# -- checkpoints: safetensors, written atomically, without pickle ----


def _save(
    path: Path,
    network: torch.nn.Module,
    optimizer: Adam,
    generator: torch.Generator,
    best: State,
    progress: _Progress,
    history: list[EpochRecord],
) -> None:
    """Write all state that the next epoch depends on."""
    tensors = {f"network/{k}": v for k, v in network.state_dict().items()}
    tensors |= {f"best/{k}": v for k, v in best.items()}
    tensors |= {f"optimizer/{k}": v for k, v in optimizer.state().items()}
    tensors["generator"] = generator.get_state()
    header = {"progress": json.dumps({**asdict(progress), "history": [asdict(row) for row in history]})}
    save_checked(path, tensors, header)


def _load(
    path: Path, network: torch.nn.Module, optimizer: Adam, generator: torch.Generator
) -> tuple[State, _Progress, list[EpochRecord]]:
    """Restore the loop in place; return the best parameters so far, the progress and the history."""
    tensors, words = load_checked(path)
    record = json.loads(words["progress"])
    network.load_state_dict(_part(tensors, "network/"))
    generator.set_state(tensors["generator"])
    optimizer.restore(_part(tensors, "optimizer/"))
    history = [EpochRecord(**row) for row in record.pop("history")]
    return _part(tensors, "best/"), _Progress(**record), history


def _part(tensors: State, prefix: str) -> State:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
