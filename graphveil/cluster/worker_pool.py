"""Workers on a Ray cluster: start them, send keys and work, and replace lost workers.

Ray starts and places processes, and transports sealed values. It does not retry calls. For each call, Ray
logs a method name, row numbers and random names. The result of a block depends only on the block and the
work, so another worker recomputes a lost block.

Ray joins one cluster per process. On a cluster that this process started for itself, no processors are
reserved. It has no other user, and two backends with different workers would wait for each other.
"""

import os
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import token_hex
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from graphveil import __version__
from graphveil._util.sealed import SecretBox, seal_to
from graphveil.cluster.worker import Result, Rows, SealedBlob, Worker, seal_value
from graphveil.core.backends import BlockWork
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import block_of
from graphveil.data.stored_graph import StoredEdges, manifest_of
from graphveil.errors import ConfigError, MissingDependencyError, ReleaseError

_AHEAD = 2  # pending blocks per worker, so that it need not wait for the next one
_TRIES = 4  # attempts per block: after so many lost workers, the block is the cause
_QUIET = {  # read by Ray when it is imported or started
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
_own: set[str] = set()  # process_identity of the clusters that were started here
Member = TypeVar("Member")


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """Address of the cluster, number of workers, threads per worker, and timeout."""

    address: str | None
    workers: int | None
    threads: int
    wait: float


@dataclass(eq=False)
class WorkerHandle:
    """A worker: its Ray handle."""

    handle: Any


@dataclass(eq=False)
class GraphPlacement:
    """Sealed parts of one graph: its name, its storage location, and the blocks that were sent."""

    name: str
    stored: SealedBlob | None
    blocks: dict[Rows, SealedBlob] = field(default_factory=dict)
    last_worker: dict[Rows, dict[int, WorkerHandle]] = field(default_factory=dict)


class RayWorkerPool:
    """The workers of one process on one cluster, which run until the process ends.

    All values are sealed under one key, which each worker receives sealed to its public key. Backends share a
    pool. It grows to the largest number of workers that any backend requests. Each query uses at most the
    number of its own backend.
    """

    def __init__(self, config: PoolConfig) -> None:
        """Join or start the cluster, and request workers.

        Raises:
            ConfigError: The cluster does not exist, has no free processors, or runs another version.
        """
        self._ray, self._config, self._box = connect(config.address), config, SecretBox()
        self._joined = process_identity(self._ray)
        self._placement: WeakKeyDictionary[Adjacency, GraphPlacement] = WeakKeyDictionary()
        self._ready: list[WorkerHandle] = []
        self._starting: dict[Any, WorkerHandle] = {}
        self._graph: GraphPlacement | None = None
        self.current_query: QueryRun | None = None
        try:
            self._start_missing_workers()
        except BaseException:
            self.shut_down()
            raise

    def reconfigure(self, config: PoolConfig) -> bool:
        """Return whether this pool supports the configuration; if so, start missing workers.

        Raises:
            ConfigError: The configuration names another cluster than this process is joined to.
        """
        if not self.is_connected or config.threads != self._config.threads:
            return False
        connect(config.address)
        self._config = config
        self._start_missing_workers()
        return True

    def _start_missing_workers(self) -> None:
        """Request the missing workers, and wait for those that the cluster has processors for."""
        config = self._config
        # As many workers as the cluster has processors for.
        room = max(1, int(self._ray.cluster_resources().get("CPU", 1)) // config.threads)
        workers = config.workers or room
        missing = workers - len(self._ready) - len(self._starting)
        for _ in range(missing):
            self._start()
        while self._starting and (not self._ready or (missing > 0 and len(self._ready) < min(workers, room))):
            if not self._add_ready_worker(config.wait):
                break
        if not self._ready:
            raise ConfigError(
                f"No worker started on the Ray cluster within {config.wait:g} seconds. Request fewer "
                "threads (threads=), or check the free resources with `ray status`."
            )

    @property
    def is_connected(self) -> bool:
        """Whether this process is still joined to the same cluster."""
        return bool(self._ray.is_initialized() and process_identity(self._ray) == self._joined)

    # -- queries of a backend -------------------------------------------------------------------------------

    def members(self, workers: int | None = None) -> list[WorkerHandle]:
        """Return the running workers, or the first ``workers`` of them."""
        return self._ready[:workers]

    def send_graph(self, adjacency: Adjacency) -> None:
        """Register a graph with the workers; reject one that they cannot read.

        Raises:
            ConfigError: The folder of a prepared graph is not accessible to the workers.
        """
        placement = self._placement_of(adjacency)
        if self._graph is placement:
            return
        self._graph = self.current_query = None  # until all workers have it, even after an error
        answers = [worker.handle.set_graph.remote(placement.name, placement.stored) for worker in self._ready]
        for answer in answers:
            try:
                words = self.fetch(answer)
            except WorkerLostError:
                continue  # detected at its next block
            if words:
                raise ConfigError(
                    f"A worker cannot read the prepared graph: {words}. Store the folder where every machine "
                    "can read it under the same path."
                )
        self._graph = placement

    def run(self, work: BlockWork, adjacency: Adjacency, rows: list[Rows], losses: int) -> Iterator[Result]:
        """Yield the results of a query for blocks of rows, in their order.

        Raises:
            ReleaseError: Too many workers were lost, or another query was begun meanwhile.
        """
        self.send_graph(adjacency)
        placement = self._placement_of(adjacency)
        if placement.stored is None:
            for each in rows:
                if each not in placement.blocks:
                    name = f"{placement.name}/{each[0]}-{each[1]}"
                    placement.blocks[each] = self._put(name, block_of(adjacency, *each))
        last_worker = placement.last_worker.setdefault((len(rows), rows[0][0] if rows else 0), {})
        query = self.current_query = QueryRun(
            self, self._config, placement, rows, self._put(token_hex(8), work)
        )
        try:
            yield from BlockScheduler(query, len(rows), last_worker, losses).run()
        finally:
            query.end()

    def wait_for_any(self, tickets: list[object], wait: float) -> object | None:
        """Wait for one of these tickets; return None if a worker joined first.

        Raises:
            ReleaseError: No worker is running, and none joined in time.
        """
        if not self._ready and not tickets:
            if not self._starting or not self._add_ready_worker(wait):
                raise ReleaseError(
                    f"All workers were lost, and none started within {wait:g} seconds. The release stays "
                    "charged. Resume the run if it has a folder: it uses the same noise."
                )
            return None
        ready, _ = self._ray.wait([*tickets, *self._starting], num_returns=1, fetch_local=False)
        if ready[0] not in self._starting:
            return ready[0]  # type: ignore[no-any-return]  # Ray's tickets have no type
        self._add_ready_worker(0)
        return None

    def fetch(self, ticket: Any) -> Any:
        """Return the result of a call.

        Raises:
            WorkerLostError: The worker, its machine, or the result is lost.
            ConfigError: The worker runs an incompatible graphveil.
        """
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, TypeError | AttributeError):
                raise WorkerLostError from None
            raise ConfigError(
                "The code of graphveil on the cluster differs from this process, although both have "
                f"version {__version__}. Install the same package on every machine, and check that this "
                "process does not import another copy."
            ) from None
        except self._ray.exceptions.RayError:
            raise WorkerLostError from None

    def replace(self, worker: WorkerHandle) -> None:
        """Remove a worker, and start another one."""
        self._ready.remove(worker)
        self._ray.kill(worker.handle)  # it may be alive without connection, and would keep processors
        self._start()

    def shut_down(self) -> None:
        """End all workers, if this process is still joined to the cluster."""
        members = [*self._ready, *self._starting.values()]
        self._ready, self._starting, self.current_query = [], {}, None
        if self.is_connected:
            for worker in members:
                self._ray.kill(worker.handle)

    # -- workers -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Request a worker. It joins the pool after its handshake."""
        threads = self._config.threads
        kind = _remote_worker().options(
            num_cpus=0 if process_identity(self._ray) in _own else threads,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        worker = WorkerHandle(kind.remote(threads))
        self._starting[worker.handle.handshake.remote()] = worker

    def _add_ready_worker(self, wait: float) -> bool:
        """Add a worker after its handshake; return whether one was added. A lost worker is discarded."""
        ready, _ = self._ray.wait(list(self._starting), num_returns=1, timeout=wait)
        if not ready:
            return False
        worker = self._starting[ready[0]]
        try:
            version, public = self.fetch(ready[0])
        except WorkerLostError:
            del self._starting[ready[0]]
            return False
        if version != __version__:
            raise ConfigError(
                f"The Ray cluster has graphveil {version}, but this process has {__version__}. Install "
                "the same version on both."
            )
        worker.handle.take_key.remote(seal_to(public, self._box.key))
        if self._graph is not None:
            worker.handle.set_graph.remote(self._graph.name, self._graph.stored)
        self._ready.append(worker)
        del self._starting[ready[0]]  # last: a worker in neither list is not ended by shut_down
        return True

    # -- sealed values -------------------------------------------------------------------------------------

    def _placement_of(self, adjacency: Adjacency) -> GraphPlacement:
        """Return the sealed parts of a graph; of a prepared graph, the location of its blocks."""
        placement = self._placement.get(adjacency)
        if placement is None:
            name, stored = token_hex(8), None
            if adjacency.folder is not None:
                stored = self._put(name, StoredEdges(adjacency.folder.resolve(), manifest_of(adjacency)))
            placement = self._placement[adjacency] = GraphPlacement(name, stored)
        return placement

    def _put(self, name: str, value: object) -> SealedBlob:
        """Seal a value and store it where every worker can fetch it."""
        size, parts = seal_value(name, value, self._box)
        return SealedBlob(name, size, tuple(self._ray.put(part) for part in parts))


@lru_cache(maxsize=1)
def _remote_worker() -> Any:
    """Return the worker class as a Ray actor."""
    ray = import_ray()

    class RayWorker(Worker):
        """Worker that fetches parts of sealed values from Ray's object store, one at a time."""

        def __init__(self, threads: int) -> None:
            super().__init__(threads, ray.get)

    return ray.remote(RayWorker)


class QueryRun:
    """One query of a pool: its blocks are requested under its own name, until another query is begun.

    An error or an interruption may leave a query unfinished. Later results of its workers are discarded. Its
    late end does not end the next query.
    """

    def __init__(
        self,
        worker_pool: RayWorkerPool,
        config: PoolConfig,
        placement: GraphPlacement,
        rows: list[Rows],
        work: SealedBlob,
    ) -> None:
        """Store the work, the graph and the blocks of the query."""
        self._worker_pool, self._config, self._placement = worker_pool, config, placement
        self._rows, self._work = rows, work
        self._informed: list[WorkerHandle] = []

    def members(self) -> list[WorkerHandle]:
        """Return the workers of this query.

        Raises:
            ReleaseError: Another query was begun.
        """
        if self._worker_pool.current_query is not self:
            raise ReleaseError(
                "Another query started on the cluster before the results of this one were read, which "
                "stopped this one. The release stays charged. Resume the run if it has a folder: it uses "
                "the same noise."
            )
        return self._worker_pool.members(self._config.workers)

    def submit(self, worker: WorkerHandle, block: int) -> object:
        """Request a block from a worker; send the work first if the worker does not have it."""
        name, rows = self._work.name, self._rows[block]
        if worker not in self._informed:
            worker.handle.begin.remote(self._placement.name, self._work)
            self._informed.append(worker)
        return worker.handle.block.remote(name, rows, self._placement.blocks.get(rows))

    def first(self, tickets: list[object]) -> object | None:
        """Wait for a block, or for a worker that joins."""
        return self._worker_pool.wait_for_any(tickets, self._config.wait)

    def fetch_result(self, ticket: object) -> Result:
        """Return the result of a block."""
        result: Result = self._worker_pool.fetch(ticket)
        return result

    def replace(self, worker: WorkerHandle) -> None:
        """Remove a worker, and start another one."""
        self._worker_pool.replace(worker)

    def end(self) -> None:
        """Discard the work of this query on the workers, but not that of later queries."""
        for worker in self._informed:
            if worker in self._worker_pool.members():
                worker.handle.end.remote(self._work.name)


# -- assignment of blocks to workers ----


class WorkerLostError(Exception):
    """A worker is lost, together with its unfinished blocks."""


class WorkerPool(Protocol, Generic[Member]):
    """Interface of a set of workers that may change at any time."""

    def members(self) -> list[Member]:
        """Return the running workers."""

    def submit(self, worker: Member, block: int) -> object:
        """Request a block; return a ticket."""

    def first(self, tickets: list[object]) -> object | None:
        """Wait for the next finished block and return its ticket; None if a worker joined meanwhile.

        Raises:
            ReleaseError: No worker is running, and none joined in time.
        """

    def fetch_result(self, ticket: object) -> Result:
        """Return the result of a block.

        Raises:
            WorkerLostError: The worker was lost before it returned a result.
        """

    def replace(self, worker: Member) -> None:
        """Remove a worker, and request another one."""


class BlockScheduler(Generic[Member]):
    """Distributes blocks to workers. A worker first gets the blocks that it computed last time.

    Args:
        worker_pool: The workers.
        count: Number of blocks.
        last_worker: Which worker computed each block last; updated in place.
        losses: Number of workers that may be lost.
    """

    def __init__(
        self,
        worker_pool: WorkerPool[Member],
        count: int,
        last_worker: dict[int, Member],
        losses: int,
    ) -> None:
        """Queue all blocks."""
        self._worker_pool, self._last_worker, self._losses = worker_pool, last_worker, losses
        self._queue = deque(range(count))
        self._tries = [0] * count
        self._pending: dict[object, tuple[Member, int]] = {}

    def run(self) -> Iterator[Result]:
        """Yield the result of each block, in the order of the blocks.

        Raises:
            ReleaseError: Too many workers were lost, in total or on one block.
        """
        count, done, place = len(self._queue), dict[int, Result](), 0
        while place < count:
            self._assign()
            ticket = self._worker_pool.first(list(self._pending))
            if ticket is None:
                continue
            worker, block = self._pending.pop(ticket)
            try:
                done[block] = self._worker_pool.fetch_result(ticket)
                self._last_worker[block] = worker
            except WorkerLostError:
                self._return(worker, block)
            while place in done:
                yield done.pop(place)
                place += 1

    def _assign(self) -> None:
        """Submit blocks to all workers with free capacity, those with the fewest pending blocks first."""
        members = self._worker_pool.members()
        for load in range(_AHEAD):
            for worker in members:
                if self._queue and sum(one is worker for one, _ in self._pending.values()) == load:
                    block = self._next(worker)
                    self._pending[self._worker_pool.submit(worker, block)] = (worker, block)

    def _next(self, worker: Member) -> int:
        """Dequeue a block that the worker computed before, or else one without a last worker."""
        own = (block for block in self._queue if self._last_worker.get(block) is worker)
        free = (block for block in self._queue if self._last_worker.get(block) is None)
        block = next(own, None)
        if block is None:
            block = next(free, self._queue[-1])
        self._queue.remove(block)
        return block

    def _return(self, worker: Member, block: int) -> None:
        """Replace a lost worker and requeue its blocks; raise an error if this happens too often."""
        had = [ticket for ticket, (one, _) in self._pending.items() if one is worker]
        back = sorted([block, *(self._pending.pop(ticket)[1] for ticket in had)])
        self._queue.extendleft(reversed(back))
        for number in [number for number, one in self._last_worker.items() if one is worker]:
            del self._last_worker[number]
        self._worker_pool.replace(worker)
        self._losses -= 1
        self._tries[block] += 1
        if self._losses < 0 or self._tries[block] == _TRIES:
            raise ReleaseError(
                f"{'One block' if self._losses >= 0 else 'This query'} lost too many workers, perhaps "
                "because memory ran out. The release stays charged. Use more memory per worker or "
                "smaller blocks (block_rows=), and resume the run if it has a folder: it uses the same "
                "noise."
            )


# -- the cluster ----


def connect(address: str | None) -> Any:
    """Return Ray, joined to the cluster at the address.

    Without an address, use the cluster that this process or ``RAY_ADDRESS`` names. If there is none, start a
    cluster on this machine, without a dashboard.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: There is no cluster at the address, or this process is joined to another one.
    """
    ray = import_ray()
    if ray.is_initialized():
        # Another cluster than the one that this process is joined to would receive the edges.
        here, own = str(ray.get_runtime_context().gcs_address), ray.util.get_node_ip_address()
        same = address in (None, "auto") or _numeric_address(str(address), own) == _numeric_address(here, own)
        if not same:
            raise ConfigError(
                f"This process is connected to the Ray cluster at {here}, but address={address!r} "
                "(--address) names another one. Remove the address, or disconnect first with "
                "ray.shutdown()."
            )
        return ray
    local = address is None and "RAY_ADDRESS" not in os.environ
    given: dict[str, Any] = {"include_dashboard": False} if local else {"address": address}
    try:
        ray.init(**given, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"Cannot connect to a Ray cluster at address={address!r} (--address) "
            f"({type(error).__name__}). Start one with `ray start --head`, or remove the address."
        ) from None
    if local:
        _own.add(process_identity(ray))
    return ray


def process_identity(ray: Any) -> str:
    """Identify this process and its cluster. Ray reuses process numbers in each new cluster."""
    context = ray.get_runtime_context()
    return f"{context.get_worker_id()} beside {context.get_node_id()}"


def _numeric_address(address: str, own: str) -> tuple[str, str]:
    """Return an address with its host name resolved; ``own`` is the address of this machine."""
    host, _, port = address.rpartition(":")
    try:
        number = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return host, port
    return own if number.startswith("127.") else number, port


def import_ray() -> Any:
    """Import Ray with its usage reports disabled."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "backend='ray' (--backend ray) needs Ray, which is not installed. Install it: pip "
            "install 'graphveil[ray]'"
        ) from None
    return ray
