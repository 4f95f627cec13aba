"""What every kind of query is asked with on a small graph, which law its answer has, and whom it may reach.

A new kind of query registers here (:func:`query_data`; :func:`law` if its noise is no Gaussian), and is
replayed under every unit that it has a bound for. What belongs to records is a function of them; everything
else is drawn from what is public.
"""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.audit.laws import FlipLaw, GaussianLaw, LaplaceLaw, Law
from graphveil.audit.query_neighbor_tests.neighbor_families import PublicGraphFacts
from graphveil.audit.small_graphs import FEATURES, SmallGraph
from graphveil.privacy import DirectedEdge, NodeBoundedDegree, Unit
from graphveil.privacy.unit import NodeUnit
from graphveil.propagation import safe_unit
from graphveil.release import (
    AccuracyCountData,
    AccuracyCountQuery,
    BlockCountData,
    BlockCountQuery,
    EdgeAttentionData,
    EdgeAttentionQuery,
    EdgeCountData,
    EdgeCountQuery,
    EdgeResponseData,
    EdgeResponseQuery,
    EdgeTotalData,
    EdgeTotalQuery,
    NeighborCountData,
    NeighborCountQuery,
    NeighborSumData,
    NeighborSumQuery,
    OutcomeCountData,
    OutcomeCountQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
)
from graphveil.release.dendrogram import Dendrogram
from graphveil.release.query import Query, QueryData
from graphveil.release.weights import Similarity

Floats = npt.NDArray[np.float64]

_LENGTHS = (
    0.0,
    0.4,
    1.0,
    1.0,
    1.0,
    1.2,
    40.0,
)  # of vectors, in bounds: longer ones have to count for nothing
_WITHIN = (0.0, 0.4, 1.0, 1.0, 1.0)

NOT_NEIGHBOR_TESTED = {  # kinds of queries, and why they have no neighbors on small graphs
    "DPSGDQuery": "what its steps read is the method's; they are replayed where it trains",
    "TreeStepsQuery": "what its steps read is the method's; trees are replayed where they are drawn",
    "TopNodePairsQuery": "cells compete for places, which no single cell's law says",
    "TreeSearchQuery": "a random walk, whose law is enumerated elsewhere",
    "ChunkDensityQuery": "as published, and known not to keep its claim",
    "ChunkResponseQuery": "as published, and known not to keep its claim",
    "SeededCellsQuery": "as published, and known not to keep its claim",
    "SeededResponseQuery": "as published, and known not to keep its claim",
    "SeededTotalQuery": "as published, and known not to keep its claim",
}


@dataclass(frozen=True, eq=False)
class NeighborView:
    """One of two neighbors, seen by a query.

    Args:
        graph: with its records.
        public: what both have in common.
        groups: of nodes, public.
        number: of the query in its plan.
        within: whether no vector is longer than its bound, as some bounds ask for.
    """

    graph: SmallGraph
    public: PublicGraphFacts
    groups: Tensor
    number: int
    within: bool = False

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """Which records are not null."""
        return np.asarray(self.graph.y >= 0)

    def draw(self, name: str) -> np.random.Generator:
        """Return a public generator for this query."""
        return self.public.draw(f"{name} {self.number}")

    def vectors(self, dim: int, bound: Any = 1.0) -> Tensor:
        """Return a vector a record, some of them zero, short or too long; a null record's is zero.

        A record with opposite features has the opposite vector, so that a replacement can move twice.
        """
        rng = self.draw("vectors")
        centered = 2 * self.graph.x - 1
        if rng.random() < 0.5:  # hard codes lie on every grid
            rows = np.eye(dim)[self.graph.y % dim] * np.where(centered[:, :1] < 0, -1.0, 1.0)
        else:
            rows = safe_unit(torch.from_numpy(centered @ rng.normal(size=(FEATURES, dim)))).numpy()
        lengths = rng.choice(_WITHIN if self.within else _LENGTHS, size=self.public.nodes)
        if rng.random() < 0.5:  # prices are attained by vectors at their bounds
            lengths = np.ones(self.public.nodes)
        if not self.within:
            bound = np.where(np.asarray(bound) > 0, bound, 1.0)  # who may send nothing tries to
        return torch.from_numpy(rows * (lengths * bound * self.there)[:, None])

    def outcomes(self, columns: int) -> npt.NDArray[np.bool_]:
        """Return bits of records, one a column: opposite records have opposite ones, null records none."""
        rng = self.draw("outcomes")
        side = self.graph.x[:, 0] > 0.5
        table = rng.random((self.public.nodes, columns)) < rng.choice([0.5, 1.0])
        return np.asarray((table ^ side[:, None]) & self.there[:, None])


# -- what is asked -------------------------------------------------------------------------------------------


@singledispatch
def query_data(query: Query, view: NeighborView) -> QueryData[Any] | None:
    """Return the data of a query; None for a kind that no small graph answers."""
    return None


@query_data.register
def _of_hops(query: NeighborSumQuery, view: NeighborView) -> NeighborSumData:
    weight, rng = query.similarity, view.draw("keys")
    keys = None if weight is None else keys_of(weight, view.public.nodes, rng)
    return NeighborSumData(view.vectors(query.dim), keys)


def keys_of(weight: Similarity, nodes: int, rng: np.random.Generator) -> Any:
    """Return what a weight reads of each node: some nodes alike, some apart, and some without."""
    corner = rng.random((nodes, 1)) < 0.5
    axes = np.eye(FEATURES)[rng.integers(FEATURES, size=nodes)]
    if weight.reads == "attention":  # a network's two maps, readout and offset; some logits are out of reach
        maps = (torch.from_numpy(rng.normal(size=(nodes, 3)) * 4) for _ in range(2))
        return (*maps, torch.from_numpy(rng.normal(size=3) * 3), torch.tensor(1.0))
    if weight.reads == "features":
        return torch.from_numpy((rng.random((nodes, 3)) < 0.5).astype(np.float32))
    if weight.reads == "posteriors":
        return torch.from_numpy(np.where(corner, axes, rng.dirichlet([1, 1, 1], nodes)))
    rows = np.where(corner, axes, rng.normal(size=(nodes, FEATURES)))
    return torch.from_numpy(rows * (rng.random((nodes, 1)) < 0.9))


@query_data.register
def _of_neighbor_counts(query: NeighborCountQuery, view: NeighborView) -> NeighborCountData:
    drawn = view.draw("classes").integers(-1, query.classes, size=view.public.nodes)
    return NeighborCountData(torch.from_numpy(drawn))


@query_data.register
def _of_edge_counts(query: EdgeCountQuery, view: NeighborView) -> EdgeCountData:
    drawn = view.draw("classes").integers(query.classes, size=view.public.nodes)
    return EdgeCountData(torch.from_numpy(drawn))


@query_data.register
def _of_pushes(query: OutEdgeSumQuery, view: NeighborView) -> OutEdgeSumData:
    group = view.groups.numpy() if query.groups > 1 else np.zeros(view.public.nodes, dtype=np.int64)
    levels = view.draw("levels").integers(len(query.levels), size=view.public.nodes)
    return OutEdgeSumData(view.vectors(query.dim, np.array(query.bounds)[group]), torch.from_numpy(levels))


def _counted(pays: tuple[bool, ...], view: NeighborView) -> npt.NDArray[np.bool_]:
    """Return whose records are counted."""
    return np.asarray(np.array(pays)[view.groups.numpy() % len(pays)])


@query_data.register
def _of_tallies(query: AccuracyCountQuery, view: NeighborView) -> AccuracyCountData:
    return AccuracyCountData(torch.from_numpy(view.outcomes(query.candidates)[_counted(query.pays, view)]))


@query_data.register
def _of_outcomes(query: OutcomeCountQuery, view: NeighborView) -> OutcomeCountData:
    counted = _counted(query.pays, view)
    correct, there = view.outcomes(1)[counted, 0], view.there[counted]
    return OutcomeCountData(torch.from_numpy(correct), torch.from_numpy(there & ~correct))


@query_data.register
def _of_responses(query: EdgeResponseQuery, view: NeighborView) -> EdgeResponseData:
    return EdgeResponseData(view.public.domain)


@query_data.register
def _of_totals(query: EdgeTotalQuery, view: NeighborView) -> EdgeTotalData:
    return EdgeTotalData(view.public.domain)


@query_data.register
def _of_blocks(query: BlockCountQuery, view: NeighborView) -> BlockCountData | None:
    domain = view.public.domain
    if domain.slots.nodes < 2:
        return None
    return BlockCountData(domain, tree=Dendrogram.balanced(domain.slots.nodes, view.draw("tree")))


@query_data.register
def _of_attention(query: EdgeAttentionQuery, view: NeighborView) -> EdgeAttentionData:
    """One step at random weights, with every node for a target."""
    rng, nodes = view.draw("network"), view.public.nodes
    rows, weights = rng.normal(size=(nodes, query.dim)), rng.normal(size=query.parameters)
    labels = torch.from_numpy(rng.integers(query.classes, size=nodes))
    return EdgeAttentionData(
        safe_unit(torch.from_numpy(rows)),
        labels,
        torch.arange(nodes),
        torch.from_numpy(weights * rng.choice([1.0, 10.0])),
        descend=lambda start, gradient: gradient(start) * (nodes * query.sampling_rate / query.clip),
    )


# -- how the answer is told ----------------------------------------------------------------------------------


@singledispatch
def law(query: Query, view: NeighborView, answer: Floats) -> Law:
    """Return the law of the answer whose sums these are: Gaussian, by the query's own deviations."""
    sigma = np.array(query.noise)
    return GaussianLaw(answer, sigma[view.groups.numpy()][:, None] if len(sigma) > 1 else sigma)


@law.register(NeighborCountQuery)
@law.register(EdgeTotalQuery)
@law.register(BlockCountQuery)
def _of_laplace(query: Any, view: NeighborView, answer: Floats) -> Law:
    return LaplaceLaw(answer, np.array(1 / query.epsilon))


@law.register
def _of_flips(query: EdgeResponseQuery, view: NeighborView, answer: Floats) -> Law:
    slots = np.arange(view.public.domain.slots.total)
    return FlipLaw(np.isin(slots, answer), np.array(1 / (1 + np.exp(query.epsilon))))


_OF_ROWS = (NeighborSumQuery, NeighborCountQuery, OutEdgeSumQuery)


def answers_node_pairs(query: Query) -> bool:
    """Whether the answer are the numbers of slots, of which noise says how many there are."""
    return isinstance(query, EdgeResponseQuery)


def has_row_per_node(query: Query, view: NeighborView, answer: Floats) -> bool:
    """Whether an answer of rows has one for each node."""
    return not isinstance(query, _OF_ROWS) or len(answer) == view.public.nodes


def single_step_query(query: Query) -> Query:
    """Return a query of steps with one step alone; the others are like it."""
    return replace(query, steps=1) if isinstance(query, EdgeAttentionQuery) else query


# -- whom it may reach ---------------------------------------------------------------------------------------


def reachable_rows(
    query: Query, unit: Unit, both: tuple[SmallGraph, SmallGraph], place: tuple[int, ...]
) -> Any:
    """Return which rows of an answer may follow from what differs; None for an answer without rows."""
    if not isinstance(query, _OF_ROWS):
        return None
    if not isinstance(unit, NodeUnit):
        return place[1:] if isinstance(unit, DirectedEdge) else place
    return [v for v in range(both[0].nodes) if any(graph.a[q, v] for graph in both for q in place)]


def is_own_row_private(query: Query, unit: Unit) -> bool:
    """Whether a node's own row is for it alone, and not covered."""
    return isinstance(query, NeighborSumQuery) and isinstance(unit, NodeBoundedDegree)
