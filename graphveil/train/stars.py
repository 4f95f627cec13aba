"""Clipped sums of a message-passing module on stars: a record is the root of one, and of one alone.

Star i is a graph of public size: the root, ``leaves`` places for its leaves, and one more node that edges
without a leaf run around. The module sees one star at a time, under ``vmap`` or in a loop, so no record can
touch another's gradient whatever the module does; and every shape is public (``train/clipped.py``).
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from graphveil.train.clipped import ClippedSum, chunks, clip_factors, targets_of

Stars = Callable[[Tensor], tuple[Tensor, Tensor]]  # indices (B) to rows (B, W, d), edges (B, 2, W - 2)
Route = Literal["vmap", "loop"]
Parameters = dict[str, Tensor]


class StarSum(ClippedSum):
    """The clipped sum of a module on stars, each star on its own, at the price of forming p numbers each.

    The module takes rows (W, d) and edges (2, W - 2), and returns a row of logits for every node, of which
    the first is the root's. It computes in float64.

    Args:
        module: trained in place.
        stars: returns some records' stars.
        labels: classes, (N), a value that is no class for a record that teaches nothing.
        width: W.
        begin: is told the number of each step before its batch is added.
        route: ``"vmap"`` runs the stars of a chunk at once, which some modules cannot do, ``"loop"``
            one after the other.

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
        route: Route = "vmap",
        begin: Callable[[int], None] = lambda step: None,
    ) -> None:
        """Copy the weights."""
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        super().__init__(list(named.values()), labels, len(labels))
        self._stars, self._width, self._begin = stars, width, begin
        self._sum_views = self._views(self.sums)
        self._parameters = dict(zip(named, self._views(self.weights), strict=True))
        one = grad(_loss_of(module))
        self._gradients = vmap(one, in_dims=(None, 0, 0, 0)) if route == "vmap" else _looped(one)

    def begin(self, step: int) -> None:
        """Let whoever makes the stars know."""
        self._begin(step)

    def add(self, index: Tensor, clip: float) -> None:
        """Add them chunk by chunk, each of a size that follows from public numbers."""
        for part in chunks(index, max(len(self.weights), self._width * _HIDDEN)):
            self._add_chunk(part, clip)

    def _add_chunk(self, index: Tensor, clip: float) -> None:
        x, edges = self._stars(index)
        with torch.enable_grad():
            gradients = self._gradients(self._parameters, x.to(torch.float64), edges, self._labels[index])
        flat = [gradients[name].flatten(start_dim=1) for name in self._parameters]
        squares = torch.stack([part.square().sum(dim=1) for part in flat]).sum(dim=0)
        factors, bad = clip_factors(squares, clip)
        for part, out in zip(flat, self._sum_views, strict=True):
            if bad is not None:
                part[bad] = 0
            out.view(-1).addmv_(part.t(), factors)


_HIDDEN = 16  # numbers that a node is taken to need at a time


def star_logits(module: nn.Module, stars: Stars, count: int, width: int, *, route: Route = "vmap") -> Tensor:
    """Return the logits of every root (N, C), float64, each star on its own as in training."""
    weights = {name: p.detach().to(torch.float64) for name, p in module.named_parameters()}
    fixed = _buffers(module)

    def one(x: Tensor, edges: Tensor) -> Tensor:
        logits: Tensor = functional_call(module, {**fixed, **weights}, (x, edges))[0]
        return logits

    run = vmap(one) if route == "vmap" else lambda x, edges: torch.stack(list(map(one, x, edges)))
    found = []
    with torch.no_grad():
        for part in chunks(torch.arange(count), width * _HIDDEN):
            x, edges = stars(part)
            found.append(run(x.to(torch.float64), edges))
    return torch.cat(found)


def _loss_of(module: nn.Module) -> Callable[[Parameters, Tensor, Tensor, Tensor], Tensor]:
    """Return the loss of one star's root as a function of the weights."""
    fixed = _buffers(module)

    def loss(parameters: Parameters, x: Tensor, edges: Tensor, label: Tensor) -> Tensor:
        logits: Tensor = functional_call(module, {**fixed, **parameters}, (x, edges))[0]
        return -(targets_of(label[None], len(logits))[:, 0] * logits.log_softmax(dim=0)).sum()

    return loss


def _buffers(module: nn.Module) -> Parameters:
    """Return what is not trained, floats as float64."""
    kept = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
    return {
        name: value.detach().to(torch.float64) if value.is_floating_point() else value
        for name, value in (*kept, *module.named_buffers())
    }


def _looped(one: Callable[..., Parameters]) -> Callable[..., Parameters]:
    """Return the same for several stars, one after the other."""

    def several(parameters: Parameters, x: Tensor, edges: Tensor, labels: Tensor) -> Parameters:
        found = [one(parameters, *star) for star in zip(x, edges, labels, strict=True)]
        return {name: torch.stack([each[name] for each in found]) for name in parameters}

    return several
