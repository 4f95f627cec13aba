"""Canaries in a training run: bounds of private methods are valid, and exact outputs are detected."""

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.audit.canaries import CanaryGraph, audit_training, insert_edges, insert_records
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator

N = 400


def graph() -> Graph:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    x = np.eye(3)[y] + rng.normal(0, 0.7, (N, 3))
    ends = rng.integers(N, size=(2, 3 * N))
    return Graph.from_edges(
        torch.from_numpy(x).float(), torch.from_numpy(y), ends[0], ends[1], directed=False
    )


def split(found: Graph) -> Graph:
    part = torch.arange(N) % 10
    return found.with_split(part < 7, part == 7, part > 7)


def test_only_canary_pairs_change_by_their_coins() -> None:
    plain = graph()
    found = insert_edges(plain, 150, np.random.default_rng(1))
    assert len(np.unique(found.places)) == 300
    assert 40 < found.present.sum() < 110

    def pairs(one: Graph) -> set[tuple[int, int]]:
        targets = np.repeat(np.arange(N), one.adjacency.indptr.diff().numpy())
        return set(zip(one.adjacency.indices.tolist(), targets.tolist(), strict=True))

    before, after = pairs(plain), pairs(found.graph)
    slots = {tuple(sorted(place)) for place in found.places.tolist()}
    assert {tuple(sorted(pair)) for pair in before ^ after} <= slots
    for (u, v), present in zip(found.places.tolist(), found.present, strict=True):
        assert ((u, v) in after) == ((v, u) in after) == present


def test_labels_of_records_are_removed_by_coins() -> None:
    found = insert_records(graph(), 100, np.random.default_rng(2))
    assert (found.graph.y[torch.from_numpy(found.places[~found.present])] == -1).all()
    assert (found.query_graph.y[torch.from_numpy(found.places)] >= 0).all()
    assert (found.graph.adjacency.indptr.diff()[torch.from_numpy(found.places)] == 0).all()


def test_bound_of_a_private_run_is_valid() -> None:
    model = gv.GAP(unit="undirected-edge", epsilon=1.0, delta=1e-5, seed=0, epochs=5, encoder_epochs=5)
    found = audit_training(model, graph(), split=split, canaries=150, seed=3)
    assert found.is_valid
    assert found.guesses == 30
    assert found.gaussian is not None
    assert found.bound.max_certifiable > found.claimed  # it could have seen more


def test_bound_of_a_private_run_on_records_is_valid() -> None:
    model = gv.MLP(unit="node-record", epsilon=2.0, delta=1e-4, seed=0)
    found = audit_training(model, graph(), split=split, canaries=150, seed=3)
    assert found.is_valid
    assert 80 < found.canaries < 130  # those that are trained on


def test_output_of_every_coin_reaches_the_maximum() -> None:
    def by_the_coins(model: Estimator, inserted: CanaryGraph) -> np.ndarray:
        return inserted.present + np.random.default_rng(0).random(len(inserted.present)) / 2

    model = gv.GCN(unit="none", seed=0, epochs=2)
    found = audit_training(model, graph(), split=split, canaries=200, seed=4, score=by_the_coins)
    assert found.correct == found.guesses == 40
    assert found.bound.epsilon == found.bound.max_certifiable > 1.5


def test_network_over_exact_edges_reveals_canaries() -> None:
    model = gv.GCN(unit="none", seed=0, epochs=60, hidden=16)
    found = audit_training(model, graph(), split=split, canaries=200, seed=4)
    assert found.correct > 0.6 * found.guesses


def test_rejects_too_many_canaries() -> None:
    with pytest.raises(ConfigError, match="distinct nodes"):
        insert_edges(graph(), N, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="records"):
        insert_records(graph(), N + 1, np.random.default_rng(0))
