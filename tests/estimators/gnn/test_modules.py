"""Modules that PrivateGNN and PrivateModule train, and others that are rejected before any charge."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.core.clipping.ego_graphs import EgoGraphClippedSum, StoredEgoGraphs
from graphveil.core.ledger import ledger_of
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ConfigError
from tests.estimators.gnn.modules import Branching, Mean, Records

with warnings.catch_warnings():  # of torch.jit, which torch_geometric still calls as it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GCNConv, SAGEConv

Module = Callable[[int, int], nn.Module]
GIVEN: dict[str, Any] = {"unit": "node-record", "epsilon": 1.0, "delta": 1e-5, "seed": 0, "epochs": 1}
NEIGHBORHOODS: list[dict[str, Any]] = [{"leaves": 4}, {"neighborhood": "neighbors", "layers": 2}]


@pytest.fixture
def graph() -> Graph:
    whole = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    return whole.subgraph(torch.arange(whole.num_nodes) < 90)


class Twice(nn.Module):
    """One convolution under two names."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.a, self.out = SAGEConv(inputs, inputs), nn.Linear(inputs, classes)
        self.b = self.a

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.b(self.a(x, edge_index).relu(), edge_index).relu())


class Repeated(nn.Module):
    """One convolution in three places of a list."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.convs, self.out = nn.ModuleList([SAGEConv(inputs, inputs)] * 3), nn.Linear(inputs, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.out(x)


def changed(change: Callable[[Mean], object], kind: type[Mean] = Mean) -> Module:
    """The module, after something is done to it."""

    def build(inputs: int, classes: int) -> nn.Module:
        module = kind(inputs, classes)
        change(module)
        return module

    return build


def tie(module: Mean) -> None:
    module.heard.weight = module.own.weight


def old_norm(module: Mean) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(module.own)


TRAINED: dict[str, Module] = {
    "a convolution under two names": Twice,
    "a convolution three times": Repeated,
    "tied weights": changed(tie),
    "weight_norm": changed(lambda module: nn.utils.parametrizations.weight_norm(module.own)),
    "weight_norm as it was": changed(old_norm),
    "a frozen layer": changed(lambda module: module.own.requires_grad_(False)),
    "an unused layer": changed(lambda module: setattr(module, "more", nn.Linear(5, 5))),
    "float64": changed(lambda module: module.double()),
    "a reference to itself": changed(lambda module: module.__dict__.update(me=module)),
    "GCNConv, in a loop": GCNConv,
}


@pytest.mark.parametrize("neighborhood", NEIGHBORHOODS, ids=["stars", "trees"])
@pytest.mark.parametrize("name", TRAINED)
def test_modules_that_torch_trains_are_trained(graph: Graph, name: str, neighborhood: dict[str, Any]) -> None:
    model = gv.PrivateGNN(module=TRAINED[name], **GIVEN, **neighborhood).fit(graph)
    assert model.guarantee.valid
    state = model.module_.state_dict()
    assert all(value.isfinite().all() for value in state.values())


@pytest.mark.parametrize("kind", [Twice, changed(tie)], ids=["layer", "weight"])
def test_shared_parts_have_the_sum_of_their_gradients(kind: Module) -> None:
    torch.manual_seed(0)
    module = kind(4, 3).double()
    x, edges = torch.randn(1, 4, 4, dtype=torch.float64), torch.tensor([[[1, 2], [0, 0]]])
    labels = torch.zeros(1, dtype=torch.int64)
    loss = nn.functional.cross_entropy(module(x[0], edges[0])[:1], labels)
    own = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(module.parameters()))])
    for route in ("ghost", "vmap", "loop"):
        gradients = EgoGraphClippedSum(module, StoredEgoGraphs(x, edges), labels, route=route)
        gradients.add(torch.tensor([0]), 1e3)
        torch.testing.assert_close(gradients.sums, own, rtol=1e-10, atol=1e-12)


class SigmoidInPlace(Mean):
    """Changes in place what its backward pass reads."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.own(x).sigmoid().mul_(2))


class _NoBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise ValueError("nothing goes back")


class Mixing(Mean):
    """Reads the mean of all nodes of a batch."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x - x.mean(dim=0), edge_index)


class OneWay(Mean):
    """Fails in the backward pass alone."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = _NoBackward.apply(super().forward(x, edge_index))  # type: ignore[no-untyped-call]
        return out


class Narrow(Mean):
    """Fails on as many leaves as the fit has, and on no fewer."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if edge_index.shape[1] in (77, 20):
            raise ValueError("too wide")
        return super().forward(x, edge_index)


class FirstSeen(Branching):
    """Keeps the scale of the first record."""

    scale: float | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.scale = self.scale or float(x.abs().max())
        return super().forward(x / self.scale, edge_index)


class Moving(Mean):
    """Follows the mean of what it saw in a buffer that is not saved."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.register_buffer("followed", torch.zeros(inputs), persistent=False)
        self.followed: Tensor

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        found = super().forward(x, edge_index)
        with torch.no_grad():
            self.followed.lerp_(x.mean(dim=0).to(self.followed), 0.1)
        return found


class LogOfNegatives(Mean):
    """Has logits that are NaN."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index).log()


class RootOfZero(Mean):
    """Has gradients that are NaN."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) + (self.own(x) * 0).sqrt().sum(dim=1, keepdim=True)


class Opened(Mean):
    """Holds a file."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.file = Path(__file__).open()  # noqa: SIM115 - such a module is rejected


REJECTED: dict[str, tuple[Module, str]] = {
    "in place": (
        SigmoidInPlace,
        r"in place that its backward pass reads, the output of Sigmoid.*h\.mul\(2\)",
    ),
    "mixing": (Mixing, "The output of Mixing at one node changes"),
    "no backward": (OneWay, "nothing goes back"),
    "state": (FirstSeen, "changes 'scale' in forward"),
    "a moving buffer": (Moving, "changes 'followed' in forward"),
    "NaN logits": (LogOfNegatives, r"logits that are NaN.*clamp_min"),
    "NaN gradients": (RootOfZero, r"gradients that are NaN.*clamp_min"),
    "an open file": (Opened, "cannot be copied"),
    "frozen": (changed(lambda module: module.requires_grad_(False)), "has no trainable parameters"),
    "contains itself as a": (changed(lambda module: setattr(module, "me", module)), "contains itself"),
    "DataParallel": (lambda i, c: nn.DataParallel(Mean(i, c)), "pass the module inside it"),
    "within": (lambda i, c: nn.Sequential(nn.DataParallel(Mean(i, c))), "pass the module inside it"),
    "scripted": (lambda i, c: torch.jit.script(nn.Linear(i, c)), "without torch.jit"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("neighborhood", NEIGHBORHOODS, ids=["stars", "trees"])
@pytest.mark.parametrize("name", REJECTED)
def test_rejects_other_modules_with_the_reason(graph: Graph, name: str, neighborhood: dict[str, Any]) -> None:
    module, why = REJECTED[name]
    with pytest.raises(ConfigError, match=why):
        gv.PrivateGNN(module=module, **GIVEN, **neighborhood).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()


@pytest.mark.parametrize(
    "neighborhood", [{"leaves": 77}, {**NEIGHBORHOODS[1], "leaves": 4}], ids=["stars", "trees"]
)
def test_modules_are_run_in_the_shapes_of_the_fit_first(graph: Graph, neighborhood: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="too wide"):
        gv.PrivateGNN(module=Narrow, **GIVEN, **neighborhood).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()


# -- a record on which the module raises -------------------------------------------------------------------


class Inverse(Records):
    """Inverts a matrix that is singular for a loud record."""

    def forward(self, x: Tensor) -> Tensor:
        quiet = (x.abs().amax() < 1e3).to(x.dtype)
        return super().forward(x) @ torch.linalg.inv(quiet * torch.eye(self[2].out_features, dtype=x.dtype))


class RaisesOnTrees(Mean):
    """Raises for a loud tree."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if float(x.abs().max()) > 1e3:
            raise ValueError("loud")
        return super().forward(x, edge_index)


def loud(graph: Graph, node: int) -> Graph:
    x = graph.x.clone()
    x[node] = 1e6
    return graph.replace(x=x)


def test_a_record_on_which_the_module_fails_counts_as_null(graph: Graph) -> None:
    node = int(graph.labeled_in("train").nonzero()[0])
    one = gv.PrivateModule(module=Inverse, feature_scaling="none", **GIVEN).fit(loud(graph, node))
    proba = one.predict_proba()
    classes = graph.num_classes
    assert proba.isfinite().all() and torch.allclose(proba[node], torch.full((classes,), 1 / classes))
    gv.PrivateGNN(module=RaisesOnTrees, **GIVEN, **NEIGHBORHOODS[1]).fit(loud(graph, node))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_rejects_recurrent_layers_with_an_alternative(graph: Graph, kind: type[nn.RNNBase]) -> None:
    class Recurrent(nn.Module):
        def __init__(self, inputs: int, classes: int) -> None:
            super().__init__()
            self.r, self.out = kind(1, 8, batch_first=True), nn.Linear(8, classes)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.r(x[:, :, None])[0][:, -1])

    class Written(nn.Module):
        def __init__(self, inputs: int, classes: int) -> None:
            super().__init__()
            self.given, self.kept, self.out = nn.Linear(1, 8), nn.Linear(8, 8), nn.Linear(8, classes)

        def forward(self, x: Tensor) -> Tensor:
            state = torch.tanh(self.given(x[:, :1]))
            for step in range(1, 4):
                state = torch.tanh(self.given(x[:, step : step + 1]) + self.kept(state))
            return self.out(state)

    with pytest.raises(ConfigError, match=rf"nn\.{kind.__name__}, which.*Write the recurrence"):
        gv.PrivateModule(module=Recurrent, **GIVEN).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()
    assert gv.PrivateModule(module=Written, **GIVEN).fit(graph).predict_proba().isfinite().all()
