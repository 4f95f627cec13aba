"""Measure the CPU time of a DP-SGD step of a custom module, in multiples of a step without privacy.

    python benchmarks/custom_steps.py [--only WORD] [--repeats 7] [--roots 512]

A step without privacy is one block-diagonal batch of the same ego graphs without padding, autograd and Adam,
in float32 and in float64. A private step reads the ego graphs of the batch, clips the gradient of every root
in public shapes, and adds exactly sampled noise. 1-hop cases have 64 neighbors. Tree cases are sampled from a
dataset with at most 4 neighbors per node. Numbers are medians of alternating repeats.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GINConv, GraphConv, SAGEConv, TransformerConv

from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, EgoGraphRecords, StoredEgoGraphs
from graphveil.core.noise.steps import StepNoise
from graphveil.core.queries.bounded_lists import BoundedTrees, TreeRecords
from graphveil.data import RECIPES, load_dataset
from graphveil.estimators.gnn.module_training import choose_route

_HIDDEN, _INPUTS, _CLASSES, _LEAVES = 16, 12, 6, 64


class Net(nn.Module):
    """One or two convolutions, and a linear layer."""

    def __init__(self, conv: Callable[[int], nn.Module], inputs: int, classes: int, layers: int = 1) -> None:
        """Build the layers."""
        super().__init__()
        self.layers = nn.ModuleList([conv(inputs if not k else _HIDDEN) for k in range(layers)])
        self.out = nn.Linear(_HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits."""
        for layer in self.layers:
            x = torch.relu(layer(x, edge_index))
        return self.out(x)


def _gin(inputs: int) -> nn.Module:
    return GINConv(nn.Sequential(nn.Linear(inputs, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _HIDDEN)))


CONVOLUTIONS: dict[str, Callable[[int], nn.Module]] = {
    "SAGE": lambda inputs: SAGEConv(inputs, _HIDDEN),
    "GIN": _gin,
    "Transformer": lambda inputs: TransformerConv(inputs, _HIDDEN),
    "GATv2": lambda inputs: GATv2Conv(inputs, _HIDDEN, add_self_loops=False),
    "GraphConv": lambda inputs: GraphConv(inputs, _HIDDEN),
}


def star_graphs(roots: int) -> tuple[EgoGraphRecords, Tensor]:
    """Return 1-hop ego graphs with 64 neighbors, and their labels."""
    generator = torch.Generator().manual_seed(0)
    width = _LEAVES + 2
    x = torch.randn(roots, width, _INPUTS, generator=generator, dtype=torch.float64)
    source = torch.arange(1, _LEAVES + 1)
    edges = torch.stack([source, torch.zeros_like(source)]).expand(roots, 2, _LEAVES)
    labels = torch.randint(0, _CLASSES, (roots,), generator=generator)
    return StoredEgoGraphs(x, edges), labels


def sampled_trees(name: str, layers: int) -> tuple[EgoGraphRecords, Tensor, int, int]:
    """Return sampled trees (D = 2, M = 4) of a dataset, labels, and the numbers of features and classes."""
    graph = RECIPES["gap"].split(load_dataset(name), seed=0)
    nodes = graph.labeled_in("train").nonzero()[:, 0]
    trees = BoundedTrees(graph.adjacency, slots=2, cap=4, depth=layers, key=bytes(32))
    inputs = TreeRecords(graph.x, nodes, trees, 1)
    return inputs, graph.y[nodes], graph.num_features, graph.num_classes


def plain(
    module: nn.Module, graphs: EgoGraphRecords, labels: Tensor, index: Tensor, kind: torch.dtype
) -> Callable[[], None]:
    """Return a step without privacy on a block-diagonal batch, without padding."""
    module = copy.deepcopy(module).to(kind)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)

    def step() -> None:
        x, edges = graphs.take(index)
        count, width = x.shape[:2]
        real = edges[:, 0] != width - 1
        source, target = edges[:, 0], edges[:, 1]
        offset = (torch.arange(count) * width)[:, None]
        joined = torch.stack([(source + offset)[real], (target + offset)[real]])
        used = torch.zeros(count * width, dtype=torch.bool)
        used[::width] = True
        used[joined[0]] = True
        places = torch.cumsum(used, dim=0) - 1
        logits = module(x.reshape(count * width, -1)[used].to(kind), places[joined])
        loss = nn.functional.cross_entropy(logits[places[::width]], labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def private(
    module: nn.Module,
    graphs: EgoGraphRecords,
    labels: Tensor,
    index: Tensor,
    sizes: tuple[int, int],
) -> tuple[Callable[[], None], str]:
    """Return a private step, and its route and data type."""
    route, _, dtype = choose_route(module, *sizes)
    gradients = EgoGraphClippedSum(module, graphs, labels, route=route, dtype=dtype)
    noise = StepNoise(bytes(32), parameters=len(gradients.weights), noise_multiplier=2.0, sampling_rate=0.25)
    steps = iter(range(1 << 30))

    @torch.no_grad()
    def step() -> None:
        gradients.sums.zero_()
        gradients.add(index, 1.0)
        sample = torch.from_numpy(noise.noise(next(steps)).astype(float))
        gradients.weights.sub_((gradients.sums + sample / noise.steps) * (0.01 / len(index)))

    return step, f"{route}, {dtype}".replace("torch.", "")


def medians(steps: list[Callable[[], None]], repeats: int) -> list[float]:
    """Return the median CPU milliseconds of each step; the steps alternate."""
    times_of: list[list[float]] = [[] for _ in steps]
    for repeat in range(repeats + 1):
        for times, step in zip(times_of, steps, strict=True):
            started = time.process_time()
            step()
            if repeat:  # the first repeat is a warm-up
                times.append(1000 * (time.process_time() - started))
    return [statistics.median(times) for times in times_of]


def cases(roots: int) -> Iterator[tuple[Any, ...]]:
    """Yield a name, a function that builds the module, ego graphs, labels, and (inputs, classes)."""
    graphs, labels = star_graphs(roots)
    for name in ("SAGE", "GIN", "Transformer", "GATv2"):
        sizes = (_INPUTS, _CLASSES)
        yield f"1-hop {name}", partial(Net, CONVOLUTIONS[name], *sizes), graphs, labels, sizes
    for data in ("amazon/computers", "facebook100/Berkeley13"):
        for layers in (1, 2):
            graphs, labels, inputs, classes = sampled_trees(data, layers)
            for name in ("SAGE", "GraphConv", "GIN", "GATv2"):
                build = partial(Net, CONVOLUTIONS[name], inputs, classes, layers)
                yield f"tree {data} layers={layers} {name}", build, graphs, labels, (inputs, classes)


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="run cases with this text in their names")
    parser.add_argument("--repeats", type=int, default=7, help="number of repeats")
    parser.add_argument("--roots", type=int, default=512, help="number of roots per batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| case | without privacy, float32, ms | float64, ms | private, ms | ratios | route |")
    print("|---|---|---|---|---|---|")
    for name, build, graphs, labels, sizes in cases(options.roots):
        if options.only not in name:
            continue
        index = torch.arange(min(options.roots, len(labels)))
        torch.manual_seed(0)
        module = build()
        step, route = private(module, graphs, labels, index, sizes)
        narrow, wide = (plain(module, graphs, labels, index, kind) for kind in (torch.float32, torch.float64))
        one, two, own = medians([narrow, wide, step], options.repeats)
        ratios = f"{own / one:.1f}, {own / two:.1f}"
        print(f"| {name} | {one:.1f} | {two:.1f} | {own:.1f} | {ratios} | {route} |", flush=True)


if __name__ == "__main__":
    main()
