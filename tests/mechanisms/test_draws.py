"""Whole numbers from words: uniform ones, subsets, and rounding that keeps expectations."""

from itertools import combinations

import numpy as np
import pytest

from graphveil.mechanisms.sampling import (
    ExtraWords,
    halves,
    round_up_or_down,
    row_blocks,
    subsets,
    uniform_below,
)

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


def test_all_subsets_are_equally_likely() -> None:
    words = stream().words(np.arange(1_000_000), words_per_row=2)
    chosen = subsets(words, 5)
    pairs = list(combinations(range(5), 2))
    code = {10 * a + b: place for place, (a, b) in enumerate(pairs)}
    found = np.array([code[c] for c in range(100) if c in code])
    counts = np.bincount(10 * chosen[:, 0] + chosen[:, 1], minlength=100)
    assert counts.sum() == counts[list(code)].sum(), "a subset has two different features, ascending"
    fits(counts[list(code)][found], np.full(10, 0.1))


def test_larger_subsets_have_every_feature_once_at_most() -> None:
    chosen = subsets(stream().words(np.arange(500), words_per_row=30), 40)
    assert (np.diff(chosen, axis=1) > 0).all()
    assert chosen.min() == 0
    assert chosen.max() == 39


def test_a_subset_of_all_is_all() -> None:
    assert subsets(np.zeros((2, 3), dtype=np.uint64), 3).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_every_value_has_blocks_of_its_own_for_more() -> None:
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
