"""The sampler's loops in C against NumPy's: the same samples, wherever and however many at once."""

import numpy as np
import pytest
from kernels import no_kernels

from graphveil.core.noise import _kernels, discrete_gaussian
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.noise.random import RowStream

pytestmark = pytest.mark.skipif(not _kernels.available(), reason="the loops in C were not built")

KEY = bytes(range(32))


def in_numpy(rows: np.ndarray, dim: int, numerator: int) -> np.ndarray:
    with no_kernels():
        return discrete_gaussian.exact_samples(RowStream(KEY), rows, dim, numerator)


@pytest.mark.parametrize("numerator", [100, 1024, 5 * 1024 + 1, 6776 * 1024 + 309, 134_000 * 1024, 1 << 36])
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 15, 16, 17, 40])
def test_every_sample_is_the_same(numerator: int, dim: int) -> None:
    rows = np.arange(20_000 // dim)
    drawn = discrete_gaussian.exact_samples(RowStream(KEY), rows, dim, numerator)
    assert drawn.dtype == np.int32 and drawn.shape == (len(rows), dim)
    assert np.array_equal(drawn, in_numpy(rows, dim, numerator))


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
    drawn = discrete_gaussian.exact_samples(RowStream(KEY), rows, 7, 3000)
    assert np.array_equal(drawn, in_numpy(rows, 7, 3000))


def test_rows_of_several_chunks_draw_the_same_as_rows_of_one() -> None:
    rows = np.arange(20_000)  # a chunk of six columns has 8,192 rows
    parts = [discrete_gaussian.exact_samples(RowStream(KEY), part, 6, 9999) for part in np.split(rows, 20)]
    whole = discrete_gaussian.exact_samples(RowStream(KEY), rows, 6, 9999)
    assert np.array_equal(whole, np.concatenate(parts))
    assert np.array_equal(whole, in_numpy(rows, 6, 9999))


def test_near_ties_are_decided_in_arbitrary_precision() -> None:
    rows, wide = np.arange(640), 2.0**-9  # as near as one sample in some hundred
    words = RowStream(KEY).words(rows, words_per_row=4).reshape(-1)
    _, _, near = discrete_gaussian._strips(5000, wide)._in_c.decide(words.astype(np.uint32), words, wide)
    assert 0 < len(near) < 100
    sure = discrete_gaussian.exact_samples(RowStream(KEY), rows, 4, 5000)
    assert np.array_equal(sure, discrete_gaussian.exact_samples(RowStream(KEY), rows, 4, 5000, wide))
    assert np.array_equal(sure, in_numpy(rows, 4, 5000))


def test_another_key_is_another_noise() -> None:
    rows = np.arange(100)
    mine, other = (
        discrete_gaussian.exact_samples(RowStream(key), rows, 4, 1 << 30) for key in (KEY, bytes(32))
    )
    assert (mine != other).mean() > 0.99


@pytest.mark.parametrize("dim", [3, 16])
def test_noise_is_bit_identical_without_the_c_extension(dim: int) -> None:
    law, rows = DiscreteGaussian(300.0), np.arange(64)
    here = law.draw(RowStream(KEY), rows, dim)
    with no_kernels():
        assert not _kernels.available()
        assert np.array_equal(law.draw(RowStream(KEY), rows, dim), here)


def test_tables_that_do_not_fit_each_other_are_rejected() -> None:
    tables = vars(discrete_gaussian._strips(3000, discrete_gaussian.AMBIGUOUS)._in_c)
    for name in ("slots", "start", "sure", "share", "mask"):
        with pytest.raises(ValueError, match="every slot"):
            _kernels.Strips(**{**tables, name: tables[name][:-1]})
    with pytest.raises(ValueError, match="no pairs"):
        _kernels.counters(np.arange(3), np.arange(2), paired=True)
