"""The words of a guarantee: its summary for readers, and its formal statement.

The wording is fixed: ``docs/privacy/proofs/statements.md``, derives each sentence and its limits. Importing
``graphveil.privacy`` installs these functions as ``Guarantee.words``.
"""

import math

from graphveil._util.figures import format_upper_bound, percent_up
from graphveil._util.ldp_statements import ldp_statement
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import ApproximateDP, PureDP, budgets_of, cases_of, ldp_reports_of
from graphveil.core.guarantee import Guarantee
from graphveil.core.unit import (
    DirectedEdge,
    EdgeSubset,
    LocalAttributes,
    NodeBoundedDegree,
    NodeRecord,
    NodeUnit,
    NoUnit,
)
from graphveil.privacy import statements

GROUP_SIZES = (10, 100)  # fixed and public: never a measured degree


def summary(guarantee: Guarantee) -> str:
    """Return the meaning of a guarantee, for readers who do not know differential privacy."""
    text = _summary(guarantee)
    if not guarantee.valid and guarantee.unit != NoUnit.name:
        text = f"No valid guarantee, because of the deviations that are listed. Without them: {text}"
    return " ".join([text, *(summary(one) for one in guarantee.additional)])


def formal_statement(guarantee: Guarantee) -> str:
    """Return the formal statement of a guarantee, which begins with its deviations if there are any."""
    if not guarantee.additional:
        return _alone(guarantee)
    numbered = enumerate((guarantee, *guarantee.additional), start=1)
    return " ".join([statements.SEVERAL, *(f"({number}) {_alone(one)}" for number, one in numbered)])


def _alone(guarantee: Guarantee) -> str:
    """Return the summary of this guarantee, without the additional ones."""
    parts = [_core(guarantee)]
    parts += [f"Note: {note}." for note in guarantee.notes]
    if guarantee.unit != NoUnit.name:
        parts.append(_composition_note(guarantee))
    if guarantee.deviations:
        listed = "; ".join(guarantee.deviations)
        parts.insert(
            0, f"No valid guarantee ({guarantee.mode} mode). Known deviations: {listed}. It would read:"
        )
    return " ".join(parts)


def _core(guarantee: Guarantee) -> str:
    unit = guarantee.protected
    if isinstance(unit, NodeUnit):
        use, edge, sampled = guarantee.edge_use, guarantee.edge_epsilon, total_mu(guarantee.event) is None
        return statements.record_statement(
            unit, guarantee.epsilon, guarantee.delta, edge_use=use, edge=edge, sampled=sampled
        )
    if isinstance(unit, LocalAttributes):
        budgets = budgets_of(guarantee.event, "features"), budgets_of(guarantee.event, "label")
        deltas = [report.delta for report in ldp_reports_of(guarantee.event)]
        if guarantee.labels_public:
            return statements.local_attributes_statement(budgets[0], deltas)
        return ldp_statement(*budgets, deltas, on_clients=None if guarantee.received else False)
    if isinstance(unit, NoUnit):
        return statements.NONE
    if guarantee.releases == 0:
        return statements.EDGES_NOT_READ
    if isinstance(unit, EdgeSubset):
        return statements.edge_subset_statement(
            guarantee.epsilon, guarantee.delta, alone=not guarantee.additional
        )
    groups = {count: guarantee.group_epsilon(count) for count in GROUP_SIZES}
    figures = guarantee.epsilon, guarantee.delta, guarantee.releases
    return statements.edge_statement(
        unit,
        *figures,
        groups=groups,
        mutual=guarantee.mutual_epsilon,
        graph=guarantee.graph,
        lists=guarantee.edge_use == "lists",
    )


def _composition_note(guarantee: Guarantee) -> str:
    """Return the cost of other releases of the same data together with this one."""
    if guarantee.local_budgets:
        return statements.LOCAL_COMPOSITION_NOTE
    parts = [part for case in cases_of(guarantee.event) for part in case.events]
    if parts and all(isinstance(part, PureDP) for part in parts):
        return statements.PURE.format(pure=format_upper_bound(guarantee.curve.epsilon(0.0)))
    if guarantee.additive_delta:
        return statements.APPROXIMATE_COMPOSITION_NOTE
    budgets = any(isinstance(part, ApproximateDP | PureDP) for part in parts)
    return statements.PURE_COMPOSITION_NOTE if budgets else statements.COMPOSITION_NOTE


_PROTECTED_EDGE = {
    "undirected-edge": "whether two particular people are connected",
    EdgeSubset.name: "whether two particular people of the list have a private edge",
    DirectedEdge.name: "whether one particular person's stored link to another exists",
}
_RECORD = {
    NodeRecord.name: "features, label and the edges that the person declares",
    NodeBoundedDegree.name: "features, label and all of the person's edges",
}


def _summary(guarantee: Guarantee) -> str:
    if guarantee.unit == NoUnit.name:
        return (
            "Nothing is protected: anyone who sees the model or its predictions may learn which edges it was "
            "trained on. Use it internally, as a reference, and do not publish it."
        )
    if guarantee.labels_public:
        return _summary_of_features(guarantee)
    if guarantee.unit == LocalAttributes.name:
        return _summary_of_reports(guarantee)
    if guarantee.edge_use == "lists":
        return _summary_of_lists(guarantee)
    if guarantee.unit in _RECORD:
        return _summary_of_records(guarantee)
    secret = _PROTECTED_EDGE[guarantee.unit]
    if guarantee.releases == 0:
        return f"The model was trained without reading the edges, so it cannot reveal {secret}."
    return (
        f"Suppose that an attacker knows everything except {secret}: all other edges, all features and "
        "labels, and all outputs of this run. With false positives for at most 1 in 100 of the edges that do "
        f"not exist, any test finds at most {percent_up(guarantee.max_tpr())} in 100 of the edges that do. "
        f"Random guessing finds 1. {_ATTACKS}."
    )


# Noise comes from AES-CTR under keys that HMAC derives: delta holds against bounded attackers.
_ATTACKS = "This bound holds for any attack, assuming that AES-256 and HMAC-SHA256 are secure"


def _summary_of_records(guarantee: Guarantee) -> str:
    record = _RECORD[guarantee.unit]
    attacker_question = f"which of two records ({record}) a particular person has"
    classes = "people with the one record", "those with the other"
    condition = " An edge that both nodes declare is in two records and has weaker protection."
    if guarantee.edge_use == "never":
        condition = ""
    elif guarantee.unit == NodeBoundedDegree.name:
        condition = (
            " This relies on the data owner's assumption that no node exceeds the stated number of edges."
        )
    if not guarantee.replace_one:
        attacker_question = f"whether a particular person's record ({record}) was used"
        classes = "people who were left out", "those who were not"
    return (
        f"Suppose that an attacker knows all other records and must decide {attacker_question}. The attacker "
        "sees all outputs of this run, except those for that person alone. With false positives for at most "
        f"1 in 100 of the {classes[0]}, any test finds at most {percent_up(guarantee.max_tpr())} in 100 of "
        f"{classes[1]}. Random guessing finds 1. {_ATTACKS}.{condition}"
    )


def _summary_of_lists(guarantee: Guarantee) -> str:
    if guarantee.unit != NodeRecord.name:
        known, secret = "all other entries of all lists", "whether one particular item is on a user's list"
        classes = "items that are not on the list", "those that are"
    elif guarantee.replace_one:
        known, secret = "the lists of all other users", "which of two lists a particular user has"
        classes = "users with the one list", "those with the other"
    else:
        known, secret = "the lists of all other users", "whether a particular user's list was used"
        classes = "users whose list was left out", "those whose list was used"
    return (
        f"Suppose that an attacker knows {known} and must decide {secret}. The attacker sees all outputs of "
        "this run, except the recommendations for that user. With false positives for at most 1 in 100 of "
        f"the {classes[0]}, any test finds at most {percent_up(guarantee.max_tpr())} in 100 of {classes[1]}. "
        f"Random guessing finds 1. {_ATTACKS}."
    )


def _summary_of_reports(guarantee: Guarantee) -> str:
    if not math.isfinite(guarantee.epsilon):
        return (
            "A part of each person's record is used without noise, and anyone who sees the output of this "
            "run may learn it. The mechanisms above state what is randomized."
        )
    return (
        "Suppose that an attacker sees everything that was computed here, the randomized records included, "
        "and must decide which of two records (features and label) a particular person has. With false "
        "positives for at most 1 in 100 of the people with the one record, any test finds at most "
        f"{percent_up(guarantee.max_tpr())} in 100 of the people with the other. Random guessing finds 1. "
        f"{_ATTACKS}. The collector of the randomized records does not have to be trusted. Labels of test "
        "nodes, which the test score reads, and edges are not protected."
    )


def _summary_of_features(guarantee: Guarantee) -> str:
    if not math.isfinite(guarantee.epsilon):
        return "Features are used without noise, and the output of this run may reveal them."
    return (
        "Suppose instead that an attacker sees all outputs of this run, knows every edge and label, and must "
        "decide which of two lists of features a particular person has. With false positives for at most 1 "
        f"in 100 of the people with the one, any test finds at most {percent_up(guarantee.max_tpr())} in 100 "
        "of the people with the other. Random guessing finds 1."
    )
