"""Aggregation backends: schedule the destination blocks of a release.

A backend determines where the edges are stored and where the computation on them runs. The computation is a
frozen value, a pure function of one block, that can be sent to another process. Its result for a block of
rows already includes the noise, so a backend receives no private sum. Results are bit-identical in memory,
out of core and on a cluster.

``InMemoryBackend`` is the reference implementation. ``backend_for`` chooses a backend by name or by where the
edges are stored. The table of names is closed, because a name may come from a command line.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import (
    EdgeBlock,
    Ids,
    blocks,
    check_unchanged,
    in_edges,
    read_ahead,
    sources_of,
)
from graphveil.errors import ConfigError

BACKENDS = {  # module and class names, so that a backend is imported only if it is chosen
    "memory": "graphveil.core.backends:InMemoryBackend",
    "disk": "graphveil.core.backends:DiskBackend",
    "ray": "graphveil.cluster.backend:RayBackend",
}


class BlockWork(ABC):
    """The computation on one block: frozen public parameters and noise keys, and no edges but the block's."""

    @abstractmethod
    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the result for a block, a function of the work and the block alone."""


class AggregationBackend(ABC):
    """Yield destination blocks and run computations on them."""

    @property
    def yields_borrowed_memory(self) -> bool:
        """Whether ``run`` yields memory owned by another object: read it once; do not write or keep it."""
        return False

    def check(self, adjacency: Adjacency) -> None:
        """Raise if the backend cannot read these edges, before budget is charged; by default it reads all."""
        return

    @abstractmethod
    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield the destination blocks from row ``first`` on, in order, for any block size."""

    def map(self, work: BlockWork, blocks: Iterable[EdgeBlock]) -> Iterator[Tensor]:
        """Yield the result of the work for each block, in the order of the blocks, in this process."""
        return map(work, blocks)

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[Tensor]:
        """Yield the results of the work for the blocks from row ``first`` on, in order.

        The results include their noise. A backend that reads edges elsewhere sends only the work there.
        """
        return self.map(work, self.blocks(adjacency, first))

    def in_edges(self, adjacency: Adjacency, nodes: Ids) -> tuple[Ids, Ids]:
        """Return the in-neighbors of the nodes, concatenated node by node, and their number per node."""
        return in_edges(adjacency, nodes)


@dataclass(frozen=True)
class InMemoryBackend(AggregationBackend):
    """Process the blocks sequentially in this process.

    ``block_rows`` bounds the memory of a block; it is public and does not change the result.
    """

    block_rows: int = 1 << 21

    def __post_init__(self) -> None:
        checks.integer_at_least(1, block_rows=self.block_rows)

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield views of the edges in memory.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The blocks are private: only queries of a charged
            release may read them.
        """
        return blocks(adjacency, self.block_rows, first)


@dataclass(frozen=True)
class DiskBackend(InMemoryBackend):
    """Yield the blocks of a graph that ``graphveil.data.graph_files.open_graph`` opened.

    While one block is processed, the operating system is requested to read the next one. The edge pages of
    these two blocks must fit in memory; more are cached if there is space. ``block_rows`` does not change the
    result.
    """

    block_rows: int = 1 << 19

    def check(self, adjacency: Adjacency) -> None:
        """Raise ``ConfigError`` if the edges are not on disk.

        Privacy:
            Reads: where the edges are stored, which is public. Charges: nothing.
        """
        if adjacency.folder is None:
            raise ConfigError(
                "backend='disk' (--backend disk) needs a prepared graph, but this graph is in memory. "
                "Write it with `graphveil prepare` and open the folder with gv.open_graph(FOLDER), or "
                "use backend='memory'."
            )

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield views of the mapped edges.

        Privacy:
            Reads: the edges, exactly. Charges: nothing. The blocks are private: only queries of a charged
            release may read them.
        """
        self.check(adjacency)
        check_unchanged(adjacency)
        with sources_of(adjacency) as file:
            for block in super().blocks(adjacency, first):
                read_ahead(file, adjacency, block.stop, self.block_rows)
                yield block


_chosen: ContextVar[AggregationBackend | str | None] = ContextVar("graphveil backend", default=None)


@contextmanager
def using(backend: AggregationBackend | str | None) -> Iterator[None]:
    """Use a backend within the context where no other one is named; None changes nothing.

    Use it for functions without a ``backend=`` parameter: predictions, released graphs, noisy aggregates of
    hops.

    Raises:
        ConfigError: If no backend has this name.

    >>> with using("memory"):
    ...     pass
    """
    check_backend(backend)
    token = _chosen.set(_chosen.get() if backend is None else backend)
    try:
        yield
    finally:
        _chosen.reset(token)


def check_backend(backend: object) -> None:
    if backend is not None and not isinstance(backend, AggregationBackend):
        checks.one_of(tuple(BACKENDS), backend=backend)


def make_backend(name: str, **options: Any) -> AggregationBackend:
    module, _, kind = BACKENDS[name].partition(":")
    made: AggregationBackend = getattr(import_module(module), kind)(**options)
    return made


def backend_by_name(name: str | None, address: str | None = None) -> AggregationBackend | str | None:
    """Return a backend by its name and, for a cluster, its address, as given on a command line.

    >>> backend_by_name("ray", "10.0.0.1:6379").address
    '10.0.0.1:6379'
    """
    check_backend(name)
    if address is None:
        return name
    if name != "ray":
        raise ConfigError(
            "address= (--address) names a cluster and needs the Ray backend. Add backend='ray' "
            "(--backend ray)."
        )
    return make_backend(name, address=address)


def backend_for(backend: AggregationBackend | str | None, adjacency: Adjacency) -> AggregationBackend:
    adjacency = adjacency._unwrap()
    check_unchanged(adjacency)
    if backend is None:
        backend = _chosen.get()
    if backend is None:
        backend = "memory" if adjacency.folder is None else "disk"
    check_backend(backend)
    if isinstance(backend, str):
        backend = make_backend(backend)
    backend.check(adjacency)
    return backend
