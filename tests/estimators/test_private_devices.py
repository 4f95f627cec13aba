"""device="cuda" for protected records: every method that takes noisy steps, from keyword to predictions.

Where there is no GPU a device that is not ``cpu`` stands for one (``tests/training/test_devices.py``).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graphveil as gv
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ConfigError, ReleaseError
from graphveil.estimators import base
from graphveil.estimators import method as methods
from graphveil.estimators.base import Estimator
from graphveil.estimators.gnn import method as gnn_method
from graphveil.estimators.gnn import multi_hop_method
from graphveil.estimators.own import private_module
from graphveil.ledger import ledger_of
from graphveil.training.devices import CPU
from tests.estimators.gnn.modules import Mean, Records

ELSEWHERE = torch.device("cpu", 0)
BUDGET: dict[str, Any] = {"unit": "node-record", "epsilon": 8.0, "seed": 0}
METHODS: dict[str, Callable[..., Estimator]] = {
    "stars": lambda **how: gv.PrivateGNN(module=Mean, epochs=2, leaves=8, **BUDGET, **how),
    "trees": lambda **how: gv.PrivateGNN(module=Mean, epochs=2, neighborhood="neighbors", **BUDGET, **how),
    "module": lambda **how: gv.PrivateModule(module=Records, epochs=5, **BUDGET, **how),
    "mlp": lambda **how: gv.MLP(**BUDGET, **how),
    "small mlp": lambda **how: gv.MLP(tuned=False, epochs=3, **BUDGET, **how),
    "gap": lambda **how: gv.GAP(epochs=2, **BUDGET, out_degree_bound=5, **how),
    "classcode": lambda **how: gv.ClassCode(**BUDGET, **how),
}


@pytest.fixture
def graph() -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=0)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``cuda`` be a device that is there."""
    for part in (base, methods, gnn_method, multi_hop_method, private_module):
        monkeypatch.setattr(part, "private_device", lambda name: ELSEWHERE if name == "cuda" else CPU)
    for part in (base, methods):
        monkeypatch.setattr(part, "pick_device", lambda name: CPU)


def learned(model: Estimator) -> torch.Tensor:
    """Return all that a fit learned, as one vector."""
    assert model._fit is not None
    return torch.cat([part.flatten().double() for part in model._fit.trained.state().values()])


@pytest.mark.parametrize("name", METHODS)
def test_a_gpu_that_is_missing_is_refused_before_anything_is_booked(
    name: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = METHODS[name](device="cuda")
    for ask in (model.preview, model.fit):
        with pytest.raises(ConfigError, match="torch finds none here; use device='auto'"):
            ask(graph)
    assert ledger_of(graph.edge_set).entries == ()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", METHODS)
def test_a_fit_elsewhere_promises_what_one_here_does(name: str, graph: Graph) -> None:
    here, there = (METHODS[name](device=device).preview(graph) for device in ("cpu", "cuda"))
    assert there.plan == here.plan
    model = METHODS[name](device="cuda").fit(graph)
    assert len(ledger_of(graph.edge_set).entries) == 1
    assert model.guarantee == here.guarantee and model.guarantee.valid
    assert learned(model).isfinite().all() and learned(model).abs().max() > 0


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", METHODS)
def test_other_noise_is_drawn_elsewhere(name: str, graph: Graph) -> None:
    """One seed on two devices: one noise on two sums that differ by rounding would tell the difference."""
    here, there = (
        learned(METHODS[name](device=device, unsafe_noise_seed=3).fit(graph)) for device in ("cpu", "cuda")
    )
    assert not torch.allclose(here, there, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", ["stars", "module", "mlp"])
def test_a_run_is_not_resumed_on_another_device(name: str, graph: Graph, tmp_path: Path) -> None:
    def kill(stage: str, done: int, total: int) -> None:
        if stage in ("module", "classifier", "encoder") and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        METHODS[name]().fit(graph, on_progress=kill, workspace=tmp_path)
    with pytest.raises(ReleaseError):
        METHODS[name](device="cuda").fit(graph, workspace=tmp_path)
    assert METHODS[name]().fit(graph, workspace=tmp_path).guarantee.valid


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", METHODS)
def test_a_fit_on_a_gpu(name: str, graph: Graph) -> None:
    model = METHODS[name](device="cuda").fit(graph)
    assert model.guarantee == METHODS[name]().preview(graph).guarantee
    assert learned(model).isfinite().all()
