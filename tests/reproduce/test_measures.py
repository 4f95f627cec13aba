"""Measures of cells on a small graph, and scores against scikit-learn."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from graphveil.estimators.gap import GAP
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.papers.as_published.measures import (
    Measurement,
    MeasurementPaths,
    budget_of_one,
    macro_f1,
    mean_auc,
    measure,
)
from graphveil.papers.as_published.target import Work

PLACES = MeasurementPaths(root=None)
EDGES = {"unit": "undirected-edge", "delta": 1e-4, "epochs": 2}
LOCAL = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 1.0, "epochs": 2}


def found(name: str, method: str, parameters: dict[str, Any], **options: Any) -> Measurement:
    work = Work(
        measure=name,
        method=method,
        dataset="synthetic/tiny",
        recipe="gap",
        seed=1,
        parameters=parameters,
        options=options,
    )
    return measure(work, PLACES)


def test_scores_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, proba = rng.integers(3, size=200), rng.dirichlet((1, 1, 1), size=200)
    predicted = proba.argmax(axis=1)
    assert macro_f1(truth, predicted) == pytest.approx(f1_score(truth, predicted, average="macro"))
    expected = roc_auc_score(truth, proba, multi_class="ovr", average="macro")
    assert mean_auc(truth, proba) == pytest.approx(expected)
    sets, proba = rng.random((200, 4)) < 0.3, rng.random((200, 4))
    assert macro_f1(sets, proba > 0.5) == pytest.approx(f1_score(sets, proba > 0.5, average="macro"))
    assert mean_auc(sets, proba) == pytest.approx(roc_auc_score(sets, proba, average="macro"))


def test_ranking_is_measured_on_test_nodes() -> None:
    parameters = {"unit": "none", "epochs": 2, "tuned": False}
    values, accuracies = (found(name, "mlp", parameters).values for name in ("ranking", "fit"))
    assert set(values) == {"roc_auc", "average_precision", "test", "val"}
    assert all(0 <= value <= 1 for value in values.values())
    assert {name: values[name] for name in ("test", "val")} == accuracies


@pytest.mark.parametrize("hops", [2, 5])
def test_one_hop_has_the_noise_of_several(hops: int) -> None:
    sizes = PublicSizes(nodes=1000, classes=5)
    keywords = GAP(**EDGES, epsilon=4.0, hops=hops).get_params()
    epsilon = budget_of_one(GAP, keywords, sizes)
    plans = [GAP(**EDGES, epsilon=e, hops=k).config.plan(sizes) for e, k in ((4.0, hops), (epsilon, 1))]
    several, alone = (plan.noise_std[-1] for plan in plans if plan is not None)
    assert alone == pytest.approx(several, rel=1e-3)
    assert epsilon < 4.0


def test_one_hop_with_the_noise_of_several_costs_less() -> None:
    one = found("depth_one", "gap", {**EDGES, "epsilon": 4.0, "hops": 4})
    assert one.cost is not None and one.cost["epsilon"] < 2.5
    assert set(one.values) == {"test", "val"}


def test_private_share_of_the_edges() -> None:
    gcn = {"epochs": 20, "unit": "edge-subset", "epsilon": 1.0, "perturb": "lap-graph"}
    released = found("private_share", "gcn", gcn, fraction=0.2)
    assert released.cost is not None and released.cost["unit"] == "edge-subset"
    whole, nothing = (
        found("private_share", "gcn", {"epochs": 20, "unit": "none"}, fraction=share, public_alone=alone)
        for share, alone in ((0.0, True), (1.0, True))
    )
    assert whole.values["test"] > nothing.values["test"]  # edges are informative
    assert set(whole.values) == {"test", "val", "macro_f1", "roc_auc"}


@pytest.mark.parametrize("kind", ["ohd", "one", "rnd"])
def test_uninformative_features(kind: str) -> None:
    made = found("plain_features", "lpgnn", {**LOCAL, "eps_x": math.inf}, features=kind)
    assert set(made.values) == {"test", "val"}


def test_adaptive_attacker_reconstructs_more_with_less_noise() -> None:
    little, much = (
        found("records", "-", {"features": "multi-bit", "eps_x": eps_x}).values for eps_x in (1.0, math.inf)
    )
    assert abs(little["r2_of_mean"]) < 0.1
    assert much["r2"] > 0.9 > 0.1 > little["r2"] and much["identified"] > 0.9


def test_links_are_inferred_without_privacy() -> None:
    made = found("links", "gcn", {"unit": "none", "epochs": 20})
    assert made.values["auc"] > 0.8 > made.values["by_features"]


def test_graph_too_small_for_a_shadow_graph_is_a_rejected_cell() -> None:
    assert (
        "shadow graph" in found("membership", "mlp", {"unit": "none", "tuned": False, "epochs": 1}).rejected
    )
