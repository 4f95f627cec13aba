"""The only door to protected edges and records: what is asked, what it costs, and what answers."""

from graphveil.release.calibrate import calibrate_plan
from graphveil.release.edge_training import AttentionStepsQuery
from graphveil.release.engines.base import Engine
from graphveil.release.engines.in_memory import InMemoryEngine
from graphveil.release.exact_sums import sum_in_neighbors, weighted_sum_in_neighbors
from graphveil.release.group_weights import GroupWeights
from graphveil.release.journal import FolderJournal, Journal, MemoryJournal
from graphveil.release.keys import KeyStore, ReleaseKey
from graphveil.release.plan import ReleasePlan
from graphveil.release.pushes import PushQuery
from graphveil.release.queries import CellQuery, HopQuery, Query
from graphveil.release.records import StepsQuery, TallyQuery
from graphveil.release.release import Release

__all__ = [
    "AttentionStepsQuery",
    "CellQuery",
    "Engine",
    "FolderJournal",
    "GroupWeights",
    "HopQuery",
    "InMemoryEngine",
    "Journal",
    "KeyStore",
    "MemoryJournal",
    "PushQuery",
    "Query",
    "Release",
    "ReleaseKey",
    "ReleasePlan",
    "StepsQuery",
    "TallyQuery",
    "calibrate_plan",
    "sum_in_neighbors",
    "weighted_sum_in_neighbors",
]
