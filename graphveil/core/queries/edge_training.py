"""Attention learned from the edges: noisy training steps on the targets' own in-edges.

Training receives only noisy gradients about the edges, step by step. The gradients themselves are private
until noise is added, and never returned before.

With rows z, target v and its in-neighbors u the example of v is

    h_u = tanh(A z_u + B z_v + b),    w_u = sigmoid(w . h_u + c),    r = sum over u of w_u z_u + n_v,
    x = r / sqrt(|r|^2 + k^2),        loss = -log softmax(H z_v + G x + g)[y_v],

where n_v is public noise for each target. The gradient with respect to A is a sum of outer products over v's
in-edges. The gradient with respect to B is an outer product of a sum. No other example has v's edges in it.

All maps are smooth. Another edge therefore changes a target's gradient by rounding errors only, which the
margin of the clipping covers.

Automatic differentiation would build one graph of operations per target, so gradients are computed by hand
for a whole batch: a pass over the batch's in-edges for the sums r, the head, and a backward pass. This one
recomputes the hidden rows, which is cheaper than memory for every edge. Everything is float64: if rounding
made a norm too small, a target could contribute more than C.
"""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.clipping.clipped_sums import MARGIN, ClippedSum
from graphveil.core.events import Event, PoissonGaussian
from graphveil.core.noise.random import PublicStreams
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.held_out import counts_at_target
from graphveil.core.queries.training_steps import NoisyStepsQuery
from graphveil.core.query import (
    PreparedData,
    PublicInputs,
    QueryData,
    are_numbers,
    check_rows,
    outside,
    reject_if,
    require_edge_unit,
)
from graphveil.core.unit import UndirectedEdge, Unit
from graphveil.errors import ReleaseError

MAX_WEIGHT = 1024.0  # maximum network parameter: rounding is negligible up to here
_NUMBERS = 1 << 22  # gradient numbers per chunk: a target has one per parameter,
_EDGES = 1 << 14  # and in-edges per chunk: their rows fit into the cache
_ROUNDING = 1e-6  # rounding of the norm of a float32 row of norm one

Gradients = Callable[[Tensor], Tensor]
Descent = Callable[[Tensor, Gradients], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class EdgeAttentionData(QueryData[Tensor]):
    """Training inputs; the answer is the last parameters, float64, shape (p).

    Args:
        rows: Rows z, public or released earlier, shape (N, d), of norm at most one.
        labels: Class indices, shape (N); only those of targets are read.
        start: Initial parameters, public, shape (p).
        descend: Function that maps the start and the noisy gradients to the last parameters. It must be
            deterministic, because a resumed release draws the same noise.
    """

    rows: Tensor
    labels: Tensor
    targets: Tensor
    start: Tensor
    descend: Descent


@dataclass(frozen=True, kw_only=True)
class EdgeAttentionQuery(NoisyStepsQuery):
    """Release noisy gradients of an edge attention network, each target's gradient clipped to a norm C.

    The example of target v is the loss of its class, given its own row and the weighted sum of its
    in-neighbors' rows. The network computes the weights, by the formulas of this module. Step t
    releases the sum of the clipped gradients of a batch of targets plus N(0, (z C)^2). Each target is in the
    batch with probability q, independently.

    Args:
        dim: Width d of the rows, and of the network's hidden layer.
        sampling_rate: Sampling rate q, a multiple of 2^-32 (``graphveil.mechanisms.public_rate``).
        learning_rate: Learning rate of the descent. It is a field because noise must not be used for two
            descents.
        forward_noise: Standard deviation of the noise added to the weighted sums in training, drawn
            for each target and step. It gives no protection; it simulates the noise of the hop.

    Privacy:
        Unit: edge-level. Features and labels are public, and an edge enters the gradient of its target alone.
        Toggling it replaces one clipped gradient by another, a change of 2 C. The steps are T
        Poisson-subsampled Gaussian steps of multiplier z and rate q under the REPLACE relation. For this an
        undirected graph has to be ``oriented``: each undirected edge counts in one public direction. If it
        counts in both, two targets change. Each half gets half of the noise variance, so the cost of the
        steps is at most that of 2 T steps of multiplier z / sqrt 2.

    >>> query = EdgeAttentionQuery(
    ...     dim=2, classes=3, steps=100, noise_multiplier=2.0, sampling_rate=0.25, learning_rate=0.01
    ... )
    >>> query.event(UndirectedEdge()), query.parameters
    (PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.25, steps=100, relation='replace'), 28)
    """

    kind: ClassVar[str] = "attention"
    wire_name: ClassVar[str] = "AttentionStepsQuery"
    stage: ClassVar[str] = "training on edges"
    data: ClassVar[type[EdgeAttentionData]] = EdgeAttentionData
    linear_group_scaling: ClassVar[bool] = True  # all edges of one node may count at that node

    dim: int
    classes: int
    steps: int
    noise_multiplier: float
    sampling_rate: float
    learning_rate: float
    clip: float = 1.0
    oriented: bool = True
    forward_noise: float = 0.0

    def __post_init__(self) -> None:
        checks.integer_at_least(1, dim=self.dim, steps=self.steps)
        checks.integer_at_least(2, classes=self.classes)
        checks.positive(learning_rate=self.learning_rate, clip=self.clip)
        checks.non_negative(forward_noise=self.forward_noise)
        self.randomness(bytes(32))

    def event(self, unit: Unit) -> Event:
        require_edge_unit(
            unit, "attention is learned from rows and labels as if they were public (weights='one')"
        )
        moved = self._targets_moved(unit)
        return PoissonGaussian(
            self.noise_multiplier / math.sqrt(moved), self.sampling_rate, moved * self.steps, "replace"
        )

    def sensitivity(self, unit: Unit) -> float:
        return 2 * self.clip * self._targets_moved(unit)

    def _targets_moved(self, unit: Unit) -> int:
        return 2 if isinstance(unit, UndirectedEdge) and not self.oriented else 1

    def prepare(self, data: EdgeAttentionData, public: PublicInputs) -> PreparedData:
        """Reject rows of norm above one, and targets that are not nodes, have no class, or occur twice.

        One edge would move two examples of a target that occurs twice. Rows are bounded because rounding
        errors must be: the clipping margin covers rounding of rows of norm at most one.
        """
        check_rows(data.rows, public.num_nodes, self.dim)
        reject_if(
            not bool((data.rows.to(torch.float64).norm(dim=1) <= 1 + _ROUNDING).all()),
            "training needs finite rows with norms of at most 1",
        )
        targets, labels = data.targets, data.labels
        nodes = are_numbers(targets, len(targets)) and not outside(targets, public.num_nodes)
        reject_if(
            not nodes or not len(targets) or len(torch.unique(targets)) < len(targets),
            "the training targets must be distinct nodes",
        )
        reject_if(
            not are_numbers(labels, public.num_nodes) or outside(labels[targets], self.classes),
            f"training needs {public.num_nodes} labels, and those of targets must be from 0 to "
            f"{self.classes - 1}",
        )
        arrays = data.rows.to(torch.float64), targets, labels[targets], data.start
        return PreparedData(public, arrays, data.descend)

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        descend: Descent = data.parts
        gradients, lock, steps = EdgeGradients(private, self, *data.arrays), threading.Lock(), count()
        noisy_mean_of = self.noisy_means(gradients, self.randomness(key))

        def noisy_gradient(weights: Tensor) -> Tensor:
            if weights.shape != (self.parameters,) or not bool(weights.isfinite().all()):
                raise ReleaseError(f"a gradient query needs {self.parameters} finite parameters")
            with lock:  # two threads must not take one step, whose noise would then be used twice
                gradients.weights.copy_(weights.detach().clamp(-MAX_WEIGHT, MAX_WEIGHT))
                return noisy_mean_of(next(steps)).clone()

        return descend(data.arrays[-1].to(torch.float64), noisy_gradient).to(torch.float64)

    @property
    def parameters(self) -> int:  # type: ignore[override]
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        d, c = self.dim, self.classes
        network = {"source": (d, d), "target": (d, d), "bias": (d,), "readout": (d,), "offset": (1,)}
        return network | {"head_own": (d, c), "head_sum": (d, c), "head_bias": (c,)}

    def parts(self, weights: Tensor) -> dict[str, Tensor]:
        split = torch.split(weights, list(map(math.prod, self.shapes.values())))
        return {
            name: part.view(shape) for part, (name, shape) in zip(split, self.shapes.items(), strict=True)
        }


class EdgeGradients(ClippedSum):
    """The clipped sum of targets' gradients, which read the targets' in-edges.

    A target whose gradient is not finite contributes nothing: an exception would reveal information about
    edges.
    """

    def __init__(
        self,
        private: PrivateEdges,
        query: EdgeAttentionQuery,
        rows: Tensor,
        targets: Tensor,
        classes: Tensor,
        start: Tensor,
    ) -> None:
        super().__init__([start], (rows, targets), classes, len(targets))
        self.private, self.query = private, query
        self.rows, self.targets, self.classes = rows, targets, classes

    def begin(self, step: int) -> None:
        self._step = step

    def add(self, index: Tensor, clip: float) -> None:
        shape, generator = (len(index), self.query.dim), PublicStreams(self._step).torch("attention")
        shown = torch.randn(shape, dtype=torch.float64, generator=generator)
        self.add_shown(index, clip, shown * self.query.forward_noise)

    def add_shown(self, index: Tensor, clip: float, noise: Tensor) -> None:
        """Add the sum over a batch of g_v min(1, C / ((1 + 10^-6) |g_v|)), with public noise for each."""
        at_once = max(1, _NUMBERS // self.query.parameters)
        for first in range(0, len(index), at_once):
            some = slice(first, first + at_once)
            gradients = _gradients(self, index[some], noise[some])
            norms = gradients.norm(dim=1)
            gradients[~norms.isfinite()] = 0.0
            factors = (clip / ((1 + MARGIN) * norms)).clamp_max(1.0).nan_to_num(0.0)
            self._total.addmv_(gradients.t(), factors)  # clips and sums together, without a clipped copy


class _InEdges(NamedTuple):
    """In-edges of some targets: sources, and the ascending positions of the targets in the batch."""

    sources: Tensor
    places: Tensor


def _gradients(examples: EdgeGradients, batch: Tensor, noise: Tensor) -> Tensor:
    """Return each target's gradient, shape (B, p)."""
    query, nodes = examples.query, examples.targets[batch]
    parts = query.parts(examples.weights)
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
    network = found.source.flatten(1), _outer(own, found.bias), found.bias, found.readout, found.offset
    head = _outer(own, delta), _outer(x, delta), delta
    return torch.cat([*network, *head], dim=1)


def _weigh(parts: dict[str, Tensor], z: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden rows (E, d) and the weights (E) of some edges."""
    hidden = torch.tanh(z @ parts["source"] + own @ parts["target"] + parts["bias"])
    return hidden, torch.sigmoid(hidden @ parts["readout"] + parts["offset"])


def _head(
    parts: dict[str, Tensor], own: Tensor, sums: Tensor, classes: Tensor, query: EdgeAttentionQuery
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
        shapes = ((count, dim, dim), (count, dim), (count, dim), (count, 1))
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def add(self, parts: dict[str, Tensor], z: Tensor, own: Tensor, by_sum: Tensor, places: Tensor) -> None:
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


def _in_edges(examples: EdgeGradients, nodes: Tensor, query: EdgeAttentionQuery) -> _InEdges:
    """Return the in-edges of the targets; an undirected edge in one direction only if ``oriented``."""
    sources, counts = examples.private.in_edges(nodes.numpy())
    places = np.repeat(np.arange(len(nodes)), counts)
    if query.oriented:
        learns = np.zeros(len(examples.rows), dtype=np.int64)
        learns[examples.targets.numpy()] = 1  # training nodes are of higher rank
        used = counts_at_target(sources, nodes.numpy()[places], learns)
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
