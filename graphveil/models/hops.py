"""The networks around noisy hops: an encoder before them, a classifier after them."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphveil.aggregate import plain_unit
from graphveil.models.layers import Batch, Combine, FeedForward, Hidden, Linear, unit_rows


class Encoder(nn.Module):
    """An encoder and the head that it is trained with, on rows of norm one, as the hops will see them.

    With ``plain_head`` classes have to differ by the rows' direction, which is what a sum of rows keeps. The
    paper's encoder has batch norm between its rows and its head.

    Shapes: (B, widths[0]) -> (B, classes); ``rows`` stops at (B, widths[-1]).
    """

    def __init__(
        self,
        widths: Sequence[int],
        classes: int,
        *,
        plain_head: bool,
        generator: torch.Generator,
        activation: str,
        batch_norm: bool,
        dropout: float,
    ) -> None:
        """Draw the weights."""
        super().__init__()
        layers: dict[str, Any] = {"activation": activation, "batch_norm": batch_norm, "dropout": dropout}
        self._base = FeedForward(widths, generator=generator, **layers)
        normed = batch_norm and not plain_head
        self._norm = nn.BatchNorm1d(widths[-1]) if normed else nn.Identity()
        self._head = Linear(widths[-1], classes, generator=generator)

    def rows(self, x: Batch) -> Tensor:
        """Return the encoded rows."""
        return unit_rows(self._base(x))

    def forward(self, x: Batch) -> Tensor:
        """Return the head's logits."""
        return cast(Tensor, self._head(self._norm(self.rows(x))))


class HopClassifier(nn.Module):
    """A network for each hop, their combination, and a head.

    Shapes: ``hops`` times (B, base[0]) -> (B, head[-1]).
    """

    def __init__(
        self,
        hops: int,
        base: Sequence[int],
        head: Sequence[int],
        combine: str,
        *,
        generator: torch.Generator,
        activation: str,
        batch_norm: bool,
        dropout: float,
    ) -> None:
        """Draw the weights."""
        super().__init__()
        layers: dict[str, Any] = {"activation": activation, "batch_norm": batch_norm, "dropout": dropout}
        self._bases = nn.ModuleList(FeedForward(base, generator=generator, **layers) for _ in range(hops))
        self._combine = Combine(combine, hops, base[-1], generator=generator)
        self._hidden = Hidden(self._combine.outputs, generator=generator, **layers)
        self._head = FeedForward([self._combine.outputs, *head], generator=generator, **layers)

    def forward(self, views: Sequence[Tensor]) -> Tensor:
        """Return logits."""
        parts = [base(view) for base, view in zip(self._bases, views, strict=True)]
        return cast(Tensor, self._head(self._hidden(self._combine(parts))))


def scaled_by_norm(noisy: Tensor, std: float) -> Tensor:
    """Return log(1 + |r| / s) r / |r|: a noisy row's direction, longer where it stands out of the noise.

    The direction alone would tell a row of many neighbours from one of pure noise no more.

    >>> scaled_by_norm(torch.tensor([[0.0, 3.0]]), 1.0).round(decimals=3)
    tensor([[0.0000, 1.3860]], dtype=torch.float64)
    """
    rows = noisy.to(torch.float64)
    length = rows.norm(dim=1, keepdim=True)
    return plain_unit(rows) * torch.log1p(length / std)
