"""``metric``: epochs, candidates and the gate are selected by it where labels are public."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.data import Graph
from graphveil.data.recipes import split
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.base import Estimator
from graphveil.estimators.classcode.edge_method import fit_gate
from graphveil.estimators.training.objective import Objective
from graphveil.ledger import ledger_of
from graphveil.training.metrics import METRICS, metric_value

EDGE: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-5, "seed": 0}
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
@pytest.mark.parametrize(
    "model", [gv.MLP(unit="none", seed=0, epochs=15), gv.GCN(unit="none", seed=0, epochs=15)]
)
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

    def recorded(metric: str, labels: Tensor, proba: Tensor) -> float:
        seen.append(metric)
        return metric_value(metric, labels, proba)

    with pytest.MonkeyPatch.context() as patch:
        for module in ("graphveil.training.loop", "graphveil.estimators.training.objective"):
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
        (lambda: gv.MLP(unit="none", metric=3), "metric=3 must be text"),
    ],
)
def test_a_metric_that_cannot_select_is_rejected(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        build()


def test_validation_nodes_of_one_class_are_rejected_before_a_charge(graph: Graph) -> None:
    train, val, test = (graph.mask(part) for part in ("train", "val", "test"))
    one_class = graph.with_split(train, val & (graph.y == 0), test)
    model, before = gv.ClassCode(**EDGE, metric="roc_auc"), len(ledger_of(one_class.edge_set))
    with pytest.raises(GraphError, match=r"one class.*No privacy budget was spent"):
        model.fit(one_class)
    assert len(ledger_of(one_class.edge_set)) == before
    assert gv.MLP(unit="none", seed=0, epochs=2, metric="macro_f1").fit(one_class).is_fitted_graph(one_class)
