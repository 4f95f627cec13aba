"""Randomized response on node pairs: golden values, exact loss, and law on small graphs."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from graphveil.core.noise.node_pair_noise import TOTAL, EdgeRandomizedResponse
from graphveil.core.noise.random import RowStream
from graphveil.errors import ConfigError

EPSILONS = (1e-6, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 50.0, 1000.0)
SHARES = (1.0, 0.5, 0.01, 1e-9, 0.0)
SLOTS, EDGES = 6, np.array([1, 2, 5])
FLIPS = {
    1: 0.2689414214,
    2: 0.1192029220,
    4: 0.0179862100,
    6: 0.0024726232,
    8: 0.0003353501,
    10: 0.0000453979,
}
EDGES_OUT = {1: 988184.13, 2: 440931.54, 4: 71012.60, 6: 14314.75, 8: 6503.61, 10: 5443.92}
TRUE_SHARE = {1: 0.0039, 2: 0.0105, 4: 0.0730, 6: 0.368, 8: 0.811, 10: 0.969}


@pytest.mark.parametrize("epsilon", FLIPS)
def test_golden_flips_of_cora(epsilon: int) -> None:
    flip, edges, others = EdgeRandomizedResponse(epsilon).flip, 5278, 3_660_000
    assert flip == pytest.approx(FLIPS[epsilon], abs=5e-11)
    out = edges * (1 - flip) + others * flip
    assert out == pytest.approx(EDGES_OUT[epsilon], abs=0.005)
    assert edges * (1 - flip) / out == pytest.approx(TRUE_SHARE[epsilon], rel=0.01)


@pytest.mark.parametrize(
    ("epsilon", "share", "keep", "add"),
    [
        (1 * 0.9, 0.0049696569, 0.0035331752, 0.0014364818),
        (2 * 0.9, 0.0671077689, 0.0575884604, 0.0095193085),
        (4 * 0.9, 0.8245546106, 0.8026239369, 0.0219306737),
    ],
)
def test_golden_shares_of_arr(epsilon: float, share: float, keep: float, add: float) -> None:
    response = EdgeRandomizedResponse(epsilon, share)
    assert response.keep / TOTAL == pytest.approx(keep, rel=1e-7)
    assert response.add / TOTAL == pytest.approx(add, rel=1e-7)


def largest_loss(response: EdgeRandomizedResponse) -> Decimal:
    """Return the largest log ratio of an answer's probabilities, from the whole numbers that are drawn by."""
    keep, add = response.keep, response.add
    with localcontext(prec=80):
        losses = [
            abs((Decimal(one) / Decimal(other)).ln())
            for one, other in ((keep, add), (TOTAL - keep, TOTAL - add))
            if one or other
        ]
        return max(losses)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_answer_loses_more_than_epsilon(epsilon: float, share: float) -> None:
    if share == 1e-9 and epsilon > 20:
        share = 1e-6  # so few words are left otherwise that none is an answer
    response = EdgeRandomizedResponse(epsilon, share)
    if response.keep or response.add:
        assert largest_loss(response) <= Decimal(epsilon), f"loses more than epsilon={epsilon}"


@pytest.mark.parametrize("epsilon", [1e-300, 1e-17, 1e-6])
def test_estimates_at_a_tiny_epsilon_deviate_by_its_inverse(epsilon: float) -> None:
    assert EdgeRandomizedResponse(epsilon).estimate_deviation() == pytest.approx(1 / epsilon)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 20.0])
def test_all_of_epsilon_is_used(epsilon: float) -> None:
    assert float(largest_loss(EdgeRandomizedResponse(epsilon))) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 1.0), (2.0, 0.5), (0.3, 1.0), (1.0, 0.05)])
def test_every_graph_is_drawn_as_often_as_by_enumeration(epsilon: float, share: float) -> None:
    """Compare with the product of all node pairs' probabilities, over all graphs of four nodes."""
    repeats = 20_000
    response, stream = EdgeRandomizedResponse(epsilon, share), RowStream(bytes(31) + b"g")
    edges = (EDGES + SLOTS * np.arange(repeats)[:, None]).reshape(-1)  # one graph after the other
    found = response.draw(stream, edges, 0, SLOTS * repeats)
    codes = np.zeros(repeats, dtype=np.int64)
    np.add.at(codes, found // SLOTS, 1 << (found % SLOTS))
    truth = 1 / (1 + math.exp(-epsilon))
    one = np.where(np.isin(np.arange(SLOTS), EDGES), truth, 1 - truth) * share
    bits = np.arange(1 << SLOTS)[:, None] >> np.arange(SLOTS) & 1
    expected = repeats * np.where(bits == 1, one, 1 - one).prod(axis=1)
    rare = expected < 5
    seen = np.bincount(codes, minlength=1 << SLOTS)
    both = [np.append(part[~rare], part[rare].sum() + 1e-9) for part in (seen, expected)]
    assert stats.chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue > 1e-4, "another law"


def test_one_edge_changes_its_own_node_pair_only() -> None:
    """Neighbors draw the same noise: with one key they differ at most in the node pair that differs."""
    response = EdgeRandomizedResponse(1.0)
    for seed in range(60):
        stream, slot = RowStream(seed.to_bytes(32, "big")), seed * 7 % 400
        edges = np.arange(0, 400, 9)
        other = np.setxor1d(edges, [slot])
        drawn = [set(response.draw(stream, each, 0, 400).tolist()) for each in (edges, other)]
        assert drawn[0] ^ drawn[1] <= {slot}, "another slot has changed"


def test_any_partition_draws_the_same() -> None:
    response, stream, edges = EdgeRandomizedResponse(0.5), RowStream(bytes(32)), np.arange(3, 1000, 11)
    parts = [
        response.draw(stream, edges[(edges >= start) & (edges < stop)], start, stop)
        for start, stop in ((0, 100), (100, 101), (101, 1000))
    ]
    assert np.concatenate(parts).tolist() == response.draw(stream, edges, 0, 1000).tolist()


def test_the_estimate_of_a_node_pair_is_unbiased_with_the_stated_variance() -> None:
    q = EdgeRandomizedResponse(1.3).flip
    for truth in (0, 1):
        reported = np.array([0.0, 1.0])
        chance = np.array([1 - q, q]) if truth == 0 else np.array([q, 1 - q])
        estimates = (reported - q) / (1 - 2 * q)
        mean = float((chance * estimates).sum())
        assert mean == pytest.approx(truth)
        deviation = float(np.sqrt((chance * (estimates - mean) ** 2).sum()))
        assert deviation == pytest.approx(EdgeRandomizedResponse(1.3).estimate_deviation())


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 1.0), (math.inf, 1.0), (math.nan, 1.0), (1.0, 1.5)])
def test_numbers_out_of_range_are_rejected(epsilon: float, share: float) -> None:
    with pytest.raises(ConfigError):
        EdgeRandomizedResponse(epsilon, share)


def test_edges_outside_the_range_are_rejected() -> None:
    with pytest.raises(ConfigError, match="range"):
        EdgeRandomizedResponse(1.0).draw(RowStream(bytes(32)), np.array([5]), 0, 5)


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 20.0, 60.0])
@pytest.mark.parametrize("share", [0.0, 1e-300, 1e-20, 2.0**-65, 2.0**-64, 3e-19, 2.0**-62, 1e-10, 0.3, 1.0])
def test_no_share_lets_a_ratio_exceed_its_bound(epsilon: float, share: float) -> None:
    response = EdgeRandomizedResponse(epsilon, share=share)
    keep, add = Fraction(response.keep, TOTAL), Fraction(response.add, TOTAL)
    with localcontext(prec=60):
        bound = Fraction(Decimal(epsilon).exp()) * (1 + Fraction(1, 10**50))
    for one, other in ((keep, add), (add, keep), (1 - keep, 1 - add), (1 - add, 1 - keep)):
        assert one <= bound * other
