"""Spectral as a whole: what it is for, what it promises, and that true edges are out of its sight."""

from pathlib import Path
from typing import Any

import pytest
import torch

from estimators import blind
from estimators.spectral.lists import listed
from graphveil import load_model
from graphveil.data import Graph
from graphveil.errors import ConfigError, GraphError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.mlp import MLP
from graphveil.estimators.spectral import Spectral
from graphveil.ledger import ledger_of

EDGES: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 6.0, "seed": 0}


def test_lists_tell_what_neighbors_do_not() -> None:
    graph = listed()
    alone = MLP(unit="undirected-edge", seed=0).fit(graph).score(graph)
    assert Spectral(unit="none", seed=0).fit(graph).score(graph) > alone + 0.2
    private = Spectral(**EDGES).fit(graph).score(graph)
    assert private > alone + 0.15
    assert private > ClassCode(**EDGES, delta=1e-6).fit(graph).score(graph) + 0.1


def test_the_release_is_booked_once_and_stated() -> None:
    graph = listed()
    model = Spectral(**EDGES).fit(graph)
    assert (model.guarantee.epsilon, model.guarantee.delta, model.guarantee.valid) == (6.0, 0.0, True)
    assert len(ledger_of(graph.edge_set).entries) == 1
    assert list(model.aggregates_) == ["graph"]
    said = model.guarantee.formal_statement()
    assert "the released graph and everything computed from it" in said
    assert "drawn once by edge-rand, and predicts on it alone: no prediction reads a true edge" in said


def test_without_privacy_nothing_is_booked() -> None:
    graph = listed()
    model = Spectral(unit="none", seed=0).fit(graph)
    assert model.plan_ is None and not ledger_of(graph.edge_set).entries


def test_what_a_plan_costs_is_known_without_a_graph() -> None:
    plan = Spectral(**EDGES).plan(num_nodes=500, num_classes=3)
    assert plan is not None and plan.epsilon == 6.0


def sees_the_released_graph_alone() -> None:
    blind.sees_the_released_graph_alone(listed(), lambda: Spectral(**EDGES))


def test_a_model_sees_the_released_graph_alone() -> None:
    sees_the_released_graph_alone()


def test_a_saved_model_predicts_another_graph_alike(tmp_path: Path) -> None:
    model, other = Spectral(**EDGES, unsafe_noise_seed=1).fit(listed()), listed(seed=1)
    model.save(tmp_path / "release")
    back = load_model(tmp_path / "release")
    assert back.guarantee == model.guarantee
    assert torch.equal(back.predict_proba(), model.predict_proba())
    assert torch.equal(back.aggregates_["graph"], model.aggregates_["graph"])
    privacy_cost = back.privacy_cost(other)
    assert privacy_cost is not None and privacy_cost.epsilon == 6.0
    proba = back.predict_proba(other, allow_spend=True)
    assert torch.allclose(proba.sum(dim=1), torch.ones(other.num_nodes), atol=1e-5)
    right = (proba.argmax(dim=1) == other.y)[other.mask("test")].float().mean()
    assert right > MLP(unit="undirected-edge", seed=0).fit(other).score(other) + 0.1


def test_a_graph_without_voters_is_refused_before_it_is_asked() -> None:
    model, other = Spectral(**EDGES).fit(listed()), listed(seed=1)
    nobody = Graph.from_edges(other.x, other.y, *other.adjacency.edge_index(), directed=False, num_classes=3)
    with pytest.raises(GraphError, match="predicts a node from labeled nodes of the same graph"):
        model.predict_proba(nobody)
    assert not ledger_of(nobody.edge_set).entries


def test_an_interrupted_fit_goes_on_with_the_graph_that_was_drawn(tmp_path: Path) -> None:
    graph = listed()
    first = Spectral(**EDGES).fit(graph, workspace=tmp_path)
    again = Spectral(**EDGES).fit(graph, workspace=tmp_path)
    assert torch.equal(first.predict_proba(), again.predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"unit": "directed-edge"}, UnitError, "spectral has no bound under unit 'directed-edge'"),
        ({"unit": "node-record"}, NotImplementedGuaranteeError, "does not yet protect 'node-record'"),
        ({"unit": "local-attributes"}, UnitError, "use 'lpgnn'"),
        ({"mode": "paper"}, ConfigError, "has no paper to reproduce"),
        ({"rank": 0}, ConfigError, "rank=0 must be a whole number of at least 1"),
        ({"rank": 10_000}, ConfigError, "rank=10000"),
        ({"epsilon": None}, ConfigError, "epsilon"),
    ],
)
def test_what_does_not_go_together_is_refused(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Spectral(**EDGES | changes)


def test_graphs_that_cannot_be_read_are_refused_unbooked() -> None:
    graph = listed()
    with pytest.raises(ConfigError, match="max_edges=10"):
        Spectral(**EDGES, max_edges=10).fit(graph)
    edges = graph.adjacency.edge_index()
    directed = Graph.from_edges(graph.x, graph.y, *edges, directed=True, num_classes=3)
    directed = directed.with_split(graph.train_mask, graph.val_mask, graph.test_mask)
    with pytest.raises(GraphError, match="this graph's edges are directed"):
        Spectral(unit="none").fit(directed)
    assert not ledger_of(graph.edge_set).entries and not ledger_of(directed.edge_set).entries
