"""Membership inference: scored nodes, overfitted and private models, LiRA and the Bayes posterior."""

from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.attacks import (
    Ensemble,
    MembershipSettings,
    SecretEdges,
    attack_membership,
    bayes_scores,
    fit_ensemble,
    lira_scores,
    roc_auc,
    shadow_graph,
)
from graphveil.attacks.membership import (
    CONFIDENCE,
    SHADOW_MLP,
    confidence,
    select_evaluated_nodes,
    standardized,
)
from graphveil.core.edges.adjacency import Adjacency
from graphveil.data import RECIPES
from graphveil.errors import ConfigError

TINY = gv.load_dataset("synthetic/tiny")
OVERFITTED: dict[str, Any] = {"unit": "none", "seed": 0, "tuned": False, "hidden": 32, "epochs": 40}


def hard() -> gv.Graph:
    """Return nodes with many uninformative features, which a network memorizes."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(500, 600, generator=rng)
    y = (x[:, 0] + x[:, 1] + torch.randn(500, generator=rng) > 0).long()
    graph = gv.Graph.from_edges(x, y, range(499), range(1, 500), directed=False, num_classes=2)
    return RECIPES["gap"].split(graph, 0)


HARD = hard()
FITTED = gv.MLP(**OVERFITTED).fit(HARD)


def test_shadow_graph_is_balanced_and_split_as_in_the_paper() -> None:
    shadow, nodes = shadow_graph(TINY, 40, seed=1)
    assert shadow.num_nodes == len(nodes) == 120
    assert np.array_equal(shadow.x.numpy(), TINY.x.numpy()[nodes])
    for number in range(3):
        own = shadow.y == number
        assert [int((own & shadow.labeled_in(part)).sum()) for part in ("train", "val", "test")] == [
            16,
            8,
            16,
        ]
    largest = int(np.bincount(TINY.y.numpy()).min()) + 1
    assert len(np.unique(shadow_graph(TINY, largest, seed=0)[0].y)) == 2  # the smallest class is left out
    with pytest.raises(ConfigError, match="ewer than two classes"):
        shadow_graph(TINY, 290, seed=0)


def test_training_and_test_nodes_are_scored() -> None:
    nodes, members = select_evaluated_nodes(TINY)
    assert np.array_equal(members, TINY.labeled_in("train").numpy()[nodes])
    assert not TINY.labeled_in("val").numpy()[nodes].any()
    _, drawn = shadow_graph(TINY, 40, seed=0)
    assert not set(select_evaluated_nodes(TINY, drawn)[0]) & set(drawn)


@pytest.mark.parametrize("evaluate_on", ["target", "shadow"])
def test_overfitted_model_reveals_its_training_nodes(evaluate_on: Any) -> None:
    found = []
    for seed in range(3):  # one shadow model learns more than the next, and processors differ in the last bit
        settings = MembershipSettings(per_class=200, evaluate_on=evaluate_on, disjoint=False, seed=seed)
        report = attack_membership(FITTED, HARD, settings)
        found.append(report.attackers[SHADOW_MLP].auc)
    assert np.mean(found) > 0.6
    assert report.attackers[CONFIDENCE].auc > 0.62
    assert not report.theoretical_bound["valid"]
    if evaluate_on == "target":
        assert report.judged == len(select_evaluated_nodes(HARD)[0])


def test_private_model_does_not_reveal_them() -> None:
    graph = RECIPES["gap"].on_clients().split(HARD, 0)
    private = gv.MLP(unit="node-record", epsilon=1.0, seed=0, unsafe_noise_seed=0).fit(graph)
    report = attack_membership(private, graph, MembershipSettings(per_class=60, disjoint=False))
    assert report.attackers[CONFIDENCE].auc < 0.6
    assert report.unit == "node-record" and not report.theoretical_bound["valid"]  # its noise has a seed
    assert report.as_dict()["internal"] is True


def test_scores_are_made_from_outputs_only() -> None:
    model = gv.MLP(unit="none", seed=0, epochs=20, tuned=False).fit(TINY)
    swapped = TINY.with_split(TINY.labeled_in("test"), TINY.labeled_in("val"), TINY.labeled_in("train"))
    settings = MembershipSettings(per_class=40, disjoint=False)
    one, other = (attack_membership(model, graph, settings).attackers for graph in (TINY, swapped))
    for name in (SHADOW_MLP, CONFIDENCE):
        assert one[name].auc == pytest.approx(1 - other[name].auc, abs=1e-9)


def drawn(shift: float, *, prior: float = 0.0, seed: int = 0) -> tuple[Ensemble, np.ndarray, Any, Adjacency]:
    """Draw confidences of 17 models: members' are higher, and so are those of members' neighbors."""
    rng, nodes = np.random.default_rng(seed), 600
    edges = Adjacency.from_edges(range(nodes - 1), range(1, nodes), num_nodes=nodes, directed=False)
    members = rng.random((17, nodes)) < 0.5
    neighbors = np.roll(members, 1, axis=1).astype(float) + np.roll(members, -1, axis=1)
    sure = rng.normal(size=nodes) * 3 + shift * members + prior * neighbors + rng.normal(size=(17, nodes))
    return Ensemble(members[1:], sure[1:]), sure[0], members[0], edges


def test_lira_is_the_likelihood_ratio() -> None:
    ensemble, sure, members, _ = drawn(2.0)
    assert roc_auc(lira_scores(ensemble, sure), members) > 0.88  # two Gaussians two apart: 0.92
    assert roc_auc(sure, members) < 0.7  # nodes differ by more than membership does
    nothing = drawn(0.0)
    assert 0.4 < roc_auc(lira_scores(*nothing[:2]), nothing[2]) < 0.6


def test_bayes_posterior_uses_the_members_among_neighbors() -> None:
    ensemble, sure, members, edges = drawn(1.5, prior=1.5)
    nodes, secret = np.arange(600), SecretEdges.from_adjacency(edges)
    bayes, lira = bayes_scores(ensemble, sure, secret, nodes), lira_scores(ensemble, sure)
    assert roc_auc(bayes, members) > roc_auc(lira, members) + 0.02
    ensemble, sure, members, edges = drawn(2.0)
    bayes, lira = (
        bayes_scores(ensemble, sure, SecretEdges.from_adjacency(edges), nodes),
        lira_scores(ensemble, sure),
    )
    assert roc_auc(bayes, members) > roc_auc(lira, members) - 0.02


def test_ensemble_leaves_each_node_out_equally_often() -> None:
    ensemble = fit_ensemble(FITTED, HARD, 12)
    nodes, members = select_evaluated_nodes(HARD)
    assert (ensemble.members[:, nodes].sum(axis=0) == 10).all()
    assert not ensemble.members[:, HARD.labeled_in("val").numpy()].any()
    found = lira_scores(ensemble, standardized(confidence(FITTED, HARD)))
    assert roc_auc(found[nodes], members) > 0.6
    with pytest.raises(ConfigError, match="count=3"):
        fit_ensemble(FITTED, HARD, 3)


def test_by_default_the_shadow_graph_of_a_small_graph_has_half_of_the_second_largest_class() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    model = gv.MLP(unit="none", seed=0, epochs=3, tuned=False).fit(graph)
    second = sorted(graph.y.bincount().tolist())[-2]
    assert attack_membership(model, graph).settings.per_class == second // 2
