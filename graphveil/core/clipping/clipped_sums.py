"""Sums of clipped per-sample gradients, in float64: the private quantity of DP-SGD, before its noise.

Public shapes and float64 are part of the proof. The kernel of a matrix product, and with it the rounding of
each record's row, depends on shapes; for huge features that cancel, the result is only rounding errors. No
shape here may therefore depend on a record. Batches are sampled, chunks are cut by public numbers alone, and
a record that contributes nothing keeps its place. Each row is then a function of its own record, to the last
bit. The rounding of the final sum is within the clipping margin of 10^-6.

Three classes compute them: in closed form for ``GhostModule`` networks (``GhostClippedSum``), for weights
of given logits (``LogitWeightsClippedSum``), and by ``vmap(grad)`` for a user's torch module, with each
record as a batch of one (``PerSampleClippedSum``). A user's module runs as ``isolation.py`` describes. Layers
that are known to couple records are rejected by type, since their result on a single record differs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import grad
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm

from graphveil.core.clipping.ghost_modules import GhostModule, GradientFactors, Inputs, records_of, tensors_of
from graphveil.core.clipping.isolation import (
    ModuleCopies,
    call,
    run_masking_failures,
    separate_logits,
    untrained_tensors,
    vmap_records,
)
from graphveil.core.features import ProtectedRows
from graphveil.core.view import unwrapped
from graphveil.errors import ConfigError, GraphError, ProtectedDataError

T = TypeVar("T")

MARGIN = 1e-6  # room for float64 rounding below the clipping norm, relative
_PIECE_NUMBERS = 1 << 19  # numbers per piece: they stay in the cache from the gather to the last product
_CHUNK_NUMBERS = 1 << 17  # float64 numbers that stay in the nearest cache


class ClippedSum(ABC):
    """The sum over some records of g_i min(1, C / ((1 + 10^-6) |g_i|)), g_i the gradient of record i's loss.

    The loss is the cross entropy of softmax probabilities p and targets t, summed over the classes. If labels
    are numbers, float (n), it is half the squared error of the single output. A record whose gradient is not
    finite, or whose label is not a class or not finite, contributes nothing: an exception would reveal
    private data.

    ``weights`` and ``sums`` are float64 vectors (p). The sums are private until ``DPSGDQuery`` adds noise to
    them. ``arrays`` are all values that gradients read of the records: a release binds its noise to them. Of
    protected records, whose labels are a handle, neither can be read.

    >>> from graphveil.core.features import ProtectedRows
    >>> labels = ProtectedRows(torch.tensor([1, 0]), "node-record")
    >>> LogitWeightsClippedSum([torch.eye(2)], labels).sums
    Traceback (most recent call last):
    graphveil.errors.ProtectedDataError: These are gradients of protected records, so sums and arrays cannot \
be read. Pass them to DPSGDData: the answer of its query includes the noise.
    """

    def __init__(self, sources: Sequence[Tensor], arrays: Sequence[Tensor], labels: Any, count: int) -> None:
        if len(labels) != count:
            raise GraphError(
                f"There are {count} records but {len(labels)} labels. Pass one label per record."
            )
        self._protected = isinstance(labels, ProtectedRows)
        self._sources, self._labels = sources, unwrapped(labels)
        self._arrays = (*arrays, self._labels)
        self.count = count
        flat = [source.detach().to("cpu", torch.float64).reshape(-1) for source in sources]
        if not flat:
            raise ConfigError("The network has no parameters to train.")
        self.weights = torch.cat(flat)
        self._total = torch.zeros_like(self.weights)

    @property
    def sums(self) -> Tensor:
        return self._readable(self._total)

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        return self._readable(self._arrays)

    def _readable(self, values: T) -> T:
        if self._protected:
            raise ProtectedDataError(
                "These are gradients of protected records, so sums and arrays cannot be read. Pass them to "
                "DPSGDData: the answer of its query includes the noise."
            )
        return values

    # Most gradients are the same function of the parameters in every step.
    def begin(self, step: int) -> None:  # noqa: B027
        """Prepare a step: sample the public values that change from step to step."""

    @abstractmethod
    def add(self, index: Tensor, clip: float) -> None:
        """Add these records' clipped gradients at the current parameters to ``sums``."""

    def store(self, weights: Tensor | None = None) -> None:
        """Write the current parameters, or the given ones, into the model."""
        if weights is not None:
            self.weights.copy_(weights)
        for source, values in zip(self._sources, self._views(self.weights), strict=True):
            source.detach().copy_(values)

    @property
    def shapes(self) -> list[list[int]]:
        return [list(source.shape) for source in self._sources]

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = torch.split(flat, [source.numel() for source in self._sources])
        return [part.view(source.shape) for part, source in zip(parts, self._sources, strict=True)]


class GhostClippedSum(ClippedSum):
    """The clipped sum of a ``GhostModule`` network, without per-sample gradients.

    |g_i|^2 is the sum over the network's affine maps of (|h_i|^2 + 1) |delta_i|^2.

    >>> layer = torch.nn.Linear(2, 2)
    >>> from graphveil.core.clipping.ghost_modules import Affine
    >>> network = Affine(layer.weight.t(), layer.bias)
    >>> gradients = GhostClippedSum(network, torch.ones(5, 2), torch.zeros(5, dtype=torch.int64))
    >>> gradients.add(torch.tensor([1, 4]), clip=0.01)
    >>> round(float(gradients.sums.norm()), 4)
    0.02
    """

    def __init__(self, network: GhostModule, inputs: Inputs, labels: Tensor) -> None:
        affines = list(network.affines())
        sources = [source for affine in affines for source in affine.sources]
        if len({source.data_ptr() for source in sources}) < len(sources):
            raise ConfigError(
                "Two affine maps of the network share a parameter, so their gradient norms cannot be "
                "added. Pass the torch module itself, which computes per-record gradients."
            )
        self._network, self._records = network, records_of(inputs)
        super().__init__(sources, tensors_of(inputs), labels, self._records.count)
        weights, sums = self._views(self.weights), self._views(self._total)
        for i, affine in enumerate(affines):
            part = slice(2 * i, 2 * i + 2)
            affine.bind(*weights[part], *sums[part])
        self._numbers = self._records.width + sum(len(affine.sources[1]) for affine in affines)

    @torch.inference_mode()
    def add(self, index: Tensor, clip: float) -> None:
        for part in chunks(index, self._numbers):
            self._add_chunk(part, clip)

    def _add_chunk(self, index: Tensor, clip: float) -> None:
        logits, saved = self._network.forward(self._records.take(index))
        gradient_factors: list[GradientFactors] = []
        self._network.backward(
            saved, _loss_gradient(logits, self._labels[index]), gradient_factors, inputs=False
        )
        squares = torch.stack([pair.square_norms() for pair in gradient_factors]).sum(dim=0)
        factors, bad = clip_factors(squares, clip)
        for pair in gradient_factors:
            if bad is not None:
                pair.drop(bad)
            pair.add(factors)


class LogitWeightsClippedSum(ClippedSum):
    """The clipped sum of the model softmax(sum over k of w_k L_k), whose parameters are the weights w alone.

    With p the probabilities and t the targets of a record, entry k of its gradient is the sum over the
    classes of L_k (p sum(t) - t).

    Args:
        logits: L_1 to L_K of the records, (n, C) each, or handles.
        labels: Classes (n), with -1 for a record that contributes nothing.

    >>> gradients = LogitWeightsClippedSum([torch.eye(2), torch.ones(2, 2)], torch.tensor([1, 0]))
    >>> gradients.add(torch.arange(2), clip=0.5)
    >>> gradients.sums.tolist()[1], round(float(gradients.sums[0]), 4)
    (0.0, 1.0)
    """

    def __init__(self, logits: Sequence[Any], labels: Any) -> None:
        self._logits = torch.stack([one.detach().to(torch.float64) for one in unwrapped(logits)])  # (K, n, C)
        start = torch.ones(len(logits), dtype=torch.float64)
        super().__init__([start], list(self._logits), labels_with(logits, labels), self._logits.shape[1])

    @torch.inference_mode()
    def add(self, index: Tensor, clip: float) -> None:
        for part in chunks(index, self._logits.shape[0] * self._logits.shape[2]):
            logits = self._logits.index_select(1, part)
            mixed = (logits * self.weights[:, None, None]).sum(dim=0)
            deltas = _loss_gradient(mixed.t(), self._labels[part]).t()
            gradients = (logits * deltas).sum(dim=2).t().contiguous()  # (B, K)
            factors, bad = clip_factors(gradients.square().sum(dim=1), clip)
            self._total.addmv_(zero_masked_records(gradients, bad).t(), factors)


def labels_with(inputs: Any, labels: Any) -> Any:
    """Return labels as a handle if inputs are handles, so that their clipped sum cannot be read."""
    protected = unwrapped(inputs) is not inputs and not isinstance(labels, ProtectedRows)
    return ProtectedRows(labels, "of the inputs") if protected else labels


def clip_factors(
    square_norms: Tensor, clip: float, failed: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Return min(1, C / ((1 + 10^-6) norm)), and a mask of the norms that are not finite, None if all are.

    The mask's factors are zero. Its records must also be removed, because zero times infinity is not zero.
    ``failed`` records are in the mask, whatever their norms are.

    >>> clip_factors(torch.tensor([4.0, 0.25, 0.0]), 1.0)[0]
    tensor([0.5000, 1.0000, 1.0000])
    """
    if failed is not None:
        square_norms = square_norms.masked_fill(failed, torch.nan)
    factors = square_norms.sqrt().mul_((1 + MARGIN) / clip).reciprocal_().clamp_(max=1)
    if math.isfinite(float(square_norms.sum())):  # as a sum is if its terms are
        return factors, None
    bad = ~square_norms.isfinite()
    factors[bad] = 0
    return factors, bad


def zero_masked_records(part: Tensor, bad: Tensor | None) -> Tensor:
    """Return a part (B, ..) with zeros for the records of a mask (B), if there is one.

    It is not changed in place: numbers that are the same for all records may be one number in memory.

    >>> zero_masked_records(torch.ones(1).expand(3), torch.tensor([False, True, False]))
    tensor([1., 0., 1.])
    """
    return part if bad is None else part.masked_fill(bad.view(-1, *[1] * (part.ndim - 1)), 0)


def square_norms(gradients: Tensor) -> Tensor:
    """Return each record's squared norm, (B) float64, of gradients (B, ..).

    >>> square_norms(torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([25.,  1.], dtype=torch.float64)
    """
    return torch.cat([part.to(torch.float64).square().sum(dim=1) for part in _pieces(gradients)])


def add_scaled(out: Tensor, gradients: Tensor, factors: Tensor) -> None:
    """Add the sum of gradients (B, ..) times their factors (B) in float64.

    >>> out = torch.zeros(2, dtype=torch.float64)
    >>> add_scaled(out, torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([2.0, 1.0]).double())
    >>> out
    tensor([7., 8.], dtype=torch.float64)
    """
    parts = _pieces(gradients)
    for part, some in zip(parts, torch.split(factors, len(parts[0])), strict=True):
        out.view(-1).addmv_(part.to(torch.float64).t(), some)


def _pieces(gradients: Tensor) -> Sequence[Tensor]:
    """Return gradients (B, ..) as pieces of rows whose float64 copies fit into the cache."""
    rows = gradients.reshape(len(gradients), -1)
    return torch.split(rows, max(1, _CHUNK_NUMBERS // max(1, rows.shape[1])))


def targets_of(labels: Tensor, classes: int) -> Tensor:
    """Return targets (classes, B) of labels (B), zero for invalid classes, or of rows (B, classes)."""
    if labels.ndim == 2:
        return labels.t().to(torch.float64)
    return (labels == torch.arange(classes)[:, None]).to(torch.float64)


def chunks(index: Tensor, numbers: int) -> Iterable[Tensor]:
    """Return equal parts of an index for records of ``numbers`` numbers each."""
    count = -(-len(index) * numbers // _PIECE_NUMBERS)
    return index.chunk(count) if count else ()


def record_loss(logits: Tensor, label: Tensor) -> Tensor:
    """Return the loss of one record, from logits (C) and a class, probabilities (C), or a number.

    >>> record_loss(torch.tensor([3.0]), torch.tensor(1.0)), record_loss(torch.tensor([3.0]),
    ...     torch.tensor(torch.nan))
    (tensor(2.), tensor(0.))
    """
    if _is_number(label[None]):
        known = label.isfinite()
        error = logits[0] - torch.where(known, label, 0.0).to(logits.dtype)
        return torch.where(known, error.square() / 2, torch.zeros_like(error))
    targets = targets_of(label[None], len(logits))[:, 0].to(logits.dtype)
    return -(targets * logits.log_softmax(dim=0)).sum()


def probe_labels(count: int, classes: int) -> Tensor:
    """Return labels of synthetic records: classes in turn, or numbers for a single output.

    >>> probe_labels(3, 2), probe_labels(3, 1)
    (tensor([0, 1, 0]), tensor([-1.,  0.,  1.]))
    """
    return torch.linspace(-1.0, 1.0, count) if classes == 1 else torch.arange(count) % classes


def _is_number(labels: Tensor) -> bool:
    """Return whether labels are numbers, float (B), and not classes (B) or probabilities (B, C)."""
    return labels.ndim == 1 and labels.is_floating_point()


def _loss_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of the loss with respect to the logits, (classes, B).

    It is p sum(t) - t for the cross entropy, and z - t for half the squared error.
    """
    if _is_number(labels):
        known = labels.isfinite()
        return (logits - torch.where(known, labels, 0.0)).masked_fill(~known, 0.0)
    targets = targets_of(labels, len(logits))
    return logits.softmax(dim=0).mul_(targets.sum(dim=0)).sub_(targets)


def reject_row_mixing(module: nn.Module) -> None:
    """Reject a module in which one record's output depends on the other records of the batch.

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
    """

    def __init__(self, module: nn.Module, inputs: Inputs, labels: Tensor) -> None:
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
        self._copies, self._fixed = ModuleCopies(module), untrained_tensors(module, named)

    def add(self, index: Tensor, clip: float) -> None:
        for part in chunks(index, len(self.weights)):
            self._add_chunk(part, clip)

    def _add_chunk(self, index: Tensor, clip: float) -> None:
        blocks = tuple(_to_float64(block[index]) for block in self._blocks)
        gradients, failed = run_masking_failures(self._gradients, (self._labels[index], *blocks))
        if gradients is None:
            return  # all records of the chunk are null
        flat = [gradients[name].flatten(start_dim=1) for name in self._parameters]
        squares = torch.stack([part.square().sum(dim=1) for part in flat]).sum(dim=0)
        factors, bad = clip_factors(squares, clip, failed)
        for part, out in zip(flat, self._sum_views, strict=True):
            out.view(-1).addmv_(zero_masked_records(part, bad).t(), factors)

    def _gradients(self, labels: Tensor, *blocks: Tensor) -> Parameters:
        with self._copies.run() as module:

            def loss(parameters: Parameters, record: tuple[Tensor, ...], label: Tensor) -> Tensor:
                rows = tuple(part[None] for part in record)
                return record_loss(call(module, {**self._fixed, **parameters}, rows)[0], label)

            batched = vmap_records(grad(loss), in_dims=(None, 0, 0))
            found: Parameters = batched(self._parameters, blocks, labels)
            return found


def per_record_logits(module: nn.Module, rows: Tensor, classes: int) -> Tensor:
    """Return a module's logits (B, C) of rows (B, d), float64: ``separate_logits``."""
    tensors = untrained_tensors(module)

    def one(fresh: nn.Module, row: Tensor) -> Tensor:
        logits: Tensor = call(fresh, tensors, (row[None],))[0]
        return logits

    return separate_logits(ModuleCopies(module), one, (rows.to(torch.float64),), classes)


def _to_float64(values: Tensor) -> Tensor:
    return values.to(torch.float64) if values.is_floating_point() else values
