"""The printed sentences of every guarantee: fixed wording, with a number only where the proof has one.

``docs/privacy/proofs/statements.md``, derives each sentence and its limits.
"""

import math
from collections.abc import Sequence

from graphveil._util.figures import counted, format_delta, format_upper_bound
from graphveil._util.ldp_statements import RAW_DATA_HELD, exact_sum_text
from graphveil.core.guarantee import EdgeUse
from graphveil.core.unit import DirectedEdge, NodeBoundedDegree, NodeUnit, Unit

_ANSWERS = (
    "all outputs of this object (noisy aggregates, trained weights, predictions for every node, and scores "
    "computed from them)"
)
_GRAPH = (
    "the released graph and everything computed from it (weights trained on it, predictions for every node, "
    "and scores)"
)
OUTPUTS = {False: _ANSWERS, True: _GRAPH}  # by whether a whole graph was released
UNDIRECTED = (
    "Node identities, features and labels are treated as public. For any two graphs that differ in one "
    "undirected edge, {outputs} are ({epsilon}, {delta})-indistinguishable. This covers {releases}; a "
    "privacy ledger records each release as one entry. It does not hide whether a person is in the data, "
    "their features or their labels; a person with k edges is protected as a whole only at eps_k: "
    "{eps_10} for k=10, {eps_100} for k=100."
)
DIRECTED = (
    "Node identities, features and labels are treated as public. For any two graphs that differ in one "
    "stored directed edge, {outputs} are ({epsilon}, {delta})-indistinguishable. This covers "
    "{releases}; a privacy ledger records each release as one entry. It does not hide whether a person is in "
    "the data, their features or their labels; a person with k edges is protected as a whole only at "
    "eps_k: {eps_10} for k=10, {eps_100} for k=100. A mutual edge is two stored edges and is protected at "
    "eps = {mutual}."
)
PRIVATE_SLOT = (
    "Public: the public edges and the list of nodes that may have private ones. For any two graphs that "
    "differ in one pair inside that list and outside the public edges, the released graph and all computed "
    "from it are ({epsilon}, {delta})-indistinguishable. Nothing else is hidden{by_this}."
)
SEVERAL = "Two guarantees, about different things: each holds on its own, and they are not added."
_THIS_ONE = " by this one"
FEATURES = (
    "Each node's features are randomized on their own at eps_x = {epsilon}: for any two feature vectors of "
    "one node, the output of the randomizer and all that is computed from it are ({epsilon}, "
    "{delta})-indistinguishable. Labels, edges and who is in the data are not hidden by this one. {where}"
)
FEATURES_NOT_RANDOMIZED = "Each node's features are used as they are (eps_x = inf), and nothing hides them."


EDGES_NOT_READ = (
    "The edges were never read: nothing that this object gives out depends on them. Node identities, "
    "features and labels are treated as public and are not protected."
)
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
_OWN_FEATURES = (
    "The prediction for q uses q's own features and must only be shown to parties entitled to them."
)
_NODE_RECORD_QUERIED = (
    f"{_RECORD}the released models, all noisy aggregates and the predictions for all nodes other than q are "
    f"({{epsilon}}, {{delta}})-indistinguishable. {_OTHERS}: q's edge list is then protected only edge by "
    f"edge, {{edge}}. {_OWN_FEATURES}"
)
_NODE_RECORD_READ = (
    f"{_RECORD}the released models, all published rows and the predictions for all nodes other than q are "
    "({epsilon}, {delta})-indistinguishable. The prediction for q uses q's own features and q's own edge "
    f"list and must only be shown to parties entitled to both. {_OTHERS}, and a neighbor's prediction reads "
    "that neighbor's list: no separate bound is given for one mutual edge."
)
_NODE_RECORD_NEVER = (
    f"{_RECORD}the released models and the predictions for all nodes other than q are "
    "({epsilon}, {delta})-indistinguishable. No edge was read: nothing that this object gives out depends on "
    f"who declares which edges. {_OWN_FEATURES}"
)
_UNCOVERED = (
    "The prediction for v would be computed from the exact records of v and of all nodes that reach v along "
    "edges within the layers of the module: it is not covered by this statement, and may only be shown to "
    "parties entitled to all of these records."
)
_NODE_RECORD_NEIGHBORS = (
    f"{_RECORD}the released weights are ({{epsilon}}, {{delta}})-indistinguishable. {_UNCOVERED} {_OTHERS}, "
    "and no separate bound is given for one mutual edge."
)
NODE_RECORD = {  # by what reads the edges
    "never": _NODE_RECORD_NEVER,
    "queried": _NODE_RECORD_QUERIED,
    "read": _NODE_RECORD_READ,
    "neighbors": _NODE_RECORD_NEIGHBORS,
}
_LISTS_PUBLIC = "The users and the catalog of items are treated as public. "
_LIST_OUTPUTS = "everything that is released (popularity of items, item model, and hit rate if there is one)"
_OWN_LIST = (
    "Recommendations for a user read the exact list of this user: they are not covered, and must only be "
    "shown to this user and to parties entitled to this list."
)
LIST_RECORD = (
    f"{_LISTS_PUBLIC}For any two data sets that differ in the whole list of items of one user q, "
    f"{_LIST_OUTPUTS} and the recommendations for all users other than q are "
    f"({{epsilon}}, {{delta}})-indistinguishable. {_OWN_LIST}"
)
LIST_ENTRY = (
    f"{_LISTS_PUBLIC}For any two data sets that differ in one item on the list of one user q, "
    f"{_LIST_OUTPUTS} and the recommendations for all users other than q are "
    "({epsilon}, {delta})-indistinguishable. This covers {releases}; a privacy ledger records each release "
    "as one entry. It does not hide a list as a whole: k items of one list are protected together only at "
    f"eps_k: {{eps_10}} for k=10, {{eps_100}} for k=100. {_OWN_LIST}"
)
LIST_NULLED = "To differ means here that q has its list in one of the two and an empty list in the other."
LIST_REPLACED = "To differ means here that q has two different lists in the two, with any items."


EDGE_FIGURE = "at eps = {epsilon}"
NO_EDGE_FIGURE = "and no separate bound is given for one mutual edge"
BOUNDED_DEGREE = (
    "Conditional on the data owner's assurance that no node has degree above {degree}: for any two graphs "
    "that differ in one node q with all its edges, features and label, everything except q's own row and "
    "prediction is ({epsilon}, {delta})-indistinguishable. If the assurance is false there is no guarantee."
)
BOUNDED_DEGREE_NEIGHBORS = (
    "Conditional on the data owner's assurance that no node has degree above {degree}: for any two graphs "
    "that differ in one node q with all its edges, features and label, the released weights are "
    f"({{epsilon}}, {{delta}})-indistinguishable. {_UNCOVERED} If the assurance is false there is no "
    "guarantee."
)
BOUNDED_DEGREE_NEVER = (
    "For any two graphs that differ in one node q with all its edges, features and label, everything except "
    "q's own prediction is ({epsilon}, {delta})-indistinguishable. No edge was read, so this rests on no "
    "assurance about degrees."
)
NULLED = (
    "To differ means here that q has its record in one of the two and a null record in the other: no "
    "features, no label, no edges."
)
REPLACED = "To differ means here that q has two different records in the two, with any content."
SAMPLED = "Sampled training steps have no mu: equal runs of them compose their distributions of privacy loss."
COMPOSITION_NOTE = "Other runs on the same data add up: r equal releases have mu sqrt(r)."
PURE_COMPOSITION_NOTE = "Other releases of the same data add up: r equal ones have r times the epsilon."
APPROXIMATE_COMPOSITION_NOTE = (
    "Other releases of the same data add up: r equal ones have r times the epsilon, at r times the delta."
)
ONE_GRAPH = (
    "One graph is released per budget: to read it again is free, and to draw another is a new release."
)
PURE = (
    "All noise here has pure epsilon: at delta 0 it is {pure}, and k edges of one person together cost "
    "k times as much. Other runs on the same data add up: r equal releases have at most r times the epsilon."
)

LOCAL_COMPOSITION_NOTE = (
    "Other releases that randomize the same records again add up: r of them have r times the budgets."
)


def edge_statement(
    unit: Unit,
    epsilon: float,
    delta: float,
    releases: int,
    *,
    groups: dict[int, float],
    mutual: float,
    graph: bool = False,
    lists: bool = False,
) -> str:
    """Return the core of a guarantee summary about edges.

    Args:
        unit: Privacy unit.
        epsilon: Epsilon of one edge.
        delta: Delta of the guarantee.
        releases: Number of releases, as counted by a privacy ledger.
        groups: Epsilon of 10 and of 100 edges together.
        mutual: Epsilon of both stored directions of one edge.
        graph: Whether a whole graph was released, from which all other results follow.
        lists: Whether an edge is an item on the list of a user.
    """
    text = LIST_ENTRY if lists else DIRECTED if isinstance(unit, DirectedEdge) else UNDIRECTED
    figures = {f"eps_{count}": format_upper_bound(each) for count, each in groups.items()}
    bound = {
        "epsilon": format_upper_bound(epsilon),
        "delta": format_delta(delta),
        "mutual": format_upper_bound(mutual),
    }
    sentence = text.format(releases=counted(releases, "release"), outputs=OUTPUTS[graph], **bound, **figures)
    return f"{sentence} {ONE_GRAPH}" if graph else sentence


def edge_subset_statement(epsilon: float, delta: float, *, alone: bool = True) -> str:
    """Return the core of a guarantee summary about private edges among public ones.

    Args:
        epsilon: Epsilon of one node pair.
        delta: Delta of the guarantee.
        alone: Whether there is no additional guarantee.
    """
    by_this = "" if alone else _THIS_ONE
    sentence = PRIVATE_SLOT.format(
        epsilon=format_upper_bound(epsilon), delta=format_delta(delta), by_this=by_this
    )
    return f"{sentence} {ONE_GRAPH}"


def local_attributes_statement(budgets: Sequence[float], deltas: Sequence[float]) -> str:
    """Return the core of a statement about features that are randomized while labels are public.

    >>> local_attributes_statement([1.0], [0.0])[:66]
    "Each node's features are randomized on their own at eps_x = 1: for"
    """
    if math.inf in budgets:
        return FEATURES_NOT_RANDOMIZED
    return FEATURES.format(
        epsilon=exact_sum_text(*budgets), delta=exact_sum_text(*deltas), where=RAW_DATA_HELD
    )


def record_statement(
    unit: NodeUnit, epsilon: float, delta: float, *, edge_use: EdgeUse, edge: float | None, sampled: bool
) -> str:
    """Return the core of a statement about records.

    Args:
        unit: Node-level privacy unit.
        epsilon: Epsilon of one record.
        delta: Delta of the guarantee.
        edge_use: How edges are read.
        edge: Epsilon of one mutual edge, None if unknown.
        sampled: Whether steps on samples are among the releases.
    """
    bound = {"epsilon": format_upper_bound(epsilon), "delta": format_delta(delta)}
    if edge_use == "lists":
        return f"{LIST_RECORD.format(**bound)} {LIST_REPLACED if unit.replace_one else LIST_NULLED}"
    if isinstance(unit, NodeBoundedDegree):
        text = {"never": BOUNDED_DEGREE_NEVER, "neighbors": BOUNDED_DEGREE_NEIGHBORS}.get(
            edge_use, BOUNDED_DEGREE
        )
        first = [text.format(degree=unit.max_degree, **bound), PUBLIC]
    else:
        words = NO_EDGE_FIGURE if edge is None else EDGE_FIGURE.format(epsilon=format_upper_bound(edge))
        first = [NODE_RECORD[edge_use].format(edge=words, **bound)]
    changes = REPLACED if unit.replace_one else NULLED
    return " ".join([*first, changes, *([SAMPLED] if sampled else [])])
