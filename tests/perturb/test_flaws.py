"""Flaws of published code, built here as it has them, beside what ours does; numbers of section 14."""

import math

import numpy as np
import pytest
import torch
from dendrogram.trees import transitions

from graphveil import perturb
from graphveil._random import RowStream
from graphveil.dendrogram.accounting import sensitivity
from graphveil.dendrogram.chain import Schedule
from graphveil.graph import Adjacency, Graph
from graphveil.mechanisms._marks import TOTAL
from graphveil.mechanisms.edge_response import EdgeResponse
from graphveil.privacy import ledger_of
from graphveil.release import ReleaseKey

NODES = 40


def ring(*, loops: bool = False) -> Graph:
    source, target = list(range(NODES)), [*range(1, NODES), 0]
    if loops:
        source, target = [*source, *range(NODES)], [*target, *range(NODES)]
    return Graph.from_edges(torch.eye(NODES), [0, 1] * (NODES // 2), source, target, directed=False)


def test_one_stream_for_two_graphs_tells_where_they_differ() -> None:  # [16]
    response, stream = EdgeResponse(1.0), RowStream(bytes(32))
    one = np.arange(0, 400, 9)
    told = 0
    for slot in range(400):
        drawn = [
            set(response.draw(stream, edges, 0, 400).tolist()) for edges in (one, np.setxor1d(one, [slot]))
        ]
        told += drawn[0] != drawn[1]  # whoever sees both graphs knows for certain that this slot differs
    q = response.flip
    # Of a slot the source's one noise shows a difference for certain; ours would in 2 (q^2 + (1 - q)^2) / 2.
    assert told / 400 == pytest.approx(q**2 + (1 - q) ** 2, abs=0.08)
    assert told > 100
    keys = [ReleaseKey.fresh().query_key({"edges": ""}) for _ in range(50)]
    assert len(set(keys)) == 50  # so no two releases draw from one stream


def test_noise_of_two_releases_is_never_the_same() -> None:  # [16]
    graph = ring()
    first, second = (
        perturb.edge_rand(graph, unit="undirected-edge", epsilon=0.5).graph.adjacency.edge_index()
        for _ in range(2)
    )
    assert first.tolist() != second.tolist()


def test_both_directions_on_their_own_cost_a_friendship_twice() -> None:  # [15]
    epsilon = 0.9
    response = EdgeResponse(epsilon)
    keep, add = response.keep / TOTAL, response.add / TOTAL
    twice = max(abs(math.log(keep**2 / add**2)), abs(math.log((1 - keep) ** 2 / (1 - add) ** 2)))
    assert twice == pytest.approx(2 * epsilon)  # what the source's (i, j) and (j, i) tell together
    edges = perturb.arr(ring(), unit="undirected-edge", epsilon=1.0).graph.adjacency
    source, target = edges.edge_index().tolist()
    assert set(zip(source, target, strict=True)) == set(zip(target, source, strict=True))


def test_a_density_for_every_chunk_costs_more_than_its_share() -> None:  # [15]
    nodes, chunk, share = 19_717, 1000, 0.1
    scale = 1 / (share * nodes**2)  # of the source's noise, for epsilon 1
    moved = 1 / (chunk * nodes)  # by one edge, of the density of one chunk
    assert moved / scale == pytest.approx(nodes / chunk * share, rel=1e-3)  # 1.97, not 0.1
    total, _ = perturb.ARR(epsilon=1.0).queries(None)  # type: ignore[arg-type]
    assert total.epsilon == pytest.approx(share)  # type: ignore[attr-defined]


def test_ten_graphs_for_one_budget_are_ten_releases() -> None:  # [10]
    graph = ring()
    guarantees = [
        perturb.edge_rr(
            graph,
            epsilon=1.0,
            unit="private-slot-edge",
            private_nodes=torch.ones(NODES, dtype=torch.bool),
        ).guarantee
        for _ in range(3)
    ]
    assert len(ledger_of(graph.edge_set).entries) == 3
    assert type(guarantees[0]).together(guarantees).epsilon == pytest.approx(3.0)


def test_public_steps_on_private_likelihoods_have_no_finite_loss() -> None:  # [10]
    graph, toggled = 0b1000110001, 0b1000110011
    mixed_up = [
        transitions(5, 0, Schedule(), public) for public in (graph, toggled)
    ]  # private edges as public
    assert ((mixed_up[0] > 0) != (mixed_up[1] > 0)).any()
    proper = [transitions(5, private, Schedule()) for private in (graph, toggled)]
    assert (proper[0] == proper[1]).all()  # public steps read no private edge
    assert sensitivity(5) < 3


def test_loops_are_no_edges() -> None:  # [17]
    plain, looped = ring().adjacency, ring(loops=True).adjacency
    assert plain.edge_index().tolist() == looped.edge_index().tolist()
    for seed in range(3):
        parts = [perturb.public_share(one, 0.5, seed=seed).edge_index() for one in (plain, looped)]
        assert parts[0].tolist() == parts[1].tolist()


def test_no_pair_is_stored_without_being_an_edge() -> (
    None
):  # [16]: explicit zeros show which slots were edges
    edges = perturb.edge_rand(ring(), unit="undirected-edge", epsilon=1.0).graph.adjacency
    assert edges.weights is None
    assert isinstance(edges, Adjacency) and len(edges.indices) == int(edges.indptr[-1])
