"""Samples of edges that bound the degree."""

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.papers.as_published.edge_samples import sample_out_edges, sample_total_degree


def drawn(directed: bool, seed: int = 0) -> Adjacency:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(40, size=(2, 500))
    return Adjacency.from_edges(source, target, num_nodes=40, directed=directed)


def pairs(edges: Adjacency) -> set[tuple[int, int]]:
    return set(zip(*(ends.tolist() for ends in edges.edge_index()), strict=True))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_every_source_keeps_at_most_the_bound(directed, count):
    edges = drawn(directed)
    kept = sample_out_edges(edges, count, np.random.default_rng(1))
    before, after = (graph.edge_index()[0].bincount(minlength=40) for graph in (edges, kept))
    assert torch.equal(after, before.clamp(max=count))
    assert pairs(kept) <= pairs(edges)
    assert len(pairs(kept)) == len(kept.indices)
    assert kept.edge_set is edges.edge_set
    if count == 1000:
        assert torch.equal(kept.indices, edges.indices)


def test_edges_are_sampled_uniformly():
    star = Adjacency.from_edges([0] * 10, range(1, 11), num_nodes=11, directed=True)
    rng = np.random.default_rng(2)
    hits = sum(sample_out_edges(star, 3, rng).edge_index()[1].bincount(minlength=11) for _ in range(2000))
    assert hits[1:].tolist() == pytest.approx([600] * 10, abs=90)  # four standard deviations


def in_turn(edges: Adjacency, count: int, seed: int) -> set[tuple[int, int]]:
    """Keep edges one after the other, as long as there is room at both ends."""
    stored = list(zip(*(ends.tolist() for ends in edges.edge_index()), strict=True))
    room, kept = [count] * edges.num_nodes, set()
    for place in np.random.default_rng(seed).permutation(len(stored)).tolist():
        source, target = stored[place]
        if room[source] and room[target]:
            room[source] -= 1
            room[target] -= 1
            kept.add((source, target))
    return kept


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_the_total_degree_is_bounded(directed, count):
    edges = drawn(directed)
    kept = sample_total_degree(edges, count, np.random.default_rng(3))
    assert pairs(kept) == in_turn(edges, count, 3)
    assert torch.cat(list(kept.edge_index())).bincount().max() <= count
    assert len(pairs(kept)) == len(kept.indices)
    assert kept.edge_set is edges.edge_set


def test_a_graph_without_edges_keeps_none():
    empty = Adjacency.from_edges([], [], num_nodes=3, directed=False)
    assert not len(sample_total_degree(empty, 2, np.random.default_rng(0)).indices)
