"""What randomized features are propagated through: a public linear map of each graph, by frozen choices."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from graphveil._util import checks
from graphveil.data import Adjacency, Graph
from graphveil.estimators.session import Session
from graphveil.local.lpgnn.keywords import LpgnnKeywords
from graphveil.propagation import KProp, Propagation
from graphveil.propagation.kprop import AGGREGATORS, ISOLATED, Aggregator, Isolated


class PropagationConfig(ABC):
    """Makes the map of a graph that features are propagated by; it may read the public edges."""

    @abstractmethod
    def propagation(self, graph: Graph, session: Session) -> Propagation:
        """Return the map. It is asked for before anybody pays: it may turn out to be impossible."""

    def check(self) -> None:  # noqa: B027  # most need nothing that could be missing
        """Refuse what cannot be computed on this machine."""


@dataclass(frozen=True, kw_only=True)
class KPropConfig(PropagationConfig):
    """A fixed number of hops, see :class:`~graphveil.propagation.KProp`.

    >>> KPropConfig.from_keywords(LpgnnKeywords(), steps=2).steps
    2
    """

    steps: int
    aggregator: Aggregator
    self_loops: bool
    isolated: Isolated

    @classmethod
    def from_keywords(cls, given: LpgnnKeywords, steps: int) -> "KPropConfig":
        """Return so many hops by the keywords, checked."""
        checks.one_of(AGGREGATORS, aggregator=given.aggregator)
        checks.one_of(ISOLATED, isolated=given.isolated)
        checks.integer_at_least(0, x_steps=given.x_steps, y_steps=given.y_steps)
        return cls(
            steps=steps, aggregator=given.aggregator, self_loops=given.self_loops, isolated=given.isolated
        )

    def propagation(self, graph: Graph, session: Session) -> KProp:
        """Return the hops along a graph's edges."""
        return self.along(graph.adjacency)

    def along(self, adjacency: Adjacency) -> KProp:
        """Return the hops along some edges."""
        return KProp(
            adjacency=adjacency,
            steps=self.steps,
            aggregator=self.aggregator,
            self_loops=self.self_loops,
            isolated=self.isolated,
        )
