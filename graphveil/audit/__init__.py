"""Audits: lower bounds on what a release reveals, and tests whether code satisfies its stated guarantee.

Lower bounds on epsilon from runs (``repeated_runs``, ``one_run``, ``summed_gaussian``, ...), and
``neighbor_test``, which tries to refute the claim of any mechanism.
"""

from graphveil.audit.bounds import LowerBound as LowerBound
from graphveil.audit.bounds import clopper_pearson_lower as clopper_pearson_lower
from graphveil.audit.bounds import clopper_pearson_upper as clopper_pearson_upper
from graphveil.audit.bounds import odds_of_runs as odds_of_runs
from graphveil.audit.bounds import one_run as one_run
from graphveil.audit.bounds import one_run_gaussian as one_run_gaussian
from graphveil.audit.bounds import repeated_runs as repeated_runs
from graphveil.audit.bounds import sampled_training as sampled_training
from graphveil.audit.bounds import summed_gaussian as summed_gaussian
from graphveil.audit.canaries import audit_feature_mechanism as audit_feature_mechanism
from graphveil.audit.canaries import audit_label_mechanism as audit_label_mechanism
from graphveil.audit.canaries import audit_training as audit_training
from graphveil.audit.neighbor_test import Finding as Finding
from graphveil.audit.neighbor_test import NeighborTestResult as NeighborTestResult
from graphveil.audit.neighbor_test import PrivacyClaim as PrivacyClaim
from graphveil.audit.neighbor_test import neighbor_test as neighbor_test
from graphveil.audit.noise import NoiseRecorder as NoiseRecorder
from graphveil.audit.plans import PlanAudit as PlanAudit
from graphveil.audit.plans import audit_plan as audit_plan
from graphveil.audit.query_neighbor_tests import neighbor_test_mutual_edges as neighbor_test_mutual_edges
from graphveil.audit.query_neighbor_tests import neighbor_test_plan as neighbor_test_plan
from graphveil.audit.small_graphs import SmallGraph as SmallGraph
