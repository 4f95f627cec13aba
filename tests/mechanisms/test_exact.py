from fractions import Fraction

import mpmath
import numpy as np
import pytest
from contracts.laws import FALSE_ALARM
from scipy import stats

from graphveil.core.noise import discrete_gaussian
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.noise.random import RowStream

KEY = bytes(range(32))


def mass(sigma: float, reach: int) -> np.ndarray:
    """Return P(n) for |n| <= reach, to 30 digits before it is rounded."""
    with mpmath.workdps(30):
        terms = [mpmath.exp(-(mpmath.mpf(n) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for n in range(reach + 1)]
        total = terms[0] + 2 * mpmath.fsum(terms[1:])
        half = [float(term / total) for term in terms]
    return np.array(half[:0:-1] + half)


@pytest.mark.parametrize("sigma", [0.3125, 0.5, 1.0, 3.75, 31.5, 65.25])
def test_every_integer_has_its_exact_probability(sigma: float) -> None:
    samples = DiscreteGaussian(sigma).draw(RowStream(KEY), np.arange(100_000), 10).reshape(-1)
    reach = int(20 * sigma) + 20
    probability = mass(sigma, reach)
    counts = np.bincount(samples + reach, minlength=2 * reach + 1)
    often = probability * samples.size >= 10
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(probability[often], probability[~often].sum()) * samples.size
    keep = expected >= 5  # rarer values are not informative
    assert observed[~keep].sum() <= 30
    share = observed[keep].sum() / expected[keep].sum()
    assert stats.chisquare(observed[keep], expected[keep] * share).pvalue > FALSE_ALARM


def test_a_scale_three_percent_off_has_other_probabilities() -> None:
    samples = DiscreteGaussian(31.5 * 1.03).draw(RowStream(KEY), np.arange(100_000), 10).reshape(-1)
    observed = np.bincount(samples + 200, minlength=401)[100:301]
    expected = mass(31.5, 700)[600:801] * samples.size
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue < FALSE_ALARM


@pytest.mark.parametrize("numerator", [100, 1024, 5 * 1024 + 1, 6776 * 1024 + 309, 134_000 * 1024, 1 << 35])
@pytest.mark.parametrize("dim", [1, 6])
def test_no_decision_depends_on_floating_point(numerator: int, dim: int) -> None:
    # With every comparison called ambiguous, each sample is decided in arbitrary precision.
    rows = np.arange(240 // dim)
    fast = discrete_gaussian.exact_samples(RowStream(KEY), rows, dim, numerator)
    words = RowStream(KEY).words(rows, words_per_row=dim).reshape(-1)
    _, _, near = discrete_gaussian._strips(numerator, 2.0)._compared(words.astype(np.uint32), words)
    assert len(near) == rows.size * dim
    assert (discrete_gaussian.exact_samples(RowStream(KEY), rows, dim, numerator, 2.0) == fast).all()


@pytest.mark.parametrize("numerator", [100, 1024, 5 * 1024 + 1, 6776 * 1024 + 309, 1 << 35])
def test_the_strips_cover_every_integer_once_and_dominate_the_target(numerator: int) -> None:
    strips = discrete_gaussian._strips(numerator, discrete_gaussian.AMBIGUOUS)
    assert len(strips.start) == 1 << 15  # every value of the slot bits is a slot
    _, first, owned = np.unique(strips.start, return_index=True, return_counts=True)
    assert (strips.count[first] == owned).all()  # a strip owns the slots of its count
    start = strips.start[first]
    width = (strips.more[first].astype(np.int64) + 1) << strips.place_bits
    assert (start[1:] == start[:-1] + width[:-1]).all()
    sigma = numerator / discrete_gaussian.DENOMINATOR
    assert start[0] <= -14 * sigma
    assert start[-1] + width[-1] >= 14 * sigma
    closest = np.where(start >= 0, start, -start - width + 1)
    for n, slot in zip(closest.tolist(), first.tolist(), strict=True):
        assert strips.acceptance(n, slot) <= 1, (n, slot)


@pytest.mark.parametrize("numerator", [100, 1331, 5 * 1024 + 1, 46_421, 100 * 1024, 4791 * 1024 + 7])
def test_the_law_of_one_attempt_is_the_target_everywhere_the_tail_included(numerator: int) -> None:
    # Not a sample: the chance that an attempt proposes n and accepts it, computed from the tables.
    strips = discrete_gaussian._strips(numerator, discrete_gaussian.AMBIGUOUS)
    slots = np.unique(strips.start, return_index=True)[1]
    ratio = strips.more[slots].astype(np.int64) + 1
    law = {}
    for slot, wide in zip(slots.tolist(), ratio.tolist(), strict=True):
        first, width = int(strips.start[slot]), wide << strips.place_bits
        proposed = float(strips.count[slot]) / (1 << 15) / width
        for n in {first, first + width // 2, first + width - 1}:
            law[n] = proposed * float(strips.acceptance(n, slot))
    sigma = numerator / discrete_gaussian.DENOMINATOR
    for n, chance in law.items():
        if abs(n) < 12 * sigma:
            assert chance / law[0] == pytest.approx(np.exp(-((n / sigma) ** 2) / 2), rel=1e-9), n


def test_a_threshold_accepts_only_what_arbitrary_precision_accepts() -> None:
    strips = discrete_gaussian._strips(6776 * 1024, discrete_gaussian.AMBIGUOUS)
    for slot in np.unique(strips.start, return_index=True)[1].tolist():
        first, width = int(strips.start[slot]), (int(strips.more[slot]) + 1) << strips.place_bits
        farthest = max(abs(first), abs(first + width - 1))
        least = strips.acceptance(farthest, slot)
        assert Fraction(int(strips.sure[slot]), 1 << 32) <= Fraction(str(least))


@pytest.mark.parametrize("sigma", [0.2, 1.0, 50.0, 6776.0, 130_000.0, 3e7])
def test_few_candidates_are_rejected(sigma: float) -> None:
    # Attempts are numbered up to 1,024; at this rate no sample ever comes near.
    strips = discrete_gaussian._strips(round(sigma * 1024), discrete_gaussian.AMBIGUOUS)
    total = mass_total(sigma)
    assert strips.scale * total / (1 << (15 + strips.place_bits)) > 0.9


def mass_total(sigma: float) -> float:
    """Return the sum of exp(-n^2 / 2 sigma^2) over the integers."""
    if sigma > 10:
        return sigma * float(np.sqrt(2 * np.pi))  # up to exp(-2 pi^2 sigma^2)
    return float(np.exp(-np.square(np.arange(-200, 201) / sigma) / 2).sum())


def test_a_sample_of_many_bits_still_refines() -> None:
    source = discrete_gaussian._Source(RowStream(KEY), np.array([3]), np.array([2]), 0)
    uniform = source.refine(0, 5, 4)
    assert Fraction(5, 16) <= Fraction(str(uniform)) < Fraction(6, 16)
