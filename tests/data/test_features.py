import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.data import features, rows, to_dense
from graphveil.errors import GraphError

PLAIN = [[0, 2], [3, 0], [0, 0]]


@pytest.mark.parametrize(
    "x",
    [
        PLAIN,
        np.array(PLAIN),
        torch.tensor(PLAIN),
        torch.tensor(PLAIN, dtype=torch.bfloat16),
        np.array(PLAIN).T.copy().T,
    ],
)
def test_dense_input_becomes_a_float32_tensor(x):
    assert torch.equal(features.as_features(x), torch.tensor(PLAIN, dtype=torch.float32))


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_input_becomes_float32_rows(kind):
    x = features.as_features(kind(np.array(PLAIN, dtype=np.float64)))
    assert isinstance(x, sparse.csr_array) and x.dtype == np.float32
    assert to_dense(x).tolist() == PLAIN


def test_read_only_arrays_are_copied():
    x = np.ones((2, 2), dtype=np.float32)
    x.setflags(write=False)
    tensor = features.as_features(x)
    tensor += 1
    assert x.tolist() == [[1, 1], [1, 1]]


def test_repeated_sparse_entries_are_added():
    repeated = sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(1, 2))
    assert features.as_features(repeated).nnz == 1
    assert to_dense(features.as_features(repeated)).tolist() == [[0, 2]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("wrap", [np.array, torch.tensor, sparse.csr_array])
def test_what_is_not_finite_is_refused(bad, wrap):
    with pytest.raises(GraphError, match="NaN, infinite or larger than float32") as error:
        features.as_features(wrap([[31.25, bad], [0.0, 1.0]]))
    assert "31.25" not in str(error.value)


def test_opposite_infinities_do_not_cancel():
    assert not features.is_finite(torch.tensor([[np.inf, -np.inf]]))


def test_large_finite_features_are_fine():
    assert features.is_finite(torch.full((10, 10), 3e38))


@pytest.mark.parametrize("bad", [[["a", "b"]], [[1, 2], [3]], [[object()]]])
def test_text_is_refused(bad):
    with pytest.raises(GraphError, match="not a matrix of numbers"):
        features.as_features(np.array(bad, dtype=object))


def test_a_vector_is_refused():
    with pytest.raises(GraphError, match="one row per node, not 1-dimensional"):
        features.as_features([1.0, 2.0])


@pytest.mark.parametrize("index", [torch.tensor([2, 0]), torch.tensor([True, False, True])])
@pytest.mark.parametrize("wrap", [np.array, sparse.csr_array])
def test_rows_keep_the_kind(index, wrap):
    x = features.as_features(wrap(PLAIN))
    part = rows(x, index)
    assert type(part) is type(x)
    assert torch.equal(to_dense(part), torch.tensor(PLAIN, dtype=torch.float32)[index])


def test_from_pattern_sets_ones():
    x = features.from_pattern(np.array([0, 2, 2]), np.array([0, 3]), columns=4)
    assert to_dense(x).tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]] and x.dtype == np.float32


@pytest.mark.parametrize("width", [1, 1000, 1 << 21])
def test_every_part_is_looked_at(width: int) -> None:
    part = 1 << 20  # entries that are looked at together, at most
    for place in [None, 0, part - 1, part, 2 * part - 1, 2 * part, -1]:
        values = torch.ones(-(-(2 * part + 1) // width) * width)
        if place is not None:
            values[place] = np.nan
        x = values.reshape(-1, width)
        held = sparse.csr_array((values.numpy(), np.zeros(len(values), int), np.arange(len(values) + 1)))
        assert features.is_finite(x) == features.is_finite(held) == (place is None)
    assert features.is_finite(torch.ones(0, 3)) and features.is_finite(torch.ones(3, 0))
