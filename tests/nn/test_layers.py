"""Layers against plain matrix algebra."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from graphveil.nn.layers import (
    Dropout,
    FeedForward,
    Hidden,
    Linear,
    SparseRows,
    batch_of,
    batches_of,
    unit_rows,
)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def matrix() -> sparse.csr_array:
    """Sparse rows; row 3 and column 5 are empty."""
    dense = np.random.default_rng(0).random((20, 9), dtype=np.float32)
    dense[dense < 0.6] = 0
    dense[3], dense[:, 5] = 0, 0
    return sparse.csr_array(dense)


def test_products_of_sparse_rows_are_those_of_the_dense_matrix(matrix):
    rows, dense = SparseRows.from_scipy(matrix), torch.from_numpy(matrix.toarray())
    right, left = torch.randn(9, 4, generator=stream()), torch.randn(20, 4, generator=stream())
    torch.testing.assert_close(rows.apply(right), dense @ right)
    torch.testing.assert_close(rows.transposed(left), dense.t() @ left)
    doubled = rows.with_values(2 * rows.values)
    torch.testing.assert_close(doubled.transposed(left), 2 * dense.t() @ left)
    picked = batch_of(matrix, torch.tensor([4, 3, 0]))
    assert isinstance(picked, SparseRows)
    torch.testing.assert_close(picked.apply(torch.eye(9)), dense[[4, 3, 0]])


def test_batches_are_cached_by_their_index_tensor(matrix):
    batches, train, val = batches_of(matrix), torch.arange(5), torch.arange(5, 9)
    first = batches(train)
    batches(val)
    assert batches(train) is first
    assert batches(train.clone()) is not first


@pytest.mark.parametrize("outputs", [1, 6, 11, 12, 30])
@pytest.mark.parametrize("kind", ["dense", "blocks", "sparse"])
def test_a_linear_layer_is_an_affine_map_with_its_gradients(matrix, outputs, kind):
    layer, dense = Linear(9, outputs, generator=stream()), torch.from_numpy(matrix.toarray())
    if kind == "sparse":
        x = SparseRows.from_scipy(matrix)
    else:
        dense = dense.requires_grad_()
        x = dense.split([4, 5], dim=1) if kind == "blocks" else dense
    answers = [layer(x), dense @ layer.weight + layer.bias]
    torch.testing.assert_close(*answers)
    probe = torch.randn(20, outputs, generator=stream(2))
    wanted = [layer.weight, layer.bias] + ([dense] if dense.requires_grad else [])
    torch.testing.assert_close(*(torch.autograd.grad((answer * probe).sum(), wanted) for answer in answers))


def test_the_generator_determines_the_parameters():
    draws = [Linear(3, 2, generator=stream(seed)).weight.detach() for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert float(draws[0].abs().max()) <= 3**-0.5


def test_dropout_keeps_the_mean_and_is_off_in_evaluation():
    layer = Dropout(0.25, generator=stream())
    dropped = layer(torch.ones(100, 100))
    assert dropped.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert float(dropped.mean()) == pytest.approx(1, abs=0.03)
    assert torch.equal(layer.eval()(torch.ones(2)), torch.ones(2))


def test_dropout_drops_stored_entries_of_sparse_rows_and_blocks_independently(matrix):
    rows = SparseRows.from_scipy(matrix)
    dropped = Dropout(0.5, generator=stream())(rows)
    assert isinstance(dropped, SparseRows)
    assert torch.equal(dropped.columns, rows.columns)
    assert 0 < int((dropped.values == 0).sum()) < len(rows.values)
    first, second = Dropout(0.5, generator=stream())((torch.ones(50, 2), torch.ones(50, 2)))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_a_hidden_layer_normalizes_before_its_activation(batch_norm):
    x = torch.randn(50, 4, generator=stream())
    normed = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt() if batch_norm else x.clone()
    hidden = Hidden(4, generator=stream(), activation="tanh", batch_norm=batch_norm, dropout=0.0)
    torch.testing.assert_close(hidden(x), normed.tanh())


def test_the_last_layer_has_an_activation_only_if_requested():
    x = torch.randn(30, 4, generator=stream())
    plain = FeedForward([4, 5, 2], generator=stream())
    active = FeedForward([4, 5, 2], generator=stream(), plain_last=False)
    assert float(plain(x).detach().min()) < 0
    torch.testing.assert_close(active(x), functional.relu(plain(x)))


def test_input_dropout_is_drawn_for_every_batch():
    network = FeedForward([4, 2], generator=stream(), input_dropout=0.5)
    x = torch.ones(30, 4)
    assert not torch.equal(network(x), network(x))
    assert torch.equal(network.eval()(x), network(x))


def test_unit_rows_have_norm_one_and_the_right_gradient():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]])
    assert unit_rows(x).norm(dim=1).tolist() == [1.0, 0.0, 1.0]
    random: Tensor = torch.randn(6, 4, generator=stream(), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(unit_rows, (random,))
