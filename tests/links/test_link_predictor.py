"""``LinkPredictor``: scores, held-out pairs, cost, files, and errors before a charge."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from sklearn.metrics import roc_auc_score

import graphveil as gv
from graphveil.audit import audit_plan, neighbor_test_plan
from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import NeighborCountQuery
from graphveil.core.queries.pair_sums import EdgeProductData, EdgeProductQuery, PairSumQuery
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.data.conversion import load_pyg
from graphveil.errors import ArtifactError, BudgetError, ConfigError, GraphError, UnitError
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.links.link_predictor import LinkPredictor
from graphveil.privacy import Guarantee

Data, RandomLinkSplit = load_pyg("data").Data, load_pyg("transforms").RandomLinkSplit
EDGE = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-6, "seed": 1, "unsafe_noise_seed": 2}


def blocks(nodes: int = 400, *, directed: bool = False, features: bool = True) -> Graph:
    """Return a graph of four groups, which the features show, with many edges inside each."""
    rng = np.random.default_rng(0)
    group = np.arange(nodes) % 4
    pairs = rng.integers(nodes, size=(2, 60 * nodes))
    popular = rng.random(nodes) ** 2
    kept = (rng.random(pairs.shape[1]) < np.where(group[pairs[0]] == group[pairs[1]], 1.0, 0.05)) & (
        rng.random(pairs.shape[1]) < popular[pairs[0]] * popular[pairs[1]] * 3
    )
    pairs = pairs[:, kept & (pairs[0] != pairs[1])]
    x = (rng.random((nodes, 24)) < np.where(group[:, None] == np.arange(24) % 4, 0.6, 0.05)).astype(
        np.float32
    )
    given = torch.from_numpy(x) if features else torch.ones(nodes, 1)
    return Graph.from_edges(given, torch.from_numpy(group), *pairs, directed=directed)


GRAPH = blocks()


def sample(model: LinkPredictor, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return held-out edges and as many random pairs, with labels."""
    edges = graph.adjacency.edge_index().numpy().astype(np.int64)
    if not graph.directed:
        edges = edges[:, edges[0] < edges[1]]
    held = edges[:, model.is_held_out(edges)] if model.held_out else edges
    rng = np.random.default_rng(4)
    others = rng.integers(graph.num_nodes, size=held.shape)
    others = others[:, others[0] != others[1]]
    labels = np.r_[np.ones(held.shape[1]), np.zeros(others.shape[1])]
    return np.concatenate([held, others], axis=1), labels


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("features", [True, False], ids=["features", "labels"])
def test_held_out_edges_have_high_scores(directed: bool, features: bool) -> None:
    graph = blocks(directed=directed, features=features)
    unit = "directed-edge" if directed else "undirected-edge"
    model = LinkPredictor(**EDGE | {"unit": unit, "epsilon": 8.0}).fit(graph)
    pairs, labels = sample(model, graph)
    assert model.score(pairs, labels) > 0.8
    found = model.private_metrics_
    assert found is not None
    assert found["roc_auc"].low - 0.05 < model.score(pairs, labels) < found["roc_auc"].high + 0.05
    assert model.score(pairs, labels) == pytest.approx(roc_auc_score(labels, model.decision_function(pairs)))


def test_a_fit_costs_its_budget_and_is_charged_once(tmp_path: Path) -> None:
    graph = blocks()
    model = LinkPredictor(**EDGE | {"unsafe_noise_seed": None})
    preview = model.preview(graph).guarantee
    assert not gv.ledger_of(graph.edge_set).entries
    model.fit(graph, workspace=tmp_path)
    assert preview.epsilon == model.guarantee.epsilon
    assert 1.99 < model.guarantee.epsilon <= 2.0
    assert model.guarantee.valid
    assert len(gv.ledger_of(graph.edge_set).entries) == 1
    again = LinkPredictor(**EDGE | {"unsafe_noise_seed": None}).fit(graph, workspace=tmp_path)  # resumed
    assert len(gv.ledger_of(graph.edge_set).entries) == 1
    pairs = np.arange(20).reshape(2, 10)
    assert np.array_equal(model.predict_proba(pairs), again.predict_proba(pairs))


def test_a_ledger_that_is_too_small_stops_a_fit() -> None:
    graph = blocks()
    gv.attach_ledger(graph, gv.MemoryLedger(epsilon=1.0, delta=1e-6))
    with pytest.raises(BudgetError):
        LinkPredictor(**EDGE).fit(graph)


def test_noise_of_a_seed_invalidates_the_guarantee_and_repeats() -> None:
    first, second = (LinkPredictor(**EDGE).fit(GRAPH) for _ in range(2))
    assert not first.guarantee.valid
    pairs = np.arange(30).reshape(2, 15)
    assert np.array_equal(first.decision_function(pairs), second.decision_function(pairs))
    other = LinkPredictor(**EDGE | {"unsafe_noise_seed": 3}).fit(GRAPH)
    assert not np.array_equal(first.decision_function(pairs), other.decision_function(pairs))


def test_plan_keeps_its_cost_on_neighbors() -> None:
    plan = LinkPredictor(**EDGE | {"dim": 4, "epsilon": 1.0}).fit(GRAPH).plan_
    assert plan is not None
    found = neighbor_test_plan(plan.unit, plan.queries, pairs=60)
    assert found is not None
    assert not found.broken, str(found)


@pytest.mark.usefixtures("fewer_canaries")
@pytest.mark.parametrize(
    ("unit", "epsilon"), [("undirected-edge", 1.0), ("undirected-edge", 4.0), ("directed-edge", 1.0)]
)
def test_canaries_certify_most_of_a_claim_and_no_more(unit: str, epsilon: float) -> None:
    found = audit_plan(LinkPredictor(unit=unit, epsilon=epsilon, delta=1e-6).plan(), unsafe_noise_seed=1)
    assert found.is_valid and not found.without_canaries
    assert found.share > 0.85


def fitted_edges(model: LinkPredictor) -> list[Any]:
    assert model.plan_ is not None
    kinds = (EdgeProductQuery, NeighborCountQuery, PairSumQuery)
    return [query.held_out for query in model.plan_.queries if isinstance(query, kinds)]


def test_every_fitted_sum_leaves_out_the_same_held_out_pairs() -> None:
    model = LinkPredictor(**EDGE).fit(GRAPH)
    pairs = np.stack(np.triu_indices(400, 1))
    chosen = fitted_edges(model)
    assert len(chosen) == 4  # degrees, products, counts by cluster, and sums of features
    for one in chosen:
        assert np.array_equal(one.contains(*pairs), model.is_held_out(pairs))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_held_out_edges_cost_no_more_than_fitted_edges(epsilon: float) -> None:
    plan = LinkPredictor(**EDGE | {"epsilon": epsilon}).preview(GRAPH).plan
    assert plan is not None
    *fitted, histogram = plan.queries
    parts = [ReleasePlan(plan.unit, queries, plan.delta) for queries in (tuple(fitted), (histogram,))]
    costs = [part.epsilon for part in parts]
    assert costs[1] <= costs[0] == pytest.approx(plan.epsilon, rel=1e-9)
    both = LinkPredictor(**EDGE | {"epsilon": epsilon}).preview(GRAPH).guarantee
    alone = Guarantee.from_event(plan.unit, parts[0].event, delta=plan.delta, releases=1, slack=plan.slack)
    assert both.group_epsilon(10) == pytest.approx(alone.group_epsilon(10), rel=1e-9)


def test_scores_do_not_depend_on_held_out_edges() -> None:
    # The noise is bound to the edges only through the key of the seed, so equal sums have equal scores.
    model = LinkPredictor(**EDGE).fit(GRAPH)
    edges = GRAPH.adjacency.edge_index().numpy().astype(np.int64)
    kept = edges[:, ~model.is_held_out(edges)]
    other = Graph.from_edges(GRAPH.x, GRAPH.y, *kept, directed=False)
    exact = [zero_noise_scores(one) for one in (GRAPH, other)]
    assert np.array_equal(*exact)
    assert np.count_nonzero(model.is_held_out(edges)) > 100


def zero_noise_scores(graph: Graph) -> np.ndarray:
    """Return scores of some pairs without noise in the fitted sums."""

    class Exact(LinkPredictor):
        def prepare(self, graph: Any) -> Any:
            ready = super().prepare(graph)
            plan = ready.plan
            assert plan is not None
            silent = zero_noise_plan(plan.unit, plan.queries)
            return replace(ready, plan=silent)

    model = Exact(**EDGE)
    return model.fit(graph).decision_function(np.arange(200).reshape(2, 100))


def test_scores_are_the_same_in_both_directions_and_forms() -> None:
    model = LinkPredictor(**EDGE).fit(GRAPH)
    pairs = np.array([[0, 5, 9], [1, 2, 300]])
    scores = model.predict_proba(pairs)
    assert scores.dtype == np.float32
    assert ((scores >= 0) & (scores <= 1)).all()
    for other in (pairs[::-1], pairs.T, torch.from_numpy(pairs), pairs.tolist()):
        assert np.array_equal(model.predict_proba(other), scores)


def test_top_k_has_the_highest_scores_and_known_edges() -> None:
    model = LinkPredictor(**EDGE | {"epsilon": 20.0}).fit(GRAPH)
    ids, scores = model.top_k([3, 7], k=20)
    for row, node in enumerate((3, 7)):
        others = np.delete(np.arange(400), node)
        every = model.decision_function(np.stack([np.full(399, node), others]))
        np.testing.assert_allclose(scores[row], np.sort(every)[::-1][:20])
        assert set(ids[row]) <= set(others)
    all_ids, _ = model.top_k(k=30)
    edges = {tuple(pair) for pair in GRAPH.adjacency.edge_index().numpy().T.tolist()}
    listed = {(node, other) for node, row in enumerate(all_ids.tolist()) for other in row}
    assert listed & edges  # leaving them out would reveal them
    internal, _ = model.top_k(k=30, exclude=GRAPH)
    assert not {(node, other) for node, row in enumerate(internal.tolist()) for other in row} & edges


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_lists_of_some_nodes_exclude_the_edges_of_these_nodes(directed: bool) -> None:
    graph = blocks(60, directed=directed)
    unit = "directed-edge" if directed else "undirected-edge"
    model = LinkPredictor(**EDGE | {"unit": unit, "epsilon": 20.0}).fit(graph)
    edges = {tuple(pair) for pair in graph.adjacency.edge_index().numpy().T.tolist()}
    nodes = np.array([41, 3, 59, 41, 17])  # some, in any order, and one twice
    ids, scores = model.top_k(nodes, k=59, exclude=graph)
    every, _ = model.top_k(nodes, k=59)
    for row, node in enumerate(nodes.tolist()):
        own = {other for source, other in edges if source == node}
        kept = [other for other in every[row].tolist() if other not in own]
        assert ids[row][: len(kept)].tolist() == kept and set(ids[row][len(kept) :]) <= {-1}
        exact = model.decision_function(np.stack([np.full(len(kept), node), kept]))
        assert np.array_equal(scores[row][: len(kept)], exact) and np.isinf(scores[row][len(kept) :]).all()


def test_directed_scores_are_of_the_direction_that_was_asked() -> None:
    """Every even node has edges to the odd ones, and none of these points back."""
    source, target = (part.ravel() for part in np.meshgrid(np.arange(0, 60, 2), np.arange(1, 60, 2)))
    kept = np.random.default_rng(0).random(len(source)) < 0.6
    even = torch.arange(60) % 2
    graph = Graph.from_edges(torch.eye(2)[even], even, source[kept], target[kept], directed=True)
    model = LinkPredictor(**EDGE | {"unit": "directed-edge", "epsilon": 20.0}).fit(graph)
    there = model.predict_proba([source, target])
    assert (there > model.predict_proba([target, source])).mean() > 0.9
    assert np.array_equal(model.predict_proba(np.stack([source, target], axis=1)), there)


def test_splits_of_torch_geometric_are_accepted() -> None:
    pairs = GRAPH.adjacency.edge_index().to(torch.int64)
    data = Data(x=GRAPH.x, edge_index=pairs, num_nodes=400)  # no labels
    torch.manual_seed(0)
    train, _, test = RandomLinkSplit(num_val=0.0, num_test=0.2, is_undirected=True)(data)
    model = LinkPredictor(**EDGE | {"held_out": 0.0, "epsilon": 8.0}).fit(train)
    assert model.private_metrics_ is None
    assert model.score(test.edge_label_index, test.edge_label) > 0.8
    assert model.score(test.edge_label_index, test.edge_label, metric="average_precision") > 0.75
    with pytest.raises(GraphError, match=r"public labels \(--label\).*No privacy budget was spent"):
        LinkPredictor(**EDGE).fit(Data(edge_index=pairs, num_nodes=400))


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge"])
def test_top_k_has_the_exact_order_also_among_equal_scores(unit: str) -> None:
    """Give 150 nodes the same features, so that many candidates have equal or nearly equal scores."""
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.normal(size=(200, 4)).astype(np.float32))
    x[:150] = x[0]
    ends = rng.integers(200, size=(2, 700))
    graph = gv.Graph.from_edges(
        x,
        torch.zeros(200, dtype=torch.int64),
        *ends[:, ends[0] != ends[1]],
        directed=unit == "directed-edge",
        num_classes=2,
    )
    model = LinkPredictor(**EDGE | {"unit": unit, "unsafe_noise_seed": 1}).fit(graph)
    few = np.array([170, 3, 80])  # without a projection of the tables
    for nodes in (np.arange(200), few):
        ids, scores = model.top_k(nodes, k=5)
        for row, node in enumerate(nodes):
            others = np.delete(np.arange(200), node)
            exact = model.decision_function(np.stack([np.full(199, node), others]))
            order = np.lexsort((others, -exact))[:5]
            assert np.array_equal(ids[row], others[order]) and np.array_equal(scores[row], exact[order])


def test_saved_model_has_the_same_scores_and_guarantee(tmp_path: Path) -> None:
    model = LinkPredictor(**EDGE).fit(GRAPH)
    folder = model.save(tmp_path / "links")
    pairs = np.arange(30).reshape(2, 15)
    back = LinkPredictor.load(folder)
    assert np.array_equal(back.decision_function(pairs), model.decision_function(pairs))
    assert back.guarantee == model.guarantee and back.plan_ == model.plan_
    assert back.private_metrics_ == model.private_metrics_ and back.curves_ == model.curves_
    with pytest.raises(ArtifactError, match=r"gv\.LinkPredictor\.load"):
        gv.load_model(folder)
    with pytest.raises(ConfigError, match="exists"):
        model.save(folder)
    content = json.loads((folder / "links.json").read_text())
    del content["version"]
    (folder / "links.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match="version 1 of the link predictor format"):
        LinkPredictor.load(folder)
    (folder / "links.json").write_text("{}")
    with pytest.raises(ArtifactError, match="damaged"):
        LinkPredictor.load(folder)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"unit": "node-record"}, UnitError, "Recommender"),
        ({"unit": "none"}, UnitError, "undirected-edge"),
        ({"epsilon": 0.0}, ConfigError, "epsilon"),
        ({"held_out": 0.95}, ConfigError, "held_out"),
        ({"dim": 0}, ConfigError, "dim"),
        ({"seed": -1}, ConfigError, "seed"),
    ],
)
def test_wrong_configurations_are_rejected(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        LinkPredictor(**EDGE | changes)


def test_wrong_inputs_are_rejected_before_a_charge() -> None:
    directed = blocks(directed=True)
    with pytest.raises(UnitError, match="directed"):
        LinkPredictor(**EDGE).fit(directed)
    assert not gv.ledger_of(directed.edge_set).entries
    with pytest.raises(GraphError):
        LinkPredictor(**EDGE).fit("cora")
    with pytest.raises(ConfigError, match="fit"):
        LinkPredictor(**EDGE).predict_proba([[0], [1]])
    model = LinkPredictor(**EDGE).fit(GRAPH)
    for pairs in ([[0, 1, 2]], [[0.5], [1.0]], [[0], [400]], [[-1], [2]]):
        with pytest.raises(ConfigError):
            model.predict_proba(pairs)
    with pytest.raises(ConfigError, match="labels"):
        model.score([[0], [1]], [2])
    with pytest.raises(ConfigError, match="exclude"):
        model.top_k(k=2, exclude=gv.load_dataset("synthetic/tiny"))


def test_known_pair_is_found_no_better_than_the_guarantee_allows() -> None:
    """Attack the products directly: the best linear statistic for one pair, whose vectors are known."""
    model, runs = LinkPredictor(**EDGE | {"epsilon": 8.0, "held_out": 0.0}), 600
    plan = model.config.plan(PublicSizes(nodes=40, classes=0, features=6))
    assert plan is not None
    query = plan.queries[1]
    assert isinstance(query, EdgeProductQuery)
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 6)))
    vectors /= 1.0001 * vectors.norm(dim=1, keepdim=True)
    product = np.outer(vectors[0].numpy(), vectors[1].numpy())
    direction = (product + product.T) / 2
    direction /= np.linalg.norm(direction)  # its noise is that of the diagonal
    statistics = [
        np.array([_statistic(query, plan, edges, vectors, direction) for _ in range(runs)])
        for edges in (([2, 3], [3, 4]), ([0, 2, 3], [1, 3, 4]))
    ]
    without, inside = statistics
    mu, error = query.event(plan.unit).mu, 3 * (2 / runs) ** 0.5
    distance = (inside.mean() - without.mean()) / np.concatenate(
        [inside - inside.mean(), without - without.mean()]
    ).std()
    assert 0.5 * mu < distance < mu + error
    cuts = np.sort(without)
    advantage = max((inside >= cut).mean() - (without >= cut).mean() for cut in cuts)
    assert advantage < 2 * ndtr(mu / 2) - 1 + error


def _statistic(query: Any, plan: Any, edges: Any, vectors: torch.Tensor, direction: np.ndarray) -> float:
    adjacency = Adjacency.from_edges(*edges, num_nodes=40, directed=False)
    one = replace(plan, queries=(query,), slack=0.0)
    released = Release.open(one, adjacency, budget=MemoryLedger()).answer(EdgeProductData(vectors))
    return float((released.numpy() * direction).sum())
