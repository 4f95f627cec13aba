"""The four measures, by hand."""

import math

import numpy as np
import pytest

from graphveil.lab.fidelity import (
    kl_divergence,
    mean_absolute_error,
    normalized_mutual_information,
    relative_error,
)


@pytest.mark.parametrize(
    ("true", "released", "error"),
    [(2, 3, 0.5), (-0.5, 0.5, 2.0), (0, 0, 0.0), (0, 1, None), (None, 1, None), (1, None, None)],
)
def test_relative_error(true: float | None, released: float | None, error: float | None) -> None:
    assert relative_error(true, released) == error


def test_divergence_spreads_one_more_observation() -> None:
    p, q = ((6 + 0.5) / 9, (2 + 0.5) / 9), ((1 + 0.5) / 5, (3 + 0.5) / 5)
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert kl_divergence([6, 2], [1, 3]) == pytest.approx(expected)


def test_divergence_of_nothing_from_nothing_is_zero() -> None:
    assert kl_divergence([0], [0]) == kl_divergence([5, 0, 1], [5, 0, 1]) == 0


def test_agreement_is_the_information_that_two_partitions_share() -> None:
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 1])
    joint = np.zeros((3, 2))
    np.add.at(joint, (first, second), 1 / 6)
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    mutual = sum(
        joint[i, j] * math.log(joint[i, j] / (p[i] * q[j])) for i in range(3) for j in range(2) if joint[i, j]
    )
    entropies = -(p * np.log(p)).sum() - (q * np.log(q)).sum()
    assert normalized_mutual_information(first, second) == pytest.approx(2 * mutual / entropies)
    assert normalized_mutual_information(second, first) == pytest.approx(2 * mutual / entropies)


def test_one_community_agrees_with_itself_and_says_nothing_of_others() -> None:
    whole, parts = np.zeros(4, dtype=np.int64), np.array([0, 1, 2, 3])
    assert normalized_mutual_information(whole, whole) == 1
    assert normalized_mutual_information(whole, parts) == 0


def test_mean_absolute_error() -> None:
    assert mean_absolute_error(np.array([0.5, 0.0]), np.array([0.0, 0.25])) == 0.375
