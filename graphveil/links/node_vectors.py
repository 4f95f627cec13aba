"""Public vectors of nodes from their features, for products over edges."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.data import Graph
from graphveil.errors import GraphError
from graphveil.estimators.features.scaling import FeatureScaling

Floats = npt.NDArray[np.float64]

_BAG = 0.5  # share of nonzero features up to which features are counts or sets, which are weighted by rarity
_ROUNDS = 4  # of the subspace iteration
_EXTRA = 16  # columns of the iteration beyond those that are kept
_ROWS = 1 << 16  # rows per chunk


def node_vectors(view: Graph, dim: int, rng: np.random.Generator) -> Tensor:
    """Return L2-normalized vectors of at most ``dim`` columns, float32 (N, d).

    Features that are sets, counts or TF-IDF weights (at most half of them nonzero, none negative) are
    multiplied by inverse document frequencies. Other columns are standardized. A truncated singular value
    decomposition reduces the columns. A graph without features uses one-hot labels.

    Privacy:
        Reads features and labels only, which are public under edge-level units.

    >>> from graphveil.data import synthetic
    >>> vectors = node_vectors(synthetic("tiny"), 4, np.random.default_rng(0))
    >>> vectors.shape[1], bool((vectors.norm(dim=1) <= 1).all())
    (4, True)
    """
    x = _columns(view)
    factors = _right_vectors(x, min(dim, x.shape[0]), rng) if x.shape[1] > dim else ()
    out = torch.empty((x.shape[0], factors[-1].shape[1] if factors else x.shape[1]), dtype=torch.float32)
    for first in range(0, x.shape[0], _ROWS):
        some = x[first : first + _ROWS]
        for factor in factors:
            some = np.asarray(some @ factor)
        some = _dense(some)
        length = np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-12)
        out[first : first + _ROWS] = torch.from_numpy(some / (length * (1 + 1e-6)))
    return out


def vector_width(view: Graph, dim: int) -> int:
    x = _features(view)
    columns = int((_one_hot(view) if x is None else x).shape[1])
    return columns if columns <= dim else min(dim, view.num_nodes)


def _features(view: Graph) -> Any:
    x = FeatureScaling.from_public_features(view.x).apply(view.x)
    return None if isinstance(x, Tensor) and bool((x == x[:1]).all()) else x


def _one_hot(view: Graph) -> Floats:
    known = view.y.numpy()
    if not (known >= 0).any():
        raise GraphError(
            "All nodes have the same features and no labels, so their pairs cannot be told apart. "
            "Pass features (--features) or public labels (--label): Graph.from_edges(x=..., y=...). "
            "No privacy budget was spent."
        )
    rows: Floats = np.eye(view.num_classes)[known] * (known >= 0)[:, None]
    return rows


def _columns(view: Graph) -> Any:
    x = _features(view)
    if x is None:
        return _one_hot(view)
    values: Any = x.numpy() if isinstance(x, Tensor) else x
    stored: npt.NDArray[np.float32] = values if isinstance(x, Tensor) else values.data
    if np.count_nonzero(stored) > _BAG * view.num_nodes * view.num_features or (stored < 0).any():
        dense: npt.NDArray[np.float32] = values.copy() if isinstance(x, Tensor) else values.toarray()
        mean, total = dense.mean(axis=0, dtype=np.float64), np.zeros(dense.shape[1])
        for first in range(0, len(dense), _ROWS):
            total += np.square(dense[first : first + _ROWS] - mean).sum(axis=0)
        spread = np.sqrt(total / len(dense))
        dense -= mean.astype(np.float32)
        dense /= np.where(spread > 0, spread, 1.0).astype(np.float32)
        return dense
    counted: Any = sparse.csr_array(values)
    counted.eliminate_zeros()
    known_in = np.bincount(counted.indices, minlength=counted.shape[1])
    rarity = np.log((1 + counted.shape[0]) / (1 + known_in)) + 1
    data = counted.data * rarity[counted.indices]
    rows = np.repeat(np.arange(counted.shape[0]), np.diff(counted.indptr))
    data /= np.maximum(np.sqrt(np.bincount(rows, data**2, counted.shape[0])), 1e-12)[rows]
    return sparse.csr_array((data, counted.indices, counted.indptr), shape=counted.shape)


def _right_vectors(x: Any, dim: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return two factors whose product has the leading right singular vectors, by subspace iteration."""
    width = min(dim + _EXTRA, *x.shape)
    chunks = [slice(first, first + _ROWS) for first in range(0, x.shape[0], _ROWS)]
    basis = np.linalg.qr(rng.normal(size=(x.shape[1], width)))[0]
    for _ in range(_ROUNDS):
        basis = np.linalg.qr(sum(np.asarray(x[some].T @ (x[some] @ basis)) for some in chunks))[0]
    images = (np.asarray(x[some] @ basis) for some in chunks)
    square: Floats = sum((image.T @ image for image in images), np.zeros((width, width)))
    return basis, np.linalg.eigh(square)[1][:, ::-1][:, :dim]


def _dense(x: Any) -> Floats:
    return np.asarray(x if isinstance(x, np.ndarray) else x.toarray(), dtype=np.float64)
