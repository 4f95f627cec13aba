"""Audits: what a release gives away at least, and whether code keeps the guarantee that it states.

Lower bounds on epsilon from runs (:func:`repeated_runs`, :func:`one_run`, :func:`summed_gaussian`, ...), and
:func:`replay`, which tries to refute the claim of anybody's mechanism.
"""

from graphveil.audit.bounds import LowerBound, at_least, at_most, odds_of_runs, repeated_runs
from graphveil.audit.inserted import audit_training
from graphveil.audit.local import plant_features, plant_labels
from graphveil.audit.noise import Noise
from graphveil.audit.one_run import one_run, one_run_gaussian
from graphveil.audit.plans import PlanAudit, audit_plan
from graphveil.audit.replayed import replay_mutual_edges, replay_plan, replay_query
from graphveil.audit.replays import replay
from graphveil.audit.report import Claim, Finding, Report
from graphveil.audit.small_graphs import SmallGraph
from graphveil.audit.summed import sampled_training, summed_gaussian

__all__ = [
    "Claim",
    "Finding",
    "LowerBound",
    "Noise",
    "PlanAudit",
    "Report",
    "SmallGraph",
    "at_least",
    "at_most",
    "audit_plan",
    "audit_training",
    "odds_of_runs",
    "one_run",
    "one_run_gaussian",
    "plant_features",
    "plant_labels",
    "repeated_runs",
    "replay",
    "replay_mutual_edges",
    "replay_plan",
    "replay_query",
    "sampled_training",
    "summed_gaussian",
]
