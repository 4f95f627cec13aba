"""The only door to protected edges and records: what is asked, what it costs, and what answers."""

from graphveil.release.accuracy_counts import AccuracyCountQuery
from graphveil.release.calibrate import calibrate_plan
from graphveil.release.edge_counts import EdgeCountQuery
from graphveil.release.edge_training import EdgeAttentionQuery
from graphveil.release.engines.base import Engine
from graphveil.release.engines.in_memory import InMemoryEngine
from graphveil.release.exact_sums import sum_in_neighbors, weighted_sum_in_neighbors
from graphveil.release.group_weights import GroupWeights
from graphveil.release.journal import FolderJournal, Journal, MemoryJournal
from graphveil.release.keys import KeyStore, ReleaseKey
from graphveil.release.neighbor_sums import NeighborSumQuery
from graphveil.release.outcome_counts import OutcomeCountData, OutcomeCountQuery
from graphveil.release.plan import ReleasePlan
from graphveil.release.pushes import PushQuery
from graphveil.release.query import Query
from graphveil.release.release import Release
from graphveil.release.training_steps import DPSGDQuery

__all__ = [
    "AccuracyCountQuery",
    "DPSGDQuery",
    "EdgeAttentionQuery",
    "EdgeCountQuery",
    "Engine",
    "FolderJournal",
    "GroupWeights",
    "InMemoryEngine",
    "Journal",
    "KeyStore",
    "MemoryJournal",
    "NeighborSumQuery",
    "OutcomeCountData",
    "OutcomeCountQuery",
    "PushQuery",
    "Query",
    "Release",
    "ReleaseKey",
    "ReleasePlan",
    "calibrate_plan",
    "sum_in_neighbors",
    "weighted_sum_in_neighbors",
]
