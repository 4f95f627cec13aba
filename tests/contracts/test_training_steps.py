"""The shipped step of private training keeps its bound, has its noise and samples as it is charged for."""

from mechanisms import test_steps
from training import test_dpsgd

from contracts import steps
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.noise.steps import public_rate


def test_a_record_moves_a_step_by_its_clip() -> None:
    data = test_dpsgd.by_ghost, test_dpsgd.X, test_dpsgd.Y, test_dpsgd.CLIP
    steps.bounds_every_record(steps.shipped_step, *data)


def test_a_replacement_moves_a_step_by_two_clips() -> None:
    data = test_dpsgd.by_ghost, test_dpsgd.X, test_dpsgd.Y, test_dpsgd.CLIP
    steps.bounds_every_replacement(steps.shipped_step, *data)


def test_a_step_is_divided_by_a_public_size() -> None:
    gradients = test_dpsgd.by_ghost(test_dpsgd.X, test_dpsgd.Y)
    steps.divides_by_the_expected_size(steps.shipped_step, gradients, test_dpsgd.CLIP)


def test_a_step_carries_its_noise() -> None:
    gradients = test_dpsgd.by_ghost(test_dpsgd.X, test_dpsgd.NO_LABEL)
    noise = steps.noise_of(gradients, 0.25)
    steps.carries_the_noise(steps.shipped_step, gradients, test_dpsgd.CLIP, noise)


def test_batches_are_poisson() -> None:
    schedule = PrivateSchedule(epochs=200, batch_size=6)
    sizes = test_dpsgd.batch_sizes(test_dpsgd.noise_of(schedule))
    steps.are_binomial(sizes, len(test_dpsgd.X), schedule.sampling_rate(len(test_dpsgd.X)))


def test_records_are_in_with_the_rate() -> None:
    rate = public_rate(256, 20_000)
    test_steps.has_the_rate(test_steps.coins(rate, 400, 5_000), rate)
