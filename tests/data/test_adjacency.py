"""In-edges of a graph: construction from edges and rows, weights, subgraphs, identity of edge sets."""

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.errors import GraphError

PATH = Adjacency.from_edges([0, 1, 2, 3], [1, 2, 3, 4], num_nodes=5, directed=False)
edge_lists = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
)


def build(source: Any, target: Any, num_nodes: int, directed: bool = False, **keywords: Any) -> Adjacency:
    return Adjacency.from_edges(source, target, num_nodes=num_nodes, directed=directed, **keywords)


def from_pairs(edges: list[tuple[int, int]], num_nodes: int, directed: bool, **keywords: Any) -> Adjacency:
    return build([u for u, _ in edges], [v for _, v in edges], num_nodes, directed, **keywords)


def rows(adjacency: Adjacency) -> list[list[int]]:
    """Return the sources of every node."""
    return [part.tolist() for part in adjacency.indices.tensor_split(adjacency.indptr[1:-1])]


def pairs(adjacency: Adjacency) -> set[tuple[int, ...]]:
    return set(map(tuple, adjacency.edge_index().T.tolist()))


def weights_of(adjacency: Adjacency) -> dict[tuple[int, ...], float]:
    """Return the weight of each stored edge in the caller's scale."""
    assert adjacency.weights is not None and adjacency.max_weight is not None
    ends = map(tuple, adjacency.edge_index().T.tolist())
    return dict(zip(ends, (adjacency.weights * adjacency.max_weight).tolist(), strict=True))


def same(one: Adjacency, other: Adjacency) -> bool:
    return all(map(torch.equal, one.arrays, other.arrays))


# -- from edges ----


@given(edge_lists, st.booleans())
def test_rows_list_distinct_ascending_sources_without_self_loops(drawn: Any, directed: bool) -> None:
    num_nodes, edges = drawn
    expected = {(u, v) for u, v in edges if u != v}
    expected |= set() if directed else {(v, u) for u, v in expected}
    graph = from_pairs(edges, num_nodes, directed)
    assert pairs(graph) == expected
    assert rows(graph) == [sorted(u for u, v in expected if v == node) for node in range(num_nodes)]
    assert (graph.num_nodes, graph.directed) == (num_nodes, directed)


def test_accepts_tensors_and_narrow_arrays_and_stores_fixed_types() -> None:
    graph = build(torch.tensor([0]), np.array([1], dtype=np.uint8), 2)
    assert (graph.indptr.dtype, graph.indices.dtype) == (torch.int64, torch.int32)


def test_uses_the_given_edge_set_or_a_new_one() -> None:
    known = EdgeSet("dataset:karate")
    assert build([0], [1], 2, edge_set=known).edge_set is known
    assert build([0], [1], 2).edge_set != build([0], [1], 2).edge_set


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([0, 7731], [1, 1], r"node that does not exist\. Ids must be between 0 and .* = 2"),
        ([0, -7731], [1, 1], "node that does not exist"),
        (np.array([2**32]), [1], "node that does not exist"),  # checked before it is narrowed
        ([0, 1, 2], [1], "different lengths"),
        ([0.5], [1], "two vectors of integers"),
        ([[0]], [1], "two vectors of integers"),
        ([True], [1], "two vectors of integers"),
        (["a"], [1], "two vectors of integers"),
    ],
)
def test_rejects_invalid_ends_without_printing_them(source: Any, target: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as error:
        build(np.array(source), target, 3)
    assert "7731" not in str(error.value)
    if "length" in message:  # a length is a count of edges
        assert not any(digit in str(error.value) for digit in "0123456789")


def test_rejects_more_nodes_than_int32_can_number() -> None:
    with pytest.raises(GraphError, match="num_nodes"):
        build([], [], 2**31)


def test_repr_does_not_depend_on_the_edges() -> None:
    weighted = build([0], [1], 3, weight=[1], max_weight=1)
    assert repr(build([0], [1], 3)) == repr(build([], [], 3)) == repr(weighted)
    assert repr(weighted) == "Adjacency(nodes=3, directed=False)"


# -- from rows ----


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        (torch.tensor([0, 1], dtype=torch.int32), [0], "indptr must be"),
        ([0, 1], torch.tensor([0]), "indices must be"),
        ([0, 2], [0], "an adjacency has"),
        ([1, 1], [0], "an adjacency has"),
        ([0, 2, 1, 3], [0, 1, 2], "an adjacency has"),  # falling
        ([0, 1, 2, 3], [0, 1, 3], "an adjacency has"),  # no such node
        ([0, 1, 2, 3], [0, -1, 2], "an adjacency has"),
        ([0, 2**40, 2, 3], [0, 1, 2], "an adjacency has"),
    ],
)
def test_constructor_rejects_invalid_rows(indptr: Any, indices: Any, message: str) -> None:
    indptr = torch.as_tensor(indptr)
    indices = indices if isinstance(indices, torch.Tensor) else torch.tensor(indices, dtype=torch.int32)
    with pytest.raises(GraphError, match=message):
        Adjacency(indptr, indices, True, EdgeSet())


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -0.5, 1.5])
def test_constructor_rejects_weights_outside_the_unit_interval(weight: float) -> None:
    indptr, indices = torch.tensor([0, 1, 2]), torch.tensor([1, 0], dtype=torch.int32)
    with pytest.raises(GraphError, match=r"weights must be between 0 and 1") as error:
        Adjacency(indptr, indices, True, EdgeSet(), weights=torch.tensor([0.5, weight]), max_weight=2.0)
    assert str(weight) not in str(error.value)


@given(edge_lists, st.booleans())
def test_constructor_sorts_rows_like_from_edges(drawn: Any, weighted: bool) -> None:
    num_nodes, edges = drawn
    edges = sorted(edges, key=lambda edge: edge[1])  # by target; sources in any order, with repeats
    weights = [(1 + place % 4) / 8 for place in range(len(edges))]
    extra: dict[str, Any] = {"weight": weights, "max_weight": 1.0} if weighted else {}
    counts = np.bincount([v for _, v in edges], minlength=num_nodes) if edges else np.zeros(num_nodes)
    found = Adjacency(
        torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)),
        torch.tensor([u for u, _ in edges], dtype=torch.int32),
        True,
        EdgeSet(),
        weights=torch.tensor(weights) if weighted else None,
        max_weight=1.0 if weighted else None,
    )
    assert same(found, from_pairs(edges, num_nodes, True, **extra))


@pytest.mark.parametrize("directed", [False, True])
def test_from_rows_stores_the_same_as_from_edges(directed: bool) -> None:
    nodes = 900  # with so many edges that rows are processed in several pieces
    cells = np.random.default_rng(0).random((nodes, nodes)) < 0.4
    np.fill_diagonal(cells, False)
    cells[[3, nodes - 1]] = False
    matrix = sparse.csr_array(cells if directed else np.tril(cells))
    stored = Adjacency.from_rows(matrix.indptr.astype(np.int64), matrix.indices, directed=directed)
    target, source = matrix.nonzero()
    assert same(stored, build(source, target, nodes, directed))


@pytest.mark.parametrize(
    ("indptr", "sources", "directed"),
    [
        *(([0, 0, 0, 2], sources, directed) for sources in ([1, 0], [1, 1]) for directed in (False, True)),
        ([0, 0, 1, 1], [1], False),
        ([0, 0, 1, 1], [1], True),  # a self-loop
        ([0, 1, 1], [1], False),  # the smaller end
    ],
)
def test_from_rows_rejects_rows_out_of_order(indptr: Any, sources: Any, directed: bool) -> None:
    with pytest.raises(GraphError, match=r"in ascending order.* larger node id"):
        Adjacency.from_rows(np.array(indptr), np.array(sources, dtype=np.int32), directed=directed)
    assert Adjacency.from_rows(np.array([0, 1, 1]), np.array([1], np.int32), directed=True).num_nodes == 2


# -- weights ----


@pytest.mark.parametrize(
    ("source", "target", "weight", "directed", "expected"),
    [
        # Clipped to the bound, and the largest of repeats counts; a self-loop is dropped.
        (
            [0, 0, 1, 2, 2],
            [1, 1, 0, 2, 0],
            [1.5, 1.0, 3.0, 7.0, 9.0],
            True,
            {(0, 1): 1.5, (1, 0): 3.0, (2, 0): 5.0},
        ),
        ([0, 1], [1, 0], [0.5, 1.0], False, {(0, 1): 1.0, (1, 0): 1.0}),
        ([0], [1], [1.0], False, {(0, 1): 1.0, (1, 0): 1.0}),
        ([0, 1], [1, 2], [0, 1], True, {(1, 2): 1.0}),  # weight 0 is no edge
        ([0] * 50, [1] * 50, [0.25] * 50, True, {(0, 1): 0.25}),
    ],
)
def test_weights_are_merged_and_clipped(
    source: Any, target: Any, weight: Any, directed: bool, expected: dict[tuple[int, int], float]
) -> None:
    edges = build(source, target, 3, directed, weight=weight, max_weight=5.0)
    assert weights_of(edges) == pytest.approx(expected)
    assert edges.weights is not None and edges.weights.dtype == torch.float32


@pytest.mark.parametrize("directed", [False, True])
def test_weights_do_not_depend_on_repeats_or_order(directed: bool) -> None:
    rng = np.random.default_rng(0)
    ends, weight = rng.integers(0, 12, (2, 40)), rng.random(40) * 3
    order = rng.permutation(np.concatenate([np.arange(40), rng.integers(0, 40, 200)]))
    listed = weight[order] * np.where(rng.random(len(order)) < 0.5, 1, 0.5)
    listed[np.unique(order, return_index=True)[1]] = weight  # each edge has its own weight at least once
    once, often = (
        build(*ends[:, at], 12, directed, weight=w, max_weight=2.0)
        for at, w in ((np.arange(40), weight), (order, listed))
    )
    assert weights_of(once) == weights_of(often)
    assert all(0 < one <= 2 for one in weights_of(often).values())
    # Equal weights store the same entries as no weights.
    plain = build(*ends, 12, directed)
    ones = build(*ends, 12, directed, weight=np.ones(40), max_weight=1.0)
    assert torch.equal(plain.indptr, ones.indptr) and torch.equal(plain.indices, often.indices)
    assert torch.equal(plain.indices, ones.indices) and set(weights_of(ones).values()) == {1.0}
    assert (ones.without_weights().weights, ones.without_weights().max_weight) == (None, None)
    assert ones.without_weights().edge_set is ones.edge_set


@pytest.mark.parametrize(
    ("weight", "max_weight", "message"),
    [
        ([1.0, -0.25], 1.0, "finite and at least 0"),
        ([1.0, np.nan], 1.0, "finite and at least 0"),
        ([1.0, np.inf], 1.0, "finite and at least 0"),
        ([1.0, 1.0], None, "need both"),
        (None, 1.0, "need both"),
        ([1.0], 1.0, "one number per edge"),
        (["a", "b"], 1.0, "must be numbers"),
        ([1.0, 1.0], 0.0, "must be a positive number"),
        ([1.0, 1.0], np.nan, "must be a positive number"),
    ],
)
def test_rejects_invalid_weights_without_printing_them(weight: Any, max_weight: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as error:
        build([0, 1], [1, 2], 3, True, weight=weight, max_weight=max_weight)
    assert "0.25" not in str(error.value)


# -- subgraphs ----


@given(edge_lists, st.booleans(), st.data())
def test_subgraph_and_without_crossing_keep_the_right_edges(drawn: Any, directed: bool, data: Any) -> None:
    num_nodes, edges = drawn
    weight = [1 + place % 3 for place in range(len(edges))]
    graph = from_pairs(edges, num_nodes, directed, weight=weight, max_weight=2)
    chosen = data.draw(st.lists(st.booleans(), min_size=num_nodes, max_size=num_nodes))
    mask, before = torch.tensor(chosen, dtype=torch.bool), weights_of(graph)
    new = dict(zip([v for v in range(num_nodes) if chosen[v]], range(num_nodes), strict=False))
    part, split = graph.subgraph(mask), graph.without_crossing(mask)
    kept = {(new[u], new[v]): w for (u, v), w in before.items() if chosen[u] and chosen[v]}
    assert weights_of(part) == kept and part.num_nodes == sum(chosen)
    assert weights_of(split) == {(u, v): w for (u, v), w in before.items() if chosen[u] == chosen[v]}
    assert split.num_nodes == num_nodes
    for derived in (part, split):
        assert derived.edge_set is graph.edge_set and derived.directed == directed


@pytest.mark.parametrize("mask", [torch.tensor([True, False]), torch.ones(5)])
def test_subgraph_rejects_masks_of_another_type_or_length(mask: torch.Tensor) -> None:
    with pytest.raises(GraphError, match=r"bool array of shape \(5,\)"):
        PATH.subgraph(mask)


# -- edge sets ----


def test_edge_sets_are_compared_as_objects_and_copies_are_the_same() -> None:
    first, second = EdgeSet("dataset:cora"), EdgeSet("dataset:cora")
    assert first != second and len({first, second}) == 2
    assert EdgeSet().id != EdgeSet().id and len(EdgeSet().id) == 32
    assert copy.deepcopy(PATH).edge_set is copy.copy(PATH).edge_set is PATH.edge_set


def test_protected_edge_sets_cannot_be_pickled() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for holder in (EdgeSet(), PATH):
            with pytest.raises(GraphError, match=r"edge set cannot be pickled.*budget.*Load the graph"):
                pickle.dumps(holder, protocol)


def test_edge_sets_can_be_referenced_weakly() -> None:
    edges = EdgeSet()
    budgets = weakref.WeakKeyDictionary({edges: 1.0})
    del edges
    gc.collect()
    assert not budgets
