"""ClassCode with default settings: decisions depend on answers and public data only.

By default a model is trained again on its own decisions, unless labels are many. Both ways are replayed.
Toggled pairs isolate nodes and connect isolated ones, so that reading exact degrees changes decisions.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.data import Graph
from graphveil.estimators import classcode
from graphveil.estimators.classcode import edge
from tests.estimators.conftest import with_little_training
from tests.estimators.replay import Pair, largest_share
from tests.estimators.test_replay_weights import NODES, drawn, neighbor

Patch = pytest.MonkeyPatch
Check = Callable[[], None]

UNITS = ("undirected-edge", "directed-edge")
PAIRS: tuple[Pair, ...] = ((0, 1), (14, 15), (2, 16), (13, 5), (6, 7))
ALONE = [0, 1, 2, 5, 14, 15, 16]  # nodes with one edge, to each other, and one without any
ONLY = ((0, 1), (14, 15), (2, 16))
SWITCH = {
    "self-training": NODES,
    "many labels": 1,
    "few labels": NODES,
    "instead of summing codes": NODES,
    "both ends": NODES,  # as in graphs of two classes from epsilon 4
}


def sparse(unit: str, size: str) -> Graph:
    """Return a graph where one toggled edge isolates two nodes, or ends a node's isolation."""
    graph = drawn(unit, weighted=False)
    others = [node for node in range(NODES) if node not in ALONE]
    alike = [(u, v) for u in others for v in others if u != v and graph.y[u] == graph.y[v]]
    ends = list(zip(*alike, *ONLY, strict=True))
    graph = graph.replace(adjacency=Adjacency.from_edges(*ends, num_nodes=NODES, directed=graph.directed))
    if size == "both ends":
        return graph.replace(y=graph.y.clamp_max(1), num_classes=2)
    if size != "few labels":
        return graph
    part = torch.arange(NODES) % 5
    return graph.with_split(part == 0, part == 1, part >= 2)


def with_uninformative_features(graph: Graph) -> Graph:
    """Return the graph with uninformative features, so that aggregates decide."""
    return graph.replace(x=torch.rand(graph.num_nodes, 4, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("size", SWITCH)
def test_a_default_fit_depends_on_answers_and_public_data_only(size: str, unit: str) -> None:
    """Fit with every default, and again for each toggled pair with the first fit's answers."""
    with pytest.MonkeyPatch.context() as patch:
        with_little_training(patch)
        patch.setattr(edge, "_MAX_SELF_TRAINING_NODES", SWITCH[size])
        graph = with_uninformative_features(sparse(unit, size))
        noise = "gaussian" if size == "instead of summing codes" else "auto"
        epsilon = {UNITS[0]: 4.0, UNITS[1]: 2.0}[unit] if size == "both ends" else 1.0
        model = classcode.ClassCode(unit=unit, epsilon=epsilon, delta=1e-5, seed=5, noise=noise)
        gates = []

        def predict(pair: Pair | None) -> torch.Tensor:
            predicted = model.fit(graph if pair is None else neighbor(graph, pair)).predict_proba()
            gates.append(model.gate_[2])
            return predicted

        share, before = largest_share(predict, model.protected_unit, PAIRS, patch)
        assert gates[0] < 1, "features decide alone, and rows could not be missed"
        assert len(before.sums) == {"few labels": 3, "instead of summing codes": 2}.get(size, 1)
        assert share > 0.99


@pytest.mark.parametrize("size", SWITCH)
def test_self_training_depends_on_the_number_of_labels(size: str, monkeypatch: Patch) -> None:
    trained, shipped = list[str](), edge.distilled_posteriors

    def noted(*args: Any) -> Any:
        trained.append(args[-1])
        return shipped(*args)

    monkeypatch.setattr(edge, "distilled_posteriors", noted)
    with_little_training(monkeypatch)
    monkeypatch.setattr(edge, "_MAX_SELF_TRAINING_NODES", SWITCH[size])
    classcode.ClassCode(unit=UNITS[0], epsilon=16.0, delta=1e-5, seed=5).fit(sparse(UNITS[0], size))
    rounds = {"many labels": 0, "few labels": 2}.get(size, 1)
    assert len(trained) == rounds
