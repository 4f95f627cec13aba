"""The gallery: each broken claim restates a figure of its source and is refuted; sound ones never are."""

from functools import partial

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.lab.gallery import BROKEN, SOUND, edges, records, trees

MIXTURES = [name for name, exhibit in BROKEN.items() if exhibit.kind == "mixture"]


def test_there_are_enough_of_both() -> None:
    assert len(BROKEN) >= 8
    assert len(SOUND) >= 6
    assert sum(exhibit.figure is not None for exhibit in BROKEN.values()) >= 8
    told = [figure for exhibit in BROKEN.values() for figure in (exhibit.figure, exhibit.cost) if figure]
    assert all(figure.location for figure in told)


@pytest.mark.parametrize("name", [name for name, exhibit in BROKEN.items() if exhibit.figure])
def test_a_restatement_reproduces_a_figure_of_its_source(name: str) -> None:
    figure = BROKEN[name].figure
    assert figure is not None
    assert figure.restated() == pytest.approx(figure.published, rel=figure.tolerance)


@pytest.mark.parametrize("name", [name for name, exhibit in BROKEN.items() if exhibit.cost])
def test_what_a_flaw_costs_is_what_was_worked_out(name: str) -> None:
    cost = BROKEN[name].cost
    assert cost is not None
    assert cost.restated() == pytest.approx(cost.published, rel=cost.tolerance)


def test_noise_for_one_direction_does_for_one_direction() -> None:
    exhibit = BROKEN["one direction"]
    assert not gv.audit.neighbor_test(
        exhibit.mechanism, unit="directed-edge", **exhibit.claim, pairs=300
    ).broken


@pytest.mark.parametrize("norm", [0.01, 0.1, 10.0])
def test_the_noise_of_a_step_does_for_a_public_clipping_norm(norm: float) -> None:
    exhibit = BROKEN["a clipping norm from the gradients"]
    step = partial(records.thresholds_from_gradients, public=norm)
    assert not gv.audit.neighbor_test(step, unit=exhibit.unit, **exhibit.claim, pairs=300).broken


def test_a_hub_moves_the_rows_of_others_by_its_friends_and_its_own_by_their_square() -> None:
    assert edges.moved_by_a_hub(7, own=False) == pytest.approx(7)
    assert edges.moved_by_a_hub(7, own=True) == pytest.approx(49)


@pytest.mark.parametrize("count", [3, 4, 5, 10, 11])
def test_the_floor_of_the_expected_batch_size_is_that_of_the_program(count: int) -> None:
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
def test_a_broken_claim_is_refuted_without_knowing_where_to_look(name: str) -> None:
    exhibit = BROKEN[name]
    found = exhibit.run_neighbor_test(pairs=150, seed=1)
    assert found.kinds[0] == exhibit.kind
    assert exhibit.kind in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", MIXTURES)
def test_a_claim_about_samples_is_refuted_by_counts(name: str, seed: int) -> None:
    assert BROKEN[name].run_neighbor_test(pairs=120, seed=seed).kinds == ("mixture",)


def test_a_value_that_names_one_person_is_found_in_the_runs() -> None:
    assert BROKEN["a deterministic tail"].run_neighbor_test(pairs=8, seed=0, runs=2000).kinds == ("mixture",)


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_mechanism_is_not_accused(name: str) -> None:
    assert not SOUND[name].run_neighbor_test(pairs=150, seed=2).broken


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_mechanism_is_not_accused_in_ten_thousand_pairs(name: str) -> None:
    assert not SOUND[name].run_neighbor_test(pairs=10_000, seed=3).broken


@pytest.mark.parametrize(("n", "expected"), [(3, 3), (4, 15), (5, 105)])
def test_every_tree_is_there_once_and_has_every_pair_once(n: int, expected: int) -> None:
    table = trees.membership(n)
    assert len(table) == expected
    assert (table.sum(axis=1) == 1 - np.eye(n)).all()


def test_with_the_factor_two_the_loss_is_the_proved_one() -> None:
    assert trees.worst_loss(5, 2.0, halves=2.0) == pytest.approx(0.971517, abs=1e-6)
