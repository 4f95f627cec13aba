"""No value of a record raises an error or affects whether predictions are finite."""

import pytest
import torch
from torch import Tensor, nn

from graphveil.data import Graph
from graphveil.errors import GraphError, ReleaseError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.gap import GAP
from graphveil.estimators.gnn import PrivateGNN
from graphveil.estimators.mlp import MLP
from graphveil.estimators.own.private_module import PrivateModule
from tests.estimators.gnn.modules import Mean
from tests.estimators.interrupted import InterruptedFit, interrupted_at

pytestmark = pytest.mark.usefixtures("quick_classcode")

N = 40


def data(loud: float) -> Graph:
    """Return a ring of two classes whose node 0 has features of the given size."""
    y = torch.arange(N) % 2
    x = torch.eye(2)[y] + 0.1
    x[0] = loud
    masks: list[Tensor] = [torch.arange(N) % 4 < 2, torch.arange(N) % 4 == 2, torch.arange(N) % 4 == 3]
    ring = range(N)
    graph = Graph.from_edges(x, y, list(ring), [(node + 1) % N for node in ring], directed=True)
    return graph.with_split(*masks)


def test_a_record_that_overflows_raises_no_error() -> None:
    for loud in (0.0, 3e38):
        model = GAP(
            unit="node-record", epsilon=8.0, delta=1e-3, out_degree_bound=2, seed=0, unsafe_noise_seed=0
        )
        model.fit(data(loud))
        assert bool(model.predict_proba()[1:].isfinite().all())


@pytest.mark.parametrize("scaling", ["auto", "none"])
@pytest.mark.parametrize("loud", [3e38, -3.4e38, 1e30])
@pytest.mark.parametrize(
    "build",
    [
        lambda **given: MLP(**given),
        lambda **given: MLP(**given, layers=2, epochs=2),
        lambda **given: MLP(**given, layers=3, epochs=2, batch_size=8),
        lambda **given: GAP(**given, out_degree_bound=2),
        lambda **given: ClassCode(**given),
        lambda **given: PrivateModule(module=nn.Linear, **given, epochs=2),
        lambda **given: PrivateGNN(module=Mean, **given | {"epsilon": 1.0}, epochs=2, leaves=4),
    ],
    ids=["softmax", "network", "sampled network", "gap", "classcode", "module", "gnn"],
)
def test_every_prediction_is_finite_for_any_record(build, loud: float, scaling: str) -> None:
    graph = data(loud)
    graph.x[2, 0], graph.x[2, 1] = loud, -loud
    graph = graph.replace(x=torch.cat([graph.x] * 8, dim=1))
    seeds = {"seed": 0, "unsafe_noise_seed": 0}  # loud at the outputs, too, if that were not prevented
    model = build(unit="node-record", epsilon=8.0, delta=1e-3, feature_scaling=scaling, **seeds)
    proba = model.fit(graph).predict_proba()
    assert proba.isfinite().all() and torch.allclose(proba.sum(dim=1), torch.ones(N))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_rejects_records_that_are_not_finite(value: float) -> None:
    with pytest.raises(GraphError, match="NaN, infinite"):
        data(value)


def test_noise_is_not_reused_for_another_configuration(tmp_path):
    settings = {"unit": "node-record", "epsilon": 8.0, "delta": 1e-3, "seed": 0}
    with pytest.raises(InterruptedFit):
        interrupted = interrupted_at("classifier", 3)
        MLP(**settings, learning_rate=0.03).fit(data(1.0), on_progress=interrupted, workspace=tmp_path)
    with pytest.raises(ReleaseError, match="same noise for different data or parameters"):
        MLP(**settings, learning_rate=0.3).fit(data(1.0), workspace=tmp_path)
