"""Levels by words: the first bits and the whole word say the same."""

import numpy as np
import pytest

from graphveil._util.random import RowStream
from graphveil.mechanisms import node_pair_noise
from graphveil.mechanisms.node_pair_noise import TOTAL, LevelSampler, under

RNG = np.random.default_rng(0)
COUNTS = {
    "small": (3, 1, 9),
    "close": (5, 1, 1, 1 << 40, 7),
    "all words": (TOTAL // 3, TOTAL // 5, TOTAL - TOTAL // 3 - TOTAL // 5),
    "many": tuple(RNG.integers(1, 1 << 50, size=131).tolist()),
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_first_bits_decide_as_whole_words_do(
    counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder = LevelSampler(counts, lowest=2)
    ends = np.array([ladder.words_from(2 + k) for k in range(len(counts))], dtype=object)
    near = [int(end) + step for end in ends for step in (-1, 0) if 0 <= end + step < ladder.total]
    words = np.array([*near, *RNG.integers(ladder.total, size=500, dtype=np.uint64)], dtype=np.uint64)
    expected = [1 + sum(int(word) < end for end in ends) for word in words]
    for few in (0, 1 << 20):
        monkeypatch.setattr(node_pair_noise, "_FEW", few)
        assert ladder.levels(words).tolist() == expected


def test_drawn_levels_are_as_likely_as_they_have_words() -> None:
    drawn = LevelSampler((3, 1, 9), lowest=1).draw(RowStream(bytes(32)), np.arange(26_000), 5)
    seen = np.bincount(drawn)[1:]
    assert np.abs(seen - [6000, 2000, 18_000]).max() < 300


def test_words_under_all_of_them() -> None:
    words = np.array([0, TOTAL - 1], dtype=np.uint64)
    assert under(words, TOTAL).tolist() == [True, True] and under(words, TOTAL - 1).tolist() == [True, False]
