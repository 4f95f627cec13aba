"""Whole numbers from words: uniform ones, subsets, and rounding that keeps expectations."""

import numpy as np
import pytest

from graphveil.core.noise.sampling import ExtraWords, halves, round_up_or_down, row_blocks, uniform_below

from .fits import fits, stream


def test_below_is_the_high_part_of_a_product_of_128_bits() -> None:
    words = stream().words(np.arange(1000), words_per_row=2).reshape(-1)
    for bound in (1, 2, 7, 602, 2**31 - 1, 2**31):
        assert uniform_below(words, bound).tolist() == [int(word) * bound >> 64 for word in words.tolist()]


def test_rounding_goes_to_the_two_neighbors_with_the_position_as_expectation() -> None:
    words = halves(stream().words(np.arange(1_000_000), words_per_row=1)[:, 0])[0]
    rounded = round_up_or_down(np.full(len(words), 2.3), words)
    fits(np.bincount(rounded, minlength=5), np.array([0, 0, 0.7, 0.3, 0]))


@pytest.mark.parametrize("position", [0.0, 1.0, 255.0, 2.0**20])
def test_a_whole_position_stays(position: float) -> None:
    words = np.array([0, 1 << 31, (1 << 32) - 1], dtype=np.uint32)
    assert (round_up_or_down(np.full(3, position), words) == position).all()


def test_every_value_has_its_own_further_words() -> None:
    draws = stream()
    place = ExtraWords(draws, np.array([5, 9]), 3)
    more = [place.more(np.arange(6), attempt) for attempt in range(3)]
    first = draws.words(np.array([5, 9]), words_per_row=8).reshape(-1)
    drawn = np.concatenate([*more, first])
    assert np.unique(drawn).size == drawn.size
    column = ExtraWords(draws, np.array([5, 9]), 1, first=2)
    assert column.more(np.arange(2)).tolist() == more[0][[2, 5]].tolist()


def test_blocks_of_rows_cover_all_rows_once() -> None:
    for rows, width in ((0, 5), (1, 5), (1000, 602), (70_000, 1), (10, 1_000_000)):
        covered = [row for part in row_blocks(rows, width) for row in range(part.start, part.stop)]
        assert covered == list(range(rows))
