"""Features as an attacker sends them: float64, an array or a SciPy csr_array."""

from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil.data import Graph
from graphveil.lab.attacks.roc import Floats
from graphveil.nn.layers import Batch, SparseRows

Matrix: TypeAlias = Any  # a float64 array or csr_array, (N, d)


def is_sparse(x: Matrix) -> bool:
    """Return whether a matrix stores its non-zero entries alone."""
    return bool(sparse.issparse(x))


def as_float64(x: Matrix) -> Matrix:
    """Return a matrix in float64, in compressed rows if it is sparse."""
    if is_sparse(x):
        return x.tocsr().astype(np.float64)
    rows = checks.fitting("x", x, Floats)
    checks.shape((-1, -1), x=rows)
    return rows


def features_of(graph: Graph) -> Matrix:
    """Return a graph's features in float64."""
    return as_float64(graph.x)


def dense_rows(x: Matrix, nodes: Any) -> Floats:
    """Return some rows as a float64 array."""
    rows = as_float64(x)
    checks.places(rows.shape[0], nodes=nodes)
    return np.asarray(rows[nodes].toarray() if is_sparse(x) else rows[nodes], dtype=np.float64)


def with_row(x: Matrix, node: int, row: Floats) -> Matrix:
    """Return a matrix with another row of one node."""
    if not is_sparse(x):
        changed = x.copy()
        changed[node] = row
        return changed
    start, stop = x.indptr[node : node + 2]
    places = np.flatnonzero(row)
    if not np.array_equal(places, x.indices[start:stop]):
        stacked: Any = sparse.vstack([x[:node], sparse.csr_array(row[None]), x[node + 1 :]])
        return stacked.tocsr()
    data = x.data.copy()
    data[start:stop] = row[places]
    parts: Any = (data, x.indices, x.indptr)
    return sparse.csr_array(parts, shape=x.shape)


def float64_batch(x: Matrix) -> Batch:
    """Return features as a network's input, in float64."""
    x = as_float64(x)
    if not is_sparse(x):
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))
    columns, offsets = (torch.from_numpy(part.astype(np.int32)) for part in (x.indices, x.indptr))
    values = torch.from_numpy(np.asarray(x.data, dtype=np.float64))
    return SparseRows(columns, values, offsets, int(x.shape[1]))
