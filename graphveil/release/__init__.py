"""The only door to protected edges and records: what is asked, what it costs, and what answers."""

from graphveil.release.backends.base import AggregationBackend, BlockWork
from graphveil.release.backends.disk import DiskBackend
from graphveil.release.backends.in_memory import InMemoryBackend
from graphveil.release.backends.row_range import RowRange
from graphveil.release.calibrate import calibrate_plan
from graphveil.release.counts.accuracy_counts import AccuracyCountData, AccuracyCountQuery
from graphveil.release.counts.edge_counts import EdgeCountData, EdgeCountQuery
from graphveil.release.counts.outcome_counts import OutcomeCountData, OutcomeCountQuery
from graphveil.release.graphs.block_counts import BlockCountData, BlockCountQuery
from graphveil.release.graphs.edge_response import EdgeResponseData, EdgeResponseQuery
from graphveil.release.graphs.edge_total import EdgeTotalData, EdgeTotalQuery
from graphveil.release.graphs.row_chunks import (
    ChunkDensityData,
    ChunkDensityQuery,
    ChunkResponseData,
    ChunkResponseQuery,
)
from graphveil.release.graphs.seeded_node_pairs import SeededCellsQuery, SeededResponseQuery, SeededTotalQuery
from graphveil.release.graphs.top_node_pairs import TopNodePairsData, TopNodePairsQuery
from graphveil.release.graphs.tree_search import TreeSearchData, TreeSearchQuery
from graphveil.release.journal import FolderJournal, Journal, MemoryJournal
from graphveil.release.keys import KeyStore, ReleaseKey
from graphveil.release.plan import ReleasePlan
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import Query, QueryData, QueryDescription
from graphveil.release.release import Release
from graphveil.release.rows.exact_sums import sum_in_neighbors, weighted_sum_in_neighbors
from graphveil.release.rows.group_weights import GroupWeights
from graphveil.release.rows.neighbor_counts import NeighborCountData, NeighborCountQuery
from graphveil.release.rows.neighbor_sums import NeighborSumData, NeighborSumQuery
from graphveil.release.rows.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.release.steps.edge_training import EdgeAttentionData, EdgeAttentionQuery
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
    "EdgeResponseData",
    "EdgeResponseQuery",
    "EdgeTotalData",
    "EdgeTotalQuery",
    "FolderJournal",
    "GroupWeights",
    "InMemoryBackend",
    "Journal",
    "KeyStore",
    "MemoryJournal",
    "NeighborCountData",
    "NeighborCountQuery",
    "NeighborSumData",
    "NeighborSumQuery",
    "OutEdgeSumData",
    "OutEdgeSumQuery",
    "OutcomeCountData",
    "OutcomeCountQuery",
    "PrivateEdges",
    "Query",
    "QueryData",
    "QueryDescription",
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
