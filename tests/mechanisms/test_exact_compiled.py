"""The compiled sampler against NumPy's: the same samples, wherever and however many at once."""

import numpy as np
import pytest

from graphveil._llvm import host_features
from graphveil._util.random import RowStream
from graphveil.mechanisms import DiscreteGaussian, _exact, _exact_compiled

pytest.importorskip("llvmlite", minversion="0.45")

KEY = bytes(range(32))
MOST = _exact_compiled.blocks_at_once(host_features())
needs_aes = pytest.mark.skipif(not MOST, reason="the processor has no instructions for AES")


def plain(rows: np.ndarray, dim: int, numerator: int) -> np.ndarray:
    strips = _exact._strips(numerator, _exact.AMBIGUOUS)
    return _exact._drawn_by_numpy(strips, RowStream(KEY), rows, dim)


@needs_aes
@pytest.mark.parametrize("numerator", [100, 1024, 5 * 1024 + 1, 6776 * 1024 + 309, 134_000 * 1024, 1 << 36])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 15, 16, 17, 40])
def test_every_sample_is_the_same(numerator: int, dim: int) -> None:
    rows = np.arange(20_000 // dim)
    drawn = _exact.discrete_gaussian(RowStream(KEY), rows, dim, numerator)
    assert drawn.dtype == np.int32 and drawn.shape == (len(rows), dim)
    assert np.array_equal(drawn, plain(rows, dim, numerator))


@needs_aes
@pytest.mark.parametrize(
    "rows",
    [
        np.empty(0, dtype=np.int64),
        np.array([5]),
        np.array([8, 3, 3, 2**31 - 1, 2**32 + 5, 2**40]),
        np.arange(100)[::-3],
        np.arange(2**32 - 4, 2**32 + 9),
    ],
)
def test_rows_of_any_number_and_order_are_the_same(rows: np.ndarray) -> None:
    drawn = _exact.discrete_gaussian(RowStream(KEY), rows, 7, 3000)
    assert np.array_equal(drawn, plain(rows, 7, 3000))


@needs_aes
def test_chunks_of_any_size_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _exact.discrete_gaussian(RowStream(KEY), np.arange(50), 6, 9999)
    for chunk in (1, 13, 100):
        monkeypatch.setattr(_exact_compiled, "_STRIP", chunk)
        assert np.array_equal(_exact.discrete_gaussian(RowStream(KEY), np.arange(50), 6, 9999), whole)


@needs_aes
@pytest.mark.parametrize("blocks", [blocks for blocks in (1, 2, 4) if blocks <= MOST])
def test_registers_of_every_width_draw_the_same(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_exact, "compiled_pass", lambda: _exact_compiled.made(blocks))
    drawn = _exact.discrete_gaussian(RowStream(KEY), np.arange(700), 9, 6776 * 1024 + 309)
    assert np.array_equal(drawn, plain(np.arange(700), 9, 6776 * 1024 + 309))


@needs_aes
def test_what_comes_near_a_tie_is_drawn_again_in_arbitrary_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[int] = []
    plainly = _exact._drawn_by_numpy
    monkeypatch.setattr(_exact, "_drawn_by_numpy", lambda *args: again.append(len(args[2])) or plainly(*args))
    monkeypatch.setattr(_exact_compiled, "_STRIP", 64)
    rows = np.arange(640)
    sure = _exact.discrete_gaussian(RowStream(KEY), rows, 4, 5000)
    assert not again
    monkeypatch.setattr(_exact, "AMBIGUOUS", 2.0**-9)  # of which a sample in some hundred comes so near
    near = _exact.discrete_gaussian(RowStream(KEY), rows, 4, 5000)
    assert 0 < len(again) < 40 and set(again) == {8}
    assert np.array_equal(sure, near)


@needs_aes
def test_another_key_is_another_noise() -> None:
    rows = np.arange(100)
    mine, other = (_exact.discrete_gaussian(RowStream(key), rows, 4, 1 << 30) for key in (KEY, bytes(32)))
    assert (mine != other).mean() > 0.99


@pytest.mark.parametrize("dim", [3, 16])
def test_a_processor_without_the_instructions_draws_with_numpy(
    dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    law, rows = DiscreteGaussian(300.0), np.arange(64)
    here = law.draw(RowStream(KEY), rows, dim)
    monkeypatch.setattr(_exact_compiled, "blocks_at_once", lambda features: 0)
    _exact_compiled._pass.cache_clear()
    try:
        assert _exact_compiled.compiled_pass() is None
        assert np.array_equal(law.draw(RowStream(KEY), rows, dim), here)
    finally:
        _exact_compiled._pass.cache_clear()
