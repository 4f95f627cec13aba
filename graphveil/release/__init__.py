"""Releases: the only code that reads protected edges and records, through queries with a cost and noise."""

from graphveil.release.backends import AggregationBackend, BlockWork, DiskBackend, InMemoryBackend, RowRange
from graphveil.release.dendrogram import BlockCountData, BlockCountQuery
from graphveil.release.dendrogram_walk import TreeSearchData, TreeSearchQuery
from graphveil.release.edge_counts import EdgeCountData, EdgeCountQuery
from graphveil.release.edge_products import EdgeProductData, EdgeProductQuery
from graphveil.release.exact_sums import sum_in_neighbors, weighted_sum_in_neighbors
from graphveil.release.graph_queries import (
    EdgeResponseData,
    EdgeResponseQuery,
    EdgeTotalData,
    EdgeTotalQuery,
    TopNodePairsData,
    TopNodePairsQuery,
)
from graphveil.release.journal import FolderJournal, Journal, MemoryJournal
from graphveil.release.keys import KeyStore, ReleaseKey
from graphveil.release.list_products import ListProductData, ListProductQuery
from graphveil.release.neighbor_counts import NeighborCountData, NeighborCountQuery
from graphveil.release.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery
from graphveil.release.out_degree_sums import OutDegreeSumData, OutDegreeSumQuery
from graphveil.release.out_edge_code_sums import OutEdgeCodeSumQuery
from graphveil.release.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.release.pair_sums import (
    PairHistogramData,
    PairHistogramQuery,
    PairSumData,
    PairSumQuery,
    PairTerms,
)
from graphveil.release.paper_graph_queries import (
    ChunkDensityData,
    ChunkDensityQuery,
    ChunkResponseData,
    ChunkResponseQuery,
    SeededCellsQuery,
    SeededResponseQuery,
    SeededTotalQuery,
)
from graphveil.release.plan import ReleasePlan, calibrate_plan
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import Query, QueryData, QueryDescription
from graphveil.release.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
    OutcomeCountData,
    OutcomeCountQuery,
)
from graphveil.release.record_histograms import (
    FeatureHistogramData,
    FeatureHistogramQuery,
    RecordHistogramData,
    RecordHistogramQuery,
)
from graphveil.release.release import Release
from graphveil.release.steps.edge_training import EdgeAttentionData, EdgeAttentionQuery
from graphveil.release.steps.held_out import HeldOutPairs
from graphveil.release.steps.training_steps import DPSGDData, DPSGDQuery
from graphveil.release.steps.tree_steps import TreeStepsQuery

__all__ = [
    "AccuracyCountData",
    "AccuracyCountQuery",
    "AggregationBackend",
    "BlockCountData",
    "BlockCountQuery",
    "BlockWork",
    "ChunkDensityData",
    "ChunkDensityQuery",
    "ChunkResponseData",
    "ChunkResponseQuery",
    "DPSGDData",
    "DPSGDQuery",
    "DiskBackend",
    "EdgeAttentionData",
    "EdgeAttentionQuery",
    "EdgeCountData",
    "EdgeCountQuery",
    "EdgeProductData",
    "EdgeProductQuery",
    "EdgeResponseData",
    "EdgeResponseQuery",
    "EdgeTotalData",
    "EdgeTotalQuery",
    "FeatureHistogramData",
    "FeatureHistogramQuery",
    "FolderJournal",
    "GroupWeights",
    "HeldOutPairs",
    "InMemoryBackend",
    "Journal",
    "KeyStore",
    "ListProductData",
    "ListProductQuery",
    "MemoryJournal",
    "NeighborCountData",
    "NeighborCountQuery",
    "NeighborSumData",
    "NeighborSumQuery",
    "OutDegreeSumData",
    "OutDegreeSumQuery",
    "OutEdgeCodeSumQuery",
    "OutEdgeSumData",
    "OutEdgeSumQuery",
    "OutcomeCountData",
    "OutcomeCountQuery",
    "PairHistogramData",
    "PairHistogramQuery",
    "PairSumData",
    "PairSumQuery",
    "PairTerms",
    "PrivateEdges",
    "Query",
    "QueryData",
    "QueryDescription",
    "RecordHistogramData",
    "RecordHistogramQuery",
    "Release",
    "ReleaseKey",
    "ReleasePlan",
    "RowRange",
    "SeededCellsQuery",
    "SeededResponseQuery",
    "SeededTotalQuery",
    "TopNodePairsData",
    "TopNodePairsQuery",
    "TreeSearchData",
    "TreeSearchQuery",
    "TreeStepsQuery",
    "calibrate_plan",
    "sum_in_neighbors",
    "weighted_sum_in_neighbors",
]
