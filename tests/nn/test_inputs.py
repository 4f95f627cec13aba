"""Propagated inputs: the two orders of computation, their gradients, and how one is chosen."""

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.edges.adjacency import Adjacency
from graphveil.nn.layers import SparseRows
from graphveil.nn.lpgnn import (
    FeatureEstimates,
    LazyInputs,
    propagated,
)
from graphveil.nn.message_passing import k_prop

RING = Adjacency.from_edges(range(8), [1, 2, 3, 4, 5, 6, 7, 0], num_nodes=8, directed=False)
ONE_WAY = Adjacency.from_edges([0, 1, 2, 2], [1, 2, 3, 7], num_nodes=8, directed=True)


def sampled(middle: float | None = 0.5) -> FeatureEstimates:
    """Return estimates of 40 features, of which each node reported two."""
    rng = np.random.default_rng(0)
    columns = np.stack([rng.choice(40, 2, replace=False) for _ in range(8)]).ravel()
    values = rng.choice([-9.0, 9.0], 16).astype(np.float32)
    matrix = sparse.csr_array((values, columns.astype(np.int32), np.arange(0, 17, 2)), shape=(8, 40))
    return FeatureEstimates(matrix, None if middle is None else torch.full((40,), middle))


@pytest.mark.parametrize("adjacency", [RING, ONE_WAY], ids=["ring", "one way"])
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("middle", [None, 0.5])
def test_both_orders_give_the_same_rows_and_gradients(adjacency, steps, middle) -> None:
    kprop = k_prop(adjacency, steps)
    found = []
    given = sampled(middle)
    assert not isinstance(given.deviations, torch.Tensor)
    late = LazyInputs(SparseRows.from_scipy(given.deviations), given.middle, kprop)
    for inputs in (kprop.apply(given.dense()), late):
        weight = torch.linspace(-1, 1, 120).reshape(40, 3).requires_grad_()
        out = inputs @ weight
        (out * torch.arange(24.0).reshape(8, 3)).sum().backward()
        found.append((out.detach(), weight.grad))
    (early, early_grad), (late, late_grad) = found
    assert early_grad is not None and late_grad is not None
    assert torch.allclose(early, late, atol=1e-5)
    assert torch.allclose(early_grad, late_grad, atol=1e-3)


def test_few_numbers_are_propagated_late_and_many_early() -> None:
    few = propagated(sampled(), k_prop(RING, 2))
    assert isinstance(few, LazyInputs)
    assert isinstance(propagated(sampled(), k_prop(RING, 50)), torch.Tensor)
    assert isinstance(propagated(FeatureEstimates(sampled().dense()), k_prop(RING, 1)), torch.Tensor)


def test_estimates_are_deviations_from_the_middle() -> None:
    dense = sampled().dense()
    assert (dense == 0.5).sum() == 8 * 38
    assert set(dense.unique().tolist()) == {-8.5, 0.5, 9.5}
