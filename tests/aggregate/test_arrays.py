import pytest
import torch

from graphveil.aggregate.arrays import empty_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (100_000, 16)])
def test_rows_start_on_a_cache_line_and_are_contiguous(shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows = empty_rows(*shape, dtype)
    assert rows.shape == shape
    assert rows.dtype == dtype
    assert rows.data_ptr() % 64 == 0 or not rows.numel()
    assert rows.is_contiguous()
    rows.fill_(1.0)
    assert rows.sum() == shape[0] * shape[1]
