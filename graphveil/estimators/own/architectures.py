"""Built-in architectures of ``gnn``: one convolution of torch_geometric, then one linear layer.

A convolution that ignores the root's own inputs is added to a linear map of them. Self-loops and degree
normalization are off: an ego graph has no edge from the root to itself, and its leaves have no in-edges.
"""

from collections.abc import Callable

from torch import Tensor, nn

from graphveil.data.conversion import load_pyg

HIDDEN = 16


class _OneRound(nn.Module):
    """Logits from ReLU(own(x) + conv(x, edges)), or without ``own`` where the convolution reads x itself."""

    def __init__(self, conv: nn.Module, inputs: int, classes: int, *, own: bool) -> None:
        super().__init__()
        self.conv = conv
        self.own = nn.Linear(inputs, HIDDEN) if own else None
        self.out = nn.Linear(HIDDEN, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return logits, one row per node."""
        hidden: Tensor = self.conv(x, edge_index)
        if self.own is not None:
            hidden = hidden + self.own(x)
        logits: Tensor = self.out(hidden.relu())
        return logits


def sage(inputs: int, classes: int) -> nn.Module:
    """GraphSAGE with mean aggregation (Hamilton et al., 2017)."""
    return _OneRound(load_pyg("nn").SAGEConv(inputs, HIDDEN), inputs, classes, own=False)


def gcn(inputs: int, classes: int) -> nn.Module:
    """Graph convolution (Kipf and Welling, 2017), as a sum over neighbors without degree normalization."""
    conv = load_pyg("nn").GCNConv(inputs, HIDDEN, add_self_loops=False, normalize=False)
    return _OneRound(conv, inputs, classes, own=True)


def gat(inputs: int, classes: int) -> nn.Module:
    """Attention over neighbors (GATv2; Brody et al., 2022)."""
    return _OneRound(
        load_pyg("nn").GATv2Conv(inputs, HIDDEN, add_self_loops=False), inputs, classes, own=True
    )


def gin(inputs: int, classes: int) -> nn.Module:
    """Graph isomorphism network (Xu et al., 2019)."""
    mlp = nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
    return _OneRound(load_pyg("nn").GINConv(mlp), inputs, classes, own=False)


ARCHITECTURES: dict[str, Callable[[int, int], nn.Module]] = {"sage": sage, "gcn": gcn, "gat": gat, "gin": gin}
