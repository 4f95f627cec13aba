"""Checks of custom modules by type: reject layers that mix records, draw random numbers, or carry data."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from graphveil.errors import ConfigError

MAX_CONSTANT_NUMBERS = (
    1024  # maximum size of a tensor that is not a parameter: a table of the graph's nodes would be longer
)
ROW_NORMS = "LayerNorm, or torch_geometric's LayerNorm(mode='node')"
_PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_MIXING = ("GraphNorm", "PairNorm", "DiffGroupNorm", "MeanSubtractionNorm", "GraphSizeNorm")


def reject_unsupported_types(module: nn.Module) -> None:
    """Reject a module with a part that mixes records, is random, or holds tensors other than parameters.

    A function that closes over a tensor cannot be detected here.

    Raises:
        ConfigError: With the part, the reason and an alternative.

    >>> reject_unsupported_types(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    >>> reject_unsupported_types(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: Dropout (at '1') drops entries at random, and ...
    """
    if isinstance(module, torch.jit.ScriptModule) or type(module).__name__ == "OptimizedModule":
        raise ConfigError(
            f"{type(module).__name__} is compiled, and per-record gradients need the Python module. Pass the "
            "module without torch.jit or torch.compile."
        )
    for name, part in module.named_modules():
        kind = f"{type(part).__name__}{f' (at {name!r})' if name else ''}"
        why = _fault_of(part)
        if why:
            raise ConfigError(f"{kind} {why}")
        for what, tensor in _non_parameter_tensors(part):
            _check_constant(f"{kind} holds a tensor {what!r}", tensor)
    for name, weight in module.named_parameters():
        _check_weight(f"the weight {name!r}", weight)
    if not any(weight.requires_grad for weight in module.parameters()):
        raise ConfigError(f"{type(module).__name__} has no weights to train; give it some")


def _fault_of(part: nn.Module) -> str:
    """Return the problem of one part, empty for none."""
    kinds = {kind.__name__ for kind in type(part).__mro__}
    if isinstance(part, torch.jit.ScriptModule):
        return "is compiled, and per-record gradients need the Python module; pass it without torch.jit"
    if kinds & set(_PARALLEL):
        return "spreads a batch over devices, and each record runs on its own; pass the module inside it"
    if isinstance(part, _BatchNorm) or kinds & set(_MIXING):
        return f"mixes the records of a batch, so that one reaches the others' gradients; use {ROW_NORMS}"
    if isinstance(part, _InstanceNorm):
        return f"takes its mean over all rows of a batch; use {ROW_NORMS}"
    if "LayerNorm" in kinds and getattr(part, "mode", "node") == "graph":
        return "has mode='graph', its default: all nodes of a batch are one norm; use LayerNorm(mode='node')"
    if isinstance(part, nn.Embedding | nn.EmbeddingBag):
        return "has a weight of its own for every number that it is shown, such as a node's; use a Linear map"
    if (isinstance(part, _DropoutNd) and part.p > 0) or _is_positive(getattr(part, "dropout", None)):
        return "drops entries at random, and private noise is all that training may draw; set it to 0"
    if getattr(part, "cached", None) is True:
        return "keeps what it computed of the first graph (cached=True), and meets others; use cached=False"
    return ""


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _non_parameter_tensors(part: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of one part that are not trained parameters."""
    yield from ((name, buffer) for name, buffer in part.named_buffers(recurse=False))
    yield from ((name, value) for name, value in vars(part).items() if isinstance(value, Tensor))
    yield from ((name, w) for name, w in part.named_parameters(recurse=False) if not w.requires_grad)


def _check_constant(what: str, tensor: Tensor) -> None:
    """Reject a long tensor, which could hold node degrees or an adjacency and bypass the noise."""
    if is_lazy(tensor):
        return  # rejected as a parameter
    if tensor.layout != torch.strided or tensor.numel() > MAX_CONSTANT_NUMBERS:
        raise ConfigError(
            f"{what} of {tensor.numel():,} numbers that is not trained: what is long enough to be about the "
            f"graph's nodes is refused; make it at most {MAX_CONSTANT_NUMBERS:,} numbers, from public "
            "constants"
        )


def _check_weight(what: str, weight: Tensor) -> None:
    if is_lazy(weight):
        raise ConfigError(
            f"{what} has no shape yet (a lazy layer, or channels of -1), and the number of weights is part "
            "of the privacy cost; pass explicit sizes"
        )
    if weight.layout != torch.strided or not weight.is_floating_point():
        kind = str(weight.dtype).removeprefix("torch.")
        raise ConfigError(
            f"{what} is {kind if weight.layout == torch.strided else 'sparse'}, and private training moves "
            "dense real numbers; use floats"
        )
