"""Features as dense tensors or sparse matrices of finite float32 numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core import features
from graphveil.core.features import rows, to_dense
from graphveil.errors import GraphError

PLAIN = [[0, 2], [3, 0], [0, 0]]
EXPECTED = torch.tensor(PLAIN, dtype=torch.float32)


@pytest.mark.parametrize(
    "x",
    [
        PLAIN,
        np.array(PLAIN),
        torch.tensor(PLAIN),
        torch.tensor(PLAIN, dtype=torch.bfloat16),
        np.array(PLAIN).T.copy().T,
        *(kind(np.array(PLAIN, float)) for kind in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array)),
    ],
)
def test_converts_to_float32_and_keeps_sparse_input_sparse(x: Any) -> None:
    found = features.as_features(x)
    assert isinstance(found, sparse.csr_array if sparse.issparse(x) else torch.Tensor)
    assert torch.equal(to_dense(found), EXPECTED) and to_dense(found).dtype == torch.float32


def test_read_only_arrays_are_copied() -> None:
    x = np.ones((2, 2), dtype=np.float32)
    x.setflags(write=False)
    tensor = features.as_features(x)
    tensor += 1
    assert x.tolist() == [[1, 1], [1, 1]]


def test_repeated_sparse_entries_are_added() -> None:
    repeated = sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(1, 2))
    found: Any = features.as_features(repeated)
    assert found.nnz == 1 and to_dense(found).tolist() == [[0, 2]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("wrap", [np.array, torch.tensor, sparse.csr_array])
def test_rejects_numbers_that_are_not_finite_without_printing_any(bad: float, wrap: Any) -> None:
    with pytest.raises(GraphError, match="NaN, infinite or too large for float32") as error:
        features.as_features(wrap([[31.25, bad], [0.0, 1.0]]))
    assert "31.25" not in str(error.value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([["a", "b"]], "not a matrix of numbers"),
        ([[1, 2], [3]], "not a matrix of numbers"),
        ([[object()]], "not a matrix of numbers"),
        ([1.0, 2.0], "one row per node, but they have 1 dimension"),
    ],
)
def test_rejects_values_that_are_not_a_matrix_of_numbers(bad: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        features.as_features(np.array(bad, dtype=object))


@pytest.mark.parametrize("index", [torch.tensor([2, 0]), torch.tensor([True, False, True])])
@pytest.mark.parametrize("wrap", [np.array, sparse.csr_array])
def test_rows_keeps_dense_features_dense_and_sparse_ones_sparse(index: torch.Tensor, wrap: Any) -> None:
    x = features.as_features(wrap(PLAIN))
    part = rows(x, index)
    assert type(part) is type(x) and torch.equal(to_dense(part), EXPECTED[index])


@pytest.mark.parametrize("width", [1, 1000, 1 << 21])
def test_every_entry_is_tested_for_being_finite(width: int) -> None:
    part = 1 << 20  # entries that are summed at a time
    for place in [None, 0, part - 1, part, 2 * part - 1, 2 * part, -1]:
        values = torch.ones(-(-(2 * part + 1) // width) * width)
        if place is not None:
            values[place] = np.nan
        dense = values.reshape(-1, width)
        held = sparse.csr_array((values.numpy(), np.zeros(len(values), int), np.arange(len(values) + 1)))
        assert features.is_finite(dense) == features.is_finite(held) == (place is None)
    assert features.is_finite(torch.ones(0, 3)) and features.is_finite(torch.ones(3, 0))
    assert features.is_finite(torch.full((10, 10), 3e38))  # sums do not overflow
    assert not features.is_finite(torch.tensor([[np.inf, -np.inf]]))  # and infinities do not cancel
