"""Counts of neighbors by feature cluster, where features do not predict the class of their own node."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.queries.edge_counts import NeighborCountQuery
from graphveil.core.unit import UndirectedEdge
from graphveil.data import RECIPES, Graph
from graphveil.errors import ArtifactError
from graphveil.estimators.classcode.edge import FeatureClusters, TrainedEdgeLevelClassCode
from tests.estimators.replay import Pair, largest_share
from tests.estimators.test_replay_weights import neighbor

NODES, KINDS = 1200, 3
BUDGET: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-5, "seed": 0}


def graph_of(seed: int = 0, *, informative: bool = False) -> Graph:
    """Return a graph in which nodes of class 1 choose neighbors of kind 0, and features are the kinds."""
    rng = np.random.default_rng(seed)
    labels, kinds = rng.integers(2, size=NODES), rng.integers(KINDS, size=NODES)
    if informative:
        kinds = np.where(rng.random(NODES) < 0.7, labels, kinds)
    source = np.repeat(np.arange(NODES), 8)
    wanted = np.where(
        (labels[source] == 1) & (rng.random(len(source)) < 0.8), 0, rng.integers(KINDS, size=len(source))
    )
    members = [np.flatnonzero(kinds == kind) for kind in range(KINDS)]
    target = np.array([rng.choice(members[kind]) for kind in wanted])
    x = torch.eye(KINDS)[torch.from_numpy(kinds)]
    graph = Graph.from_edges(x, labels, source, target, directed=False)
    return RECIPES["gap"].split(graph, seed=0)


def trained(model: gv.ClassCode) -> TrainedEdgeLevelClassCode:
    fit = model.fitted.trained
    assert isinstance(fit, TrainedEdgeLevelClassCode)
    return fit


@pytest.fixture(scope="module")
def model() -> gv.ClassCode:
    """A model whose features are independent of the class of their node."""
    return gv.ClassCode(**BUDGET).fit(graph_of())


def test_neighbors_are_counted_by_cluster_where_features_do_not_predict_the_class(
    model: gv.ClassCode,
) -> None:
    assert trained(model).clusters is not None
    assert trained(model).affinity.neighbors.shape == (2, KINDS)
    assert model.evaluate(graph_of(), "test")["roc_auc"] > 0.75
    assert 1.999 < model.guarantee.epsilon <= 2.0
    assert trained(gv.ClassCode(**BUDGET).fit(graph_of(informative=True))).clusters is None


def test_the_cost_does_not_depend_on_the_choice(model: gv.ClassCode) -> None:
    other = gv.ClassCode(**BUDGET).fit(graph_of(informative=True))
    assert model.fitted.plan == other.fitted.plan
    (query,) = model.fitted.plan.queries  # type: ignore[union-attr]  # edges are protected
    assert isinstance(query, NeighborCountQuery) and query.epsilon == 2.0


@pytest.mark.usefixtures("quick_classcode")
def test_an_edge_changes_one_count_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of()

    def predict(pair: Pair | None) -> torch.Tensor:
        return gv.ClassCode(**BUDGET).fit(graph if pair is None else neighbor(graph, pair)).predict_proba()

    share, replay = largest_share(predict, UndirectedEdge(), [(0, 1), (5, 700)], monkeypatch)
    assert share == pytest.approx(1.0)
    ((categories,),) = replay.queried
    assert len(categories.unique()) == KINDS


def test_a_saved_model_counts_the_same_clusters_of_another_graph(model: gv.ClassCode, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded, other = gv.load_model(tmp_path / "model"), graph_of(seed=1)
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    bare = other.replace(y=torch.full_like(other.y, -1), train_mask=None, val_mask=None, test_mask=None)
    proba = loaded.predict_proba(bare, allow_spend=True)
    assert float((proba.argmax(dim=1) == other.y).float().mean()) > 0.65
    fit = model.fitted
    state = fit.trained.state()
    for name, value in (("clusters/weights", torch.ones(3, 2)), ("affinity", torch.ones(2, 2))):
        with pytest.raises(ArtifactError, match="from the original run"):
            fit.method.restore({**state, name: value}, fit.sizes, {})


def test_clusters_are_the_distinct_rows_if_these_are_few() -> None:
    x = torch.eye(5)[torch.arange(40) % 5] * 7
    clusters = FeatureClusters.fit(x, 8, torch.Generator().manual_seed(0))
    assert len(clusters.offsets) == 5
    assert (
        len({tuple(row) for row in torch.stack([clusters.assign(x), torch.arange(40) % 5]).T.tolist()}) == 5
    )
