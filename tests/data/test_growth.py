"""Growth of a graph: new nodes with their edges, one budget per step, and checks that reveal no edge."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.events import Gaussian
from graphveil.core.ledger import Entry, MemoryLedger, attach_ledger, ledger_of
from graphveil.data import Graph
from graphveil.data.graph import batches
from graphveil.errors import BudgetError, GraphError


@pytest.fixture(params=[False, True], ids=["undirected", "directed"])
def graph(request: pytest.FixtureRequest) -> Graph:
    """Return the path 0 -> 1 -> 2, directed or not."""
    return Graph.from_edges(np.eye(3, 2), [0, 1, 1], [0, 1], [1, 2], directed=request.param)


def edges(graph: Graph) -> set[tuple[int, ...]]:
    return set(map(tuple, graph.adjacency.edge_index().T.tolist()))


@pytest.mark.parametrize("weighted", [False, True])
def test_grown_graph_equals_the_graph_of_all_edges(graph: Graph, weighted: bool) -> None:
    first, second = [1.0, 2.0], [3.0, 4.0, 0.5, 9.0, 7.0]
    bound: dict[str, Any] = {"max_weight": 4.0} if weighted else {}
    old = Graph.from_edges(
        graph.x, graph.y, [0, 1], [1, 2], directed=graph.directed, weight=first if weighted else None, **bound
    )
    grown = old.grow(
        [[1.0, 2.0], [3.0, 4.0]],
        [1, -1],
        [3, 4, 0, 4, 4],
        [0, 3, 3, 3, 4],
        weight=second if weighted else None,
    )
    whole = Graph.from_edges(
        grown.x,
        grown.y,
        [0, 1, 3, 4, 0, 4],
        [1, 2, 0, 3, 3, 3],
        directed=graph.directed,
        num_classes=2,
        weight=[*first, *second[:4]] if weighted else None,
        **bound,
    )
    assert all(map(torch.equal, grown.adjacency.arrays, whole.adjacency.arrays))
    assert grown.y.tolist() == [0, 1, 1, 1, -1]
    assert grown.x[3:].tolist() == [[1, 2], [3, 4]]


def test_batches_have_all_nodes_of_a_step_and_only_its_new_edges(graph: Graph) -> None:
    once = graph.grow([[1.0, 0.0]], None, [3], [0])
    twice = once.grow([[0.0, 1.0]], [0], [4, 4], [3, 1])
    first, second = batches(twice)
    assert edges(first.graph) | edges(second.graph) | edges(graph) == edges(twice)
    assert not edges(first.graph) & edges(graph)
    assert (first.graph.num_nodes, second.graph.num_nodes) == (4, 5)
    assert (first.step.base, first.version) == (graph.adjacency.version, once.adjacency.version)
    assert (second.step.base, second.version) == (once.adjacency.version, twice.adjacency.version)
    assert torch.equal(torch.as_tensor(first.graph.x), torch.as_tensor(once.x))
    part = once.subgraph(torch.tensor([True, True, True, False]))
    assert list(batches(part)) == [] and part.edge_set is once.edge_set


def test_every_step_has_its_own_budget_and_the_union_is_charged_to_all(graph: Graph) -> None:
    named = EdgeSet("dataset:second")
    twice = graph.grow([[1.0, 0.0]], None, [3], [0]).grow([[1.0, 0.0]], None, [4], [0], edge_set=named)
    old, middle, new = twice.edge_set.parts
    assert (old, new) == (graph.edge_set, named)
    first, second = batches(twice)
    assert (first.step.apart, second.step.apart) == ((old,), ())  # a named set may overlap with the others
    assert first.graph.edge_set is middle
    ledger_of(middle).record(Entry("a", "rows", Gaussian(0.1)))
    ledger_of(twice.edge_set).record(Entry("b", "rows", Gaussian(0.1)))
    assert [len(ledger_of(part).entries) for part in (old, middle, new)] == [1, 2, 1]
    assert [entry.release_id for entry in ledger_of(twice.edge_set).entries] == ["b"]
    with pytest.raises(BudgetError, match="already recorded"):
        ledger_of(twice.edge_set).record(Entry("b", "rows", Gaussian(0.1)))
    with pytest.raises(BudgetError, match="combine several edge sets"):
        attach_ledger(twice.edge_set, MemoryLedger())


def test_a_union_that_one_ledger_rejects_is_charged_nowhere(graph: Graph) -> None:
    limited = EdgeSet()
    attach_ledger(limited, MemoryLedger(epsilon=0.01, delta=1e-7))
    grown = graph.grow([[1.0, 0.0]], None, [3], [0], edge_set=limited)
    with pytest.raises(BudgetError, match=r"the limit of 0\.01"):
        ledger_of(grown.edge_set).record(Entry("a", "rows", Gaussian(0.5)))
    assert ledger_of(graph.edge_set).entries == ()


def test_new_nodes_are_in_no_part_of_the_split(graph: Graph) -> None:
    split = graph.with_split(*torch.eye(3, dtype=torch.bool))
    grown = split.grow([[1.0, 0.0]], [0], [3], [0])
    assert [int(grown.labeled_in(part).sum()) for part in ("train", "val", "test")] == [1, 1, 1]


def test_growth_without_new_nodes_returns_the_same_graph(graph: Graph) -> None:
    nothing = torch.empty(0, graph.num_features)
    assert graph.grow(nothing, None, [], []) is graph
    with pytest.raises(GraphError, match="joins two existing nodes"):
        graph.grow(nothing, None, [0], [1])


def test_ids_and_sparse_features_grow_with_the_graph(graph: Graph) -> None:
    named = graph.replace(ids=np.array(["a", "b", "c"]), x=sparse.csr_array(np.eye(3, 2)))
    grown = named.grow([[0.0, 7.0]], None, [3], [0], ids=np.array(["d"]))
    assert grown.ids is not None and grown.ids.tolist() == ["a", "b", "c", "d"]
    assert isinstance(grown.x, sparse.csr_array) and grown.x.toarray()[3].tolist() == [0, 7]
    for wrong in (None, np.array(["b"]), np.array(["d", "e"])):
        with pytest.raises(GraphError, match="ids="):
            named.grow([[1.0, 0.0]], None, [3], [0], ids=wrong)


@pytest.mark.parametrize(
    ("x", "y", "source", "target", "message"),
    [
        ([[1.0, 0.0]], None, [3, 2], [0, 0], "joins two existing nodes"),
        ([[1.0, 0.0, 0.0]], None, [3], [0], "The new nodes have 3 features, but the graph has 2"),
        ([[1.0, 0.0]], [0, 1], [3], [0], "2 labels were given for 1 new nodes"),
        ([[1.0, 0.0]], None, [4], [0], "names a node that does not exist"),
        (None, None, [3], [0], "New nodes need features"),
    ],
)
def test_rejects_inconsistent_growth(
    graph: Graph, x: Any, y: Any, source: list[int], target: list[int], message: str
) -> None:
    with pytest.raises(GraphError, match=message) as error:
        graph.grow(x, y, source, target)
    if "joins" in message:  # without the ends of the edge
        assert not set("23") & set(str(error.value))


def test_new_edges_have_weights_exactly_if_the_old_ones_do(graph: Graph) -> None:
    with pytest.raises(GraphError, match="Remove weight="):
        graph.grow(np.eye(1, 2), None, [3], [0], weight=[1.0])
    weighted = Graph.from_edges(np.eye(2), [0, 1], [0], [1], directed=False, weight=[1], max_weight=4)
    with pytest.raises(GraphError, match="need both"):
        weighted.grow(np.eye(1, 2), None, [2], [0])
