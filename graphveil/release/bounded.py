"""What queries have in common whose noise is no Gaussian: each bounds the loss of one edge by its epsilon."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil import _check
from graphveil.errors import UnitError
from graphveil.privacy import ApproximateDP, DirectedEdge, UndirectedEdge, Unit
from graphveil.release.query import Query


@dataclass(frozen=True)
class BoundedQuery(Query):
    """A query about edges whose answer is epsilon-indistinguishable, with exact noise of its own.

    It has no grid of vectors and takes none of the plan's sampler, so nothing of delta is set aside for it.
    """

    exact_noise: ClassVar[bool] = True
    sampled: ClassVar[bool] = False

    epsilon: float

    def __post_init__(self) -> None:
        """Check the budget."""
        _check.positive(epsilon=self.epsilon)

    def event(self, unit: Unit) -> ApproximateDP:
        """Return the bound.

        Raises:
            UnitError: under a unit of records, of which one may have an edge to everybody.
        """
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon)

    def sensitivity(self, unit: Unit) -> float:
        """Return 1: one edge, one slot."""
        if not isinstance(unit, UndirectedEdge | DirectedEdge):
            raise UnitError(
                f"a released graph has no bound under unit {unit.name!r}: one record may have an edge to "
                "everybody; protect edges, with 'undirected-edge' or 'directed-edge'"
            )
        return 1.0

    def changed(self, unit: Unit) -> int:
        """Return 1: one edge, one slot."""
        return 1

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Refuse friendships stored as directed edges, and stored edges that are two to a friendship."""
        if directed and isinstance(unit, UndirectedEdge):
            raise UnitError(
                "unit 'undirected-edge' protects friendships, and this graph stores directed edges: one "
                "that is stored twice would be two slots; use unit 'directed-edge', or directed=False"
            )
        if not directed and isinstance(unit, DirectedEdge):
            raise UnitError(
                "this graph is undirected, so a slot is a friendship and not one stored edge; use unit "
                "'undirected-edge'"
            )

    @property
    def groups(self) -> int:
        """Return 1: all slots are alike."""
        return 1

    @property
    def finest(self) -> float:
        """Return infinity: there is no grid."""
        return float("inf")

    @property
    def narrowest(self) -> float:
        """Return infinity: there is no grid."""
        return float("inf")

    @property
    def widest(self) -> float:
        """Return 0: the plan's sampler draws nothing."""
        return 0.0

    @property
    def one_way(self) -> bool:
        """Return True: a person's k edges cost k times one."""
        return True
