"""The interface of a query: frozen public parameters, the privacy cost, and the answer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.events import ByGroup, Composed, Event, Gaussian
from graphveil.core.noise.discrete_gaussian import IntegerNoise
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.unit import DirectedEdge, NodeUnit, UndirectedEdge, Unit
from graphveil.errors import ConfigError, ReleaseError, UnitError

GRID_BITS = 10
MAX_GRID_BITS = 24  # float32 represents a contribution of one exactly up to here
MAX_DIM = 1 << 20  # the exact sampler has blocks for this number of coordinates per row


Answer = TypeVar("Answer", covariant=True)


@dataclass(frozen=True, kw_only=True)
class QueryDescription:
    """Public description of a query: for the journal that keys are bound to, plan pages and model cards.

    ``noise`` is the standard deviation of the noise by kind of row, or the noise multiplier of training
    steps, which have ``steps`` and a ``sampling_rate``. ``parameters`` are all values that determine the
    exact integers and their scale, as plain JSON.
    """

    kind: str  # kind of the answer, in stored folders
    stage: str  # stage of a budget
    noise: tuple[float, ...]
    parameters: dict[str, object]
    values_per_node: int | None = None
    steps: int | None = None
    sampling_rate: float | None = None


class QueryData(Generic[Answer]):
    """The input data of a query: one frozen class for each kind, which determines the type of the answer."""


@dataclass(frozen=True, eq=False, repr=False)
class PublicInputs:
    """The values that are fixed and public before any query runs."""

    num_nodes: int
    groups: Tensor | None  # groups of nodes or records, if a query distinguishes them
    sampler: type[IntegerNoise]
    degree_bound: int | None = None  # released by an earlier query: at most so many degrees are above it


@dataclass(frozen=True, eq=False, repr=False)
class PreparedData:
    """Data that fit their query. The query's key is bound to ``arrays``: other data get other noise.

    ``parts`` follow from the data and are used for the answer.
    """

    public: PublicInputs
    arrays: tuple[Tensor, ...]
    parts: Any = None


class NoiseGrid(NamedTuple):
    """Sizes in grid steps that determine whether a sampler's proof is valid, and its share of delta.

    Attributes:
        contribution: Lower bound on the largest contribution, in any row.
        min_noise: Smallest standard deviation of the noise, for any sampler.
        max_noise: Largest standard deviation that the plan's sampler draws; 0 if it draws none of the noise.
    """

    contribution: float
    min_noise: float
    max_noise: float


@dataclass(frozen=True)
class Query(ABC):
    """One step of a release. Its fields are public; the data are passed when it is answered."""

    kind: ClassVar[str]  # kind of its answer
    wire_name: ClassVar[str] = ""  # its name in key derivation, which stays if the class is renamed
    stage: ClassVar[str]  # its name in a budget, which ``describe`` may complete
    data: ClassVar[type[QueryData[Any]]]  # class of its input data
    reads_edges: ClassVar[bool] = True
    exact_noise: ClassVar[bool] = False  # whether it draws its own exact noise, without the plan's sampler
    sampled: ClassVar[bool] = True  # whether the plan's sampler draws any of its noise
    needs_degree_bound: ClassVar[bool] = False  # whether a query before it must release the bound of degrees
    linear_group_scaling: ClassVar[bool] = False  # whether k edges of one node may cost k times one edge
    without_example: ClassVar[str] = ""  # why audits have no example data; empty if they have

    @abstractmethod
    def event(self, unit: Unit) -> Event:
        """Return the privacy event of the query under a unit; reject a unit without a proved bound."""

    @abstractmethod
    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 sensitivity before noise."""

    @abstractmethod
    def changed(self, unit: Unit) -> int:
        """Return the number of coordinates that may change between neighboring datasets."""

    @property
    def groups(self) -> int:
        """The number of public groups of nodes that the query distinguishes; by default one."""
        return 1

    @property
    @abstractmethod
    def noise(self) -> tuple[float, ...]:
        """Standard deviations of the noise, one for each kind of row."""

    @property
    def unit_steps(self) -> float:
        """Grid steps in a contribution of size one; infinity without a grid."""
        return math.inf

    @property
    def grid(self) -> NoiseGrid:
        """Sizes of the contributions and of the noise on the grid, which the plan checks its sampler with."""
        sampled = max(self.noise) * self.unit_steps if self.sampled else 0.0
        return NoiseGrid(self.unit_steps, min(self.noise) * self.unit_steps, sampled)

    @property
    def law(self) -> DiscreteLaplace | EdgeRandomizedResponse | None:
        """Law of the noise that ``answer`` adds to each number itself.

        None if the noise is Gaussian, from the plan's sampler or in training steps. Audits take the law from
        here, and replace it by one without noise. ``answer`` must therefore draw its noise from it.
        """
        return None

    def describe(self) -> QueryDescription:
        return QueryDescription(
            kind=self.kind, stage=self.stage, noise=self.noise, parameters=self._parameters()
        )

    def _parameters(self) -> dict[str, object]:
        """Return the fields under the query's name, with noise as exact hexadecimal numbers."""
        fields = {name: value for name, value in asdict(self).items() if name != "sigma"}
        name, sigma = self.wire_name or type(self).__name__, [std.hex() for std in self.noise]
        return {"query": name, **fields, "sigma": sigma}

    @abstractmethod
    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        """Check the data against public facts, before any edge is read."""

    @abstractmethod
    def answer(self, private: PrivateEdges, data: Any, key: bytes) -> Any:
        """Return the noisy answer; the key determines the noise, and exact numbers are discarded here."""

    def released(self, answer: Any, public: PublicInputs) -> PublicInputs:
        """Return the public values that later queries of the release use, after this query's answer."""
        return public

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Reject a unit that the bounds are not valid for on a graph that is stored in this way."""
        return  # most bounds are valid for both ways of storage

    @property
    def reads_edge_weights(self) -> bool:
        return False

    @property
    def needs_groups(self) -> bool:
        return self.groups > 1


class GaussianQuery(Query):
    """A query whose numbers get Gaussian noise from the plan's sampler, on a grid.

    Args:
        sigma: Standard deviation of the noise, or one for each kind of row.
        grid_bits: Binary logarithm of the grid steps in a contribution of size one.
    """

    sigma: float | tuple[float, ...]
    grid_bits: int

    def event(self, unit: Unit) -> Event:
        """Return mu = sensitivity / the least sigma; a query whose cost depends on groups overrides it."""
        return Gaussian(self.sensitivity(unit) / min(self.noise))

    @property
    def noise(self) -> tuple[float, ...]:
        return self.sigma if isinstance(self.sigma, tuple) else (self.sigma,)

    @property
    def unit_steps(self) -> float:
        return 2.0**self.grid_bits

    def noisy_table(self, exact: npt.NDArray[np.int64], data: PreparedData, key: bytes) -> Tensor:
        """Return exact rows in grid steps with noise of one law, as float64 numbers of size one."""
        noise = data.public.sampler(self.noise[0] * self.unit_steps)
        drawn = noise.draw(RowStream(key), np.arange(len(exact)), exact.shape[1])
        return torch.from_numpy((exact + drawn) / self.unit_steps)

    def noisy_counts(self, exact: npt.NDArray[np.int64], data: PreparedData, key: bytes) -> Tensor:
        """Return whole numbers with noise, one row of noise for each, in float64."""
        return self.noisy_table(exact[:, None] * int(self.unit_steps), data, key)[:, 0]


def grid_steps(largest: float, grid_bits: int) -> float:
    """Return the grid steps in a vector of norm one: a power of two, at most 2^grid_bits in the largest."""
    return 2.0 ** (grid_bits - math.ceil(math.log2(largest)))


def check_size(least: int, most: int, **sizes: int) -> None:
    checks.integer_at_least(least, **sizes)
    checks.within(least, most, **sizes)


def check_noise(sigma: tuple[float, ...], groups: int, grid_bits: int) -> None:
    """Require one positive standard deviation per group, and a grid that allows exact sums."""
    if len(sigma) != groups:
        raise ConfigError(f"sigma has {len(sigma)} entries but needs {groups}, one per group of rows")
    for value in sigma:
        checks.positive(sigma=value)
    check_size(1, MAX_GRID_BITS, grid_bits=grid_bits)


def reject_edges_stored_twice(query: Query, unit: Unit, *, directed: bool) -> None:
    """Reject undirected edges that are stored as directed edges, where each of the two would be counted."""
    if directed and isinstance(unit, UndirectedEdge):
        raise UnitError(
            "unit 'undirected-edge' needs an undirected graph, but this graph is directed. Use unit "
            "'directed-edge', or build the graph with directed=False."
        )


def require_edge_unit(unit: Unit, what: str) -> UndirectedEdge | DirectedEdge:
    """Return an edge-level unit; reject others, for which no bound is proved."""
    if not isinstance(unit, UndirectedEdge | DirectedEdge):
        raise UnitError(
            f"unit {unit.name!r} does not protect single edges: {what}. Use unit 'undirected-edge' or "
            "'directed-edge'."
        )
    return unit


def require_record_unit(unit: Unit) -> NodeUnit:
    if not isinstance(unit, NodeUnit):
        raise UnitError(
            f"unit {unit.name!r} leaves features and labels public, so a query of node records needs "
            "no noise. Use a node-level unit, or omit the query."
        )
    return unit


def by_group(partition: str, pays: tuple[bool, ...], event: Event) -> Event:
    """Return the cost of a step for each group; unused groups are not charged."""
    if all(pays):
        return event
    return ByGroup(partition, tuple(event if one else Composed(()) for one in pays))


def of_groups(values: Sequence[int], public: PublicInputs) -> Tensor:
    """Return the value of each node's group, shape (N); all nodes are of the first group without groups."""
    groups = torch.zeros(public.num_nodes, dtype=torch.int64) if public.groups is None else public.groups
    return torch.tensor(values)[groups]


def check_pays(pays: tuple[bool, ...]) -> None:
    if not any(pays):
        raise ConfigError(f"pays={pays!r} must name a group of records that the query reads")


def reject_if(wrong: bool, problem: str) -> None:
    """Reject data that do not fit their query: nothing is answered, and the release stays charged."""
    if wrong:
        raise ReleaseError(f"{problem}; the release stays charged")


def check_rows(vectors: Tensor, num_nodes: int, dim: int) -> None:
    """Reject vectors of another shape than the plan's, and values that are not a dense table of numbers."""
    plain = vectors.layout == torch.strided and not vectors.is_complex() and vectors.dtype != torch.bfloat16
    reject_if(
        not plain or vectors.requires_grad,
        "the hop needs a dense floating-point table without gradients, such as rows.detach().float()",
    )
    reject_if(
        tuple(vectors.shape) != (num_nodes, dim),
        f"the hop needs rows of shape ({num_nodes}, {dim}), got {tuple(vectors.shape)}",
    )


def are_numbers(values: Tensor | None, count: int) -> TypeGuard[Tensor]:
    whole = values is not None and not (values.is_floating_point() or values.is_complex())
    return whole and values is not None and values.shape == (count,)


def outside(values: Tensor, count: int) -> bool:
    """Return whether a public value is outside 0 .. count - 1."""
    return bool(((values < 0) | (values >= count)).any())
