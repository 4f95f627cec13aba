"""The only door to protected edges and records: what is asked, what it costs, and what answers."""

from graphveil.release.calibrate import calibrate_plan
from graphveil.release.counts.accuracy_counts import AccuracyCountData, AccuracyCountQuery
from graphveil.release.counts.edge_counts import EdgeCountData, EdgeCountQuery
from graphveil.release.counts.outcome_counts import OutcomeCountData, OutcomeCountQuery
from graphveil.release.engines.base import BlockWork, Engine
from graphveil.release.engines.disk import DiskEngine
from graphveil.release.engines.in_memory import InMemoryEngine
from graphveil.release.engines.row_range import RowRange
from graphveil.release.graphs.block_counts import BlockCountData, BlockCountQuery
from graphveil.release.graphs.edge_response import EdgeResponseData, EdgeResponseQuery
from graphveil.release.graphs.edge_total import EdgeTotalData, EdgeTotalQuery
from graphveil.release.graphs.row_chunks import (
    ChunkDensityData,
    ChunkDensityQuery,
    ChunkResponseData,
    ChunkResponseQuery,
)
from graphveil.release.graphs.seeded_slots import SeededCellsQuery, SeededResponseQuery, SeededTotalQuery
from graphveil.release.graphs.top_slots import TopSlotsData, TopSlotsQuery
from graphveil.release.graphs.tree_search import TreeSearchData, TreeSearchQuery
from graphveil.release.journal import FolderJournal, Journal, MemoryJournal
from graphveil.release.keys import KeyStore, ReleaseKey
from graphveil.release.plan import ReleasePlan
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import Data, Description, Query
from graphveil.release.release import Release
from graphveil.release.rows.exact_sums import sum_in_neighbors, weighted_sum_in_neighbors
from graphveil.release.rows.group_weights import GroupWeights
from graphveil.release.rows.neighbor_counts import NeighborCountData, NeighborCountQuery
from graphveil.release.rows.neighbor_sums import NeighborSumData, NeighborSumQuery
from graphveil.release.rows.pushes import PushData, PushQuery
from graphveil.release.steps.edge_training import EdgeAttentionData, EdgeAttentionQuery
from graphveil.release.steps.training_steps import DPSGDData, DPSGDQuery
from graphveil.release.steps.tree_steps import TreeStepsQuery

__all__ = [
    "AccuracyCountData",
    "AccuracyCountQuery",
    "BlockCountData",
    "BlockCountQuery",
    "BlockWork",
    "ChunkDensityData",
    "ChunkDensityQuery",
    "ChunkResponseData",
    "ChunkResponseQuery",
    "DPSGDData",
    "DPSGDQuery",
    "Data",
    "Description",
    "DiskEngine",
    "EdgeAttentionData",
    "EdgeAttentionQuery",
    "EdgeCountData",
    "EdgeCountQuery",
    "EdgeResponseData",
    "EdgeResponseQuery",
    "EdgeTotalData",
    "EdgeTotalQuery",
    "Engine",
    "FolderJournal",
    "GroupWeights",
    "InMemoryEngine",
    "Journal",
    "KeyStore",
    "MemoryJournal",
    "NeighborCountData",
    "NeighborCountQuery",
    "NeighborSumData",
    "NeighborSumQuery",
    "OutcomeCountData",
    "OutcomeCountQuery",
    "PrivateEdges",
    "PushData",
    "PushQuery",
    "Query",
    "Release",
    "ReleaseKey",
    "ReleasePlan",
    "RowRange",
    "SeededCellsQuery",
    "SeededResponseQuery",
    "SeededTotalQuery",
    "TopSlotsData",
    "TopSlotsQuery",
    "TreeSearchData",
    "TreeSearchQuery",
    "TreeStepsQuery",
    "calibrate_plan",
    "sum_in_neighbors",
    "weighted_sum_in_neighbors",
]
