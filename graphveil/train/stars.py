"""Clipped sums of a message-passing module on stars: a record is the root of one, and of one alone.

Star i is a graph of public size: the root, ``leaves`` places for its leaves, and one more node that edges
without a leaf run around. The module sees one star at a time, under ``vmap`` or in a loop, so no record can
touch another's gradient whatever the module does; and every shape is public (``train/clipped.py``).
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from graphveil.train.affine import AffineGradients, affine_parts, inputs_of, moved
from graphveil.train.clipped import ClippedSum, chunks, clip_factors, targets_of

Stars = Callable[[Tensor], tuple[Tensor, Tensor]]  # indices (B) to rows (B, W, d), edges (B, 2, W - 2)
Route = Literal["ghost", "vmap", "loop"]
Parameters = dict[str, Tensor]


class StarSum(ClippedSum):
    """The clipped sum of a module on stars, each star on its own.

    The module takes rows (W, d) and edges (2, W - 2), and returns a row of logits for every node, of which
    the first is the root's. It computes in float64.

    Args:
        module: trained in place.
        stars: returns some records' stars.
        labels: classes, (N), a value that is no class for a record that teaches nothing.
        width: W.
        begin: is told the number of each step before its batch is added.
        route: ``"ghost"`` runs the stars of a chunk at once and forms no gradient of an affine map that is
            larger than its rows (``affine.py``), which asks that its weights are read by it alone; ``"vmap"``
            forms all gradients; and ``"loop"`` runs one star after the other, for modules that cannot be run
            at once.

    >>> class Own(nn.Linear):
    ...     def forward(self, x, edge_index): return super().forward(x)
    >>> edges = torch.tensor([[[1], [0]]])
    >>> def stars(index): return torch.ones(len(index), 3, 2), edges.expand(len(index), 2, 1)
    >>> gradients = StarSum(Own(2, 2), stars, torch.zeros(5, dtype=torch.int64), width=3)
    >>> gradients.add(torch.tensor([1, 4]), clip=0.01)
    >>> round(float(gradients.sums.norm()), 4)
    0.02
    """

    def __init__(
        self,
        module: nn.Module,
        stars: Stars,
        labels: Tensor,
        width: int,
        *,
        route: Route = "ghost",
        begin: Callable[[int], None] = lambda step: None,
    ) -> None:
        """Copy the weights."""
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        super().__init__(list(named.values()), labels, len(labels))
        self._stars, self._width, self._begin = stars, width, begin
        self._module, self._fixed = module, _buffers(module)
        self._sums = dict(zip(named, self._views(self.sums), strict=True))
        self._parameters = dict(zip(named, self._views(self.weights), strict=True))
        self._affine = affine_parts(module, width) if route == "ghost" else {}
        within = {f"{name}.{part}" if name else part for name in self._affine for part in ("weight", "bias")}
        self._formed = [name for name in named if name not in within]
        one = grad(self._loss, argnums=(0, 1), has_aux=True)
        self._gradients = _looped(one) if route == "loop" else vmap(one, in_dims=(None, None, 0, 0, 0))
        widest = max((inputs_of(part) for part in self._affine.values()), default=_HIDDEN)
        formed = sum(named[name].numel() for name in self._formed)
        self._numbers = max(formed, width * widest, width * _HIDDEN)  # that a star takes at a time
        self._calls: list[tuple[int, tuple[int, ...]]] | None = None

    def begin(self, step: int) -> None:
        """Let whoever makes the stars know."""
        self._begin(step)

    def add(self, index: Tensor, clip: float) -> None:
        """Add them chunk by chunk, each of a size that follows from public numbers."""
        for part in chunks(index, self._numbers):
            self._add_chunk(part, clip)

    def _add_chunk(self, index: Tensor, clip: float) -> None:
        x, edges = self._stars(index)
        x = x.to(torch.float64)
        moves = [x.new_zeros(shape) for _, shape in self._called(x[0], edges[0])]
        formed = {name: self._parameters[name] for name in self._formed}
        with torch.enable_grad():
            (deltas, gradients), inputs = self._gradients(moves, formed, x, edges, self._labels[index])
        maps = self._maps(inputs, deltas)
        flat = {name: part.flatten(start_dim=1) for name, part in gradients.items()}
        squares = [part.square().sum(dim=1) for part in flat.values()]
        squares += [part.square_norms(bias=self._bias(name) in self._sums) for name, part in maps.items()]
        factors, bad = clip_factors(torch.stack(squares).sum(dim=0), clip)
        for name, part in flat.items():
            if bad is not None:
                part[bad] = 0
            self._sums[name].view(-1).addmv_(part.t(), factors)
        for name, part in maps.items():
            if bad is not None:
                part.drop(bad)
            weight, bias = part.sums(factors)
            self._sums[self._weight(name)].add_(weight)
            if self._bias(name) in self._sums:
                self._sums[self._bias(name)].add_(bias)

    def _loss(
        self, moves: list[Tensor], formed: Parameters, x: Tensor, edges: Tensor, label: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of one star's root, and what each affine map was called with."""
        inputs: list[Tensor] = []
        with moved(list(self._affine.values()), moves, inputs):
            logits: Tensor = functional_call(
                self._module, {**self._fixed, **self._parameters, **formed}, (x, edges)
            )[0]
        targets = targets_of(label[None], len(logits))[:, 0]
        return -(targets * logits.log_softmax(dim=0)).sum(), inputs

    def _called(self, x: Tensor, edges: Tensor) -> list[tuple[int, tuple[int, ...]]]:
        """Return which affine maps a star calls, in order, and the shapes of their outputs; all public."""
        if self._calls is None:
            self._calls = []
            with torch.no_grad(), moved(list(self._affine.values()), None, self._calls):
                functional_call(self._module, {**self._fixed, **self._parameters}, (x, edges))
        return self._calls

    def _maps(self, inputs: list[Tensor], deltas: list[Tensor]) -> dict[str, AffineGradients]:
        """Return the gradients of each affine map that was called."""
        calls = [number for number, _ in self._calls or ()]
        found = {}
        for number, name in enumerate(self._affine):
            own = [k for k, called in enumerate(calls) if called == number]
            if own:
                found[name] = AffineGradients.of([inputs[k] for k in own], [deltas[k] for k in own])
        return found

    def _weight(self, name: str) -> str:
        return f"{name}.weight" if name else "weight"

    def _bias(self, name: str) -> str:
        return f"{name}.bias" if name else "bias"


_HIDDEN = 16  # numbers that a node is taken to need at a time


def star_logits(module: nn.Module, stars: Stars, count: int, width: int, *, route: Route = "ghost") -> Tensor:
    """Return the logits of every root (N, C), float64, each star on its own as in training."""
    weights = {name: p.detach().to(torch.float64) for name, p in module.named_parameters()}
    fixed = _buffers(module)

    def one(x: Tensor, edges: Tensor) -> Tensor:
        logits: Tensor = functional_call(module, {**fixed, **weights}, (x, edges))[0]
        return logits

    run = vmap(one) if route != "loop" else lambda x, edges: torch.stack(list(map(one, x, edges)))
    found = []
    with torch.no_grad():
        for part in chunks(torch.arange(count), width * _HIDDEN):
            x, edges = stars(part)
            found.append(run(x.to(torch.float64), edges))
    return torch.cat(found)


def _buffers(module: nn.Module) -> Parameters:
    """Return what is not trained, floats as float64."""
    kept = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
    return {
        name: value.detach().to(torch.float64) if value.is_floating_point() else value
        for name, value in (*kept, *module.named_buffers())
    }


def _looped(one: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same for several stars, one after the other; nothing is moved there."""

    def several(moves: list[Tensor], formed: Parameters, x: Tensor, edges: Tensor, labels: Tensor) -> Any:
        found = [one(moves, formed, *star)[0][1] for star in zip(x, edges, labels, strict=True)]
        return ([], {name: torch.stack([each[name] for each in found]) for name in formed}), []

    return several
