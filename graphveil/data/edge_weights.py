"""Weights of edges: checked, merged and cut to a public range, without a word about any of them."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil.errors import GraphError

Weighted = sparse.csr_array[np.float64]


def checked_weights(
    weight: Any, max_weight: float | None, edges: int
) -> tuple[npt.NDArray[np.float64], float] | None:
    """Return one weight per edge and the range's end, None if neither is given.

    Raises:
        GraphError: only one of the two is given, lengths differ, or a weight is negative or not finite.
    """
    if weight is None and max_weight is None:
        return None
    if weight is None or max_weight is None:
        raise GraphError(
            "edge weights need both the weights and max_weight= (--max-weight), a public bound that larger "
            "weights are cut to: it is what one edge may change"
        )
    check_max_weight(max_weight)
    try:
        values = np.asarray(weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise GraphError("edge weights must be numbers, one for each edge") from None
    if values.shape != (edges,):
        raise GraphError("edge weights must be a vector with one number for each edge")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise GraphError("edge weights must be finite and not negative; drop or shift the others")
    return values, float(max_weight)


def check_max_weight(max_weight: float | None) -> None:
    """Require the end of a public range of weights."""
    number = isinstance(max_weight, int | float | np.number) and not isinstance(max_weight, bool)
    if max_weight is None or not (number and np.isfinite(max_weight) and max_weight > 0):
        raise GraphError(f"max_weight={max_weight} must be a positive number")


def weighted_rows(
    tail: npt.NDArray[np.int32],
    head: npt.NDArray[np.int32],
    weight: npt.NDArray[np.float64],
    num_nodes: int,
    *,
    directed: bool,
    max_weight: float,
) -> Weighted:
    """Return the matrix of weights as shares of ``max_weight``: rows = targets, ascending columns = sources.

    An edge that is listed several times counts once, with its largest weight; an undirected one has that in
    both directions, whichever is listed. What passes ``max_weight`` is cut. Weight zero is no edge.
    """
    # Not the sum, so that how often an edge is listed changes neither its count nor its weight.
    order = np.lexsort((weight, tail, head))
    tail, head, weight = tail[order], head[order], weight[order]
    last = np.append((np.diff(head) != 0) | (np.diff(tail) != 0), np.ones(min(1, len(head)), dtype=bool))
    listed = sparse.coo_array((weight[last], (head[last], tail[last])), shape=(num_nodes, num_nodes))
    matrix: Any = listed.tocsr()
    if not directed:
        matrix = matrix.maximum(matrix.T.tocsr())
    # Shares of the bound, so that every row of a hop has the same bound, 1, whatever unit weights are in.
    matrix.data = np.minimum(matrix.data, max_weight) / max_weight
    # An edge of weight zero adds nothing to any sum, and must not be told from no edge by what is stored.
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return sparse.csr_array(matrix)
