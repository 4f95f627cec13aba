"""Attention learned from edges: sensitivity, noise, privacy cost, and rejections."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from contracts import laws
from privacy.golden import ATTENTION_AND_RELEASE
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import PoissonGaussian
from graphveil.core.journal import FolderJournal
from graphveil.core.keys import KeyStore, ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.steps import public_rate
from graphveil.core.plan import ReleasePlan, calibrate_plan, hops
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries import edge_training
from graphveil.core.queries.edge_counts import EdgeCountQuery, NeighborCountQuery
from graphveil.core.queries.edge_training import EdgeAttentionData, EdgeAttentionQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import (
    DirectedEdge,
    EdgeSubset,
    LocalAttributes,
    NodeBoundedDegree,
    NodeRecord,
    NoUnit,
    UndirectedEdge,
    Unit,
)
from graphveil.errors import CalibrationError, ConfigError, ReleaseError, UnitError

NODES, DIM, CLASSES = 6, 2, 3
KEY = bytes(range(32))
QUERY = EdgeAttentionQuery(
    dim=DIM, classes=CLASSES, steps=3, noise_multiplier=2.0, sampling_rate=1.0, learning_rate=0.1, clip=0.01
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


ROWS = torch.nn.functional.normalize(numbers(NODES, DIM), dim=1)
LABELS = torch.arange(NODES) % CLASSES
ALL = torch.arange(NODES)
START = numbers(QUERY.parameters, seed=1)


def graph(pairs: set[tuple[int, int]], *, directed: bool = False, nodes: int = NODES) -> Adjacency:
    source, target = zip(*sorted(pairs), strict=True) if pairs else ((), ())
    return Adjacency.from_edges(list(source), list(target), num_nodes=nodes, directed=directed)


def gradient(
    adjacency: Adjacency,
    query: EdgeAttentionQuery = QUERY,
    *,
    rows: Tensor = ROWS,
    weights: Tensor = START,
    batch: Tensor = ALL,
    shown: float = 0.0,
) -> Tensor:
    """Return the clipped sum of a batch, as the shipped steps form it."""
    nodes = torch.arange(len(rows))
    sums = edge_training.EdgeGradients(PrivateEdges(adjacency), query, rows, nodes, nodes % CLASSES, weights)
    sums.add_shown(batch, query.clip, torch.full((len(batch), query.dim), shown, dtype=torch.float64))
    return sums.sums


def random_pairs(seed: int, *, directed: bool = False) -> set[tuple[int, int]]:
    coins = np.random.default_rng(seed).random((NODES, NODES)) < 0.4
    every = itertools.permutations if directed else itertools.combinations
    return {pair for pair in every(range(NODES), 2) if coins[pair]}


# -- the gradient ------------------------------------------------------------------------------------------


def test_gradients_of_targets_are_those_of_their_losses() -> None:
    query = replace(QUERY, clip=1e6, oriented=False)
    adjacency = graph(random_pairs(0, directed=True), directed=True)
    for target in range(NODES):
        weights = START.clone().requires_grad_()
        loss_of(weights, adjacency, target, query, shown=0.3).backward()
        found = gradient(adjacency, query, batch=torch.tensor([target]), shown=0.3)
        assert torch.allclose(found, weights.grad, rtol=1e-5, atol=1e-12)


def test_the_gradient_of_a_hub_is_computed_in_pieces() -> None:
    nodes = 40_001  # the hub has more in-edges than two pieces hold
    adjacency = graph({(u, 0) for u in range(1, nodes)}, directed=True, nodes=nodes)
    query, rows = replace(QUERY, clip=1e6, oriented=False), ROWS.repeat(nodes // NODES + 1, 1)[:nodes]
    weights = START.clone().requires_grad_()
    loss_of(weights, adjacency, 0, query, shown=0.3, rows=rows).backward()
    found = gradient(adjacency, query, rows=rows, batch=torch.tensor([0]), shown=0.3)
    assert torch.allclose(found, weights.grad, rtol=1e-5, atol=1e-10)


def test_a_batch_is_summed_in_pieces() -> None:
    targets = 200_000  # a piece holds the gradients of 149,796 targets
    adjacency = graph({(1, 0), (199_998, 199_999)}, nodes=targets)
    rows = ROWS.repeat(targets // NODES + 1, 1)[:targets]
    whole, *halves = (
        gradient(adjacency, rows=rows, batch=batch)
        for batch in (torch.arange(targets), *torch.arange(targets).chunk(2))
    )
    assert torch.allclose(whole, sum(halves), rtol=1e-9, atol=1e-12)


def loss_of(
    weights: Tensor,
    adjacency: Adjacency,
    target: int,
    query: EdgeAttentionQuery,
    shown: float,
    rows: Tensor = ROWS,
) -> Tensor:
    """Return a target's loss from the formula, by plain means."""
    shapes = query.shapes
    parts = torch.split(weights, [math.prod(shape) for shape in shapes.values()])
    named = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
    z = rows[adjacency.indices[adjacency.indptr[target] : adjacency.indptr[target + 1]].long()]
    hidden = torch.tanh(z @ named["source"] + rows[target] @ named["target"] + named["bias"])
    weight = torch.sigmoid(hidden @ named["readout"] + named["offset"])
    total = (weight[:, None] * z).sum(dim=0) + shown
    seen = total / (total.square().sum() + query.dim).sqrt()
    logits = rows[target] @ named["head_own"] + seen @ named["head_sum"] + named["head_bias"]
    return cross_entropy(logits, LABELS[target])


def test_a_target_with_a_gradient_that_is_not_finite_contributes_nothing() -> None:
    rows = ROWS.clone()
    rows[3] = math.nan
    adjacency = graph({(0, 1), (1, 2), (3, 4)}, directed=True)
    query = replace(QUERY, oriented=False)
    others = torch.tensor([0, 1, 2, 5])  # 3 has the bad row and 4 receives it
    assert torch.allclose(gradient(adjacency, query, rows=rows), gradient(adjacency, query, batch=others))


# -- what an edge moves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_one_edge_moves_one_target_by_two_clips(directed: bool) -> None:
    """Toggling any edge of small graphs changes one target's clipped gradient, by at most 2 C."""
    query = replace(QUERY, oriented=not directed)
    for seed in range(3):
        pairs = random_pairs(seed, directed=directed)
        weights = numbers(QUERY.parameters, seed=seed)
        for pair in (itertools.permutations if directed else itertools.combinations)(range(NODES), 2):
            one, other = (graph(p, directed=directed) for p in (pairs, pairs ^ {pair}))
            moved = [
                float(
                    (
                        gradient(one, query, weights=weights, batch=b)
                        - gradient(other, query, weights=weights, batch=b)
                    ).norm()
                )
                for b in torch.arange(NODES)[:, None]
            ]
            touched = [target for target, by in enumerate(moved) if by > 1e-12]
            assert len(touched) <= 1, f"an edge moves {len(touched)} targets"
            assert set(touched) <= {pair[1]} if directed else set(touched) <= set(pair)
            assert max(moved) <= 2 * query.clip


def opposites() -> tuple[Tensor, Tensor, set[tuple[int, int]], set[tuple[int, int]]]:
    """Return rows, weights and two graphs, an edge apart, whose gradients all but cancel.

    Node 1 sends to 0 at weight 1/2. With 2, which sends at weight one and nothing learns from, another
    wrong class wins at 0, and more of node 1 would do the opposite.
    """
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    parts = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in QUERY.shapes.items()}
    parts["source"][1, 1] = 10.0
    parts["readout"][1] = 20.0
    parts["head_sum"][:, 1] = torch.tensor([1000.0, -1000.0])
    parts["head_sum"][:, 2] = torch.tensor([-1000.0, 1000.0])
    return rows, torch.cat([part.flatten() for part in parts.values()]), {(1, 0)}, {(1, 0), (2, 0)}


def test_two_clips_are_declared_and_attained() -> None:
    """Some edge moves the sum by all but a thousandth of what the query declares and the event is for."""
    rows, weights, one, other = opposites()
    query = replace(QUERY, oriented=False)
    sums = [
        gradient(
            graph(pairs, directed=True, nodes=3), query, rows=rows, weights=weights, batch=torch.tensor([0])
        )
        for pairs in (one, other)
    ]
    moved = float((sums[0] - sums[1]).norm())
    declared, event = query.sensitivity(DirectedEdge()), query.event(DirectedEdge())
    assert isinstance(event, PoissonGaussian)
    assert 0.999 * declared <= moved <= declared, (
        f"an edge moves the sum by {moved:g}, declared is {declared:g}"
    )
    assert event.change * query.clip == declared, "the event is for another change than the declared one"


def test_every_step_has_its_own_noise() -> None:
    """Without contributions, steps are independent draws of the multiplier's noise, over q n."""
    query = replace(QUERY, steps=400, sampling_rate=0.5)
    unused = torch.full_like(ROWS, math.nan)
    edges = PrivateEdges(graph(random_pairs(0)))
    gradients = edge_training.EdgeGradients(edges, query, unused, ALL, LABELS, START)
    answer = query.noisy_means(gradients, query.randomness(KEY))
    drawn = [answer(step).clone() for step in range(query.steps)]
    law = query.randomness(KEY)
    grid = torch.stack(drawn).numpy() * (0.5 * NODES * law.steps / query.clip)
    assert np.abs(grid - np.rint(grid)).max() < 1e-3
    laws.has_the_variance(grid, query.noise_multiplier * (law.steps + 2 * math.sqrt(query.parameters)))
    laws.rows_are_unrelated(grid)


def test_an_undirected_edge_that_counts_in_both_directions_is_charged_twice() -> None:
    both = replace(QUERY, oriented=False)
    assert both.sensitivity(UndirectedEdge()) == 2 * QUERY.sensitivity(UndirectedEdge())
    event = both.event(UndirectedEdge())
    assert event == PoissonGaussian(2.0 / math.sqrt(2.0), 1.0, 6, "replace")
    assert (
        both.event(DirectedEdge()) == QUERY.event(DirectedEdge()) == PoissonGaussian(2.0, 1.0, 3, "replace")
    )


# -- privacy cost ------------------------------------------------------------------------------------------

UNITS = {DirectedEdge(): 0, UndirectedEdge(): 1}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("row", ATTENTION_AND_RELEASE)
def test_golden_noise_of_a_hop_after_attention_training(unit: Unit, row: tuple[float, float, float]) -> None:
    epsilon, *sigmas = row
    steps = EdgeAttentionQuery(
        dim=16,
        classes=4,
        steps=100,
        noise_multiplier=2.0,
        sampling_rate=public_rate(256, 17976),
        learning_rate=0.02,
    )
    plan = calibrate_plan(unit, epsilon, 1e-5, lambda mu: (steps, *hops(mu, 1, 16, unit)), num_nodes=22_470)
    assert plan.queries[1].noise[0] == pytest.approx(sigmas[UNITS[unit]], rel=0.01)
    assert 0.999 * epsilon <= plan.epsilon <= epsilon


@pytest.mark.parametrize(
    "unit", [NodeRecord(), NodeBoundedDegree(4), LocalAttributes(), EdgeSubset(), NoUnit()]
)
@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        EdgeCountQuery("split", (True,), 2, (5.0,)),
        NeighborCountQuery("split", (0,), 1.0, 2),
    ],
)
def test_units_that_have_no_bound_are_rejected(query: Query, unit: Unit) -> None:
    with pytest.raises(UnitError, match=r"does not protect single edges: .*Use unit"):
        query.event(unit)


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": 1},
        {"dim": 0},
        {"steps": 0},
        {"learning_rate": 0.0},
        {"clip": -1.0},
        {"forward_noise": -1.0},
        {"sampling_rate": 0.3},
        {"noise_multiplier": 0.0},
    ],
)
def test_parameters_outside_their_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        replace(QUERY, **wrong)  # type: ignore[arg-type]


def test_noise_that_leaves_no_grid_is_rejected() -> None:
    with pytest.raises(CalibrationError, match="grid"):
        replace(QUERY, noise_multiplier=1e9)


# -- the release -------------------------------------------------------------------------------------------


def opened(query: EdgeAttentionQuery = QUERY, **more: object) -> Release:
    plan = ReleasePlan(UndirectedEdge(), (query,), delta=1e-5)
    key = ReleaseKey.from_seed(0, "test")
    given = {"key": key, "budget": MemoryLedger(), **more}
    return Release.open(plan, graph(random_pairs(0)), **given)  # type: ignore[arg-type]


def walk(start: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
    weights = start.clone()
    for _ in range(QUERY.steps):
        weights -= answer(weights)
    return weights


def test_training_is_charged_once_and_resumes_bit_identically(tmp_path: Path) -> None:
    budget, keys = MemoryLedger(), KeyStore(tmp_path / "keys")

    def again() -> Tensor:
        release = opened(key=None, journal=FolderJournal(tmp_path / "run", keys), budget=budget)
        return release.answer(EdgeAttentionData(ROWS, LABELS, ALL, START, walk))

    assert torch.equal(again(), again())
    assert len(budget.entries) == 1
    assert privacy_curve(budget.entries[0].event).epsilon(1e-5) > 0
    other = opened(key=None, journal=FolderJournal(tmp_path / "run", keys), budget=budget)
    with pytest.raises(ReleaseError, match="different data"):
        other.answer(EdgeAttentionData(ROWS, LABELS, ALL, START + 1, walk))


def test_no_uncharged_step_is_taken() -> None:
    def greedy(start: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        return answer(walk(start, answer))

    with pytest.raises(ReleaseError, match="not among the 3 planned steps"):
        opened().answer(EdgeAttentionData(ROWS, LABELS, ALL, START, greedy))


@pytest.mark.parametrize(
    ("labels", "targets"),
    [
        (LABELS, torch.tensor([0, 0])),
        (LABELS, torch.tensor([0, NODES])),
        (LABELS, torch.tensor([], dtype=torch.int64)),
        (LABELS, torch.tensor([0.0])),
        (LABELS - 1, ALL),
        (LABELS[1:], ALL),
    ],
)
def test_rejects_training_examples_without_a_bound(labels: Tensor, targets: Tensor) -> None:
    with pytest.raises(ReleaseError, match="stays charged"):
        opened().answer(EdgeAttentionData(ROWS, labels, targets, START, walk))


@pytest.mark.parametrize("weights", [START[1:], START * math.nan])
def test_rejects_parameters_without_a_gradient(weights: Tensor) -> None:
    with pytest.raises(ReleaseError, match="finite parameters"):
        opened().answer(EdgeAttentionData(ROWS, LABELS, ALL, weights, walk))


@pytest.mark.parametrize("rows", [ROWS * math.nan, ROWS * math.inf, ROWS * 1.001, ROWS[1:], ROWS.T])
def test_rejects_rows_without_a_bounded_norm(rows: Tensor) -> None:
    with pytest.raises(ReleaseError, match="stays charged"):
        opened().answer(EdgeAttentionData(rows, LABELS, ALL, START, walk))


def test_labels_of_other_nodes_are_not_read() -> None:
    hidden = LABELS.clone()
    hidden[4:] = -1
    some = torch.arange(4)
    seen = [
        opened().answer(EdgeAttentionData(ROWS, labels, some, START, walk)) for labels in (LABELS, hidden)
    ]
    assert torch.equal(*seen)
