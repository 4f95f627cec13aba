"""Network parts against plain matrix algebra."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from graphveil.nn.layers import (
    COMBINATIONS,
    Combine,
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


class TestSparseRows:
    def test_products_are_those_of_the_dense_matrix(self, matrix):
        rows, dense = SparseRows.from_scipy(matrix), torch.from_numpy(matrix.toarray())
        right, left = torch.randn(9, 4, generator=stream()), torch.randn(20, 4, generator=stream())
        torch.testing.assert_close(rows.times(right), dense @ right)
        torch.testing.assert_close(rows.transposed_times(left), dense.t() @ left)

    def test_other_values_keep_the_places(self, matrix):
        rows = SparseRows.from_scipy(matrix)
        doubled = rows.with_values(2 * rows.values)
        left = torch.randn(20, 2, generator=stream())
        torch.testing.assert_close(doubled.transposed_times(left), 2 * rows.transposed_times(left))

    def test_chosen_rows(self, matrix):
        picked = batch_of(matrix, torch.tensor([4, 3, 0]))
        assert isinstance(picked, SparseRows)
        torch.testing.assert_close(picked.times(torch.eye(9)), torch.from_numpy(matrix.toarray()[[4, 3, 0]]))

    def test_batches_of_remembers_the_tensors_it_was_asked_with(self, matrix):
        batches, train, val = batches_of(matrix), torch.arange(5), torch.arange(5, 9)
        first = batches(train)
        batches(val)
        assert batches(train) is first
        assert batches(train.clone()) is not first


class TestLinear:
    @pytest.mark.parametrize("outputs", [1, 6, 11, 12, 30])
    def test_equals_the_textbook_map_and_gradients(self, outputs):
        layer = Linear(9, outputs, generator=stream())
        x = torch.randn(20, 9, generator=stream(1), requires_grad=True)
        grad = torch.randn(20, outputs, generator=stream(2))
        layer(x).backward(grad)
        found = [x.grad, layer.weight.grad, layer.bias.grad]
        other = x.detach().requires_grad_()
        weight, bias = (p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias))
        expected = other @ weight + bias
        expected.backward(grad)
        torch.testing.assert_close(layer(x), expected)
        for ours, theirs in zip(found, [other.grad, weight.grad, bias.grad], strict=True):
            torch.testing.assert_close(ours, theirs)

    def test_sparse_rows_give_what_dense_rows_give(self, matrix):
        layer = Linear(9, 6, generator=stream())
        results = []
        for x in (SparseRows.from_scipy(matrix), torch.from_numpy(matrix.toarray())):
            layer.zero_grad()
            out = layer(x)
            out.square().sum().backward()
            results.append((out.detach(), layer.weight.grad.clone()))
        torch.testing.assert_close(results[0], results[1])

    @pytest.mark.parametrize("outputs", [3, 20])
    def test_blocks_of_columns_give_what_they_give_side_by_side(self, outputs):
        layer = Linear(9, outputs, generator=stream())
        blocks = torch.randn(20, 4, generator=stream(1)), torch.randn(20, 5, generator=stream(2))
        torch.testing.assert_close(layer(blocks), layer(torch.cat(blocks, dim=1)))

    def test_the_generator_decides_the_weights(self):
        draws = [Linear(3, 2, generator=stream(seed)).weight.detach() for seed in (0, 0, 1)]
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])
        assert float(draws[0].abs().max()) <= 3**-0.5


class TestDropout:
    def test_keeps_the_mean_and_stops_in_evaluation(self):
        layer = Dropout(0.25, generator=stream())
        dropped = layer(torch.ones(100, 100))
        assert dropped.unique().tolist() == [0.0, pytest.approx(4 / 3)]
        assert float(dropped.mean()) == pytest.approx(1, abs=0.03)
        assert torch.equal(layer.eval()(torch.ones(2)), torch.ones(2))

    def test_sparse_rows_lose_stored_entries_only(self, matrix):
        rows = SparseRows.from_scipy(matrix)
        dropped = Dropout(0.5, generator=stream())(rows)
        assert isinstance(dropped, SparseRows)
        assert torch.equal(dropped.columns, rows.columns)
        assert 0 < int((dropped.values == 0).sum()) < len(rows.values)

    def test_blocks_drop_each_on_its_own(self):
        first, second = Dropout(0.5, generator=stream())((torch.ones(50, 2), torch.ones(50, 2)))
        assert not torch.equal(first, second)


class TestHidden:
    def test_batch_norm_then_activation(self):
        x = torch.randn(50, 4, generator=stream())
        hidden = Hidden(4, generator=stream(), activation="relu", batch_norm=True, dropout=0.0)
        expected = functional.relu((x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt())
        torch.testing.assert_close(hidden(x), expected)

    def test_without_batch_norm(self):
        x = torch.randn(5, 4, generator=stream())
        hidden = Hidden(4, generator=stream(), activation="tanh", batch_norm=False, dropout=0.0)
        expected = x.tanh()
        assert torch.equal(hidden(x), expected)


class TestFeedForward:
    def test_the_last_layer_is_plain_unless_told_otherwise(self):
        x = torch.randn(30, 4, generator=stream())
        plain = FeedForward([4, 5, 2], generator=stream())
        active = FeedForward([4, 5, 2], generator=stream(), plain_last=False)
        assert float(plain(x).detach().min()) < 0
        torch.testing.assert_close(active(x), plain(x).relu())

    def test_input_dropout_draws_anew_every_time(self):
        network = FeedForward([4, 2], generator=stream(), input_dropout=0.5)
        x = torch.ones(30, 4)
        assert not torch.equal(network(x), network(x))
        assert torch.equal(network.eval()(x), network(x))


class TestCombine:
    @pytest.mark.parametrize("how", COMBINATIONS)
    def test_shapes(self, how):
        combine = Combine(how, 3, 4, generator=stream())
        parts = [torch.randn(7, 4, generator=stream(i)) for i in range(3)]
        head = Linear(combine.outputs, 2, generator=stream())
        assert head(combine(parts)).shape == (7, 2)

    def test_values(self):
        parts = [torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 5.0]])]
        assert torch.cat(Combine("concat", 2, 2, generator=stream())(parts), dim=1).tolist() == [[1, 2, 3, 5]]
        assert Combine("sum", 2, 2, generator=stream())(parts).tolist() == [[4, 7]]

    def test_attention_weighs_and_never_leaves_the_span(self):
        attend = Combine("attention", 2, 1, generator=stream())
        low, high = torch.zeros(5, 1), torch.ones(5, 1)
        mixed = attend([low, high]).detach()
        assert bool(((mixed > 0) & (mixed < 1)).all())
        torch.testing.assert_close(attend([high, high]), high)


class TestUnitRows:
    def test_rows_have_norm_one_and_zero_stays_zero(self):
        x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-3, 0.0]])
        assert unit_rows(x).norm(dim=1).tolist() == [1.0, 0.0, 1.0]

    def test_gradient(self):
        x: Tensor = torch.randn(6, 4, generator=stream(), dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(unit_rows, (x,))
