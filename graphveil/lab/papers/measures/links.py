"""LinkTeller against a fitted model: which pairs are joined, found out by nudging features."""

from graphveil.lab.attacks import LinkSettings, attack_links
from graphveil.lab.attacks.link import BY_FEATURES, LINKTELLER
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures.fit import fitted
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.lab.papers.target import TEST

NODES = 500


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return LinkTeller's ROC-AUC over all pairs of 500 nodes, beside that of public features alone."""
    graph, model = fitted(work, paths)
    report = attack_links(model, graph, LinkSettings(nodes=NODES, seed=work.seed))
    values = {
        "auc": report.attackers[LINKTELLER].roc.auc,
        "by_features": report.attackers[BY_FEATURES].roc.auc,
        TEST: model.score(graph),
    }
    return Measurement.from_guarantee(values, model.guarantee)
