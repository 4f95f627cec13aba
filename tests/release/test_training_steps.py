"""Training steps: the privacy cost by group of records, the noise, and resumed runs."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts.checks import KEY

from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import ByGroup, Composed, Gaussian, PoissonGaussian
from graphveil.core.journal import FolderJournal
from graphveil.core.keys import KeyStore
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_gaussian import RoundedGaussian
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.queries.record_counts import AccuracyCountData, AccuracyCountQuery
from graphveil.core.queries.training_steps import DPSGDData, DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeBoundedDegree, NodeRecord, NoUnit, UndirectedEdge, Unit
from graphveil.errors import CalibrationError, ConfigError, ReleaseError, UnitError

EMPTY = Adjacency.from_edges([], [], num_nodes=4, directed=True)
FULL = DPSGDQuery(parameters=3, steps=50, noise_multiplier=30.0)
SAMPLED = DPSGDQuery(parameters=3, steps=48, noise_multiplier=3.0, sampling_rate=0.25)
TALLY = AccuracyCountQuery(candidates=4, sigma=10.0)
DATA = torch.arange(12.0).reshape(4, 3)


def opened(*queries: Query, groups: torch.Tensor | None = None, **more: object) -> Release:
    plan = ReleasePlan(NodeRecord(), queries, delta=1e-5)
    return Release.open(plan, EMPTY, groups, budget=MemoryLedger(), **more)  # type: ignore[arg-type]


# -- privacy cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [NodeRecord(), NodeBoundedDegree(max_degree=4)])
def test_steps_on_all_records_are_one_gaussian_and_sampled_ones_are_not(unit: Unit) -> None:
    assert FULL.event(unit) == Gaussian(math.sqrt(50) / 30)
    assert SAMPLED.event(unit) == PoissonGaussian(3.0, 0.25, 48, "add_remove")
    assert FULL.sensitivity(unit) == 1.0
    assert (FULL.noise, SAMPLED.noise) == ((30.0,), (3.0,))


def test_replacing_a_record_moves_steps_twice_as_far_and_accuracy_counts_as_far_as_nulling() -> None:
    unit = NodeRecord(replace_one=True)
    assert FULL.event(unit) == Gaussian(2 * math.sqrt(50) / 30)
    assert SAMPLED.event(unit) == PoissonGaussian(3.0, 0.25, 48, "replace")
    assert DPSGDQuery(parameters=3, steps=5, noise_multiplier=9.0, clip=0.5).sensitivity(unit) == 1.0
    assert TALLY.event(unit) == TALLY.event(NodeRecord()) == Gaussian(0.2)
    assert TALLY.sensitivity(unit) == 2.0


def test_only_groups_that_are_read_are_charged() -> None:
    train, val = (True, False, False), (False, True, False)
    steps = DPSGDQuery(parameters=2, steps=9, noise_multiplier=10.0, partition="split", pays=train)
    tally = AccuracyCountQuery(candidates=9, sigma=10.0, partition="split", pays=val)
    assert steps.event(NodeRecord()) == ByGroup("split", (Gaussian(0.3), Composed(()), Composed(())))
    assert tally.event(NodeRecord()) == ByGroup("split", (Composed(()), Gaussian(0.3), Composed(())))
    # No group is charged twice.
    assert ReleasePlan(NodeRecord(), (steps, tally), delta=1e-5).mu == pytest.approx(
        0.3
    )  # no group is charged twice
    all_groups = AccuracyCountQuery(candidates=9, sigma=10.0, partition="split", pays=(True,) * 3)
    assert ReleasePlan(NodeRecord(), (steps, all_groups), delta=1e-5).mu == pytest.approx(math.sqrt(0.18))


def test_a_record_is_charged_for_all_gradients_that_read_it() -> None:
    steps = DPSGDQuery(parameters=3, steps=50, noise_multiplier=30.0, reach=3, pays=(True, False), clip=0.5)
    whole = math.sqrt(50) / 30
    assert steps.event(NodeRecord()) == ByGroup("records", (Gaussian(7 * whole), Gaussian(6 * whole)))
    assert steps.sensitivity(NodeRecord()) == 3.5
    assert steps.sensitivity(NodeRecord(replace_one=True)) == 7.0


def test_the_coordinates_of_all_steps_count() -> None:
    assert SAMPLED.changed(NodeRecord()) == 144


def test_a_plan_with_sampled_steps_has_an_epsilon_and_no_mu() -> None:
    plan = ReleasePlan(NodeRecord(), (SAMPLED, TALLY), delta=1e-5)
    assert plan.mu == 0.0
    assert 1.0 < plan.epsilon < 10.0
    assert plan.noise_std == [3.0, 10.0]
    assert plan.slack == pytest.approx(1e-8, rel=1e-2)  # once, for all steps
    assert not plan.linear_group_scaling


@pytest.mark.parametrize("unit", [UndirectedEdge(), DirectedEdge(), NoUnit()])
@pytest.mark.parametrize("query", [FULL, SAMPLED, TALLY], ids=["full", "sampled", "tally"])
def test_edge_units_are_rejected_for_record_queries(unit: Unit, query: Query) -> None:
    with pytest.raises(UnitError, match="records"):
        ReleasePlan(unit, (query,), delta=1e-5)
    with pytest.raises(UnitError, match="records"):
        query.sensitivity(unit)


def test_rejects_the_rounded_sampler_with_training_steps() -> None:
    with pytest.raises(CalibrationError, match="training steps"):
        ReleasePlan(NodeRecord(), (FULL,), delta=1e-5, sampler=RoundedGaussian)


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": 0},
        {"steps": 0},
        {"noise_multiplier": 0.0},
        {"clip": -1.0},
        {"sampling_rate": 0.1},  # no multiple of 2^-32
        {"sampling_rate": 0.0},
        {"pays": ()},
        {"pays": (False, False)},
    ],
)
def test_steps_outside_their_range_are_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        DPSGDQuery(**({"parameters": 2, "steps": 3, "noise_multiplier": 1.0} | fields))  # type: ignore[arg-type]


def test_rejects_noise_too_large_for_the_grid() -> None:
    with pytest.raises(CalibrationError, match="grid"):
        DPSGDQuery(parameters=2, steps=3, noise_multiplier=1e7)


# -- the answers -------------------------------------------------------------------------------------------


def training(data: torch.Tensor = DATA, **how: Any) -> DPSGDData:
    """A training of three weights on four records without labels, whose steps are noise alone."""
    no_labels = torch.full((len(data),), -1)
    gradients = clipped_sum(OneLogit(), data, no_labels)
    return DPSGDData(gradients=gradients, schedule=PrivateSchedule(epochs=12, batch_size=1), **how)


class OneLogit(torch.nn.Module):
    """Three weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x @ self.weight, -(x @ self.weight)], dim=1)


def test_noise_is_bound_to_public_settings() -> None:
    found = [opened(SAMPLED, key=KEY).answer(training(settings=(torch.tensor([k]),))) for k in (0, 0, 1)]
    assert (found[0] == found[1]).all()
    assert not (found[0] == found[2]).any()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("steps", {"steps": 49}),
        ("sampling_rate", {"sampling_rate": 0.5}),
        ("clip", {"clip": 2.0}),
        ("parameters", {"parameters": 4}),
    ],
)
def test_rejects_a_training_that_differs_from_the_plan(name: str, other: dict[str, Any]) -> None:
    release, fields = opened(replace(SAMPLED, **{"steps": 48} | other)), {"steps": 48} | other
    with pytest.raises(ReleaseError, match=f"the plan has {name}={fields[name]!r} for its training steps"):
        release.answer(training())


def test_groups_must_match_the_charged_groups() -> None:
    query = AccuracyCountQuery(candidates=2, sigma=30.0, pays=(False, True))
    with pytest.raises(ConfigError, match="groups"):
        opened(query)
    entry = MemoryLedger()
    Release.open(
        ReleasePlan(NodeRecord(), (query,), delta=1e-5), EMPTY, torch.tensor([0, 1, 1, 0]), budget=entry
    )
    (part,) = entry.entries[0].event.events  # type: ignore[union-attr]
    assert part.partition.startswith("records/")  # which nodes form the groups is part of the name


# -- resuming ----------------------------------------------------------------------------------------------


def test_a_resumed_release_draws_the_same_noise_and_rejects_other_data(tmp_path: Path) -> None:
    run, keys = tmp_path / "run", KeyStore(tmp_path / "keys")

    def resumed(*queries: Query) -> Release:
        return opened(*queries, journal=FolderJournal(run, keys))

    first = resumed(SAMPLED, TALLY)
    weights = first.answer(training())
    counts = first.answer(AccuracyCountData(torch.ones(3, 4, dtype=torch.bool)))
    again = resumed(SAMPLED, TALLY)
    (run / "answer-0.safetensors").unlink()  # as if it had been killed before
    assert torch.equal(again.answer(training()), weights)
    assert torch.equal(again.answer(AccuracyCountData(torch.ones(3, 4, dtype=torch.bool))), counts)
    with pytest.raises(ReleaseError, match="same noise for different data"):
        resumed(SAMPLED, TALLY).answer(training(DATA + 1))
    with pytest.raises(ReleaseError, match="same noise for different data"):
        resumed(SAMPLED, TALLY).answer(training(settings=(DATA,)))
    other = DPSGDQuery(parameters=3, steps=48, noise_multiplier=3.0, sampling_rate=0.25, clip=2.0)
    with pytest.raises(ReleaseError, match="same noise for different data"):
        resumed(other, TALLY)
    first.close()


def test_a_closed_release_returns_its_weights_and_never_takes_a_step_again(tmp_path: Path) -> None:
    run, keys = tmp_path / "run", KeyStore(tmp_path / "keys")
    first = opened(SAMPLED, journal=FolderJournal(run, keys))
    weights = first.answer(training())
    first.close()

    def taken(done: int) -> None:
        raise AssertionError("a step was taken")

    closed = opened(SAMPLED, journal=FolderJournal(run, keys))
    assert torch.equal(closed.answer(training(on_step=taken)), weights)
    (run / "answer-0.safetensors").unlink()
    with pytest.raises(ReleaseError, match="noise key is deleted"):
        opened(SAMPLED, journal=FolderJournal(run, keys)).answer(training(on_step=taken))


@pytest.mark.parametrize(
    "unit", [NodeRecord(replace_one=True), NodeBoundedDegree(max_degree=4)], ids=["relation", "unit"]
)
def test_rejects_a_resume_under_another_unit(tmp_path: Path, unit: Unit) -> None:
    run, keys = tmp_path / "run", KeyStore(tmp_path / "keys")
    opened(SAMPLED, journal=FolderJournal(run, keys))
    with pytest.raises(ReleaseError, match="same noise for different data"):
        plan = ReleasePlan(unit, (SAMPLED,), delta=1e-5)
        Release.open(plan, EMPTY, budget=MemoryLedger(), journal=FolderJournal(run, keys))


def test_rejects_a_resume_under_another_degree_assumption(tmp_path: Path) -> None:
    run, keys = tmp_path / "run", KeyStore(tmp_path / "keys")
    hop: tuple[NeighborSumQuery, ...] = hops(1.0, 1, 2)
    for degree, rejected in ((4, False), (5, True)):
        plan = ReleasePlan(NodeBoundedDegree(max_degree=degree), hop, delta=1e-3)
        if not rejected:
            Release.open(plan, EMPTY, budget=MemoryLedger(), journal=FolderJournal(run, keys))
            continue
        with pytest.raises(ReleaseError, match="same noise for different data"):
            Release.open(plan, EMPTY, budget=MemoryLedger(), journal=FolderJournal(run, keys))
