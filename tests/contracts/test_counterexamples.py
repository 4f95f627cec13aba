"""Constructions that are sold as hiding a person, caught by an attack, and ours beside them.

proofs/rejected.md. Each attack is a number computed from what is given out, and a threshold halfway
between its means under the two hypotheses. At epsilon 1 and delta 1e-5 a mechanism within its guarantee has
hits <= e * false alarms + delta, for every attack.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.release import Release
from graphveil.core.unit import NodeBoundedDegree, NodeRecord
from graphveil.errors import UnitError

EPSILON, DELTA = 1.0, 1e-5
MU = mu_of(EPSILON, DELTA / 1.001)
RUNS = 400

Floats = npt.NDArray[np.float64]
Edges = list[tuple[int, int]]


def excess(with_person: Floats, without: Floats) -> float:
    """Return hits - e * false alarms of the threshold halfway between the means."""
    halfway = (with_person.mean() + without.mean()) / 2
    up = with_person.mean() > without.mean()
    hits, alarms = ((x > halfway).mean() if up else (x < halfway).mean() for x in (with_person, without))
    return float(hits - math.exp(EPSILON) * alarms)


def is_caught(with_person: Floats, without: Floats) -> None:
    assert excess(with_person, without) > 0.5


def is_not_caught(with_person: Floats, without: Floats) -> None:
    error = 5 * math.sqrt((1 + math.exp(2 * EPSILON)) / (4 * RUNS))
    assert excess(with_person, without) <= DELTA + error
    effect = (with_person.mean() - without.mean()) / without.std()
    assert abs(effect) <= MU + 5 * math.sqrt(2 / RUNS)


def directed(edges: Edges, nodes: int) -> Adjacency:
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    return Adjacency.from_edges(source, target, num_nodes=nodes, directed=True)


def mutual(pairs: Edges) -> Edges:
    return [*pairs, *((v, u) for u, v in pairs)]


def pushes(edges: Edges, sent: Tensor, statistic: Callable[[Tensor], float]) -> Floats:
    """Return the statistic of many pushes under our own plan for epsilon 1."""
    plan = ReleasePlan(NodeRecord(), (OutEdgeSumQuery(dim=1, sigma=1 / MU),), delta=DELTA)
    assert plan.epsilon <= EPSILON
    graph = directed(edges, len(sent))
    return np.array(
        [
            statistic(
                Release.open(plan, graph, budget=MemoryLedger(), key=seeded(run)).answer(OutEdgeSumData(sent))
            )
            for run in range(RUNS)
        ]
    )


def seeded(run: int) -> ReleaseKey:
    return ReleaseKey.from_seed(run, "attack")


# -- sampling D edges at every source, sold as hiding all edges of a person --------------------------------

COUPLES = 400
PEOPLE, HUB = 2 * COUPLES, 2 * COUPLES
PAIRS = mutual([(2 * k, 2 * k + 1) for k in range(COUPLES)])
TO_HUB = [(v, HUB) for v in range(PEOPLE)]


def sampled_sums(with_hub: bool, rng: np.random.Generator) -> float:
    """Every source keeps one edge at random and sends 1; noise for one row. Return the couples' sum."""
    kept = PEOPLE if not with_hub else rng.binomial(PEOPLE, 0.5)  # half of them pick the hub instead
    return float(kept + rng.normal(0, math.sqrt(PEOPLE) / MU))


def test_a_hub_empties_the_samples_of_all_others() -> None:
    rng = np.random.default_rng(1)
    is_caught(*(np.array([sampled_sums(hub, rng) for _ in range(RUNS)]) for hub in (True, False)))


def test_a_hubs_own_record_moves_our_rows_by_one() -> None:
    # Edges towards the hub are on their senders' lists, whether or not the hub's record is there.
    sent = torch.ones(PEOPLE + 1, 1)

    def total(rows: Tensor) -> float:
        return float(rows[:PEOPLE].sum())

    hub = [(HUB, v) for v in range(PEOPLE)]
    is_not_caught(*(pushes([*PAIRS, *TO_HUB, *own], sent, total) for own in (hub, [])))


def test_a_hub_violates_an_assumption_of_small_degrees() -> None:
    graph = directed([*PAIRS, *mutual(TO_HUB)], PEOPLE + 1)
    with pytest.raises(UnitError, match="assumption"):
        Release.open(
            ReleasePlan(NodeBoundedDegree(max_degree=2), hops(MU, 1, 1), delta=DELTA),
            graph,
            budget=MemoryLedger(),
        )


# -- keeping an edge while both ends have fewer than D -----------------------------------------------------

LENGTH = 1000
CODES = np.tile([1.0, 1.0, -1.0, -1.0], LENGTH // 4)  # two nodes apart they differ


def greedy_sums(first_edge: bool) -> Floats:
    """Keep edges of a path in order, each node at most one, and sum codes along what is kept."""
    degree, rows = np.zeros(LENGTH), np.zeros(LENGTH)
    for u in range(0 if first_edge else 1, LENGTH - 1):
        if degree[u] < 1 and degree[u + 1] < 1:
            degree[u : u + 2] += 1
            rows[u], rows[u + 1] = CODES[u + 1], CODES[u]
    return rows


def test_one_edge_flips_every_later_decision_of_a_greedy_cap() -> None:
    rng, means = np.random.default_rng(2), (greedy_sums(True), greedy_sums(False))
    difference = means[0] - means[1]
    noise = math.sqrt(2) / MU  # for the rows of the one edge's two ends
    is_caught(
        *(
            (mean + rng.normal(0, noise, (RUNS, LENGTH))) @ difference / np.linalg.norm(difference)
            for mean in means
        )
    )


def test_a_record_at_the_end_of_the_path_moves_our_rows_by_one() -> None:
    sent = torch.from_numpy(CODES)[:, None]
    rest = mutual([(v, v + 1) for v in range(LENGTH - 1)])
    rest.remove((0, 1))

    def row_one(rows: Tensor) -> float:
        return float(rows[1])

    is_not_caught(*(pushes([*rest, *own], sent, row_one) for own in ([(0, 1)], [])))


# -- giving out a person's own sum, with noise for the rows of its friends ---------------------------------

FRIENDS = 900
STAR = mutual([(0, v) for v in range(1, FRIENDS + 1)])


def of_bounded_degree(edges: Edges) -> Floats:
    """Return the rows of many hops of weight one, under an assumption that the star satisfies."""
    unit = NodeBoundedDegree(max_degree=FRIENDS)
    plan = ReleasePlan(unit, hops(MU, 1, 1, unit), delta=DELTA)
    assert plan.epsilon <= EPSILON
    graph, sent = directed(edges, FRIENDS + 1), torch.ones(FRIENDS + 1, 1)
    return np.stack(
        [
            Release.open(plan, graph, budget=MemoryLedger(), key=seeded(run))
            .answer(NeighborSumData(sent))
            .double()
            .numpy()[:, 0]
            for run in range(RUNS)
        ]
    )


def test_an_assumption_covers_all_rows_but_that_of_the_node() -> None:
    with_person, without = of_bounded_degree(STAR), of_bounded_degree([])
    is_caught(with_person[:, 0], without[:, 0])
    is_not_caught(*(rows[:, 1:].sum(axis=1) / math.sqrt(FRIENDS) for rows in (with_person, without)))
