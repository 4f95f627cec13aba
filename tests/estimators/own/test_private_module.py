"""PrivateModule: a custom module on protected records, without edges."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ConfigError, GraphveilError, NotImplementedGuaranteeError, ReleaseError
from tests.estimators.gnn.modules import InterruptedFitError, Records, interrupt


@pytest.fixture
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


def make(**changes: Any) -> gv.PrivateModule:
    return gv.PrivateModule(
        **{"module": Records, "unit": "node-record", "epsilon": 8.0, "seed": 0, **changes}
    )


@pytest.mark.parametrize(
    "changes", [{}, {"unit": "node-bounded-degree", "max_degree": 300}, {"batch_size": 40}]
)
def test_a_fit_is_charged_the_target_and_learns(graph: Graph, changes: dict[str, Any]) -> None:
    model = make(**changes).fit(graph)
    (entry,) = ledger_of(graph.edge_set).entries
    assert entry.label == "module" and model.guarantee.valid and 7.98 <= model.guarantee.epsilon <= 8
    assert "No edge was read" in model.guarantee.formal_statement()
    assert model.score(graph) > 1.2 / graph.num_classes
    other = synthetic("tiny", seed=5)
    assert model.predict_proba(other).shape == (other.num_nodes, other.num_classes)


@pytest.mark.usefixtures("own_names")
def test_a_saved_model_holds_the_name_of_its_module(graph: Graph, tmp_path: Path) -> None:
    model = make(epochs=2).fit(graph)
    model.save(tmp_path / "release", per_node=tmp_path / "rows")
    with pytest.raises(GraphveilError, match=r"graphveil.register\(Records\)"):
        gv.load_model(tmp_path / "release")
    gv.register(Records)
    loaded = gv.load_model(tmp_path / "release", per_node=tmp_path / "rows")
    assert torch.equal(loaded.predict_proba(), model.predict_proba())


def test_an_interrupted_fit_is_not_resumed_with_other_code(graph: Graph, tmp_path: Path) -> None:
    class Changed(Records):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(2 * x)

    Changed.__name__ = "Records"
    with pytest.raises(InterruptedFitError):
        make(epochs=5).fit(graph, on_progress=interrupt("module", 3), workspace=tmp_path)
    with pytest.raises(ReleaseError):
        make(epochs=5, module=Changed).fit(graph, workspace=tmp_path)
    make(epochs=5).fit(graph, workspace=tmp_path)


class Whole(Records):
    """Mixes rows."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(dim=0))


class Choice(Records):
    """Chooses by a value."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(-x if bool(x.sum() > 9e9) else x)


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"module": Whole}, ConfigError, "The output of Whole at one node changes"),
        ({"module": Choice}, ConfigError, "trained record by record"),
        (
            {"module": lambda i, c: nn.Sequential(nn.Linear(i, c), nn.BatchNorm1d(c))},
            ConfigError,
            "mixes the records",
        ),
        ({"module": ""}, ConfigError, "module= is missing"),
        ({"unit": "undirected-edge"}, NotImplementedGuaranteeError, "without noise"),
    ],
)
def test_rejects_what_cannot_be_trained_before_anything_is_charged(
    graph: Graph, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        make(**changes).fit(graph)
    assert ledger_of(graph.edge_set).entries == ()
