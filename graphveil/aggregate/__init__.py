"""Private aggregation: what is asked of the edges, what it costs, and the one place that answers."""

from graphveil.aggregate.attention import Attention
from graphveil.aggregate.attention_steps import AttentionStepsQuery
from graphveil.aggregate.calibrate import calibrate_plan
from graphveil.aggregate.coarse import Coarse
from graphveil.aggregate.cosine import ExpCos, HalfCos, LearnedPublic, ReluCos, SigmoidCos
from graphveil.aggregate.engine import Edges, Engine
from graphveil.aggregate.given import GivenWeight
from graphveil.aggregate.jaccard import Jaccard
from graphveil.aggregate.journal import FolderJournal, Journal, MemoryJournal
from graphveil.aggregate.keys import KeyStore, ReleaseKey
from graphveil.aggregate.kprop import KProp
from graphveil.aggregate.memory import InMemoryEngine
from graphveil.aggregate.named import parse_weight, register_weight
from graphveil.aggregate.normalize import plain_unit, safe_unit, shrink_unit
from graphveil.aggregate.plain import sum_in_neighbors, weighted_sum_in_neighbors
from graphveil.aggregate.plan import ReleasePlan
from graphveil.aggregate.posterior import ClassAgree, PosteriorDot
from graphveil.aggregate.propagation import Chain, Propagation, SparseMap, propagate
from graphveil.aggregate.push import PushQuery
from graphveil.aggregate.queries import CellQuery, HopQuery, Query
from graphveil.aggregate.records import StepsQuery, TallyQuery
from graphveil.aggregate.release import Release
from graphveil.aggregate.similarity import DotWeight, Similarity
from graphveil.aggregate.weights import GroupWeights

__all__ = [
    "Attention",
    "AttentionStepsQuery",
    "CellQuery",
    "Chain",
    "ClassAgree",
    "Coarse",
    "DotWeight",
    "Edges",
    "Engine",
    "ExpCos",
    "FolderJournal",
    "GivenWeight",
    "GroupWeights",
    "HalfCos",
    "HopQuery",
    "InMemoryEngine",
    "Jaccard",
    "Journal",
    "KProp",
    "KeyStore",
    "LearnedPublic",
    "MemoryJournal",
    "PosteriorDot",
    "Propagation",
    "PushQuery",
    "Query",
    "Release",
    "ReleaseKey",
    "ReleasePlan",
    "ReluCos",
    "SigmoidCos",
    "Similarity",
    "SparseMap",
    "StepsQuery",
    "TallyQuery",
    "calibrate_plan",
    "parse_weight",
    "plain_unit",
    "propagate",
    "register_weight",
    "safe_unit",
    "shrink_unit",
    "sum_in_neighbors",
    "weighted_sum_in_neighbors",
]
