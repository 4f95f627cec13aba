"""Discrete Laplace noise: its law, and that it is exact at any epsilon."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

from graphveil._random import RowStream
from graphveil.errors import ConfigError
from graphveil.mechanisms import discrete_laplace
from graphveil.mechanisms.discrete_laplace import DiscreteLaplace


def follows_its_law(epsilon: float, count: int = 4000) -> None:
    """Compare with P(z) = (1 - a) / (1 + a) a^|z|, a = e^-epsilon."""
    drawn = DiscreteLaplace(epsilon).draw(RowStream(bytes(31) + b"l"), count)
    a, most = math.exp(-epsilon), int(3 / epsilon) + 1
    inner = np.arange(-most, most + 1)
    chance = (1 - a) / (1 + a) * a ** abs(inner)
    seen = [*((drawn == value).sum() for value in inner), (abs(drawn) > most).sum()]
    hoped = np.array([*chance, 1 - chance.sum()]) * count
    assert stats.chisquare(seen, hoped).pvalue > 1e-4, "another law"
    spread = drawn.std() / DiscreteLaplace(epsilon).deviation
    assert abs(spread - 1) < 0.12, f"the deviation is {spread} times what it should be"


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
def test_counts_have_the_stated_law(epsilon: float) -> None:
    follows_its_law(epsilon)


def test_rows_do_not_depend_on_how_many_are_drawn() -> None:
    stream, noise = RowStream(bytes(32)), DiscreteLaplace(0.3)
    assert noise.draw(stream, 10)[4:].tolist() == noise.draw(stream, 6, first=4).tolist()


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 50.0])
def test_any_epsilon_is_drawn(epsilon: float) -> None:
    drawn = DiscreteLaplace(epsilon).draw(RowStream(bytes(32)), 50)
    assert (abs(drawn) < 40 / epsilon).all()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf])
def test_a_budget_is_positive(epsilon: float) -> None:
    with pytest.raises(ConfigError):
        DiscreteLaplace(epsilon)


# -- seeded bugs -------------------------------------------------------------------------------------------


def noise_of_counts_is_a_fifth_too_small(patch: pytest.MonkeyPatch) -> None:
    laplace = discrete_laplace._laplace
    patch.setattr(discrete_laplace, "_laplace", lambda epsilon, bits: laplace(epsilon * 5 / 4, bits))


BUGS = [(noise_of_counts_is_a_fifth_too_small, partial(follows_its_law, epsilon=0.1))]
