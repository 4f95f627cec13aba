"""Edges with weights: merged and cut to a public range, kept by everything that keeps edges."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphveil.data import Adjacency, Graph, read_graph
from graphveil.errors import GraphError


def entries(adjacency: Adjacency) -> dict[tuple[int, int], float]:
    """Return each stored edge's weight in the caller's scale."""
    pairs = map(tuple, adjacency.edge_index().T.tolist())
    return dict(zip(pairs, (adjacency.weights * adjacency.max_weight).tolist(), strict=True))


def weighted(directed: bool = False) -> Graph:
    return Graph.from_edges(
        np.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=directed, weight=[1, 2, 9], max_weight=4
    )


def test_weights_are_cut_to_the_range_and_the_largest_of_repeats_counts() -> None:
    edges = Adjacency.from_edges(
        [0, 0, 1, 2, 2],
        [1, 1, 0, 2, 0],
        num_nodes=3,
        directed=True,
        weight=[1.5, 1.0, 3.0, 7.0, 9.0],
        max_weight=5.0,
    )
    assert entries(edges) == {(0, 1): 1.5, (1, 0): 3.0, (2, 0): 5.0}
    assert edges.weights.dtype == torch.float32


@pytest.mark.parametrize("directed", [False, True])
def test_how_often_and_in_which_order_edges_are_listed_changes_nothing(directed: bool) -> None:
    rng = np.random.default_rng(0)
    ends, weight = rng.integers(0, 12, (2, 40)), rng.random(40) * 3
    order = rng.permutation(np.concatenate([np.arange(40), rng.integers(0, 40, 200)]))
    listed = weight[order] * np.where(rng.random(len(order)) < 0.5, 1, 0.5)
    listed[np.unique(order, return_index=True)[1]] = weight  # each edge has its own weight at least once
    once, often = (
        Adjacency.from_edges(*ends[:, at], num_nodes=12, directed=directed, weight=w, max_weight=2.0)
        for at, w in ((np.arange(40), weight), (order, listed))
    )
    assert entries(once) == entries(often)
    assert all(0 < one <= 2 for one in entries(often).values())
    plain = Adjacency.from_edges(*ends[:, order], num_nodes=12, directed=directed)
    assert torch.equal(plain.indices, often.indices)  # count and weight agree


@pytest.mark.parametrize("repeats", [1, 2, 50])
def test_a_repeated_edge_keeps_its_weight(repeats: int) -> None:
    edges = Adjacency.from_edges(
        [0] * repeats, [1] * repeats, num_nodes=2, directed=True, weight=[0.25] * repeats, max_weight=1.0
    )
    assert edges.weights is not None and edges.weights.tolist() == [0.25]


def test_an_undirected_edge_has_one_weight_however_it_is_listed() -> None:
    both, one = (
        Adjacency.from_edges(u, v, num_nodes=2, directed=False, weight=w, max_weight=2.0)
        for u, v, w in (([0, 1], [1, 0], [0.5, 1.0]), ([0], [1], [1.0]))
    )
    assert entries(both) == entries(one) == {(0, 1): 1.0, (1, 0): 1.0}


def test_weight_zero_is_no_edge() -> None:
    edges = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=True, weight=[0, 1], max_weight=1)
    assert entries(edges) == {(1, 2): 1.0}


def test_equal_weights_store_what_no_weights_store() -> None:
    source, target = np.random.default_rng(0).integers(20, size=(2, 60))
    for directed in (False, True):
        plain = Adjacency.from_edges(source, target, num_nodes=20, directed=directed)
        same = Adjacency.from_edges(
            source, target, num_nodes=20, directed=directed, weight=np.ones(60), max_weight=1.0
        )
        assert torch.equal(plain.indptr, same.indptr)
        assert torch.equal(plain.indices, same.indices)
        assert bool((same.weights == 1).all())


def test_weights_stay_with_their_edges() -> None:
    graph = weighted()
    part = graph.subgraph(torch.tensor([False, True, True, True]))
    assert entries(part.adjacency) == {(0, 1): 2, (1, 0): 2, (1, 2): 4, (2, 1): 4}
    inside = graph.adjacency.without_crossing(torch.tensor([True, True, False, False]))
    assert entries(inside) == {(0, 1): 1, (1, 0): 1, (2, 3): 4, (3, 2): 4}
    grown = graph.grow(np.eye(1, 4), None, [4], [0], weight=[3.0])
    assert entries(grown.adjacency) == {**entries(graph.adjacency), (4, 0): 3, (0, 4): 3}
    assert entries(graph.with_split(*torch.eye(3, 4, dtype=torch.bool)).adjacency) == entries(graph.adjacency)
    back = Graph.from_pyg(graph.to_pyg(), max_weight=4)
    assert entries(back.adjacency) == entries(graph.adjacency)
    with pytest.raises(GraphError, match="'edge_weight', which would be ignored"):
        Graph.from_pyg(graph.to_pyg())
    bare = graph.adjacency.without_weights()
    assert (bare.weights, bare.max_weight, bare.edge_set) == (None, None, graph.edge_set)


@pytest.mark.parametrize("bad", [-0.25, np.nan, np.inf])
def test_unusable_weights_are_refused_without_their_value(bad: float) -> None:
    with pytest.raises(GraphError, match="finite and not negative") as refused:
        Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=True, weight=[1.0, bad], max_weight=1.0)
    assert "0.25" not in str(refused.value)


@pytest.mark.parametrize(
    ("weight", "max_weight", "words"),
    [
        ([1.0], None, "need both"),
        (None, 1.0, "need both"),
        ([1.0, 2.0], 1.0, "one number for each edge"),
        (["a"], 1.0, "must be numbers"),
        ([1.0], 0.0, "must be a positive number"),
        ([1.0], np.nan, "must be a positive number"),
    ],
)
def test_weights_and_their_bound_go_together(weight: object, max_weight: float | None, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        Adjacency.from_edges([0], [1], num_nodes=2, directed=True, weight=weight, max_weight=max_weight)


def test_new_edges_have_weights_if_the_old_ones_do() -> None:
    plain = Graph.from_edges(np.eye(2), [0, 1], [0], [1], directed=False)
    with pytest.raises(GraphError, match="leave weight= out"):
        plain.grow(np.eye(1, 2), None, [2], [0], weight=[1.0])
    with pytest.raises(GraphError, match="need both"):
        weighted().grow(np.eye(1, 4), None, [4], [0])


def test_a_column_of_weights_is_read(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,x,y\n1,0.5,a\n2,1.5,b\n")
    (tmp_path / "edges.csv").write_text("u,v,hours\n1,2,3\n2,1,7\n")
    columns = {"id": "id", "label": "y", "source": "u", "target": "v", "directed": True}
    graph = read_graph(
        tmp_path / "nodes.csv", tmp_path / "edges.csv", **columns, weight="hours", max_weight=6.0
    )
    assert entries(graph.adjacency) == {(0, 1): 3.0, (1, 0): 6.0}
    (tmp_path / "edges.csv").write_text("u,v,hours\n1,2,\n")
    with pytest.raises(GraphError, match="column 'hours'"):
        read_graph(tmp_path / "nodes.csv", tmp_path / "edges.csv", **columns, weight="hours", max_weight=6.0)


def test_nothing_prints_a_weight() -> None:
    assert repr(weighted().adjacency) == "Adjacency(nodes=4, directed=False)"
