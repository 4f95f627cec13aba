"""Predictions of other and of grown graphs: an edge changes each hop by at most its cost."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.data import Graph
from graphveil.estimators import classcode, gap
from graphveil.estimators.base import Estimator
from tests.estimators.replay import Pair, largest_share
from tests.estimators.test_replay_weights import NODES, drawn, neighbor

pytestmark = pytest.mark.usefixtures("quick_classcode")

OTHERS = ((0, 1), (6, 7), (12, 13), (0, 12))
NEW = 4  # nodes; the first is the twin of node 0, the second of node 12, and the others are twins
GROWN = ((18, 0), (19, 12), (20, 21), (5, 20))
Predict = Callable[[Pair | None], Tensor]
CASES = [
    ("gap", {"weights": "half_cos"}),
    ("gap", {"weights": "given"}),
    ("gap", {"weights": "attention", "attention_steps": 3}),
    ("classcode", {}),
    ("classcode", {"few_labels": True}),
    ("classcode", {"few_labels": True, "weights": "half_cos"}),
    ("classcode", {"weights": "jaccard"}),
    ("classcode", {"weights": "learned_public"}),
]
LOOSE = ("attention", "learned_public")
UNITS = ("undirected-edge", "directed-edge")


def fitted(method: str, unit: str, options: dict[str, Any]) -> tuple[Estimator, Graph]:
    common: dict[str, Any] = {"unit": unit, "epsilon": 4.0, "delta": 1e-5, "seed": 3, **options}
    graph = drawn(unit, weighted=options.get("weights") == "given")
    if method == "classcode":
        return classcode.ClassCode(**common, self_training=False).fit(graph), graph
    return gap.GAP(**common, hops=2, hidden=3, epochs=2).fit(graph), graph


def of_another(model: Estimator, graph: Graph) -> Predict:
    """Return predictions of a graph with other edges, or of a neighbor."""
    source, target = np.random.default_rng(7).integers(NODES, size=(2, 40))
    weight: dict[str, Any] = {}
    if graph.adjacency.weights is not None:
        weight = {"weight": np.random.default_rng(8).random(40) * 2, "max_weight": 2.0}
    adjacency = Adjacency.from_edges(source, target, num_nodes=NODES, directed=graph.directed, **weight)
    other = graph.replace(adjacency=adjacency)
    return lambda pair: model.predict_proba(other if pair is None else neighbor(other, pair))


def of_growth(model: Estimator, graph: Graph) -> Predict:
    """Return predictions of the graph with new nodes, or with one new edge less or more."""
    rng = np.random.default_rng(9)
    new, other = NODES + rng.integers(NEW, size=14), rng.integers(NODES + NEW, size=14)
    drawn_ends = [pair for pair in zip(new.tolist(), other.tolist(), strict=True) if pair[0] != pair[1]]
    assert isinstance(graph.x, Tensor)
    x = graph.x[[0, 12, 4, 4]]

    def predict(pair: Pair | None) -> Tensor:
        same = [] if pair is None else [pair] if graph.directed else [pair, pair[::-1]]
        edges = [e for e in drawn_ends if e not in same]
        if pair is not None and len(edges) == len(drawn_ends):
            edges.append(pair)
        source, target = np.array(edges).T
        weight = None if graph.adjacency.weights is None else [2.0] * len(edges)
        return model.predict_proba(graph.grow(x, None, source, target, weight=weight))

    return predict


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("method", "options"), CASES, ids=str)
def test_an_edge_of_another_graph_changes_hops_by_at_most_its_cost(
    method: str, options: dict[str, Any], unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, graph = fitted(method, unit, options)
    share, _ = largest_share(of_another(model, graph), model.protected_unit, OTHERS, monkeypatch)
    assert share > (0.2 if options.get("weights") in LOOSE else 0.99)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("method", "options"), CASES, ids=str)
def test_a_new_edge_changes_hops_by_at_most_its_cost(
    method: str, options: dict[str, Any], unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, graph = fitted(method, unit, options)
    share, _ = largest_share(of_growth(model, graph), model.protected_unit, GROWN, monkeypatch)
    assert share > (0.1 if options.get("weights") in LOOSE else 0.45)
