"""Clipped gradients of roots, each over the subgraph of its in-neighbours: what SAGE-NDP sums.

A root's loss reads its own record and those of its neighbours, so its gradient is no outer product of two
vectors. Layers behind the sum see one row a root, and there it is; before the sum a root has D + 1 rows, and
its gradient is formed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphveil.graph import Adjacency, Features
from graphveil.models.layers import Linear
from graphveil.train import Activation, ClippedSum
from graphveil.train.clipped import clip_factors, targets_of

_ROOTS = 32  # at a time: their rows stay in the cache
_TINY = 1e-12  # a shorter row is divided by this instead of its norm

Rows = list[Tensor]


def table_of(adjacency: Adjacency, roots: Tensor, most: int) -> Tensor:
    """Return each root followed by its in-neighbours, int64 (B, 1 + most), padded with -1.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> table_of(path, torch.tensor([1, 2]), 2).tolist()
    [[1, 0, 2], [2, 1, -1]]
    """
    begin, end = adjacency.indptr[roots], adjacency.indptr[roots + 1]
    place = begin[:, None] + torch.arange(most)
    inside = place < end[:, None]
    last = max(0, len(adjacency.indices) - 1)
    sources = adjacency.indices[place.clamp_max(last)].to(torch.int64) if len(adjacency.indices) else place
    return torch.cat([roots[:, None], torch.where(inside, sources, -1)], dim=1)


@dataclass(frozen=True)
class Maps:
    """The affine maps of one round of messages: before it, of the own row, of the sum, and after it."""

    before: list[Linear]
    own: Linear
    incoming: Linear
    after: list[Linear]


class SubgraphSum(ClippedSum):
    """The sum of roots' clipped gradients by all weights, each over the root's subgraph.

    The logits of root v are those of

        after(act(W_own h_v + W_in sum_{u -> v} h_u + b)),    h_u = unit(before(x_u)),

    every map but the last followed by the activation. Shapes: x (N, d), table (n, 1 + D) with the roots in
    front, labels (n).
    """

    def __init__(self, maps: Maps, activation: str, x: Features, table: Tensor, labels: Tensor) -> None:
        """Copy the weights, and find their places."""
        self._depth = len(maps.before)
        linears = [*maps.before, maps.own, maps.incoming, *maps.after]
        sources = [part.detach() for one in linears for part in (one.weight, one.bias)]
        super().__init__(sources, labels, len(table))
        self._x = x.to(torch.float64) if isinstance(x, Tensor) else x.astype(np.float64)
        self._table, self._activation = table, Activation(activation)
        weights, sums = self._views(self.weights), self._views(self.sums)
        self._maps = list(zip(weights[::2], weights[1::2], strict=True))
        self._map_sums = list(zip(sums[::2], sums[1::2], strict=True))

    @torch.inference_mode()
    def add(self, index: Tensor, clip: float) -> None:
        """Encode all nodes once, then add the roots in parts."""
        if len(index):
            encoded = self._encode()
            for part in torch.split(index, _ROOTS):
                self._add_roots(part, encoded, clip)

    def _encode(self) -> Rows:
        """Return what the layers before the sum make of every node, each (N, width)."""
        found: Rows = []
        for weight, bias in self._maps[: self._depth]:
            product = found[-1] @ weight if found else self._times(weight)
            found.append(self._activation.forward(product + bias)[0])
        return found

    def _times(self, weight: Tensor) -> Tensor:
        """Return X W."""
        if isinstance(self._x, Tensor):
            return self._x @ weight
        return torch.from_numpy(self._x @ weight.numpy())

    def _add_roots(self, part: Tensor, encoded: Rows, clip: float) -> None:
        table = self._table[part]
        inside, nodes = table >= 0, table.clamp_min(0)
        rows = [values[nodes] for values in encoded]
        norm = rows[-1].norm(dim=2, keepdim=True).clamp_min(_TINY)
        unit = rows[-1] / norm * inside[..., None]
        own, total = unit[:, 0], unit[:, 1:].sum(dim=1)
        pairs, delta = self._read(own, total, self._labels[part])
        own_weight, incoming_weight = (self._maps[self._depth + k][0] for k in range(2))
        back = (delta @ incoming_weight.t())[:, None].repeat(1, table.shape[1], 1)
        back[:, 0] = delta @ own_weight.t()
        across = (back - unit * (unit * back).sum(dim=2, keepdim=True)) / norm * inside[..., None]
        formed = self._form(nodes, rows, across)
        squares = torch.stack(
            [(rows.square().sum(dim=1) + 1) * delta.square().sum(dim=1) for rows, delta in pairs]
            + [weight.flatten(1).square().sum(dim=1) + bias.square().sum(dim=1) for weight, bias in formed]
        ).sum(dim=0)
        factors, bad = clip_factors(squares, clip)
        if bad is not None:  # what is not finite contributes nothing
            self._add_roots(part[~bad], encoded, clip)
            return
        for (weight_sum, bias_sum), (weights, biases) in zip(self._map_sums, formed, strict=False):
            weight_sum.add_(torch.tensordot(factors, weights, dims=1))
            bias_sum.add_(factors @ biases)
        for (weight_sum, bias_sum), (rows_in, out) in zip(self._map_sums[self._depth :], pairs, strict=True):
            scaled = out * factors[:, None]
            weight_sum.addmm_(rows_in.t(), scaled)
            bias_sum.add_(scaled.sum(dim=0))

    def _read(self, own: Tensor, total: Tensor, labels: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
        """Return (rows, gradient) of each map from the sum on, and the gradient by the mixed rows."""
        (own_map, incoming_map), after = (
            self._maps[self._depth : self._depth + 2],
            self._maps[self._depth + 2 :],
        )
        mixed = own @ own_map[0] + own_map[1] + total @ incoming_map[0] + incoming_map[1]
        inputs = [self._activation.forward(mixed)[0]]
        for weight, bias in after[:-1]:
            inputs.append(self._activation.forward(inputs[-1] @ weight + bias)[0])
        logits = inputs[-1] @ after[-1][0] + after[-1][1]
        targets = targets_of(labels, logits.shape[1]).t()
        delta = logits.softmax(dim=1) * targets.sum(dim=1, keepdim=True) - targets
        pairs: list[tuple[Tensor, Tensor]] = []
        for rows, (weight, _) in zip(inputs[::-1], after[::-1], strict=True):
            pairs.append((rows, delta))
            delta = self._back(rows, delta @ weight.t())
        return [(own, delta), (total, delta), *pairs[::-1]], delta

    def _form(self, nodes: Tensor, rows: Rows, gradient: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the roots' gradients by each map before the sum: (B, inputs, outputs) and (B, outputs)."""
        formed: list[tuple[Tensor, Tensor]] = []
        for depth in range(self._depth - 1, -1, -1):
            delta = self._back(rows[depth], gradient)
            if depth:
                weights = torch.bmm(rows[depth - 1].transpose(1, 2), delta)
                gradient = delta @ self._maps[depth][0].t()
            else:
                weights = self._of_features(nodes, delta)
            formed.append((weights, delta.sum(dim=1)))
        return formed[::-1]

    def _of_features(self, nodes: Tensor, delta: Tensor) -> Tensor:
        """Return sum_u x_u outer delta_u for every root, (B, d, width)."""
        if isinstance(self._x, Tensor):
            return torch.bmm(self._x[nodes].transpose(1, 2), delta)
        roots, each, width = delta.shape
        picked: Any = self._x[nodes.reshape(-1).numpy()]
        features = picked.shape[1]
        shift = np.repeat(np.arange(roots) * features, picked.indptr[::each][1:] - picked.indptr[::each][:-1])
        blocks = sparse.csr_array(
            (picked.data, picked.indices + shift, picked.indptr), shape=(roots * each, roots * features)
        )
        product = np.asarray(blocks.T @ delta.reshape(-1, width).numpy())
        return torch.from_numpy(product).view(roots, features, width)

    def _back(self, out: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient by an activation's input."""
        return self._activation.backward(out, gradient.contiguous(), [], inputs=True)
