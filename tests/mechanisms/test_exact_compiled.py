"""The compiled sampler against NumPy's: the same samples, wherever and however many at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from graphveil._llvm import host_features
from graphveil._random import RowStream
from graphveil.mechanisms import DiscreteGaussian, _exact, _exact_compiled

pytest.importorskip("llvmlite", minversion="0.45")

Patch = pytest.MonkeyPatch
KEY = bytes(range(32))
MOST = _exact_compiled.blocks_at_once(host_features())
needs_aes = pytest.mark.skipif(not MOST, reason="the processor has no instructions for AES")


def plain(rows: np.ndarray, dim: int, numerator: int) -> np.ndarray:
    strips = _exact._strips(numerator, _exact.AMBIGUOUS)
    return _exact._drawn_plainly(strips, RowStream(KEY), rows, dim)


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
    plainly = _exact._drawn_plainly
    monkeypatch.setattr(_exact, "_drawn_plainly", lambda *args: again.append(len(args[2])) or plainly(*args))
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


# -- seeded bugs -------------------------------------------------------------------------------------------


def _drawing(change: Callable[..., Any]) -> Callable[[Patch], None]:
    def bug(patch: Patch) -> None:
        draw = _exact_compiled.Pass.draw
        patch.setattr(_exact_compiled.Pass, "draw", lambda *given: change(draw, *given))

    bug.__name__ = change.__name__
    return bug


def rows_have_the_noise_of_their_places(draw: Any, one: Any, keys: Any, rows: Any, *how: Any) -> Any:
    return draw(one, keys, np.arange(len(rows)), *how)


def _strip(dim: int) -> int:
    """Return the rows of a strip, whose words fill up registers."""
    return max(1, _exact_compiled._STRIP // (-(-dim // 8) * 8))


def every_chunk_repeats_the_first(draw: Any, one: Any, keys: Any, rows: Any, dim: int, *how: Any) -> Any:
    return draw(one, keys, rows[np.arange(len(rows)) % _strip(dim)], dim, *how)


def later_chunks_have_no_noise(draw: Any, one: Any, keys: Any, rows: Any, dim: int, *how: Any) -> Any:
    out, again = draw(one, keys, rows, dim, *how)
    out[_strip(dim) :] = 0
    return out, again


def compiled_noise_has_one_key(draw: Any, one: Any, keys: Any, *how: Any) -> Any:
    return draw(one, np.zeros_like(keys), *how)


def ties_are_decided_by_floating_point(draw: Any, *given: Any) -> Any:
    return draw(*given)[0], []


def every_candidate_of_a_narrow_strip_is_taken(patch: Patch) -> None:
    def tables(self: _exact._Strips) -> Any:
        slots, strips, *others = shipped.func(self)
        strips[:, 1] = -(strips[:, 1] != 0).to(strips.dtype)
        return slots, strips, *others

    shipped = vars(_exact._Strips)["compiled"]
    patch.setattr(_exact._Strips, "compiled", property(tables))


def rows_anywhere_are_drawn_as_by_numpy() -> None:
    """Each by its own number."""
    test_rows_of_any_number_and_order_are_the_same(np.arange(100)[::-3])


EVERY = partial(test_every_sample_is_the_same, numerator=3000, dim=5)
BUGS = (
    *(
        (bug, check)
        for bug, check in (
            (
                _drawing(rows_have_the_noise_of_their_places),
                rows_anywhere_are_drawn_as_by_numpy,
            ),
            (_drawing(every_chunk_repeats_the_first), test_chunks_of_any_size_draw_the_same),
            (_drawing(later_chunks_have_no_noise), test_chunks_of_any_size_draw_the_same),
            (_drawing(compiled_noise_has_one_key), test_another_key_is_another_noise),
            (
                _drawing(ties_are_decided_by_floating_point),
                test_what_comes_near_a_tie_is_drawn_again_in_arbitrary_precision,
            ),
            (every_candidate_of_a_narrow_strip_is_taken, EVERY),
        )
        if MOST
    ),
)
