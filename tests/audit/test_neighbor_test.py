"""Replays: each kind of fault is found by its kind, and mechanisms without it are not accused."""

from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.audit import NoiseRecorder, PrivacyClaim, SmallGraph
from graphveil.audit.noise import LossLowerBound
from graphveil.audit.small_graphs import draw_graph, neighbors_of, pairs_of
from graphveil.errors import ConfigError

EDGE = "undirected-edge"


def sums(graph: SmallGraph) -> torch.Tensor:
    return torch.from_numpy(graph.a.T @ np.eye(3)[graph.y])


def test_a_function_of_the_graph_is_measured_against_its_sensitivity() -> None:
    found = gv.audit.neighbor_test(sums, unit=EDGE, sensitivity=1.0, pairs=30)
    assert found.broken
    assert found.kinds == ("change",)
    assert found.largest_mu == pytest.approx(2**0.5)
    assert not gv.audit.neighbor_test(sums, unit=EDGE, sensitivity=2**0.5, pairs=300).broken
    assert not gv.audit.neighbor_test(sums, unit="directed-edge", sensitivity=1.0, pairs=300).broken


def test_a_lone_function_without_noise_needs_a_sensitivity() -> None:
    with pytest.raises(ConfigError, match="sensitivity="):
        gv.audit.neighbor_test(sums, unit=EDGE, epsilon=1.0)
    with pytest.raises(ConfigError, match="one of both"):
        gv.audit.neighbor_test(mean, unit=EDGE)
    with pytest.raises(ConfigError, match="did you mean 'undirected-edge'"):
        gv.audit.neighbor_test(sums, unit="undirected-edges", sensitivity=1.0)


def mean(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(sums(graph).numpy() / np.maximum(graph.a.sum(axis=0), 1)[:, None], 2.0)


def isolated_dropped(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(sums(graph)[torch.from_numpy(graph.a.sum(axis=0) > 0)], 2.0)


def stops_when_enough(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.laplace(1.0, 1.0)
    if graph.a.sum() > 6:
        noise.laplace(2.0, 1.0)


def divides_by_edges(graph: SmallGraph, noise: NoiseRecorder) -> None:
    with np.errstate(all="ignore"):
        noise.laplace(1 // int(graph.a.sum()), 1.0)


def scaled_by_degree(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(0.0, 1 + graph.a.sum())


def noise_twice(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(graph.a.sum(), 100.0, stream=7)
    noise.gaussian(0.0, 100.0, stream=7)


def an_exact_count_beside(graph: SmallGraph, noise: NoiseRecorder) -> dict[str, Any]:
    noise.laplace(graph.a.sum(), 2.0)
    return {"nodes": graph.nodes, "edges": len(graph.edges)}


def released_as_it_is(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.release(graph.a.sum() > 4)


@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [
        (isolated_dropped, "shape"),
        (stops_when_enough, "control flow"),
        (divides_by_edges, "control flow"),
        (scaled_by_degree, "noise scale"),
        (noise_twice, "reused noise"),
        (an_exact_count_beside, "exact output"),
        (released_as_it_is, "exact output"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_kind_of_fault_is_found(mechanism: Any, kind: str) -> None:
    found = gv.audit.neighbor_test(mechanism, unit=EDGE, epsilon=20.0, delta=1e-6, pairs=300)
    assert kind in found.kinds
    assert found.broken


def test_a_mean_is_within_its_bound_and_a_smaller_bound_is_refuted() -> None:
    assert not gv.audit.neighbor_test(mean, unit=EDGE, mu=1.0, pairs=300).broken
    assert gv.audit.neighbor_test(mean, unit=EDGE, mu=0.5, pairs=300).kinds == ("change",)


def test_what_depends_on_answers_alone_is_not_accused() -> None:
    def adaptive(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
        count = float(noise.laplace(graph.a.sum() / 2, 2.0))
        if count > 5:  # what is asked next follows from the answer
            noise.flip(graph.a[np.triu_indices(graph.nodes, 1)] > 0, 0.5)
        else:
            noise.laplace(np.zeros(3), max(count, 1.0))
        return np.full(max(1, round(abs(count))), count)

    assert not gv.audit.neighbor_test(adaptive, unit=EDGE, epsilon=1.0, pairs=400).broken
    assert gv.audit.neighbor_test(adaptive, unit=EDGE, epsilon=0.99, pairs=400).kinds == ("change",)


def test_equal_noise_on_equal_values_tells_nothing_more() -> None:
    def repeated(graph: SmallGraph, noise: NoiseRecorder) -> None:
        for _ in range(3):
            noise.gaussian(graph.a.sum() / 2, 2.0, stream="kept")

    assert not gv.audit.neighbor_test(repeated, unit=EDGE, mu=0.5, pairs=200).broken


def test_secret_samples_are_judged_by_counts_and_a_sound_one_is_not_accused() -> None:
    def sampled(graph: SmallGraph, noise: NoiseRecorder) -> None:
        kept = noise.hidden.random(graph.nodes) < 0.5
        noise.laplace((graph.y[kept] == 0).sum(), 1.0)

    found = gv.audit.neighbor_test(sampled, unit="local-attributes", epsilon=1.0, pairs=15, runs=1500)
    assert found.hidden
    assert not found.broken
    assert "counts of runs" in str(found)


def test_a_mechanism_that_ignores_the_graph_tells_nothing() -> None:
    found = gv.audit.neighbor_test(
        lambda graph, noise: noise.laplace(0.0, 1.0), unit="node", epsilon=0.0, pairs=50
    )
    assert not found.broken
    assert found.largest == 0.0


def test_a_report_is_read_and_stored() -> None:
    found = gv.audit.neighbor_test(mean, unit=EDGE, mu=0.1, pairs=40)
    assert "BROKEN by 40 pairs" in str(found)
    assert "one graph:" in str(found)
    assert found.as_dict()["findings"][0]["kind"] == "change"
    same = gv.audit.neighbor_test(mean, unit=EDGE, mu=0.1, pairs=40)
    assert [str(f) for f in same.findings] == [str(f) for f in found.findings]


def test_neighbors_of_the_callers_own() -> None:
    def two_nodes(rng: np.random.Generator) -> tuple[SmallGraph, SmallGraph]:
        empty = SmallGraph.from_edges(2, [], directed=False, rng=rng)
        return empty, empty.toggle_edge((0, 1))

    found = gv.audit.neighbor_test(sums, unit="mine", sensitivity=2**0.5, neighbors=two_nodes, pairs=5)
    assert found.largest_mu == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    "unit", ["undirected-edge", "directed-edge", "node-record", "node", "local-attributes"]
)
def test_neighbors_differ_as_their_unit_says(unit: str) -> None:
    sizes = set()
    for (first, second), _ in zip(pairs_of(neighbors_of(unit), 3), range(300), strict=False):
        sizes.add(first.nodes)
        assert first.nodes == second.nodes
        assert first.directed == (unit in ("directed-edge", "node-record"))
        changed = set(first.edges) ^ set(second.edges)
        records = np.flatnonzero((first.x != second.x).any(axis=1) | (first.y != second.y))
        assert len(records) <= 1
        assert all(u != v for u, v in first.edges)
        if unit.endswith("edge"):
            assert len(changed) == (1 if unit == "directed-edge" else 2)
            assert not len(records)
        elif unit == "local-attributes":
            assert not changed
        elif unit == "node-record":
            assert len({u for u, _ in changed}) <= 1
        else:
            q = set.intersection(*({u, v} for u, v in changed)) if changed else {0}
            assert q
    assert min(sizes) <= 2
    assert max(sizes) > 9


def test_undirected_graphs_hold_both_directions() -> None:
    for seed in range(60):
        graph = draw_graph(np.random.default_rng(seed), directed=False)
        assert (graph.a == graph.a.T).all()
        assert graph.nodes <= 32


def test_a_claim_is_compared_at_its_own_delta() -> None:
    assert PrivacyClaim(epsilon=1.0).is_satisfied_by(LossLowerBound(pure=1.0))
    assert not PrivacyClaim(epsilon=1.0).is_satisfied_by(LossLowerBound(pure=1.0001))
    assert not PrivacyClaim(epsilon=1.0).is_satisfied_by(LossLowerBound(mu_squared=1e-6))
    assert PrivacyClaim(mu=0.5).is_satisfied_by(LossLowerBound(mu_squared=0.25))
    assert not PrivacyClaim(mu=0.5).is_satisfied_by(LossLowerBound(mu_squared=0.2501))
    assert not PrivacyClaim(mu=0.5).is_satisfied_by(LossLowerBound(certain=1.0))
