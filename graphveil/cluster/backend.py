"""On a cluster that somebody else built: blocks are worked on by Ray's workers, wherever these are."""

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
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock, blocks, ranges
from graphveil.errors import ConfigError, ReleaseError
from graphveil.release.backends import AggregationBackend, BlockWork

_MOST, _LEAST = 1 << 22, 1 << 10  # rows of a block: each block costs milliseconds

_pools: dict[int, RayWorkerPool] = {}  # by process: the workers that it has
_lock = RLock()  # one query at a time


@dataclass(frozen=True)
class RayBackend(AggregationBackend):
    """Has noisy rows made by workers of a cluster of `Ray <https://ray.io>`_ (extra ``ray``).

    Blocks of a graph of :func:`graphveil.open_graph` are read by the workers, from a folder that every
    machine has under one path; those of other graphs are sent, once. All that is sent is encrypted, under a
    key that only this process and the workers have. Exact numbers never leave a worker; queries that count
    with noise over the whole graph, and reads of records, are done in this process. None of the parameters
    changes a result.

    Args:
        address: of a running cluster; by default the one that this process or ``RAY_ADDRESS`` names, else one
            that is started on this machine.
        workers: how many; by default as many as the cluster has processors for.
        threads: of each worker. Workers hold a table of contributions each: on large graphs have one worker
            a machine, with all its processors.
        block_rows: of a block at most; by default workers have as many rows each, in blocks of four million
            at most.
        losses: how many workers may be lost in one query before it is refused.
        wait: seconds until a worker must have started.
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
                "address='ray://...' goes through a proxy that would hold what workers send; run on a "
                "machine of the cluster (ray job submit) with address='auto'"
            )

    @property
    def yields_borrowed_memory(self) -> bool:
        """Rows are read where Ray keeps them, and are copied once."""
        return True

    def check(self, adjacency: Adjacency) -> None:
        """Start the workers and show them the graph, before anything is spent."""
        with _lock:
            self._worker_pool().send_graph(adjacency)

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield views of the edges, for what is done in this process."""
        return blocks(adjacency, _MOST, first)

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[Tensor]:
        """Yield noisy rows as they arrive, in their order.

        Raises:
            ReleaseError: workers failed, or were lost too often; the release stays charged.
        """
        with _lock:
            worker_pool = self._worker_pool()
            count, workers = adjacency.num_nodes - first, max(1, len(worker_pool.members(self.workers)))
            step = self.block_rows or self._step(count, workers)
            rows = list(ranges(adjacency, step, first))
            for result in worker_pool.run(work, adjacency, rows, self.losses):
                if isinstance(result, str):
                    raise ReleaseError(f"a worker could not go on: {result}; the release stays charged")
                yield torch.from_numpy(np.asarray(_ReadOnlyArray(result)))

    def _step(self, count: int, workers: int) -> int:
        """Return how many rows a block has, so that each worker gets as many blocks as the others."""
        blocks_each = max(1, -(-count // (workers * _MOST)))
        return max(_LEAST, -(-count // (workers * blocks_each)))

    def stop(self) -> None:
        """Let this process's workers go; the next query starts others."""
        with _lock:
            known = _pools.pop(os.getpid(), None)
            if known is not None:
                known.shut_down()

    def _worker_pool(self) -> RayWorkerPool:
        """Return this process's workers on the cluster, which backends of as many threads share."""
        config = PoolConfig(address=self.address, workers=self.workers, threads=self.threads, wait=self.wait)
        known = _pools.get(os.getpid())
        if known is not None and known.reconfigure(config):
            return known
        self.stop()  # they would hold the processors that others wait for
        worker_pool = _pools[os.getpid()] = RayWorkerPool(config)
        return worker_pool


class _ReadOnlyArray:
    """What Ray holds, as torch takes it without a warning: it is read-only, and nobody writes it."""

    def __init__(self, result: npt.NDArray[Any]) -> None:
        described = result.__array_interface__
        self.__array_interface__ = {**described, "data": (described["data"][0], False)}
        self._result = result  # held as long as anybody reads it
