"""GAP written plainly with torch and PyG, as a yardstick for ``gap.py``.

The paper's training at edge level: an encoder of two layers and a linear head, 100 epochs of Adam on one
full batch; noisy sums over two hops of unit rows; one layer a hop, side by side, and a linear head, 100
epochs more. Widths 16, SELU, batch norm, no dropout, one validation pass an epoch, the best epoch kept. As
in the paper's public code, both heads read SELU of batch norm of rows of norm one: the paper does not say
so, and it is worth 0.8 points on five splits. Nothing is compiled, cached or sparse beyond what PyG does by
itself, and no Python loop runs over nodes.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch_geometric.nn import MLP, SimpleConv

from graphveil.data import Graph, to_dense

HIDDEN, EPOCHS, RATE, HOPS = 16, 100, 0.01, 2


def head(width: int, classes: int) -> nn.Module:
    """Return what reads rows of norm one."""
    return nn.Sequential(nn.BatchNorm1d(width), nn.SELU(), nn.Linear(width, classes))


class Encoder(nn.Module):
    """Two layers that make rows of norm one, and a head that is needed for training alone."""

    def __init__(self, features: int, classes: int) -> None:
        """Build the layers."""
        super().__init__()
        self.layers = MLP([features, HIDDEN, HIDDEN], act="selu", norm="batch_norm")
        self.head = head(HIDDEN, classes)

    def rows(self, x: Tensor) -> Tensor:
        """Return what is sent to the neighbors."""
        return normalize(self.layers(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.head(self.rows(x))
        return logits


class Classifier(nn.Module):
    """A layer for the rows of each hop, and a head that reads them side by side."""

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


def restated(graph: Graph, sigma: float) -> float:
    """Train GAP on the graph, with noise of a standard deviation at each hop; return the test accuracy."""
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
        test = graph.mask("test")
        return float((classifier(rows[:, test]).argmax(dim=1) == graph.y[test]).float().mean())


def fit(network: nn.Module, logits: Callable[[Tensor], Tensor], graph: Graph) -> None:
    """Train on one full batch, look at the validation nodes after every epoch, and keep the best one."""
    train, val = (torch.nonzero(graph.mask(part)).flatten() for part in ("train", "val"))
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
