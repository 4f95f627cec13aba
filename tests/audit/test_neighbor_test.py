"""Neighbor tests of functions: each kind of fault is found, and sound mechanisms are not refuted."""

from typing import Any

import numpy as np
import pytest
import torch

from graphveil.audit import NoiseRecorder, SmallGraph, neighbor_test
from graphveil.audit.small_graphs import neighbors_of, pairs_of
from graphveil.errors import ConfigError

EDGE = "undirected-edge"


def sums(graph: SmallGraph) -> torch.Tensor:
    return torch.from_numpy(graph.a.T @ np.eye(3)[graph.y])


def test_function_of_the_graph_is_compared_with_its_sensitivity() -> None:
    found = neighbor_test(sums, unit=EDGE, sensitivity=1.0, pairs=30)
    assert found.broken
    assert found.kinds == ("change",)
    assert found.largest_mu == pytest.approx(2**0.5)
    assert not neighbor_test(sums, unit=EDGE, sensitivity=2**0.5, pairs=120).broken
    assert not neighbor_test(sums, unit="directed-edge", sensitivity=1.0, pairs=120).broken


def test_rejects_incomplete_claims_and_unknown_units() -> None:
    with pytest.raises(ConfigError, match="sensitivity="):
        neighbor_test(sums, unit=EDGE, epsilon=1.0)
    with pytest.raises(ConfigError, match="missing or given twice"):
        neighbor_test(mean, unit=EDGE)
    with pytest.raises(ConfigError, match="did you mean 'undirected-edge'"):
        neighbor_test(sums, unit="undirected-edges", sensitivity=1.0)


def mean(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(sums(graph).numpy() / np.maximum(graph.a.sum(axis=0), 1)[:, None], 2.0)


def without_isolated_nodes(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(sums(graph)[torch.from_numpy(graph.a.sum(axis=0) > 0)], 2.0)


def steps_by_number_of_edges(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.laplace(1.0, 1.0)
    if graph.a.sum() > 6:
        noise.laplace(2.0, 1.0)


def division_by_edges(graph: SmallGraph, noise: NoiseRecorder) -> None:
    with np.errstate(all="ignore"):
        noise.laplace(1 // int(graph.a.sum()), 1.0)


def noise_by_number_of_edges(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(0.0, 1 + graph.a.sum())


def noise_used_twice(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.gaussian(graph.a.sum(), 100.0, stream=7)
    noise.gaussian(0.0, 100.0, stream=7)


def exact_count(graph: SmallGraph, noise: NoiseRecorder) -> dict[str, Any]:
    noise.laplace(graph.a.sum(), 2.0)
    return {"nodes": graph.nodes, "edges": len(graph.edges)}


def exact_bit(graph: SmallGraph, noise: NoiseRecorder) -> None:
    noise.release(graph.a.sum() > 4)


@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [
        (without_isolated_nodes, "shape"),
        (steps_by_number_of_edges, "control flow"),
        (division_by_edges, "control flow"),
        (noise_by_number_of_edges, "noise scale"),
        (noise_used_twice, "reused noise"),
        (exact_count, "exact output"),
        (exact_bit, "exact output"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_kind_of_fault_is_found(mechanism: Any, kind: str) -> None:
    found = neighbor_test(mechanism, unit=EDGE, epsilon=20.0, delta=1e-6, pairs=100)
    assert kind in found.kinds
    assert found.broken


def test_smaller_bound_than_the_true_one_is_refuted() -> None:
    assert not neighbor_test(mean, unit=EDGE, mu=1.0, pairs=120).broken
    assert neighbor_test(mean, unit=EDGE, mu=0.5, pairs=120).kinds == ("change",)


def test_equal_noise_on_equal_values_is_not_refuted() -> None:
    def repeated(graph: SmallGraph, noise: NoiseRecorder) -> None:
        for _ in range(3):
            noise.gaussian(graph.a.sum() / 2, 2.0, stream="kept")

    assert not neighbor_test(repeated, unit=EDGE, mu=0.5, pairs=200).broken


def test_steps_that_follow_from_answers_are_not_refuted() -> None:
    def adaptive(graph: SmallGraph, noise: NoiseRecorder) -> np.ndarray:
        count = float(noise.laplace(graph.a.sum() / 2, 2.0))
        if count > 5:  # the next step follows from the answer
            noise.flip(graph.a[np.triu_indices(graph.nodes, 1)] > 0, 0.5)
        else:
            noise.laplace(np.zeros(3), max(count, 1.0))
        return np.full(max(1, round(abs(count))), count)

    assert not neighbor_test(adaptive, unit=EDGE, epsilon=1.0, pairs=100).broken
    assert neighbor_test(adaptive, unit=EDGE, epsilon=0.99, pairs=100).kinds == ("change",)


def test_secret_samples_are_judged_by_counts_of_runs() -> None:
    def sampled(graph: SmallGraph, noise: NoiseRecorder) -> None:
        kept = noise.hidden.random(graph.nodes) < 0.5
        noise.laplace((graph.y[kept] == 0).sum(), 1.0)

    found = neighbor_test(sampled, unit="local-attributes", epsilon=1.0, pairs=2, runs=1000)
    assert found.hidden
    assert not found.broken
    assert "counts of runs" in str(found)


def test_mechanism_that_ignores_the_graph_has_no_loss() -> None:
    found = neighbor_test(lambda graph, noise: noise.laplace(0.0, 1.0), unit="node", epsilon=0.0, pairs=50)
    assert not found.broken
    assert found.largest == 0.0


def test_result_as_text_and_json() -> None:
    found = neighbor_test(mean, unit=EDGE, mu=0.1, pairs=40)
    assert "BROKEN by 40 pairs" in str(found)
    assert "one graph:" in str(found)
    assert found.as_dict()["findings"][0]["kind"] == "change"
    same = neighbor_test(mean, unit=EDGE, mu=0.1, pairs=40)
    assert [str(f) for f in same.findings] == [str(f) for f in found.findings]


def test_custom_neighbors() -> None:
    def two_nodes(rng: np.random.Generator) -> tuple[SmallGraph, SmallGraph]:
        empty = SmallGraph.from_edges(2, [], directed=False, rng=rng)
        return empty, empty.toggle_edge((0, 1))

    found = neighbor_test(sums, unit="mine", sensitivity=2**0.5, neighbors=two_nodes, pairs=5)
    assert found.largest_mu == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    "unit", ["undirected-edge", "directed-edge", "node-record", "node", "local-attributes"]
)
def test_neighbors_differ_by_their_unit(unit: str) -> None:
    sizes = set()
    for (first, second), _ in zip(pairs_of(neighbors_of(unit), 3), range(300), strict=False):
        sizes.add(first.nodes)
        assert first.nodes == second.nodes
        assert first.directed == (unit in ("directed-edge", "node-record"))
        assert first.directed or (first.a == first.a.T).all()
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
    assert 9 < max(sizes) <= 32
