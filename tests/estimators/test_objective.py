"""``metric``: epochs, candidates and the gate are selected by it where labels are public."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.data import Graph
from graphveil.data.recipes import split
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode.edge import fit_gate
from graphveil.estimators.objective import Objective
from graphveil.training.metrics import METRICS, metric_value

EDGE: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-5, "seed": 0}
NONE: dict[str, Any] = {"unit": "none", "seed": 0}
LOCAL: dict[str, Any] = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 1.0}
RECORD: dict[str, Any] = {"unit": "node-record", "epsilon": 4.0, "seed": 0}


def imbalanced(nodes: int = 400, positives: float = 0.15, seed: int = 0) -> Graph:
    """Return a graph of two classes, the second of which is rare and weakly visible in features."""
    rng = np.random.default_rng(seed)
    y = (rng.random(nodes) < positives).astype(np.int64)
    x = rng.normal(size=(nodes, 6)).astype(np.float32)
    x[:, 0] += y
    source, target = rng.integers(nodes, size=(2, 3 * nodes))
    graph = Graph.from_edges(torch.from_numpy(x), torch.from_numpy(y), source, target, directed=False)
    return split(graph, 0.5, 0.25, unit="none", seed=seed)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return imbalanced()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("model", [gv.MLP(**NONE, epochs=15), gv.GCN(**NONE, epochs=15)])
def test_the_kept_epoch_has_the_best_metric(graph: Graph, model: Estimator, metric: str) -> None:
    shorter = [type(model)(unit="none", seed=0, epochs=epochs, metric=metric) for epochs in (1, 4, 9, 15)]
    scores = [one.fit(graph).score(graph, "val", metric) for one in shorter]
    # The kept epoch of a longer training is at least as good as that of its beginning.
    assert scores == sorted(scores)
    usual = model.fit(graph).score(graph, "val", metric)
    assert scores[-1] >= usual
    assert metric != "accuracy" or scores[-1] == usual


def test_the_epoch_of_another_metric_is_another_one(graph: Graph) -> None:
    usual, chosen = (
        gv.MLP(unit="none", seed=0, epochs=15, metric=metric).fit(graph) for metric in (None, "roc_auc")
    )
    assert chosen.score(graph, "val", "roc_auc") > usual.score(graph, "val", "roc_auc")


@pytest.mark.parametrize(
    "model",
    [
        gv.MLP(unit="none", seed=0),
        gv.GAP(**EDGE, epochs=3),
        gv.Spectral(unit="undirected-edge", epsilon=8.0, seed=0),
        gv.ClassCode(**EDGE, self_training=False),
    ],
    ids=lambda model: model.method,
)
def test_methods_of_public_labels_select_by_the_metric(graph: Graph, model: Estimator) -> None:
    seen = list[str]()

    def recorded(metric: str, labels: Tensor, proba: Tensor, positive: int | None) -> float:
        seen.append(metric)
        return metric_value(metric, labels, proba, positive)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("graphveil.training", "graphveil.estimators.objective"):
            patch.setattr(f"{module}.metric_value", recorded)
        model.set_params(metric="average_precision").fit(graph)
    assert set(seen) == {"average_precision"}
    assert model.predict_proba().isfinite().all()


def test_the_gate_prefers_the_expert_of_the_better_metric() -> None:
    """One expert ranks perfectly with wrong levels, the other has the better likelihood and no ranking."""
    labels = torch.tensor([0] * 80 + [1] * 20)
    ranks = torch.where(labels == 1, 0.05, 0.01).double()
    level = torch.full((100,), 0.2, dtype=torch.float64)
    experts = [torch.stack([1 - p, p], dim=1).log() for p in (ranks, level)]
    every = torch.arange(100)
    assert fit_gate(experts, labels, every)[0][0] < 1.0
    weights, log = fit_gate(experts, labels, every, Objective(metric="roc_auc"))
    assert weights[0] > 0
    assert metric_value("roc_auc", labels, log.exp()) == 1.0


def test_ties_of_a_metric_are_decided_by_the_likelihood() -> None:
    labels = torch.tensor([0, 0, 1])
    sure, unsure = (torch.tensor([[p, 1 - p], [p, 1 - p], [1 - p, p]]).log() for p in (0.9, 0.6))
    objective = Objective(metric="accuracy")
    assert objective.score(sure, labels) > objective.score(unsure, labels)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gv.MLP(**RECORD, metric="roc_auc"), "which unit 'node-record' protects"),
        (lambda: gv.ClassCode(**RECORD, metric="macro_f1"), "private_metrics=True"),
        (lambda: gv.GAP(**RECORD, out_degree_bound=3, metric="accuracy"), "protects"),
        (lambda: gv.GCN(unit="none", multi_label=True, metric="roc_auc"), "no effect on gcn"),
        (
            lambda: gv.LPGNN(unit="local-attributes", eps_x=1.0, eps_y=1.0, metric="roc_auc"),
            "no effect on lpgnn",
        ),
        (lambda: gv.MLP(unit="none", metric="auc"), "is not one of accuracy"),
        (lambda: gv.MLP(unit="none", metric=3), "metric=3 must be one of"),
    ],
)
def test_a_metric_that_cannot_select_is_rejected(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        build()


def test_validation_nodes_of_one_class_are_rejected_before_a_charge(graph: Graph) -> None:
    train, val, test = (graph.labeled_in(part) for part in ("train", "val", "test"))
    one_class = graph.with_split(train, val & (graph.y == 0), test)
    model, before = gv.ClassCode(**EDGE, metric="roc_auc"), len(ledger_of(one_class.edge_set))
    with pytest.raises(GraphError, match=r"one class.*No privacy budget was spent"):
        model.fit(one_class)
    assert len(ledger_of(one_class.edge_set)) == before
    assert gv.MLP(unit="none", seed=0, epochs=2, metric="macro_f1").fit(one_class).is_fitted_graph(one_class)


# -- class weights -----------------------------------------------------------------------------------------


def test_balanced_weights_are_those_of_scikit_learn(graph: Graph) -> None:
    from sklearn.utils.class_weight import compute_class_weight

    y = graph.y[graph.labeled_in("train")].numpy()
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=y)
    found = Objective(class_weight="balanced").weights(graph)
    assert found is not None and found.tolist() == pytest.approx(expected.tolist())


def test_targets_hold_the_weight_of_each_nodes_class_and_nothing_without_a_label() -> None:
    graph = Graph.from_edges(torch.eye(4), [0, 1, -1, 1], [0], [1], directed=False, class_names=("ok", "1"))
    weights = Objective.from_keywords(None, {"1": 5})
    assert weights.targets(graph).tolist() == [[1, 0], [0, 5], [0, 0], [0, 5]]
    assert Objective.from_keywords(None, {0: 2}).targets(graph).tolist()[0] == [2, 0]
    assert Objective().targets(graph) is graph.y


WEIGHTED = [
    lambda **more: gv.MLP(unit="none", seed=0, **more),
    lambda **more: gv.MLP(unit="none", seed=0, epochs=20, **more),
    lambda **more: gv.GCN(unit="none", seed=0, epochs=20, **more),
    lambda **more: gv.GAP(**EDGE, unsafe_noise_seed=1, epochs=20, **more),
    lambda **more: gv.ClassCode(**EDGE, unsafe_noise_seed=1, self_training=False, **more),
    lambda **more: gv.MLP(**RECORD, unsafe_noise_seed=1, **more),
    lambda **more: gv.MLP(**RECORD, unsafe_noise_seed=1, epochs=20, **more),
    lambda **more: gv.GAP(**RECORD, unsafe_noise_seed=1, out_degree_bound=3, epochs=20, **more),
    lambda **more: gv.ClassCode(**RECORD, unsafe_noise_seed=1, **more),
    lambda **more: gv.ClassCode(**RECORD, unsafe_noise_seed=1, read_own_edges=True, **more),
    lambda **more: gv.PrivateModule(**RECORD, unsafe_noise_seed=1, module=torch.nn.Linear, epochs=20, **more),
]


@pytest.mark.parametrize("make", WEIGHTED)
def test_a_heavier_class_is_predicted_more_often(graph: Graph, make: Any) -> None:
    usual, heavy = (
        make(class_weight=weight).fit(graph).predict_proba()[:, 1].mean() for weight in (None, {1: 8.0})
    )
    assert heavy > usual + 0.1


@pytest.mark.parametrize("make", WEIGHTED[:2])
def test_weights_of_one_change_nothing(graph: Graph, make: Any) -> None:
    usual, same = (make(class_weight=weight).fit(graph).proba_ for weight in (None, {"0": 1.0, "1": 1.0}))
    torch.testing.assert_close(usual, same, atol=1e-3, rtol=0)


@pytest.mark.parametrize("clip", [0.5, 1.0])
def test_weighted_gradients_are_clipped_to_the_same_norm(clip: float) -> None:
    """One record moves a clipped sum by at most the clipping norm, whatever the weight of its class."""
    from graphveil.core.clipping.dpsgd import clipped_sum
    from graphveil.core.clipping.ghost_modules import Affine

    x, y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).double() * 5, torch.arange(20) % 2
    targets = torch.nn.functional.one_hot(y, 2) * torch.tensor([1.0, 1e6])
    layer = torch.nn.Linear(4, 2).double()
    for model in (Affine(layer.weight.t(), layer.bias), layer):
        for record in range(20):
            sums = clipped_sum(model, x, targets)
            sums.add(torch.tensor([record]), clip)
            assert float(sums.sums.norm()) <= clip
            if y[record]:  # a weight beyond the clipping norm is of full length
                assert float(sums.sums.norm()) > 0.99 * clip


def test_weights_do_not_change_the_guarantee(graph: Graph) -> None:
    usual, heavy = (gv.MLP(**RECORD, class_weight=weight).prepare(graph) for weight in (None, {1: 50.0}))
    assert usual.plan == heavy.plan and usual.guarantee == heavy.guarantee


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gv.MLP(**RECORD, class_weight="balanced"), "which unit 'node-record' protects"),
        (
            lambda: gv.Spectral(unit="none", class_weight={1: 2.0}),
            "no effect on spectral",
        ),
        (lambda: gv.GCN(unit="none", multi_label=True, class_weight="balanced"), "no effect on gcn"),
        (lambda: gv.LPGNN(**LOCAL, class_weight={1: 2.0}), "on lpgnn"),
        (lambda: gv.MLP(unit="none", class_weight="equal"), "is not one of balanced"),
        (lambda: gv.MLP(unit="none", class_weight={}), "has no weight"),
        (lambda: gv.MLP(unit="none", class_weight={1: -2.0}), "must be a finite number above 0"),
        (lambda: gv.MLP(unit="none", class_weight={1: float("inf")}), "must be a finite number above 0"),
        (lambda: gv.MLP(unit="none", class_weight=[1.0, 2.0]), "must be"),
    ],
)
def test_class_weights_without_effect_are_rejected(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_a_weight_of_an_unknown_class_is_rejected_before_a_charge(graph: Graph) -> None:
    before = len(ledger_of(graph.edge_set))
    with pytest.raises(GraphError, match=r"names the class 'fraud'.*No privacy budget was spent"):
        gv.MLP(**RECORD, class_weight={"fraud": 2.0}).fit(graph)
    assert len(ledger_of(graph.edge_set)) == before


def test_a_saved_model_keeps_metric_and_weights(graph: Graph, tmp_path: Any) -> None:
    model = gv.MLP(unit="none", seed=0, epochs=2, metric="roc_auc", class_weight={1: 3.0}).fit(graph)
    model.save(tmp_path / "saved")
    loaded = gv.load_model(tmp_path / "saved")
    assert loaded.get_params()["class_weight"] == {"1": 3.0} and loaded.get_params()["metric"] == "roc_auc"
