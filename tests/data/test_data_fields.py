"""What a Data may hold: arrays, lists and SciPy matrices are read, and nothing about edges is ignored."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.data import Graph
from graphveil.data.conversion import load_pyg
from graphveil.errors import GraphError
from graphveil.estimators.private_hops import private_hops
from graphveil.ledger import ledger_of

Data, Batch = load_pyg("data").Data, load_pyg("data").Batch
NODES = 40
ENDS = torch.stack([torch.arange(NODES - 1), torch.arange(1, NODES)])
PARTS = torch.arange(NODES) % 4
TERMS: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-6, "seed": 0}


def data(**changes: Any) -> Any:
    fields = {"x": torch.ones(NODES, 3), "y": torch.arange(NODES) % 2, "edge_index": ENDS}
    masks = {"train_mask": PARTS < 2, "val_mask": PARTS == 2, "test_mask": PARTS == 3}
    return Data(**{**fields, **masks, **changes})


def masks(how: Any) -> dict[str, Any]:
    return {name: how(data()[name]) for name in ("train_mask", "val_mask", "test_mask")}


DENSE = np.zeros((NODES, NODES))
DENSE[ENDS[1], ENDS[0]] = 1
SAME: dict[str, dict[str, Any]] = {
    "x and y": {"x": np.ones((NODES, 3)), "y": np.arange(NODES) % 2},
    "x and y as lists": {"x": [[1.0] * 3] * NODES, "y": [n % 2 for n in range(NODES)]},
    "y as floats": {"y": np.arange(NODES) % 2 * 1.0},
    "edge_index": {"edge_index": ENDS.numpy()},
    "edge_index as lists": {"edge_index": ENDS.tolist()},
    "masks": masks(lambda mask: mask.numpy()),
    "masks as lists": masks(lambda mask: mask.tolist()),
    "masks as integers": masks(lambda mask: mask.numpy().astype(int)),
    "masks as lists of indices": masks(lambda mask: mask.nonzero().view(-1).tolist()),
    "masks as arrays of indices": masks(lambda mask: mask.nonzero().view(-1).numpy()),
    "adj_t": {"edge_index": None, "adj_t": sp.csr_matrix(DENSE)},
    "adj_t as an array": {"edge_index": None, "adj_t": sp.coo_array(DENSE)},
    "adj_t, dense": {"edge_index": None, "adj_t": DENSE},
    "adj_t, lists": {"edge_index": None, "adj_t": DENSE.tolist()},
    "adj_t of ones": {"edge_index": None, "adj_t": torch.from_numpy(DENSE).to_sparse()},
}


@pytest.mark.parametrize("kind", SAME)
def test_fields_may_be_arrays_lists_and_matrices(kind: str) -> None:
    held = data(**SAME[kind])
    graph, expected = Graph.from_pyg(held, directed=True), Graph.from_pyg(data(), directed=True)
    assert torch.equal(graph.adjacency.edge_index(), expected.adjacency.edge_index())
    assert torch.equal(graph.x, expected.x) and torch.equal(graph.y, expected.y)  # type: ignore[arg-type]
    assert all(torch.equal(mask, expected.masks[name]) for name, mask in graph.masks.items())
    assert Graph.from_pyg(held).edge_set is Graph.from_pyg(held).edge_set  # and one budget


@pytest.mark.parametrize("how", [torch.tensor, np.array, list], ids=["tensor", "array", "list"])
def test_weights_are_read_with_their_bound(how: Any) -> None:
    held = data(edge_weight=how([0.5] * (NODES - 1)))
    graph = Graph.from_pyg(held, max_weight=2.0)
    assert graph.adjacency.weights is not None and set(graph.adjacency.weights.tolist()) == {0.25}
    weighted = data(edge_index=None, adj_t=sp.csr_matrix(DENSE * 0.5))
    graph = Graph.from_pyg(weighted, max_weight=2.0)
    assert graph.adjacency.weights is not None and set(graph.adjacency.weights.tolist()) == {0.25}


IGNORED = {
    "edge_weight": {"edge_weight": torch.rand(NODES - 1)},
    "edge_weight of ones": {"edge_weight": torch.ones(NODES - 1)},
    "edge_weight as a list": {"edge_weight": [0.5] * (NODES - 1)},
    "edge_attr": {"edge_attr": torch.rand(NODES - 1, 2)},
    "adj_t": {"edge_index": None, "adj_t": sp.csr_matrix(DENSE * 0.5)},
    "adj_t, torch": {"edge_index": None, "adj_t": torch.from_numpy(DENSE * 0.5).to_sparse()},
}


@pytest.mark.parametrize("kind", IGNORED)
def test_weights_and_features_of_edges_are_not_ignored(kind: str) -> None:
    held = data(**IGNORED[kind])
    for use in (
        Graph.from_pyg,
        gv.GAP(**TERMS).fit,
        lambda one: private_hops(one, unit="undirected-edge", epsilon=1.0, delta=1e-6),
    ):
        with pytest.raises(GraphError, match=f"'{kind.partition(' ')[0].strip(',')}'"):
            use(held)


@pytest.mark.parametrize("changes", [{"adj_t": object()}, {"adj_t": "x"}, {"train_mask": "all"}])
def test_what_is_no_number_has_a_typed_error(changes: dict[str, Any]) -> None:
    without = {"edge_index": None} if "adj_t" in changes else {}
    with pytest.raises(GraphError, match=r"data\.|mask"):
        Graph.from_pyg(data(**without, **changes))


@pytest.mark.parametrize("made", [lambda: [data()], lambda: (data(), data())], ids=["list", "tuple"])
def test_a_dataset_is_no_graph(made: Any) -> None:
    for use in (Graph.from_pyg, gv.GAP(**TERMS).fit):
        with pytest.raises(GraphError, match=r"dataset\[0\]"):
            use(made())


def test_a_batch_is_fitted_and_hops_are_released_of_a_data() -> None:
    held = Batch.from_data_list([data(), data()])
    model = gv.GAP(**TERMS, epochs=1, encoder_epochs=1).fit(held)
    assert len(model.predict()) == 2 * NODES
    one = data()
    released = private_hops(one, unit="undirected-edge", epsilon=1.0, delta=1e-6)
    assert released.rows.shape == (NODES, 3)
    assert len(ledger_of(Graph.from_pyg(one).edge_set)) == 1
