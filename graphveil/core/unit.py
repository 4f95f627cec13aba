"""The privacy unit: what may differ between two neighboring graphs, and how changes combine.

A unit is chosen once, by name. Sensitivity, wording and defaults are its methods and attributes.
Docs: ``docs/privacy/proofs/sensitivity.md``.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from graphveil._util import checks
from graphveil._util.checks import checked, suggestion
from graphveil.core.events import Relation
from graphveil.errors import UnitError

Level = Literal["edge", "node", "local", "none"]


@dataclass(frozen=True)
class Unit(ABC):
    """Privacy unit: what may differ between two neighboring graphs of the same shape.

    Rows are never added or removed. The level of a unit says what is protected: single edges, the records of
    nodes with their edges, the records that clients randomize, or nothing. Properties of a unit are here.
    Everything else looks up tables by the name or the level of a unit.
    """

    name: ClassVar[str]
    level: ClassVar[Level]
    keywords: ClassVar[frozenset[str]] = frozenset()  # of models, without effect under other units
    delta_cap: ClassVar[float]
    covers: ClassVar[str]
    not_covered: ClassVar[str]

    @property
    def protects_edges(self) -> bool:
        """Whether edges are protected, alone or as part of the records of nodes."""
        return self.level in ("edge", "node")

    @property
    def protects_records(self) -> bool:
        """Whether features, labels and targets are protected."""
        return self.level in ("node", "local")

    @abstractmethod
    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Combine the L2 changes of two rows over the complete release.

        Args:
            forward: Change of v's row by u.
            backward: Change of u's row by v.

        Returns:
            The L2 sensitivity.

        Raises:
            UnitError: If a sum has no bound under this unit.
        """


@dataclass(frozen=True)
class UndirectedEdge(Unit):
    """One undirected edge: both stored directions of one pair are present or absent together.

    Both end rows change, so the two changes add up in squares.

    >>> round(UndirectedEdge().pair_sensitivity(1.0, 1.0), 6)
    1.414214
    """

    name: ClassVar[str] = "undirected-edge"
    level: ClassVar[Level] = "edge"
    delta_cap: ClassVar[float] = 1e-7
    covers: ClassVar[str] = "the presence of any one undirected edge"
    not_covered: ClassVar[str] = "who is in the data, features, labels, splits"

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Return sqrt(forward^2 + backward^2)."""
        return math.hypot(forward, backward)


@dataclass(frozen=True)
class DirectedEdge(Unit):
    """One stored edge u -> v: only v's row changes.

    >>> DirectedEdge().pair_sensitivity(1.0, 0.5)
    1.0
    """

    name: ClassVar[str] = "directed-edge"
    level: ClassVar[Level] = "edge"
    delta_cap: ClassVar[float] = 1e-7
    covers: ClassVar[str] = "the presence of any one stored directed edge"
    not_covered: ClassVar[str] = "who is in the data, features, labels, splits; a mutual edge counts twice"

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Return the larger change: the two directions are two separate edges."""
        return max(forward, backward)


@dataclass(frozen=True)
class Row(DirectedEdge):
    """One row of one of several tables, with its value.

    A row is stored as a directed edge from the person who owns it to its far end and value
    (``data/relational.py``). A changed value is one row less and one row more.

    >>> Row().pair_sensitivity(1.0, 0.5)
    1.0
    """

    name: ClassVar[str] = "row"
    covers: ClassVar[str] = "the presence of any one row of a table, with its value"
    not_covered: ClassVar[str] = (
        "who is in the data, attributes, labels, the split and catalogs; an event that is stored in several "
        "rows counts once for each of them, and a changed value counts twice"
    )


@dataclass(frozen=True)
class NodeUnit(Unit):
    """One record: the features, the label and the edges of a node that count as its own.

    Neighboring data have the record, or have a null record in its place, which contributes nothing anywhere.
    With ``replace_one`` they have two different records, and every shift doubles.

    Args:
        replace_one: Whether neighboring datasets have two different records, instead of a record and a null
            record.
    """

    level: ClassVar[Level] = "node"
    keywords: ClassVar[frozenset[str]] = frozenset({"replace_one", "private_metrics"})
    delta_cap: ClassVar[float] = 1e-5

    replace_one: bool = field(default=False, kw_only=True)

    @property
    def change(self) -> float:
        """The largest shift of a sum to which a record contributes a vector of norm at most one."""
        return 2.0 if self.replace_one else 1.0

    @property
    def relation(self) -> Relation:
        """The neighboring relation of one record in a training step."""
        return "replace" if self.replace_one else "add_remove"


@dataclass(frozen=True)
class NodeRecord(NodeUnit):
    """The record of one node: features, label and the list of edges that the node itself declares.

    A stored edge belongs to its source. Edges that others declare towards the node are theirs.

    Args:
        replace_one: Whether neighboring datasets have two different records.

    >>> NodeRecord().change, NodeRecord(replace_one=True).change
    (1.0, 2.0)
    """

    name: ClassVar[str] = "node-record"
    keywords: ClassVar[frozenset[str]] = NodeUnit.keywords | {"out_degree_bound"}
    covers: ClassVar[str] = "the record of any one node: features, label and the edges that it declares"
    not_covered: ClassVar[str] = (
        "who is in the data, the split, edges that others declare towards the node, and the node's own "
        "prediction, which is for people authorized to access its features"
    )

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Raise an error: one record may have edges to all nodes, so a plain sum has no bound."""
        raise UnitError(
            "A sum over in-neighbors has no guarantee under unit 'node-record', because one node may "
            "have edges to all others. Use an OutEdgeSumQuery, which bounds the total weight of each "
            "node's out-edges."
        )


@dataclass(frozen=True)
class Person(NodeRecord):
    """One person: attributes, the label, and every row that the person owns, in every table.

    Neighboring data have the person's record, or attributes and a label that are null and no rows. The owner
    of a row is declared with the table. Rows that others own are part of their records.

    Args:
        replace_one: Whether neighboring datasets have two different records.

    >>> Person().change, Person(replace_one=True).change
    (1.0, 2.0)
    """

    name: ClassVar[str] = "person"
    keywords: ClassVar[frozenset[str]] = NodeUnit.keywords
    covers: ClassVar[str] = "any one person: attributes, label and every row that the person owns"
    not_covered: ClassVar[str] = (
        "who is in the data, the split, catalogs, rows that others own and that name the person, and the "
        "person's own prediction, which is for people authorized to access the person's record"
    )


@dataclass(frozen=True)
class Node(NodeUnit):
    """One node with its features, its label and every edge in which it takes part, in any graph.

    Neighboring graphs have the node's record, or features and label that are null and no edge of the node in
    either direction. Nothing is assumed about degrees: a noisy h-index of the degrees, which moves by at most
    one, bounds the effect of all later sums (``core/queries/projected_sums.py``).

    Args:
        replace_one: Whether neighboring datasets have two different nodes, with any edges each.

    >>> Node().change, Node(replace_one=True).change
    (1.0, 2.0)
    """

    name: ClassVar[str] = "node"
    covers: ClassVar[str] = "any one node with its features, its label and all its edges"
    not_covered: ClassVar[str] = (
        "who is in the data, the split, the node's own prediction, and its edges with people who see "
        "predictions that read their own lists of edges"
    )

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Raise an error: one node may be a neighbor of all others, so a plain sum has no bound."""
        raise UnitError(
            "A sum over neighbors has no guarantee under unit 'node', because one node may be a neighbor of "
            "all others. Use a DegreeHIndexQuery and then a ProjectedSumQuery."
        )


@dataclass(frozen=True)
class NodeBoundedDegree(NodeUnit):
    """One node with all its edges, given the data owner's assumption that no degree exceeds ``max_degree``.

    The node's own aggregate and prediction are not covered: only those authorized to access its record
    receive them.

    Args:
        max_degree: Maximum degree, asserted by the data owner.
        replace_one: Whether neighboring datasets have two different records.

    Raises:
        ConfigError: If ``max_degree`` is below 1.

    >>> NodeBoundedDegree(9).pair_sensitivity(1.0, 1.0)
    3.0
    """

    name: ClassVar[str] = "node-bounded-degree"
    keywords: ClassVar[frozenset[str]] = NodeUnit.keywords | {"max_degree"}
    covers: ClassVar[str] = (
        "any one node with all its edges, features and label, while the assumption about degrees is true"
    )
    not_covered: ClassVar[str] = "who is in the data, the split, and the node's own row and prediction"

    max_degree: int

    def __post_init__(self) -> None:
        checks.integer_at_least(1, max_degree=self.max_degree)

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Return sqrt(max_degree) times the larger change: a node is in at most that many aggregates."""
        return self.change * math.sqrt(self.max_degree) * max(forward, backward)


@dataclass(frozen=True)
class LocalAttributes(Unit):
    """The features and the label of each node, randomized on the client. Edges are public.

    The two have separate budgets (``eps_x``, ``eps_y``), which add up for one record.

    >>> LocalAttributes().pair_sensitivity(1.0, 1.0)
    Traceback (most recent call last):
    graphveil.errors.UnitError: unit 'local-attributes' randomizes the record of each node before any \
aggregation, so sums of LDP reports need no further noise
    """

    name: ClassVar[str] = "local-attributes"
    level: ClassVar[Level] = "local"
    delta_cap: ClassVar[float] = 1e-10
    covers: ClassVar[str] = "each node's own features and label, randomized before they leave the node"
    not_covered: ClassVar[str] = (
        "edges, identities, the split, and test labels, which are used in the clear for the test score"
    )

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Raise: edges are public under this unit."""
        raise UnitError(
            "unit 'local-attributes' randomizes the record of each node before any aggregation, so "
            "sums of LDP reports need no further noise"
        )


@dataclass(frozen=True)
class EdgeSubset(Unit):
    """One node pair from a public list of nodes, without a public edge: whether it is a private edge.

    The public edges and the list define these pairs. Both are given, and never read from the edges.

    >>> EdgeSubset().pair_sensitivity(1.0, 1.0)
    Traceback (most recent call last):
    graphveil.errors.UnitError: unit 'edge-subset' supports perturbed graphs only, because sums over \
neighbors mix public and private edges. Use unit 'undirected-edge' for sums.
    """

    name: ClassVar[str] = "edge-subset"
    level: ClassVar[Level] = "edge"
    delta_cap: ClassVar[float] = 1e-7
    covers: ClassVar[str] = "the presence of any one edge between listed nodes that is not a public edge"
    not_covered: ClassVar[str] = (
        "public edges, the list of nodes that may have private ones, who is in the data, features, labels"
    )

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Raise an error: only graphs are released under this unit."""
        raise UnitError(
            "unit 'edge-subset' supports perturbed graphs only, because sums over neighbors mix "
            "public and private edges. Use unit 'undirected-edge' for sums."
        )


@dataclass(frozen=True)
class NoUnit(Unit):
    """No protection at all: the non-private reference."""

    name: ClassVar[str] = "none"
    level: ClassVar[Level] = "none"
    delta_cap: ClassVar[float] = 1.0
    covers: ClassVar[str] = "nothing"
    not_covered: ClassVar[str] = "everything"

    def pair_sensitivity(self, forward: float, backward: float) -> float:
        """Return infinity: nothing bounds an unprotected change."""
        return math.inf


UNITS: dict[str, type[Unit]] = {
    unit.name: unit
    for unit in (
        UndirectedEdge,
        DirectedEdge,
        Row,
        Node,
        NodeRecord,
        Person,
        NodeBoundedDegree,
        LocalAttributes,
        EdgeSubset,
        NoUnit,
    )
}


def is_node_level(name: str | None) -> bool:
    """Return whether a name is that of a node-level privacy unit.

    >>> [is_node_level(name) for name in ("node", "node-record", "undirected-edge", None)]
    [True, True, False, False]
    """
    return name is not None and name in UNITS and UNITS[name].level == "node"


@checked
def parse_unit(name: str | None, *, replace_one: bool = False, max_degree: int | None = None) -> Unit:
    """Return the privacy unit with a name; an unknown name is an error with the choices.

    Args:
        name: Name of the unit.
        replace_one: For node-level privacy units: whether neighboring datasets have another record in place
            of a null record.
        max_degree: Maximum degree that the data owner asserts, for ``node-bounded-degree``.

    Returns:
        The unit.

    Raises:
        UnitError: If the name is missing or unknown, or an argument does not fit the unit.

    >>> parse_unit("undirected-edge")
    UndirectedEdge()
    """
    if name is None:
        raise UnitError(
            "unit is missing, and there is no default privacy unit. Pass unit= (--unit), one of "
            f"{', '.join(UNITS)}."
        )
    if name not in UNITS:
        raise UnitError(_unknown_unit(name))
    records = {unit.name: unit for unit in (Node, NodeRecord, Person)}
    if name in records:
        return records[name](replace_one=replace_one)
    if name == NodeBoundedDegree.name:
        if max_degree is None:
            raise UnitError(
                "unit 'node-bounded-degree' needs a maximum degree, which the data owner asserts. Pass "
                "max_degree=10 (--max-degree 10), or use unit 'node', which needs no such assumption."
            )
        return NodeBoundedDegree(replace_one=replace_one, max_degree=max_degree)
    if replace_one:
        why = "compares any two already" if name == LocalAttributes.name else "protects none"
        raise UnitError(f"replace_one applies to node records, but unit {name!r} {why}. Omit it.")
    return UNITS[name]()


_CANDIDATES = {
    "node": {
        "node": "a node's features, label and all its edges",
        "node-record": "a node's features, label and out-edges",
        "node-bounded-degree": "a node with all its edges, if no degree exceeds a bound",
        "person": "a person with all own rows, in several tables",
        "local-attributes": "features and labels that each node perturbs, not edges",
    },
    "edge": {
        "undirected-edge": "one edge in both directions",
        "directed-edge": "one stored edge in one direction",
        "row": "one row of one of several tables",
        "edge-subset": "edges between listed nodes, next to public edges",
    },
}
_MEANINGS = {
    "node": ("node", "user", "person", "people", "record", "vertex", "vertices"),
    "edge": ("edge", "link"),
}


def _unknown_unit(name: object) -> str:
    """Return the message for an unknown unit. It never suggests ``none``, which protects nothing."""
    text = str(name).lower()
    protecting = [unit for unit in UNITS if unit != NoUnit.name]
    near = suggestion(text, protecting, least=0.8)
    if near:
        return f"unit={name!r} is not a privacy unit{near}"
    kinds = [kind for kind, words in _MEANINGS.items() if any(word in text for word in words)]
    kinds = kinds or [kind for kind in _CANDIDATES if suggestion(text, [kind])] or list(_CANDIDATES)
    listed = [f"{unit!r} ({what})" for kind in kinds for unit, what in _CANDIDATES[kind].items()]
    choices = "; ".join(listed) if len(kinds) == 1 else ", ".join(protecting)
    return f"unit={name!r} is not a privacy unit. Choose one of: {choices}."
