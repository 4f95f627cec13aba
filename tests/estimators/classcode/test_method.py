"""ClassCode's frozen methods: plans follow from public sizes, and a fit comes back from its weights."""

from typing import Any

import pytest
import torch

from graphveil._util.random import PublicStreams
from graphveil.errors import ArtifactError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.method import TrainedModel
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from tests.estimators.conftest import grouped

EDGES: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-5, "seed": 0}
RECORDS: dict[str, Any] = {**EDGES, "unit": "node-record"}
SIZES = {"num_nodes": 150, "num_classes": 3}

pytestmark = pytest.mark.usefixtures("quick_classcode")


@pytest.mark.parametrize("options", [EDGES, RECORDS], ids=lambda options: options["unit"])
def test_a_plan_is_the_same_before_and_after_a_preview_and_a_fit(options: dict[str, Any]) -> None:
    model, graph = ClassCode(**options), grouped()
    before = model.plan(**SIZES)
    previewed = model.preview(graph)
    assert model.plan(**SIZES) == before
    assert model.fit(graph).plan_ == previewed.plan
    assert model.plan(**SIZES) == before


def test_a_public_number_of_labels_decides_about_few_labels_and_records_have_none() -> None:
    graph = grouped()
    few = graph.with_split(torch.arange(150) < 9, torch.arange(150) // 9 == 1, torch.arange(150) >= 18)
    edges, records = ClassCode(**EDGES).config, ClassCode(**RECORDS).config
    assert [edges.sizes_of(one).labeled for one in (graph, few)] == [120, 18]
    assert records.sizes_of(few).labeled is None
    assert [len(ClassCode(**EDGES).preview(one).plan.queries) for one in (graph, few)] == [1, 3]


def test_parameters_that_are_set_later_reach_neither_price_nor_prediction() -> None:
    model, other = ClassCode(**EDGES).fit(grouped()), grouped(seed=1)
    privacy_cost = model.privacy_cost(other)
    model.set_params(few_labels=True, weights="half_cos", epsilon=0.1)
    assert model.privacy_cost(other) == privacy_cost
    assert sum(model.gate_) == 1.0


def answered(trained: TrainedModel, sizes: PublicSizes) -> torch.Tensor:
    other = grouped(seed=1)
    plan = trained.plan_for(trained.sizes_for(other, sizes))
    return trained.answer(other, Session(streams=PublicStreams(0), plan=plan, noise_seed=5), None).proba


@pytest.mark.parametrize(
    "options", [{}, {"self_training": True}, {"weights": "learned_public"}, {"few_labels": True}], ids=str
)
def test_a_fit_at_edge_level_comes_back_from_its_weights(options: dict[str, Any]) -> None:
    fit = ClassCode(**EDGES, **options).fit(grouped()).fitted
    again = fit.method.restore(fit.trained.state(), fit.sizes, fit.released)
    assert_same(again, fit.trained)
    assert torch.equal(answered(again, fit.sizes), answered(fit.trained, fit.sizes))


@pytest.mark.parametrize("reads", [False, True])
def test_a_fit_on_records_comes_back_from_its_weights_and_from_no_others(reads: bool) -> None:
    fit = ClassCode(**RECORDS, read_own_edges=reads).fit(grouped()).fitted
    state = fit.trained.state()
    assert_same(fit.method.restore(state, fit.sizes, fit.released), fit.trained)
    for name in ("encoder", "decider"):
        with pytest.raises(ArtifactError, match="not those of 8 features and 3 classes"):
            fit.method.restore({**state, name: state[name][1:]}, fit.sizes, fit.released)


def assert_same(one: TrainedModel, other: TrainedModel) -> None:
    states = one.state(), other.state()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
