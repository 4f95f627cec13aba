"""The randomness of training steps: Poisson batches, integer noise, and nothing drawn twice."""

import math

import numpy as np
import pytest
import torch
from contracts import laws
from scipy import stats

from graphveil.core.noise.discrete_gaussian import MAX_DIM, MAX_SIGMA
from graphveil.core.noise.steps import StepNoise, public_rate
from graphveil.errors import CalibrationError, ConfigError

KEY = bytes(range(32))
P = 8390


def noise_of(**options) -> StepNoise:
    return StepNoise(options.pop("key", KEY), **{"parameters": P, "noise_multiplier": 1.5} | options)


def coins(rate: float, steps: int, count: int, key: bytes = KEY) -> np.ndarray:
    """Which record is in which step's batch, bool (steps, count)."""
    noise = StepNoise(key, parameters=1, noise_multiplier=1.0, sampling_rate=rate)
    chosen = np.zeros((steps, count), dtype=bool)
    for step in range(steps):
        chosen[step, noise.batch(step, count).numpy()] = True
    return chosen


def has_the_rate(chosen: np.ndarray, rate: float) -> None:
    p = stats.binomtest(int(chosen.sum()), chosen.size, rate).pvalue
    assert p > laws.FALSE_ALARM, f"rate is not {rate}: p = {p:.2g}"


def is_poisson(chosen: np.ndarray, rate: float) -> None:
    """The batch sizes have the variance of independent coins; that of fixed sizes is zero."""
    sizes = chosen.sum(axis=1)
    variance = chosen.shape[1] * rate * (1 - rate)
    square = np.square(sizes - chosen.shape[1] * rate).sum() / variance
    p = 2 * min(stats.chi2.sf(square, sizes.size), stats.chi2.cdf(square, sizes.size))
    assert p > laws.FALSE_ALARM, f"the sizes are not binomial: p = {p:.2g}"


# -- rates -----------------------------------------------------------------------------------------------


def test_a_public_rate_is_the_next_multiple_above() -> None:
    for expected, count in ((256, 20_000), (1, 3), (2048, 17_977)):
        rate = public_rate(expected, count)
        assert (rate * 2**32).is_integer()
        assert 0 <= rate - expected / count < 2**-32
    assert public_rate(1000, 1000) == 1.0


@pytest.mark.parametrize("expected", [1001, 0, 2.5, -1])
def test_rejects_a_batch_larger_than_the_data(expected: int) -> None:
    with pytest.raises(ConfigError, match=r"expected=|larger than the number of records"):
        public_rate(expected, 1000)


@pytest.mark.parametrize("rate", [0.1, 0.0, -0.5, 1.5, math.nan, 2.0**-33])
def test_rejects_rates_that_are_no_multiple_of_2_to_minus_32(rate: float) -> None:
    with pytest.raises(ConfigError, match="sampling_rate="):
        noise_of(sampling_rate=rate)


# -- batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [public_rate(256, 20_000), public_rate(13, 14), 3 * 2.0**-17])
def test_every_record_is_in_with_the_rate(rate: float) -> None:
    chosen = coins(rate, 400, 5_000)
    has_the_rate(chosen, rate)
    is_poisson(chosen, rate)
    for axis in (0, 1):  # no step and no record goes without
        counts = chosen.sum(axis=axis)
        p = np.minimum(
            stats.binom.cdf(counts, chosen.shape[axis], rate),
            stats.binom.sf(counts - 1, chosen.shape[axis], rate),
        )
        assert p.min() > laws.FALSE_ALARM / counts.size


@pytest.mark.parametrize("share", [0.95, 1.05])
def test_a_rate_five_percent_off_would_be_noticed(share: float) -> None:
    rate = public_rate(256, 20_000)
    wrong = coins(public_rate(int(256_000 * share), 20_000_000), 400, 5_000)
    with pytest.raises(AssertionError, match="rate is not"):
        has_the_rate(wrong, rate)


def test_batches_of_a_fixed_size_would_be_noticed() -> None:
    generator = np.random.default_rng(0)
    fixed = np.zeros((400, 5_000), dtype=bool)
    for row in fixed:
        row[generator.choice(5_000, 64, replace=False)] = True
    has_the_rate(fixed, 64 / 5_000)
    with pytest.raises(AssertionError, match="sizes are not binomial"):
        is_poisson(fixed, 64 / 5_000)


def test_records_and_steps_are_independent() -> None:
    rate = 0.25
    centered = coins(rate, 400, 5_000) - rate
    laws.rows_are_unrelated(centered)
    laws.are_unrelated(centered, coins(rate, 400, 5_000, KEY[::-1]) - rate)


def test_the_last_16_bits_decide_where_the_first_leave_it_open() -> None:
    # q 2^32 is half a unit of the first 16 bits above zero: every record that is in got there by the rest.
    rate = 2.0**-17
    sizes = [noise_of(sampling_rate=rate).batch(step, 1 << 20).numel() for step in range(40)]
    p = stats.binomtest(sum(sizes), 40 << 20, rate).pvalue
    assert p > laws.FALSE_ALARM
    assert sum(sizes) > 0


@pytest.mark.parametrize("own", [0, 1, 0x7FFF, 0xFFFF])
def test_a_record_is_sampled_iff_its_32_bits_are_below_the_rate(own: int) -> None:
    # Bits of exactly q 2^32 are out. They come once in 2^32 coins, so the stream is given here.
    first, step, record = 0x1234, 3, 7
    noise, positions = noise_of(sampling_rate=0.5), list[tuple[int, int]]()

    class FixedStream:
        def words(self, steps: np.ndarray, *, words_per_row: int) -> np.ndarray:
            return np.full((len(steps), words_per_row), first * 0x0001_0001_0001_0001, dtype=np.uint64)

        def blocks(self, steps: np.ndarray, places: np.ndarray) -> np.ndarray:
            positions.extend(zip(steps.tolist(), places.tolist(), strict=True))
            return np.full((len(places), 2), own << 48 | 0xFFFF, dtype=np.uint64)

    noise._batch_stream = FixedStream()  # type: ignore[assignment]
    for multiple, is_in in ((-1, False), (0, False), (1, True), (2, True)):
        noise.sampling_rate = ((first << 16 | own) + multiple) / 2**32
        positions.clear()
        assert (record in noise.batch(step, 10).tolist()) is is_in, f"multiple {multiple}"
        # Of a block of its own, beyond those that first bits are drawn from.
        assert positions in ([], [(step, 2**31 + record) for record in range(10)])


def test_a_batch_is_a_function_of_key_and_step() -> None:
    rate = public_rate(64, 1000)
    forth, back = noise_of(sampling_rate=rate), noise_of(sampling_rate=rate)
    steps = range(300)
    one = {step: forth.batch(step, 1000) for step in steps}
    two = {step: back.batch(step, 1000) for step in reversed(steps)}
    assert all(torch.equal(one[step], two[step]) for step in steps)
    assert len({tuple(batch.tolist()) for batch in one.values()}) == len(steps)


def test_sampling_of_a_record_does_not_depend_on_the_number_of_records() -> None:
    noise = noise_of(sampling_rate=0.25)
    few, many = noise.batch(3, 500), noise.batch(3, 90_000)
    assert many[-1] > 89_000
    assert torch.equal(few, many[many < 500])


def test_rate_one_takes_every_record() -> None:
    assert torch.equal(noise_of().batch(5, 7), torch.arange(7))


def test_there_is_no_batch_of_no_records() -> None:
    assert noise_of(sampling_rate=0.5).batch(0, 0).numel() == 0


# -- noise -----------------------------------------------------------------------------------------------


def test_the_noise_has_the_law_with_the_grid_s_share() -> None:
    noise = noise_of(noise_multiplier=2.0)
    assert noise.steps == 2**20
    wanted = 2.0 * 2**20 * (1 + math.sqrt(P) * 2 / 2**20)
    assert wanted <= noise.sigma < wanted + 2**-10
    samples = np.stack([noise.noise(step) for step in range(64)])
    laws.has_the_law(samples, wanted)
    laws.covers_everything(samples, wanted)
    laws.rows_are_unrelated(samples)


@pytest.mark.parametrize("scale", [0.97, 1.03])
def test_noise_three_percent_off_would_be_noticed(scale: float) -> None:
    samples = np.stack([noise_of(noise_multiplier=1.5 * scale).noise(step) for step in range(16)])
    with pytest.raises(AssertionError, match="variance"):
        laws.has_the_variance(samples, noise_of().sigma)


def test_no_two_steps_share_noise() -> None:
    noise = noise_of()
    drawn = np.stack([noise.noise(step) for step in range(40)])
    assert len(np.unique(drawn, axis=0)) == 40
    laws.rows_are_unrelated(drawn)


def test_noise_is_a_function_of_key_and_step_and_the_caller_owns_it() -> None:
    forth, back = noise_of(parameters=37), noise_of(parameters=37)
    one = [forth.noise(step) for step in range(100)]
    two = [back.noise(step) for step in reversed(range(100))][::-1]
    assert (np.stack(one) == np.stack(two)).all()
    one[5][:] = 0
    assert (forth.noise(5) == two[5]).all()


def test_batch_and_noise_do_not_share_a_key() -> None:
    noise = noise_of()
    assert noise._batch_stream.words(np.arange(1), words_per_row=2).tolist() != (
        noise._noise_stream.words(np.arange(1), words_per_row=2).tolist()
    )


def test_fingerprints_differ_by_key_and_data() -> None:
    data = np.arange(6.0)
    one = noise_of().fingerprint(data)
    assert one == noise_of().fingerprint(data.copy())
    others = [
        noise_of().fingerprint(data + 1),
        noise_of().fingerprint(data.reshape(2, 3)),
        noise_of().fingerprint(data.astype(np.float32)),
        noise_of().fingerprint(data.view(np.int64)),  # the same bytes
        noise_of().fingerprint(),
        noise_of(key=KEY[::-1]).fingerprint(data),
    ]
    assert len({one, *others}) == 7


def test_more_parameters_than_a_row_holds_take_several_rows() -> None:
    count = MAX_DIM + 5
    noise = noise_of(parameters=count)
    first, second = noise.noise(0), noise.noise(1)
    assert first.shape == second.shape == (count,)
    for samples in (first, second):
        laws.has_the_variance(samples, noise.sigma)
        laws.are_unrelated(samples[: count // 2], samples[count // 2 + 1 :])
    laws.are_unrelated(first, second)


def test_no_row_of_a_step_is_one_of_another_step() -> None:
    noise = noise_of(parameters=4 * MAX_DIM)
    rows = np.concatenate([noise.noise(step) for step in range(3)]).reshape(12, -1)
    assert len(np.unique(rows[:, :20], axis=0)) == 12


@pytest.mark.parametrize("multiplier", [63.9, 64.0, 1000.0, 1e5])
def test_much_noise_takes_a_coarser_grid_that_the_exact_sampler_can_draw(multiplier: float) -> None:
    noise = noise_of(noise_multiplier=multiplier)
    assert 64 <= noise.steps <= 2**20
    assert noise.sigma <= MAX_SIGMA
    assert noise.sigma >= multiplier * (noise.steps + 2 * math.sqrt(P)) * (1 - 1e-15)
    laws.has_the_variance(noise.noise(0), noise.sigma)


def test_noise_that_leaves_no_grid_is_rejected() -> None:
    with pytest.raises(CalibrationError, match="grid steps per clipping norm"):
        noise_of(noise_multiplier=1e6)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_rejects_invalid_noise_multipliers(multiplier: float) -> None:
    with pytest.raises(ConfigError, match="noise_multiplier="):
        noise_of(noise_multiplier=multiplier)


def test_a_short_key_is_rejected() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        noise_of(key=b"short")


def test_golden_batch_and_noise() -> None:
    noise = noise_of(parameters=5, sampling_rate=2.0**-3)
    assert noise.batch(2, 50).tolist() == [5, 9, 18, 24, 31, 32, 34, 42, 46, 49]
    assert noise.noise(2).tolist() == [465588, 1131099, 282784, -1798078, 2250508]
