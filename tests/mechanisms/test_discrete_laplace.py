"""The law that is drawn, its exactness where words are undecided, and what a wrong scale would look like."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from graphveil.core.noise import discrete_laplace
from graphveil.core.noise.discrete_laplace import DiscreteLaplace, sigma_of
from graphveil.core.noise.random import RowStream
from graphveil.errors import ConfigError

WORD = 1 << 64


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_values_have_the_law(epsilon: float) -> None:
    """Chi-square of the values against tanh(epsilon / 2) e^(-epsilon |z|)."""
    drawn = DiscreteLaplace(epsilon).draw(RowStream(bytes(range(32))), np.arange(60_000), 3).reshape(-1)
    reach = max(1, math.ceil(3 / epsilon))
    inner = np.arange(-reach, reach + 1)
    expected = math.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(inner))
    expected = np.append(expected, 1 - expected.sum())
    counted = np.array([int((drawn == z).sum()) for z in inner])
    p = stats.chisquare(np.append(counted, drawn.size - counted.sum()), expected * drawn.size).pvalue
    assert p > 1e-6, f"distribution is not discrete Laplace at {epsilon}: p = {p:.2g}"


def test_the_table_is_the_distribution_function_to_the_last_bit() -> None:
    table = discrete_laplace._boundaries(1.0)
    a = Fraction(math.exp(-1.0))  # 53 bits of it
    reach = len(table) // 2
    for k, boundary in zip(range(reach, 0, -1), table, strict=False):
        assert abs(int(boundary) - WORD * a**k / (1 + a)) <= 1 + WORD * a**k * k * Fraction(1, 1 << 52)
    assert all(int(low) + int(high) in (WORD, WORD - 1) for low, high in zip(table, table[::-1], strict=True))


def test_words_that_decide_agree_with_exact_inversion() -> None:
    law, table = DiscreteLaplace(0.7), discrete_laplace._boundaries(0.7)
    for word in np.random.default_rng(0).integers(WORD, size=300, dtype=np.uint64):
        expected = int(np.searchsorted(table, word, side="right")) - len(table) // 2
        assert law.value_of(int(word), iter([])) == expected


def test_undecided_words_read_on() -> None:
    law, table = DiscreteLaplace(0.7), discrete_laplace._boundaries(0.7)
    value = 10 - len(table) // 2
    assert law.value_of(int(table[10]), iter([0])) == value
    assert law.value_of(int(table[10]), iter([WORD - 1])) == value + 1
    tail = law.value_of(0, itertools.chain([0, 0], itertools.repeat(7)))
    assert tail < -100
    assert law.value_of(WORD - 1, itertools.chain([WORD - 1] * 2, itertools.repeat(WORD - 8))) == -tail


def test_a_tie_is_resolved_with_words_of_its_own() -> None:
    law, table = DiscreteLaplace(1.0), discrete_laplace._boundaries(1.0)

    class Tied(RowStream):
        def words(self, rows: np.ndarray, *, words_per_row: int) -> np.ndarray:
            return np.full((len(rows), words_per_row), table[20])

    drawn = law.draw(Tied(bytes(32)), np.arange(500), 2)
    assert set(np.unique(drawn)) == {20 - len(table) // 2, 21 - len(table) // 2}


def test_golden_deviations() -> None:
    assert [round(sigma_of(epsilon), 4) for epsilon in (0.5, 1.0, 4.0)] == [2.7992, 1.357, 0.195]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, 9e-17, 1e-300])
def test_a_budget_is_positive(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon"):
        DiscreteLaplace(epsilon)


@pytest.mark.parametrize("epsilon", [1e-16, 1e-9, 1e-5, 50.0, 1000.0])
def test_any_epsilon_is_drawn(epsilon: float) -> None:
    law = DiscreteLaplace(epsilon)
    drawn = law.draw(RowStream(bytes(32)), np.arange(60))
    assert (abs(drawn) < 40 / epsilon).all()
    assert 0.6 * law.sigma < drawn.std() < 1.6 * law.sigma or not drawn.any()


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_the_table_changes_no_number(epsilon: float) -> None:
    law, stream = DiscreteLaplace(epsilon), RowStream(bytes(32))
    alone = [law.draw(stream, np.array([row]))[0, 0] for row in range(500)]
    assert law.draw(stream, np.arange(500))[:, 0].tolist() == alone
