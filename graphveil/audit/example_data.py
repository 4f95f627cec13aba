"""Example data of queries on a small synthetic graph; neighboring graphs have equal public facts.

Data that belong to records are a function of the records (``vectors``, ``outcomes``, ``there``). All other
data are drawn from public facts (``generator``).
"""

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.audit.small_graphs import FEATURES, PublicGraphFacts, SmallGraph
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.features import safe_unit
from graphveil.core.queries.dendrogram import BlockCountData, BlockCountQuery, Dendrogram
from graphveil.core.queries.edge_counts import (
    NOT_COUNTED,
    EdgeCountData,
    EdgeCountQuery,
    NeighborCountData,
    NeighborCountQuery,
)
from graphveil.core.queries.edge_training import EdgeAttentionData, EdgeAttentionQuery
from graphveil.core.queries.graph_queries import (
    EdgeResponseData,
    EdgeResponseQuery,
    EdgeTotalData,
    EdgeTotalQuery,
)
from graphveil.core.queries.list_products import NO_COLUMN, ListProductData, ListProductQuery
from graphveil.core.queries.neighbor_sums import Keys, NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import (
    OutDegreeSumData,
    OutDegreeSumQuery,
    OutEdgeCodeSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    simplex_codes,
)
from graphveil.core.queries.pair_sums import (
    EdgeProductData,
    EdgeProductQuery,
    PairHistogramData,
    PairHistogramQuery,
    PairSumData,
    PairSumQuery,
    PairTerms,
)
from graphveil.core.queries.projected_sums import (
    ClassMomentsData,
    ClassMomentsQuery,
    DegreeHIndexData,
    DegreeHIndexQuery,
    ProjectedSumData,
    ProjectedSumQuery,
)
from graphveil.core.queries.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
    FeatureHistogramData,
    FeatureHistogramQuery,
    OutcomeCountData,
    OutcomeCountQuery,
    RecordCountQuery,
    RecordHistogramData,
    RecordHistogramQuery,
)
from graphveil.core.queries.row_counts import RowCountData, RowCountQuery
from graphveil.core.queries.weights import Similarity
from graphveil.core.query import Query, QueryData

_WITHIN = (0.0, 0.4, 1.0, 1.0, 1.0)  # lengths of vectors, in units of their bound
_LENGTHS = (*_WITHIN, 1.2, 40.0)  # longer vectors must not count


@dataclass(frozen=True, eq=False)
class NeighborView:
    """One of two neighboring graphs, as input of a query."""

    graph: SmallGraph
    public: PublicGraphFacts
    groups: Tensor
    number: int
    within: bool = False

    @property
    def nodes(self) -> int:
        return self.public.nodes

    @property
    def domain(self) -> Domain:
        return self.public.domain

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.graph.y >= 0)

    def generator(self, name: str) -> np.random.Generator:
        return self.public.draw(f"{name} {self.number}")

    def vectors(self, dim: int, bound: Any = 1.0) -> Tensor:
        """Return one vector per record: some are zero, short or too long, and null records have zero.

        A record with opposite features has the opposite vector, so that a replacement can move twice.
        """
        rng = self.generator("vectors")
        centered = 2 * self.graph.x - 1
        if rng.random() < 0.5:  # hard codes lie on every grid
            rows = np.eye(dim)[self.graph.y % dim] * np.where(centered[:, :1] < 0, -1.0, 1.0)
        else:
            rows = safe_unit(torch.from_numpy(centered @ rng.normal(size=(FEATURES, dim)))).numpy()
        lengths = rng.choice(_WITHIN if self.within else _LENGTHS, size=self.public.nodes)
        if rng.random() < 0.5:  # costs are attained by vectors at their bounds
            lengths = np.ones(self.public.nodes)
        if not self.within:
            bound = np.where(np.asarray(bound) > 0, bound, 1.0)  # tests nonzero rows where none are allowed
        return torch.from_numpy(rows * (lengths * bound * self.there)[:, None])

    def outcomes(self, columns: int) -> npt.NDArray[np.bool_]:
        """Return bits of records by column: opposite records have opposite bits, null records none."""
        rng = self.generator("outcomes")
        side = self.graph.x[:, 0] > 0.5
        table = rng.random((self.public.nodes, columns)) < rng.choice([0.5, 1.0])
        return np.asarray((table ^ side[:, None]) & self.there[:, None])


@singledispatch
def example_data(query: Query, graph: NeighborView) -> QueryData[Any] | None:
    """Return data for a query on a small synthetic graph; None if this graph has none."""
    return None


def reason_without_example(query: Query) -> str:
    undefined = example_data.dispatch(type(query)) is example_data.dispatch(Query)
    return query.without_example or ("its class has no example_data" if undefined else "")


@example_data.register
def _of_edge_response(query: EdgeResponseQuery, graph: NeighborView) -> EdgeResponseData:
    return EdgeResponseData(graph.domain)


@example_data.register
def _of_edge_total(query: EdgeTotalQuery, graph: NeighborView) -> EdgeTotalData:
    return EdgeTotalData(graph.domain)


@example_data.register
def _of_block_counts(query: BlockCountQuery, graph: NeighborView) -> BlockCountData | None:
    leaves = graph.domain.slots.nodes
    if leaves < 2:
        return None
    return BlockCountData(graph.domain, tree=Dendrogram.balanced(leaves, graph.generator("tree")))


@example_data.register
def _of_edge_counts(query: EdgeCountQuery, graph: NeighborView) -> EdgeCountData:
    drawn = graph.generator("classes").integers(query.classes, size=graph.nodes)
    return EdgeCountData(torch.from_numpy(drawn))


@example_data.register
def _of_neighbor_counts(query: NeighborCountQuery, graph: NeighborView) -> NeighborCountData:
    drawn = graph.generator("classes").integers(NOT_COUNTED, query.classes, size=graph.nodes)
    return NeighborCountData(torch.from_numpy(drawn))


@example_data.register
def _of_row_counts(query: RowCountQuery, graph: NeighborView) -> RowCountData:
    rng, half = graph.generator("cells"), query.cells // 2
    drawn = (
        rng.integers(low, high, size=graph.nodes)
        for low, high in ((0, 2), (NOT_COUNTED, half + 1), (NOT_COUNTED, query.cells - half))
    )
    return RowCountData(*map(torch.from_numpy, drawn))


def example_keys(similarity: Similarity, nodes: int, rng: np.random.Generator) -> Keys:
    corner, width = rng.random((nodes, 1)) < 0.5, 3
    axes = np.eye(width)[rng.integers(width, size=nodes)]
    if similarity.reads == "attention":  # a network's two maps, readout and offset; some logits are too large
        maps = (torch.from_numpy(rng.normal(size=(nodes, 3)) * 4) for _ in range(2))
        return (*maps, torch.from_numpy(rng.normal(size=3) * 3), torch.tensor(1.0))
    if similarity.reads == "features":
        return torch.from_numpy((rng.random((nodes, 3)) < 0.5).astype(np.float32))
    if similarity.reads == "posteriors":
        return torch.from_numpy(np.where(corner, axes, rng.dirichlet([1, 1, 1], nodes)))
    rows = np.where(corner, axes, rng.normal(size=(nodes, width)))
    return torch.from_numpy(rows * (rng.random((nodes, 1)) < 0.9))


@example_data.register
def _of_neighbor_sums(query: NeighborSumQuery, graph: NeighborView) -> NeighborSumData:
    vectors = graph.vectors(query.dim)
    if query.similarity is None:
        return NeighborSumData(vectors)
    return NeighborSumData(vectors, example_keys(query.similarity, graph.nodes, graph.generator("keys")))


@example_data.register
def _of_edge_products(query: EdgeProductQuery, graph: NeighborView) -> EdgeProductData:
    return EdgeProductData(graph.vectors(query.dim))


def _pair_terms(query: PairSumQuery | PairHistogramQuery, graph: NeighborView) -> PairTerms:
    rng = graph.generator("pair features")
    tables = [
        torch.from_numpy(rng.integers(-9, 10, size=(graph.nodes, 2)).astype(np.float32))
        for _ in range(query.terms)
    ]
    others = tables if query.symmetric else tables[::-1]
    scale = np.full(query.terms, float(rng.choice([0.0, 1e-2, 1.0])))
    center = -np.sign(scale) * 200.0 * (rng.random() < 0.5)
    return PairTerms(tuple(tables), tuple(others), torch.from_numpy(center), torch.from_numpy(scale))


@example_data.register
def _of_pair_sums(query: PairSumQuery, graph: NeighborView) -> PairSumData:
    return PairSumData(_pair_terms(query, graph))


@example_data.register
def _of_pair_histogram(query: PairHistogramQuery, graph: NeighborView) -> PairHistogramData:
    rng = graph.generator("cells")
    bounds = np.sort(rng.normal(size=query.cells - 1))
    return PairHistogramData(
        _pair_terms(query, graph),
        torch.from_numpy(rng.normal(size=query.terms)),
        torch.from_numpy(bounds),
    )


@example_data.register
def _of_edge_attention(query: EdgeAttentionQuery, graph: NeighborView) -> EdgeAttentionData:
    rng = graph.generator("network")
    rows, weights = rng.normal(size=(graph.nodes, query.dim)), rng.normal(size=query.parameters)
    labels, batch = rng.integers(query.classes, size=graph.nodes), graph.nodes * query.sampling_rate
    return EdgeAttentionData(
        safe_unit(torch.from_numpy(rows)),
        torch.from_numpy(labels),
        torch.arange(graph.nodes),
        torch.from_numpy(weights * rng.choice([1.0, 10.0])),
        descend=lambda start, gradient: gradient(start) * (batch / query.clip),
    )


@example_data.register
def _of_list_products(query: ListProductQuery, graph: NeighborView) -> ListProductData:
    rng = graph.generator("columns")
    columns = np.full(graph.nodes, NO_COLUMN, dtype=np.int64)
    items = rng.permutation(graph.nodes)[: query.columns]
    columns[items] = rng.permutation(query.columns)[: len(items)]
    counted = rng.random(graph.nodes) < rng.choice([0.8, 1.0])
    return ListProductData(torch.from_numpy(columns), torch.from_numpy(counted))


@example_data.register
def _of_out_edge_sums(query: OutEdgeSumQuery, graph: NeighborView) -> OutEdgeSumData:
    group = graph.groups.numpy() if query.groups > 1 else np.zeros(graph.nodes, dtype=np.int64)
    levels = graph.generator("levels").integers(len(query.levels), size=graph.nodes)
    return OutEdgeSumData(graph.vectors(query.dim, np.array(query.bounds)[group]), torch.from_numpy(levels))


@example_data.register
def _of_out_edge_code_sums(query: OutEdgeCodeSumQuery, graph: NeighborView) -> OutEdgeSumData:
    drawn = _of_out_edge_sums(query, graph)
    nearest = (drawn.vectors.to(torch.float64) @ simplex_codes(query.dim + 1).T).argmax(dim=1)
    codes = simplex_codes(query.dim + 1)[nearest] * drawn.vectors.norm(dim=1, keepdim=True)
    outside = (nearest == 0)[:, None]  # these have the norm of a code, and most of them a larger gauge
    return OutEdgeSumData(torch.where(outside, drawn.vectors.to(torch.float64), codes), drawn.levels)


@example_data.register
def _of_out_degree_sum(query: OutDegreeSumQuery, graph: NeighborView) -> OutDegreeSumData:
    return OutDegreeSumData()


@example_data.register
def _of_degree_h_index(query: DegreeHIndexQuery, graph: NeighborView) -> DegreeHIndexData:
    return DegreeHIndexData()


@example_data.register
def _of_projected_sums(query: ProjectedSumQuery, graph: NeighborView) -> ProjectedSumData:
    return ProjectedSumData(graph.vectors(query.dim))


@example_data.register
def _of_class_moments(query: ClassMomentsQuery, graph: NeighborView) -> ClassMomentsData:
    rng, bits = graph.generator("classes"), max(1, math.ceil(math.log2(query.classes)))
    numbers = graph.outcomes(bits) @ (1 << np.arange(bits)) % query.classes
    if rng.random() < 0.5:  # a replaced record has the opposite row, in the same class
        numbers = rng.integers(query.classes, size=graph.nodes)
    counted = _counted(query, graph)
    classes = np.where(graph.there, numbers, -1)[counted].astype(np.int64)
    rows = graph.vectors(query.dim, query.radius)[torch.from_numpy(counted)]
    return ClassMomentsData(rows, torch.from_numpy(classes))


def _counted(query: RecordCountQuery, graph: NeighborView) -> npt.NDArray[np.bool_]:
    return np.asarray(np.array(query.pays)[graph.groups.numpy() % len(query.pays)])


@example_data.register
def _of_accuracy_counts(query: AccuracyCountQuery, graph: NeighborView) -> AccuracyCountData:
    return AccuracyCountData(torch.from_numpy(graph.outcomes(query.candidates)[_counted(query, graph)]))


@example_data.register
def _of_outcome_counts(query: OutcomeCountQuery, graph: NeighborView) -> OutcomeCountData:
    counted = _counted(query, graph)
    correct, there = graph.outcomes(1)[counted, 0], graph.there[counted]
    return OutcomeCountData(torch.from_numpy(correct), torch.from_numpy(there & ~correct))


@example_data.register
def _of_record_histogram(query: RecordHistogramQuery, graph: NeighborView) -> RecordHistogramData:
    bits = max(1, math.ceil(math.log2(query.cells)))
    numbers = graph.outcomes(bits) @ (1 << np.arange(bits)) % query.cells
    cells = np.where(graph.there, numbers, -1)[_counted(query, graph)]
    return RecordHistogramData(torch.from_numpy(cells.astype(np.int64)))


@example_data.register
def _of_feature_histograms(query: FeatureHistogramQuery, graph: NeighborView) -> FeatureHistogramData:
    bits = max(1, math.ceil(math.log2(query.cells)))
    drawn = graph.outcomes(bits * query.columns).reshape(-1, query.columns, bits)
    cells = np.where(graph.there[:, None], drawn @ (1 << np.arange(bits)) % query.cells, -1)
    return FeatureHistogramData(torch.from_numpy(cells[_counted(query, graph)].astype(np.int16)))
