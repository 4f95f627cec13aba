"""The fit as a value: later parameters do not affect it, and the fitted graph is recognized."""

import json
import sys
import threading
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from estimators.conftest import MakeGraph
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import ledger_of
from graphveil.data import Graph
from graphveil.errors import ArtifactError, ConfigError, GraphveilError
from graphveil.estimators import METHODS
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.gap import GAP
from graphveil.estimators.saved import load_model

pytestmark = pytest.mark.usefixtures("quick_classcode")

EDGES: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-5, "seed": 0, "epochs": 3}
NODE_RECORD: dict[str, Any] = {**EDGES, "unit": "node-record", "out_degree_bound": 4}
LATER = pytest.mark.parametrize(
    "later",
    [
        {"unit": "none", "epsilon": None},
        {"epsilon": 0.01},
        {"hops": 1},
        {"unsafe_noise_seed": 3},
    ],
    ids=lambda later: next(iter(later)),
)


@LATER
def test_later_parameters_do_not_affect_predictions_or_costs(
    graph: Graph, make_graph: MakeGraph, later: dict[str, Any]
) -> None:
    model, other = GAP(**EDGES).fit(graph), make_graph(seed=1)
    privacy_cost, guarantee = model.privacy_cost(other), model.guarantee
    model.set_params(**later)
    assert (model.privacy_cost(other), model.guarantee) == (privacy_cost, guarantee)
    model.predict_proba(other)
    (entry,) = ledger_of(other.edge_set).entries
    assert privacy_cost is not None
    assert entry.event == privacy_cost.event
    assert model.guarantee_with_predictions.epsilon > 1.4


@LATER
def test_later_parameters_are_not_saved(graph: Graph, tmp_path: Path, later: dict[str, Any]) -> None:
    model = GAP(**EDGES).fit(graph)
    fitted = model.get_params()
    model.set_params(**later)
    model.save(tmp_path / "model")
    stored = json.loads((tmp_path / "model" / "model.json").read_text())["parameters"]
    assert stored == {name: value for name, value in fitted.items() if name != "backend"}
    assert load_model(tmp_path / "model").predict().equal(model.predict())


def test_assignments_are_checked() -> None:
    model = GAP(**EDGES)
    with pytest.raises(ConfigError, match="hops=0"):
        model.hops = 0
    with pytest.raises(ConfigError, match="needs a privacy budget"):
        model.epsilon = None
    model.hops = 3
    assert (model.hops, model.epsilon) == (3, 1.0)


def test_rejects_assignments_of_fitted_attributes(graph: Graph) -> None:
    model = GAP(**EDGES).fit(graph)
    with pytest.raises(ConfigError, match="attributes are read-only"):
        model.guarantee_ = None
    assert model.guarantee_ is not None


@pytest.mark.parametrize("method", ["classcode", "gap", "mlp"])
def test_a_plan_follows_from_public_sizes_alone(make_graph: MakeGraph, method: str) -> None:
    unused = {"classcode": "epochs", "mlp": "out_degree_bound"}.get(method)
    model = METHODS[method](**{name: value for name, value in NODE_RECORD.items() if name != unused})
    before = model.plan(num_nodes=150, num_classes=3)
    model.preview(make_graph())
    assert model.plan(num_nodes=150, num_classes=3) == before
    graph = make_graph()
    known = {"num_features": graph.num_features, "num_training": int(graph.train_mask.sum())}
    assert model.plan(num_nodes=150, num_classes=3, **known) == model.preview(graph).plan


def test_the_plan_that_is_shown_is_executed(graph: Graph) -> None:
    model = GAP(**EDGES)
    prepared = model.prepare(graph)
    assert ledger_of(graph.edge_set).entries == ()
    assert model.fit(prepared).plan_ is prepared.plan
    assert model.guarantee == prepared.guarantee
    direct = GAP(**EDGES).fit(graph)
    assert direct.plan_ == model.plan_ and direct.guarantee == model.guarantee


def test_rejects_a_prepared_fit_of_another_configuration(graph: Graph) -> None:
    model = GAP(**EDGES)
    prepared = model.prepare(graph)
    model.hops = 3
    with pytest.raises(ConfigError, match=r"prepare\(graph\) again"):
        model.fit(prepared)
    assert ledger_of(graph.edge_set).entries == ()


def test_configurations_are_frozen(graph: Graph) -> None:
    model = GAP(**EDGES)
    config = model.config
    model.fit(graph)
    assert model.fitted.method is model.config is config
    assert copy(GAP(**EDGES)).config.privacy_config == config.privacy_config
    model.epsilon = 2.0
    assert model.config.privacy_config.epsilon == 2.0 and config.privacy_config.epsilon == EDGES["epsilon"]


@pytest.mark.parametrize(
    "fit",
    [
        lambda: GAP(**EDGES, hops=2, encoder_epochs=3),
        lambda: ClassCode(unit="undirected-edge", epsilon=4.0, delta=1e-5, seed=0, self_training=False),
    ],
    ids=["gap", "classcode"],
)
def test_a_finished_workspace_belongs_to_its_graph(
    make_graph: MakeGraph, tmp_path: Path, fit: Callable[[], Any]
) -> None:
    graph = make_graph()
    first = fit().fit(graph, workspace=tmp_path)
    assert torch.equal(fit().fit(graph, workspace=tmp_path).predict_proba(), first.predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1
    source, target = graph.adjacency.edge_index()
    ends = torch.cat([source, torch.tensor([0])]), torch.cat([target, torch.tensor([149])])
    other = replace(graph, adjacency=Adjacency.from_edges(*ends, num_nodes=150, directed=False))
    with pytest.raises(GraphveilError, match="finished release of other data"):
        fit().fit(other, workspace=tmp_path)
    assert not ledger_of(other.edge_set).entries


class TestOwnGraph:
    """The fitted graph is answered from what is stored, however it comes back."""

    def test_recognizes_the_fitted_graph(self, make_graph: MakeGraph) -> None:
        model, again = GAP(**EDGES).fit(make_graph()), make_graph()
        assert model.privacy_cost(again) is None
        assert model.predict_proba(again).equal(model.predict_proba())
        assert ledger_of(again.edge_set).entries == ()
        assert model.guarantee_with_predictions.epsilon == model.guarantee.epsilon

    def test_a_graph_with_one_edge_less_is_another_graph(self, make_graph: MakeGraph) -> None:
        graph = make_graph()
        source, target = graph.adjacency.edge_index()
        first = (source == source[0]) & (target == target[0]) | (source == target[0]) & (target == source[0])
        fewer = Graph.from_edges(
            graph.x, graph.y, source[~first], target[~first], directed=False, num_classes=3
        )
        assert GAP(**EDGES).fit(graph).privacy_cost(fewer) is not None

    def test_a_release_alone_does_not_recognize_the_fitted_graph(
        self, graph: Graph, make_graph: MakeGraph, tmp_path: Path
    ) -> None:
        GAP(**EDGES).fit(graph).save(tmp_path / "model")
        loaded, own = load_model(tmp_path / "model"), make_graph()
        with pytest.raises(ConfigError, match="pass allow_spend=True"):
            loaded.score(own)
        assert ledger_of(own.edge_set).entries == ()
        loaded.predict(own, allow_spend=True)
        assert len(ledger_of(own.edge_set).entries) == 1
        apart = make_graph(seed=1)
        loaded.predict(apart, assume_disjoint_edges=True)
        assert len(ledger_of(apart.edge_set).entries) == 1

    def test_predictions_withheld_from_a_release_raise(self, make_graph: MakeGraph, tmp_path: Path) -> None:
        model = GAP(**NODE_RECORD).fit(make_graph())
        model.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        loaded._set_fit(loaded.fitted, own=model.graph_fingerprint)
        with pytest.raises(ArtifactError, match="per_node"):
            loaded.predict(make_graph())

    def test_a_saved_model_contains_no_fingerprint(self, graph: Graph, tmp_path: Path) -> None:
        model = GAP(**NODE_RECORD).fit(graph)
        model.save(tmp_path / "model", per_node=tmp_path / "rows")
        assert model.graph_fingerprint is not None
        secrets = [model.graph_fingerprint.key, model.graph_fingerprint.tag]
        for path in [*(tmp_path / "model").iterdir(), *(tmp_path / "rows").iterdir()]:
            content = path.read_bytes()
            assert not any(secret in content or secret.hex().encode() in content for secret in secrets)
        assert not any(secret.hex() in repr(model.graph_fingerprint) for secret in secrets)


class TestThreads:
    """No release of a prediction is lost from the model's ledger, and equal questions are one."""

    def together(self, calls: list[Callable[[], object]]) -> None:
        """Run all at once, switching between threads as often as possible."""
        barrier, interval = threading.Barrier(len(calls)), sys.getswitchinterval()

        def run(call: Callable[[], object]) -> None:
            barrier.wait()
            call()

        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)

    def test_concurrent_predictions_are_all_charged(self, graph: Graph, make_graph: MakeGraph) -> None:
        model = GAP(**EDGES).fit(graph)
        self.together([lambda seed=seed: model.predict(make_graph(seed=seed)) for seed in range(1, 7)])
        assert len(ledger_of(graph.edge_set).entries) == 7
        together = model.guarantee.repeated(7).epsilon
        assert model.guarantee_with_predictions.epsilon == pytest.approx(together, rel=1e-6)

    def test_concurrent_equal_predictions_are_charged_once(self, graph: Graph, make_graph: MakeGraph) -> None:
        model, other, found = GAP(**EDGES).fit(graph), make_graph(seed=1), list[torch.Tensor]()
        self.together([lambda: found.append(model.predict_proba(other))] * 6)
        assert len(ledger_of(other.edge_set).entries) == 1
        assert len(found) == 6
        assert all(one.equal(found[0]) for one in found)
