"""A graph that grows: nodes are appended, and edges come with them. Works on the fields of a graph.

The new edges are a set of their own, with a budget of their own: each has an end that was not there before,
so no earlier answer can have told about it. What the graph was before each step stays known by its version,
so that answers about it can be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import pad

from graphveil.data import features
from graphveil.data.adjacency import Adjacency, GrowthStep, Ids
from graphveil.data.features import Features
from graphveil.data.identity import EdgeSet
from graphveil.errors import GraphError


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
    # Earlier answers, under the old budget, already depend on whether two old nodes are joined.
    if _has_old_edges(added, old):
        raise GraphError(
            "a new edge joins two nodes that were there before, and a graph grows by edges of its new nodes "
            "only; build a graph that has all edges instead, whose predictions are a release of their own"
        )
    # A set that the caller named may hold old edges elsewhere, so nothing can be said of it.
    apart = adjacency.edge_set.parts if edge_set is None else ()
    # The two share no entry, each new one having a new end, so that their sum adds up no two weights.
    matrix = _pattern(adjacency, num_nodes) + _pattern(added, num_nodes)
    whole = EdgeSet(parts=(adjacency.edge_set, added.edge_set))
    history = (*adjacency.history, GrowthStep(adjacency.version, old, added, apart))
    return Adjacency._from_matrix(matrix, adjacency.directed, whole, bound, history)


def new_features(x: Features, more: object) -> Features:
    """Return the new nodes' features, which must have the columns of the old ones."""
    rows = features.as_features(more)
    if rows.shape[1] != x.shape[1]:
        raise GraphError(
            f"the new nodes have {rows.shape[1]} features and the graph {x.shape[1]}; give them the "
            "same columns"
        )
    return rows


def new_labels(y: Tensor | None, count: int) -> Tensor:
    """Return the new nodes' labels: -1 everywhere if none are given."""
    labels = torch.full((count,), -1) if y is None else y
    if len(labels) != count:
        raise GraphError(f"{len(labels)} labels for {count} new nodes; give one each, or None for no labels")
    return labels


def all_ids(
    old: npt.NDArray[Any] | None, new: npt.NDArray[Any] | None, count: int
) -> npt.NDArray[Any] | None:
    """Return the ids of old and new nodes, no two alike; None where the graph has none."""
    if old is None and new is None:
        return None
    if old is None or new is None or len(new) != count:
        raise GraphError("give ids= for the new nodes, one each, if the graph has ids, and none otherwise")
    both = np.concatenate([old, np.asarray(new)])
    if len(np.unique(both)) < len(both):
        raise GraphError("ids= repeats an id; every node, old or new, needs its own")
    return both


def masks_over(masks: Mapping[str, Tensor], count: int) -> dict[str, Tensor]:
    """Return the split of the first ``count`` nodes; those that it does not reach are in no part of it."""
    return {
        name: pad(mask[:count], (0, max(0, count - len(mask))), value=False) for name, mask in masks.items()
    }


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
