"""The head that reads a node's posterior and noisy rows, and the gate that falls back to the features."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from graphveil.estimators.method import State, part_of
from graphveil.estimators.session import Session
from graphveil.nn.batched import BatchedFeedForward
from graphveil.nn.layers import FeedForward
from graphveil.training import TrainingSchedule, train

SEEDS = 3
_MAX_SMALL_TRAINING_SET = 5000  # training nodes below which a smaller, stronger-regularized head is used
_STEPS, _SMALL_STEPS, _BATCH = 400, 160, 2048
_CHUNK_SIZE = 1 << 17  # nodes that heads read at once


class PosteriorHead(nn.Module):
    """logits = alpha Q + net(input), alpha learned from one: training starts at the likelihood's answer."""

    def __init__(self, alpha: Tensor, net: FeedForward) -> None:
        """Take the weights; the network runs from the inputs to the classes."""
        super().__init__()
        self.alpha, self.net = nn.Parameter(alpha.clone()), net

    @classmethod
    def restore(cls, state: State) -> "PosteriorHead":
        """Return a trained head from its weights."""
        widths = [
            len(state["net._layers.0.weight"]),
            *(len(state[f"net._layers.{k}.bias"]) for k in range(3)),
        ]
        net = FeedForward(widths, generator=torch.Generator(), batch_norm=True)
        head = cls(torch.ones(()), net)
        head.load_state_dict(state)
        head.eval()
        return head

    def forward(self, start: Tensor, inputs: Tensor) -> Tensor:
        """Return logits (B, C) from the starting log-posterior (B, C) and the inputs (B, f)."""
        logits: Tensor = self.alpha * start + self.net(inputs)
        return logits


class BatchedHeads(nn.Module):
    """The heads while they are trained: together, on the same batches, each from weights of its own."""

    def __init__(self, inputs: int, classes: int, small: bool, *, generator: torch.Generator) -> None:
        """Draw the networks' weights."""
        super().__init__()
        widths, dropout = head_architecture(inputs, classes, small)
        self.alpha = nn.Parameter(torch.ones(SEEDS, 1, 1))
        self.nets = BatchedFeedForward(
            widths, SEEDS, generator=generator, dropout=dropout, separate_dropout=True
        )

    def forward(self, start: Tensor, inputs: Tensor) -> Tensor:
        """Return the logits of all heads, (heads, B, C)."""
        logits: Tensor = self.alpha * start + self.nets(inputs)
        return logits

    def losses(self, start: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return each head's mean cross entropy, (heads)."""
        log = self(start, inputs).log_softmax(dim=2)
        own = log.gather(2, labels.expand(SEEDS, -1)[:, :, None])
        losses: Tensor = -own.mean(dim=(1, 2))
        return losses

    def heads(self) -> list[PosteriorHead]:
        """Return the heads one by one, in evaluation mode."""
        return [
            PosteriorHead(alpha.reshape(()), net).eval()
            for alpha, net in zip(self.alpha.detach(), self.nets.networks(), strict=True)
        ]


def restore_heads(state: State) -> tuple[PosteriorHead, ...]:
    """Return the trained heads of a fit from all its weights."""
    return tuple(PosteriorHead.restore(part_of(state, f"heads/{seed}/")) for seed in range(SEEDS))


def head_architecture(inputs: int, classes: int, small: bool) -> tuple[list[int], float]:
    """Return a head's widths and dropout; a small one is for few training nodes."""
    width, dropout = (16, 0.4) if small else (64, 0.2)
    return [inputs, width, width, classes], dropout


def head_inputs(start: Tensor, log_posteriors: Tensor, rows: Sequence[Tensor]) -> Tensor:
    """Return [Q, P, r/3, r/|r|, ...], float32."""
    parts = [start, log_posteriors]
    for r in rows:
        parts += [r / 3, r / r.norm(dim=1, keepdim=True).clamp_min(1e-9)]
    return torch.cat([part.to(torch.float32) for part in parts], dim=1)


def fit_heads(
    start: Tensor,
    inputs: Tensor,
    labels: Tensor,
    train_nodes: Tensor,
    val_nodes: Tensor,
    session: Session,
) -> tuple[list[PosteriorHead], Tensor]:
    """Train the heads and return them with the mean of their probabilities as a log-posterior (N, C)."""
    small = len(train_nodes) < _MAX_SMALL_TRAINING_SET
    batch = max(2, min(_BATCH, len(train_nodes) // 4))
    epochs = max(1, round((_SMALL_STEPS if small else _STEPS) * batch / len(train_nodes)))
    schedule = TrainingSchedule(
        epochs=epochs,
        learning_rate=0.01,
        weight_decay=1e-3 if small else 1e-4,
        batch_size=batch,
        decay="cosine",
        select="likelihood",
    )
    generator = session.streams.torch("heads")
    heads = BatchedHeads(inputs.shape[1], start.shape[1], small, generator=generator)
    q, f = start.to(torch.float32), inputs
    history = train(
        heads,
        lambda index: log_mean(heads(q[index], f[index])),
        labels,
        train_nodes,
        val_nodes,
        schedule,
        generator=generator,
        on_epoch=session.epochs(f"{SEEDS} heads", epochs),
        loss=lambda index: heads.losses(q[index], f[index], labels[index]).sum(),
    )
    session.record("heads", history)
    trained = heads.heads()
    return trained, mean_log_posterior(trained, q, f)


@torch.no_grad()
def mean_log_posterior(heads: Sequence[PosteriorHead], start: Tensor, inputs: Tensor) -> Tensor:
    """Return the log of the heads' mean probability."""
    parts = [
        log_mean(torch.stack([head(q, f) for head in heads]))
        for q, f in zip(torch.split(start, _CHUNK_SIZE), torch.split(inputs, _CHUNK_SIZE), strict=True)
    ]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def log_mean(logits: Tensor) -> Tensor:
    """Return the log of the mean probability of some logits, (heads, B, C) to (B, C)."""
    return logits.softmax(dim=2).mean(dim=0).clamp_min(1e-30).log()


GATE_STEP = 0.25


def fit_gate(experts: Sequence[Tensor], labels: Tensor, nodes: Tensor) -> tuple[tuple[float, ...], Tensor]:
    """Blend log-posteriors on a grid of weights that sum to one, by likelihood on validation nodes.

    The grid contains each expert alone, the feature network among them, so the blend cannot lose much to
    a model that never reads the edges.
    """
    levels = [i * GATE_STEP for i in range(round(1 / GATE_STEP) + 1)]
    grid = [w for w in itertools.product(levels, repeat=len(experts)) if abs(sum(w) - 1) < 1e-9]

    def loss(weights: tuple[float, ...]) -> float:
        return float(nll_loss(blend([e[nodes] for e in experts], weights), labels[nodes]))

    best = min(grid, key=loss)
    return best, blend(experts, best)


def blend(experts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the normalized weighted sum of log-posteriors."""
    mixed = sum(w * e for w, e in zip(weights, experts, strict=True))
    return torch.as_tensor(mixed).log_softmax(dim=1)
