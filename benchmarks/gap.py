"""Measure the CPU time of a whole GAP run at edge level, compared with a plain implementation.

    python benchmarks/gap.py [--repeats 5]

CPU seconds after the imports, one thread, on Berkeley13 from ``$GRAPHVEIL_DATA``, or else on a synthetic
graph of about its size. All rows alternate in one process: calibration, encoder (100 epochs), two noisy hops,
classifier (100 epochs), predictions. Times are medians. The reference is the same training in plain torch and
PyG (``train_reference``); compare ratios to it, because other load increases CPU seconds by half or more. It
uses the noise of the paper's public code: one stored, directed edge at epsilon 4 and delta 1e-7 by Rényi
orders, a standard deviation of 1.94 at each of two hops. That code took 3.3 CPU seconds on another machine
(encoder 2.1, hops 0.014, classifier 1.1), and had 73.2 % test accuracy over three splits.
"""

import argparse
import copy
import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch_geometric.nn import MLP, SimpleConv

from graphveil.core.features import to_dense
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.data import Graph, load_dataset
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator

REFERENCE, PAPER = "plain torch and PyG, eps 4, directed-edge", "as published, eps 4, directed-edge"
ROWS: dict[str, dict[str, Any]] = {
    "strict mode, eps 4, undirected-edge": {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-7},
    PAPER: {"unit": "directed-edge", "epsilon": 4.0, "delta": 1e-7},
    "without privacy": {"unit": "none"},
}
DEFAULT_ROOT = Path(__file__).parents[2] / "shared" / "data"
Timed = dict[str, list[tuple[float, float]]]  # CPU seconds and test accuracies, by row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="number of splits, at least two")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    root = Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT))
    name = "facebook100/Berkeley13" if root.is_dir() else "synthetic/facebook"
    timed = measure(name, root if root.is_dir() else None, repeats)
    reference = statistics.median(seconds for seconds, _ in timed[REFERENCE])
    print(f"| {name} | CPU s | reference / this row | test accuracy, % |\n|---|---|---|---|")
    for row, runs in timed.items():
        seconds = statistics.median(run[0] for run in runs)
        accuracies = [100 * run[1] for run in runs]
        error = statistics.stdev(accuracies) / math.sqrt(repeats)
        accuracy = f"{statistics.fmean(accuracies):.1f} ± {error:.1f}"
        print(f"| {row} | {seconds:.2f} | {reference / seconds:.1f} | {accuracy} |")


def measure(name: str, root: Path | None, repeats: int) -> Timed:
    """Run every row once per split, alternating."""
    timed: Timed = {row: [] for row in (REFERENCE, *ROWS)}
    for seed in range(repeats):
        paper_graph = load_dataset(name, root, seed=seed, mode="paper")
        run = partial(train_reference, paper_graph, _noise(paper_graph))
        timed[REFERENCE].append(_timed(run))
        for row, keywords in ROWS.items():
            graph = paper_graph if row == PAPER else load_dataset(name, root, seed=seed)
            model = METHODS["gap-paper" if row == PAPER else "gap"](seed=seed, **keywords)
            timed[row].append(_timed(partial(_score, model, graph)))
    return timed


def _score(model: Estimator, graph: Graph) -> float:
    return model.fit(graph).score(graph)


def _noise(graph: Graph) -> float:
    """Return the standard deviation of a hop's noise as published."""
    plan = METHODS["gap-paper"](**ROWS[PAPER]).preview(graph).plan
    assert plan is not None
    hop = plan.queries[0]
    assert isinstance(hop, NeighborSumQuery)
    return hop.sigma[0]


def _timed(run: Callable[[], float]) -> tuple[float, float]:
    start = time.process_time()
    accuracy = run()
    return time.process_time() - start, accuracy


# -- the reference: GAP in plain torch and PyG --------------------------------------------------------------
#
# The paper's training at edge level: an encoder of two layers and a linear head, 100 epochs of Adam on one
# full batch; noisy sums over two hops of L2-normalized rows; one layer per hop, concatenated, and a linear
# head, 100 more epochs. Widths 16, SELU, batch norm, no dropout, one validation pass per epoch, the best
# epoch kept. As in the paper's public code, both heads read SELU of batch norm of L2-normalized rows: the
# paper does not state this, and it adds 0.8 points on five splits. There is no caching and no sparsity
# beyond PyG's own, and no Python loop over nodes.

HIDDEN, EPOCHS, RATE, HOPS = 16, 100, 0.01, 2


def head(width: int, classes: int) -> nn.Module:
    """Return a head that reads L2-normalized rows."""
    return nn.Sequential(nn.BatchNorm1d(width), nn.SELU(), nn.Linear(width, classes))


class Encoder(nn.Module):
    """Two layers with L2-normalized outputs, and a head that is used in training only."""

    def __init__(self, features: int, classes: int) -> None:
        """Build the layers."""
        super().__init__()
        self.layers = MLP([features, HIDDEN, HIDDEN], act="selu", norm="batch_norm")
        self.head = head(HIDDEN, classes)

    def rows(self, x: Tensor) -> Tensor:
        """Return the rows that hops aggregate."""
        return normalize(self.layers(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.rows(x))
        return logits


class Classifier(nn.Module):
    """A layer for the rows of each hop, and a head that reads their concatenation."""

    def __init__(self, classes: int) -> None:
        """Build the layers."""
        super().__init__()
        self.hops = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(HOPS + 1))
        self.head = head(HIDDEN * (HOPS + 1), classes)

    def forward(self, hops: Tensor) -> Tensor:
        """Return logits from the hops' rows, (K + 1, N, width)."""
        parts = [layer(rows) for layer, rows in zip(self.hops, hops, strict=True)]
        logits: Tensor = self.head(normalize(torch.cat(parts, dim=1)))
        return logits


def train_reference(graph: Graph, sigma: float) -> float:
    """Train GAP with a given noise standard deviation at each hop, and return the test accuracy."""
    torch.default_generator.manual_seed(0)
    x, edges = to_dense(graph.x), graph.to_pyg().edge_index
    encoder = Encoder(graph.num_features, graph.num_classes)
    fit(encoder, lambda index: encoder(x[index]), graph)
    with torch.no_grad():
        encoder.eval()
        hops = [encoder.rows(x)]
        for _ in range(HOPS):
            sums = SimpleConv(aggr="sum")(hops[-1], edges)
            hops.append(normalize(sums + sigma * torch.randn_like(sums)))
    rows, classifier = torch.stack(hops), Classifier(graph.num_classes)
    fit(classifier, lambda index: classifier(rows[:, index]), graph)
    with torch.no_grad():
        classifier.eval()
        test = graph.labeled_in("test")
        return float((classifier(rows[:, test]).argmax(dim=1) == graph.y[test]).float().mean())


def fit(network: nn.Module, logits: Callable[[Tensor], Tensor], graph: Graph) -> None:
    """Train on full batches, and keep the epoch with the best validation accuracy."""
    train, val = (torch.nonzero(graph.labeled_in(part)).flatten() for part in ("train", "val"))
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    best, kept = -1.0, network.state_dict()
    for _ in range(EPOCHS):
        network.train()
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(logits(train), graph.y[train]))
        optimizer.step()
        network.eval()
        with torch.no_grad():
            accuracy = float((logits(val).argmax(dim=1) == graph.y[val]).float().mean())
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(network.state_dict())
    network.load_state_dict(kept)


if __name__ == "__main__":
    main()
