"""How a graph grew: each step as a graph of its own, for whoever answers step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from graphveil.data import features, growth
from graphveil.data.adjacency import GrowthStep
from graphveil.data.graph import Graph
from graphveil.data.identity import AdjacencyVersion


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """One step as a graph: all nodes up to then, with the edges alone that the step added.

    ``version`` is the one after the step.
    """

    step: GrowthStep
    version: AdjacencyVersion
    graph: Graph

    def __repr__(self) -> str:
        """Show public sizes only."""
        return f"Batch({self.step.base_nodes} to {self.graph.num_nodes} nodes)"


def batches(graph: Graph) -> Iterator[Batch]:
    """Yield the steps in which a graph grew, oldest first.

    >>> pair = Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False)
    >>> list(batches(pair.grow([[1.0, 1.0]], None, [2], [0])))
    [Batch(2 to 3 nodes)]
    """
    steps = graph.adjacency.history
    after = [*(step.base for step in steps), graph.adjacency.version][1:]
    for step, version in zip(steps, after, strict=True):
        count = step.added.num_nodes  # later steps brought the nodes beyond, which nobody knew of then
        until = graph.replace(
            x=features.rows(graph.x, torch.arange(count)),
            y=graph.y[:count],
            adjacency=step.added,
            ids=None if graph.ids is None else graph.ids[:count],
            **growth.masks_over(graph.masks, count),
        )
        yield Batch(step, version, until)
