"""GAP with custom modules at edge level."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ConfigError, GraphveilError, NotImplementedGuaranteeError

EDGE: dict[str, Any] = {
    "unit": "undirected-edge",
    "epsilon": 4.0,
    "seed": 0,
    "epochs": 30,
    "unsafe_noise_seed": 0,
}


class Wide(nn.Sequential):
    """An encoder with batch norm and dropout, which edge units allow."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Linear(inputs, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, outputs)
        )


class Short(nn.Linear):
    """Returns a column too few."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, 1:]


@pytest.fixture
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("demo"), seed=0)


def test_custom_networks_learn_with_the_plan_of_gap(graph: Graph) -> None:
    plain, own = (gv.GAP(**{**EDGE, **more}) for more in ({}, {"encoder": Wide, "head": Wide}))
    assert plain.preview(graph).plan == own.preview(graph).plan
    model = own.fit(graph)
    assert isinstance(model.fitted.trained.classifier.module, Wide)
    assert model.score(graph) > 1.5 / graph.num_classes
    assert [len(hop[0]) for hop in model.aggregates_.values()] == [16, 16]
    sparse = gv.GAP(**EDGE, encoder=nn.Linear).fit(graph.replace(x=_sparse(graph.x)))
    dense = gv.GAP(**EDGE, encoder=nn.Linear).fit(graph)
    torch.testing.assert_close(sparse.predict_proba(), dense.predict_proba(), rtol=1e-3, atol=1e-3)


def _sparse(x: Any) -> Any:
    from scipy import sparse

    return sparse.csr_array(x.numpy())


def test_a_saved_model_needs_the_registered_code_and_predicts_other_graphs(
    graph: Graph, tmp_path: Path
) -> None:
    class RegisteredLater(Wide):
        pass

    own = {"encoder": RegisteredLater, "head": RegisteredLater}
    model = gv.GAP(**{**EDGE, "unsafe_noise_seed": None, "epochs": 2}, **own).fit(graph)
    model.save(tmp_path / "release")
    with pytest.raises(GraphveilError, match=r"graphveil.register\(RegisteredLater\)"):
        gv.load_model(tmp_path / "release")
    gv.register(RegisteredLater)
    loaded = gv.load_model(tmp_path / "release")
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    other = synthetic("demo", seed=1)
    assert loaded.predict_proba(other, allow_spend=True).shape == (other.num_nodes, other.num_classes)


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"encoder": Wide(4, 4)}, ConfigError, "encoder=Wide\\(...\\) is a module instance"),
        ({"encoder": Wide, "encoder_layers": 2}, ConfigError, "in place|replaces the built-in"),
        (
            {"head": Wide, "unit": "node-record", "out_degree_bound": 2, "epochs": None},
            NotImplementedGuaranteeError,
            "PrivateGNN",
        ),
        ({"encoder": Short}, ConfigError, "Short returns"),
        ({"head": Short}, ConfigError, "Short returns"),
        ({"head": lambda inputs, classes: nn.Linear(3, classes)}, ConfigError, "fails on 4 random records"),
    ],
)
def test_rejects_unusable_modules_before_a_charge(
    graph: Graph, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        gv.GAP(**{**EDGE, **changes}).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()


class InPlace(nn.Sequential):
    """Changes in place what its backward pass reads."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, 8), nn.Linear(8, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self[1](self[0](x).sigmoid().mul_(2))


class Frozen(InPlace):
    """Has nothing to train."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self[1](self[0](x))


class FirstSeen(InPlace):
    """Keeps the scale of the first batch in a plain attribute."""

    scale: float | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.scale = self.scale or float(x.detach().abs().max())
        return self[1](self[0](x / self.scale))


class Detached(InPlace):
    """Has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return self[1](self[0](x)).detach()


class Twice(nn.Module):
    """Has one layer under two names."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, 8), nn.Linear(8, outputs)
        self.middle = self.again = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.again(self.middle(self.first(x)).tanh()))


@pytest.mark.parametrize("place", ["encoder", "head"])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (InPlace, "in place that its backward pass reads, the output of Sigmoid"),
        (FirstSeen, "a saved model would predict"),
        (Detached, "does not depend on its"),
    ],
)
def test_rejects_modules_that_would_fail_later_before_a_charge(
    graph: Graph, kind: type[nn.Module], why: str, place: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        gv.GAP(**EDGE, **{place: kind}).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()


def test_rejects_frozen_heads_and_accepts_frozen_encoders(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="has no trainable parameters"):
        gv.GAP(**EDGE, head=Frozen).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()
    short = {**EDGE, "epochs": 2}
    for given in ({"encoder": Frozen}, {"encoder": Twice, "head": Twice}):
        assert gv.GAP(**short, **given).fit(graph).predict_proba().isfinite().all()
