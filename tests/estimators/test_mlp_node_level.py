"""The tuned MLP under node-level units: softmax regression with public settings."""

from typing import Any

import pytest
import torch

from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.events import ByGroup, compose
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.data import Graph
from graphveil.errors import GraphError
from graphveil.estimators import mlp
from graphveil.estimators.mlp import MLP, NodeLevelSoftmax, PrivateMLP
from graphveil.estimators.public_sizes import PublicSizes, members
from graphveil.papers import as_published
from tests.estimators.conftest import grouped

NODE_RECORD: dict[str, Any] = {"unit": "node-record", "epsilon": 4.0, "delta": 1e-5, "seed": 1}
SIZES = PublicSizes(nodes=20_000, classes=5, features=100, train_records=15_000)


def fitted(graph: Graph, **options: Any) -> MLP:
    return MLP(**{**NODE_RECORD, "unsafe_noise_seed": 1, **options}).fit(graph)


@pytest.mark.parametrize("counted", [False, True])
def test_every_record_is_charged_at_most_the_budget(counted: bool) -> None:
    """Training records are charged mu, the others mu or nothing: validation records train or are counted."""
    bounded_degree = {"unit": "node-bounded-degree", "max_degree": 40}
    for changes in ({}, {"replace_one": True}, bounded_degree, {**bounded_degree, "replace_one": True}):
        mlp = MLP(**{**NODE_RECORD, **changes, "private_metrics": counted})
        plan, unit = mlp.config.plan(SIZES), mlp.protected_unit
        assert plan is not None
        each: list[list[Any]] = [[], [], []]
        for query in plan.queries:
            event = query.event(unit)
            for group, events in enumerate(each):
                events.append(event.events[group] if isinstance(event, ByGroup) else event)
        mu = mu_of(4.0, 1e-5)
        charged = [total_mu(compose(*events)) or 0.0 for events in each]
        assert charged == pytest.approx([mu, mu, mu if counted else 0.0], rel=1e-3)
        assert max(charged) <= mu, "a record is charged more than epsilon"


def test_the_steps_are_one_gaussian_with_a_golden_multiplier() -> None:
    """z = sqrt(60) / mu with mu = 0.26805112 at epsilon 1, delta 1e-5."""
    plan = MLP(**{**NODE_RECORD, "epsilon": 1.0}).config.plan(SIZES)
    assert plan is not None
    (steps,) = plan.queries
    assert isinstance(steps, DPSGDQuery)
    assert (steps.steps, steps.sampling_rate, steps.parameters) == (60, 1.0, 101 * 5)
    assert steps.noise_multiplier == pytest.approx(60**0.5 / 0.26805112, rel=1e-3)


@pytest.mark.parametrize("options", [{"hidden": 8}, {"epochs": 3}, {"layers": 3}, {"clip": 2.0}])
def test_network_keywords_select_the_small_mlp(options: dict[str, Any]) -> None:
    assert isinstance(MLP(**NODE_RECORD).config, NodeLevelSoftmax)
    assert isinstance(MLP(**NODE_RECORD, **options).config, PrivateMLP)
    assert isinstance(as_published.MLP(**NODE_RECORD).config, PrivateMLP)


def test_the_small_one_can_be_requested() -> None:
    assert isinstance(MLP(**NODE_RECORD, tuned=False).config, PrivateMLP)


@pytest.mark.parametrize("counted", [False, True])
def test_labels_that_are_not_charged_are_not_read(counted: bool) -> None:
    """Change every label that is not charged: predictions are bit-identical."""
    graph = grouped(nodes=60)
    silent = members(graph, "test")
    if counted:
        silent = torch.cat([silent, members(graph, "val")])
    y = graph.y.clone()
    y[silent] = (y[silent] + 1) % graph.num_classes
    one, other = (fitted(part, private_metrics=counted) for part in (graph, graph.replace(y=y)))
    assert torch.equal(one.predict_proba(), other.predict_proba()), "a label that is not charged is read"


def test_settings_do_not_depend_on_the_number_of_labels() -> None:
    """The step size follows from membership; a training record without a label changes no setting."""
    graph, seen = grouped(nodes=600), list[float]()  # so many that the step size is not at a limit
    y = graph.y.clone()
    y[members(graph, "train")[:200]] = -1
    with pytest.MonkeyPatch.context() as patch:
        shipped = mlp.fit_softmax

        def noting(*data: Any, **more: Any) -> Any:
            seen.append((data[-1], len(data[3])))
            return shipped(*data, **more)

        patch.setattr(mlp, "fit_softmax", noting)
        for one in (graph, graph.replace(y=y)):
            fitted(one, epsilon=16.0)
    assert seen[0] == seen[1], "a setting follows from private labels"


@pytest.mark.parametrize("private_metrics", [False, True])
def test_the_memory_check_reads_no_label(private_metrics: bool) -> None:
    """It needs and prints the same with and without labels, before anything is charged."""
    graph, errors = grouped(nodes=600), list[str]()
    y = graph.y.clone()
    y[members(graph, "train")[::2]] = -1
    for one in (graph, graph.replace(y=y)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("graphveil._util.process.free", lambda: 60_000)
            with pytest.raises(GraphError, match="copies of") as caught:
                fitted(one, private_metrics=private_metrics)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "480 nodes" in errors[0]


def test_learns_and_can_be_saved(tmp_path: Any) -> None:
    from graphveil.estimators.saved import load_model

    graph = grouped(nodes=600)
    model = fitted(graph, epsilon=16.0)
    assert model.score(graph) > 0.5  # 1/3 is chance, and features give at most 0.6
    model.save(tmp_path)
    again = load_model(tmp_path)
    other = grouped(nodes=50)
    assert torch.equal(again.predict_proba(other), model.predict_proba(other))
