"""Private training: sensitivity, noise, rejected configurations, and resumed runs."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contracts import steps as checks
from torch import Tensor, nn

from graphveil.core.clipping import clipped_sums
from graphveil.core.clipping.clipped_sums import (
    ClippedSum,
    GhostClippedSum,
    PerSampleClippedSum,
    reject_row_mixing,
)
from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.clipping.ghost_modules import Activation, Affine, GhostModule, GhostSequential
from graphveil.core.noise.discrete_gaussian import Noise
from graphveil.core.noise.random import PublicStreams
from graphveil.core.noise.steps import StepNoise, public_rate
from graphveil.core.queries.training_steps import DPSGDData
from graphveil.errors import ArtifactError, ConfigError, GraphError, ReleaseError

DRAW = PublicStreams(0).torch("data")
X = torch.randn(30, 5, generator=DRAW) * torch.logspace(-2, 1, 30)[:, None]
Y = torch.randint(0, 3, (30,), generator=DRAW)
CLIP = 0.7
P = 5 * 4 + 4 + 4 * 3 + 3


def module() -> nn.Sequential:
    """A small network, always the same."""
    built = nn.Sequential(nn.Linear(5, 4), nn.SELU(), nn.Linear(4, 3))
    generator = PublicStreams(0).torch("weights")
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    return built


def train_private(
    network: Any, x: Any, labels: Tensor, schedule: PrivateSchedule, *, noise: StepNoise, **how: Any
) -> None:
    """Train as the query of a release does, with this noise."""
    gradients = clipped_sum(network, x, labels)
    gradients.weights.copy_(
        checks.take_steps(DPSGDData(gradients=gradients, schedule=schedule, **how), noise)
    )
    gradients.store()


def ghost(of: nn.Sequential) -> GhostModule:
    maps = [Affine(layer.weight.t(), layer.bias) for layer in (of[0], of[2])]
    return GhostSequential(maps[0], Activation("selu"), maps[1])


def by_ghost(x: Any, labels: Tensor) -> ClippedSum:
    return GhostClippedSum(ghost(module()), x, labels)


def by_vmap(x: Any, labels: Tensor) -> ClippedSum:
    return PerSampleClippedSum(module(), x, labels)


ROUTES = [by_ghost, by_vmap]
NO_LABEL = torch.full_like(Y, checks.NO_LABEL)


def noise_of(schedule: PrivateSchedule, multiplier: float = 1.0, key: bytes = checks.KEY) -> StepNoise:
    rate = schedule.sampling_rate(len(X))
    return StepNoise(key, parameters=P, noise_multiplier=multiplier, sampling_rate=rate)


# -- one step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ROUTES)
def test_a_null_record_moves_the_sum_by_at_most_the_clipping_norm(make: checks.Make) -> None:
    checks.bounds_every_record(checks.shipped_step, make, X, Y, CLIP)


@pytest.mark.parametrize("make", ROUTES)
def test_a_replaced_record_moves_the_sum_by_at_most_twice_that(make: checks.Make) -> None:
    checks.bounds_every_replacement(checks.shipped_step, make, X, Y, CLIP)


def test_the_grid_costs_no_more_than_its_share() -> None:
    # 12 grid steps in C (a huge multiplier) make truncation visible; the bound still holds.
    gradients, noise = by_ghost(X, Y), StepNoise(checks.KEY, parameters=P, noise_multiplier=7e5)
    assert noise.steps < 100
    whole = checks.sums(checks.shipped_step, gradients, CLIP, noise)
    bound = CLIP * (1 + 2 * math.sqrt(P) / noise.steps)
    for record in range(len(X)):
        labels = Y.clone()
        labels[record] = checks.NO_LABEL
        assert (whole - checks.sums(checks.shipped_step, by_ghost(X, labels), CLIP, noise)).norm() <= bound


@pytest.mark.parametrize("make", ROUTES)
def test_the_sum_is_divided_by_the_expected_batch_size(make: checks.Make) -> None:
    checks.divides_by_the_expected_size(checks.shipped_step, make(X, Y), CLIP)


@pytest.mark.parametrize("multiplier", [0.8, 3.0])
def test_where_no_record_contributes_a_step_is_noise(multiplier: float) -> None:
    gradients = by_ghost(X, NO_LABEL)
    checks.carries_the_noise(
        checks.shipped_step, gradients, CLIP, checks.noise_of(gradients, 0.25, multiplier)
    )


def test_an_empty_batch_is_a_step_of_noise_alone() -> None:
    gradients, noise = by_ghost(X, Y), checks.noise_of(by_ghost(X, Y), 2.0**-32)
    assert noise.batch(0, len(X)).numel() == 0
    mean = checks.shipped_step(gradients, CLIP, noise, 0)
    scale = CLIP / (noise.steps * noise.sampling_rate * len(X))
    assert torch.equal(mean, torch.from_numpy(noise.noise(0) * scale))


def test_the_sum_without_noise_is_gone_after_the_step() -> None:
    gradients, noise = by_ghost(X, Y), checks.noise_of(by_ghost(X, Y), 1.0)
    mean = checks.shipped_step(gradients, CLIP, noise, 0)
    assert mean is gradients.sums


# -- wrong steps, each caught ------------------------------------------------------------------------------


def no_clipping(gradients: ClippedSum, clip: float, noise: StepNoise, number: int) -> Tensor:
    shipped = clipped_sums.clip_factors
    clipped_sums.clip_factors = lambda squares, clip: (torch.ones_like(squares), None)
    try:
        return checks.shipped_step(gradients, clip, noise, number)
    finally:
        clipped_sums.clip_factors = shipped


def clipping_the_mean(gradients: ClippedSum, clip: float, noise: StepNoise, number: int) -> Tensor:
    mean = no_clipping(gradients, clip, noise, number)
    return mean * min(1.0, clip / float(mean.norm()))


def twice_the_clip(gradients: ClippedSum, clip: float, noise: StepNoise, number: int) -> Tensor:
    return checks.shipped_step(gradients, 2 * clip, noise, number)


def by_realized_size(gradients: ClippedSum, clip: float, noise: StepNoise, number: int) -> Tensor:
    size = len(noise.batch(number, gradients.count))
    expected = noise.sampling_rate * gradients.count
    return checks.shipped_step(gradients, clip, noise, number) * (expected / max(1, size))


class Silent(StepNoise):
    def noise(self, step: int) -> Noise:
        return 0 * super().noise(step)


class Repeating(StepNoise):
    def noise(self, step: int) -> Noise:
        return super().noise(0)


class FixedSize(StepNoise):
    def batch(self, step: int, count: int) -> Tensor:
        chosen = np.random.default_rng(step).choice(count, round(self.sampling_rate * count), replace=False)
        return torch.from_numpy(np.sort(chosen))


@pytest.mark.parametrize("wrong", [no_clipping, twice_the_clip])
def test_a_sum_that_is_not_clipped_is_caught(wrong: checks.Step) -> None:
    with pytest.raises(AssertionError, match="a record moves the sum by"):
        checks.bounds_every_record(wrong, by_ghost, X, Y, CLIP)
    with pytest.raises(AssertionError, match="a replacement moves the sum by"):
        checks.bounds_every_replacement(wrong, by_ghost, X, Y, CLIP)


def test_clipping_the_mean_and_not_the_records_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"moves the sum by|no record"):
        checks.bounds_every_record(clipping_the_mean, by_ghost, X, Y, CLIP)


def test_dividing_by_the_realized_size_is_caught() -> None:
    with pytest.raises(AssertionError, match="not the sum over q N"):
        checks.divides_by_the_expected_size(by_realized_size, by_ghost(X, Y), CLIP)


@pytest.mark.parametrize(("law", "share"), [(Silent, 1.0), (StepNoise, 0.97), (StepNoise, 1.03)])
def test_noise_that_is_missing_or_three_percent_off_is_caught(law: type[StepNoise], share: float) -> None:
    gradients = by_ghost(X, NO_LABEL)
    wrong = law(checks.KEY, parameters=P, noise_multiplier=share, sampling_rate=0.25)
    wrong.noise_multiplier = 1.0  # what is claimed
    with pytest.raises(AssertionError, match="variance"):
        checks.carries_the_noise(checks.shipped_step, gradients, CLIP, wrong)


def test_the_same_noise_in_every_step_is_caught() -> None:
    gradients = by_ghost(X, NO_LABEL)
    wrong = Repeating(checks.KEY, parameters=P, noise_multiplier=1.0, sampling_rate=0.25)
    with pytest.raises(AssertionError, match=r"variance|correlation"):
        checks.carries_the_noise(checks.shipped_step, gradients, CLIP, wrong)


def batch_sizes(noise: StepNoise) -> list[int]:
    """Return the sizes of the batches that a training sums over."""
    sizes: list[int] = []
    schedule = PrivateSchedule(epochs=200, batch_size=6)

    class Spy(PerSampleClippedSum):
        def add(self, index: Tensor, clip: float) -> None:
            sizes.append(len(index))

    checks.take_steps(DPSGDData(gradients=Spy(module(), X, Y), schedule=schedule), noise)
    return sizes


def test_batches_are_poisson_and_those_of_a_fixed_size_are_caught() -> None:
    schedule = PrivateSchedule(epochs=200, batch_size=6)
    rate = schedule.sampling_rate(len(X))
    good = batch_sizes(noise_of(schedule))
    assert len(good) == 1000
    checks.are_binomial(good, len(X), rate)
    fixed = FixedSize(checks.KEY, parameters=P, noise_multiplier=1.0, sampling_rate=rate)
    with pytest.raises(AssertionError, match="not binomial"):
        checks.are_binomial(batch_sizes(fixed), len(X), rate)


# -- whole trainings ---------------------------------------------------------------------------------------


SCHEDULES = [
    PrivateSchedule(epochs=4, batch_size=6),
    PrivateSchedule(epochs=4, batch_size=6, optimizer="sgd", decay="cosine", weight_decay=0.01),
    PrivateSchedule(epochs=20, batch_size=None, average=0.5),
]


def trained(schedule: PrivateSchedule, *, route: str = "ghost", **options: Any) -> list[Tensor]:
    """Return the weights after a training."""
    network = module()
    noise = options.pop("noise", None) or noise_of(schedule)
    train_private(ghost(network) if route == "ghost" else network, X, Y, schedule, noise=noise, **options)
    return list(network.state_dict().values())


def equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_both_routes_train_the_same_network(schedule: PrivateSchedule) -> None:
    for one, two in zip(trained(schedule), trained(schedule, route="vmap"), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)


def test_the_same_key_trains_the_same_network_and_another_key_another() -> None:
    schedule = SCHEDULES[0]
    assert equal(trained(schedule), trained(schedule))
    assert not equal(trained(schedule), trained(schedule, noise=noise_of(schedule, key=bytes(32))))


class StopError(Exception):
    pass


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stop_after", [1, 3, 7, 12, 19])
def test_a_resumed_run_changes_no_bit(schedule: PrivateSchedule, stop_after: int, tmp_path: Path) -> None:
    def stop(done: int) -> None:
        if done == stop_after:
            raise StopError

    saved = {"checkpoint": tmp_path / "state.safetensors", "checkpoint_every": 3}
    with pytest.raises(StopError):
        trained(schedule, on_step=stop, **saved)
    assert equal(trained(schedule, **saved), trained(schedule))
    assert equal(trained(schedule, on_step=stop, **saved), trained(schedule))  # a finished one takes no step


def test_a_run_killed_at_every_checkpoint_changes_no_bit(tmp_path: Path) -> None:
    schedule, done_so_far = SCHEDULES[0], [0]
    saved = {"checkpoint": tmp_path / "state.safetensors", "checkpoint_every": 1}

    def stop(done: int) -> None:
        assert done == done_so_far[0] + 1  # no step is taken twice
        done_so_far[0] = done
        raise StopError

    for _ in range(schedule.steps(len(X))):
        with pytest.raises(StopError):
            trained(schedule, on_step=stop, **saved)
    assert equal(trained(schedule, on_step=stop, **saved), trained(schedule))


@pytest.mark.parametrize("change", ["schedule", "key", "multiplier", "data"])
def test_a_checkpoint_of_another_training_is_rejected(change: str, tmp_path: Path) -> None:
    schedule, path = SCHEDULES[0], tmp_path / "state.safetensors"
    trained(schedule, checkpoint=path)
    other = PrivateSchedule(epochs=4, batch_size=6, learning_rate=0.02) if change == "schedule" else schedule
    key = bytes(32) if change == "key" else checks.KEY
    noise = noise_of(other, 2.0 if change == "multiplier" else 1.0, key)
    x = X + 1 if change == "data" else X
    with pytest.raises(ArtifactError, match="other settings, data or noise"):
        train_private(ghost(module()), x, Y, other, noise=noise, checkpoint=path)


def test_a_damaged_checkpoint_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(ArtifactError, match="is not a checkpoint"):
        trained(SCHEDULES[0], checkpoint=path)


def test_a_checkpoint_depends_on_the_data_through_the_noisy_weights_alone(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "state.safetensors"
    trained(SCHEDULES[0], checkpoint=path)
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
    moments = {f"optimizer/{name}" for name in ("steps", "first/0", "second/0")}
    assert names == {"weights", "mean", "counts"} | moments


def test_learns_where_the_noise_allows_it() -> None:
    x = torch.randn(2000, 5, generator=PublicStreams(1).torch("x"))
    labels = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    schedule = PrivateSchedule(epochs=20, batch_size=200, learning_rate=0.05)
    rate = schedule.sampling_rate(len(x))
    noise = StepNoise(checks.KEY, parameters=P, noise_multiplier=1.0, sampling_rate=rate)
    network = module()
    train_private(ghost(network), x, labels, schedule, noise=noise)
    with torch.no_grad():
        assert float((network(x).argmax(1) == labels).float().mean()) > 0.85


def test_momentum_on_the_noisy_mean_gives_these_weights() -> None:
    schedule = PrivateSchedule(epochs=3, batch_size=None, optimizer="sgd", momentum=0.5, learning_rate=0.1)
    gradients, noise = by_ghost(X, Y), noise_of(schedule)
    velocity = torch.zeros_like(gradients.weights)
    for step in range(3):
        velocity = 0.5 * velocity + checks.shipped_step(gradients, schedule.clip, noise, step)
        gradients.weights -= 0.1 * velocity
    expected = [view.float() for view in gradients._views(gradients.weights)]
    for one, two in zip(trained(schedule), expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-7)


def test_the_average_is_that_of_the_last_iterates() -> None:
    def iterates(schedule: PrivateSchedule) -> list[Tensor]:
        return [
            torch.cat([p.reshape(-1) for p in trained(PrivateSchedule(epochs=n, **schedule))])
            for n in range(1, 11)
        ]

    common = {"batch_size": None}
    last = iterates(common)
    mean = torch.cat([p.reshape(-1) for p in trained(PrivateSchedule(epochs=10, average=0.3, **common))])
    torch.testing.assert_close(mean, torch.stack(last[-3:]).mean(dim=0), rtol=1e-5, atol=1e-6)


def test_reports_each_step() -> None:
    done: list[int] = []
    trained(SCHEDULES[0], on_step=done.append)
    assert done == list(range(1, 21))


def test_a_record_that_is_not_finite_raises_nothing() -> None:
    x = X.clone()
    x[3], x[9] = float("nan"), float("inf")
    network = module()
    train_private(ghost(network), x, Y, SCHEDULES[0], noise=noise_of(SCHEDULES[0]))
    assert all(p.isfinite().all() for p in network.parameters())


# -- rejected -----------------------------------------------------------------------------------------------


class Undrawn(StepNoise):
    """Noise that must not be drawn."""

    def batch(self, step: int, count: int) -> Tensor:
        raise AssertionError("a batch was drawn")

    def noise(self, step: int) -> Noise:
        raise AssertionError("noise was drawn")


def undrawn(parameters: int = P, rate: float = public_rate(6, 30)) -> StepNoise:
    return Undrawn(checks.KEY, parameters=parameters, noise_multiplier=1.0, sampling_rate=rate)


MIXING: list[Callable[[], nn.Module]] = [
    lambda: nn.BatchNorm1d(4),
    lambda: nn.BatchNorm2d(4),
    lambda: nn.SyncBatchNorm(4),
    lambda: nn.LazyBatchNorm1d(),
    lambda: nn.InstanceNorm1d(4, track_running_stats=True),
]


@pytest.mark.parametrize("mixing", MIXING)
def test_a_module_that_mixes_records_is_rejected_with_its_replacement(
    mixing: Callable[[], nn.Module],
) -> None:
    network = nn.Sequential(nn.Linear(5, 4), nn.Sequential(mixing()), nn.Linear(4, 3))
    with pytest.raises(ConfigError, match=r"at '1\.0'.*LayerNorm or GroupNorm"):
        train_private(network, X, Y, SCHEDULES[0], noise=undrawn())


@pytest.mark.parametrize("apart", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4)])
def test_a_module_that_keeps_records_apart_is_not(apart: nn.Module) -> None:
    reject_row_mixing(nn.Sequential(nn.Linear(5, 4), apart))


def test_layer_norm_trains() -> None:
    network = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.SELU(), nn.Linear(4, 3))
    count = sum(p.numel() for p in network.parameters())
    noise = StepNoise(checks.KEY, parameters=count, noise_multiplier=1.0, sampling_rate=public_rate(6, 30))
    before = network[1].weight.clone()
    train_private(network, X, Y, SCHEDULES[0], noise=noise)
    assert not torch.equal(network[1].weight, before)


def test_parameters_that_are_frozen_stay() -> None:
    network = module()
    network[0].requires_grad_(False)
    before = network[0].weight.clone()
    noise = StepNoise(checks.KEY, parameters=15, noise_multiplier=1.0, sampling_rate=public_rate(6, 30))
    train_private(network, X, Y, SCHEDULES[0], noise=noise)
    assert torch.equal(network[0].weight, before)


@pytest.mark.parametrize(
    ("inputs", "schedule", "noise", "error", "words"),
    [
        (X, PrivateSchedule(batch_size=31), undrawn(), ConfigError, "larger than the number of records, 30"),
        (X, SCHEDULES[0], undrawn(rate=0.5), ReleaseError, "sampling_rate=0.5"),
        (X, SCHEDULES[0], undrawn(P + 1), ReleaseError, f"parameters={P + 1} for .*parameters={P};"),
        (X[:-1], SCHEDULES[0], undrawn(), GraphError, "29 records but 30 labels"),
    ],
)
@pytest.mark.parametrize("route", [ghost, lambda network: network])
def test_what_does_not_fit_is_rejected_before_anything_is_drawn(
    route: Callable[[Any], Any],
    inputs: Tensor,
    schedule: PrivateSchedule,
    noise: StepNoise,
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        train_private(route(module()), inputs, Y, schedule, noise=noise)


def test_dropout_of_torch_is_rejected() -> None:
    network = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    with pytest.raises(ConfigError, match="set its p to 0"):
        train_private(network, X, Y, SCHEDULES[0], noise=undrawn())


def test_sparse_records_of_a_torch_module_are_rejected() -> None:
    from scipy import sparse

    with pytest.raises(ConfigError, match="dense records"):
        train_private(module(), sparse.csr_array(X.numpy()), Y, SCHEDULES[0], noise=undrawn())


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"clip": 0.0},
        {"clip": math.inf},
        {"learning_rate": -1.0},
        {"optimizer": "adan"},
        {"momentum": 1.0},
        {"weight_decay": -0.1},
        {"decay": "linear"},
        {"average": 1.5},
    ],
)
def test_a_schedule_checks_its_ranges(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}="):
        PrivateSchedule(**wrong)


def test_a_schedule_counts_its_steps() -> None:
    assert PrivateSchedule(epochs=10, batch_size=256).steps(20_000) == 781
    assert PrivateSchedule(epochs=7, batch_size=None).steps(20_000) == 7
    assert PrivateSchedule(epochs=1, batch_size=20_000).steps(20_000) == 1


def test_the_rate_falls_with_the_cosine() -> None:
    schedule = PrivateSchedule(learning_rate=0.2, decay="cosine")
    assert [schedule.rate(step, 10) for step in (0, 5)] == pytest.approx([0.2, 0.1])
    assert PrivateSchedule(learning_rate=0.2).rate(7, 10) == 0.2
