"""The noisy sum of all nodes' out-degrees, each clipped to a public bound, under unit ``node-record``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from graphveil._util import checks
from graphveil.core.events import Event, Gaussian
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.out_edge_sums import out_degrees
from graphveil.core.query import (
    ExampleGraph,
    GaussianQuery,
    PreparedData,
    PublicInputs,
    QueryData,
    check_noise,
)
from graphveil.core.sites import forms_private_sum
from graphveil.core.unit import NodeRecord, Unit
from graphveil.errors import UnitError

_GRID_BITS = 6  # an out-degree is a whole number, so a coarse grid suffices


@dataclass(frozen=True, eq=False, repr=False)
class OutDegreeSumData(QueryData[Tensor]):
    """No input: the query reads the edges alone. The answer is float64, shape (1)."""


@dataclass(frozen=True, kw_only=True)
class OutDegreeSumQuery(GaussianQuery):
    """Release the noisy sum of the out-degrees of all nodes, each clipped to a public bound.

    Divided by the number of nodes, it is an estimate of the mean length of a node's own list of edges.

    Args:
        bound: Largest out-degree that counts.
        sigma: Standard deviation of the noise, in edges.
        grid_bits: Binary logarithm of the grid steps in one edge.

    Raises:
        ConfigError: If a field is outside its range.

    Privacy:
        Unit: ``node-record``. Reads: the length of each node's own list. Nulling or replacing a record
        changes one clipped out-degree, which is between 0 and ``bound``: mu = bound / sigma under both
        relations. A mutual edge changes two of them by one each.

    >>> OutDegreeSumQuery(bound=20, sigma=80.0).event(NodeRecord(replace_one=True))
    Gaussian(mu=0.25)
    """

    kind: ClassVar[str] = "out_degrees"
    wire_name: ClassVar[str] = "OutDegreeSumQuery"
    stage: ClassVar[str] = "out-degrees"
    data: ClassVar[type[OutDegreeSumData]] = OutDegreeSumData

    bound: int
    sigma: float
    grid_bits: int = _GRID_BITS

    def __post_init__(self) -> None:
        checks.integer_at_least(1, bound=self.bound)
        check_noise((self.sigma,), 1, self.grid_bits)

    def event(self, unit: Unit) -> Event:
        """Return mu = bound / sigma.

        Raises:
            UnitError: If the unit is not ``node-record``.
        """
        return Gaussian(self.sensitivity(unit) / self.sigma)

    def sensitivity(self, unit: Unit) -> float:
        """Return the bound, under either relation."""
        if not isinstance(unit, NodeRecord):
            raise UnitError(
                f"The sum of clipped out-degrees has no guarantee under unit {unit.name!r}. Use unit "
                "'node-record', which protects each node's own out-edges."
            )
        return float(self.bound)

    @property
    def edge_shift(self) -> float:
        """Sensitivity to one mutual edge, which is on both ends' lists or on neither."""
        return 2.0

    def changed(self, unit: Unit) -> int:
        """Return one, the number of sums."""
        return 1

    def example_data(self, graph: ExampleGraph) -> OutDegreeSumData:
        """Return the empty input."""
        return OutDegreeSumData()

    def prepare(self, data: OutDegreeSumData, public: PublicInputs) -> PreparedData:
        """Return the public facts; there are no data to check."""
        return PreparedData(public, ())

    @forms_private_sum("OutDegreeSumQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        """Return the noisy sum, float64; the exact one is discarded here."""
        exact = np.minimum(out_degrees(private), self.bound).sum(keepdims=True)
        return self.noisy_counts(exact, data, key)
