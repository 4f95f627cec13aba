"""A graph on its way to another process, with word of whose budget it asks.

An edge set cannot be pickled, because its budget would not go with it. Whoever sends a graph like this
answers for that: the ledger of each edge set stays where it is, and the other process asks it there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.data.adjacency import Adjacency
from graphveil.data.graph import Graph
from graphveil.data.identity import EdgeSet
from graphveil.data.public_part import PublicPart
from graphveil.errors import GraphError

_APART = ("adjacency", "public")  # the fields of a graph that hold edges


@dataclass(frozen=True, repr=False)
class SerializedEdges:
    """In-edges as arrays. The edge set of what is made of them is a new one of the same name."""

    arrays: tuple[npt.NDArray[Any], ...]
    directed: bool
    max_weight: float | None
    name: str
    released: str

    @classmethod
    def from_adjacency(cls, edges: Adjacency) -> SerializedEdges:
        """Take the arrays.

        Raises:
            GraphError: the graph has grown, and has several budgets.
        """
        if edges.history or len(edges.edge_set.parts) > 1:
            raise GraphError(
                "a graph that has grown has a budget for each of its parts, and is not sent to other "
                "processes; use one job, or build the graph with all its edges"
            )
        arrays = tuple(part.numpy() for part in edges.arrays)
        return cls(arrays, edges.directed, edges.max_weight, edges.edge_set.id, edges.edge_set.released)

    def restored(self) -> Adjacency:
        """Return the edges."""
        rows = map(torch.from_numpy, self.arrays)
        return Adjacency(
            next(rows),
            next(rows),
            self.directed,
            EdgeSet(self.name, released=self.released),
            weights=next(rows, None),
            max_weight=self.max_weight,
        )


@dataclass(frozen=True, repr=False)
class SerializedGraph:
    """The fields of a graph, tensors as arrays.

    >>> from graphveil.data import synthetic
    >>> graph = synthetic("tiny")
    >>> again = SerializedGraph.from_graph(graph).restored()
    >>> again.edge_set.id == graph.edge_set.id, again.edge_set is graph.edge_set
    (True, False)
    """

    plain: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]
    edges: SerializedEdges
    public: tuple[SerializedEdges, npt.NDArray[np.bool_]] | None

    @classmethod
    def from_graph(cls, graph: Graph) -> SerializedGraph:
        """Take a graph apart.

        Raises:
            GraphError: it has grown.
        """
        held = {one.name: getattr(graph, one.name) for one in fields(graph) if one.name not in _APART}
        return cls(
            {name: value for name, value in held.items() if not isinstance(value, Tensor)},
            {name: value.numpy() for name, value in held.items() if isinstance(value, Tensor)},
            SerializedEdges.from_adjacency(graph.adjacency),
            None
            if graph.public is None
            else (SerializedEdges.from_adjacency(graph.public.edges), graph.public.private_nodes.numpy()),
        )

    def restored(self) -> Graph:
        """Return the graph."""
        tensors: dict[str, Any] = {name: torch.from_numpy(value) for name, value in self.tensors.items()}
        public = None
        if self.public is not None:
            public = PublicPart(self.public[0].restored(), torch.from_numpy(self.public[1]))
        return Graph(**self.plain, **tensors, adjacency=self.edges.restored(), public=public)
