"""Membership of training nodes, inferred by a shadow model and an attack model (GAP, section 7.4.2)."""

from graphveil.lab.attacks import MembershipSettings, attack_membership
from graphveil.lab.attacks.membership import SHADOW_MLP
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures.fit import fitted
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.lab.papers.target import TEST


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return the area under the attack model's curve, and the accuracy of what it attacks."""
    graph, model = fitted(work, paths)
    report = attack_membership(model, graph, MembershipSettings(seed=work.seed))
    values = {"auc": report.attackers[SHADOW_MLP].auc, TEST: model.score(graph)}
    return Measurement.from_guarantee(values, model.guarantee)
