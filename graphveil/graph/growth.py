"""A graph that grows: nodes are appended, and edges come with them.

The new edges are a set of their own, with a budget of their own: each has an end that was not there before,
so no earlier answer can have told about it. What the graph was before each step stays known by its version,
so that answers about it can be kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import pad

from graphveil.errors import GraphError
from graphveil.graph import features
from graphveil.graph.adjacency import Adjacency, EdgeSet, Ids, Version

if TYPE_CHECKING:
    from graphveil.graph.graph import Graph


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One step of growth: ``base`` was there before, and ``added`` are the new edges alone, over all nodes.

    Nodes below ``base_nodes`` were there before. ``apart`` are the edge sets that the new edges are known not
    to be in: those that were there before, unless the new edges came under a name that others may have, too.
    """

    base: Version
    base_nodes: int
    added: Adjacency
    apart: tuple[EdgeSet, ...] = ()

    def __repr__(self) -> str:
        """Show public sizes only."""
        return f"Step({self.base_nodes} to {self.added.num_nodes} nodes)"


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """One step as a graph: all nodes up to then, with the edges alone that the step added.

    ``version`` is the one after the step.
    """

    step: Step
    version: Version
    graph: Graph

    def __repr__(self) -> str:
        """Show public sizes only."""
        return f"Batch({self.step.base_nodes} to {self.graph.num_nodes} nodes)"


def grow_adjacency(
    adjacency: Adjacency,
    source: Ids,
    target: Ids,
    num_nodes: int,
    edge_set: EdgeSet | None = None,
    weight: object = None,
) -> Adjacency:
    """Return in-edges with more nodes and new edges, each of which has an end among the new nodes.

    Args:
        adjacency: what was there.
        source, target: the new edges, as :meth:`Adjacency.from_edges` takes them.
        num_nodes: the number of nodes, old and new.
        edge_set: the identity of the new edges; by default a new one.
        weight: the new edges' weights, if edges have any.

    Raises:
        GraphError: an edge joins two nodes that were there before.

    >>> pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=False)
    >>> grow_adjacency(pair, [2], [1], 3).edge_index()
    tensor([[1, 0, 2, 1],
            [0, 1, 1, 2]])
    """
    old = adjacency.num_nodes
    bound = adjacency.max_weight
    if bound is None and weight is not None:
        raise GraphError("the graph's edges have no weights, so new ones have none; leave weight= out")
    added = Adjacency.from_edges(
        source,
        target,
        num_nodes=num_nodes,
        directed=adjacency.directed,
        edge_set=edge_set,
        weight=weight,
        max_weight=bound,
    )
    if _has_old_edges(added, old):
        raise GraphError(
            "a new edge joins two nodes that were there before, and a graph grows by edges of its new nodes "
            "only; build a graph that has all edges instead, whose predictions are a release of their own"
        )
    apart = adjacency.edge_set.parts if edge_set is None else ()
    matrix = _pattern(adjacency, num_nodes) + _pattern(added, num_nodes)
    whole = EdgeSet(parts=(adjacency.edge_set, added.edge_set))
    history = (*adjacency.history, Step(adjacency.version, old, added, apart))
    return Adjacency._from_matrix(matrix, adjacency.directed, whole, bound, history)


def grow(
    graph: Graph,
    x: object,
    y: Tensor | None,
    source: Ids,
    target: Ids,
    *,
    ids: npt.NDArray[Any] | None,
    edge_set: EdgeSet | None,
    weight: object,
) -> Graph:
    """Return the graph with further nodes, which are in no part of the split; without any, itself."""
    more = features.as_features(x)
    if more.shape[1] != graph.num_features:
        raise GraphError(
            f"the new nodes have {more.shape[1]} features and the graph {graph.num_features}; give them the "
            "same columns"
        )
    count = more.shape[0]
    adjacency = grow_adjacency(graph.adjacency, source, target, graph.num_nodes + count, edge_set, weight)
    if not count:
        return graph  # no edge can have come, and there is nothing to ask
    masks = _masks(graph, graph.num_nodes + count)
    return graph.replace(
        x=features.stacked(graph.x, more),
        y=torch.cat([graph.y, _labels(y, count)]),
        adjacency=adjacency,
        ids=_all_ids(graph.ids, ids, count),
        **masks,
    )


def batches(graph: Graph) -> Iterator[Batch]:
    """Yield the steps in which a graph grew, oldest first.

    >>> from graphveil.graph import Graph
    >>> pair = Graph.from_edges(torch.eye(2), [0, 1], [0], [1], directed=False)
    >>> list(batches(pair.grow([[1.0, 1.0]], None, [2], [0])))
    [Batch(2 to 3 nodes)]
    """
    steps = graph.adjacency.history
    after = [*(step.base for step in steps), graph.adjacency.version][1:]
    for step, version in zip(steps, after, strict=True):
        count = step.added.num_nodes
        until = graph.replace(
            x=features.rows(graph.x, torch.arange(count)),
            y=graph.y[:count],
            adjacency=step.added,
            ids=None if graph.ids is None else graph.ids[:count],
            **_masks(graph, count),
        )
        yield Batch(step, version, until)


def _masks(graph: Graph, count: int) -> dict[str, Tensor]:
    """Return the split of the first ``count`` nodes; those beyond the graph's are in no part of it."""
    names = ("train_mask", "val_mask", "test_mask")
    masks = {name: mask for name in names if (mask := getattr(graph, name)) is not None}
    more = max(0, count - graph.num_nodes)
    return {name: pad(mask[:count], (0, more), value=False) for name, mask in masks.items()}


def _has_old_edges(added: Adjacency, old: int) -> bool:
    """Whether an edge joins two nodes that were there before: one row below ``old`` lists another."""
    return bool((added.indices[: int(added.indptr[old])] < old).any())


def _pattern(adjacency: Adjacency, num_nodes: int) -> Any:
    """Return a square matrix of weights, or of ones; nodes beyond those of the adjacency have empty rows."""
    beyond = num_nodes - adjacency.num_nodes
    indptr = np.pad(adjacency.indptr.numpy(), (0, beyond), mode="edge")
    plain = np.ones(len(adjacency.indices), dtype=np.bool_)
    entries = plain if adjacency.weights is None else adjacency.weights.numpy()
    return sparse.csr_array((entries, adjacency.indices.numpy(), indptr), shape=(num_nodes, num_nodes))


def _labels(y: Tensor | None, count: int) -> Tensor:
    """Return the new nodes' labels: -1 everywhere if none are given."""
    labels = torch.full((count,), -1) if y is None else y
    if len(labels) != count:
        raise GraphError(f"{len(labels)} labels for {count} new nodes; give one each, or None for no labels")
    return labels


def _all_ids(
    old: npt.NDArray[Any] | None, new: npt.NDArray[Any] | None, count: int
) -> npt.NDArray[Any] | None:
    if old is None and new is None:
        return None
    if old is None or new is None or len(new) != count:
        raise GraphError("give ids= for the new nodes, one each, if the graph has ids, and none otherwise")
    both = np.concatenate([old, np.asarray(new)])
    if len(np.unique(both)) < len(both):
        raise GraphError("ids= repeats an id; every node, old or new, needs its own")
    return both
