"""Growing a graph: what is new stays apart from what was there, and is checked without a word about edges."""

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.data import EdgeSet, Graph
from graphveil.data.graph import batches
from graphveil.errors import BudgetError, GraphError
from graphveil.ledger import Entry, MemoryLedger, attach_ledger, ledger_of
from graphveil.privacy import Gaussian


@pytest.fixture(params=[False, True], ids=["undirected", "directed"])
def graph(request: pytest.FixtureRequest) -> Graph:
    """0 -> 1 -> 2, in either kind."""
    return Graph.from_edges(np.eye(3, 2), [0, 1, 1], [0, 1], [1, 2], directed=request.param)


def edges(graph: Graph) -> set[tuple[int, ...]]:
    return set(map(tuple, graph.adjacency.edge_index().T.tolist()))


def test_a_grown_graph_is_the_graph_of_all_edges(graph: Graph) -> None:
    grown = graph.grow([[1.0, 2.0], [3.0, 4.0]], [1, -1], [3, 4, 0, 4, 4], [0, 3, 3, 3, 4])
    whole = Graph.from_edges(
        grown.x, grown.y, [0, 1, 3, 4, 0], [1, 2, 0, 3, 3], directed=graph.directed, num_classes=2
    )
    assert torch.equal(grown.adjacency.edge_index(), whole.adjacency.edge_index())
    assert grown.y.tolist() == [0, 1, 1, 1, -1]
    assert grown.x[3:].tolist() == [[1, 2], [3, 4]]


def test_a_batch_has_all_nodes_up_to_then_and_new_edges_alone(graph: Graph) -> None:
    once = graph.grow([[1.0, 0.0]], None, [3], [0])
    twice = once.grow([[0.0, 1.0]], [0], [4, 4], [3, 1])
    first, second = batches(twice)
    assert edges(first.graph) | edges(second.graph) | edges(graph) == edges(twice)
    assert not edges(first.graph) & edges(graph)
    assert (first.graph.num_nodes, second.graph.num_nodes) == (4, 5)
    assert (first.step.base, first.version) == (graph.adjacency.version, once.adjacency.version)
    assert (second.step.base, second.version) == (once.adjacency.version, twice.adjacency.version)
    assert torch.equal(first.graph.x, once.x)


def test_every_step_has_a_budget_of_its_own_and_the_whole_is_booked_on_all(graph: Graph) -> None:
    named = EdgeSet("dataset:second")
    twice = graph.grow([[1.0, 0.0]], None, [3], [0]).grow([[1.0, 0.0]], None, [4], [0], edge_set=named)
    old, middle, new = twice.edge_set.parts
    assert (old, new) == (graph.edge_set, named)
    first, second = batches(twice)
    assert (first.step.apart, second.step.apart) == ((old,), ())  # others may have edges of that name, too
    assert first.graph.edge_set is middle
    ledger_of(middle).record(Entry("a", "rows", Gaussian(0.1)))
    ledger_of(twice.edge_set).record(Entry("b", "rows", Gaussian(0.1)))
    assert [len(ledger_of(part).entries) for part in (old, middle, new)] == [1, 2, 1]
    assert [entry.release_id for entry in ledger_of(twice.edge_set).entries] == ["b"]
    with pytest.raises(BudgetError, match="already recorded"):
        ledger_of(twice.edge_set).record(Entry("b", "rows", Gaussian(0.1)))
    with pytest.raises(BudgetError, match="union"):
        attach_ledger(twice.edge_set, MemoryLedger())


def test_a_union_that_one_book_refuses_is_booked_nowhere(graph: Graph) -> None:
    limited = EdgeSet()
    attach_ledger(limited, MemoryLedger(epsilon=0.01, delta=1e-7))
    grown = graph.grow([[1.0, 0.0]], None, [3], [0], edge_set=limited)
    with pytest.raises(BudgetError, match=r"the limit is 0\.01"):
        ledger_of(grown.edge_set).record(Entry("a", "rows", Gaussian(0.5)))
    assert ledger_of(graph.edge_set).entries == ()


def test_new_nodes_are_in_no_part_of_the_split(graph: Graph) -> None:
    split = graph.with_split(*torch.eye(3, dtype=torch.bool))
    grown = split.grow([[1.0, 0.0]], [0], [3], [0])
    assert [int(grown.mask(part).sum()) for part in ("train", "val", "test")] == [1, 1, 1]


def test_without_new_nodes_nothing_has_grown(graph: Graph) -> None:
    assert graph.grow(torch.empty(0, graph.num_features), None, [], []) is graph
    with pytest.raises(GraphError, match="were there before"):
        graph.grow(torch.empty(0, graph.num_features), None, [0], [1])


def test_sparse_features_stay_sparse(graph: Graph) -> None:
    thin = graph.replace(x=sparse.csr_array(np.eye(3, 2)))
    grown = thin.grow([[0.0, 7.0]], None, [], [])
    assert isinstance(grown.x, sparse.csr_array)
    assert grown.x.toarray()[3].tolist() == [0, 7]


def test_ids_grow_with_the_graph(graph: Graph) -> None:
    named = graph.replace(ids=np.array(["a", "b", "c"]))
    assert named.grow([[1.0, 0.0]], None, [3], [0], ids=np.array(["d"])).ids.tolist() == ["a", "b", "c", "d"]
    for wrong in (None, np.array(["b"]), np.array(["d", "e"])):
        with pytest.raises(GraphError, match="ids="):
            named.grow([[1.0, 0.0]], None, [3], [0], ids=wrong)


def test_what_does_not_fit_is_refused_without_a_value(graph: Graph) -> None:
    with pytest.raises(GraphError, match="joins two nodes that were there before") as refused:
        graph.grow([[1.0, 0.0]], None, [3, 2], [0, 0])
    assert not set("23") & set(str(refused.value))
    with pytest.raises(GraphError, match="the new nodes have 3 features and the graph 2"):
        graph.grow([[1.0, 0.0, 0.0]], None, [3], [0])
    with pytest.raises(GraphError, match="2 labels for 1 new nodes"):
        graph.grow([[1.0, 0.0]], [0, 1], [3], [0])
    with pytest.raises(GraphError, match="names a node that does not exist"):
        graph.grow([[1.0, 0.0]], None, [4], [0])


def test_parts_of_a_grown_graph_have_grown_from_nothing(graph: Graph) -> None:
    grown = graph.grow([[1.0, 0.0]], None, [3], [0])
    part = grown.subgraph(torch.tensor([True, True, True, False]))
    assert list(batches(part)) == []
    assert part.edge_set is grown.edge_set
