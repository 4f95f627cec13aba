"""Audits: lower bounds on what a release reveals, and tests whether code satisfies its stated guarantee.

Lower bounds on epsilon from runs (``repeated_runs``, ``one_run``, ``summed_gaussian``, ...), and
``neighbor_test``, which tries to refute the claim of any mechanism.
"""

from graphveil.audit.bounds import (
    LowerBound,
    clopper_pearson_lower,
    clopper_pearson_upper,
    odds_of_runs,
    one_run,
    one_run_gaussian,
    repeated_runs,
    sampled_training,
    summed_gaussian,
)
from graphveil.audit.canaries import audit_feature_mechanism, audit_label_mechanism, audit_training
from graphveil.audit.neighbor_test import Finding, NeighborTestResult, PrivacyClaim, neighbor_test
from graphveil.audit.noise import NoiseRecorder
from graphveil.audit.plans import PlanAudit, audit_plan
from graphveil.audit.query_neighbor_tests import (
    neighbor_test_mutual_edges,
    neighbor_test_plan,
    neighbor_test_query,
)
from graphveil.audit.small_graphs import SmallGraph

__all__ = [
    "Finding",
    "LowerBound",
    "NeighborTestResult",
    "NoiseRecorder",
    "PlanAudit",
    "PrivacyClaim",
    "SmallGraph",
    "audit_feature_mechanism",
    "audit_label_mechanism",
    "audit_plan",
    "audit_training",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "neighbor_test",
    "neighbor_test_mutual_edges",
    "neighbor_test_plan",
    "neighbor_test_query",
    "odds_of_runs",
    "one_run",
    "one_run_gaussian",
    "repeated_runs",
    "sampled_training",
    "summed_gaussian",
]
