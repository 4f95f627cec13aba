"""Checks of custom modules by running them on small random trees, without any data.

The gradient of a root may depend on its own tree only. The checks change everything else: other trees in the
batch, their number, the position in the batch, and previous batches. They cannot find a module that mixes
records or keeps state only when a feature equals 17. Private training and prediction therefore run every tree
on its own, on a fresh copy of the module (``training/ego_graphs.py``), so the proof does not rest on these
checks. They are there because such a module computes something else in a batch than alone, and its author
should know before a budget is spent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from graphveil.errors import ConfigError
from graphveil.estimators.own.layer_checks import ROW_NORMS
from graphveil.training.module_copies import ModuleCopies, state_of

_CLOSE = 1e-9
_SEED, _MOST_CHILDREN = 7, 4


@dataclass(frozen=True, eq=False)
class RandomTree:
    """A tree whose root is node 0: rows (n, d), and edges from children to parents (2, n - 1)."""

    x: Tensor
    edges: Tensor


def random_tree(rng: np.random.Generator, inputs: int, *, depth: int = 2, scale: float = 1.0) -> RandomTree:
    """Return a tree of random features, in which a node has up to four children."""
    parents, level = [0], [0]
    for _ in range(depth):
        below = [node for node in level for _ in range(int(rng.integers(1, _MOST_CHILDREN)))]
        level = list(range(len(parents), len(parents) + len(below)))
        parents += below
    x = torch.from_numpy(scale * rng.normal(size=(len(parents), inputs)))
    return RandomTree(x, torch.tensor([list(range(1, len(parents))), parents[1:]]))


def batched(trees: list[RandomTree]) -> tuple[Tensor, Tensor, list[int]]:
    """Return trees concatenated into one graph: features, edges, and the indices of the roots."""
    starts = np.cumsum([0, *(len(tree.x) for tree in trees)]).tolist()
    edges = [tree.edges + start for tree, start in zip(trees, starts, strict=False)]
    return torch.cat([tree.x for tree in trees]), torch.cat(edges, dim=1), starts[:-1]


def reject_mixing(module: nn.Module, inputs: int, classes: int, *, edges: bool = True) -> None:
    """Reject a module whose output at a root depends on more than the root's own tree and the parameters.

    Raises:
        ConfigError: If it cannot be run in float64, does not have these sizes, changes while it runs, draws
            random numbers, or mixes records.

    >>> class Mean(nn.Linear):
    ...     def forward(self, x, edge_index):
    ...         return super().forward(x - x.mean(dim=0))
    >>> reject_mixing(Mean(3, 2), 3, 2)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: Mean: its output at one node changes with the other trees of a batch, ...
    """
    with ModuleCopies(module).run() as probed:
        _reject_mixing(_Probe(probed, classes, edges=edges), type(module).__name__, inputs)


def _reject_mixing(probe: "_Probe", name: str, inputs: int) -> None:
    rng = np.random.default_rng(_SEED)
    own, *others = (random_tree(rng, inputs) for _ in range(4))
    loud = [random_tree(rng, inputs, scale=100.0) for _ in range(6)]
    before = state_of(probe.module)
    first = probe.at([own, *others], 0)
    _check_finite(name, *first)
    probe.at([loud[0], own, *loud[1:]], 1)
    again = probe.at([own, *others], 0)
    _check_state(name, before, state_of(probe.module))
    _compare(name, first, again, _TWICE)
    _compare(name, first, probe.at([own], 0), f"{_MIXES}; alone it is another")
    _compare(name, first, probe.at([own, *loud], 0), _MIXES)
    _compare(
        name, first, probe.at([*loud[:3], own, loud[3]], 3), "changes with the place of its tree in a batch"
    )
    alone = torch.stack([probe.at([tree], 0)[1] for tree in (own, *others)]).sum(dim=0)
    _compare(name, (alone,), (probe.gradient([own, *others]),), f"{_MIXES}: gradients do not add up")
    probe.module.train()
    _compare(name, first, probe.at([own, *others], 0), _TRAINING)


def _check_state(name: str, before: dict[str, object], after: dict[str, object]) -> None:
    """Reject a module that keeps state from its inputs, in a buffer or anywhere else.

    Raises:
        ConfigError: With the state that has changed.
    """
    missing = object()
    changed = [key for key in before | after if before.get(key, missing) != after.get(key, missing)]
    if changed:
        raise ConfigError(
            f"{name} changes {', '.join(map(repr, changed[:3]))} as it runs, and one record would reach the "
            f"next through it. Compute it again in every call of forward(). For norms, use {ROW_NORMS}."
        )


def _check_finite(name: str, logits: Tensor, gradient: Tensor) -> None:
    """Reject a module whose logits or gradients are not finite for standard normal features.

    Raises:
        ConfigError: Such records would all count as null.
    """
    for what, numbers in (("logits", logits), ("gradients", gradient)):
        if not numbers.isfinite().all():
            raise ConfigError(
                f"{name} has {what} that are NaN or infinite on standard normal features, and such a record "
                "does not take part in training. Keep log, sqrt and divisions away from numbers at or below "
                "0, such as by clamp_min(1e-6)."
            )


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


def _compare(name: str, one: tuple[Tensor, ...], other: tuple[Tensor, ...], how: str) -> None:
    if all(torch.allclose(a, b, rtol=_CLOSE, atol=_CLOSE) for a, b in zip(one, other, strict=True)):
        return
    more = "" if how in (_TWICE, _TRAINING) else f". {_READS}"
    raise ConfigError(f"{name}: its output at one node {how}{more}")


class _Probe:
    """Runs a copy of a module in float64."""

    def __init__(self, module: nn.Module, classes: int, *, edges: bool) -> None:
        self.module = module.to(torch.float64).eval()
        self._weights = [weight for weight in self.module.parameters() if weight.requires_grad]
        self._classes, self._edges = classes, edges
        self._read = torch.linspace(1.0, 2.0, classes, dtype=torch.float64)

    def at(self, trees: list[RandomTree], place: int) -> tuple[Tensor, Tensor]:
        """Return the logits at one root, and their gradient by the parameters."""
        logits, roots = self._run(trees)
        return logits[roots[place]].detach(), self._gradient_by_parameters(
            (logits[roots[place]] * self._read).sum()
        )

    def gradient(self, trees: list[RandomTree]) -> Tensor:
        """Return the gradient of all roots' logits together."""
        logits, roots = self._run(trees)
        return self._gradient_by_parameters((logits[roots] * self._read).sum())

    def _gradient_by_parameters(self, value: Tensor) -> Tensor:
        try:
            parts = torch.autograd.grad(value, self._weights, allow_unused=True)
        except Exception as error:
            raise ConfigError(training_error_message(self.module, error)) from error
        return torch.cat(
            [
                (torch.zeros_like(w) if part is None else part).flatten()
                for part, w in zip(parts, self._weights, strict=True)
            ]
        )

    def _run(self, trees: list[RandomTree]) -> tuple[Tensor, list[int]]:
        x, edges, roots = batched(trees)
        inputs = (x, edges) if self._edges else (x,)
        return run(self.module, inputs, (len(x), self._classes)), roots


def training_error_message(module: nn.Module, error: Exception, name: str = "") -> str:
    """Return why a module cannot be trained per record, and an alternative."""
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


def run(module: nn.Module, inputs: tuple[Tensor, ...], shape: tuple[int, ...]) -> Tensor:
    """Return a module's output, which must have this shape; errors are raised as ours.

    Raises:
        ConfigError: If it fails in float64, returns something else, or its output has no gradient.
    """
    call: Callable[..., object] = module
    try:
        found = call(*inputs)
    except Exception as error:
        graph = len(inputs) > 1
        where, takes = ("graph", "(x, edge_index)") if graph else ("table of records", "rows x and no edges")
        other = "" if graph else "; a module that passes messages is for gv.PrivateGNN"
        raise ConfigError(
            f"{type(module).__name__} fails on a small random {where} in float64: {type(error).__name__}: "
            f"{error}; it takes {takes} and must make tensors of the dtype of x{other}"
        ) from error
    if not isinstance(found, Tensor) or tuple(found.shape) != shape:
        what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ConfigError(f"{type(module).__name__} returns {what}, and logits of shape {shape} are needed")
    if not found.requires_grad:
        raise ConfigError(f"{type(module).__name__}: its logits do not depend on its weights; use them")
    return found
