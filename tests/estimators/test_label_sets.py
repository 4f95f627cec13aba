"""GCN with label sets: sigmoid, binary cross entropy, micro F1."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import graphveil as gv
from graphveil.data import Graph
from graphveil.data.recipes import split
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.full_graph import GCN
from graphveil.training.heads import MULTICLASS, MULTILABEL

LABELS = 5


def made(nodes: int = 400, seed: int = 0) -> Graph:
    """Return a made graph: who shares at least two labels is often joined, and features are noisy."""
    rng = np.random.default_rng(seed)
    sets = rng.random((nodes, LABELS)) < 0.3
    shared = sets.astype(int) @ sets.T
    source, target = np.nonzero(np.triu(rng.random((nodes, nodes)) < np.where(shared >= 2, 0.12, 0.002), 1))
    x = sets @ rng.normal(size=(LABELS, 12)) + 1.5 * rng.normal(size=(nodes, 12))
    return Graph.from_edges(
        torch.from_numpy(x).float(),
        torch.from_numpy(sets[:, 0]).long(),
        source,
        target,
        directed=False,
        label_sets=sets,
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    return split(made(), 0.6, 0.2, unit="none", seed=0)


def gcn(**more: Any) -> GCN:
    given: dict[str, Any] = {"unit": "none", "multi_label": True, "seed": 0, "learning_rate": 0.05}
    return GCN(**{**given, **more})


def test_predicts_several_labels_per_node(graph: Graph) -> None:
    model = gcn().fit(graph)
    proba, predicted, wanted = model.predict_proba(), model.predict(), graph.label_sets
    assert (
        wanted is not None
        and proba.shape == predicted.shape == (400, LABELS)
        and predicted.dtype == torch.bool
    )
    assert torch.equal(predicted, proba > 0.5)
    assert set(predicted.sum(dim=1).tolist()) > {0, 1, 2}  # nothing, one and several
    test = graph.labeled_in("test")
    always = MULTILABEL.score(torch.ones_like(wanted[test]), wanted[test])
    assert model.score(graph) > always + 0.15
    from sklearn.metrics import f1_score

    assert model.score(graph) == pytest.approx(f1_score(wanted[test], predicted[test], average="micro"))


def test_the_loss_is_binary_cross_entropy(graph: Graph) -> None:
    logits, labels = torch.tensor([[0.3, -2.0], [1.5, 0.0]]), torch.tensor([[True, False], [False, True]])
    p = 1 / (1 + (-logits).exp())
    by_hand: Tensor = -torch.where(labels, p.log(), (1 - p).log()).mean()
    assert torch.allclose(MULTILABEL.loss(logits, labels), by_hand)
    assert not torch.allclose(MULTICLASS.loss(logits, torch.tensor([0, 1])), by_hand)


def test_a_saved_model_predicts_the_same(graph: Graph, tmp_path: Path) -> None:
    model = gcn(epochs=5).fit(graph)
    model.save(tmp_path / "run")
    again = gv.load_model(tmp_path / "run")
    assert torch.equal(again.predict(), model.predict())
    other = made(60, seed=1)
    assert torch.equal(
        again.predict_proba(other, allow_spend=True), model.predict_proba(other, assume_disjoint_edges=True)
    )


def test_trains_on_a_released_graph(graph: Graph) -> None:
    model = gcn(unit="undirected-edge", epsilon=8.0, perturb="arr", epochs=5).fit(graph)
    assert model.predict().shape == (400, LABELS)
    assert model.guarantee.valid and model.guarantee.unit == "undirected-edge"


def test_subgraphs_keep_label_sets(graph: Graph) -> None:
    keep = torch.zeros(400, dtype=torch.bool)
    keep[100:150] = True
    part = graph.subgraph(keep)
    assert part.label_sets is not None and graph.label_sets is not None
    assert torch.equal(part.label_sets, graph.label_sets[100:150])
    assert gcn(multi_label=False, epochs=5).fit(graph).predict().shape == (400,)


WRONG = {
    "a column": (torch.ones(3, 1), "at least two labels"),
    "a row too few": (torch.ones(2, 2), "one row for each of the 3 nodes"),
    "a count": (torch.full((3, 2), 2), "only 0 and 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_rejects_invalid_label_sets(case: str) -> None:
    sets, words = WRONG[case]
    with pytest.raises(GraphError, match=words):
        Graph.from_edges(torch.eye(3), [0, 1, 1], [0], [1], directed=False, label_sets=sets)


def test_rejects_misuse_before_training(graph: Graph) -> None:
    with pytest.raises(GraphError, match="no label sets"):
        gcn().fit(graph.replace(label_sets=None))
    with pytest.raises(GraphError, match="cannot grow"):
        graph.grow(torch.zeros(1, 12), None, [400], [0])
    with pytest.raises(ConfigError, match="multi_label"):
        gcn(multi_label="yes")
