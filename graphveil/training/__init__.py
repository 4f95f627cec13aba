"""Training without privacy: the loop of all models that may use an ordinary optimizer, heads and metrics."""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
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
    """The state of a loop, apart from the network and the optimizer."""

    epoch: int = 0
    best_epoch: int = -1
    best_score: float = float("-inf")
    history: list[EpochRecord] = field(default_factory=list)
    best: State = field(default_factory=dict)  # parameters of the best epoch


def copied_state(network: torch.nn.Module) -> State:
    """Return copies of a network's parameters by name."""
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


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
        logits: Maps node indices to logits (B, C); it calls ``network``.
        labels: Classes, int64 (N), or class probabilities (N, C) to imitate; accuracy then uses the mode.
            Another ``head`` may read other labels.
        val_nodes: Node indices to select the epoch on; if empty, the last epoch is kept.
        generator: Shuffles the batches; share it with the network's dropout so that a resume is exact.
        checkpoint: File to save the state to. An existing file is resumed from. The result of a finished
            one is returned immediately.
        loss: Maps a batch of node indices to the loss of a step, by default the head's loss of ``logits``.
        should_stop: Called after each epoch; True stops training, and the epoch selected so far is kept.
    """
    lowered = loss or (lambda batch: head.loss(logits(batch), labels[batch]))
    optimizer = Adam(network.parameters(), weight_decay=schedule.weight_decay)
    progress = _Progress()
    if checkpoint is not None and checkpoint.exists():
        progress = _load(checkpoint, network, optimizer, generator)
    history = progress.history

    def finished() -> bool:
        waited = progress.epoch - 1 - progress.best_epoch
        impatient = schedule.patience is not None and waited >= schedule.patience
        return impatient or progress.epoch >= schedule.epochs

    while not finished() and not should_stop(history):
        train_loss = _epoch(network, lowered, train_nodes, optimizer, schedule, progress.epoch, generator)
        val_loss, accuracy, score = _evaluate(network, logits, labels, val_nodes, head, schedule)
        history.append(EpochRecord(progress.epoch, train_loss, val_loss, accuracy))
        if schedule.select == "last":
            score = float(progress.epoch)
        if len(val_nodes) == 0 or not progress.best or score > progress.best_score:
            progress.best = copied_state(network)
            progress.best_epoch, progress.best_score = progress.epoch, score
        progress.epoch += 1
        if checkpoint is not None and (finished() or progress.epoch % checkpoint_every == 0):
            _save(checkpoint, network, optimizer, generator, progress)
        on_epoch(progress.epoch)
    network.load_state_dict(progress.best)
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
    share = (1 + math.cos(math.pi * done)) / 2 if schedule.decay == "cosine" else 1.0
    return schedule.learning_rate * share


# -- checkpoints: safetensors, written atomically, without pickle ----


def _save(
    path: Path, network: torch.nn.Module, optimizer: Adam, generator: torch.Generator, progress: _Progress
) -> None:
    tensors = {f"network/{k}": v for k, v in network.state_dict().items()}
    tensors |= {f"best/{k}": v for k, v in progress.best.items()}
    tensors |= {f"optimizer/{k}": v for k, v in optimizer.state().items()}
    tensors["generator"] = generator.get_state()
    record = asdict(replace(progress, best={}))
    del record["best"]
    save_checked(path, tensors, {"progress": json.dumps(record)})


def _load(path: Path, network: torch.nn.Module, optimizer: Adam, generator: torch.Generator) -> _Progress:
    tensors, words = load_checked(path)

    def part(prefix: str) -> State:
        return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

    record = json.loads(words["progress"])
    network.load_state_dict(part("network/"))
    generator.set_state(tensors["generator"])
    optimizer.restore(part("optimizer/"))
    history = [EpochRecord(**row) for row in record["history"]]
    return _Progress(**{**record, "history": history, "best": part("best/")})
