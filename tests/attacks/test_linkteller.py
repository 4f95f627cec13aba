"""LinkTeller: influences by hand and against derivatives, sampling of pairs, and models of each kind."""

from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy import sparse

import graphveil as gv
from graphveil.attacks import (
    LinkSettings,
    Pairs,
    SecretEdges,
    attack_links,
    attack_predict,
    draw_pairs,
    exact_influences,
    influences,
    link_scores,
    network_predict,
    serve_model,
)
from graphveil.attacks.influence import Nudge, as_float64
from graphveil.core.edges.adjacency import Adjacency
from graphveil.errors import ConfigError, NotImplementedGuaranteeError

TINY = gv.load_dataset("synthetic/tiny")
NODES = np.arange(25)
PATH = Adjacency.from_edges([0, 1, 2, 3], [1, 2, 3, 4], num_nodes=5, directed=False)


def fitted(cls: Any = gv.GCN, graph: gv.Graph = TINY, **keywords: Any) -> gv.Estimator:
    model: gv.Estimator = cls(**{"unit": "none", "seed": 0, "epochs": 15, **keywords}).fit(graph)
    return model


MODEL = fitted()
NETWORK = MODEL.fitted.trained.network  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", [gv.GCN, gv.SAGE])
@pytest.mark.parametrize("packed", [False, True])
def test_finite_differences_are_the_derivative(cls: Any, packed: bool) -> None:
    network = fitted(cls).fitted.trained.network  # type: ignore[attr-defined]
    x = as_float64(TINY.x)
    given = sparse.csr_array(x) if packed else x
    found = influences(network_predict(network, TINY.adjacency), given, NODES, step=1e-5, nudge="scale")
    exact = exact_influences(network, given, TINY.adjacency, NODES)
    assert exact.max() > 0.05
    assert np.abs(found - exact).max() < 2e-5
    assert np.array_equal(exact == 0, found == 0)
    joined = SecretEdges.from_adjacency(TINY.adjacency).matrix.toarray()[NODES].astype(int)
    assert (found[(joined @ joined.T + joined[:, NODES]) == 0] == 0).all()  # beyond the two layers


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("cls", [gv.GCN, gv.SAGE, gv.GAT, gv.GAP])
def test_served_predictions_are_those_of_the_model(cls: Any, packed: bool) -> None:
    money = torch.from_numpy(
        np.random.default_rng(0).lognormal(12, 1, (TINY.num_nodes, 1)).astype(np.float32)
    )
    x = torch.cat([TINY.x, money], dim=1)
    graph = TINY.replace(x=sparse.csr_array(x.numpy()) if packed else x)
    model = fitted(cls, graph)
    answers = serve_model(model, graph)
    found = answers.predict(as_float64(graph.x))
    assert np.allclose(found, model.predict_proba(graph).numpy(), atol=1e-4)
    assert np.allclose(found, answers.proba, atol=1e-4)


def test_zero_rows_have_influence_only_by_adding() -> None:
    x = as_float64(TINY.x).copy()
    x[3] = 0
    empty = ~x[NODES].any(axis=1)
    predict = network_predict(NETWORK, TINY.adjacency)
    for given in (x, sparse.csr_array(x)):
        scaled, added, either = (influences(predict, given, NODES, nudge=nudge) for nudge in get_args(Nudge))
        assert not scaled[empty].any() and added[3].any()
        assert np.array_equal(either[empty], added[empty])
        assert np.array_equal(either[~empty], scaled[~empty])


@pytest.mark.parametrize("joined", [True, False])
def test_scores_of_a_pair_by_direction(joined: bool) -> None:
    pairs = Pairs(np.array([4, 7]), np.array([0]), np.array([1]), np.array([joined]))
    found = np.array([[9.0, 1.0], [3.0, 9.0]])  # nudging 4 moves 7 by 1, and 7 moves 4 by 3
    by = {way: link_scores(found, pairs, way)[0] for way in ("max", "later", "earlier", "mean")}
    assert by == {"max": 3.0, "later": 3.0, "earlier": 1.0, "mean": 2.0}
    with pytest.raises(ConfigError, match="does not match 2 nodes"):
        link_scores(found[:1], pairs)
    with pytest.raises(ConfigError, match="one row of scores per node"):
        influences(lambda x: x[:3], np.eye(5), np.arange(2))


def test_samplings_draw_nodes_by_degree_and_pairs_by_kind() -> None:
    edges = SecretEdges.from_adjacency(TINY.adjacency)
    low, high = (draw_pairs(edges, count=40, sampling=how) for how in ("lo", "hi"))
    assert edges.degrees[low.nodes].max() <= 5 < 10 <= edges.degrees[high.nodes].min()
    full, even = (draw_pairs(edges, count=60, sampling=how) for how in ("unbalanced", "balanced"))
    assert len(full.one) == 60 * 59 // 2
    assert even.joined.mean() == 0.5
    true = {frozenset(pair) for pair in TINY.adjacency.edge_index().T.tolist()}
    assert [
        frozenset(pair) in true for pair in zip(*map(list, full.ends), strict=True)
    ] == full.joined.tolist()
    with pytest.raises(ConfigError, match="Sample more nodes"):
        draw_pairs(SecretEdges.from_adjacency(PATH), count=2, seed=1)
    with pytest.raises(ConfigError, match="Change the degree cutoff"):
        draw_pairs(SecretEdges.from_adjacency(PATH), sampling="hi")


def test_directed_edge_joins_its_ends_both_ways() -> None:
    edges = SecretEdges.from_adjacency(Adjacency.from_edges([2], [0], num_nodes=3, directed=True))
    assert edges.joined(np.array([0, 2, 0]), np.array([2, 0, 1])).tolist() == [True, True, False]


def test_network_over_exact_edges_reveals_them() -> None:
    report = attack_links(MODEL, TINY, LinkSettings(nodes=80))
    assert report.edge_source == "exact edges"
    assert report["LinkTeller"].roc.auc > 0.85
    assert report["LinkTeller"].roc.auc > report["feature correlation (public)"].roc.auc + 0.2
    assert not report.theoretical_bound["valid"]
    predict = serve_model(MODEL, TINY).predict  # any other function is attacked alike
    alone = attack_predict(predict, as_float64(TINY.x), report.pairs, report.settings)
    assert np.array_equal(alone.scores, report["LinkTeller"].scores)
    assert alone.roc.auc == report["LinkTeller"].roc.auc


def test_predictions_from_released_rows_do_not_change() -> None:
    private = gv.GAP(unit="undirected-edge", epsilon=1.0, seed=0, epochs=5).fit(TINY)
    report = attack_links(private, TINY, LinkSettings(nodes=60))
    assert report["LinkTeller"].roc.auc == 0.5
    assert "zero by construction" in report["LinkTeller"].note
    assert report.theoretical_bound["valid"] and report.theoretical_bound["auc"] < 0.75


def test_network_over_a_released_graph_does_not_read_true_edges() -> None:
    noisy = fitted(unit="undirected-edge", epsilon=3.0, perturb="edge-rand")
    answers = serve_model(noisy, TINY)
    assert answers.edge_source == "a released graph"
    without = TINY.replace(adjacency=Adjacency.from_edges([], [], num_nodes=300, directed=False))
    x = as_float64(TINY.x)
    assert np.array_equal(
        answers.predict(x), serve_model(noisy, without).predict(x)
    )  # true edges are not read
    assert np.allclose(answers.predict(x), answers.proba, atol=1e-4)


def test_rejects_networks_without_an_affine_first_layer() -> None:
    class Squared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = NETWORK

        def forward(self, x: Any, adjacency: Adjacency) -> Any:
            return self.inner(x * x + 1, adjacency)

    with pytest.raises(NotImplementedGuaranteeError, match="black box"):
        exact_influences(Squared(), as_float64(TINY.x), TINY.adjacency, NODES[:2])
