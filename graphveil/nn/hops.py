"""The networks around noisy hops: an encoder before them, a classifier after them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphveil.core.clipping.ghost_modules import (
    Activation,
    GhostBranches,
    GhostModule,
    GhostSequential,
    UnitRows,
)
from graphveil.core.features import plain_unit
from graphveil.nn.layers import Batch, FeedForward, Hidden, Linear, unit_rows

_BATCH_NORM_MOMENTUM = 0.1  # momentum of batch norm's running moments


class Encoder(nn.Module):
    """An encoder and the head that it is trained with, on L2-normalized embeddings, as the hops read them.

    The head is linear, so it separates classes by the direction of embeddings, which sums preserve.
    """

    def __init__(
        self, widths: Sequence[int], classes: int, *, generator: torch.Generator, **layers: Any
    ) -> None:
        """Draw initial parameters; ``layers`` are activation, batch norm and dropout of ``FeedForward``."""
        super().__init__()
        self._base = FeedForward(widths, generator=generator, **layers)
        self._head = Linear(widths[-1], classes, generator=generator)

    def ghost(self) -> GhostModule:
        return GhostSequential(self._base.ghost(), UnitRows(), self._head.ghost())

    def rows(self, x: Batch) -> Tensor:
        return unit_rows(self._base(x))

    @torch.no_grad()
    def message(self, rows: Tensor, noisy: Sequence[Tensor]) -> Tensor:
        """Return a node's GNN message about its class: (N, d) float64, not scaled.

        The head reads z, the sum of the node's own embedding and its noisy aggregates. The message is the
        mean of the head's class directions under its probabilities, without their common part:

            p = softmax(z W + b),    m = sum_c p_c (w_c - mean of w).

        It keeps only the part of the noise in class directions, and is a function of the node's own record
        and of released values.
        """
        logits, weight = self._exact(rows, noisy)
        return logits.softmax(dim=1) @ (weight - weight.mean(dim=1, keepdim=True)).t()

    def _exact(self, rows: Tensor, noisy: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the head's outputs on own embeddings plus noisy aggregates, and its weights, float64."""
        weight, bias = (part.to("cpu", torch.float64) for part in (self._head.weight, self._head.bias))
        seen = sum((part.to(torch.float64) for part in noisy), start=rows.to(torch.float64))
        return seen @ weight + bias, weight

    @property
    def outputs(self) -> int:
        return int(self._head.bias.shape[0])

    @torch.no_grad()
    def number_message(self, rows: Tensor, noisy: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return a node's GNN message about its number: a value (N, 1) in [-1, 1], and a direction (d).

        The value is the head's single output on the node's own embedding plus its noisy aggregates, clipped.
        It is zero if it is not finite. The direction is the head's weight, not scaled.
        """
        logits, weight = self._exact(rows, noisy)
        return logits.nan_to_num(nan=0.0).clamp(-1.0, 1.0), weight[:, 0]

    def forward(self, x: Batch) -> Tensor:
        return cast(Tensor, self._head(self.rows(x)))


@dataclass(frozen=True, eq=False)
class FixedRows:
    """Dense inputs (B, d) without gradient, and their mean (d) and covariance (d, d)."""

    values: Tensor

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        mean = self.values.mean(dim=0)
        centered = self.values - mean
        return mean, centered.t() @ centered / len(self.values)


class NormedLinear(nn.Module):
    """A linear map and batch norm in one: batch norm as a factor on the weight matrix.

    Over inputs with mean m and covariance C the map x W has mean m W and variance diag(W^T C W), so batch
    norm needs no pass over the output, neither forward nor backward. It equals ``Linear`` and
    ``BatchNorm1d``.
    """

    def __init__(self, inputs: int, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = Linear(inputs, outputs, generator=generator).weight  # batch norm cancels a bias
        self._norm = nn.BatchNorm1d(outputs, momentum=_BATCH_NORM_MOMENTUM)

    def forward(self, x: FixedRows) -> Tensor:
        running = cast(Tensor, self._norm.running_mean), cast(Tensor, self._norm.running_var)
        mean, variance = running
        if self.training:
            input_mean, covariance = x.moments
            mean, variance = input_mean @ self.weight, (self.weight * (covariance @ self.weight)).sum(dim=0)
            unbiased = len(x.values) / max(1, len(x.values) - 1)
            with torch.no_grad():
                running[0].lerp_(mean, _BATCH_NORM_MOMENTUM)
                running[1].lerp_(variance * unbiased, _BATCH_NORM_MOMENTUM)
        scale = self._norm.weight * torch.rsqrt(variance + self._norm.eps)
        return torch.addmm(self._norm.bias - mean * scale, x.values, self.weight * scale)


class Branch(nn.Module):
    """Layers for the aggregates of one hop: affine maps, each with batch norm and activation."""

    def __init__(
        self,
        widths: Sequence[int],
        *,
        generator: torch.Generator,
        activation: str,
        batch_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        style: dict[str, Any] = {"generator": generator, "activation": activation, "dropout": dropout}
        self._first = (NormedLinear if batch_norm else Linear)(*widths[:2], generator=generator)
        self._hidden = Hidden(widths[1], batch_norm=False, **style)
        self._rest = FeedForward(widths[1:], batch_norm=batch_norm, plain_last=False, **style)

    def ghost(self) -> GhostModule:
        first = cast(Linear, self._first).ghost()
        return GhostSequential(first, Activation(self._hidden.activation), self._rest.ghost())

    def forward(self, x: FixedRows) -> Tensor:
        first = self._first(x if isinstance(self._first, NormedLinear) else x.values)
        return cast(Tensor, self._rest(self._hidden(first)))


class HopClassifier(nn.Module):
    """A branch for each hop, and a head that reads all of them."""

    def __init__(
        self,
        hops: int,
        base: Sequence[int],
        head: Sequence[int],
        *,
        generator: torch.Generator,
        **layers: Any,
    ) -> None:
        """Draw initial parameters; ``layers`` are activation, batch norm and dropout of all layers."""
        super().__init__()
        self._branches = nn.ModuleList(Branch(base, generator=generator, **layers) for _ in range(hops))
        self._head = FeedForward([hops * base[-1], *head], generator=generator, **layers)

    def ghost(self) -> GhostModule:
        """Return the network for private training, which reads the concatenated aggregates in blocks."""
        branches = [cast(Branch, branch).ghost() for branch in self._branches]
        return GhostSequential(GhostBranches(*branches), self._head.ghost())

    def forward(self, views: Sequence[FixedRows]) -> Tensor:
        parts = [branch(view) for branch, view in zip(self._branches, views, strict=True)]
        # In blocks: concatenation would take longer than the affine map.
        return cast(Tensor, self._head(tuple(parts)))


def scaled_by_norm(noisy: Tensor, std: float) -> Tensor:
    """Return log(1 + |r| / s) r / |r|: a noisy aggregate's direction, longer if it exceeds the noise.

    The direction alone does not distinguish an aggregate of many neighbors from pure noise.

    >>> scaled_by_norm(torch.tensor([[0.0, 3.0]]), 1.0).round(decimals=3)
    tensor([[0.0000, 1.3860]], dtype=torch.float64)
    """
    rows = noisy.to(torch.float64)
    length = rows.norm(dim=1, keepdim=True)
    return plain_unit(rows) * torch.log1p(length / std)
