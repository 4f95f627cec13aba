"""Clipped sums of a user's torch module: ``vmap(grad)`` computes each record's gradient.

Each record passes through the module alone, as a batch of one, under ``vmap``, where torch separates a
batch's records (``isolated_vmap.py``). Each batch uses a fresh copy of the module (``module_copies.py``).
Layers that are known to couple records are rejected by type, since their result on a single record differs. A
record on which the module raises has gradient zero (``null_records.py``).
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn
from torch.func import grad
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from graphveil.core.clipping.clipped_sums import (
    ClippedSum,
    chunks,
    clip_factors,
    record_loss,
    zero_masked_records,
)
from graphveil.core.clipping.isolated_vmap import vmap_records
from graphveil.core.clipping.module_copies import ModuleCopies, call
from graphveil.core.clipping.null_records import finite_rows, run_masking_failures
from graphveil.core.clipping.records import Inputs
from graphveil.errors import ConfigError, GraphError


def reject_row_mixing(module: nn.Module) -> None:
    """Reject a module in which one record's output depends on the other records of the batch.

    Raises:
        ConfigError: If it contains batch norm, or instance norm that tracks running statistics.

    >>> reject_row_mixing(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))
    >>> reject_row_mixing(nn.BatchNorm1d(2))
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


Parameters = dict[str, Tensor]


class PerSampleClippedSum(ClippedSum):
    """The clipped sum of any module that processes records separately, with per-sample gradients.

    The module takes (B, d), or as many arguments as there are blocks, and returns logits (B, C). It computes
    in float64.

    Raises:
        ConfigError: If the module mixes records or draws dropout masks; or the records are not dense.
        GraphError: If the shapes of inputs and labels disagree.
    """

    def __init__(self, module: nn.Module, inputs: Inputs, labels: Tensor) -> None:
        """Reject modules and inputs that cannot be trained privately this way."""
        reject_row_mixing(module)
        for name, part in module.named_modules():
            if isinstance(part, _DropoutNd) and part.p > 0:
                raise ConfigError(
                    f"{type(part).__name__} (at {name!r}) draws from torch's own generator, which a resumed "
                    "run cannot repeat; set its p to 0"
                )
        given = inputs if isinstance(inputs, Sequence) else [inputs]
        self._blocks = tuple(block.detach() for block in given if isinstance(block, Tensor))
        if not self._blocks:
            raise ConfigError("per-record gradients of a torch module need dense records; pass a tensor")
        lengths = {len(block) for block in self._blocks}
        if len(lengths) > 1:
            raise GraphError(f"blocks of columns have {sorted(lengths)} rows; they must agree")
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        super().__init__(list(named.values()), self._blocks, labels, len(self._blocks[0]))
        self._sum_views = self._views(self._total)
        self._parameters = dict(zip(named, self._views(self.weights), strict=True))
        self._copies, self._fixed = ModuleCopies(module), _fixed_of(module, named)

    def add(self, index: Tensor, clip: float) -> None:
        """Add them chunk by chunk."""
        for part in chunks(index, len(self.weights)):
            self._add_chunk(part, clip)

    def _add_chunk(self, index: Tensor, clip: float) -> None:
        blocks = tuple(_to_float64(block[index]) for block in self._blocks)
        gradients, failed = run_masking_failures(self._gradients, (self._labels[index], *blocks))
        if gradients is None:
            return  # all records of the chunk are null
        flat = [gradients[name].flatten(start_dim=1) for name in self._parameters]
        squares = torch.stack([part.square().sum(dim=1) for part in flat]).sum(dim=0)
        if failed is not None:
            squares = squares.masked_fill(failed, torch.nan)
        factors, bad = clip_factors(squares, clip)
        for part, out in zip(flat, self._sum_views, strict=True):
            out.view(-1).addmv_(zero_masked_records(part, bad).t(), factors)

    def _gradients(self, labels: Tensor, *blocks: Tensor) -> Parameters:
        """Return each record's gradient."""
        with self._copies.run() as module:

            def loss(parameters: Parameters, record: tuple[Tensor, ...], label: Tensor) -> Tensor:
                rows = tuple(part[None] for part in record)
                logits = _called(module, {**self._fixed, **parameters}, rows)
                return record_loss(logits, label)

            batched = vmap_records(grad(loss), in_dims=(None, 0, 0))
            found: Parameters = batched(self._parameters, blocks, labels)
            return found


def per_record_logits(module: nn.Module, rows: Tensor, classes: int) -> Tensor:
    """Return a module's logits (B, C) of rows (B, d), float64, with every row processed separately.

    They are zeros for a row for which the module raises or returns logits that are not finite.
    """
    tensors, copies = _fixed_of(module, ()), ModuleCopies(module)

    def together(some: Tensor) -> Tensor:
        with copies.run() as fresh:
            found: Tensor = vmap_records(lambda row: _called(fresh, tensors, (row[None],)))(some)
            return found

    with torch.no_grad():
        found, failed = run_masking_failures(together, (rows.to(torch.float64),))
    if found is None:
        return rows.new_zeros(len(rows), classes, dtype=torch.float64)
    return finite_rows(zero_masked_records(found, failed))


def _fixed_of(module: nn.Module, trained: Collection[str]) -> Parameters:
    """Return parameters that are not trained, and buffers, with floats as float64."""
    return {
        name: _to_float64(value.detach())
        for name, value in (*module.named_parameters(), *module.named_buffers())
        if name not in trained
    }


def _called(module: nn.Module, tensors: Parameters, rows: tuple[Tensor, ...]) -> Tensor:
    """Return the logits of one record, with copies of all tensors, which a module may change."""
    copied = {name: tensor.clone() for name, tensor in tensors.items()}
    logits: Tensor = call(module, copied, tuple(part.clone() for part in rows))[0]
    return logits


def _to_float64(values: Tensor) -> Tensor:
    """Return floats as float64, and integers unchanged."""
    return values.to(torch.float64) if values.is_floating_point() else values
