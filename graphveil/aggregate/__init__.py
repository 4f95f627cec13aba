"""Private aggregation: what is asked of the edges, what it costs, and the one place that answers."""

from graphveil.aggregate.calibrate import calibrate_plan
from graphveil.aggregate.engine import Edges, Engine
from graphveil.aggregate.journal import FolderJournal, Journal, MemoryJournal
from graphveil.aggregate.keys import KeyStore, ReleaseKey
from graphveil.aggregate.memory import InMemoryEngine
from graphveil.aggregate.normalize import plain_unit, safe_unit, shrink_unit
from graphveil.aggregate.plain import sum_in_neighbors
from graphveil.aggregate.plan import ReleasePlan
from graphveil.aggregate.push import PushQuery
from graphveil.aggregate.queries import CellQuery, HopQuery, Query
from graphveil.aggregate.records import StepsQuery, TallyQuery
from graphveil.aggregate.release import Release
from graphveil.aggregate.weights import GroupWeights

__all__ = [
    "CellQuery",
    "Edges",
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
    "plain_unit",
    "safe_unit",
    "shrink_unit",
    "sum_in_neighbors",
]
