"""Clipped sums of a torch module that we did not write: ``vmap(grad)`` forms each record's gradient.

Each record passes the module alone, as a batch of one, so no record can touch another's gradient; what would
couple them all the same is refused by type.
"""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from graphveil.errors import ConfigError, GraphError
from graphveil.train.clipped import ClippedSum, chunks, clip_factors, targets_of, without
from graphveil.train.devices import CPU
from graphveil.train.records import Inputs


def refuse_row_mixing(module: nn.Module) -> None:
    """Refuse a module in which one record's output depends on the other records of the batch.

    Raises:
        ConfigError: it holds batch norm, or instance norm that tracks running statistics.

    >>> refuse_row_mixing(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))
    >>> refuse_row_mixing(nn.BatchNorm1d(2))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: BatchNorm1d mixes the records of a batch; use LayerNorm or GroupNorm
    """
    for name, part in module.named_modules():
        tracks = isinstance(part, _InstanceNorm) and part.track_running_stats
        if isinstance(part, _BatchNorm) or tracks:
            where = f" (at {name!r})" if name else ""
            raise ConfigError(
                f"{type(part).__name__}{where} mixes the records of a batch; use LayerNorm or GroupNorm"
            )


class PerSampleSum(ClippedSum):
    """The clipped sum of any module that treats records one by one, at the price of forming p numbers each.

    The module takes (B, d), or as many arguments as there are blocks, and returns logits (B, C). It computes
    in float64.

    Raises:
        ConfigError: the module mixes records or draws dropout masks; or the records are not dense.
        GraphError: the shapes of inputs and labels disagree.
    """

    def __init__(self, module: nn.Module, inputs: Inputs, labels: Tensor, device: torch.device = CPU) -> None:
        """Refuse what cannot be trained privately this way."""
        refuse_row_mixing(module)
        _refuse_dropout(module)
        self._blocks = _dense_blocks(inputs)
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        super().__init__(list(named.values()), labels, len(self._blocks[0]), device)
        weights, sums = self._there
        self._sum_views = self._views(sums)
        self._parameters = dict(zip(named, self._views(weights), strict=True))
        self._gradients = vmap(grad(_loss_of(module, named, device)), in_dims=(None, 0, 0))

    def _add(self, index: Tensor, clip: float) -> None:
        """Add them chunk by chunk."""
        for part in chunks(index, len(self.weights), self.device):
            self._add_chunk(part, clip)

    def _add_chunk(self, index: Tensor, clip: float) -> None:
        blocks = tuple(_wide(block[index].to(self.device)) for block in self._blocks)
        gradients = self._gradients(self._parameters, blocks, self._labels_of(index))
        flat = [gradients[name].flatten(start_dim=1) for name in self._parameters]
        squares = torch.stack([part.square().sum(dim=1) for part in flat]).sum(dim=0)
        factors, bad = clip_factors(squares, clip)
        for part, out in zip(flat, self._sum_views, strict=True):
            out.view(-1).addmv_(without(part, bad).t(), factors)


Parameters = dict[str, Tensor]


def _loss_of(
    module: nn.Module, trained: Collection[str], device: torch.device
) -> Callable[[Parameters, tuple[Tensor, ...], Tensor], Tensor]:
    """Return the loss of one record as a function of the parameters."""
    fixed = {
        name: _wide(value.detach().to(device))
        for name, value in (*module.named_parameters(), *module.named_buffers())
        if name not in trained
    }

    def loss(parameters: Parameters, blocks: tuple[Tensor, ...], label: Tensor) -> Tensor:
        rows = tuple(block[None] for block in blocks)
        logits: Tensor = functional_call(module, {**fixed, **parameters}, rows)[0]
        targets = targets_of(label[None], len(logits))[:, 0]
        return -(targets * logits.log_softmax(dim=0)).sum()

    return loss


def _wide(values: Tensor) -> Tensor:
    """Return floats as float64, and whole numbers as they are."""
    return values.to(torch.float64) if values.is_floating_point() else values


def _refuse_dropout(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, _DropoutNd) and part.p > 0:
            raise ConfigError(
                f"{type(part).__name__} (at {name!r}) draws from torch's own generator, which a resumed run "
                "cannot repeat; set its p to 0"
            )


def _dense_blocks(inputs: Inputs) -> tuple[Tensor, ...]:
    """Return the blocks of dense records."""
    blocks = [
        block for block in (inputs if isinstance(inputs, Sequence) else [inputs]) if isinstance(block, Tensor)
    ]
    if not blocks:
        raise ConfigError("per-record gradients of a torch module need dense records; pass a tensor")
    if len({len(block) for block in blocks}) > 1:
        raise GraphError(f"blocks of columns have {sorted({len(b) for b in blocks})} rows; they must agree")
    return tuple(block.detach() for block in blocks)
