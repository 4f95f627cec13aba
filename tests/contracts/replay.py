"""Cases of neighbor replay: ways to release with edges protected, and with records."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from graphveil.audit import NeighborTestResult, neighbor_test_plan
from graphveil.core.queries.edge_counts import EdgeCountQuery
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeCodeSumQuery, OutEdgeSumQuery
from graphveil.core.query import GRID_BITS, Query
from graphveil.core.unit import DirectedEdge, NodeRecord, UndirectedEdge, Unit

MU = 0.7
CLASSES, DIM = 3, 2
COUNT_SHARE = 0.05
CODES = torch.tensor([[1.0, 0.0], [-0.5, math.sqrt(0.75)], [-0.5, -math.sqrt(0.75)]], dtype=torch.float64)
UNITS: tuple[Unit, ...] = (UndirectedEdge(), DirectedEdge())
OWNER, REPLACED = NodeRecord(), NodeRecord(replace_one=True)
LEVELS = (0, 4, 16, 81)
BOUNDS = (1.0, 1.118033988749895, 0.0)  # labeled, not labeled, silent


@dataclass(frozen=True)
class Method:
    """A way to release: a name and its queries for a total mu."""

    name: str
    queries: Callable[[Unit, float, int], tuple[Query, ...]]

    def __str__(self) -> str:
        return self.name


def _hops(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    weights = GroupWeights.unit_weights()
    shares = (0.5, 0.3, 0.2)
    return tuple(
        NeighborSumQuery(weights, (weights.sensitivity(unit) / (mu * math.sqrt(share)),), DIM, bits)
        for share in shares
    )


def _equal(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    weights = GroupWeights.equal("train/val/target", 3)
    return (NeighborSumQuery(weights, (weights.sensitivity(unit) / mu,) * 3, DIM, bits),)


def _counts(mu: float, bits: int) -> EdgeCountQuery:
    sigma = 1 / (mu * math.sqrt(COUNT_SHARE))
    return EdgeCountQuery("train/val/target", (True, True, False), CLASSES, (sigma,), bits)


def _steered(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    labeled = 1 / (mu * math.sqrt(1 - COUNT_SHARE))
    return (
        NeighborSumQuery(GroupWeights.target_weighted(), (labeled, labeled, 1 / mu), DIM, bits),
        _counts(mu, bits),
    )


def _few_labels(unit: Unit, mu: float, bits: int) -> tuple[Query, ...]:
    labeled = 1 / (mu * math.sqrt((1 - COUNT_SHARE) / 2))
    hop = NeighborSumQuery(GroupWeights.few_labels(0.3), (labeled, labeled, math.sqrt(2) / mu), DIM, bits)
    return (hop, hop, _counts(mu, bits))


ONE = Method("one, three hops", _hops)
EQUAL = Method("equal", _equal)
STEERED = Method("steered and counts", _steered)
FEW_LABELS = Method("few labels, two hops and counts", _few_labels)
METHODS = (ONE, EQUAL, STEERED, FEW_LABELS)


def pushes(budget: int = 2) -> tuple[OutEdgeSumQuery, ...]:
    """Two pushes: one that treats rows alike, and one whose levels vary."""
    return (
        OutEdgeSumQuery(dim=3, sigma=2.0, out_degree_bound=budget, bounds=BOUNDS),
        OutEdgeSumQuery(dim=3, sigma=3.0, out_degree_bound=budget, bounds=BOUNDS, levels=LEVELS),
    )


def code_pushes(budget: int = 2) -> tuple[OutEdgeCodeSumQuery, ...]:
    """The same pushes of class codes."""
    return tuple(OutEdgeCodeSumQuery(**vars(query)) for query in pushes(budget))


def no_change_exceeds_its_price(
    queries: tuple[Query, ...], unit: Unit, *, pairs: int = 200, seed: int = 0
) -> Mapping[str, float]:
    """Replay queries of a release; return, by the groups of what differs, the largest share of its price."""
    found = neighbor_test_plan(unit, queries, pairs=pairs, seed=seed)
    assert found is not None, "nothing was replayed"
    return nothing_breaks(found)


def nothing_breaks(found: NeighborTestResult) -> Mapping[str, float]:
    """Fail with what a replay has found."""
    assert not found.broken, str(found)
    return found.attained


def of_method(
    method: Method, unit: Unit, *, pairs: int = 120, seed: int = 0, bits: int = GRID_BITS
) -> Mapping[str, float]:
    """Replay a way to release."""
    return no_change_exceeds_its_price(method.queries(unit, MU, bits), unit, pairs=pairs, seed=seed)
