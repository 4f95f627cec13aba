"""The words of a guarantee: its formal statement, and its summary for readers.

The wording is fixed, with a number only where the proof has one. ``docs/privacy/proofs/statements.md``
derives each sentence and its limits. Importing ``graphveil.privacy`` installs this module as
``Guarantee.words``.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

from graphveil._util.figures import (
    RAW_DATA_HELD,
    counted,
    exact_sum_text,
    format_delta,
    format_upper_bound,
    ldp_statement,
    percent_up,
)
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.events import (
    ApproximateDP,
    PureDP,
    budgets_of,
    cases_of,
    compose,
    ldp_reports_of,
    without_failures,
)
from graphveil.core.guarantee import Guarantee
from graphveil.core.unit import (
    DirectedEdge,
    EdgeSubset,
    LocalAttributes,
    Node,
    NodeBoundedDegree,
    NodeRecord,
    NoUnit,
    Person,
    Row,
    UndirectedEdge,
)

GROUP_SIZES = (10, 100)  # fixed and public: never a measured degree


# -- fixed sentences ---------------------------------------------------------------------------------------

_SAME = "({epsilon}, {delta})-indistinguishable"
_ANSWERS = (
    "all outputs of this object (noisy aggregates, trained weights, predictions for every node, and scores "
    "computed from them)"
)
_GRAPH = (
    "the released graph and everything computed from it (weights trained on it, predictions for every node, "
    "and scores)"
)
_LEDGER = "This covers {releases}; a privacy ledger records each release as one entry."
_EPS_K = "eps_k: {eps_10} for k=10, {eps_100} for k=100."
_EDGE = (
    "Node identities, features and labels are treated as public. For any two graphs that differ in one %s, "
    f"{{outputs}} are {_SAME}. {_LEDGER} It does not hide whether a person is in the data, their features or "
    f"their labels; a person with k edges is protected as a whole only at {_EPS_K}"
)
UNDIRECTED = _EDGE % "undirected edge"
DIRECTED = (
    _EDGE % "stored directed edge" + " A mutual edge is two stored edges and is protected at eps = {mutual}."
)
ROW = (
    "Persons, their attributes and labels, the split and all catalogs are treated as public. For any two "
    "data sets that differ in one row of one table, all outputs of this object (noisy counts, trained "
    f"weights, predictions for every person, and scores computed from them) are {_SAME}. {_LEDGER} It does "
    "not hide whether a person is in the data, their attributes or their labels; k rows of one person are "
    f"protected together only at {_EPS_K} A changed value is one row less and one row more, and an event "
    "that is stored in two rows is two rows: both are protected at eps = {mutual}."
)
PRIVATE_SLOT = (
    "Public: the public edges and the list of nodes that may have private ones. For any two graphs that "
    "differ in one pair inside that list and outside the public edges, the released graph and all computed "
    f"from it are {_SAME}. Nothing else is hidden{{by_this}}."
)
SEVERAL = "Two guarantees, about different things: each holds on its own, and they are not added."
FEATURES = (
    "Each node's features are randomized on their own at eps_x = {epsilon}: for any two feature vectors of "
    f"one node, the output of the randomizer and all that is computed from it are {_SAME}. Labels, edges and "
    "who is in the data are not hidden by this one. {where}"
)
FEATURES_NOT_RANDOMIZED = "Each node's features are used as they are (eps_x = inf), and nothing hides them."
_NEVER_READ = (
    "The %s were never read: nothing that this object gives out depends on them. %s and labels are treated "
    "as public and are not protected."
)
EDGES_NOT_READ = _NEVER_READ % ("edges", "Node identities, features")
ROWS_NOT_READ = _NEVER_READ % ("rows", "Persons, their attributes")
NONE = "No privacy: this object was computed from the raw graph, and anything it gives out may reveal it."

PUBLIC = "Node identities and split membership are public."
_RECORD = (
    f"{PUBLIC} For any two data sets that differ in the record of one "
    "node q (its features, its label and the list of edges q itself declares), "
)
_OTHERS = (
    "Edges pointing to q that are declared by other nodes belong to those nodes' records and are not hidden "
    "by this statement; if edges are mutual they are also in the records of the neighbors"
)
_NO_EDGE_BOUND = "no separate bound is given for one mutual edge"
_OWN_FEATURES = (
    "The prediction for q uses q's own features and must only be shown to parties entitled to them."
)
_NO_EDGE_READ = "No edge was read: nothing that this object gives out depends on"
_UNCOVERED = (
    "The prediction for v would be computed from the exact records of v and of all nodes that reach v along "
    "edges within the layers of the module: it is not covered by this statement, and may only be shown to "
    "parties entitled to all of these records."
)
NODE_RECORD = {  # by what reads the edges
    "never": f"{_RECORD}the released models and the predictions for all nodes other than q are {_SAME}. "
    f"{_NO_EDGE_READ} who declares which edges. {_OWN_FEATURES}",
    "queried": f"{_RECORD}the released models, all noisy aggregates and the predictions for all nodes other "
    f"than q are {_SAME}. {_OTHERS}: q's edge list is then protected only edge by edge, {{edge}}. "
    f"{_OWN_FEATURES}",
    "read": f"{_RECORD}the released models, all published rows and the predictions for all nodes other than "
    f"q are {_SAME}. The prediction for q uses q's own features and q's own edge list and must only be shown "
    f"to parties entitled to both. {_OTHERS}, and a neighbor's prediction reads that neighbor's list: "
    f"{_NO_EDGE_BOUND}.",
    "neighbors": f"{_RECORD}the released weights are {_SAME}. {_UNCOVERED} {_OTHERS}, and {_NO_EDGE_BOUND}.",
}
_PERSON = (
    "Who is in the data, the split and all catalogs are public. For any two data sets that differ in the "
    "record of one person q (attributes, label and every row that q owns, in every table), the released "
    f"models and the predictions for all persons other than q are {_SAME}. "
)
_PERSON_READ = (
    f"{_PERSON}The prediction for q uses q's own record and must only be shown to parties entitled to it. "
    "Rows that others own and that name q belong to the records of their owners and are not hidden by this "
    "statement."
)
PERSON = {  # by what reads the rows
    "never": f"{_PERSON}No row was read: nothing that this object gives out depends on rows. {_OWN_FEATURES}",
    "queried": _PERSON_READ,
    "read": _PERSON_READ,
}
_LISTS_DIFFER = (
    "The users and the catalog of items are treated as public. For any two data sets that differ in %s of "
    "one user q, everything that is released (popularity of items, item model, and hit rate if there is one) "
    f"and the recommendations for all users other than q are {_SAME}."
)
_OWN_LIST = (
    "Recommendations for a user read the exact list of this user: they are not covered, and must only be "
    "shown to this user and to parties entitled to this list."
)
LIST_RECORD = f"{_LISTS_DIFFER % 'the whole list of items'} {_OWN_LIST}"
LIST_ENTRY = (
    f"{_LISTS_DIFFER % 'one item on the list'} {_LEDGER} It does not hide a list as a whole: k items of one "
    f"list are protected together only at {_EPS_K} {_OWN_LIST}"
)
_NODE = (
    f"{PUBLIC} For any two graphs that differ in one node q, with its features, its label and all edges in "
    "which q takes part, the released models"
)
_COALITION = "q's features, its label and its edges with all other nodes are protected at eps = "
NODE = {  # by what reads the edges
    "never": f"{_NODE} and the predictions for all nodes other than q are {_SAME}. {_NO_EDGE_READ} edges. "
    f"{_OWN_FEATURES}",
    "queried": f"{_NODE}, all noisy aggregates and the predictions for all nodes other than q are {_SAME}. "
    f"Nothing is assumed about degrees. {_OWN_FEATURES}",
    "read": f"{_NODE} and all noisy aggregates are {_SAME}. Nothing is assumed about degrees. The prediction "
    "for a node uses this node's own features and its own list of edges and must only be shown to parties "
    "entitled to both. Against parties that know the lists of some nodes and see the predictions for these "
    "nodes, {coalition}. q's edges with these nodes are known to these parties.",
}
_ASSURED = (
    "Conditional on the data owner's assurance that no node has degree above {degree}: for any two graphs "
    "that differ in one node q with all its edges, features and label, "
)
_NOT_ASSURED = "If the assurance is false there is no guarantee."
BOUNDED_DEGREE = {  # by what reads the edges
    "never": "For any two graphs that differ in one node q with all its edges, features and label, "
    f"everything except q's own prediction is {_SAME}. No edge was read, so this rests on no assurance about "
    "degrees.",
    "queried": f"{_ASSURED}everything except q's own row and prediction is {_SAME}. {_NOT_ASSURED}",
    "neighbors": f"{_ASSURED}the released weights are {_SAME}. {_UNCOVERED} {_NOT_ASSURED}",
}
_DIFFER = "To differ means here that q has "
_NULL = f"{_DIFFER}its record in one of the two and a null record in the other: no "
NULLED, NULLED_PERSON = f"{_NULL}features, no label, no edges.", f"{_NULL}attributes, no label, no rows."
REPLACED = f"{_DIFFER}two different records in the two, with any content."
LIST_NULLED = f"{_DIFFER}its list in one of the two and an empty list in the other."
LIST_REPLACED = f"{_DIFFER}two different lists in the two, with any items."
_NOT_READ, _NULLED = {Row.name: ROWS_NOT_READ}, {Person.name: NULLED_PERSON}  # where a unit has its own
_THINGS = {Row.name: "rows"}  # what a unit protects, if not edges
SAMPLED = "Sampled training steps have no mu: equal runs of them compose their distributions of privacy loss."
COMPOSITION_NOTE = "Other runs on the same data add up: r equal releases have mu sqrt(r)."
FAILURE_COMPOSITION_NOTE = (
    "Other runs on the same data add up: r equal releases have mu sqrt(r), and the part of delta that bounds "
    "the failure of the noisy degree bound adds up as well."
)
PURE_COMPOSITION_NOTE = "Other releases of the same data add up: r equal ones have r times the epsilon."
APPROXIMATE_COMPOSITION_NOTE = (
    "Other releases of the same data add up: r equal ones have r times the epsilon, at r times the delta."
)
ONE_GRAPH = (
    "One graph is released per budget: to read it again is free, and to draw another is a new release."
)
PURE = (
    "All noise here has pure epsilon: at delta 0 it is {pure}, and k {things} of one person together cost "
    "k times as much. Other runs on the same data add up: r equal releases have at most r times the epsilon."
)
LOCAL_COMPOSITION_NOTE = (
    "Other releases that randomize the same records again add up: r of them have r times the budgets."
)


_FEATURES_COVER = "each node's own features, randomized before anything else reads them"
_FEATURES_NOT_COVERED = "labels, the split, who is in the data; edges have a guarantee of their own"
_LISTS_COVER = "the whole list of items of any one user"
_ITEMS_COVER = "any one item on the list of any one user"
_LISTS_NOT_COVERED = (
    "who is a user, the catalog of items, and recommendations for a user, which read the exact list of this "
    "user"
)
_LIST_NOT_COVERED = (
    "who is in the data, the split, edges that others declare towards the node, and the node's own "
    "prediction, which is for those entitled to its features and to its edge list"
)
_SLOTS_NOT_COVERED = (
    "labels, who is in the data and how many, public edges, the list of nodes that may have private ones; "
    "features have a guarantee of their own"
)
_WEIGHTS_ALONE = (
    "who is in the data, the split, edges that others declare towards the node, and all predictions, which "
    "are computed from the exact records of other nodes"
)


def covers(guarantee: Guarantee) -> str:
    """Return the protected part of the data."""
    if guarantee.labels_public:
        return _FEATURES_COVER
    if guarantee.edge_use == "lists":
        return _ITEMS_COVER if isinstance(guarantee.protected, DirectedEdge) else _LISTS_COVER
    return guarantee.protected.covers


def not_covered(guarantee: Guarantee) -> str:
    """Return the unprotected part of the data."""
    unit, edge_use = guarantee.protected, guarantee.edge_use
    if guarantee.labels_public:
        return _FEATURES_NOT_COVERED
    if edge_use == "lists":
        return _LISTS_NOT_COVERED
    if edge_use == "neighbors":
        return _WEIGHTS_ALONE
    if edge_use == "read" and unit.name not in (Node.name, Person.name):
        return _LIST_NOT_COVERED
    return _SLOTS_NOT_COVERED if guarantee.additional else unit.not_covered


# -- the formal statement ----------------------------------------------------------------------------------


def formal_statement(guarantee: Guarantee) -> str:
    """Return the formal statement of a guarantee, which begins with its deviations if there are any."""
    if not guarantee.additional:
        return _statement(guarantee)
    numbered = enumerate((guarantee, *guarantee.additional), start=1)
    return " ".join([SEVERAL, *(f"({number}) {_statement(one)}" for number, one in numbered)])


def _statement(guarantee: Guarantee) -> str:
    bound = {"epsilon": format_upper_bound(guarantee.epsilon), "delta": format_delta(guarantee.delta)}
    core = _STATEMENTS[guarantee.unit](guarantee, bound)
    parts = [core, *(f"Note: {note}." for note in guarantee.notes)]
    if guarantee.unit != NoUnit.name:
        parts.append(_composition_note(guarantee))
    if guarantee.deviations:
        listed = "; ".join(guarantee.deviations)
        parts.insert(0, f"No valid guarantee. Known deviations: {listed}. It would read:")
    return " ".join(parts)


Bound = dict[str, str]


def _edge_statement(text: str, guarantee: Guarantee, bound: Bound) -> str:
    if guarantee.releases == 0:
        return _NOT_READ.get(guarantee.unit, EDGES_NOT_READ)
    sentence = (LIST_ENTRY if guarantee.edge_use == "lists" else text).format(
        releases=counted(guarantee.releases, "release"),
        outputs=_GRAPH if guarantee.graph else _ANSWERS,
        mutual=format_upper_bound(guarantee.mutual_epsilon),
        **bound,
        **{f"eps_{count}": format_upper_bound(guarantee.group_epsilon(count)) for count in GROUP_SIZES},
    )
    return f"{sentence} {ONE_GRAPH}" if guarantee.graph else sentence


def _subset_statement(guarantee: Guarantee, bound: Bound) -> str:
    if guarantee.releases == 0:
        return EDGES_NOT_READ
    by_this = " by this one" if guarantee.additional else ""
    return f"{PRIVATE_SLOT.format(by_this=by_this, **bound)} {ONE_GRAPH}"


def _record_statement(guarantee: Guarantee, bound: Bound) -> str:
    if guarantee.edge_use == "lists":
        return f"{LIST_RECORD.format(**bound)} {LIST_REPLACED if guarantee.replace_one else LIST_NULLED}"
    edge = guarantee.edge_epsilon
    words = f"and {_NO_EDGE_BOUND}" if edge is None else f"at eps = {format_upper_bound(edge)}"
    return _with_neighbors(NODE_RECORD[guarantee.edge_use].format(edge=words, **bound), guarantee)


def _person_statement(guarantee: Guarantee, bound: Bound) -> str:
    if guarantee.edge_use == "lists":
        return _record_statement(guarantee, bound)
    return _with_neighbors(PERSON[guarantee.edge_use].format(**bound), guarantee)


def _node_statement(guarantee: Guarantee, bound: Bound) -> str:
    known = guarantee.coalition_epsilon
    coalition = "no separate bound is given" if known is None else _COALITION + format_upper_bound(known)
    return _with_neighbors(NODE[guarantee.edge_use].format(coalition=coalition, **bound), guarantee)


def _bounded_degree_statement(guarantee: Guarantee, bound: Bound) -> str:
    text = BOUNDED_DEGREE.get(guarantee.edge_use, BOUNDED_DEGREE["queried"])
    return _with_neighbors(f"{text.format(degree=guarantee.max_degree, **bound)} {PUBLIC}", guarantee)


def _with_neighbors(text: str, guarantee: Guarantee) -> str:
    """Add the neighboring relation of records, and that batches are samples if they are."""
    sampled = [SAMPLED] if total_mu(without_failures(guarantee.event)) is None else []
    relation = REPLACED if guarantee.replace_one else _NULLED.get(guarantee.unit, NULLED)
    return " ".join([text, relation, *sampled])


def _local_statement(guarantee: Guarantee, bound: Bound) -> str:
    features, label = budgets_of(guarantee.event, "features"), budgets_of(guarantee.event, "label")
    deltas = [report.delta for report in ldp_reports_of(guarantee.event)]
    if not guarantee.labels_public:
        return ldp_statement(features, label, deltas, on_clients=None if guarantee.received else False)
    if math.inf in features:
        return FEATURES_NOT_RANDOMIZED
    return FEATURES.format(
        epsilon=exact_sum_text(*features), delta=exact_sum_text(*deltas), where=RAW_DATA_HELD
    )


_STATEMENTS: Mapping[str, Callable[[Guarantee, Bound], str]] = {
    UndirectedEdge.name: partial(_edge_statement, UNDIRECTED),
    DirectedEdge.name: partial(_edge_statement, DIRECTED),
    Row.name: partial(_edge_statement, ROW),
    EdgeSubset.name: _subset_statement,
    Node.name: _node_statement,
    NodeRecord.name: _record_statement,
    Person.name: _person_statement,
    NodeBoundedDegree.name: _bounded_degree_statement,
    LocalAttributes.name: _local_statement,
    NoUnit.name: lambda guarantee, bound: NONE,
}


def _composition_note(guarantee: Guarantee) -> str:
    """Return the cost of other releases of the same data together with this one."""
    if guarantee.local_budgets:
        return LOCAL_COMPOSITION_NOTE
    parts = [part for case in cases_of(guarantee.event) for part in case.events]
    if guarantee.unit == Row.name:  # a row is in one group
        parts = [each for part in parts for each in compose(*getattr(part, "events", (part,))).events]
    if parts and all(isinstance(part, PureDP) for part in parts):
        pure = format_upper_bound(guarantee.curve.epsilon(0.0))
        return PURE.format(pure=pure, things=_THINGS.get(guarantee.unit, "edges"))
    if guarantee.unit == Node.name:
        return COMPOSITION_NOTE if not guarantee.additive_delta else FAILURE_COMPOSITION_NOTE
    if guarantee.additive_delta:
        return APPROXIMATE_COMPOSITION_NOTE
    budgets = any(isinstance(part, ApproximateDP | PureDP) for part in parts)
    return PURE_COMPOSITION_NOTE if budgets else COMPOSITION_NOTE


# -- the summary -------------------------------------------------------------------------------------------


def summary(guarantee: Guarantee) -> str:
    """Return the meaning of a guarantee, for readers who do not know differential privacy."""
    text = _summary(guarantee)
    if guarantee.violated:
        text = f"No valid guarantee, because of the deviations that are listed. Without them: {text}"
    return " ".join([text, *(summary(one) for one in guarantee.additional)])


_PROTECTED_EDGE = {
    UndirectedEdge.name: "whether two particular people are connected",
    EdgeSubset.name: "whether two particular people of the list have a private edge",
    DirectedEdge.name: "whether one particular person's stored link to another exists",
    Row.name: "whether one particular row of a table exists",
}
_RECORDS = {
    Node.name: "features, label and all of the person's edges",
    NodeRecord.name: "features, label and the edges that the person declares",
    Person.name: "attributes, label and every row that the person owns",
    NodeBoundedDegree.name: "features, label and all of the person's edges",
}


def _summary(guarantee: Guarantee) -> str:
    if guarantee.labels_public:
        return _summary_of_features(guarantee)
    if guarantee.edge_use == "lists":
        return _summary_of_lists(guarantee)
    return _SUMMARIES[guarantee.unit](guarantee)


def _summary_of_edges(guarantee: Guarantee) -> str:
    secret = _PROTECTED_EDGE[guarantee.unit]
    edges = _THINGS.get(guarantee.unit, "edges")
    if guarantee.releases == 0:
        return f"The model was trained without reading the {edges}, so it cannot reveal {secret}."
    return (
        f"Suppose that an attacker knows everything except {secret}: all other {edges}, all features and "
        "labels, and all outputs of this run. "
        f"{_bound(guarantee, f'{edges} that do not exist', f'the {edges} that do')} {_ATTACKS}."
    )


def _bound(guarantee: Guarantee, negatives: str, positives: str) -> str:
    return (
        f"With false positives for at most 1 in 100 of the {negatives}, any test finds at most "
        f"{percent_up(guarantee.max_tpr())} in 100 of {positives}. Random guessing finds 1."
    )


# Noise comes from AES-CTR under keys that HMAC derives: delta holds against bounded attackers.
_ATTACKS = "This bound holds for any attack, assuming that AES-256 and HMAC-SHA256 are secure"


_CONDITIONS = {
    Node.name: "",
    NodeRecord.name: " An edge that both nodes declare is in two records and has weaker protection.",
    Person.name: " Rows that others own and that name the person are not protected.",
    NodeBoundedDegree.name: (
        " This relies on the data owner's assumption that no node exceeds the stated number of edges."
    ),
}
_OWN_LISTS = (
    " The prediction for a node reads the list of edges of this node. Against people who know such lists and "
    "see these predictions, the bound is weaker."
)


def _summary_of_records(guarantee: Guarantee) -> str:
    record = _RECORDS[guarantee.unit]
    attacker_question = f"which of two records ({record}) a particular person has"
    classes = "people with the one record", "those with the other"
    condition = "" if guarantee.edge_use == "never" else _CONDITIONS[guarantee.unit]
    if not guarantee.replace_one:
        attacker_question = f"whether a particular person's record ({record}) was used"
        classes = "people who were left out", "those who were not"
    unseen = "those for that person alone"
    if not guarantee.covers_predictions:
        unseen, condition = "predictions for single nodes", _OWN_LISTS
    return (
        f"Suppose that an attacker knows all other records and must decide {attacker_question}. The attacker "
        f"sees all outputs of this run, except {unseen}. {_bound(guarantee, *classes)} {_ATTACKS}.{condition}"
    )


_LISTS = {  # by unit and replace_one: what is known, what is secret, and the classes of an attack
    (DirectedEdge.name, False): (
        "all other entries of all lists",
        "whether one particular item is on a user's list",
        "items that are not on the list",
        "those that are",
    ),
    (NodeRecord.name, True): (
        "the lists of all other users",
        "which of two lists a particular user has",
        "users with the one list",
        "those with the other",
    ),
    (NodeRecord.name, False): (
        "the lists of all other users",
        "whether a particular user's list was used",
        "users whose list was left out",
        "those whose list was used",
    ),
}


_SAME_LISTS = {Row.name: DirectedEdge.name, Person.name: NodeRecord.name}  # units of several tables


def _summary_of_lists(guarantee: Guarantee) -> str:
    unit = _SAME_LISTS.get(guarantee.unit, guarantee.unit)
    known, secret, *classes = _LISTS[unit, guarantee.replace_one]
    return (
        f"Suppose that an attacker knows {known} and must decide {secret}. The attacker sees all outputs of "
        f"this run, except the recommendations for that user. {_bound(guarantee, *classes)} {_ATTACKS}."
    )


def _summary_of_reports(guarantee: Guarantee) -> str:
    if not math.isfinite(guarantee.epsilon):
        return (
            "A part of each person's record is used without noise, and anyone who sees the output of this "
            "run may learn it. The mechanisms above state what is randomized."
        )
    return (
        "Suppose that an attacker sees everything that was computed here, the randomized records included, "
        "and must decide which of two records (features and label) a particular person has. "
        f"{_bound(guarantee, 'people with the one record', 'the people with the other')} {_ATTACKS}. The "
        "collector of the randomized records does not have to be trusted. Labels of test nodes, which the "
        "test score reads, and edges are not protected."
    )


def _summary_of_features(guarantee: Guarantee) -> str:
    if not math.isfinite(guarantee.epsilon):
        return "Features are used without noise, and the output of this run may reveal them."
    return (
        "Suppose instead that an attacker sees all outputs of this run, knows every edge and label, and must "
        "decide which of two lists of features a particular person has. "
        + _bound(guarantee, "people with the one", "the people with the other")
    )


_SUMMARIES: Mapping[str, Callable[[Guarantee], str]] = {
    **dict.fromkeys(_PROTECTED_EDGE, _summary_of_edges),
    **dict.fromkeys(_RECORDS, _summary_of_records),
    LocalAttributes.name: _summary_of_reports,
    NoUnit.name: lambda guarantee: (
        "Nothing is protected: anyone who sees the model or its predictions may learn which edges it was "
        "trained on. Use it internally, as a reference, and do not publish it."
    ),
}
