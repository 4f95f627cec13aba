from typing import Any

import numpy as np
import pytest

import graphveil as gv
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators import METHODS


def test_the_steered_release_has_sensitivity_one() -> None:
    found = gv.calibrate("classcode", "undirected-edge", 1.0, 1e-7, noise="gaussian")
    assert found.sensitivity == 1
    assert found.noise_std[-1] == pytest.approx(4.6787, rel=1e-4)
    assert found.mu == pytest.approx(0.21373627, rel=1e-4)
    assert found.max_tpr_at_1pct_fpr == pytest.approx(0.0173, abs=1e-4)


def test_counts_of_neighbors_have_their_own_noise() -> None:
    found = gv.calibrate("classcode", "undirected-edge", 1.0, 1e-7)
    assert found.sensitivity == 1
    assert found.noise_std == pytest.approx([1.356962], rel=1e-5)
    assert found.max_tpr_at_1pct_fpr == pytest.approx(0.027183, rel=1e-4)


@pytest.mark.parametrize("method", ["gap", "classcode"])
def test_the_two_directions_are_inverse(method: str) -> None:
    noise = gv.calibrate(method, "undirected-edge", 2.0, 1e-6).noise_std[0]
    assert gv.calibrate(method, "undirected-edge", delta=1e-6, noise_std=noise).epsilon == pytest.approx(
        2, rel=1e-5
    )


@pytest.mark.parametrize(
    ("method", "config"),
    [("gap", {"out_degree_bound": 30}), ("mlp", {"batch_size": 256, "epochs": 5})],
)
def test_the_two_directions_are_inverse_under_units_of_records(method: str, config: dict[str, Any]) -> None:
    known = {"delta": 1e-5, "nodes": 10_000, **config}
    there = gv.calibrate(method, "node-record", 2.0, **known)
    back = gv.calibrate(method, "node-record", noise_std=there.noise_std[0], **known)
    assert back.epsilon == pytest.approx(2, rel=2e-3)
    assert back.noise_std == pytest.approx(there.noise_std, rel=2e-3)


def test_records_have_stages_with_payers() -> None:
    found = gv.calibrate("gap", "node-record", 4.0, 1e-5, out_degree_bound=30, nodes=18_000)
    assert [stage.kind for stage in found.stages] == ["training", "push", "training"]
    assert sum(stage.share for stage in found.stages) == pytest.approx(1)
    assert found.epsilon <= 4
    sampled = gv.calibrate("mlp", "node-record", 4.0, 1e-5, nodes=18_000, batch_size=256, epochs=5)
    assert sampled.mu is None
    assert sampled.stages[0].sampling_rate == pytest.approx(256 / 13_500, rel=1e-6)


def test_a_method_that_reads_no_edges_needs_no_noise() -> None:
    found = gv.calibrate("mlp", "undirected-edge", 1.0, 1e-7)
    assert (found.noise_std, found.epsilon, found.releases) == ((), 0.0, 0)


def test_delta_auto_needs_a_public_bound() -> None:
    with pytest.raises(ConfigError, match="max_units"):
        gv.calibrate("gap", "undirected-edge", 1.0)
    assert gv.calibrate("gap", "undirected-edge", 1.0, nodes=10**8).delta == 1e-9
    assert gv.calibrate("gap", "undirected-edge", 1.0, max_units=10**8).delta == 1e-9


def test_what_cannot_be_calibrated_is_rejected() -> None:
    with pytest.raises(UnitError, match="no noise can be calibrated"):
        gv.calibrate("gap", "none", 1.0, 1e-7)
    with pytest.raises(ConfigError, match="is needed, and both are given"):
        gv.calibrate("gap", "undirected-edge", 1.0, 1e-7, noise_std=2.0)
    with pytest.raises(ConfigError, match="is needed, and neither is given"):
        gv.calibrate("gap", "undirected-edge", delta=1e-7)
    with pytest.raises(ConfigError, match="did you mean 'hops'"):
        gv.calibrate("gap", "undirected-edge", 1.0, 1e-7, hoops=2)
    with pytest.raises(ConfigError, match="must be below 1/B"):
        gv.calibrate("gap", "undirected-edge", 1.0, 1e-3, nodes=10_000)


@pytest.mark.parametrize(
    ("method", "unit", "config"),
    [
        ("classcode", "node-record", {}),
        ("gap", "node-record", {"out_degree_bound": 4, "batch_size": 20, "epochs": 3}),
        ("mlp", "node-record", {"batch_size": 30, "epochs": 3}),
        ("gap", "undirected-edge", {"use_encoder": False}),
        ("classcode", "undirected-edge", {}),
    ],
)
def test_the_stated_noise_is_that_of_a_fit_with_the_stated_sizes(
    method: str, unit: str, config: dict[str, Any]
) -> None:
    graph = gv.load_dataset("synthetic/tiny", by_id=True)
    public = {
        "delta": 1e-5,
        "nodes": graph.num_nodes,
        "classes": graph.num_classes,
        "dim": graph.num_features,
    }
    labeled = None if unit == "node-record" else int((graph.train_mask | graph.val_mask).sum())
    known = {**public, "training": int(graph.train_mask.sum()), "labeled": labeled}
    found = gv.calibrate(method, unit, 4.0, **known, **config)
    fitted = METHODS[method](unit=unit, epsilon=4.0, delta=1e-5, **config).preview(graph).plan
    assert fitted is not None
    assert found.assumed == {}
    assert found.noise_std == tuple(fitted.noise_std)


def test_sizes_that_are_assumed_are_named() -> None:
    sampled = {"batch_size": 64, "epochs": 5, "delta": 1e-5}
    found = gv.calibrate("mlp", "node-record", 4.0, nodes=10_000, **sampled)
    assert found.assumed == {"classes": 10, "features": 500, "train_records": 7500}
    known = gv.calibrate("mlp", "node-record", 4.0, nodes=10_000, classes=3, dim=8, training=200, **sampled)
    assert known.assumed == {}
    assert known.noise_std[0] > 1.2 * found.noise_std[0]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_noise_of_links_is_that_of_a_fit(epsilon: float) -> None:
    found = gv.calibrate("links", "undirected-edge", epsilon, 1e-7)
    plan = (
        gv.LinkPredictor(unit="undirected-edge", epsilon=epsilon, delta=1e-7)
        .preview(gv.data.synthetic("tiny"))
        .plan
    )
    assert plan is not None
    assert found.noise_std == tuple(plan.noise_std)
    assert found.epsilon == plan.epsilon <= epsilon and found.releases == 1 and not found.assumed
    kinds = [stage.kind for stage in found.stages]
    assert kinds[:2] == ["neighbor counts (1 per node)", "edge products"]
    assert len(set(kinds)) == len(kinds)
    assert gv.calibrate("links", "undirected-edge", epsilon, 1e-7, held_out=0).noise_std != found.noise_std


def test_links_have_no_single_noise() -> None:
    with pytest.raises(ConfigError, match="--epsilon 1"):
        gv.calibrate("links", "undirected-edge", delta=1e-7, noise_std=4.0)
    with pytest.raises(ConfigError, match="dim does not affect"):
        gv.calibrate("links", "undirected-edge", 1.0, 1e-7, dim=10)


@pytest.mark.parametrize("unit", ["node-record", "directed-edge"])
def test_the_two_directions_are_inverse_for_a_recommender(unit: str) -> None:
    there = gv.calibrate("recommender", unit, 2.0, 1e-6)
    table = gv.Interactions.from_matrix(np.eye(30))
    plan = gv.Recommender(unit=unit, epsilon=2.0, delta=1e-6).preview(table).plan
    assert plan is not None and there.noise_std == tuple(plan.noise_std)
    back = gv.calibrate("recommender", unit, delta=1e-6, noise_std=there.noise_std[0])
    assert back.epsilon == pytest.approx(2, rel=1e-5) and back.epsilon <= 2 * (1 + 1e-5)


def test_the_default_delta_of_a_recommender_needs_a_bound_on_what_is_protected() -> None:
    assert gv.calibrate("recommender", "node-record", 2.0, nodes=1000).delta <= 1e-4
    with pytest.raises(ConfigError, match="entries"):
        gv.calibrate("recommender", "directed-edge", 2.0, nodes=1000)
