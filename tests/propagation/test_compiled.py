"""Rows that are shortened by a compiled pass, against torch: the same bytes, or named."""

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.propagation import _compiled, normalize, shrink_unit

pytest.importorskip("llvmlite", minversion="0.45")


def rows_of(dim: int, count: int = 3000) -> Tensor:
    """Return rows of all lengths, and some without one."""
    rng = np.random.default_rng(dim)
    rows = rng.normal(size=(count, dim)) * rng.uniform(0, 3, size=(count, 1))
    rows[:4] = np.array([[0.0], [-0.0], [1e-44], [1e30]])
    rows[4], rows[5, 0] = 1.0, 1e-38
    return torch.from_numpy(rows).to(torch.float32)


def bits(rows: Tensor) -> Tensor:
    """Return the bytes, which tell 0 from -0."""
    return rows.view(torch.int32)


@pytest.mark.parametrize("std", [0.0, 0.3, 1.0, 1.3])
@pytest.mark.parametrize("dim", [1, 2, 7, 8, 9, 16, 33, 128])
def test_rows_have_the_same_bytes_with_and_without_a_compiler(
    dim: int, std: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(dim)
    fast, (_, unsure) = shrink_unit(rows, std), _compiled.shrunk(rows, dim**0.5 * std, 1.0)
    assert len(unsure) < 20
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    assert not _compiled.can_shrink(rows)
    assert torch.equal(bits(fast), bits(shrink_unit(rows, std)))


def test_a_number_in_the_middle_between_two_floats_is_named() -> None:
    rows = torch.tensor([[1.0], [1.0], [2.0]])
    for off, named in ((0.0, [0, 1, 2]), (2.0**-50, [0, 1, 2]), (2.0**-40, [])):
        assert _compiled.shrunk(rows, 0.0, 1 / (1 + 2.0**-24 + off))[1].tolist() == named


def test_a_row_as_long_as_its_noise_or_without_a_length_is_named() -> None:
    rows = torch.tensor([[3.0, 4.0], [3.0, 4.1], [torch.nan, 0.0], [3.0, 3.9], [torch.inf, 1.0], [0.0, 0.0]])
    assert _compiled.shrunk(rows, 5.0, 1.0)[1].tolist() == [0, 2, 4]


def test_named_rows_are_done_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(5)
    plain = normalize._rescaled(rows, 5**0.5, rows.dtype)
    every = torch.arange(0, len(rows), 3)

    def wrong(*given: object) -> tuple[Tensor, Tensor]:
        out = plain.clone()
        out[every] = 7.0
        return out, every

    monkeypatch.setattr(normalize, "shrunk", wrong)
    assert torch.equal(bits(shrink_unit(rows, 1.0)), bits(plain))


@pytest.mark.parametrize("threads", [2, 3])
def test_any_number_of_threads_gives_the_same_bytes(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(6)
    alone = shrink_unit(rows, 0.5)
    monkeypatch.setattr(_compiled, "_ROWS_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert torch.equal(bits(shrink_unit(rows, 0.5)), bits(alone))


def test_rows_of_other_types_and_widths_are_left_to_torch() -> None:
    assert _compiled.can_shrink(torch.ones(2, 128))
    assert not _compiled.can_shrink(torch.ones(2, 129)) and not _compiled.can_shrink(torch.ones(2, 0))
    assert not _compiled.can_shrink(torch.ones(2, 4, dtype=torch.float64))
