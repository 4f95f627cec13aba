import math

import numpy as np
import pytest
import torch

from graphveil.core.features import plain_unit, safe_unit, shrink_unit
from graphveil.errors import InputError

ROWS = torch.from_numpy(np.random.default_rng(0).normal(size=(40_000, 5)))


def test_rows_become_just_shorter_than_one_and_keep_their_direction() -> None:
    unit = safe_unit(ROWS)
    assert unit.dtype == torch.float64
    norms = unit.norm(dim=1)
    assert bool((norms < 1).all())
    assert bool((norms > 1 - 2e-6).all())
    assert torch.allclose(unit * ROWS.norm(dim=1, keepdim=True), ROWS, rtol=2e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_rows_of_any_scale_have_a_direction(scale: float) -> None:
    assert torch.allclose(safe_unit(ROWS[:100] * scale), safe_unit(ROWS[:100]), rtol=1e-12)


def test_float32_rows_at_the_ends_of_their_range_have_a_direction() -> None:
    rows = torch.tensor([[1e-45, 0.0], [3e38, 3e38]], dtype=torch.float32)
    assert safe_unit(rows).norm(dim=1).tolist() == pytest.approx([1, 1], abs=2e-6)


def test_a_row_of_zeros_stays_zero() -> None:
    zeros = torch.zeros(3, 4)
    assert not safe_unit(zeros).any()
    assert not shrink_unit(zeros, 1.0).any()
    assert not plain_unit(zeros).any()
    assert safe_unit(torch.zeros(0, 4)).shape == (0, 4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_without_a_direction_is_an_error_that_shows_no_value(bad: float, dtype: torch.dtype) -> None:
    rows = torch.full((3, 2), 0.625, dtype=dtype)
    rows[1, 0] = bad
    for normalize in (safe_unit, lambda x: shrink_unit(x, 1.0)):
        with pytest.raises(InputError, match="NaN or infinite") as caught:
            normalize(rows)
        assert "0.625" not in str(caught.value)


def test_rejects_rows_with_gradients() -> None:
    with pytest.raises(InputError, match="detach"):
        safe_unit(torch.ones(2, 2, requires_grad=True))


def test_shrinking_is_james_stein_on_the_direction() -> None:
    std = 0.8
    shrunk = shrink_unit(ROWS, std)
    squared = ROWS.square().sum(dim=1)
    factor = (1 - 5 * std**2 / squared).clamp_min(0)
    assert torch.allclose(shrunk.norm(dim=1), factor, atol=2e-6)
    assert bool((factor == 0).any())
    assert bool((factor > 0.5).any())


def test_a_row_shorter_than_its_noise_becomes_zero() -> None:
    assert not shrink_unit(torch.tensor([[1.0, 1.0]]), 1.0).any()
    assert shrink_unit(torch.tensor([[3.0, 4.0]]), 1.0)[0].tolist() == pytest.approx(
        [0.6 * (1 - 2 / 25), 0.8 * (1 - 2 / 25)], rel=2e-6
    )


def test_without_noise_shrinking_is_normalizing() -> None:
    assert torch.allclose(shrink_unit(ROWS, 0.0), safe_unit(ROWS))
    assert math.isfinite(float(shrink_unit(ROWS[:5] * 1e-200, 0.0).sum()))


def test_paper_rows_have_norm_one() -> None:
    assert torch.allclose(plain_unit(ROWS).norm(dim=1), torch.ones(len(ROWS), dtype=torch.float64))
