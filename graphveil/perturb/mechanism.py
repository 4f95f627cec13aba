"""What graph-to-graph mechanisms have in common: a plan, and the slots of the graph that comes out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil import _check
from graphveil.errors import ConfigError
from graphveil.graph import Adjacency, EdgeSet, Graph
from graphveil.graph.recipes import about_edges
from graphveil.graph.slots import Slots
from graphveil.perturb.origin import origin_of
from graphveil.perturb.released import Perturbed
from graphveil.privacy import Guarantee, Unit, ledger_of, parse_unit
from graphveil.release import Query, Release, ReleaseKey, ReleasePlan

MAX_EDGES = 20_000_000
SEEDED = "the noise is reproducible from a seed"


@dataclass(frozen=True, kw_only=True)
class GraphMechanism(ABC):
    """A mechanism that reads a graph's edges once and leaves a whole noisy graph; its fields are public.

    Args:
        epsilon: of one edge, for everything that is asked.
        max_edges: the most edges that may be expected to come out; a larger graph is refused beforehand.
    """

    name: ClassVar[str]

    epsilon: float
    max_edges: int = MAX_EDGES

    def __post_init__(self) -> None:
        """Check every field."""
        _check.positive(epsilon=self.epsilon)
        _check.integer_at_least(1, max_edges=self.max_edges)

    @abstractmethod
    def queries(self) -> tuple[Query, ...]:
        """Return what is asked, in order."""

    @abstractmethod
    def expected_edges(self, slots: Slots) -> float:
        """Return the public part of the expected number of edges: what noise alone adds."""

    @abstractmethod
    def ask(self, release: Release, slots: Slots) -> Tensor:
        """Ask everything, and return the slots that are edges afterwards, int64, ascending."""

    @abstractmethod
    def facts(self, slots: Slots) -> list[tuple[str, str]]:
        """Return what is shown before anything is spent: names and values, from public numbers alone."""

    def plan(self, unit: Unit) -> ReleasePlan:
        """Return the release, whose noise is bounded and needs no delta."""
        return ReleasePlan(unit, self.queries(), delta=0.0)

    def check(self, graph: Graph, unit: Unit) -> None:
        """Refuse what cannot be released, from public facts alone, before anything is spent.

        Raises:
            ConfigError: noise alone is expected to add more edges than ``max_edges``, or edges have weights.
            UnitError: the unit is not that of the graph's edges.
        """
        for query in self.queries():
            query.event(unit)
            query.check_unit(unit, directed=graph.directed)
        self.check_size(Slots(graph.num_nodes, graph.directed))

    def check_size(self, slots: Slots) -> None:
        """Refuse a release that would be too large to keep, from public numbers alone."""
        expected = self.expected_edges(slots)
        if expected > self.max_edges:
            raise ConfigError(
                f"{self.name} at epsilon {self.epsilon:g} is expected to add {expected:,.0f} edges to a "
                f"graph of {slots.nodes:,} nodes, more than max_edges={self.max_edges:,}; raise max_edges "
                "(--max-edges) if there is room for them, or ask for a larger epsilon"
            )

    def guarantee(self, graph: Graph, unit: Unit, *, seeded: bool = False) -> Guarantee:
        """Return what the released graph promises, before anything is asked; public facts alone are read."""
        plan = self.plan(unit)
        return Guarantee.of(
            unit,
            plan.event,
            delta=plan.delta,
            releases=len(plan.queries),
            deviations=(*graph.deviations, *((SEEDED,) if seeded else ())),
            notes=tuple(note for note in graph.notes if about_edges(note)),
            graph=True,
        )


def release_graph(
    graph: Graph, mechanism: GraphMechanism, unit: str | None, *, unsafe_noise_seed: int | None = None
) -> Perturbed:
    """Book a mechanism's release on a graph's edges, ask it, and return the noisy graph with its guarantee.

    Features, labels and the split stay as they are: they are public under units of edges.
    """
    protected, slots = parse_unit(unit), Slots(graph.num_nodes, graph.directed)
    mechanism.check(graph, protected)
    guarantee = mechanism.guarantee(graph, protected, seeded=unsafe_noise_seed is not None)
    key = None if unsafe_noise_seed is None else ReleaseKey.from_seed(unsafe_noise_seed, mechanism.name)
    release = Release(
        mechanism.plan(protected),
        graph.adjacency,
        budget=ledger_of(graph.edge_set),
        key=key,
        label=mechanism.name,
    )
    found = mechanism.ask(release, slots)
    release.close()
    origin = origin_of(guarantee, mechanism.name, release.release_id)
    return Perturbed(graph.replace(adjacency=adjacency_of(found, slots, origin)), guarantee)


def adjacency_of(found: Tensor, slots: Slots, origin: str) -> Adjacency:
    """Return slots as in-edges, whose edge set says where they come from.

    >>> edges = adjacency_of(torch.tensor([0, 4]), Slots(4, directed=False), "")
    >>> edges.edge_index()
    tensor([[1, 0, 3, 1],
            [0, 1, 1, 3]])
    """
    source, target = slots.ends(found.numpy())
    return Adjacency.from_edges(
        source.astype(np.int32),
        target.astype(np.int32),
        num_nodes=slots.nodes,
        directed=slots.directed,
        edge_set=EdgeSet(released=origin),
    )


def as_slots(edges: Adjacency) -> Tensor:
    """Return the slots of public edges, ascending."""
    source, target = (part.numpy() for part in edges.edge_index())
    slots = Slots(edges.num_nodes, edges.directed)
    if not edges.directed:
        source, target = source[source < target], target[source < target]
    return torch.from_numpy(np.sort(slots.number(source, target)))
