"""Auto under ``local-attributes``: one collection, a choice by its reports, and everything after a fit."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Invoke
from conftest import with_few_epochs

import graphveil as gv
from graphveil.auto import AutoClassifier, stacking_weights
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.local.collect import CollectionProtocol
from graphveil.mechanisms import LabelRR
from graphveil.runs.run_audit import audit_run
from tests.estimators.conftest import CLASSES, grouped
from tests.estimators.interrupted import InterruptedFit, interrupted_at, same

LOCAL: dict[str, Any] = {"unit": "local-attributes", "seed": 0}
BOTH: dict[str, Any] = {**LOCAL, "eps_x": 1.0, "eps_y": 2.0}
SHARES, DIFFUSION, MIXTURE = "class-shares", "label-posterior (diffusion)", "label-posterior (mixture)"
FIXED: dict[str, gv.Estimator] = {
    SHARES: gv.LabelPosterior(**LOCAL, eps_y=2.0, prior="nothing"),
    DIFFUSION: gv.LabelPosterior(**LOCAL, eps_y=2.0, prior="diffusion"),
    MIXTURE: gv.LabelPosterior(**LOCAL, eps_y=2.0),
}

Fit = tuple[AutoClassifier, Graph]


@pytest.fixture(scope="module", autouse=True)
def few_epochs() -> Iterator[None]:
    """Train a fifth of the epochs, which are enough to tell the methods apart."""
    with pytest.MonkeyPatch.context() as patch:
        with_few_epochs(patch, "graphveil.local.lpgnn", 20)
        yield


def told_by_features(seed: int = 0, nodes: int = 240) -> Graph:
    """Return a graph in which features tell the class, and edges do not."""
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(CLASSES, size=nodes))
    source, target = rng.integers(nodes, size=(2, nodes // 2))
    graph = Graph.from_edges(torch.eye(CLASSES)[y], y, source, target, directed=False, num_classes=CLASSES)
    rank = torch.from_numpy(rng.permutation(nodes)) / nodes
    return graph.with_split(rank < 0.5, (rank >= 0.5) & (rank < 0.8), rank >= 0.8)


def features_decide() -> AutoClassifier:
    """Return a model that chooses a network on ``told_by_features``."""
    return AutoClassifier(**LOCAL, eps_x=30.0, eps_y=6.0)


@pytest.fixture(scope="module")
def averaged() -> Fit:
    """Return a fit whose prediction is an average, with its graph."""
    graph = grouped()
    return AutoClassifier(**BOTH).fit(graph), graph


@pytest.fixture(scope="module")
def network() -> Fit:
    """Return a fit that chose a network, with its graph."""
    graph = told_by_features()
    return features_decide().fit(graph), graph


@pytest.mark.parametrize("eps_x", [0.0, 1.0])
def test_all_options_are_fitted_to_one_collection(eps_x: float, averaged: Fit) -> None:
    model, graph = averaged
    if eps_x == 0:
        graph = grouped()
        model = AutoClassifier(**{**BOTH, "eps_x": eps_x}).fit(graph)
    entries = gv.ledger_of(graph.edge_set).entries
    assert [entry.event for entry in entries] == [model.guarantee.event]
    assert model.guarantee.epsilon == eps_x + 2.0 and model.guarantee.valid
    assert model.guarantee.local_budgets == (eps_x, 2.0)
    networks = [] if eps_x == 0 else ["lpgnn", "simgat"]
    assert list(model.candidates_) == [SHARES, DIFFUSION, *networks, MIXTURE]
    assert list(model.weights_) == list(model.candidates_)
    assert sum(model.weights_.values()) == pytest.approx(1)
    assert all(value is not None and math.isfinite(value) for value in model.candidates_.values())
    for kind in (gv.LPGNN(**BOTH), gv.SimGAT(**BOTH)) if eps_x else ():
        assert kind.preview(grouped()).guarantee.event == model.guarantee.event
    baseline = model.no_graph_baseline()
    assert isinstance(baseline, gv.LPGNN if eps_x else gv.LabelPosterior)
    baseline.fit_same_reports(model, graph)
    assert len(gv.ledger_of(graph.edge_set).entries) == 1


def test_predictions_are_the_weighted_average_of_the_methods_alone() -> None:
    graph = grouped()
    model = AutoClassifier(**LOCAL, eps_x=0.0, eps_y=2.0).fit(graph)
    expected = torch.zeros(graph.num_nodes, graph.num_classes)
    for name, weight in model.weights_.items():
        assert (name in model.chosen_) == (weight > 0)
        expected += weight * FIXED[name].fit_same_reports(model, graph).predict_proba()
    assert torch.allclose(model.predict_proba(), expected, atol=1e-6)
    reported = model.aggregates_["labels"].reshape(-1)
    for part in ("train", "val"):
        own = graph.labeled_in(part)
        assert model.score(graph, part) == float((model.predict()[own] == reported[own]).float().mean())


def test_a_graph_that_has_grown_is_predicted_by_all_averaged_methods() -> None:
    graph = grouped()
    graph = graph.replace(x=torch.eye(CLASSES)[graph.y])
    model = AutoClassifier(**LOCAL, eps_x=4.0, eps_y=2.0, unsafe_noise_seed=3).fit(graph)
    assert [name for name, weight in model.weights_.items() if not weight] == [SHARES]
    friends = (graph.y == 1).nonzero()[:8, 0].tolist()
    larger = graph.grow(torch.eye(CLASSES)[1:2], None, [graph.num_nodes] * 8, friends)
    proba = model.predict_proba(larger)
    assert proba.shape == (graph.num_nodes + 1, CLASSES)
    assert torch.allclose(proba.sum(dim=1), torch.ones(len(proba)), atol=1e-5)
    assert int(proba[-1].argmax()) == 1
    networks = model.fitted.trained.model.networks
    assert len(networks) == 2
    added = larger.adjacency.history[-1].added.edge_set
    assert [len(gv.ledger_of(edges).entries) for edges in (graph.edge_set, added)] == [1, 1]


def test_features_decide_if_edges_say_nothing(network: Fit) -> None:
    model, graph = network
    assert model.weights_["lpgnn"] + model.weights_["simgat"] > 0.9
    assert model.score(graph) > 0.5
    assert model.candidates_["lpgnn"] > model.candidates_[MIXTURE] + 0.1


@pytest.mark.parametrize("noise", range(2))
def test_the_largest_class_is_predicted_if_nothing_is_informative(noise: int) -> None:
    rng = np.random.default_rng(0)
    y = torch.from_numpy((rng.random(2000) < 0.2).astype(np.int64))
    source, target = rng.integers(2000, size=(2, 8000))
    graph = Graph.from_edges(torch.ones(2000, 1), y, source, target, directed=False, num_classes=2)
    rank = torch.from_numpy(rng.permutation(2000)) / 2000
    graph = graph.with_split(rank < 0.5, (rank >= 0.5) & (rank < 0.75), rank >= 0.75)
    model = AutoClassifier(**LOCAL, eps_x=0.0, eps_y=1.0, unsafe_noise_seed=noise).fit(graph)
    largest = float((y[graph.test_mask] == 0).float().mean())
    assert model.evaluate(graph)["accuracy"] >= largest - 0.01


def test_nothing_but_reports_and_edges_is_read_after_the_collection(averaged: Fit, network: Fit) -> None:
    # Neighboring datasets that differ in every record have the same outcome, given the same reports.
    for model, graph in (averaged, network):
        members = graph.train_mask | graph.val_mask
        other = graph.replace(
            x=torch.flip(graph.x, dims=[1]), y=torch.where(members, (graph.y + 1) % CLASSES, graph.y)
        )
        again = AutoClassifier(**model.get_params()).fit_same_reports(model, other)
        assert again.choice_ == model.choice_
        assert torch.equal(again.predict_proba(), model.predict_proba())
        assert len(gv.ledger_of(other.edge_set).entries) == 1


def test_options_far_below_the_best_have_no_weight() -> None:
    rng = np.random.default_rng(0)
    right = torch.from_numpy(rng.random(400) < 0.8)
    best = torch.where(right, 1.6, 0.4)
    other = torch.where(torch.from_numpy(rng.random(400) < 0.5), 1.3, 0.7)  # tells nothing about the reports
    shares = torch.ones(400)
    weights, evidence = stacking_weights(torch.stack([other, best], dim=1), shares)
    assert weights.tolist() == [0, 1]
    assert evidence.shape == (400, 2) and evidence[:, 1].sum() > evidence[:, 0].sum()
    weights, _ = stacking_weights(torch.stack([best, best], dim=1), shares)
    assert weights.tolist() == pytest.approx([0.5, 0.5])


def test_options_that_are_right_on_different_nodes_are_averaged() -> None:
    # Each option is right on one half of the nodes, and the second one is the better one by far.
    one, two = torch.full((400,), 0.2), torch.full((400,), 0.6)
    one[:200], two[200:] = 1.8, 1.9
    weights, evidence = stacking_weights(torch.stack([one, two], dim=1), torch.ones(400))
    assert evidence[:, 1].sum() > evidence[:, 0].sum()
    assert (weights > 0.1).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"unit": "local-attributes"}, "eps_x and eps_y are missing"),
        ({**BOTH, "epsilon": 1.0}, "pass eps_x= and eps_y="),
        ({**BOTH, "feature_range": "0:1"}, "low= and high="),
        ({**BOTH, "metric": "roc_auc"}, "metric"),
        ({**BOTH, "missing_labels": 1.0}, "missing_labels"),
        ({"unit": "undirected-edge", "epsilon": 1.0, "eps_x": 1.0}, "eps_x=1.0 applies to unit"),
        ({"unit": "none", "missing_labels": 0.1}, "missing_labels=0.1 applies to unit"),
    ],
)
def test_wrong_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AutoClassifier(**settings)


def test_other_units_collect_no_reports() -> None:
    model = AutoClassifier(unit="undirected-edge", epsilon=1.0)
    with pytest.raises(ConfigError, match="collects no LDP reports"):
        model.label_mechanism(3)
    assert isinstance(model.no_graph_baseline(), gv.MLP)


@pytest.mark.parametrize("chosen", ["averaged", "network"])
def test_a_saved_model_keeps_its_choice(chosen: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model, _ = request.getfixturevalue(chosen)
    model.save(tmp_path / "release")
    loaded = gv.load_model(tmp_path / "release")
    assert isinstance(loaded, AutoClassifier)
    assert loaded.choice_ == model.choice_
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert f"Chosen method: `{model.chosen_}`." in (tmp_path / "release" / "MODEL_CARD.md").read_text()


def test_another_graph_reports_to_a_chosen_network(network: Fit) -> None:
    model, other = network[0], told_by_features(seed=1, nodes=60)
    cost = model.privacy_cost(other)
    assert cost is not None and cost.local_budgets == (30.0, 0.0)
    accuracy = float((model.predict(other) == other.y).float().mean())  # one collection for all networks
    assert accuracy > 0.45
    assert model.guarantee_with_predictions.local_budgets == (60.0, 6.0)


@pytest.mark.usefixtures("quick_networks")
def test_an_interrupted_fit_is_resumed_with_the_same_reports(tmp_path: Path) -> None:
    graph, settings = grouped(), {**BOTH, "unsafe_noise_seed": 3}
    whole = AutoClassifier(**settings).fit(grouped())
    with pytest.raises(InterruptedFit):
        AutoClassifier(**settings).fit(graph, workspace=tmp_path, on_progress=interrupted_at("evidence", 1))
    resumed = AutoClassifier(**settings).fit(graph, workspace=tmp_path)
    assert same(whole, resumed)
    assert len(gv.ledger_of(graph.edge_set)) == 1


def test_the_keywords_follow_from_a_collection_protocol() -> None:
    protocol = CollectionProtocol(features=None, label=LabelRR(epsilon=2.0, classes=3))
    model = AutoClassifier.from_protocol(protocol)
    assert (model.unit, model.eps_x, model.eps_y, model.labels) == ("local-attributes", math.inf, 2.0, "rr")


@pytest.mark.usefixtures("quick_networks", "fewer_canaries")
def test_the_run_of_a_command_states_the_choice(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = "train auto --dataset synthetic/tiny --unit local-attributes --set eps_x=1 --set eps_y=1 --out"
    answer = invoke(words, folder)
    shown = answer.out + answer.err
    assert "by the likelihood of held-out LDP reports" in shown
    assert "Chosen method: " in shown and "in nats" in shown
    assert "mlp on the same LDP reports" in shown
    assert not audit_run(folder, pairs=20).faults


def test_evidence_is_relative_to_the_shares_of_classes() -> None:
    """An option that knows the shares alone has evidence of zero, however unequal they are."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 1500, p=(0.8, 0.15, 0.05))
    graph = Graph.from_edges(
        torch.eye(3)[torch.from_numpy(rng.integers(3, size=1500))],
        torch.from_numpy(y),
        *rng.integers(1500, size=(2, 1500)),
        directed=False,
        num_classes=3,
    )
    rank = torch.from_numpy(rng.permutation(1500)) / 1500
    graph = graph.with_split(rank < 0.6, (rank >= 0.6) & (rank < 0.8), rank >= 0.8)
    found = AutoClassifier(**LOCAL, eps_x=0.0, eps_y=2.0, unsafe_noise_seed=1).fit(graph).candidates_
    assert found[SHARES] == pytest.approx(0.0, abs=0.005)
    assert max(value or 0.0 for value in found.values()) < 0.01  # nothing else is informative
