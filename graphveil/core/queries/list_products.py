"""The noisy sum of outer products of all sources' own lists: which items are on a list together.

Source u with a list of n items contributes z z^T, where z has 1 / sqrt(max(n, D)) at each of its items. The
answer holds the upper triangle of the sum, its off-diagonal entries multiplied by sqrt(2): the L2 norm of
this vector is the Frobenius norm of the matrix. Contributions depend on n only, so they are two integers per
list, and the sensitivity to one edge is computed exactly from them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.query import (
    GaussianQuery,
    PreparedData,
    PublicInputs,
    QueryData,
    are_numbers,
    check_noise,
    check_size,
    outside,
    reject_if,
)
from graphveil.core.unit import DirectedEdge, NodeRecord, Unit
from graphveil.errors import UnitError

MAX_COLUMNS = 4096
NO_COLUMN = -1  # of nodes that are not counted as items
_GRID_BITS = 16  # lists of a thousand items have 64 steps in each entry

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ListProductData(QueryData[Tensor]):
    """Which nodes are items, and which lists are counted. Both are public or already released.

    ``columns`` are the column of each node, int64 (N): from 0 to columns - 1, each at most once, and -1 for
    nodes that are not counted. ``counted`` are the sources whose lists count, bool (N). The answer is the
    upper triangle by rows, with off-diagonal entries multiplied by sqrt(2), float64.
    """

    columns: Tensor
    counted: Tensor


@dataclass(frozen=True, kw_only=True)
class ListProductQuery(GaussianQuery):
    """Release the noisy sum of z_u z_u^T over all sources u, for the items on u's own list.

    Args:
        out_degree_bound: Minimum length D of a list for its weights; shorter lists are not scaled up.

    Privacy:
        Unit: ``node-record`` or ``directed-edge``. Reads: out-edges. A list contributes a matrix of Frobenius
        norm at most one with entries of at least zero. Nulling a record moves the sum by at most 1, and
        replacing it by at most sqrt(2). One edge makes a list one item longer or shorter, which moves the sum
        by at most sqrt(2 D - 1) / D, up to the grid (``docs/privacy/proofs/sensitivity.md``).

    >>> query = ListProductQuery(columns=100, sigma=2.0, out_degree_bound=20)
    >>> query.event(NodeRecord()), round(query.sensitivity(DirectedEdge()), 3)
    (Gaussian(mu=0.5), 0.312)
    """

    kind: ClassVar[str] = "products"
    stage: ClassVar[str] = "list products"
    data: ClassVar[type[ListProductData]] = ListProductData
    linear_group_scaling: ClassVar[bool] = True  # k lists may contain the same items

    columns: int
    sigma: float
    out_degree_bound: int = 1
    grid_bits: int = _GRID_BITS

    def __post_init__(self) -> None:
        check_size(1, MAX_COLUMNS, columns=self.columns)
        check_size(1, MAX_COLUMNS, out_degree_bound=self.out_degree_bound)
        check_noise((self.sigma,), 1, self.grid_bits)

    def sensitivity(self, unit: Unit) -> float:
        if isinstance(unit, DirectedEdge):
            return self._shift_of_one_edge()
        if not isinstance(unit, NodeRecord):
            raise UnitError(
                f"Item lists can be protected as a whole or entry by entry, but unit {unit.name!r} does "
                "neither. Use unit 'node-record' or 'directed-edge'."
            )
        return math.sqrt(unit.change)

    def changed(self, unit: Unit) -> int:
        """Return the number of coordinates: a list may contain every item."""
        return self.columns * (self.columns + 1) // 2

    @property
    def edge_shift(self) -> float:
        """Sensitivity to one mutual edge, which makes two lists longer by one item each."""
        return 2 * self._shift_of_one_edge()

    def entries(self) -> tuple[Integers, Integers]:
        """Return the contribution of a list of each length 0 to ``columns``, in grid steps, rounded down."""
        steps = 1 << self.grid_bits
        divisors = np.maximum(np.arange(self.columns + 1), self.out_degree_bound).tolist()
        diagonal = [steps // divisor for divisor in divisors]
        above = [math.isqrt(2 * steps**2 // divisor**2) for divisor in divisors]
        return np.array(diagonal), np.array(above)

    def _shift_of_one_edge(self) -> float:
        """Return by how much one more item on one list moves the sum at most, over lists of all lengths.

        The n old items keep their entries up to rescaling, and the new item has n + 1 entries of its own.
        """
        diagonal, above = (values.tolist() for values in self.entries())
        squared = max(
            n * (diagonal[n + 1] - diagonal[n]) ** 2
            + n * (n - 1) // 2 * (above[n + 1] - above[n]) ** 2
            + diagonal[n + 1] ** 2
            + n * above[n + 1] ** 2
            for n in range(self.columns)
        )
        return math.sqrt(squared) / self.unit_steps

    def prepare(self, data: ListProductData, public: PublicInputs) -> PreparedData:
        nodes, columns = public.num_nodes, data.columns
        reject_if(
            not are_numbers(columns, nodes) or outside(columns - NO_COLUMN, self.columns + 1),
            f"the query needs one column for each of {nodes} nodes: an integer from 0 to "
            f"{self.columns - 1}, or -1 for a node that is not counted",
        )
        used = columns[columns != NO_COLUMN]
        reject_if(
            len(used) > 0 and int(torch.bincount(used).max()) > 1,
            "two items share a column, so a list with both would count twice; use one column per item",
        )
        reject_if(
            data.counted.dtype != torch.bool or data.counted.shape != (nodes,),
            f"the query needs one bool for each of {nodes} nodes: whether its list is counted",
        )
        return PreparedData(public, (columns.to(torch.int64), data.counted))

    @forms_private_sum("ListProductQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        columns, counted = data.arrays
        total = np.zeros((self.columns, self.columns), dtype=np.int64)
        diagonal, above = self.entries()
        for lists in _lists(private, columns.numpy(), counted.numpy(), self.columns):
            lengths = np.diff(lists.indptr)
            total += (lists.T.multiply(above[lengths]).tocsr() @ lists).toarray()
            ends = np.repeat(diagonal[lengths] - above[lengths], lengths)
            np.add.at(total, (lists.indices, lists.indices), ends)
        return self.noisy_table(total, data, key)[np.triu_indices(self.columns)]


_ENTRIES = 1 << 22  # of lists at once


def _lists(
    private: PrivateEdges, columns: Integers, counted: npt.NDArray[np.bool_], width: int
) -> Iterator[sparse.csr_array]:
    """Yield the counted lists as sparse rows of ones over the columns, exact, some at a time."""
    listed, starts = (part.numpy() for part in private.out_neighbors())
    cuts = np.searchsorted(starts, np.arange(0, starts[-1] + _ENTRIES, _ENTRIES))
    for first, last in zip(cuts[:-1], np.minimum(cuts[1:], len(counted)), strict=True):
        lengths = np.diff(starts[first : last + 1])
        items = columns[listed[starts[first] : starts[last]]]
        kept = (items != NO_COLUMN) & np.repeat(counted[first:last], lengths)
        rows = np.repeat(np.arange(last - first), lengths)[kept]
        shape, ones = (last - first, width), np.ones(len(rows), dtype=np.int64)
        yield sparse.csr_array((ones, (rows, items[kept])), shape=shape)


def unpack_products(triangle: Tensor, columns: int) -> npt.NDArray[np.float64]:
    """Return the symmetric matrix of an answer, (columns, columns).

    >>> unpack_products(torch.tensor([1.0, 2**0.5, 3.0]), 2).round(6).tolist()
    [[1.0, 1.0], [1.0, 3.0]]
    """
    matrix = np.zeros((columns, columns))
    matrix[np.triu_indices(columns)] = triangle.numpy()
    matrix /= np.sqrt(2 - np.eye(columns))
    return matrix + np.triu(matrix, 1).T
