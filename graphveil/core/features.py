"""Node features: a dense float32 tensor, or a sparse float32 matrix when most entries are zero.

Queries read rows that are scaled to norm one: every sensitivity depends on that bound.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphveil._util.process import check_room
from graphveil.core.edges.csr import checked_matrix
from graphveil.errors import GraphError, InputError, ProtectedDataError

Sparse: TypeAlias = sparse.csr_array[np.float32]
Features: TypeAlias = Tensor | Sparse

_ENTRIES = 1 << 20  # that are looked at together


class ProtectedRows:
    """A handle of one row per node record: its shape is public, and only the core reads its values.

    >>> rows = ProtectedRows(torch.ones(4, 2), "node-record")
    >>> rows.shape, len(rows), rows.at(torch.tensor([0, 3])).shape
    (torch.Size([4, 2]), 4, torch.Size([2, 2]))
    >>> rows.sum()
    Traceback (most recent call last):
    graphveil.errors.ProtectedDataError: Unit 'node-record' protects node records, so they cannot be read \
here. Pass them to a query or to map_records, or use public sizes.
    """

    def __init__(self, rows: Any, unit: str, *, from_own_list: bool = False) -> None:
        self.shape, self.is_dense = rows.shape, isinstance(rows, Tensor)
        self.__rows, self._unit = rows, unit  # a mangled name: no line reads it by mistake
        self._from_own_list = from_own_list  # whether row v depends on edges that other nodes share

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        """Show the shape only."""
        return f"ProtectedRows({tuple(self.shape)})"

    def at(self, nodes: Tensor) -> ProtectedRows:
        """Return the handle of the rows of some public nodes, by a mask bool (N) or by indices int64."""
        chosen = nodes if self.is_dense else nodes.numpy()
        return ProtectedRows(self.__rows[chosen], self._unit, from_own_list=self._from_own_list)

    def _unwrap(self) -> Any:
        return self.__rows

    def _unwrap_queried(self) -> Any:
        """Return the rows for a query; reject those that depend on edges which are part of two records."""
        if self._from_own_list:
            raise ProtectedDataError(
                f"Under unit {self._unit!r} an edge is part of the records of both of its nodes, so no query "
                "may read rows that depend on a node's own list. Use them for that node's prediction only."
            )
        return self._unwrap()

    def _refuse(self, *_: object) -> NoReturn:
        raise ProtectedDataError(
            f"Unit {self._unit!r} protects node records, so they cannot be read here. Pass them to a query "
            "or to map_records, or use public sizes."
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    __getitem__ = __iter__ = __eq__ = __ne__ = __reduce_ex__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __mul__ = __matmul__ = __bool__ = __array__ = _refuse
    __hash__ = None  # type: ignore[assignment]  # equality raises


def as_features(x: Any) -> Features:
    """Convert a numeric matrix to features: tensors and arrays become dense, SciPy matrices sparse.

    >>> as_features([[1, 2], [3, 4]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    features = _sparse(x) if sparse.issparse(x) else _dense(x)
    if not is_finite(features):
        raise GraphError(
            "The features contain values that are NaN, infinite or too large for float32. No bound "
            "is valid for such values. Fill or drop them before you build the graph."
        )
    return features


def is_finite(x: Features) -> bool:
    values = torch.from_numpy(x.data) if isinstance(x, sparse.csr_array) else x
    # A sum is finite exactly if its terms are (float32 terms cannot overflow float64), and needs no flags.
    # Torch makes a float64 copy first, so it is made of some at a time.
    at_once = max(1, _ENTRIES // max(1, values[:1].numel()))
    parts = (values[first : first + at_once] for first in range(0, len(values), at_once))
    return all(bool(torch.isfinite(part.sum(dtype=torch.float64))) for part in parts)


def rows(x: Any, index: Tensor) -> Any:
    """Return the chosen rows of features, dense, sparse or a handle as before.

    Args:
        index: Mask bool (N), or positions int64.

    Privacy:
        Reads: the features, exactly. Charges: nothing. The result is private.

    >>> rows(torch.eye(3), torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    if isinstance(x, ProtectedRows):
        return x.at(index)
    if isinstance(x, Tensor):
        return x[index]
    return x[index.numpy()]


def stacked(x: Features, below: Features) -> Features:
    """Return the rows of both matrices, stacked, in the format of the first.

    >>> stacked(torch.eye(2), torch.tensor([[5.0, 6.0]]))
    tensor([[1., 0.],
            [0., 1.],
            [5., 6.]])
    """
    if isinstance(x, Tensor):
        return torch.cat([x, to_dense(below)])
    return _sparse(sparse.vstack([x, sparse.csr_array(below)]))


def to_dense(x: Features) -> Tensor:
    """Return the features as a dense float32 tensor; dense ones are returned unchanged.

    Privacy:
        Reads: the features, exactly. Charges: nothing. The result is private.

    >>> to_dense(sparse.csr_array(np.eye(2, dtype=np.float32)))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if isinstance(x, Tensor):
        return x
    check_room(
        4.0 * x.shape[0] * x.shape[1],
        f"{x.shape[1]:,} features of {x.shape[0]:,} nodes, most of them not zero or all requested,",
        "leave some out, or hash them into fewer columns",
    )
    return torch.from_numpy(x.toarray())


def _sparse(x: Any) -> Sparse:
    rows = checked_matrix(x).tocsr()
    with np.errstate(over="ignore"):  # an overflow becomes infinite, which is rejected above
        values = rows.data.astype(np.float32, copy=False)
    # Rebuilt, because a matrix's own flags may be wrong.
    matrix: Sparse = sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # the caller's arrays stay as they are
        matrix.sum_duplicates()
    return matrix


def _dense(x: Any) -> Tensor:
    try:
        with np.errstate(over="ignore"):  # an overflow becomes infinite, which is rejected above
            tensor = x if isinstance(x, Tensor) else torch.from_numpy(np.require(x, np.float32, "W"))
    except (TypeError, ValueError):
        raise GraphError(
            "The features are not a matrix of numbers. Encode text and categories as numbers."
        ) from None
    if tensor.ndim != 2:
        raise GraphError(
            f"Features must be a matrix with one row per node, but they have {tensor.ndim} dimension(s)."
        )
    if tensor.layout is not torch.strided or tensor.is_complex():
        raise GraphError("A feature tensor must be dense and real. Pass sparse features as a SciPy matrix.")
    return tensor.detach().to(device="cpu", dtype=torch.float32).contiguous()


_MARGIN = 1 + 1e-6  # keeps the norm below one after any rounding
_UNIT_ENTRIES = 1 << 17  # entries per block: the intermediate arrays stay in the cache


def safe_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one, just below it in floating point; zero rows stay zero. Returns float64.

    >>> safe_unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e300, 0.0]], dtype=torch.float64)).norm(dim=1) <= 1
    tensor([True, True, True])
    """
    return _rescaled(x, 0.0, torch.float64)


def shrink_unit(noisy: Tensor, std: float) -> Tensor:
    """Normalize noisy rows for the next hop, shrunk by the expected share of noise.

    Computes max(0, 1 - d s^2 / |r|^2) r / |r|, with the James-Stein factor of a d-dimensional row with noise
    s. The norm is at most one. Computed in float64; returns the dtype of the rows.

    >>> shrink_unit(torch.tensor([[3.0, 4.0]]), 1.0).norm().item() <= 1 - 2 / 25
    True
    """
    return _rescaled(noisy, math.sqrt(noisy.shape[1]) * std, noisy.dtype)


def plain_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one as in the papers; zero rows stay zero. Returns float64."""
    return torch.nn.functional.normalize(x.to(torch.float64), dim=1)


def _rescaled(x: Tensor, noise: float, dtype: torch.dtype) -> Tensor:
    """Scale each row to length max(0, 1 - (noise / norm)^2), minus a margin above any rounding error."""
    if x.requires_grad:
        raise InputError(
            "The rows require gradients, which a release cannot propagate. Call rows.detach() first."
        )
    out = torch.empty(x.shape, dtype=dtype)
    norms = torch.empty((len(x), 1), dtype=torch.float64)
    at_once = max(1, _UNIT_ENTRIES // max(1, x.shape[1]))
    scratch = torch.empty((min(len(x), at_once), x.shape[1]), dtype=torch.float64)
    for first in range(0, len(x), at_once):
        norm = norms[first : first + at_once]
        rows = scratch[: len(norm)].copy_(x[first : first + at_once])
        size: Tensor | float = 1.0  # squares of float32 rows are within the range of float64
        if x.dtype == torch.float64:  # the largest entry becomes one, so that squares stay finite
            largest = rows.abs().amax(dim=1, keepdim=True)
            size = torch.where(largest > 0, largest, 1.0)
            rows.div_(size)
        torch.linalg.vector_norm(rows, dim=1, keepdim=True, out=norm)
        length = (noise / (norm * size)).square_().neg_().add_(1.0).clamp_min_(0.0)
        rows.mul_(length.div_(norm * _MARGIN).nan_to_num_(0.0, 0.0))  # a row of norm zero stays zero
        out[first : first + at_once] = rows
    if not bool(norms.isfinite().all()):
        raise InputError(
            "The rows have NaN or infinite entries, so they cannot be normalized. Replace or remove them."
        )
    return out
