"""Checks of custom modules: accepted architectures, and rejected ones with an alternative."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from graphveil.errors import ConfigError
from graphveil.estimators.own.module_checks import reject_mixing, reject_unsupported_types

with warnings.catch_warnings():  # of torch.jit, which torch_geometric still calls as it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric import nn as pyg

IN, CLASSES, HIDDEN = 4, 3, 5


class Net(nn.Module):
    """A convolution, perhaps something after it, and a linear map."""

    def __init__(self, conv: nn.Module, after: nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.after, self.out = conv, after or nn.Identity(), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(torch.tanh(self.after(self.conv(x, edge_index))))


def sage(after: nn.Module | None = None) -> Net:
    return Net(pyg.SAGEConv(IN, HIDDEN), after)


class Whole(Net):
    """Something that reads all rows of the batch."""

    def __init__(self, read: Callable[[Tensor], Tensor]) -> None:
        super().__init__(pyg.SAGEConv(IN, HIDDEN))
        self.read = read

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(self.read(x), edge_index)


class Position(Net):
    """A table by the place of a row in its batch, short enough to be no table of the graph's nodes."""

    def __init__(self) -> None:
        super().__init__(pyg.SAGEConv(IN, HIDDEN))
        self.register_buffer("table", torch.randn(200, IN, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x + self.table[: len(x)], edge_index)


class Remembers(Net):
    """Adds the mean of the batch before it, which no buffer holds."""

    def __init__(self) -> None:
        super().__init__(pyg.SAGEConv(IN, HIDDEN))
        self.last: list[Tensor] = []

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        before = self.last[-1] if self.last else torch.zeros_like(x[0])
        self.last.append(x.detach().mean(dim=0))
        return super().forward(x + before, edge_index)


class Apart(Net):
    """APPNP after a linear map."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.after(self.conv(x), edge_index))


def attention(x: Tensor) -> Tensor:
    return (x @ x.T).softmax(dim=1) @ x


def gin() -> Net:
    return Net(pyg.GINConv(nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))))


ACCEPTED: dict[str, Callable[[], nn.Module]] = {
    "SAGE": sage,
    "GCN": lambda: Net(pyg.GCNConv(IN, HIDDEN)),
    "GAT": lambda: Net(pyg.GATConv(IN, HIDDEN)),
    "APPNP": lambda: Apart(nn.Linear(IN, HIDDEN), pyg.APPNP(K=2, alpha=0.1)),
    "GIN": gin,
    "BasicGCN": lambda: pyg.models.GCN(IN, HIDDEN, 2, CLASSES),
    "BasicGAT with jumps": lambda: pyg.models.GAT(IN, HIDDEN, 2, CLASSES, jk="cat"),
    "LayerNorm by node": lambda: sage(pyg.LayerNorm(HIDDEN, mode="node")),
    "torch's LayerNorm": lambda: sage(nn.LayerNorm(HIDDEN)),
}
MIXES, TYPE = "with the other trees of a batch", "mixes the records of a batch"
REJECTED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "BatchNorm": (lambda: sage(pyg.BatchNorm(HIDDEN)), TYPE),
    "BatchNorm without statistics": (lambda: sage(nn.BatchNorm1d(HIDDEN, track_running_stats=False)), TYPE),
    "GraphNorm": (lambda: sage(pyg.GraphNorm(HIDDEN)), TYPE),
    "PairNorm": (lambda: sage(pyg.PairNorm()), TYPE),
    "InstanceNorm": (lambda: sage(pyg.InstanceNorm(HIDDEN)), "mean over all rows"),
    "LayerNorm by graph, its default": (lambda: sage(pyg.LayerNorm(HIDDEN)), r"LayerNorm\(mode='node'\)"),
    "less the mean of all rows": (lambda: Whole(lambda x: x - x.mean(dim=0)), MIXES),
    "over the number of rows": (lambda: Whole(lambda x: 10 * x / len(x)), MIXES),
    "attention over all rows": (lambda: Whole(attention), MIXES),
    "a table by position": (Position, "place of its tree in a batch"),
    "the batch before": (Remembers, "changes .last. in forward"),
    "cached GCN": (lambda: Net(pyg.GCNConv(IN, HIDDEN, cached=True)), "cached=False"),
    "a dropout module": (lambda: sage(nn.Dropout(0.5)), "set it to 0"),
    "a convolution's dropout": (lambda: Net(pyg.GATConv(IN, HIDDEN, dropout=0.2)), "set it to 0"),
    "BasicGCN with batch norm": (lambda: pyg.models.GCN(IN, HIDDEN, 2, CLASSES, norm="batch"), TYPE),
}
# Rejected by type, and also by running alone.
FOUND_BY_RUNNING = (
    "BatchNorm without statistics",
    "GraphNorm",
    "PairNorm",
    "LayerNorm by graph, its default",
    "a dropout module",
)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts_modules_that_keep_records_apart(name: str) -> None:
    module = ACCEPTED[name]()
    before = [weight.clone() for weight in module.parameters()]
    state = torch.get_rng_state()
    reject_unsupported_types(module)
    reject_mixing(module, IN, CLASSES)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", REJECTED)
def test_rejects_modules_that_mix_records_with_an_alternative(name: str) -> None:
    make, why = REJECTED[name]
    with pytest.raises(ConfigError, match=why) as error:
        reject_unsupported_types(make())
        reject_mixing(make(), IN, CLASSES)
    assert (
        "use " in str(error.value).lower() or "set it" in str(error.value) or "may draw" in str(error.value)
    )


@pytest.mark.parametrize("name", FOUND_BY_RUNNING)
def test_running_a_module_finds_them_without_the_types(name: str) -> None:
    with pytest.raises(ConfigError):
        reject_mixing(REJECTED[name][0](), IN, CLASSES)


class Held(Net):
    """Holds whatever it is given."""

    def __init__(self, **held: Tensor) -> None:
        super().__init__(pyg.SAGEConv(IN, HIDDEN))
        for name, tensor in held.items():
            setattr(self, name, tensor)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (lambda: Held(degrees=torch.zeros(1025)), "of 1,025 numbers"),
        (
            lambda: Held(frozen=nn.Parameter(torch.zeros(1025), requires_grad=False)),
            "stores an untrained tensor",
        ),
        (lambda: Held(adjacency=torch.eye(9).to_sparse()), "stores an untrained tensor"),
        (lambda: Held(w=nn.Parameter(torch.zeros(3, dtype=torch.complex64))), "complex64"),
        (lambda: sage(nn.LazyLinear(HIDDEN)), "no shape yet"),
        (lambda: Net(pyg.SAGEConv(-1, HIDDEN)), "no shape yet"),
        (lambda: sage(nn.Embedding(10, HIDDEN)), "a weight of its own for every number"),
        (nn.Identity, "has no trainable parameters"),
    ],
)
def test_rejects_tensors_that_are_no_parameters(module: Callable[[], nn.Module], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        reject_unsupported_types(module())
    reject_unsupported_types(Held(short=torch.zeros(1024)))


class Odd(Net):
    """Runs, and returns something else than logits."""

    def __init__(self, make: Callable[[Tensor], object]) -> None:
        super().__init__(pyg.SAGEConv(IN, HIDDEN))
        self.make = make

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.make(super().forward(x, edge_index))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda out: out[:, :2], "logits of shape"),
        (lambda out: (out, out), "returns tuple"),
        (lambda out: out.detach(), "do not depend on its"),
        (lambda out: out @ torch.zeros(3, 3), "fails on a small random graph in float64"),
        (lambda out: out + torch.rand(1), "is not the same twice"),
    ],
)
def test_rejects_outputs_that_are_no_logits(make: Callable[[Tensor], object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        reject_mixing(Odd(make), IN, CLASSES)


def test_rejects_message_passing_without_edges() -> None:
    class Conv(nn.Module):
        def __init__(self, inputs: int, classes: int) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(inputs, classes)

        def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
            return self.conv(x, edge_index)

    with pytest.raises(ConfigError, match=r"random table of records.*rows x and no edges.*gv\.PrivateGNN"):
        reject_mixing(Conv(3, 2), 3, 2, edges=False)
