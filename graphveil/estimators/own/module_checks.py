"""Checks of custom modules before anything is charged: by type, and by running them on small random trees.

By type, layers are rejected that mix records, draw random numbers, or carry data. The second check runs the
module without any data. The gradient of a root may depend on its own tree only, so the check changes
everything else: other trees in the batch, their number, the position in the batch, and previous batches.

Neither check finds a module that mixes records or keeps state only when a feature equals 17, or a function
that closes over a tensor. Private training and prediction therefore run every tree on its own, on a fresh
copy of the module (``core/clipping/ego_graphs.py``), so the proof does not rest on these checks. They are
there because such a module computes something else in a batch than alone, and its author should know before a
budget is spent.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from graphveil.core.clipping.isolation import ModuleCopies
from graphveil.errors import ConfigError
from graphveil.estimators.own.module_state import reaches_compiled_code, state_of

MAX_CONSTANT_NUMBERS = 1024  # size of a tensor without training: a table of the graph's nodes would be longer
ROW_NORMS = "LayerNorm, or torch_geometric's LayerNorm(mode='node')"
_PARALLEL = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_MIXING = ("GraphNorm", "PairNorm", "DiffGroupNorm", "MeanSubtractionNorm", "GraphSizeNorm")
_CLOSE = 1e-9
_SEED, _MOST_CHILDREN = 7, 4
_TWICE = (
    "is not the same twice: it draws at random, or remembers the batch before; private noise is all that "
    "training may draw, and a record may reach its own gradient alone"
)
_TRAINING = "is another in train() than in eval(), as with dropout; let both be the same"
_MIXES = "changes with the other trees of a batch, their features, sizes or number"
_READS = (
    "Something in it reads more rows than its messages do, such as x.mean(dim=0), a norm or an attention "
    "over all rows, a division by their number, or a table by position; use "
    f"{ROW_NORMS}, and messages along edge_index"
)

RandomTree = tuple[Tensor, Tensor]  # features (n, d) of a tree with root 0, and edges to parents (2, n - 1)


# -- by type -----------------------------------------------------------------------------------------------


def reject_unsupported_types(module: nn.Module) -> None:
    """Reject a module with a part that mixes records, is random, or holds tensors other than parameters.

    >>> reject_unsupported_types(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)))
    >>> reject_unsupported_types(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: Dropout (at '1') drops entries at random, and ...
    """
    if reaches_compiled_code(module) or type(module).__name__ == "OptimizedModule":
        raise ConfigError(
            f"{type(module).__name__} is compiled or calls compiled code, and per-record gradients need "
            "Python code. Use it without torch.jit and torch.compile."
        )
    for name, part in module.named_modules():
        kind = f"{type(part).__name__}{f' (at {name!r})' if name else ''}"
        why = _fault_of(part)
        if why:
            raise ConfigError(f"{kind} {why}")
        # A long tensor could hold node degrees or an adjacency, which would bypass the noise.
        constants = dict(part.named_buffers(recurse=False))
        constants |= {held: value for held, value in vars(part).items() if isinstance(value, Tensor)}
        constants |= {held: w for held, w in part.named_parameters(recurse=False) if not w.requires_grad}
        for held, tensor in constants.items():
            if is_lazy(tensor):
                continue  # rejected as a parameter
            if tensor.layout != torch.strided or tensor.numel() > MAX_CONSTANT_NUMBERS:
                raise ConfigError(
                    f"{kind} stores an untrained tensor {held!r} of {tensor.numel():,} numbers, which is "
                    f"large enough to hold private data of the graph. Use at most {MAX_CONSTANT_NUMBERS:,} "
                    "numbers, from public constants."
                )
    for name, weight in module.named_parameters():
        if is_lazy(weight):
            raise ConfigError(
                f"The parameter {name!r} has no shape yet (a lazy layer, or channels of -1), but the "
                "privacy cost depends on the number of parameters. Pass explicit sizes."
            )
        if weight.layout != torch.strided or not weight.is_floating_point():
            type_name = str(weight.dtype).removeprefix("torch.")
            raise ConfigError(
                f"The parameter {name!r} is {type_name if weight.layout == torch.strided else 'sparse'}, "
                "but private training supports dense floating-point parameters only. Use floats."
            )
    if not any(weight.requires_grad for weight in module.parameters()):
        raise ConfigError(
            f"{type(module).__name__} has no trainable parameters. Add a layer with parameters."
        )


def _fault_of(part: nn.Module) -> str:
    kinds = {kind.__name__ for kind in type(part).__mro__}
    dropout = getattr(part, "dropout", None)
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
    if (isinstance(part, _DropoutNd) and part.p > 0) or (
        isinstance(dropout, int | float) and not isinstance(dropout, bool) and dropout > 0
    ):
        return "drops entries at random, and private noise is all that training may draw; set it to 0"
    if getattr(part, "cached", None) is True:
        return "keeps what it computed of the first graph (cached=True), and meets others; use cached=False"
    return ""


# -- by running --------------------------------------------------------------------------------------------


def reject_mixing(module: nn.Module, inputs: int, classes: int, *, edges: bool = True) -> None:
    """Reject a module that mixes records: outputs may depend only on the own ego graph and the parameters.

    Raises:
        ConfigError: If it cannot be run in float64, does not have these sizes, changes while it runs, draws
            random numbers, or mixes records.

    >>> class Mean(nn.Linear):
    ...     def forward(self, x, edge_index):
    ...         return super().forward(x - x.mean(dim=0))
    >>> reject_mixing(Mean(3, 2), 3, 2)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: The output of Mean at one node changes with the other trees of a batch, ...
    """
    name = type(module).__name__
    rng = np.random.default_rng(_SEED)
    own, *others = (random_tree(rng, inputs) for _ in range(4))
    loud = [random_tree(rng, inputs, scale=100.0) for _ in range(6)]
    with ModuleCopies(module).run() as probed:
        probe = _Probe(probed, classes, edges=edges)
        before = state_of(probed)
        first = probe.at([own, *others], 0)
        for what, numbers in zip(("logits", "gradients"), first, strict=True):
            if not numbers.isfinite().all():
                raise ConfigError(
                    f"{name} returns {what} that are NaN or infinite for standard normal features, so such "
                    "records could not be used in training. Keep the arguments of log, sqrt and divisions "
                    "positive, for example with clamp_min(1e-6)."
                )
        probe.at([loud[0], own, *loud[1:]], 1)
        again = probe.at([own, *others], 0)
        _check_state(name, before, state_of(probed))
        _compare(name, first, again, _TWICE)
        _compare(name, first, probe.at([own], 0), f"{_MIXES}; alone it is another")
        _compare(name, first, probe.at([own, *loud], 0), _MIXES)
        place = probe.at([*loud[:3], own, loud[3]], 3)
        _compare(name, first, place, "changes with the place of its tree in a batch")
        alone = torch.stack([probe.at([tree], 0)[1] for tree in (own, *others)]).sum(dim=0)
        together = probe.gradient([own, *others])
        _compare(name, (alone,), (together,), f"{_MIXES}: gradients do not add up")
        probed.train()
        _compare(name, first, probe.at([own, *others], 0), _TRAINING)


def random_tree(rng: np.random.Generator, inputs: int, *, depth: int = 2, scale: float = 1.0) -> RandomTree:
    parents, level = [0], [0]
    for _ in range(depth):
        below = [node for node in level for _ in range(int(rng.integers(1, _MOST_CHILDREN)))]
        level = list(range(len(parents), len(parents) + len(below)))
        parents += below
    x = torch.from_numpy(scale * rng.normal(size=(len(parents), inputs)))
    return x, torch.tensor([list(range(1, len(parents))), parents[1:]])


def _check_state(name: str, before: dict[str, object], after: dict[str, object]) -> None:
    """Reject a module that keeps state from its inputs, in a buffer or anywhere else."""
    missing = object()
    changed = [key for key in before | after if before.get(key, missing) != after.get(key, missing)]
    if changed:
        raise ConfigError(
            f"{name} changes {', '.join(map(repr, changed[:3]))} in forward(), so one record would "
            "affect the next ones. Compute this value again in every call of forward(). For "
            f"normalization, use {ROW_NORMS}."
        )


def _compare(name: str, one: tuple[Tensor, ...], other: tuple[Tensor, ...], how: str) -> None:
    if all(torch.allclose(a, b, rtol=_CLOSE, atol=_CLOSE) for a, b in zip(one, other, strict=True)):
        return
    more = "" if how in (_TWICE, _TRAINING) else f". {_READS}"
    raise ConfigError(f"The output of {name} at one node {how}{more}")


class _Probe:
    """Runs a module in float64 on batches of trees."""

    def __init__(self, module: nn.Module, classes: int, *, edges: bool) -> None:
        self._module = module.to(torch.float64).eval()
        self._weights = [weight for weight in module.parameters() if weight.requires_grad]
        self._classes, self._edges = classes, edges
        self._read = torch.linspace(1.0, 2.0, classes, dtype=torch.float64)

    def at(self, trees: list[RandomTree], place: int) -> tuple[Tensor, Tensor]:
        logits = self._logits(trees)[place]
        return logits.detach(), self._gradient(logits)

    def gradient(self, trees: list[RandomTree]) -> Tensor:
        return self._gradient(self._logits(trees))

    def _logits(self, trees: list[RandomTree]) -> Tensor:
        starts = np.cumsum([0, *(len(x) for x, _ in trees)]).tolist()
        x = torch.cat([x for x, _ in trees])
        edges = [edges + start for (_, edges), start in zip(trees, starts, strict=False)]
        inputs = (x, torch.cat(edges, dim=1)) if self._edges else (x,)
        call: Callable[..., object] = self._module
        name, shape = type(self._module).__name__, (len(x), self._classes)
        try:
            found = call(*inputs)
        except Exception as error:
            where, takes, other = "graph", "(x, edge_index)", ""
            if not self._edges:
                where, takes = "table of records", "rows x and no edges"
                other = "; a module that passes messages is for gv.PrivateGNN"
            raise ConfigError(
                f"{name} fails on a small random {where} in float64: {type(error).__name__}: {error}. It "
                f"is called with {takes} and must return tensors of the dtype of x{other}"
            ) from error
        if not isinstance(found, Tensor) or tuple(found.shape) != shape:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ConfigError(f"{name} returns {what}. It must return logits of shape {shape}.")
        if not found.requires_grad:
            raise ConfigError(
                f"The logits of {name} do not depend on its parameters. Use the parameters in forward()."
            )
        return found[starts[:-1]]

    def _gradient(self, logits: Tensor) -> Tensor:
        try:
            parts = torch.autograd.grad(
                (logits * self._read).sum(), self._weights, allow_unused=True, materialize_grads=True
            )
        except Exception as error:
            raise ConfigError(training_error_message(self._module, error)) from error
        return torch.cat([part.flatten() for part in parts])


def training_error_message(module: nn.Module, error: Exception, name: str = "") -> str:
    name = name or type(module).__name__
    kinds = (nn.RNNBase, nn.RNNCellBase)
    recurrent = next((type(part) for part in module.modules() if isinstance(part, kinds)), None)
    if "inplace operation" in str(error):
        kind = str(error).partition("output 0 of ")[2].partition(",")[0]
        return (
            f"{name} changes a tensor in place that its backward pass reads"
            f"{f', the output of {kind}' if kind else ''}. Write h = h + 1 in place of h += 1, and h.mul(2) "
            "in place of h.mul_(2)."
        )
    what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if recurrent is not None:
        return (
            f"{name} holds an nn.{recurrent.__name__}, which torch.func.vmap cannot run on many records at "
            f"once ({what}). Write the recurrence with nn.Linear and torch.tanh."
        )
    if "vmap" in what or "data-dependent" in what:
        return (
            f"{name} cannot be trained record by record under torch.func.vmap ({what}). Use torch.where in "
            "place of .item() and of if-statements on the values of a tensor."
        )
    return (
        f"{name} fails when it is trained record by record ({what}). Its forward and backward pass must run "
        "on random features in float64."
    )
