"""The gallery: broken claims reproduce a number of their source and are refuted; sound ones are not."""

from functools import partial

import pytest
import torch

from graphveil.audit import neighbor_test
from graphveil.papers.as_published.gallery import BROKEN, SOUND, records, trees

MIXTURES = [name for name, exhibit in BROKEN.items() if exhibit.kind == "mixture"]


def test_gallery_has_enough_mechanisms_with_numbers_of_their_source() -> None:
    assert len(BROKEN) >= 8
    assert len(SOUND) >= 6
    assert sum(exhibit.figure is not None for exhibit in BROKEN.values()) >= 8


NUMBERS = {
    f"{name}: {number.what}": number
    for name, exhibit in BROKEN.items()
    for number in (exhibit.figure, exhibit.cost)
    if number is not None
}


@pytest.mark.parametrize("name", NUMBERS)
def test_restatement_reproduces_the_numbers_of_its_source(name: str) -> None:
    number = NUMBERS[name]
    assert number.location
    assert number.restated() == pytest.approx(number.published, rel=number.tolerance)


def test_noise_for_one_direction_is_enough_for_directed_edges() -> None:
    exhibit = BROKEN["one direction"]
    assert not neighbor_test(exhibit.mechanism, unit="directed-edge", **exhibit.claim, pairs=100).broken


@pytest.mark.parametrize("norm", [0.01, 0.1, 10.0])
def test_noise_of_a_step_is_enough_for_a_public_clipping_norm(norm: float) -> None:
    exhibit = BROKEN["a clipping norm from the gradients"]
    step = partial(records.thresholds_from_gradients, public=norm)
    assert not neighbor_test(step, unit=exhibit.unit, **exhibit.claim, pairs=100).broken


@pytest.mark.parametrize("count", [3, 4, 5, 10, 11])
def test_floor_of_the_expected_batch_size_is_that_of_opacus(count: int) -> None:
    from opacus import PrivacyEngine

    network = torch.nn.Linear(2, 1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(count, 2)), batch_size=2)
    with pytest.warns(UserWarning, match="Secure RNG"):
        _, optimizer, _ = PrivacyEngine().make_private(
            module=network,
            optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
            data_loader=data,
            noise_multiplier=2.0,
            max_grad_norm=1.0,
        )
    assert optimizer.expected_batch_size == records.divisor(count, 2)


@pytest.mark.parametrize("name", [name for name in BROKEN if name not in MIXTURES])
def test_broken_claim_is_refuted(name: str) -> None:
    exhibit = BROKEN[name]
    found = exhibit.run_neighbor_test(pairs=80, seed=1)
    assert found.kinds[0] == exhibit.kind
    assert exhibit.kind in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", MIXTURES)
def test_broken_claim_about_samples_is_refuted_by_counts(name: str, seed: int) -> None:
    assert BROKEN[name].run_neighbor_test(pairs=120, seed=seed).kinds == ("mixture",)


def test_value_of_one_person_is_found_by_counts() -> None:
    assert BROKEN["a deterministic tail"].run_neighbor_test(pairs=2, seed=0, runs=1000).kinds == ("mixture",)


@pytest.mark.parametrize("name", SOUND)
def test_sound_mechanism_is_not_refuted(name: str) -> None:
    assert not SOUND[name].run_neighbor_test(pairs=80, seed=2).broken


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_sound_mechanism_is_not_refuted_by_ten_thousand_pairs(name: str) -> None:
    assert not SOUND[name].run_neighbor_test(pairs=10_000, seed=3).broken


def test_loss_with_the_factor_two_is_the_proved_one() -> None:
    assert trees.worst_loss(5, 2.0, halves=2.0) == pytest.approx(0.971517, abs=1e-6)
