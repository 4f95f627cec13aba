"""What queries have in common whose noise is no Gaussian: each bounds the loss of one edge by its epsilon."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.data.blocks import EdgeBlock
from graphveil.data.domain import Domain
from graphveil.data.node_pairs import Integers
from graphveil.errors import ReleaseError, UnitError
from graphveil.privacy import ApproximateDP, DirectedEdge, EdgeSubset, UndirectedEdge, Unit
from graphveil.release.query import PreparedData, PublicInputs, Query, QueryData

_ROWS, _EDGES = 1 << 12, 1 << 19  # of a block at a time


@dataclass(frozen=True, eq=False, repr=False)
class NodePairData(QueryData[Tensor]):
    """Which slots are asked, and a public number, which may follow from earlier answers of the release."""

    domain: Domain
    number: float = 1.0


@dataclass(frozen=True, eq=False, repr=False)
class PreparedNodePairs(PreparedData):
    """Slots that fit the graph."""

    domain: Domain
    number: float


def in_chunks(edges: EdgeBlock) -> Iterator[EdgeBlock]:
    """Yield a block in pieces: what is made of each stays in the cache."""
    return edges.pieces(_ROWS, _EDGES)


def concatenate_chunks(edges: EdgeBlock, drawn: Callable[[EdgeBlock], Integers]) -> Tensor:
    """Return what is drawn of a block, one piece after the other."""
    parts = [drawn(piece) for piece in in_chunks(edges)]
    return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


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
        checks.positive(epsilon=self.epsilon)

    def event(self, unit: Unit) -> ApproximateDP:
        """Return the bound.

        Raises:
            UnitError: under a unit of records, of which one may have an edge to everybody.
        """
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon)

    def sensitivity(self, unit: Unit) -> float:
        """Return 1: one edge, one slot."""
        if not isinstance(unit, UndirectedEdge | DirectedEdge | EdgeSubset):
            raise UnitError(
                f"a released graph has no bound under unit {unit.name!r}: one record may have an edge to "
                "everybody; protect edges, with 'undirected-edge', 'directed-edge' or 'edge-subset'"
            )
        return 1.0

    def changed(self, unit: Unit) -> int:
        """Return 1: one edge, one slot."""
        return 1

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Refuse friendships stored as directed edges, and stored edges that are two to a friendship."""
        if directed and isinstance(unit, UndirectedEdge | EdgeSubset):
            raise UnitError(
                f"unit {unit.name!r} protects friendships, and this graph stores directed edges: one "
                "that is stored twice would be two slots; use unit 'directed-edge', or directed=False"
            )
        if not directed and isinstance(unit, DirectedEdge):
            raise UnitError(
                "this graph is undirected, so a slot is a friendship and not one stored edge; use unit "
                "'undirected-edge'"
            )

    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        """Check that the slots are those of the graph."""
        if len(data.domain.rank) != public.num_nodes:
            raise ReleaseError(
                f"the slots are of {len(data.domain.rank)} nodes and the graph has {public.num_nodes}; the "
                "release stays charged"
            )
        self.check_number(data.number)
        number = torch.tensor([data.number], dtype=torch.float64)
        return PreparedNodePairs(public, (*data.domain.arrays, number), data.domain, data.number)

    def check_number(self, number: float) -> None:
        """Refuse a public number that the query cannot use."""
        return  # not all use one

    @property
    def groups(self) -> int:
        """Return 1: all slots are alike."""
        return 1

    @property
    def contribution_steps(self) -> float:
        """Return infinity: there is no grid."""
        return float("inf")

    @property
    def min_noise_steps(self) -> float:
        """Return infinity: there is no grid."""
        return float("inf")

    @property
    def max_noise_steps(self) -> float:
        """Return 0: the plan's sampler draws nothing."""
        return 0.0

    @property
    def linear_group_scaling(self) -> bool:
        """Return True: a person's k edges cost k times one."""
        return True
