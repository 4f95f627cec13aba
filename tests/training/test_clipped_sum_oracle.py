"""Every clipped sum of gradients in the package equals a loop over records, on 1,000 random cases.

The loop differentiates the loss of one record at a time with autograd, and clips what it finds. It shares no
code with the implementations. Cases have random shapes, clipping norms from tiny to huge, null records,
records with equal values, records without a finite gradient, and empty batches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn.functional import normalize, selu

from graphveil.core.clipping.clipped_sums import GhostClippedSum, LogitWeightsClippedSum, PerSampleClippedSum
from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, StoredEgoGraphs
from graphveil.core.clipping.ghost_modules import Activation, Affine, GhostBranches, GhostSequential, UnitRows
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries import edge_training
from graphveil.core.queries.edge_training import EdgeAttentionQuery
from graphveil.core.queries.held_out import counts_at_target
from graphveil.nn.message_passing import SageNetwork
from graphveil.papers.as_published.subgraph_sums import AffineMaps, SubgraphClippedSum, neighbor_table

MARGIN = 1e-6  # of every implementation, relative to the clipping norm
CLIPS = (1e-9, 1e-3, 0.1, 1.0, 30.0, 1e9)
EXACT, SINGLE = 1e-9, 2e-4  # relative errors in float64, and where a module computes in float32
Rng = np.random.Generator


@dataclass
class Case:
    """A clipped sum of random records, and the gradient of each of them by autograd."""

    total: Callable[[Tensor, float], Tensor]  # what is tested: from positions and a clipping norm
    gradients: Callable[[Tensor], Sequence[Tensor]]  # of the records at these positions
    count: int
    tolerance: float = EXACT


def clipped_one_by_one(gradients: Sequence[Tensor], clip: float) -> tuple[Tensor | float, float]:
    """Return the sum of g min(1, C / ((1 + margin) |g|)) of finite gradients, and the sum of its norms."""
    total, length = 0.0, 0.0
    for gradient in gradients:
        norm = float(gradient.norm())
        if not math.isfinite(norm):
            continue
        kept = gradient * min(1.0, clip / ((1 + MARGIN) * norm)) if norm else gradient
        total, length = total + kept, length + float(kept.norm())
    return total, length


def gradient_of(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the gradient of a loss as one vector, in the order of the parameters."""
    found = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    zeros = (torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True))
    return torch.cat([part.reshape(-1) for part in zeros])


def loss_of(logits: Tensor, label: Tensor) -> Tensor:
    """Return the loss of one record: the cross entropy of a class or of soft targets, or that of a number.

    It is 0 for a null record.
    """
    if not label.ndim and label.is_floating_point():
        return (logits[0] - label) ** 2 / 2 if label.isfinite() else 0.0 * logits.sum()
    if label.ndim:
        return -(label * logits.log_softmax(dim=0)).sum()
    return -logits.log_softmax(dim=0)[label] if 0 <= label < len(logits) else 0.0 * logits.sum()


def summed_by(sums: Any) -> Callable[[Tensor, float], Tensor]:
    def total(index: Tensor, clip: float) -> Tensor:
        sums.sums.zero_()
        sums.add(index, clip)
        return sums.sums.clone()

    return total


# -- random records ----------------------------------------------------------------------------------------


def sizes_of(rng: Rng, *, numbers: bool = False) -> tuple[int, int]:
    """Return a number of records, and of classes; one output for numbers."""
    return int(rng.integers(1, 7)), 1 if numbers else int(rng.integers(2, 5))


def rows_of(rng: Rng, *shape: int, dtype: torch.dtype = torch.float64, finite: bool = False) -> Tensor:
    """Return rows of very different lengths; some are zero, equal to another, or not finite."""
    rows = rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 2, size=(shape[0], *[1] * (len(shape) - 1)))
    rows[rng.random(shape[0]) < 0.1] = 0.0
    if shape[0] > 1 and rng.random() < 0.5:
        rows[-1] = rows[0]
    if not finite and rng.random() < 0.15:
        rows[int(rng.integers(shape[0]))].flat[0] = rng.choice([np.nan, np.inf])
    return torch.from_numpy(rows).to(dtype)


def labels_of(rng: Rng, count: int, classes: int, *, soft: bool = False) -> Tensor:
    """Return classes, with some null records; or soft targets, whose gradient may be zero."""
    if classes == 1:
        return torch.from_numpy(np.where(rng.random(count) < 0.2, np.nan, rng.normal(size=count)))
    if soft and rng.random() < 0.3:
        return torch.from_numpy(rng.dirichlet(np.ones(classes), count) * (rng.random((count, 1)) < 0.8))
    return torch.from_numpy(np.where(rng.random(count) < 0.2, -1, rng.integers(classes, size=count)))


def randomize(module: nn.Module, rng: Rng, sizes: Sequence[float] = (0.1, 0.5, 1.0, 8.0)) -> Any:
    """Give a module random parameters; large ones saturate the softmax, whose gradients are then zero."""
    size = rng.choice(sizes)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.uniform(-size, size, tuple(parameter.shape))))
    return module


def dtype_of(rng: Rng) -> torch.dtype:
    return torch.float32 if rng.random() < 0.5 else torch.float64


# -- networks without graphs -------------------------------------------------------------------------------


class Branches(nn.Module):
    """A network of affine maps, one branch per block, as a module and as closed-form parts."""

    def __init__(self, widths: Sequence[int], hidden: Sequence[int], activation: str, *, unit: bool) -> None:
        super().__init__()
        self.activation, self.unit, inputs = activation, unit, len(widths) * hidden[0]
        self.first = nn.ModuleList(nn.Linear(width, hidden[0]) for width in widths)
        self.rest = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise((inputs, *hidden[1:])))

    def forward(self, *blocks: Tensor) -> Tensor:
        act = getattr(torch, self.activation)
        x = torch.cat([act(f(block)) for f, block in zip(self.first, blocks, strict=True)], dim=1)
        x = normalize(x) if self.unit else x
        for layer in self.rest[:-1]:
            x = act(layer(x))
        return self.rest[-1](x)

    def ghost(self) -> GhostSequential:
        def affine(layer: Any) -> Affine:
            return Affine(layer.weight.t(), layer.bias)

        branches = [GhostSequential(affine(first), Activation(self.activation)) for first in self.first]
        parts = [branches[0] if len(branches) == 1 else GhostBranches(*branches)]
        parts += [UnitRows()] * self.unit
        for layer in self.rest[:-1]:
            parts += [affine(layer), Activation(self.activation)]
        return GhostSequential(*parts, affine(self.rest[-1]))


def network_case(rng: Rng, *, ghost: bool, numbers: bool = False) -> Case:
    (count, classes), blocks = sizes_of(rng, numbers=numbers), int(rng.integers(1, 4))
    widths = [int(width) for width in rng.integers(1, 9, size=blocks)]
    hidden = [*map(int, rng.integers(1, 6, size=rng.integers(1, 4))), classes]
    module = Branches(widths, hidden, rng.choice(["selu", "relu", "tanh"]), unit=rng.random() < 0.3)
    module = randomize(module, rng).double()
    dtype = dtype_of(rng)
    inputs = [rows_of(rng, count, width, dtype=dtype) for width in widths]
    labels = labels_of(rng, count, classes, soft=True)
    given: Any = inputs if blocks > 1 else inputs[0]
    if ghost:
        if blocks == 1 and rng.random() < 0.4:
            given = sparse.csr_array(inputs[0].numpy())
        sums: Any = GhostClippedSum(module.ghost(), given, labels)
    else:
        sums = PerSampleClippedSum(module, given, labels)

    def gradients(index: Tensor) -> list[Tensor]:
        return [
            gradient_of(
                loss_of(module(*(block[i][None].double() for block in inputs))[0], labels[i]),
                list(module.parameters()),
            )
            for i in index.tolist()
        ]

    return Case(summed_by(sums), gradients, count)


def logit_case(rng: Rng) -> Case:
    (count, classes), terms = sizes_of(rng), int(rng.integers(1, 4))
    logits = [rows_of(rng, count, classes, dtype=dtype_of(rng)) for _ in range(terms)]
    labels = labels_of(rng, count, classes)
    sums = LogitWeightsClippedSum(logits, labels)
    sums.weights.copy_(torch.from_numpy(rng.normal(size=terms)))

    def gradients(index: Tensor) -> list[Tensor]:
        weights = sums.weights.clone().requires_grad_()
        mixed = [sum(w * part[i].double() for w, part in zip(weights, logits, strict=True)) for i in index]
        return [
            gradient_of(loss_of(mix, label), [weights])
            for mix, label in zip(mixed, labels[index], strict=True)
        ]

    return Case(summed_by(sums), gradients, count)


# -- networks on neighborhoods -----------------------------------------------------------------------------


class Messages(nn.Module):
    """A message-passing module with a map that is called twice, one without a bias, and a scale."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.own, self.incoming = nn.Linear(inputs, hidden), nn.Linear(inputs, hidden, bias=False)
        self.scale, self.out = nn.Parameter(torch.ones(hidden)), nn.Linear(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        own = torch.tanh(self.own(x) + self.own(x.flip(-1)))
        incoming = torch.zeros_like(own).index_add(0, target, self.incoming(x)[source])
        return self.out(self.scale * own + torch.tanh(incoming))


def ego_graph_case(rng: Rng, route: Any, *, numbers: bool = False) -> Case:
    (count, classes), leaves = sizes_of(rng, numbers=numbers), int(rng.integers(1, 4))
    inputs, hidden = (int(size) for size in rng.choice([3, 30], size=2))  # only large maps have closed forms
    module, x = Messages(inputs, hidden, classes), rows_of(rng, count, leaves + 2, inputs)
    labels, dtype = labels_of(rng, count, classes), torch.float64
    if rng.random() < 0.2:  # without a saturated softmax, whose difference to one has no digits in float32
        dtype, x = torch.float32, torch.from_numpy(rng.normal(size=tuple(x.shape)) / inputs)
    module = randomize(module, rng, *([(0.1, 0.5)] * (dtype == torch.float32))).double()
    x[:, -1] = 0.0  # the node of places without a leaf
    edges = torch.full((count, 2, leaves), leaves + 1)
    for record, own in enumerate(rng.integers(leaves + 1, size=count).tolist()):
        edges[record, 0, :own], edges[record, 1, :own] = torch.arange(1, own + 1), 0
    sums = EgoGraphClippedSum(module, StoredEgoGraphs(x, edges), labels, route=route, dtype=dtype)

    def gradients(index: Tensor) -> list[Tensor]:
        return [
            gradient_of(loss_of(module(x[i], edges[i])[0], labels[i]), list(module.parameters()))
            for i in index.tolist()
        ]

    return Case(summed_by(sums), gradients, count, EXACT if dtype == torch.float64 else SINGLE)


def subgraph_case(rng: Rng, clip_per: Any) -> Case:
    (count, classes), nodes = sizes_of(rng), int(rng.integers(7, 12))
    most, features, width = (int(size) for size in rng.integers(1, 5, size=3))
    style: Any = {
        "activation": "selu",
        "batch_norm": False,
        "dropout": 0.0,
    }
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 30)))
    before, after = (int(size) for size in rng.integers(1, 3, size=2))
    network = SageNetwork(
        features,
        classes,
        hidden=width,
        depth=1,
        style=style,
        pre_layers=before,
        post_layers=after,
        unit=True,
        generator=generator,
    )
    maps = AffineMaps.from_network(randomize(network, rng).double())
    linears = [*maps.before, maps.own, maps.incoming, *maps.after]
    parameters = [part for one in linears for part in (one.weight, one.bias)]
    source, target = rng.integers(nodes, size=(2, 3 * nodes))
    edges = Adjacency.from_edges(source, target, num_nodes=nodes, directed=True)
    roots = torch.from_numpy(rng.permutation(nodes)[:count].copy())
    x, labels = rows_of(rng, nodes, features, finite=True), labels_of(rng, count, classes)
    table = neighbor_table(edges, roots, most)
    given: Any = sparse.csr_array(x.numpy()) if rng.random() < 0.3 else x
    sums = SubgraphClippedSum(maps, "selu", given, table, labels, clip_per)

    def losses(rows: Tensor, numbers: Sequence[Tensor], index: Tensor) -> list[Tensor]:
        """Return the loss of each root; numbers are parameters, or one copy of them for each node."""
        of_nodes = iter(zip(numbers[::2], numbers[1::2], strict=True))

        def affine(h: Tensor, at: Tensor) -> Tensor:
            weight, bias = next(of_nodes)
            weight, bias = (part[at] if part.ndim > own else part for part, own in ((weight, 2), (bias, 1)))
            return (h[:, None] @ weight)[:, 0] + bias

        everyone, h = torch.arange(nodes), rows
        for _ in maps.before:
            h = selu(affine(h, everyone))
        h = normalize(h)
        own = table[index, 0]
        received = torch.stack([h[entries[1:][entries[1:] >= 0]].sum(dim=0) for entries in table[index]])
        h = selu(normalize(affine(h[own], own) + affine(received, own)))
        for _ in maps.after[:-1]:
            h = selu(affine(h, own))
        logits = affine(h, own)
        return [loss_of(one, labels[i]) for one, i in zip(logits, index.tolist(), strict=True)]

    def of_roots(index: Tensor) -> list[Tensor]:
        return [gradient_of(losses(x, parameters, i[None])[0], parameters) for i in index]

    def of_rows(index: Tensor) -> list[Tensor]:
        """Return the part of each node's vector in the gradient of the batch, by a copy for each node."""
        if not len(index):
            return []
        copies = [part.detach().expand(nodes, *part.shape).clone().requires_grad_() for part in parameters]
        batch = nodes / len(index) * torch.stack(losses(x, copies, index)).sum()
        found = torch.autograd.grad(batch, copies)
        return list(torch.cat([part.reshape(nodes, -1) for part in found], dim=1))

    return Case(summed_by(sums), of_roots if clip_per == "root" else of_rows, count)


def attention_case(rng: Rng) -> Case:
    (count, classes), nodes = sizes_of(rng), int(rng.integers(7, 12))
    directed = bool(rng.random() < 0.5)
    query = EdgeAttentionQuery(
        dim=int(rng.integers(1, 4)),
        classes=classes,
        steps=1,
        noise_multiplier=1.0,
        sampling_rate=1.0,
        learning_rate=0.1,
        oriented=not directed,
        forward_noise=float(rng.choice([0.0, 3.0])),
    )
    ends = rng.integers(nodes, size=(2, 2 * nodes))
    edges = Adjacency.from_edges(*ends, num_nodes=nodes, directed=directed)
    rows = normalize(rows_of(rng, nodes, query.dim, finite=True))
    targets = torch.from_numpy(rng.permutation(nodes)[:count].copy())
    labels = torch.from_numpy(rng.integers(classes, size=count))
    weights = torch.from_numpy(rng.normal(size=query.parameters) * rng.choice([0.1, 1.0, 4.0]))
    shown = torch.from_numpy(rng.normal(size=(count, query.dim)))
    sums = edge_training.EdgeGradients(PrivateEdges(edges), query, rows, targets, labels, weights)
    learns = np.isin(np.arange(nodes), targets.numpy()).astype(np.int64)

    def total(index: Tensor, clip: float) -> Tensor:
        object.__setattr__(query, "clip", clip)  # a query rejects norms that its noise is too small for
        sums.sums.zero_()
        sums.add_shown(index, clip, shown[index])
        return sums.sums.clone()

    def loss(flat: Tensor, i: int) -> Tensor:
        target, parts = int(targets[i]), query.parts(flat)
        sources = edges.indices[edges.indptr[target] : edges.indptr[target + 1]].long()
        if query.oriented:
            same = np.full(len(sources), target)
            sources = sources[torch.from_numpy(counts_at_target(sources.numpy(), same, learns))]
        z, own = rows[sources], rows[target]
        hidden = torch.tanh(z @ parts["source"] + own @ parts["target"] + parts["bias"])
        weight = torch.sigmoid(hidden @ parts["readout"] + parts["offset"])
        received = (weight[:, None] * z).sum(dim=0) + shown[i]
        length = (received.square().sum() + query.dim * max(1.0, query.forward_noise) ** 2).sqrt()
        logits = own @ parts["head_own"] + received / length @ parts["head_sum"] + parts["head_bias"]
        return loss_of(logits, labels[i])

    def gradients(index: Tensor) -> list[Tensor]:
        flat = weights.clone().requires_grad_()
        return [gradient_of(loss(flat, i), [flat]) for i in index.tolist()]

    return Case(total, gradients, count)


# -- the comparison ----------------------------------------------------------------------------------------

IMPLEMENTATIONS: dict[str, tuple[int, Callable[[Rng], Case]]] = {  # by name: number of cases, and a case
    "closed form": (200, lambda rng: network_case(rng, ghost=True)),
    "closed form, numbers": (50, lambda rng: network_case(rng, ghost=True, numbers=True)),
    "one gradient per record": (120, lambda rng: network_case(rng, ghost=False)),
    "one gradient per record, numbers": (30, lambda rng: network_case(rng, ghost=False, numbers=True)),
    "weights of logits": (150, logit_case),
    "ego graphs, closed form": (70, lambda rng: ego_graph_case(rng, "ghost")),
    "ego graphs, vmap": (20, lambda rng: ego_graph_case(rng, "vmap")),
    "ego graphs, numbers": (20, lambda rng: ego_graph_case(rng, "ghost", numbers=True)),
    "ego graphs, loop": (40, lambda rng: ego_graph_case(rng, "loop")),
    "subgraphs by root": (100, lambda rng: subgraph_case(rng, "root")),
    "subgraphs by row": (100, lambda rng: subgraph_case(rng, "row")),
    "attention on edges": (100, attention_case),
}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_clipped_sum_equals_a_loop_over_records(name: str) -> None:
    number, draw = IMPLEMENTATIONS[name]
    clipped = 0
    for seed in range(number):
        rng = np.random.default_rng([seed, *name.encode()])
        case = draw(rng)
        index = torch.from_numpy(np.flatnonzero(rng.random(case.count) < rng.choice([0.1, 0.7, 1.0])))
        gradients = case.gradients(index)
        norms = [norm for gradient in gradients if 0 < (norm := float(gradient.norm())) < math.inf]
        # Norms next to the clipping norm show a factor that is off by the margin, or that enlarges.
        clip = float(rng.choice([*CLIPS, *norms])) * float(rng.choice([1.0, 1.5]))
        expected, length = clipped_one_by_one(gradients, clip)
        found = case.total(index, clip)
        error = float((found - expected).norm())
        assert error <= case.tolerance * length, f"case {seed} differs by {error:.3g} of {length:.3g}"
        clipped += any(norm > clip for norm in norms) and any(norm < clip for norm in norms)
    assert clipped >= number // 20, "too few cases with records on both sides of the clipping norm"


def test_there_are_a_thousand_cases() -> None:
    assert sum(number for number, _ in IMPLEMENTATIONS.values()) == 1000
