"""Spectral: embeddings from released neighbor lists, votes, and the method."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from estimators.released_graph import check_depends_on_released_graph_only
from graphveil import load_model
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import ledger_of
from graphveil.data import Graph
from graphveil.errors import ConfigError, GraphError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.mlp import MLP
from graphveil.estimators.spectral import (
    DOUBLINGS,
    HALVINGS,
    Spectral,
    VotingRule,
    best_rule,
    count_votes,
    spectral_rows,
)

EDGES: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 6.0, "seed": 0}
NODES, TOPICS, CLASSES, LISTED = 360, 12, 3, 30


def listed(seed: int = 0, *, certain: bool = False) -> Graph:
    """Return a graph with informative neighbor lists and uninformative neighbors: 12 topics with a list each.

    The pages of a topic link to most of its list (to all of it if ``certain``) and have one class. The list
    is drawn from all pages, and features are weak.
    """
    rng = np.random.default_rng(seed)
    topic = np.arange(NODES) % TOPICS
    lists = [rng.choice(NODES, LISTED, replace=False) for _ in range(TOPICS)]
    pairs = np.array([(page, one) for page in range(NODES) for one in lists[topic[page]] if page != one])
    pairs = pairs if certain else pairs[rng.random(len(pairs)) < 0.7]
    y = topic % CLASSES
    x = rng.normal(size=(NODES, 6)).astype(np.float32)
    x[np.arange(NODES), y] += 0.5
    graph = Graph.from_edges(x, y, pairs[:, 0], pairs[:, 1], directed=False, num_classes=CLASSES)
    rank = torch.from_numpy(rng.permutation(NODES)) / NODES
    return graph.with_split(rank < 0.6, (rank >= 0.6) & (rank < 0.8), rank >= 0.8)


def topic_cosines(rows: Tensor) -> tuple[float, float]:
    """Return the mean cosine of pairs of one topic, and of others, among pages that few pages link to."""
    graph = listed()
    degree = torch.bincount(graph.adjacency.edge_index()[1], minlength=NODES)
    quiet = degree.argsort()[: NODES // 4]  # hubs have lists of their own
    topic = quiet % TOPICS
    own = normalize(rows[quiet], dim=1)
    cosine = own @ own.T
    same = (topic[:, None] == topic[None, :]) & ~torch.eye(len(quiet), dtype=torch.bool)
    return float(cosine[same].mean()), float(cosine[topic[:, None] != topic[None, :]].mean())


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randomized(edges: Adjacency, flip: float, seed: int = 0) -> Adjacency:
    """Return edges in which each node pair is flipped with this probability."""
    nodes, rng = edges.num_nodes, np.random.default_rng(seed)
    dense = np.zeros((nodes, nodes), dtype=bool)
    dense[tuple(edges.edge_index().numpy())] = True
    tail, head = np.triu_indices(nodes, 1)
    kept = dense[tail, head] != (rng.random(len(tail)) < flip)
    return Adjacency.from_edges(tail[kept], head[kept], num_nodes=nodes, directed=False)


@pytest.mark.parametrize("flip", [0.0, 0.02])
def test_embeddings_are_the_leading_eigenvectors_scaled_by_their_accuracy(flip: float) -> None:
    edges = randomized(listed().adjacency, flip)
    dense = torch.zeros(NODES, NODES, dtype=torch.float64)
    dense[tuple(edges.edge_index())] = 1.0
    dense = (dense - flip * (1 - torch.eye(NODES, dtype=torch.float64))) / (1 - 2 * flip)
    exact, vectors = torch.linalg.eigh(dense)
    top = exact.abs().argsort(descending=True)[:6]
    found = spectral_rows(edges, flip, 40, seeded())[:, :6].to(torch.float64)
    variance = NODES * flip * (1 - flip) / (1 - 2 * flip) ** 2
    true = (exact[top].abs() + (exact[top].square() - 4 * variance).clamp_min(0).sqrt()) / 2
    torch.testing.assert_close(found.norm(dim=0), (1 - variance / true.square()).sqrt(), rtol=1e-4, atol=1e-4)
    inside = normalize(found, dim=0).T @ vectors[:, top]
    torch.testing.assert_close(inside.norm(dim=0), torch.ones(6, dtype=torch.float64), atol=1e-3, rtol=0)


def test_nodes_with_one_neighbor_list_share_an_embedding() -> None:
    rows = spectral_rows(listed(certain=True).adjacency, 0.0, NODES, seeded())
    same, other = topic_cosines(rows)
    assert same == pytest.approx(1.0, abs=1e-3) and other < 0.5


@pytest.mark.parametrize(("epsilon", "least"), [(6.0, 0.3), (4.0, 0.15)])
def test_similar_lists_have_similar_embeddings_in_spite_of_noise(epsilon: float, least: float) -> None:
    flip = 1 / (1 + np.exp(epsilon))
    same, other = topic_cosines(spectral_rows(randomized(listed().adjacency, flip), flip, 64, seeded()))
    assert same > other + least and abs(other) < 0.1


def test_noise_alone_has_no_directions() -> None:
    no_edges = Adjacency.from_edges([], [], num_nodes=NODES, directed=False)
    rows = spectral_rows(randomized(no_edges, 0.12), 0.12, 64, seeded())
    assert rows.shape[1] <= 2
    assert spectral_rows(no_edges, 0.0, 64, seeded()).shape == (NODES, 0)


def test_embeddings_have_at_most_the_rank_and_the_leading_direction_first() -> None:
    edges = listed().adjacency
    few, more = (spectral_rows(edges, 0.0, rank, seeded()) for rank in (5, 40))
    assert few.shape == (NODES, 5)
    assert torch.allclose(few[:, 0].abs(), more[:, 0].abs(), atol=1e-3)


VOTES_NODES = 40


def world(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows, classes that they follow, and the nodes that vote."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(VOTES_NODES) % CLASSES
    rows = torch.eye(CLASSES)[y] + 0.4 * torch.randn(VOTES_NODES, CLASSES, generator=generator)
    return rows / rows.norm(dim=1, keepdim=True), y, torch.randperm(VOTES_NODES, generator=generator)[:25]


def test_votes_equal_those_of_a_loop() -> None:
    rows, y, voters = world()
    found = count_votes(rows, voters, y[voters], CLASSES, most=60)  # several blocks
    for level, doublings in enumerate(DOUBLINGS):
        expected = torch.zeros(VOTES_NODES, CLASSES)
        for node in range(VOTES_NODES):
            for voter in voters.tolist():
                if voter != node:
                    expected[node, y[voter]] += max(0.0, float(rows[node] @ rows[voter])) ** 2**doublings
        assert torch.allclose(found[level], expected, atol=1e-4)


def test_the_best_rule_uses_informative_votes_only() -> None:
    rows, y, voters = world()
    flat = torch.full((VOTES_NODES, CLASSES), 1 / CLASSES).log()
    sure = torch.eye(CLASSES)[y].mul(5).log_softmax(dim=1)
    rule, decided = best_rule(flat, rows, voters, y[voters])
    assert rule.share == 1.0 and float((decided.argmax(dim=1) == y).float().mean()) > 0.9
    again = rule.decided(flat, rule.votes(rows, voters, y[voters], CLASSES))
    assert torch.equal(decided, again)
    misleading = torch.eye(CLASSES)[(y + torch.arange(VOTES_NODES) // 3) % CLASSES]
    assert torch.allclose(
        best_rule(sure, misleading, voters, y[voters])[1].exp(), sure.exp().double(), atol=0.05
    )


def test_the_best_rule_uses_few_directions_if_the_others_are_noise() -> None:
    _, y, voters = world()
    kinds = 3 * torch.eye(CLASSES)[y]
    everything = torch.cat([kinds, 9 * torch.eye(VOTES_NODES)], dim=1)  # most of a row is its node's own
    flat = torch.full((VOTES_NODES, CLASSES), 1 / CLASSES).log()
    rule, decided = best_rule(flat, everything, voters, y[voters])
    assert rule.halvings == max(HALVINGS) and bool((decided.argmax(dim=1) == y).all())


def test_a_node_without_votes_keeps_its_posterior_from_features() -> None:
    features = torch.tensor([[0.7, 0.2, 0.1]]).log()
    decided = VotingRule(0, 1, 0.003, 1.0).decided(features, torch.zeros(1, 3))
    assert torch.allclose(decided, features.double(), atol=1e-6)


def test_is_more_accurate_than_baselines_if_lists_are_informative() -> None:
    graph = listed()
    alone = MLP(unit="undirected-edge", seed=0).fit(graph).score(graph)
    assert Spectral(unit="none", seed=0).fit(graph).score(graph) > alone + 0.2
    private = Spectral(**EDGES).fit(graph).score(graph)
    assert private > alone + 0.15
    assert private > ClassCode(**EDGES, delta=1e-6).fit(graph).score(graph) + 0.1


def test_charges_one_release_and_states_it() -> None:
    graph = listed()
    model = Spectral(**EDGES).fit(graph)
    assert (model.guarantee.epsilon, model.guarantee.delta, model.guarantee.valid) == (6.0, 0.0, True)
    assert len(ledger_of(graph.edge_set).entries) == 1
    assert list(model.aggregates_) == ["graph"]
    statement = model.guarantee.formal_statement()
    assert "the released graph and everything computed from it" in statement
    assert "drawn once by edge-rand, and predicts on it alone: no prediction reads a true edge" in statement


def test_charges_nothing_without_privacy() -> None:
    graph = listed()
    model = Spectral(unit="none", seed=0).fit(graph)
    assert model.plan_ is None and not ledger_of(graph.edge_set).entries


def test_plans_without_a_graph() -> None:
    plan = Spectral(**EDGES).plan(num_nodes=500, num_classes=3)
    assert plan is not None and plan.epsilon == 6.0


def test_predictions_depend_on_the_released_graph_only() -> None:
    check_depends_on_released_graph_only(listed(), lambda: Spectral(**EDGES))


def test_a_saved_model_predicts_another_graph(tmp_path: Path) -> None:
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
    right = (proba.argmax(dim=1) == other.y)[other.labeled_in("test")].float().mean()
    assert right > MLP(unit="undirected-edge", seed=0).fit(other).score(other) + 0.1


def test_rejects_a_graph_without_labels_before_a_charge() -> None:
    model, other = Spectral(**EDGES).fit(listed()), listed(seed=1)
    unlabeled = Graph.from_edges(
        other.x, other.y, *other.adjacency.edge_index(), directed=False, num_classes=3
    )
    with pytest.raises(GraphError, match="labels in the graph"):
        model.predict_proba(unlabeled)
    assert not ledger_of(unlabeled.edge_set).entries


def test_a_resumed_fit_uses_the_released_graph(tmp_path: Path) -> None:
    graph = listed()
    first = Spectral(**EDGES).fit(graph, workspace=tmp_path)
    again = Spectral(**EDGES).fit(graph, workspace=tmp_path)
    assert torch.equal(first.predict_proba(), again.predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"unit": "directed-edge"}, UnitError, "spectral has no guarantee under unit 'directed-edge'"),
        ({"unit": "node-record"}, NotImplementedGuaranteeError, "does not support unit 'node-record'"),
        ({"unit": "local-attributes"}, UnitError, "Use method 'auto', 'lpgnn'"),
        ({"rank": 0}, ConfigError, "rank=0 must be a whole number of at least 1"),
        ({"rank": 10_000}, ConfigError, "rank=10000"),
        ({"epsilon": None}, ConfigError, "epsilon"),
    ],
)
def test_rejects_invalid_configurations(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Spectral(**EDGES | changes)


def test_rejects_unsuitable_graphs_before_a_charge() -> None:
    graph = listed()
    with pytest.raises(ConfigError, match="max_edges=10"):
        Spectral(**EDGES, max_edges=10).fit(graph)
    edges = graph.adjacency.edge_index()
    directed = Graph.from_edges(graph.x, graph.y, *edges, directed=True, num_classes=3)
    directed = directed.with_split(graph.train_mask, graph.val_mask, graph.test_mask)
    with pytest.raises(GraphError, match="this graph's edges are directed"):
        Spectral(unit="none").fit(directed)
    assert not ledger_of(graph.edge_set).entries and not ledger_of(directed.edge_set).entries
