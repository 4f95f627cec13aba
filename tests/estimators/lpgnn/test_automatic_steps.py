"""Automatic settings: steps, epoch and prediction rule follow from held-out reported labels."""

from pathlib import Path

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.local.lpgnn import CANDIDATE_STEPS
from tests.estimators.conftest import CLASSES, NODES, grouped

LOCAL = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 2.0, "unsafe_noise_seed": 1, "epochs": 8}


def model(seed: int = 0, **changed: object) -> gv.LPGNN:
    return gv.LPGNN(**{**LOCAL, "seed": seed, **changed})  # type: ignore[arg-type]


def losses(fitted: gv.LPGNN) -> list[float]:
    return [record.val_loss for _, record in fitted.history_]


def uninformative(seed: int, nodes: int = 900) -> Graph:
    """A graph whose features and edges are independent of its classes; the largest has 45 % of the nodes."""
    rng = np.random.default_rng(seed)
    y = rng.choice(CLASSES, nodes, p=(0.45, 0.3, 0.25))
    x = (rng.random((nodes, 8)) < 0.3).astype(np.float32)
    source, target = rng.integers(nodes, size=(2, 10 * nodes))
    graph = Graph.from_edges(x, y, source, target, directed=False, num_classes=CLASSES)
    rank = torch.from_numpy(rng.permutation(nodes)) / nodes
    return graph.with_split(rank < 0.5, (rank >= 0.5) & (rank < 0.75), rank >= 0.75)


@pytest.mark.parametrize("seed", [1, 2])
def test_keeps_the_network_with_the_smallest_validation_loss(seed: int) -> None:
    graph = grouped(seed=seed)
    found = model(seed).fit(graph)
    alone = {
        (x, y): model(seed, x_steps=x, y_steps=y).fit_same_reports(found, graph) for x, y in CANDIDATE_STEPS
    }
    best = min(alone, key=lambda steps: min(losses(alone[steps])))
    assert (found.selected_["x_steps"], found.selected_["y_steps"]) == best
    assert losses(found) == losses(alone[best])
    assert torch.equal(found.predict_proba(), alone[best].predict_proba())


def test_automatic_settings_charge_one_collection() -> None:
    fixed = model(x_steps=2, y_steps=1, posterior_steps=0).fit(grouped())
    assert model().fit(grouped()).guarantee.local_budgets == fixed.guarantee.local_budgets == (1.0, 2.0)


def test_training_does_not_use_the_reports_of_validation_nodes() -> None:
    part = torch.arange(NODES) % 5
    graph = grouped().with_split(part == 0, (part > 0) & (part < 4), part == 4)
    moved = graph.replace(y=torch.where(graph.labeled_in("val"), (graph.y + 1) % CLASSES, graph.y))
    for posterior_steps, held_out in (("auto", True), (0, False)):
        settings = {"x_steps": 2, "y_steps": 2, "eps_y": 50.0, "posterior_steps": posterior_steps}
        first, second = (model(**settings).fit(each) for each in (graph, moved))
        assert losses(first) != losses(second)
        trained = [[record.train_loss for _, record in fitted.history_] for fitted in (first, second)]
        assert (trained[0] == trained[1]) is held_out


@pytest.mark.parametrize("eps_y", [1.0, 3.0])
def test_predicts_the_largest_class_if_the_graph_says_nothing(eps_y: float) -> None:
    for seed in (0, 3, 4):
        graph = uninformative(seed)
        test = graph.labeled_in("test")
        largest = float(torch.bincount(graph.y[test]).max() / test.sum())
        assert model(seed, eps_y=eps_y, unsafe_noise_seed=seed, epochs=30).fit(graph).score(graph) >= largest


def test_saves_the_selected_steps(tmp_path: Path) -> None:
    graph, other = grouped(seed=2), grouped(seed=5)
    for steps in ("auto", 4):
        found = gv.LPGNN(unit="none", seed=2, epochs=4, x_steps=steps).fit(graph)  # type: ignore[arg-type]
        found.save(tmp_path / str(steps))
        loaded = gv.load_model(tmp_path / str(steps))
        assert loaded.get_params() == found.get_params()
        assert torch.equal(loaded.predict_proba(other), found.predict_proba(other))


@pytest.mark.parametrize("kind", [gv.LPGNN, gv.SimGAT])
@pytest.mark.parametrize("name", ["x_steps", "y_steps", "posterior_steps"])
@pytest.mark.parametrize("wrong", ["many", "Auto", "", "4", -1, 2.5, True, None])
def test_rejects_other_words_for_steps(kind: type, name: str, wrong: object) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        kind(unit="local-attributes", eps_x=1.0, eps_y=1.0, **{name: wrong})
