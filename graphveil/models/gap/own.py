"""A user's modules in the places of GAP's networks, at edge level, where both are trained in the clear."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from graphveil.errors import ConfigError
from graphveil.models.own.code import Factory, built, name_of
from graphveil.networks.hops import Encoder, FixedRows, HopClassifier
from graphveil.networks.layers import Batch, Linear, SparseRows

_PROBES = 4  # random records that a module is run on before anything is booked


class _OnDenseRows(nn.Module):
    """Runs a module on dense rows, whatever the features are stored as."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Batch) -> Tensor:
        return cast(Tensor, self.module(_dense(x)))


class OwnEncoder(Encoder):
    """A module of the user's and the linear head that it is trained with, on rows of norm one.

    Shapes: (B, inputs) -> (B, classes); ``rows`` stops at (B, hidden).
    """

    def __init__(
        self, factory: Factory | str, inputs: int, hidden: int, classes: int, *, generator: torch.Generator
    ) -> None:
        """Build the module, and draw the head."""
        nn.Module.__init__(self)
        self._base = _OnDenseRows(built(factory, inputs, hidden, generator))  # type: ignore[assignment]
        self._norm = nn.Identity()
        self._head = Linear(hidden, classes, generator=generator)
        self._activation = None


class OwnHead(HopClassifier):
    """A module of the user's that reads all hops' rows side by side.

    Shapes: ``views`` times (B, width) -> (B, classes).
    """

    def __init__(
        self, factory: Factory | str, views: int, width: int, classes: int, *, generator: torch.Generator
    ) -> None:
        """Build the module."""
        nn.Module.__init__(self)
        self.module = built(factory, views * width, classes, generator)

    def forward(self, views: Sequence[FixedRows]) -> Tensor:
        """Return logits."""
        return cast(Tensor, self.module(torch.cat([view.values for view in views], dim=1)))


def check_output(network: nn.Module, inputs: object, outputs: int, factory: Factory | str) -> None:
    """Run a network on a few random records, and refuse another shape than is needed; nothing is booked yet.

    Raises:
        ConfigError: it fails, or returns something else.
    """
    name = name_of(factory)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found = network.eval()(inputs)
    except Exception as error:
        raise ConfigError(
            f"{name} fails on {_PROBES} random records: {type(error).__name__}: {error}; it takes rows "
            "(B, inputs) and returns rows (B, outputs)"
        ) from error
    if not isinstance(found, Tensor) or tuple(found.shape) != (_PROBES, outputs):
        what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ConfigError(f"{name} returns {what} for {_PROBES} records; {outputs} numbers each are needed")


def probes(width: int) -> Tensor:
    """Return a few random records."""
    return torch.randn(_PROBES, width, generator=torch.Generator().manual_seed(0))


def _dense(x: Batch) -> Tensor:
    if isinstance(x, Tensor):
        return x
    rows = cast(SparseRows, x)
    count = len(rows.offsets) - 1
    owner = torch.arange(count, device=rows.values.device).repeat_interleave(rows.offsets.diff())
    dense = torch.zeros(count, rows.width, device=rows.values.device)
    return dense.index_put_((owner, rows.columns.long()), rows.values, accumulate=True)
