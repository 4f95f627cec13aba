"""KProp and the maps that can take its place: golden values, transposes, loops, isolated nodes, gradients."""

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.edges.adjacency import Adjacency
from graphveil.errors import ConfigError, GraphError
from graphveil.nn.layers import SparseRows, multiply
from graphveil.nn.message_passing import Propagation, k_prop

# local_and_topology.md, 15.7: edges 0-1, 0-3, 1-3, 2-3.
SLIDE = Adjacency.from_edges([0, 0, 1, 2], [1, 3, 3, 3], num_nodes=4, directed=False)
FIRST = torch.tensor([[1.0], [0.0], [0.0], [0.0]])
LONELY = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
ONE_WAY = Adjacency.from_edges([0, 0, 1], [1, 2, 2], num_nodes=3, directed=True)


@pytest.mark.parametrize(
    ("aggregator", "steps", "expected"),
    [
        ("gcn", 0, [1.0, 0.0, 0.0, 0.0]),
        ("gcn", 1, [0.0, 0.5, 0.0, 0.40824829]),
        ("gcn", 2, [0.41666667, 0.16666667, 0.23570226, 0.20412415]),
        ("gcn", 3, [0.16666667, 0.29166667, 0.11785113, 0.37422760]),
        ("mean", 2, [0.41666667, 0.16666667, 0.33333333, 0.16666667]),
    ],
)
def test_the_golden_values(aggregator, steps, expected) -> None:
    found = k_prop(SLIDE, steps, aggregator=aggregator).apply(FIRST)
    assert found.flatten().tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("adjacency", [SLIDE, LONELY, ONE_WAY], ids=["slide", "lonely", "one way"])
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("isolated", ["zero", "keep"])
def test_it_is_a_power_of_its_matrix_and_so_is_the_transpose(adjacency, aggregator, loops, isolated) -> None:
    kprop = k_prop(adjacency, 3, aggregator=aggregator, self_loops=loops, isolated=isolated)
    count = adjacency.num_nodes
    source, target = adjacency.edge_index().numpy()
    dense = np.zeros((count, count))
    dense[target, source] = 1
    dense += np.eye(count) * loops
    degree = dense.sum(axis=1)
    left = np.divide(1, degree**0.5, out=np.zeros(count), where=degree > 0)
    hop = dense * (left[:, None] * left if aggregator == "gcn" else left[:, None] ** 2)
    hop += np.diag((degree == 0) * (isolated == "keep"))
    rows = torch.from_numpy(np.random.default_rng(0).random((count, 2), dtype=np.float32))
    power = np.linalg.matrix_power(hop, 3)
    assert np.allclose(kprop.apply(rows), power @ rows.numpy(), atol=1e-6)
    assert np.allclose(kprop.transposed(rows), power.T @ rows.numpy(), atol=1e-6)


def test_means_of_constant_rows_are_constant_but_for_the_isolated() -> None:
    ones = torch.ones(3, 1)
    assert k_prop(LONELY, 5, aggregator="mean").apply(ones).flatten().tolist() == [1, 1, 0]
    kept = k_prop(LONELY, 5, aggregator="mean", isolated="keep")
    assert kept.apply(ones).flatten().tolist() == [1, 1, 1]


def test_loops_come_before_the_normalization() -> None:
    looped = k_prop(LONELY, 1, aggregator="mean", self_loops=True)
    assert looped.apply(torch.tensor([[1.0], [0.0], [5.0]])).flatten().tolist() == [0.5, 0.5, 5.0]


def test_weights_of_edges_are_not_read() -> None:
    weighted = Adjacency.from_edges(
        [0, 0, 1, 2],
        [1, 3, 3, 3],
        num_nodes=4,
        directed=False,
        weight=[1.0, 2.0, 3.0, 4.0],
        max_weight=4.0,
    )
    assert torch.equal(k_prop(weighted, 2).apply(FIRST), k_prop(SLIDE, 2).apply(FIRST))


def test_gradients_flow_back_through_the_transpose() -> None:
    kprop = k_prop(ONE_WAY, 2, aggregator="mean")
    rows = torch.rand(3, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    (multiply(kprop, rows) * weight).sum().backward()
    assert rows.grad is not None
    assert torch.allclose(rows.grad, kprop.transposed(weight))


def test_a_chain_applies_its_first_part_first() -> None:
    rng = np.random.default_rng(1)
    first, second = (sparse.csr_array(rng.random((4, 4)) * (rng.random((4, 4)) > 0.5)) for _ in range(2))
    rows = torch.from_numpy(rng.random((4, 3), dtype=np.float32))
    chain = Propagation(4, (SparseRows.from_scipy(first), SparseRows.from_scipy(second)))
    both = second.toarray() @ first.toarray()
    assert np.allclose(chain.apply(rows), both @ rows.numpy(), atol=1e-6)
    assert np.allclose(chain.transposed(rows), both.T @ rows.numpy(), atol=1e-6)
    assert (chain.work, chain.num_nodes) == (first.nnz + second.nnz, 4)


def test_work_counts_products() -> None:
    assert k_prop(SLIDE, 3).work == 3 * 8
    assert k_prop(SLIDE, 0).work == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": -1}, "steps=-1 must be a whole number of at least 0"),
        ({"aggregator": "sum"}, "aggregator='sum' is not one of gcn, mean"),
        ({"isolated": "drop"}, "isolated='drop' is not one of zero, keep"),
    ],
)
def test_wrong_parameters_are_rejected(wrong, message) -> None:
    with pytest.raises(ConfigError, match=message):
        k_prop(**{"adjacency": SLIDE, "steps": 1, **wrong})


def test_rows_are_one_a_node() -> None:
    with pytest.raises(GraphError, match="3 rows for 4 nodes"):
        k_prop(SLIDE, 0).apply(torch.ones(3, 1))
