"""Attention that is learned from edges: plans, that of the paper, and training."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphveil import load_model
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import calibrate_mu
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import PoissonGaussian
from graphveil.core.exact_sums import neighbor_sums
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_training import EdgeAttentionQuery
from graphveil.core.queries.neighbor_sums import NeighborSumData, NeighborSumQuery
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit
from graphveil.data import synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import CalibrationError, ConfigError
from graphveil.estimators.gap import GAP
from graphveil.papers import as_published
from graphveil.papers.as_published import renyi
from graphveil.papers.as_published.gap import PublishedAttention
from graphveil.papers.as_published.published import rebuilt
from graphveil.papers.as_published.renyi import epsilon_of_event
from graphveil.papers.attention import (
    AttentionTraining,
    attention_keys,
    attention_start,
    train_attention,
)

FACEBOOK, COMPUTERS, REDDIT = 22_470, 13_752, 231_443  # nodes; of Reddit those of classes with 1,000 or more
CONFIG = AttentionTraining(unit=UndirectedEdge(), dim=16, classes=4, targets=round(0.8 * FACEBOOK))
PUBLISHED = rebuilt(CONFIG, PublishedAttention)


def planned(
    config: AttentionTraining, epsilon: float
) -> tuple[ReleasePlan, EdgeAttentionQuery, NeighborSumQuery]:
    plan = config.plan(epsilon, 1e-5, num_nodes=FACEBOOK)
    steps, hop = plan.queries
    assert isinstance(steps, EdgeAttentionQuery)
    assert isinstance(hop, NeighborSumQuery)
    return plan, steps, hop


# -- the plan ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [UndirectedEdge(), DirectedEdge()])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_plan_meets_the_budget_and_leaves_most_of_it_to_the_hops(unit: Unit, epsilon: float) -> None:
    plan, steps, hop = planned(replace(CONFIG, unit=unit), epsilon)
    assert 0.999 * epsilon <= plan.epsilon <= epsilon
    alone = ReleasePlan(unit, (hop,), 1e-5).mu ** 2
    whole = calibrate_mu(epsilon, 1e-5) ** 2
    assert 0.6 * whole < alone < 0.999 * whole
    assert steps.event(unit).relation == "replace"  # type: ignore[union-attr]
    assert steps.sensitivity(unit) == 2.0
    assert hop.sensitivity(unit) == pytest.approx(math.sqrt(2) if unit == UndirectedEdge() else 1.0, rel=1e-3)


@pytest.mark.parametrize("targets", [2, 100, 256, 300])
def test_plans_for_few_targets(targets: int) -> None:
    plan, steps, _ = planned(replace(CONFIG, targets=targets), 1.0)
    assert plan.epsilon <= 1.0
    assert steps.sampling_rate == pytest.approx(min(1.0, 256 / targets))


def test_hops_share_the_budget_that_training_leaves() -> None:
    one, three = (replace(CONFIG, hops=k).plan(1.0, 1e-5, num_nodes=FACEBOOK) for k in (1, 3))
    assert len(three.queries) == 4
    assert three.noise_std[1] == pytest.approx(math.sqrt(3) * one.noise_std[1], rel=1e-3)


def test_rejects_training_above_the_budget() -> None:
    with pytest.raises(CalibrationError, match=r"uses epsilon 2\.9\d* of 2, .* attention_steps"):
        replace(CONFIG, steps=1000, multiplier=1.3).plan(2.0, 1e-5, num_nodes=FACEBOOK)


@pytest.mark.parametrize("wrong", [{"hops": 0}, {"targets": 0}, {"batch_size": 0}, {"learning_rate": -1.0}])
def test_rejects_parameters_outside_their_range(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        replace(CONFIG, **wrong)


# -- the paper ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.8, 0.72])  # with a tenth of the training nodes for validation, or none
@pytest.mark.parametrize(("nodes", "trained"), [(FACEBOOK, {4, 8}), (COMPUTERS, {8}), (REDDIT, {1, 2, 4, 8})])
def test_paper_mode_rejects_budgets_that_were_infeasible_in_the_paper(
    nodes: int, trained: set[int], share: float
) -> None:
    config = replace(PUBLISHED, targets=round(share * nodes))
    found = set()
    for epsilon in (1, 2, 4, 8):
        try:
            config.plan(float(epsilon), 1e-5, num_nodes=nodes)
        except CalibrationError as rejection:
            assert "Training the attention weights alone" in str(rejection)
        else:
            found.add(epsilon)
    assert found == trained


def test_paper_accounting_charges_every_step_without_amplification() -> None:
    _, steps, hop = planned(PUBLISHED, 8.0)
    assert (steps.steps, steps.noise_multiplier) == (1000, 1.3)
    assert steps.forward_noise == hop.sigma[0]
    training = PoissonGaussian(1.3, steps.sampling_rate, 1000)
    alone = epsilon_of_event(training, 1e-5, "plain")
    assert 2 < alone < 8
    # Without training, T Gaussian sums of this noise leave room for it.
    sums = renyi.epsilon_of(math.sqrt(1000) / hop.sigma[0], 1e-5, "plain")
    assert 0 < sums < 8
    assert steps.sampling_rate == pytest.approx(320 / CONFIG.targets)


def test_the_claim_of_the_paper_is_below_the_exact_cost() -> None:
    plan, _, _ = planned(PUBLISHED, 8.0)
    assert privacy_curve(plan.event).epsilon(1e-5) > 8.0


# -- learning ----------------------------------------------------------------------------------------------


def test_attention_learns_to_ignore_misleading_neighbors() -> None:
    """Half of the nodes send the other class, and a coordinate marks them: a plain sum is uninformative."""
    generator, count = torch.Generator().manual_seed(0), 400
    labels = torch.randint(0, 2, (count,), generator=generator)
    misleading = torch.arange(count) % 2 == 1
    sent = (labels != misleading) * 2.0 - 1.0
    zeros = torch.zeros(count)
    rows = torch.stack([sent, misleading * 2.0 - 1.0, zeros, zeros], dim=1) / 2**0.5
    source = torch.randint(0, count, (20, count), generator=generator)
    alike = labels[source] == labels
    target = torch.arange(count).expand(20, -1)
    adjacency = Adjacency.from_edges(source[alike], target[alike], num_nodes=count, directed=True)
    config = AttentionTraining(
        unit=DirectedEdge(), dim=4, classes=2, targets=count, multiplier=2.0, learning_rate=0.1
    )
    plan = config.plan(50.0, 1e-4, num_nodes=count)
    key = ReleaseKey.from_seed(0, "test")
    release = Release.open(plan, adjacency, budget=MemoryLedger(), key=key)
    network = trained(release, plan, rows, labels)
    noisy = release.answer(NeighborSumData(rows, attention_keys(network, rows)))
    assert linear_accuracy(neighbor_sums(adjacency, rows), labels) < 0.75
    assert linear_accuracy(noisy, labels) > 0.9


def trained(
    release: Release, plan: ReleasePlan, rows: Tensor, labels: Tensor, **more: Any
) -> dict[str, Tensor]:
    query, targets = plan.queries[0], torch.arange(len(rows))
    assert isinstance(query, EdgeAttentionQuery)
    start = attention_start(query, rows, labels, targets, torch.Generator().manual_seed(0))
    return train_attention(release, query, start, rows, labels, targets, **more)


def linear_accuracy(rows: Tensor, labels: Tensor) -> float:
    """Return the accuracy of the best linear classifier."""
    known = torch.cat([rows, torch.ones(len(rows), 1)], dim=1)
    signs = labels * 2.0 - 1.0
    found = known @ torch.linalg.lstsq(known, signs[:, None]).solution
    return float((found[:, 0] * signs > 0).float().mean())


def test_attention_starts_as_a_plain_sum_and_reports_each_step() -> None:
    path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    config = AttentionTraining(
        unit=UndirectedEdge(), dim=2, classes=2, targets=3, steps=5, multiplier=30.0, learning_rate=1e-9
    )
    plan = config.plan(1.0, 1e-5, num_nodes=3)
    rows, labels, reported = torch.eye(3)[:, :2], torch.tensor([0, 1, 1]), list[int]()
    release = Release.open(plan, path, budget=MemoryLedger())
    network = trained(release, plan, rows, labels, on_step=reported.append)
    _, _, readout, offset = attention_keys(network, rows)
    assert readout.abs().max() < 1e-6
    assert float(torch.sigmoid(offset)) == pytest.approx(0.9526, abs=1e-3)
    assert reported == [1, 2, 3, 4, 5]


# -- in GAP ------------------------------------------------------------------------------------------------

GRAPH = RECIPES["gap"].split(synthetic("tiny"), seed=0)


def attention_of(model: GAP) -> dict[str, torch.Tensor]:
    """Return the network that weighs edges."""
    return model.fitted.trained.aggregation.attention


OPTIONS: dict[str, Any] = {
    "unit": "undirected-edge",
    "epsilon": 4.0,
    "delta": 1e-5,
    "seed": 0,
    "epochs": 5,
    "weights": "attention",
    "attention_steps": 10,
}


def test_gap_learns_attention_and_predicts_other_graphs_with_it(tmp_path: Path) -> None:
    model = GAP(**OPTIONS).fit(GRAPH)
    guarantee = model.guarantee
    assert guarantee.valid
    assert len(model.plan_.queries) == 3
    assert guarantee.releases == 1
    assert 0.99 * 4 <= guarantee.epsilon <= 4.0
    model.save(tmp_path / "run")
    loaded = load_model(tmp_path / "run")
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert all(torch.equal(attention_of(loaded)[name], part) for name, part in attention_of(model).items())
    other = RECIPES["gap"].split(synthetic("tiny", seed=1), seed=0)
    privacy_cost = model.privacy_cost(other, assume_disjoint_edges=True)
    assert privacy_cost is not None
    assert privacy_cost.releases == 1
    assert len(privacy_cost.event.events) == 2  # nothing is trained on another graph
    assert privacy_cost.epsilon < guarantee.epsilon
    assert model.predict(other, assume_disjoint_edges=True).shape == (other.num_nodes,)


def test_gap_resumes_attention_at_no_cost(tmp_path: Path) -> None:
    first = GAP(**{**OPTIONS, "seed": None}).fit(GRAPH, workspace=tmp_path)
    again = GAP(**{**OPTIONS, "seed": None}).fit(GRAPH, workspace=tmp_path)
    assert all(torch.equal(attention_of(again)[name], part) for name, part in attention_of(first).items())


def test_gap_as_published_lists_the_deviations_of_attention() -> None:
    paper = as_published.GAP(**{**OPTIONS, "epsilon": 300.0}).fit(GRAPH).guarantee
    assert not paper.valid
    assert any("twice the change" in word for word in paper.deviations)
