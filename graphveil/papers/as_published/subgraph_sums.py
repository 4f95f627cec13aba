"""Sums of clipped gradients over roots and their in-neighbors, for SAGE-NDP.

A root's loss reads its own record and those of its neighbors. The theory clips the gradient of each root's
loss. The public reference clips the contribution of each node's vector to the gradient of the whole batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.clipping.clipped_sums import ClippedSum, clip_factors, targets_of
from graphveil.core.clipping.ghost_modules import Activation, tensors_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import Features
from graphveil.core.features import rows as rows_of
from graphveil.nn.layers import Linear
from graphveil.nn.message_passing import SageLayer, SageNetwork

_ROOTS = 32  # at a time: their activations stay in the CPU cache
_TINY = 1e-12  # a shorter row is divided by this instead of its norm

ClipPer = Literal["row", "root"]
Rows = list[Tensor]
RowPairs = list[tuple[Tensor, Tensor]]
Pairs = Sequence[tuple[Features, Tensor]]  # inputs of a map, and the gradient by its output


@dataclass(frozen=True)
class AffineMaps:
    """The affine maps of a network with one message-passing layer: before it, own, of the sum, after it."""

    before: list[Linear]
    own: Linear
    incoming: Linear
    after: list[Linear]

    @classmethod
    def from_network(cls, network: SageNetwork) -> "AffineMaps":
        layer = cast(SageLayer, network._rounds[0])
        return cls(network._before.affines(), layer._own, layer._incoming, network._after.affines())


def neighbor_table(adjacency: Adjacency, roots: Tensor, max_sampled_degree: int) -> Tensor:
    """Return each root followed by its in-neighbors, int64 (B, 1 + most), padded with -1.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> neighbor_table(path, torch.tensor([1, 2]), 2).tolist()
    [[1, 0, 2], [2, 1, -1]]
    """
    begin, end = adjacency.indptr[roots], adjacency.indptr[roots + 1]
    place = begin[:, None] + torch.arange(max_sampled_degree)
    inside = place < end[:, None]
    last = max(0, len(adjacency.indices) - 1)
    sources = adjacency.indices[place.clamp_max(last)].to(torch.int64) if len(adjacency.indices) else place
    return torch.cat([roots[:, None], torch.where(inside, sources, -1)], dim=1)


class SubgraphClippedSum(ClippedSum):
    """A sum of clipped gradients of roots' losses by all parameters.

    The logits of root v are those of

        after(act(unit(W_own h_v + W_in sum_{u -> v} h_u + b))),    h_u = unit(before(x_u)),

    every map but the last followed by the activation.

    ``clip_per="root"`` sums g_v min(1, C / |g_v|) over roots v, g_v the gradient of the loss of v. Layers
    after the sum have one input per root, and there g_v is an outer product. Before the sum a root has D + 1
    inputs, and its gradient is materialized.

    ``clip_per="row"`` sums r_u min(1, C / |r_u|) over nodes u, r_u the part of u's vector in the batch
    gradient. It includes every map and every loss that depends on the vector: a root's vector passes all
    maps, and a vector that is sent passes those before the sum. The loss is N times the mean over the batch
    of B roots. So one of N vectors is scaled as if all were in the batch, as per-sample gradients are if
    hooks treat the vectors of a whole graph as samples. r_u is a sum of outer products, one per map, and
    |r_u|^2 of products of norms.

    Shapes: x (N, d), table (n, 1 + D) with the roots in front, labels (n).
    """

    def __init__(
        self,
        maps: AffineMaps,
        activation: str,
        x: Features,
        table: Tensor,
        labels: Tensor,
        clip_per: ClipPer,
    ) -> None:
        self._depth = len(maps.before)
        linears = [*maps.before, maps.own, maps.incoming, *maps.after]
        sources = [part.detach() for one in linears for part in (one.weight, one.bias)]
        super().__init__(sources, [*tensors_of(x), table], labels, len(table))
        wide = x.to(torch.float64) if isinstance(x, Tensor) else x.astype(np.float64)
        self._x = cast(Features, wide)
        self._table, self._activation, self._clip_per = table, Activation(activation), clip_per
        weights, sums = self._views(self.weights), self._views(self._total)
        self._maps = list(zip(weights[::2], weights[1::2], strict=True))
        self._map_sums = list(zip(sums[::2], sums[1::2], strict=True))

    @torch.inference_mode()
    def add(self, index: Tensor, clip: float) -> None:
        if not len(index):
            return
        if self._clip_per == "row":
            self._add_rows(index, clip)
            return
        encoded = self._encode(self._x)  # all nodes once, then the roots in parts
        for part in torch.split(index, _ROOTS):
            self._add_roots(part, encoded, clip)

    def _encode(self, x: Features) -> Rows:
        """Return the activations of the layers before the sum for some nodes, each (n, width)."""
        found: Rows = []
        for weight, bias in self._maps[: self._depth]:
            if found:
                product = found[-1] @ weight
            else:
                product = x @ weight if isinstance(x, Tensor) else torch.from_numpy(x @ weight.numpy())
            found.append(self._activation.forward(product + bias)[0])
        return found

    def _read(self, own: Tensor, total: Tensor, labels: Tensor) -> tuple[RowPairs, Tensor]:
        """Return (inputs, gradient) of each map after the sum, and the gradient by the mixed vectors."""
        (own_map, incoming_map), after = (
            self._maps[self._depth : self._depth + 2],
            self._maps[self._depth + 2 :],
        )
        mixed = own @ own_map[0] + own_map[1] + total @ incoming_map[0] + incoming_map[1]
        unit, norm = _unit(mixed)
        inputs = [self._activation.forward(unit)[0]]
        for weight, bias in after[:-1]:
            inputs.append(self._activation.forward(inputs[-1] @ weight + bias)[0])
        logits = inputs[-1] @ after[-1][0] + after[-1][1]
        targets = targets_of(labels, logits.shape[1]).t()
        delta = logits.softmax(dim=1) * targets.sum(dim=1, keepdim=True) - targets
        pairs: RowPairs = []
        for rows, (weight, _) in zip(inputs[::-1], after[::-1], strict=True):
            pairs.append((rows, delta))
            delta = self._activation_backward(rows, delta @ weight.t())
        delta = _normalization_backward(unit, norm, delta)
        return [(own, delta), (total, delta), *pairs[::-1]], delta

    def _activation_backward(self, out: Tensor, gradient: Tensor) -> Tensor:
        return self._activation.backward(out, gradient.contiguous(), [], inputs=True)

    def _add_roots(self, part: Tensor, encoded: Rows, clip: float) -> None:
        table = self._table[part]
        inside, nodes = table >= 0, table.clamp_min(0)
        rows = [values[nodes] for values in encoded]
        unit, norm = _unit(rows[-1])
        unit = unit * inside[..., None]
        own, total = unit[:, 0], unit[:, 1:].sum(dim=1)
        pairs, delta = self._read(own, total, self._labels[part])
        own_weight, incoming_weight = (self._maps[self._depth + k][0] for k in range(2))
        back = (delta @ incoming_weight.t())[:, None].repeat(1, table.shape[1], 1)
        back[:, 0] = delta @ own_weight.t()
        formed = self._form(nodes, rows, _normalization_backward(unit, norm, back) * inside[..., None])
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

    def _form(self, nodes: Tensor, rows: Rows, gradient: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the roots' gradients by each map before the sum: (B, inputs, outputs) and (B, outputs)."""
        formed: list[tuple[Tensor, Tensor]] = []
        for depth in range(self._depth - 1, -1, -1):
            delta = self._activation_backward(rows[depth], gradient)
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
        # One block per root on the diagonal of a sparse matrix: one product forms all of them.
        roots, each, width = delta.shape
        picked: Any = self._x[nodes.reshape(-1).numpy()]
        features = picked.shape[1]
        shift = np.repeat(np.arange(roots) * features, picked.indptr[::each][1:] - picked.indptr[::each][:-1])
        blocks = sparse.csr_array(
            (picked.data, picked.indices + shift, picked.indptr), shape=(roots * each, roots * features)
        )
        product = np.asarray(blocks.T @ delta.reshape(-1, width).numpy())
        return torch.from_numpy(product).view(roots, features, width)

    def _add_rows(self, index: Tensor, clip: float) -> None:
        table = self._table[index]
        inside = table >= 0
        nodes, place = map(torch.from_numpy, np.unique(table[inside].numpy(), return_inverse=True))
        is_root = torch.zeros_like(inside)
        is_root[:, 0] = True
        is_root = is_root[inside]
        target = torch.arange(len(index))[:, None].expand_as(table)[inside][~is_root]  # among the roots
        roots, sent = place[is_root], place[~is_root]  # among the nodes
        x = rows_of(self._x, nodes)
        rows = self._encode(x)
        unit, norm = _unit(rows[-1])
        own, total = unit[roots], torch.zeros(len(index), unit.shape[1], dtype=unit.dtype)
        total.index_add_(0, target, unit[sent])
        pairs, delta = self._read(own, total, self._labels[index])
        scale = self._x.shape[0] / len(index)
        own_weight, incoming_weight = (self._maps[self._depth + k][0] for k in range(2))
        back = torch.zeros_like(unit).index_add_(0, roots, delta @ own_weight.t())
        back.index_add_(0, sent, (delta @ incoming_weight.t())[target])
        gradient, before = _normalization_backward(unit, norm, back), list[tuple[Features, Tensor]]()
        for depth in range(self._depth - 1, -1, -1):
            delta = self._activation_backward(rows[depth], gradient)
            before.insert(0, (rows[depth - 1] if depth else x, delta))
            gradient = delta @ self._maps[depth][0].t() if depth else delta
        squares = _squares(before).index_add_(0, roots, _squares(pairs)).mul_(scale**2)
        factors, bad = clip_factors(squares, clip)
        good = torch.ones(len(nodes), dtype=torch.bool) if bad is None else ~bad
        factors = factors * scale
        self._add_products(self._map_sums[: self._depth], before, factors, good)
        self._add_products(self._map_sums[self._depth :], pairs, factors[roots], good[roots])

    def _add_products(
        self, sums: list[tuple[Tensor, Tensor]], pairs: Pairs, factors: Tensor, good: Tensor
    ) -> None:
        """Add sum_u f_u x_u outer delta_u; vectors that are not good may hold anything and are left out."""
        kept = good.nonzero().flatten()
        for (weight_sum, bias_sum), (x, delta) in zip(sums, pairs, strict=True):
            scaled = (delta * factors[:, None])[kept]
            if isinstance(x, Tensor):
                weight_sum.add_(x[kept].t() @ scaled)
            else:
                weight_sum.add_(torch.from_numpy(rows_of(x, kept).T @ scaled.numpy()))
            bias_sum.add_(scaled.sum(dim=0))


def _unit(rows: Tensor) -> tuple[Tensor, Tensor]:
    norm = rows.norm(dim=-1, keepdim=True).clamp_min(_TINY)
    return rows / norm, norm


def _normalization_backward(unit: Tensor, norm: Tensor, gradient: Tensor) -> Tensor:
    return (gradient - unit * (unit * gradient).sum(dim=-1, keepdim=True)) / norm


def _squares(pairs: Pairs) -> Tensor:
    """Return the sum of (|x_u|^2 + 1) |delta_u|^2 over maps; the 1 is for the bias."""
    squares = []
    for x, delta in pairs:
        if isinstance(x, Tensor):
            norms = x.square().sum(dim=1)
        else:
            norms = torch.from_numpy(np.asarray(x.multiply(x).sum(axis=1)).reshape(-1))
        squares.append((norms + 1) * delta.square().sum(dim=1))
    return torch.stack(squares).sum(dim=0)
