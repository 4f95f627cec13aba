"""Networks on released graphs: one charge, and no true edge is read."""

from pathlib import Path

import pytest
import torch

from estimators.released_graph import check_depends_on_released_graph_only
from graphveil import METHODS, load_model
from graphveil.core.ledger import ledger_of
from graphveil.core.unit import EdgeSubset
from graphveil.data import Graph, synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.base import Estimator
from graphveil.perturb import MECHANISMS, sample_public_edges
from graphveil.perturb.mechanism import domain_of

QUICK = {"seed": 0, "epochs": 3, "unit": "undirected-edge", "epsilon": 3.0}


def tiny(seed: int = 0) -> Graph:
    return RECIPES["gap"].split(synthetic("tiny"), seed=seed)


def made(method: str = "gcn", **changes: object) -> Estimator:
    return METHODS[method](**(QUICK | {"perturb": "edge-rand"} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", list(MECHANISMS))
def test_every_mechanism_is_charged_and_stated(mechanism: str) -> None:
    graph = tiny()
    model = made(perturb=mechanism).fit(graph)
    assert len(ledger_of(graph.edge_set).entries) == 1
    assert model.guarantee.epsilon == pytest.approx(3.0) and model.guarantee.valid
    statement = model.guarantee.formal_statement()
    assert "the released graph and everything computed from it" in statement
    assert (
        f"drawn once by {mechanism}, and predicts on it alone: no prediction reads a true edge" in statement
    )


def with_public(graph: Graph) -> Graph:
    """Return the graph with half of its edges public, and a tenth of its nodes without private ones."""
    listed = torch.arange(graph.num_nodes) % 10 > 0
    return graph.with_public(sample_public_edges(graph, 0.5, seed=0), listed)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "edge-rr(structure=lazy_audited, delta=1e-6)"])
def test_edge_subset_protects_private_edges(mechanism: str) -> None:
    graph = with_public(tiny())
    model = made(unit="edge-subset", perturb=mechanism).fit(graph)
    statement = model.guarantee.formal_statement()
    assert model.guarantee.epsilon == pytest.approx(3.0) and model.guarantee.valid
    assert statement.startswith("Public: the public edges and the list of nodes")
    assert "predicts on it alone: no prediction reads a true edge" in statement
    assert model.plan_ is not None and model.plan_.delta == (
        1e-6 if "1e-6" in mechanism else model.guarantee.delta
    )


def test_released_edges_are_private_ones_between_listed_nodes() -> None:
    graph = with_public(tiny())
    model = made(unit="edge-subset", perturb="edge-rand(  )", epsilon=0.1).fit(graph)
    assert graph.public is not None
    domain = domain_of(graph, EdgeSubset())
    slots = model.aggregates_["graph"].numpy()
    assert domain.protects(slots).all()  # public edges are kept, and not drawn
    source, target = domain.ends(slots)
    assert graph.public.private_nodes[source].all() and graph.public.private_nodes[target].all()


@pytest.mark.parametrize("method", ["sage", "gcn", "gat"])
def test_every_network_trains_on_a_released_graph(method: str) -> None:
    graph = tiny()
    model = made(method, perturb="arr").fit(graph)
    assert model.predict_proba().shape == (graph.num_nodes, graph.num_classes)
    assert list(model.aggregates_) == ["graph"]


def test_predictions_depend_on_the_released_graph_only() -> None:
    check_depends_on_released_graph_only(tiny(), made)


def test_a_saved_model_contains_guarantee_and_graph(tmp_path: Path) -> None:
    graph = tiny()
    model = made().fit(graph)
    model.save(tmp_path / "release")
    back = load_model(tmp_path / "release")
    assert back.guarantee == model.guarantee
    assert torch.equal(back.predict_proba(), model.predict_proba())
    assert torch.equal(back.aggregates_["graph"], model.aggregates_["graph"])


def test_another_graph_is_charged_for_its_release() -> None:
    model, other = made().fit(tiny()), tiny(seed=1)
    other = other.replace(adjacency=tiny().adjacency.without_crossing(other.y == 0))
    privacy_cost = model.privacy_cost(other)
    assert privacy_cost is not None and privacy_cost.epsilon == 3.0
    assert model.predict_proba(other).shape[0] == other.num_nodes
    assert model.guarantee_with_predictions.epsilon == pytest.approx(6.0)


def test_a_resumed_fit_uses_the_released_graph(tmp_path: Path) -> None:
    graph = tiny()
    first = made().fit(graph, workspace=tmp_path)
    again = made().fit(graph, workspace=tmp_path)
    assert torch.equal(first.predict_proba(), again.predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"perturb": "edge-rnd"}, ConfigError, "did you mean 'edge-rand'"),
        ({"perturb": "arr(densty=1)"}, ConfigError, "arr has no setting 'densty'; it has density_fraction"),
        ({"perturb": "arr(0.1)"}, ConfigError, "must be name=value pairs"),
        ({"perturb": "arr(density_fraction=2)"}, ConfigError, "must lie between 0 and 1"),
        ({"unit": "none"}, UnitError, "Use unit 'undirected-edge'"),
        ({"unit": "node-record"}, UnitError, "Use unit 'undirected-edge'"),
        ({"perturb": None}, NotImplementedGuaranteeError, "or train on a perturbed graph"),
        ({"perturb": None, "unit": "none", "max_edges": 5}, ConfigError, "Name a mechanism with"),
    ],
)
def test_rejects_invalid_configurations(
    changes: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        made(**changes)


def test_rejects_too_large_graphs_before_a_charge() -> None:
    graph = tiny()
    with pytest.raises(ConfigError, match="max_edges=10"):
        made(max_edges=10).fit(graph)
    assert not ledger_of(graph.edge_set).entries
