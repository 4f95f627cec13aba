import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from graphveil.data import Adjacency, EdgeSet
from graphveil.errors import GraphError


def build(source, target, num_nodes, directed=False, **keywords):
    return Adjacency.from_edges(source, target, num_nodes=num_nodes, directed=directed, **keywords)


def rows(adjacency):
    """The sources of every node, as lists."""
    return [part.tolist() for part in adjacency.indices.tensor_split(adjacency.indptr[1:-1])]


def pairs(adjacency):
    return set(map(tuple, adjacency.edge_index().T.tolist()))


def mask(*bits):
    return torch.tensor(bits, dtype=torch.bool)


class TestFromEdges:
    def test_a_directed_edge_is_stored_at_its_target(self):
        graph = build([2, 0, 3], [1, 1, 0], 4, directed=True)
        assert rows(graph) == [[3], [0, 2], [], []]

    def test_an_undirected_edge_is_stored_at_both_ends(self):
        graph = build([2, 0, 3], [1, 1, 0], 4)
        assert rows(graph) == [[1, 3], [0, 2], [1], [0]]

    def test_loops_are_dropped_and_repeats_merged(self):
        graph = build([0, 1, 1, 2, 0], [1, 0, 1, 2, 1], 3)
        assert rows(graph) == [[1], [0], []]

    def test_a_mutual_directed_edge_stays_two_edges(self):
        assert pairs(build([0, 1, 0], [1, 0, 1], 2, directed=True)) == {(0, 1), (1, 0)}

    def test_without_edges_the_graph_is_valid(self):
        graph = build([], [], 3)
        assert rows(graph) == [[], [], []] and graph.num_nodes == 3
        assert graph.edge_index().shape == (2, 0)

    def test_dtypes(self):
        graph = build(torch.tensor([0]), np.array([1], dtype=np.uint8), 2)
        assert (graph.indptr.dtype, graph.indices.dtype) == (torch.int64, torch.int32)

    def test_the_edge_set_is_carried_or_new(self):
        known = EdgeSet("dataset:karate")
        assert build([0], [1], 2, edge_set=known).edge_set is known
        assert build([0], [1], 2).edge_set != build([0], [1], 2).edge_set

    @pytest.mark.parametrize("source", [[0, 7731], [0, -7731]])
    def test_an_unknown_node_is_refused_without_its_id(self, source):
        with pytest.raises(
            GraphError, match=r"node that does not exist; ids must lie between 0 and .* = 2"
        ) as error:
            build(source, [1, 1], 3)
        assert "7731" not in str(error.value)

    def test_wide_ids_are_checked_before_they_are_narrowed(self):
        with pytest.raises(GraphError, match="does not exist"):
            build(np.array([2**32]), np.array([1]), 3)

    def test_lengths_must_agree_and_are_not_printed(self):
        with pytest.raises(GraphError, match="differ in length") as error:
            build([0, 1, 2], [1], 3)
        assert not any(digit in str(error.value) for digit in "0123456789")

    @pytest.mark.parametrize("source", [[0.5], [[0]], [True], ["a"]])
    def test_ids_must_be_a_vector_of_whole_numbers(self, source):
        with pytest.raises(GraphError, match="two vectors of whole numbers"):
            build(np.array(source), [1], 3)

    def test_the_number_of_nodes_must_fit_int32(self):
        with pytest.raises(GraphError, match="num_nodes"):
            build([], [], 2**31)


edge_lists = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
)


class TestProperties:
    @given(edge_lists, st.booleans())
    def test_the_edges_are_the_set_of_the_input(self, drawn, directed):
        num_nodes, edges = drawn
        expected = {(u, v) for u, v in edges if u != v}
        expected |= set() if directed else {(v, u) for u, v in expected}
        graph = build([u for u, _ in edges], [v for _, v in edges], num_nodes, directed)
        assert pairs(graph) == expected
        assert rows(graph) == [sorted(u for u, v in expected if v == node) for node in range(num_nodes)]

    @given(edge_lists, st.booleans(), st.randoms(use_true_random=False))
    def test_order_and_repeats_change_nothing(self, drawn, directed, random):
        num_nodes, edges = drawn
        shuffled = edges + edges[: len(edges) // 2]
        random.shuffle(shuffled)
        first, second = (
            build([u for u, _ in e], [v for _, v in e], num_nodes, directed) for e in (edges, shuffled)
        )
        assert torch.equal(first.indptr, second.indptr) and torch.equal(first.indices, second.indices)

    @given(edge_lists, st.booleans(), st.data())
    def test_derived_graphs_keep_the_right_edges(self, drawn, directed, data):
        num_nodes, edges = drawn
        graph = build([u for u, _ in edges], [v for _, v in edges], num_nodes, directed)
        chosen = data.draw(st.lists(st.booleans(), min_size=num_nodes, max_size=num_nodes))
        new = dict(zip([v for v in range(num_nodes) if chosen[v]], range(num_nodes), strict=False))
        inside = {(new[u], new[v]) for u, v in pairs(graph) if chosen[u] and chosen[v]}
        assert pairs(graph.subgraph(mask(*chosen))) == inside
        same_side = {(u, v) for u, v in pairs(graph) if chosen[u] == chosen[v]}
        assert pairs(graph.without_crossing(mask(*chosen))) == same_side


class TestDerived:
    path = build([0, 1, 2, 3], [1, 2, 3, 4], 5)

    def test_subgraph_renumbers_in_order(self):
        part = self.path.subgraph(mask(0, 1, 1, 0, 1))
        assert rows(part) == [[1], [0], []]

    def test_an_empty_subgraph_has_no_nodes(self):
        assert self.path.subgraph(mask(0, 0, 0, 0, 0)).num_nodes == 0

    def test_without_crossing_keeps_every_node(self):
        part = self.path.without_crossing(mask(1, 1, 0, 0, 0))
        assert rows(part) == [[1], [0], [3], [2, 4], [3]]

    def test_both_keep_the_edge_set_and_the_direction(self):
        everything = mask(1, 1, 1, 1, 1)
        for part in (self.path.subgraph(everything), self.path.without_crossing(everything)):
            assert part.edge_set is self.path.edge_set and part.directed == self.path.directed

    @pytest.mark.parametrize("bad", [mask(1, 0), torch.ones(5)])
    def test_a_mask_must_be_bool_per_node(self, bad):
        with pytest.raises(GraphError, match=r"bool of shape \(5,\)"):
            self.path.subgraph(bad)


class TestDirectConstruction:
    @pytest.mark.parametrize(
        ("indptr", "indices"),
        [
            (torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)),
            (torch.tensor([0, 1]), torch.tensor([0])),
            (torch.tensor([0, 2]), torch.tensor([0], dtype=torch.int32)),
            (torch.tensor([1, 1]), torch.tensor([0], dtype=torch.int32)),
        ],
    )
    def test_malformed_rows_are_refused(self, indptr, indices):
        with pytest.raises(GraphError, match=r"ind|offsets"):
            Adjacency(indptr, indices, False, EdgeSet())

    @pytest.mark.parametrize(
        ("indptr", "indices"),
        [
            ([0, 2, 1, 3], [0, 1, 2]),  # falling
            ([0, 1, 2, 3], [0, 1, 3]),  # no such node
            ([0, 1, 2, 3], [0, -1, 2]),
            ([0, 2**40, 2, 3], [0, 1, 2]),
        ],
    )
    def test_rows_that_point_nowhere_are_refused(self, indptr, indices):
        with pytest.raises(GraphError, match="an adjacency has"):
            Adjacency(torch.tensor(indptr), torch.tensor(indices, dtype=torch.int32), True, EdgeSet())

    @pytest.mark.parametrize("weight", [float("nan"), float("inf"), -0.5, 1.5])
    def test_weights_outside_their_range_are_refused_without_one(self, weight):
        indptr, indices = torch.tensor([0, 1, 2]), torch.tensor([1, 0], dtype=torch.int32)
        with pytest.raises(GraphError, match=r"weights must lie in \[0, 1\]") as refused:
            Adjacency(indptr, indices, True, EdgeSet(), weights=torch.tensor([0.5, weight]), max_weight=2.0)
        assert str(weight) not in str(refused.value)

    @given(edge_lists, st.booleans())
    def test_rows_given_by_hand_are_those_of_the_same_edges(self, drawn, weighted):
        num_nodes, edges = drawn
        edges = sorted(edges, key=lambda edge: edge[1])  # by target; sources in any order, with repeats
        weights = [(1 + place % 4) / 8 for place in range(len(edges))]
        extra = {"weight": weights, "max_weight": 1.0} if weighted else {}
        expected = build([u for u, _ in edges], [v for _, v in edges], num_nodes, True, **extra)
        counts = np.bincount([v for _, v in edges], minlength=num_nodes) if edges else np.zeros(num_nodes)
        found = Adjacency(
            torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)),
            torch.tensor([u for u, _ in edges], dtype=torch.int32),
            True,
            EdgeSet(),
            weights=torch.tensor(weights) if weighted else None,
            max_weight=1.0 if weighted else None,
        )
        assert all(map(torch.equal, found.arrays, expected.arrays))


class TestSecrecy:
    def test_the_repr_is_the_same_for_neighbors(self):
        assert repr(build([0], [1], 3)) == repr(build([], [], 3)) == "Adjacency(nodes=3, directed=False)"


class TestEdgeSet:
    def test_identity_is_the_object(self):
        first, second = EdgeSet("dataset:cora"), EdgeSet("dataset:cora")
        assert first != second and len({first, second}) == 2

    def test_copies_are_the_same_edge_set(self):
        graph = build([0], [1], 2)
        assert copy.deepcopy(graph).edge_set is copy.copy(graph).edge_set is graph.edge_set

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_it_cannot_be_pickled_because_its_budget_would_be_lost(self, protocol):
        for holder in (EdgeSet(), build([0], [1], 2)):
            with pytest.raises(GraphError, match=r"edge set cannot be pickled.*budget.*load the graph"):
                pickle.dumps(holder, protocol)

    def test_random_ids_differ(self):
        assert EdgeSet().id != EdgeSet().id and len(EdgeSet().id) == 32

    def test_a_budget_can_hang_on_it_weakly(self):
        edges = EdgeSet()
        budgets = weakref.WeakKeyDictionary({edges: 1.0})
        del edges
        gc.collect()
        assert not budgets


@pytest.mark.parametrize("directed", [False, True])
def test_rows_in_order_are_stored_like_any_others(directed):
    nodes = 900  # and so many edges that rows are worked on in pieces
    cells = np.random.default_rng(0).random((nodes, nodes)) < 0.4
    np.fill_diagonal(cells, False)
    cells[[3, nodes - 1]] = False
    rows = sparse.csr_array(cells if directed else np.tril(cells))
    stored = Adjacency.from_rows(rows.indptr.astype(np.int64), rows.indices, directed=directed)
    target, source = rows.nonzero()
    other = Adjacency.from_edges(source, target, num_nodes=nodes, directed=directed)
    assert torch.equal(stored.indptr, other.indptr) and torch.equal(stored.indices, other.indices)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    ("indptr", "sources"), [([0, 0, 0, 2], [1, 0]), ([0, 0, 0, 2], [1, 1]), ([0, 0, 1, 1], [1])]
)
def test_rows_out_of_order_are_refused(indptr, sources, directed):
    with pytest.raises(GraphError, match="in order, once each"):
        Adjacency.from_rows(np.array(indptr), np.array(sources, dtype=np.int32), directed=directed)


def test_rows_of_the_smaller_end_are_refused():
    upper = np.array([0, 1, 1]), np.array([1], dtype=np.int32)
    assert Adjacency.from_rows(*upper, directed=True).num_nodes == 2
    with pytest.raises(GraphError, match="larger end"):
        Adjacency.from_rows(*upper, directed=False)
