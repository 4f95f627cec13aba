import math

import numpy as np
import pytest
import torch
from contracts import laws

from graphveil.core.accounting.gaussian import delta_of, epsilon_of
from graphveil.core.noise.discrete_gaussian import (
    DiscreteGaussian,
    IntegerNoise,
    RoundedGaussian,
    _box_muller,
    choose_sampler,
)
from graphveil.core.noise.random import RowStream
from graphveil.errors import CalibrationError, ConfigError

KEY = bytes(range(32))
SAMPLERS = [RoundedGaussian, DiscreteGaussian]
MILLION = np.arange(62_500)  # rows of 16: a million samples
SIGMA = 6776.25


def draw(law: IntegerNoise, rows: np.ndarray, dim: int, key: bytes = KEY) -> np.ndarray:
    return law.draw(RowStream(key), rows, dim)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_million_samples_have_the_law(sampler: type[IntegerNoise]) -> None:
    samples = draw(sampler(SIGMA), MILLION, 16)
    laws.has_the_law(samples, SIGMA)
    laws.covers_everything(samples, SIGMA)
    laws.rows_are_unrelated(samples)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [0.97, 1.03])
def test_the_law_is_not_that_of_a_scale_three_percent_off(sampler: type[IntegerNoise], scale: float) -> None:
    wrong = draw(sampler(SIGMA * scale), MILLION, 16)
    with pytest.raises(AssertionError, match="distribution"):
        laws.has_the_law(wrong, SIGMA)
    with pytest.raises(AssertionError, match="variance"):
        laws.has_the_variance(wrong, SIGMA)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("sigma", [20.0, 700.5, 2.0e5])
def test_every_scale_has_its_law(sampler: type[IntegerNoise], sigma: float) -> None:
    laws.has_the_law(draw(sampler(sigma), np.arange(20_000), 5), sampler(sigma).sigma)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_two_keys_share_nothing(sampler: type[IntegerNoise]) -> None:
    law = sampler(SIGMA)
    laws.are_unrelated(draw(law, MILLION, 4), draw(law, MILLION, 4, KEY[::-1]))


def test_all_normals_of_a_matrix_are_distinct() -> None:
    # Before rounding: two equal 53-bit normals would mean that two coordinates share a word.
    for dim in range(1, 18):
        words = RowStream(KEY).words(np.arange(500), words_per_row=dim + dim % 2)
        normals = _box_muller(words, 1.0)[:, :dim]
        assert np.unique(normals).size == normals.size
        assert (draw(RoundedGaussian(100.0), np.arange(500), dim) == np.rint(100.0 * normals)).all()


def test_all_samples_of_a_fine_grid_are_distinct() -> None:
    # With sigma = 2^25 steps two of 500 d independent samples agree with probability (500 d)^2 / 2^28: so a
    # handful of chance pairs at most, where shared words would make hundreds.
    for dim in range(1, 18):
        samples = draw(DiscreteGaussian(2.0**25), np.arange(500), dim)
        assert np.unique(samples).size > samples.size - 12


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_partition_of_the_rows_draws_the_same_matrix(sampler: type[IntegerNoise]) -> None:
    law, rows = sampler(SIGMA), np.arange(700)
    shuffled = np.random.default_rng(0).permutation(rows)
    for dim in (*range(1, 18), 64, 301):
        whole = draw(law, rows, dim)
        for cuts in ([1], [256, 512], [3, 4, 5, 699], [128, 128, 640]):
            parts = [draw(law, part, dim) for part in np.split(rows, cuts)]
            assert (np.concatenate(parts) == whole).all()
        assert (draw(law, shuffled, dim) == whole[shuffled]).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_number_of_threads_does_not_matter(sampler: type[IntegerNoise]) -> None:
    threads = torch.get_num_threads()
    one, two = [], []
    for count, out in ((1, one), (2, two)):
        torch.set_num_threads(count)
        out.append(draw(sampler(SIGMA), np.arange(5000), 16))
    torch.set_num_threads(threads)
    assert (one[0] == two[0]).all()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_rows_far_apart_can_be_drawn_alone(sampler: type[IntegerNoise]) -> None:
    rows = np.array([0, 2**31 - 1, 2**32, 2**40 + 1])
    samples = draw(sampler(SIGMA), rows, 3)
    assert samples.shape == (4, 3)
    assert np.unique(samples).size > 8


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_rows_draw_nothing(sampler: type[IntegerNoise]) -> None:
    assert draw(sampler(SIGMA), np.empty(0, dtype=np.int64), 3).shape == (0, 3)


def test_known_words_give_the_documented_normals() -> None:
    # u1 = ((w >> 11) + 1) 2^-53 and u2 = (w' >> 11) 2^-53: here u1 = 1/2, u2 = 1/4, and u1 = 2^-53, u2 = 0.
    half, quarter = ((1 << 52) - 1) << 11, (1 << 51) << 11
    words = np.array([[half, quarter, 0, 0]], dtype=np.uint64)
    radii = [math.sqrt(-2 * math.log(0.5)), math.sqrt(106 * math.log(2))]
    assert _box_muller(words, 1.0)[0] == pytest.approx([0.0, radii[1], radii[0], 0.0], abs=1e-15)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_noise_of_no_width_is_rejected(sampler: type[IntegerNoise], sigma: float) -> None:
    with pytest.raises(ConfigError, match="sigma="):
        sampler(sigma)


def test_the_exact_sampler_rounds_its_scale_up_to_what_it_can_draw() -> None:
    for sigma in (0.3, 100.0, 6776.30001):
        kept = DiscreteGaussian(sigma).sigma
        assert sigma <= kept < sigma + 2**-10
        assert DiscreteGaussian(kept).sigma == kept


def test_a_scale_beyond_the_exact_sampler_is_rejected() -> None:
    with pytest.raises(ConfigError, match="a larger epsilon or delta"):
        DiscreteGaussian(2.0**27)


def test_the_rounded_sampler_charges_the_resolution_of_its_uniforms() -> None:
    # docs/privacy/proofs/noise.md: n (1 + e^epsilon) 12 2^-53 sigma / step.
    slack = RoundedGaussian(1000.0).slack(epsilon=1.0, delta=1e-7, changed=32)
    assert slack == pytest.approx(32 * (1 + math.e) * 12 * 2**-53 * 1000)


def test_the_exact_sampler_inflates_delta_by_a_thousandth() -> None:
    slack = DiscreteGaussian(1000.0).slack(epsilon=1.0, delta=1e-7, changed=32)
    assert 1e-7 - slack == pytest.approx(1e-7 / 1.001)


def discrete_delta(sigma: float, shift: int, epsilon: float) -> float:
    """Return the delta at epsilon of two discrete Gaussians a whole number apart, as it is summed."""
    x = np.arange(-14 * sigma, 14 * sigma + shift).astype(np.int64)
    density, loss = np.exp(-((x - shift) ** 2) / (2 * sigma**2)), (2 * x - shift) * shift / (2 * sigma**2)
    passes = np.where(loss > epsilon, -np.expm1(np.minimum(0.0, epsilon - loss)), 0.0)
    return float(density @ passes / np.exp(-((x - shift) ** 2) / (2 * sigma**2)).sum())


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize("mu", [1.0, 10.0, 40.0])
@pytest.mark.parametrize("sigma", [64.0, 90.0, 200.0])
def test_the_exact_samplers_slack_covers_how_far_sums_are_from_integrals(
    sigma: float, mu: float, delta: float
) -> None:
    shift, start = round(mu * sigma), epsilon_of(mu, delta)
    share = 1 - DiscreteGaussian(sigma).slack(epsilon=start, delta=delta, changed=1) / delta
    for part in np.linspace(0, 1, 11):  # wherever between two integers the loss passes epsilon
        epsilon = start + part * mu / sigma
        assert discrete_delta(sigma, shift, epsilon) * share <= delta_of(epsilon, shift / sigma)


def test_releases_are_exact_whenever_the_grid_is_fine_enough() -> None:
    for epsilon in (0.1, 1.0, 8.0):
        law = choose_sampler(1000.0, epsilon=epsilon, delta=1e-7, changed=32, steps=64)
        assert isinstance(law, DiscreteGaussian)


def test_a_coarse_grid_is_rounded_while_that_costs_little_of_delta() -> None:
    law = choose_sampler(100.0, epsilon=1.0, delta=1e-7, changed=32, steps=63)
    assert isinstance(law, RoundedGaussian)
    with pytest.raises(CalibrationError, match="Use larger grid_bits"):
        choose_sampler(100.0, epsilon=12.0, delta=1e-7, changed=32, steps=63)
