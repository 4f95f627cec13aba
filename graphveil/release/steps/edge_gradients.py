"""Gradients of edge attention, summed over targets: private until noise is added, and never returned before.

With rows z, target v and its in-neighbors u the example of v is

    h_u = tanh(A z_u + B z_v + b),    w_u = sigmoid(w . h_u + c),    r = sum over u of w_u z_u + n_v,
    x = r / sqrt(|r|^2 + k^2),        loss = -log softmax(H z_v + G x + g)[y_v],

where n_v is public noise for each target. The gradient with respect to A is a sum of outer products over v's
in-edges. The gradient with respect to B is an outer product of a sum. No other example has v's edges in it.

All maps are smooth. Another edge therefore changes a target's gradient by rounding errors only, which the
margin of the clipping covers.

Implementation: clipping needs the gradient of every target, and automatic differentiation would build one
graph of operations per target. A gradient is a sum of outer products of a few vectors that belong to edges or
targets. It is therefore computed by hand, for a whole batch at once: a pass over the batch's in-edges for the
sums r, the head for the gradient with respect to r, and a backward pass. The backward pass recomputes the
hidden rows: storing them would take memory for every edge, and a product of small matrices is cheaper. Only
the gradient with respect to A differs from edge to edge. It is a product of two matrices over the target's
run of edges. Edges are processed in pieces that fit the cache and targets in pieces that bound memory. This
changes no term of a sum. Everything is float64: if rounding made a norm too small, a target could contribute
more than C.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from graphveil.release.private_edges import PrivateEdges
from graphveil.release.steps.orientation import select_one_direction

MARGIN = 1e-6  # room for float64 rounding below the clipping norm, relative
MAX_WEIGHT = 1024.0  # maximum network parameter: rounding is negligible up to here
_NUMBERS = 1 << 22  # gradient numbers per chunk: a target has one per parameter,
_EDGES = 1 << 14  # and in-edges per chunk: their rows fit into the cache


class EdgeTrainingParameters(Protocol):
    """Public parameters of the query that determine the gradients, besides the examples."""

    @property
    def dim(self) -> int:
        """D."""

    @property
    def parameters(self) -> int:
        """P."""

    @property
    def clip(self) -> float:
        """C."""

    @property
    def oriented(self) -> bool:
        """Whether an undirected edge counts in one direction only."""

    @property
    def forward_noise(self) -> float:
        """The noise of the sums that determines k."""

    def parts(self, weights: Tensor) -> dict[str, Tensor]:
        """Return a parameter vector as its parts."""


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Inputs of the steps: private in-edges, and public rows (N, d), targets (n) and their classes (n)."""

    private: PrivateEdges
    rows: Tensor
    targets: Tensor
    classes: Tensor


class _InEdges(NamedTuple):
    """In-edges of some targets: sources, and the ascending positions of the targets in the batch."""

    sources: Tensor
    places: Tensor


def clipped_sum(
    weights: Tensor, examples: Examples, batch: Tensor, noise: Tensor, query: EdgeTrainingParameters
) -> Tensor:
    """Return the sum over a batch of g_v min(1, C / ((1 + 10^-6) |g_v|)), shape (p).

    A target whose gradient is not finite contributes nothing: an exception would reveal information about
    edges.

    Args:
        weights: Parameters, shape (p).
        examples: The data.
        batch: Positions in ``examples.targets``, shape (B).
        noise: n_v for the batch, shape (B, d).
        query: Shapes and clipping norm.
    """
    total = torch.zeros_like(weights)
    parts = query.parts(weights)
    at_once = max(1, _NUMBERS // query.parameters)
    for first in range(0, len(batch), at_once):
        some = slice(first, first + at_once)
        gradients = _gradients(parts, examples, batch[some], noise[some], query)
        norms = gradients.norm(dim=1)
        gradients[~norms.isfinite()] = 0.0
        factors = (query.clip / ((1 + MARGIN) * norms)).clamp_max(1.0).nan_to_num(0.0)
        total.addmv_(gradients.t(), factors)  # clips and sums together, without a clipped copy
    return total


def _gradients(
    parts: dict[str, Tensor], examples: Examples, batch: Tensor, noise: Tensor, query: EdgeTrainingParameters
) -> Tensor:
    """Return each target's gradient, shape (B, p)."""
    nodes = examples.targets[batch]
    edges = _in_edges(examples, nodes, query)
    own = examples.rows[nodes]
    sums = noise.clone()
    for piece in _pieces(edges):
        z = examples.rows[piece.sources]
        sums.index_add_(0, piece.places, _weigh(parts, z, own[piece.places])[1][:, None] * z)
    delta, by_sum, x = _head(parts, own, sums, examples.classes[batch], query)
    found = _Network.zeros(len(nodes), query.dim)
    for piece in _pieces(edges):
        z = examples.rows[piece.sources]
        found.add(parts, z, own[piece.places], by_sum[piece.places], piece.places)
    return torch.cat(
        [
            found.source.flatten(1),
            _outer(own, found.bias),
            found.bias,
            found.readout,
            found.offset,
            _outer(own, delta),
            _outer(x, delta),
            delta,
        ],
        dim=1,
    )


def _weigh(parts: dict[str, Tensor], z: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden rows (E, d) and the weights (E) of some edges."""
    hidden = torch.tanh(z @ parts["source"] + own @ parts["target"] + parts["bias"])
    return hidden, torch.sigmoid(hidden @ parts["readout"] + parts["offset"])


def _head(
    parts: dict[str, Tensor], own: Tensor, sums: Tensor, classes: Tensor, query: EdgeTrainingParameters
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the loss for the logits (B, C) and the sums (B, d), and the scaled sums."""
    soft = max(1.0, query.forward_noise) * query.dim**0.5
    length = (sums.square().sum(dim=1, keepdim=True) + soft**2).sqrt()
    x = sums / length
    logits = own @ parts["head_own"] + x @ parts["head_sum"] + parts["head_bias"]
    delta = logits.softmax(dim=1)
    delta[torch.arange(len(delta)), classes] -= 1.0
    by_x = delta @ parts["head_sum"].t()
    return delta, (by_x - x * (x * by_x).sum(dim=1, keepdim=True)) / length, x


class _Network(NamedTuple):
    """Gradients with respect to the network's parts, one per target; that for B follows from ``bias``."""

    source: Tensor
    bias: Tensor
    readout: Tensor
    offset: Tensor

    @classmethod
    def zeros(cls, count: int, dim: int) -> "_Network":
        """Return zeros."""
        shapes = ((count, dim, dim), (count, dim), (count, dim), (count, 1))
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def add(self, parts: dict[str, Tensor], z: Tensor, own: Tensor, by_sum: Tensor, places: Tensor) -> None:
        """Add the contributions of some edges."""
        hidden, weight = _weigh(parts, z, own)
        by_logit = weight * (1 - weight) * (z * by_sum).sum(dim=1)
        by_hidden = by_logit[:, None] * parts["readout"] * (1 - hidden.square())
        self.readout.index_add_(0, places, by_logit[:, None] * hidden)
        self.offset.index_add_(0, places, by_logit[:, None])
        self.bias.index_add_(0, places, by_hidden)
        found, counts = torch.unique_consecutive(places, return_counts=True)
        sizes = counts.tolist()
        by_target = torch.split(z, sizes), torch.split(by_hidden, sizes)
        for place, u, g in zip(found.tolist(), *by_target, strict=True):
            self.source[place].addmm_(u.t(), g)


def _in_edges(examples: Examples, nodes: Tensor, query: EdgeTrainingParameters) -> _InEdges:
    """Return the in-edges of the targets; an undirected edge in one direction only if ``oriented``."""
    sources, counts = examples.private.in_edges(nodes.numpy())
    places = np.repeat(np.arange(len(nodes)), counts)
    if query.oriented:
        learns = np.zeros(len(examples.rows), dtype=bool)
        learns[examples.targets.numpy()] = True
        used = select_one_direction(sources, nodes.numpy()[places], learns)
        sources, places = sources[used], places[used]
    return _InEdges(torch.from_numpy(sources), torch.from_numpy(places))


def _pieces(edges: _InEdges) -> Iterator[_InEdges]:
    """Yield the edges in pieces that fit the cache, for any number of edges per target."""
    split = (torch.split(part, _EDGES) for part in edges)
    for sources, places in zip(*split, strict=True):
        if len(sources):
            yield _InEdges(sources, places)


def _outer(one: Tensor, other: Tensor) -> Tensor:
    return (one[:, :, None] * other[:, None, :]).flatten(1)
