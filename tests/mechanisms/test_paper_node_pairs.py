"""Noise on node pairs as drawn by published code: laws against brute force, and losses."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.noise.random import RowStream
from graphveil.papers.as_published.graph_queries import (
    TRUNCATION,
    LaplaceCells,
    ReplacedNodePairs,
    laplace,
    truncated_laplace,
    uniforms,
)

STREAM = RowStream(bytes(31) + b"p")


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_a_replaced_node_pair_has_a_fair_bit(epsilon: float) -> None:
    slots, edges, q = 40_000, np.arange(0, 40_000, 2), EdgeRandomizedResponse(epsilon).flip
    codes = ReplacedNodePairs(epsilon).draw(STREAM, edges, slots)
    assert (np.diff(codes >> 1) > 0).all()
    stored = {value: codes[codes & 1 == value] >> 1 for value in (0, 1)}
    assert not np.isin(stored[0], edges).any()  # a stored zero was no edge, for certain
    seen = [
        [np.isin(stored[1], edges).sum(), 0],
        [len(stored[1]) - np.isin(stored[1], edges).sum(), len(stored[0])],
    ]
    for (ones, zeros), chance in zip(seen, ([1 - q, 0, q], [q, q, 1 - 2 * q]), strict=True):
        counts = np.array([ones, zeros, slots // 2 - ones - zeros])
        expected = np.array(chance) * slots / 2
        possible = expected > 0
        assert counts[~possible].sum() == 0
        assert stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-4


@pytest.mark.parametrize("epsilon", [0.02, 0.5, 2.0])
def test_noise_that_is_cut_loses_ln_2_more_than_noise_on_whole_numbers(epsilon: float) -> None:
    tail = np.exp(-epsilon * np.arange(60))  # of |Laplace| beyond 0, 1, 2, ...
    cut = np.concatenate([[1 - tail[1]], (tail[1:-1] - tail[2:]) / 2])
    losses = np.abs(np.log(cut[1:] / cut[:-1]))
    assert losses.max() == pytest.approx(epsilon + TRUNCATION) and losses[1:].max() < epsilon * 1.001
    drawn = [truncated_laplace(RowStream(seed.to_bytes(32, "big")), epsilon) for seed in range(800)]
    seen = np.bincount(np.minimum(np.abs(drawn), 3), minlength=4)
    expected = 800 * np.array([cut[0], 2 * cut[1], 2 * cut[2], tail[3]])
    assert stats.chisquare(seen, expected).pvalue > 1e-4
    whole = DiscreteLaplace(epsilon).draw(STREAM, np.arange(1))
    assert whole.dtype == np.int64  # noise on whole numbers is not cut


def test_laplace_quantiles_and_uniforms() -> None:
    whole = uniforms(STREAM, 0, 3000)
    assert (np.concatenate([uniforms(STREAM, 0, 700), uniforms(STREAM, 700, 3000)]) == whole).all()
    assert stats.kstest(laplace(whole, 2.0), stats.laplace(scale=0.5).cdf).pvalue > 1e-4


@pytest.mark.parametrize(("slots", "seeds", "sizes"), [(12, 20, (0, 1, 4, 12, 50)), (2_200_000, 1, (50,))])
def test_the_largest_cells_are_those_of_plain_noise(slots: int, seeds: int, sizes: tuple[int, ...]) -> None:
    # The second number takes two pieces.
    edges, cells = np.array([1, 4, 9, slots - 1]), LaplaceCells(1.0)
    for wanted, seed in product(sizes, range(seeds)):
        stream = RowStream(seed.to_bytes(32, "big"))
        noisy = laplace(uniforms(stream, 0, slots), 1.0)
        noisy[edges] += 1
        expected = np.sort(np.argsort(-noisy)[:wanted])
        assert cells.largest(stream, edges, slots, wanted).tolist() == expected.tolist()


def test_nothing_of_nothing() -> None:
    none = np.empty(0, dtype=np.int64)
    assert LaplaceCells(1.0).largest(STREAM, none, 0, 3).size == 0
    assert ReplacedNodePairs(1.0).draw(STREAM, none, 0).size == 0
    assert math.isfinite(laplace(np.array([2.0**-54]), 1.0)[0])
