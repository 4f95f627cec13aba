"""Aggregation backend that computes blocks on the workers of an existing Ray cluster."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.cluster.worker_pool import PoolConfig, RayWorkerPool
from graphveil.core.backends import AggregationBackend, BlockWork
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock, blocks, ranges
from graphveil.errors import ConfigError, ReleaseError

_MOST, _LEAST = 1 << 22, 1 << 10  # rows of a block: each block takes milliseconds

_pools: dict[int, RayWorkerPool] = {}  # workers of each process, by process id
_lock = RLock()  # one query at a time


@dataclass(frozen=True)
class RayBackend(AggregationBackend):
    """Compute noisy aggregates on the workers of a `Ray <https://ray.io>`_ cluster (extra ``ray``).

    Workers read the blocks of a graph of ``graphveil.open_graph`` from a folder. Every machine needs this
    folder under the same path. Blocks of other graphs are sent once. Everything that is sent is encrypted,
    under a key that only this process and the workers have. No parameter affects the results.

    Args:
        address: Address of a running cluster. The default is the cluster that this process or ``RAY_ADDRESS``
            names. Without one, a cluster is started on this machine.
        workers: Number of workers. The default is as many as the cluster has processors for.
        threads: Threads of each worker. Each worker holds a table of contributions. On large graphs, use one
            worker per machine, with all its processors.
        block_rows: Maximum number of rows per block. The default gives every worker the same number of rows,
            in blocks of at most four million.
        losses: Number of workers that may be lost in one query before the query fails.
        wait: Seconds until a worker must have started.

    Privacy:
        Reads: the edges of the graph, on the workers. Charges: nothing; the release is charged by its caller.
        Exact values never leave a worker. This process runs the queries that count with noise over the whole
        graph, and reads records.
    """

    address: str | None = None
    workers: int | None = None
    threads: int = 1
    block_rows: int | None = None
    losses: int = 16
    wait: float = 60.0

    def __post_init__(self) -> None:
        """Check every parameter."""
        checks.integer_at_least(1, threads=self.threads)
        checks.integer_at_least(0, losses=self.losses)
        checks.positive(wait=self.wait)
        for name in ("workers", "block_rows"):
            if getattr(self, name) is not None:
                checks.integer_at_least(1, **{name: getattr(self, name)})
        if self.address is not None and self.address.startswith("ray://"):
            raise ConfigError(
                "address='ray://...' sends the data of workers through a proxy. Run graphveil on a "
                "machine of the cluster (ray job submit) with address='auto' instead."
            )

    @property
    def yields_borrowed_memory(self) -> bool:
        """True: aggregates are read from the memory of Ray and are copied once."""
        return True

    def check(self, adjacency: Adjacency) -> None:
        """Start the workers and register the graph with them, before any budget is spent.

        Args:
            adjacency: Graph of later queries.

        Raises:
            ConfigError: If the cluster cannot be joined, or its workers cannot read the graph.
            MissingDependencyError: If Ray is not installed.
        """
        with _lock:
            self._worker_pool().send_graph(adjacency)

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield views of the edges, for computations in this process.

        Args:
            adjacency: Graph of the computation.
            first: First row.

        Returns:
            Iterator over blocks.

        Privacy:
            The blocks contain exact edges and stay in this process.
        """
        return blocks(adjacency, _MOST, first)

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[Tensor]:
        """Yield noisy aggregates as they arrive, in their order.

        Args:
            work: Work of the query, with its noise key.
            adjacency: Graph of the query.
            first: First row.

        Returns:
            Iterator over noisy aggregates.

        Raises:
            ReleaseError: If workers failed, or too many were lost. The release stays charged.

        Privacy:
            Workers add the noise, so exact aggregates never leave them. Charges: nothing.
        """
        with _lock:
            worker_pool = self._worker_pool()
            count, workers = adjacency.num_nodes - first, max(1, len(worker_pool.members(self.workers)))
            step = self.block_rows or self._step(count, workers)
            rows = list(ranges(adjacency, step, first))
            for result in worker_pool.run(work, adjacency, rows, self.losses):
                if isinstance(result, str):
                    reason = result.removesuffix(".")
                    raise ReleaseError(f"The query was not answered: {reason}. It stays charged.")
                yield torch.from_numpy(np.asarray(_ReadOnlyArray(result)))

    def _step(self, count: int, workers: int) -> int:
        """Return the number of rows per block, such that every worker gets equally many blocks."""
        blocks_each = max(1, -(-count // (workers * _MOST)))
        return max(_LEAST, -(-count // (workers * blocks_each)))

    def stop(self) -> None:
        """End the workers of this process. The next query starts new ones."""
        with _lock:
            known = _pools.pop(os.getpid(), None)
            if known is not None:
                known.shut_down()

    def _worker_pool(self) -> RayWorkerPool:
        """Return the workers of this process. Backends with the same number of threads share them."""
        config = PoolConfig(address=self.address, workers=self.workers, threads=self.threads, wait=self.wait)
        known = _pools.get(os.getpid())
        if known is not None and known.reconfigure(config):
            return known
        self.stop()  # idle workers would block processors that new ones need
        worker_pool = _pools[os.getpid()] = RayWorkerPool(config)
        return worker_pool


class _ReadOnlyArray:
    """View of Ray's read-only memory that PyTorch accepts without a warning. Nothing writes to it."""

    def __init__(self, result: npt.NDArray[Any]) -> None:
        described = result.__array_interface__
        self.__array_interface__ = {**described, "data": (described["data"][0], False)}
        self._result = result  # keeps the memory alive while it is read
