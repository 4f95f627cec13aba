"""GAP with edge weights: inputs, noise, saved models and resumed fits."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphveil.backends import Memory
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.ledger import ledger_of
from graphveil.errors import ConfigError
from graphveil.estimators.gap import GAP
from graphveil.estimators.saved import load_model
from graphveil.papers import as_published
from graphveil.papers.as_published import renyi
from graphveil.papers.weights import SigmoidCos
from tests.estimators.conftest import PAIR_WEIGHTS, Queries
from tests.estimators.interrupted import InterruptedFit

STRICT: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-7, "seed": 0, "epochs": 4}


@pytest.mark.parametrize("weights", PAIR_WEIGHTS)
def test_every_edge_weight_meets_the_budget(make_graph: Callable[..., Any], weights: str) -> None:
    graph = make_graph(as_sparse=True)
    model = GAP(**STRICT, weights=weights).fit(graph)
    assert model.guarantee.valid
    assert model.guarantee.epsilon <= 2.0
    assert len(ledger_of(graph.edge_set).entries) == 1
    assert model.predict_proba().shape == (graph.num_nodes, graph.num_classes)


def test_noise_follows_the_bound_of_the_edge_weight() -> None:
    plain, weighted = (
        GAP(**STRICT, weights=weights).plan(num_nodes=1000, num_classes=6)
        for weights in ("one", "sigmoid_cos")
    )
    assert weighted.noise_std == pytest.approx([SigmoidCos().bound * std for std in plain.noise_std])
    assert weighted.noise_std == pytest.approx([2 * 0.731058578630 / mu_of(2.0, 1e-7)] * 2, rel=2e-3)
    assert weighted.epsilon == pytest.approx(plain.epsilon, rel=1e-4)
    assert [query.sensitivity(weighted.unit) for query in weighted.queries] == pytest.approx([1.03387295] * 2)


def test_gap_as_published_charges_sensitivity_one(make_graph: Callable[..., Any]) -> None:
    paper = {**STRICT, "weights": "sigmoid_cos"}
    for unit, directed in (("undirected-edge", False), ("directed-edge", True)):
        model = as_published.GAP(**{**paper, "unit": unit}).fit(make_graph(directed=directed))
        assert model.plan_.noise_std == pytest.approx([math.sqrt(2) / renyi.mu_of(2.0, 1e-7)] * 2)
        assert any("one row of norm one" in why for why in model.guarantee.deviations)
        assert not model.guarantee.valid
    plain = as_published.GAP(**{**paper, "weights": "one"}).fit(make_graph())
    assert not any("one row of norm one" in why for why in plain.guarantee.deviations)


def test_edge_weights_are_the_same_in_every_hop(graph: Any, queries: Queries) -> None:
    GAP(**STRICT, weights="half_cos", hops=3).fit(graph)
    assert all(torch.equal(keys, queries[0][0]) for _, keys in queries)


def test_edge_weights_read_features_probabilities_or_learned_vectors(graph: Any, queries: Queries) -> None:
    for weights in ("jaccard", "class_agree", "learned_public"):
        GAP(**STRICT, weights=weights, hops=1).fit(graph)
    (_, features), (_, probabilities), (_, learned) = queries
    assert features is graph.x
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(graph.num_nodes))
    assert probabilities.shape == (graph.num_nodes, graph.num_classes)
    assert learned.shape == (graph.num_nodes, 16)


def test_learned_vectors_are_similar_for_equal_labels(
    make_graph: Callable[..., Any], queries: Queries
) -> None:
    graph = make_graph(nodes=600)
    GAP(**{**STRICT, "epochs": 30}, weights="learned_public", hops=1).fit(graph)
    rows = torch.nn.functional.normalize(queries[0][1], dim=1)[graph.labeled_in("train")]
    cosine, y = rows @ rows.t(), graph.y[graph.labeled_in("train")]
    agree = y[:, None] == y
    assert float(cosine[agree].mean()) > float(cosine[~agree].mean()) + 0.05  # 0.10 to 0.13 is usual


def test_edge_weights_of_one_do_not_affect_results(make_graph: Callable[..., Any]) -> None:
    options = {**STRICT, "unsafe_noise_seed": 7}
    first, second = (GAP(**options, **more).fit(make_graph()) for more in ({}, {"weights": "one"}))
    assert torch.equal(first.predict_proba(), second.predict_proba())


def test_unit_none_charges_nothing(graph: Any) -> None:
    model = GAP(unit="none", seed=0, epochs=4, weights="relu_cos").fit(graph)
    assert not ledger_of(graph.edge_set).entries
    assert torch.equal(model.predict_proba(), model.predict_proba(graph))


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("weights", ["learned_public", "class_agree(0.2)", "exp_cos(0.5)"])
def test_a_saved_model_predicts_other_graphs(
    make_graph: Callable[..., Any], tmp_path: Path, weights: str
) -> None:
    model = GAP(**STRICT, unsafe_noise_seed=3, weights=weights).fit(make_graph())
    model.save(tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert loaded.get_params()["weights"] == weights
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    other = make_graph(seed=1)
    assert torch.equal(loaded.predict_proba(other, allow_spend=True), model.predict_proba(make_graph(seed=1)))
    assert len(ledger_of(other.edge_set).entries) == 1


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize("weights", ["learned_public", "posterior_dot"])
def test_a_resumed_fit_sends_the_same_inputs_of_edge_weights(
    make_graph: Callable[..., Any], tmp_path: Path, weights: str
) -> None:
    class Interrupted(Memory):
        """A backend that fails when the first hop reads edges."""

        def blocks(self, adjacency: Any, first: int = 0) -> Any:
            raise InterruptedFit

    options = {**STRICT, "unsafe_noise_seed": 5, "weights": weights}
    whole, graph = GAP(**options).fit(make_graph(), workspace=tmp_path / "whole"), make_graph()
    with pytest.raises(InterruptedFit):
        GAP(**options).fit(graph, workspace=tmp_path / "run", backend=Interrupted())
    resumed = GAP(**options).fit(graph, workspace=tmp_path / "run")
    assert torch.equal(resumed.predict_proba(), whole.predict_proba())
    assert len(ledger_of(graph.edge_set).entries) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "sigmoid"}, "not a known weight"),
        ({"weights": "softmax"}, "not a known weight"),
        ({"weights": "attention", "unit": "none", "epsilon": None}, "trained on the edges"),
        ({"weights": "one", "attention_steps": 10}, "attention_steps has an effect only"),
        ({"weights": "class_agree", "use_encoder": False}, "Use use_encoder=True"),
        (
            {"weights": "half_cos", "unit": "node-record", "out_degree_bound": 4, "delta": 1e-5},
            "node-level units protect",
        ),
    ],
)
def test_rejects_invalid_configurations(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GAP(**{**STRICT, **options})
