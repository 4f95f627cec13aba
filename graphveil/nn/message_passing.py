"""Message passing without noise: networks on exact edges, and public linear maps of rows.

No sum has noise, so a network (GCN, GAT, SAGE, and layers with residual connections) is not private.
``core/queries`` has the sums with noise.

The linear maps have gradients, and a server applies them to LDP reports. Under unit ``local-attributes``
edges are public and records are randomized, so these maps do not spend privacy budget (post-processing). Do
not use them on protected edges. ``k_prop`` averages the noise of randomized records over neighbors.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, leaky_relu

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.exact_sums import neighbor_sums
from graphveil.errors import GraphError
from graphveil.nn.layers import Batch, FeedForward, Hidden, Linear, SparseRows, multiply, unit_rows


class GcnLayer(nn.Module):
    """One convolution, followed by its ``Hidden``."""

    def __init__(self, width: int, hidden: Hidden, *, generator: torch.Generator) -> None:
        super().__init__()
        self._map, self._hidden = Linear(width, width, generator=generator), hidden

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(D^-1/2 (A + I)^T D^-1/2 (X W + b))."""
        return cast(Tensor, self._hidden(convolve(adjacency, self._map(x))))


class GcnNetwork(nn.Module):
    """Convolutions, each but the last followed by its ``Hidden`` of some style."""

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        hidden: int,
        depth: int,
        style: dict[str, Any],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        widths = [features, *[hidden] * (depth - 1), classes]
        self._maps = nn.ModuleList(Linear(i, o, generator=generator) for i, o in pairwise(widths))
        self._hidden = nn.ModuleList(Hidden(width, generator=generator, **style) for width in widths[1:-1])

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        h: Batch = x
        for depth, affine in enumerate(self._maps):
            h = convolve(adjacency, affine(h))
            if depth < len(self._hidden):
                h = self._hidden[depth](h)
        return cast(Tensor, h)


def convolve(adjacency: Adjacency, x: Tensor) -> Tensor:
    """Return D^-1/2 (A + I)^T D^-1/2 X with D = 1 + in-degree. Not private.

    >>> pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=False)
    >>> convolve(pair, torch.tensor([[1.0], [3.0]])).flatten()
    tensor([2.0000, 2.0000])
    """
    scale = (1 + adjacency.indptr.diff()).to(x.dtype).rsqrt()[:, None]
    scaled = (scale * x).contiguous()
    return scale * (neighbor_sums(adjacency, scaled) + scaled)


HEADS = 4  # concatenated in a hidden layer
_SLOPE = 0.2  # of the leaky relu, as in the paper


@dataclass(frozen=True, eq=False)
class InEdgeIndex:
    """Edges sorted by target: target v has the edges from ``offsets[v]`` to ``offsets[v + 1]``.

    Shapes: ``sources`` and ``targets`` int64 (E), ``offsets`` int64 (N + 1).
    """

    sources: Tensor
    targets: Tensor
    offsets: Tensor

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> Self:
        sources, targets = adjacency.edge_index()
        return cls(sources, targets, adjacency.indptr)


class GraphAttention(nn.Module):
    """One attention layer, after the linear map with ``weight``:

        h'_v = b + sum_u a_uv h_u,   a_uv = softmax over u of leaky_relu(s . h_u + g . h_v),

    where u runs over the in-neighbors of v and v itself, independently for each head. Not private.
    """

    def __init__(self, inputs: int, width: int, heads: int, generator: torch.Generator) -> None:
        super().__init__()
        self._heads, self._width = heads, width
        bound = (6 / (inputs + heads * width)) ** 0.5
        self.weight = nn.Parameter(_uniform((inputs, heads * width), bound, generator))
        bound = (6 / (heads + width)) ** 0.5
        self._sends = nn.Parameter(_uniform((heads, width), bound, generator))
        self._gets = nn.Parameter(_uniform((heads, width), bound, generator))
        self._bias = nn.Parameter(torch.zeros(heads * width))

    def forward(self, rows: Tensor, edges: InEdgeIndex) -> Tensor:
        h = rows.view(-1, self._heads, self._width)
        source_logits, target_logits = (h * self._sends).sum(dim=2), (h * self._gets).sum(dim=2)
        weights, own = _softmax_terms(source_logits, target_logits, edges)
        total = own.index_add(0, edges.targets, weights)
        sums = own[:, :, None] * h + _weighted_sums(weights, h, edges)
        return (sums / total[:, :, None]).flatten(1) + self._bias


def _softmax_terms(source_logits: Tensor, target_logits: Tensor, edges: InEdgeIndex) -> tuple[Tensor, Tensor]:
    """Return the terms of the softmax, (E, heads) of edges and (N, heads) of nodes themselves."""
    # Not sends[sources]: its gradient is added in the order of threads, which is not deterministic.
    by_source = source_logits.index_select(0, edges.sources)
    by_target = target_logits.index_select(0, edges.targets)
    scores = leaky_relu(by_source + by_target, _SLOPE)
    own = leaky_relu(source_logits + target_logits, _SLOPE)
    with torch.no_grad():  # the subtracted maximum cancels
        most = own.clone()
        most.scatter_reduce_(0, edges.targets[:, None].expand_as(scores), scores, "amax")
        lowered = most.index_select(0, edges.targets)
    return (scores - lowered).exp(), (own - most).exp()


def _weighted_sums(weights: Tensor, h: Tensor, edges: InEdgeIndex) -> Tensor:
    """Return the sums over in-edges (N, heads, width).

    Computed per head by ``embedding_bag``, so that no vector is copied to an edge. Memory is proportional to
    E heads, not to E heads width.
    """
    sums = [
        embedding_bag(
            edges.sources,
            h[:, head].contiguous(),
            edges.offsets,
            mode="sum",
            per_sample_weights=weights[:, head].contiguous(),
            include_last_offset=True,
        )
        for head in range(h.shape[1])
    ]
    return torch.stack(sums, dim=1)


def _uniform(shape: tuple[int, int], bound: float, generator: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


class GatLayer(nn.Module):
    """One attention layer, followed by its ``Hidden`` of all heads."""

    def __init__(self, width: int, heads: int, hidden: Hidden, *, generator: torch.Generator) -> None:
        super().__init__()
        self._attention, self._hidden = GraphAttention(width, width, heads, generator), hidden

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(attention(X W))."""
        rows = x @ self._attention.weight
        return cast(Tensor, self._hidden(self._attention(rows, InEdgeIndex.from_adjacency(adjacency))))


class GatNetwork(nn.Module):
    """Attention layers, each but the last followed by its ``Hidden`` of some style."""

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        hidden: int,
        heads: int,
        depth: int,
        style: dict[str, Any],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        wide = heads * hidden
        inputs = [features, *[wide] * (depth - 1)]
        outputs = [(hidden, heads)] * (depth - 1) + [(classes, 1)]
        self._rounds = nn.ModuleList(
            GraphAttention(i, *o, generator) for i, o in zip(inputs, outputs, strict=True)
        )
        self._hidden = nn.ModuleList(Hidden(wide, generator=generator, **style) for _ in inputs[:-1])

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        edges = InEdgeIndex.from_adjacency(adjacency)
        h: Batch = x
        for depth, attending in enumerate(cast("list[GraphAttention]", self._rounds)):
            weight = attending.weight
            rows = multiply(h, weight) if isinstance(h, SparseRows) else cast(Tensor, h) @ weight
            h = attending(rows, edges)
            if depth < len(self._hidden):
                h = self._hidden[depth](h)
        return cast(Tensor, h)


class SageLayer(nn.Module):
    """One message-passing layer; ``unit`` L2-normalizes before the activation."""

    def __init__(self, width: int, hidden: Hidden, *, generator: torch.Generator, unit: bool = False) -> None:
        super().__init__()
        self._own = Linear(width, width, generator=generator)
        self._incoming = Linear(width, width, generator=generator)
        self._hidden = hidden
        self._unit = unit

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(norm(W_self x + W_in A^T x + b))."""
        return self.read(x, neighbor_sums(adjacency, x))

    def read(self, x: Tensor, sums: Tensor) -> Tensor:
        """Return the same from sums that are already computed."""
        mixed = self._own(x) + self._incoming(sums)
        if self._unit:
            mixed = unit_rows(mixed).clone()  # the activation overwrites its input
        return cast(Tensor, self._hidden(mixed))


class SageNetwork(nn.Module):
    """Dense layers, message-passing layers, dense layers.

    Args:
        pre_layers: Dense layers before message passing.
        post_layers: Dense layers after it, including the output layer.
        unit: Whether vectors are L2-normalized before and after message passing.
        unit_rounds: Whether they are L2-normalized after each message-passing layer.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        hidden: int,
        depth: int,
        style: dict[str, Any],
        pre_layers: int,
        post_layers: int,
        generator: torch.Generator,
        unit: bool = False,
        unit_rounds: bool = False,
    ) -> None:
        super().__init__()
        style = {"generator": generator, **style}
        before = FeedForward([features, *[hidden] * pre_layers], plain_last=False, **style)
        rounds = [
            SageLayer(hidden, Hidden(hidden, **style), generator=generator, unit=unit or unit_rounds)
            for _ in range(depth)
        ]
        after = FeedForward([*[hidden] * post_layers, classes], **style)
        self._before, self._rounds, self._after = before, nn.ModuleList(rounds), after
        self._unit = unit

    def rows(self, x: Batch) -> Tensor:
        return unit_rows(self._before(x)) if self._unit else cast(Tensor, self._before(x))

    def read(self, rows: Tensor, sums: Tensor) -> Tensor:
        return cast(Tensor, self._after(cast(SageLayer, self._rounds[0]).read(rows, sums)))

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        h = self.rows(x)
        for layer in self._rounds:
            h = layer(h, adjacency)
        return cast(Tensor, self._after(h))


LayerKind = Literal["gcn", "sage", "gat"]


class ResidualLayer(nn.Module):
    """A message-passing layer that adds to its input: h + W messages(norm(h)) + b."""

    def __init__(self, width: int, messages: nn.Module, heads: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self._norm, self._messages = nn.LayerNorm(width), messages
        self._map = Linear(width * heads, width, generator=generator)

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return h + cast(Tensor, self._map(self._messages(self._norm(h), adjacency)))


class ResidualNetwork(nn.Module):
    """A dense layer, residual layers, layer norm, and an affine output.

    Args:
        heads: Heads of attention layers, each of width ``hidden``.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        *,
        layer: LayerKind,
        hidden: int,
        depth: int,
        style: dict[str, Any],
        generator: torch.Generator,
        heads: int = 1,
    ) -> None:
        super().__init__()

        def messages() -> nn.Module:
            own = Hidden(hidden * heads, generator=generator, batch_norm=False, **style)
            if layer == "gat":
                return GatLayer(hidden, heads, own, generator=generator)
            return (GcnLayer if layer == "gcn" else SageLayer)(hidden, own, generator=generator)

        self._before = FeedForward([features, hidden], plain_last=False, generator=generator, **style)
        self._layers = nn.ModuleList(
            ResidualLayer(hidden, messages(), heads, generator=generator) for _ in range(depth)
        )
        self._output = Linear(hidden, classes, generator=generator)
        self._norm = nn.LayerNorm(hidden)

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        h = cast(Tensor, self._before(x))
        for layer in self._layers:
            h = layer(h, adjacency)
        return cast(Tensor, self._output(self._norm(h)))


# -- public linear maps -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Propagation:
    """A public linear map H -> P_k ... P_1 H, where H has one row per node; the first part is applied first.

    >>> swap = SparseRows.from_scipy(sparse.csr_array([[0.0, 1.0], [2.0, 0.0]]))
    >>> Propagation(2, (swap, swap)).apply(torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [2.0, 6.0]
    """

    num_nodes: int
    parts: tuple[SparseRows, ...]

    @property
    def work(self) -> int:
        """Number of multiplications per column, to compare orders of computation."""
        return sum(len(part.columns) for part in self.parts)

    def apply(self, rows: Tensor) -> Tensor:
        """Return P_k ... P_1 H."""
        return self._each(SparseRows.apply, rows, self.parts)

    def transposed(self, rows: Tensor) -> Tensor:
        """Return P_1^T ... P_k^T H."""
        return self._each(SparseRows.transposed, rows, reversed(self.parts))

    def _each(
        self, step: Callable[[SparseRows, Tensor], Tensor], rows: Tensor, parts: Iterable[SparseRows]
    ) -> Tensor:
        if len(rows) != self.num_nodes:
            raise GraphError(f"There are {len(rows)} rows for {self.num_nodes} nodes. Pass one row per node.")
        return reduce(lambda h, part: step(part, h), parts, rows)


Aggregator = Literal["gcn", "mean"]
Isolated = Literal["zero", "keep"]
AGGREGATORS: tuple[Aggregator, ...] = ("gcn", "mean")
ISOLATED: tuple[Isolated, ...] = ("zero", "keep")


def k_prop(
    adjacency: Adjacency,
    steps: int,
    *,
    aggregator: Aggregator = "gcn",
    self_loops: bool = False,
    isolated: Isolated = "zero",
) -> Propagation:
    """Return H <- A^ H, K times, without parameters (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

        gcn:   A^_vu = 1 / sqrt(d_v d_u)        mean:  A^_vu = 1 / d_v        for an edge u -> v,

    d is the in-degree. By default there are no self-loops, because a node's own noisy row would dominate the
    sum. With ``self_loops`` they are added before A^ is normalized, and count in d. Independent unbiased
    noise of variance s_u^2 becomes noise of variance sum_u W_vu^2 s_u^2, W = A^^K.

    Shapes: (N, d) -> (N, d).

    Args:
        adjacency: Public edges; edge weights are not read.
        steps: K; 0 leaves the rows unchanged.
        aggregator: ``"gcn"`` or ``"mean"``.
        self_loops: Whether to add a self-loop to every node.
        isolated: A node without in-edges gets 0 (``"zero"``), or keeps its row (``"keep"``).

    Raises:
        ConfigError: A parameter is outside its range.

    Privacy:
        Reads: randomized rows and public edges. Charges: nothing (post-processing).

    >>> import torch
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> k_prop(path, 2, aggregator="mean").apply(torch.tensor([[1.0], [0.0], [3.0]])).flatten()
    tensor([2., 0., 2.])
    """
    checks.integer_at_least(0, steps=steps)
    checks.one_of(AGGREGATORS, aggregator=aggregator)
    checks.one_of(ISOLATED, isolated=isolated)
    count = adjacency.num_nodes
    if not steps:
        return Propagation(count, ())
    ones = np.ones(len(adjacency.indices), dtype=np.float64)
    parts: Any = (ones, adjacency.indices.numpy(), adjacency.indptr.numpy())
    matrix = sparse.csr_array(parts, shape=(count, count))
    if self_loops:
        matrix = sparse.csr_array(matrix + sparse.eye_array(count))
    degree = np.diff(matrix.indptr)
    scale = np.zeros(len(degree))
    np.power(degree, -0.5 if aggregator == "gcn" else -1.0, out=scale, where=degree > 0)
    matrix.data = np.repeat(scale, degree)
    if aggregator == "gcn":
        matrix.data *= scale[matrix.indices]
    if isolated == "keep":
        matrix = sparse.csr_array(matrix + sparse.diags_array((degree == 0).astype(np.float64)))
        matrix.eliminate_zeros()
    return Propagation(count, (SparseRows.from_scipy(matrix),) * steps)
