"""Workers on a cluster of Ray: joined, started, given keys and work, and replaced when they are lost.

Ray starts processes, finds them room, and carries sealed values; it repeats nothing by itself. What it
writes down of a call are a method's name, the numbers of rows, and random names. The numbers of a block are
a function of the block and the work alone, so a lost block is computed again by another worker.

Ray joins one cluster a process. Of a cluster that this process started for itself, processors are not
reserved: no other user exists, and two backends that want different workers would wait for each other.
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
from graphveil.data import Adjacency
from graphveil.data.blocks import block_of
from graphveil.data.stored_graph import StoredEdges, manifest_of
from graphveil.errors import ConfigError, MissingDependencyError, ReleaseError
from graphveil.release.backends import BlockWork

_AHEAD = 2  # blocks a worker has at a time: it need not wait for the next one
_TRIES = 4  # of a block: a worker that dies so often on it dies of it
_QUIET = {  # read by Ray when it is imported or started
    "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
_own: set[str] = set()  # what joined_as says of clusters that were started here
Member = TypeVar("Member")


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """Which cluster, and what of it."""

    address: str | None
    workers: int | None
    threads: int
    wait: float


@dataclass(eq=False)
class WorkerHandle:
    """A worker: Ray's handle of it."""

    handle: Any


@dataclass(eq=False)
class GraphPlacement:
    """What of a graph lies ready: its name, the parcel of where it is stored, and those of blocks sent."""

    name: str
    stored: SealedBlob | None
    blocks: dict[Rows, SealedBlob] = field(default_factory=dict)
    last_worker: dict[Rows, dict[int, WorkerHandle]] = field(default_factory=dict)


class RayWorkerPool:
    """The workers of one process on one cluster, which stay until the process ends.

    All parcels are sealed under one key, which each worker is sent sealed to its own lock. Backends share a
    worker_pool: it grows to what the greediest of them wants, and each query is dealt to as many as its own
        does.
    """

    def __init__(self, config: PoolConfig) -> None:
        """Join or start the cluster, and ask it for workers.

        Raises:
            ConfigError: the cluster is not there, has no room, or has another version of this library.
        """
        self._ray, self._config, self._box = connect(config.address), config, SecretBox()
        self._joined = process_identity(self._ray)
        self._placement: WeakKeyDictionary[Adjacency, GraphPlacement] = WeakKeyDictionary()
        self._ready: list[WorkerHandle] = []
        self._starting: dict[Any, WorkerHandle] = {}
        self._graph: GraphPlacement | None = None
        self._query: QueryRun | None = None
        try:
            self._start_missing_workers()
        except BaseException:
            self.shut_down()
            raise

    def reconfigure(self, config: PoolConfig) -> bool:
        """Whether this crew can do what is wanted now; if so, see that enough workers are there.

        Raises:
            ConfigError: another cluster is wanted than this process is joined to.
        """
        if not self.is_connected or config.threads != self._config.threads:
            return False
        connect(config.address)
        self._config = config
        self._start_missing_workers()
        return True

    def _start_missing_workers(self) -> None:
        """Ask for the workers that are missing, and wait for those that the cluster has processors for."""
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
                f"no worker started on the cluster of Ray within {config.wait:g} seconds; ask for fewer "
                "threads (threads=), or for what is free there (ray status)"
            )

    @property
    def is_connected(self) -> bool:
        """Whether this process is still joined to the cluster as it was."""
        return bool(self._ray.is_initialized() and process_identity(self._ray) == self._joined)

    # -- what a backend asks -------------------------------------------------------------------------------

    def members(self, workers: int | None = None) -> list[WorkerHandle]:
        """Return the workers that are there, or so many of them."""
        return self._ready[:workers]

    def send_graph(self, adjacency: Adjacency) -> None:
        """Show the workers a graph; refuse one that they cannot read.

        Raises:
            ConfigError: the folder of a prepared graph is not where the workers are.
        """
        placement = self._placement_of(adjacency)
        if self._graph is placement:
            return
        self._graph = self._query = None  # until all have seen it, whatever happens meanwhile
        answers = [worker.handle.set_graph.remote(placement.name, placement.stored) for worker in self._ready]
        for words in self._all(answers):
            if words:
                raise ConfigError(
                    f"a worker cannot read the prepared graph: {words}; keep the folder on storage that "
                    "every machine has under the same path"
                )
        self._graph = placement

    def run(self, work: BlockWork, adjacency: Adjacency, rows: list[Rows], losses: int) -> Iterator[Result]:
        """Yield what a work makes of blocks of rows, in their order.

        Raises:
            ReleaseError: too many workers were lost, or another query was begun meanwhile.
        """
        self.send_graph(adjacency)
        placement = self._placement_of(adjacency)
        if placement.stored is None:
            for each in rows:
                if each not in placement.blocks:
                    name = f"{placement.name}/{each[0]}-{each[1]}"
                    placement.blocks[each] = self._put(name, block_of(adjacency, *each))
        last_worker = placement.last_worker.setdefault((len(rows), rows[0][0] if rows else 0), {})
        query = self._query = QueryRun(self, self._config, placement, rows, self._put(token_hex(8), work))
        try:
            yield from BlockScheduler(query, len(rows), last_worker, losses).run()
        finally:
            query.end()

    def is_current(self, query: "QueryRun") -> bool:
        """Whether a query is the one that is being answered: none was begun after it."""
        return self._query is query

    def wait_for_any(self, tickets: list[object], wait: float) -> object | None:
        """Wait for a ticket of these, or for a worker that joins (None).

        Raises:
            ReleaseError: nobody is there, and nobody came in time.
        """
        if not self._ready and not tickets:
            if not self._starting or not self._add_ready_worker(wait):
                raise ReleaseError(
                    f"every worker is lost and none came within {wait:g} seconds; the release stays charged: "
                    "resume the run where it had a folder, and it draws the same noise"
                )
            return None
        ready, _ = self._ray.wait([*tickets, *self._starting], num_returns=1, fetch_local=False)
        if ready[0] not in self._starting:
            return ready[0]  # type: ignore[no-any-return]  # Ray says nothing of its tickets
        self._add_ready_worker(0)
        return None

    def fetch(self, ticket: Any) -> Any:
        """Return a call's answer.

        Raises:
            WorkerLostError: it never came: the worker, its machine, or the answer is gone.
            ConfigError: the worker does not know the call: it runs another graphveil.
        """
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, TypeError | AttributeError):
                raise WorkerLostError from None
            raise ConfigError(
                f"the cluster's graphveil is called {__version__} like this one and is another; install the "
                "same one on every machine, and start this process where it would find no other"
            ) from None
        except self._ray.exceptions.RayError:
            raise WorkerLostError from None

    def replace(self, worker: WorkerHandle) -> None:
        """Let a worker go for good, and start another one."""
        self._ready.remove(worker)
        self._ray.kill(worker.handle)
        self._start()

    def shut_down(self) -> None:
        """End all workers, if this process is still on the cluster."""
        members = [*self._ready, *self._starting.values()]
        self._ready, self._starting, self._query = [], {}, None
        if self.is_connected:
            for worker in members:
                self._ray.kill(worker.handle)

    # -- workers -------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Ask for a worker, which joins when it says hello."""
        threads = self._config.threads
        kind = _remote_worker().options(
            num_cpus=0 if is_own_cluster(self._ray) else threads,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        worker = WorkerHandle(kind.remote(threads))
        self._starting[worker.handle.handshake.remote()] = worker

    def _add_ready_worker(self, wait: float) -> bool:
        """Take in one worker that has said hello; whether one did. One that died is not waited for again."""
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
                f"the cluster has version {version} of graphveil and this is {__version__}; install the same "
                "one there"
            )
        worker.handle.take_key.remote(seal_to(public, self._box.key))
        if self._graph is not None:
            worker.handle.set_graph.remote(self._graph.name, self._graph.stored)
        self._ready.append(worker)
        del self._starting[ready[0]]  # last: whoever is in neither list is not let go with the others
        return True

    # -- parcels -------------------------------------------------------------------------------------------

    def _placement_of(self, adjacency: Adjacency) -> GraphPlacement:
        """Return what is ready of a graph; of a prepared one, where its blocks are."""
        placement = self._placement.get(adjacency)
        if placement is None:
            name, stored = token_hex(8), None
            if adjacency.folder is not None:
                stored = self._put(name, StoredEdges(adjacency.folder.resolve(), manifest_of(adjacency)))
            placement = self._placement[adjacency] = GraphPlacement(name, stored)
        return placement

    def _put(self, name: str, value: object) -> SealedBlob:
        """Seal a value and keep it where every worker gets it."""
        size, parts = seal_value(name, value, self._box)
        return SealedBlob(name, size, tuple(self._ray.put(part) for part in parts))

    def _all(self, tickets: list[Any]) -> list[Any]:
        """Return all answers; a worker that is lost has none, and is missed when it is asked for a block."""
        answers = []
        for ticket in tickets:
            try:
                answers.append(self.fetch(ticket))
            except WorkerLostError:
                continue
        return answers


@lru_cache(maxsize=1)
def _remote_worker() -> Any:
    """Return the worker's class, as Ray starts it."""
    ray = import_ray()

    class RayWorker(Worker):
        """Fetches parts of parcels from Ray's store, one at a time."""

        def __init__(self, threads: int) -> None:
            super().__init__(threads, ray.get)

    return ray.remote(RayWorker)


class QueryRun:
    """One query of a crew: its blocks are asked for under its own name, until another query is begun.

    A query may be left where it stands, by an error or an interruption. What workers still do for it nobody
    takes, and its end, however late, ends nothing of the next one's.
    """

    def __init__(
        self,
        worker_pool: RayWorkerPool,
        config: PoolConfig,
        placement: GraphPlacement,
        rows: list[Rows],
        work: SealedBlob,
    ) -> None:
        """Take what is asked about which graph."""
        self._worker_pool, self._config, self._placement = worker_pool, config, placement
        self._rows, self._work = rows, work
        self._informed: list[WorkerHandle] = []

    def members(self) -> list[WorkerHandle]:
        """Return who may be asked.

        Raises:
            ReleaseError: another query was begun.
        """
        if not self._worker_pool.is_current(self):
            raise ReleaseError(
                "another query was begun on the cluster before all of this one was read, which ended it; the "
                "release stays charged: resume the run where it had a folder, and it draws the same noise"
            )
        return self._worker_pool.members(self._config.workers)

    def submit(self, worker: WorkerHandle, block: int) -> object:
        """Ask a worker for a block; who is asked for the first time gets the work before."""
        name, rows = self._work.name, self._rows[block]
        if worker not in self._informed:
            worker.handle.begin.remote(self._placement.name, self._work)
            self._informed.append(worker)
        return worker.handle.block.remote(name, rows, self._placement.blocks.get(rows))

    def first(self, tickets: list[object]) -> object | None:
        """Wait for a block, or for a worker that joins."""
        return self._worker_pool.wait_for_any(tickets, self._config.wait)

    def fetch_result(self, ticket: object) -> Result:
        """Fetch a result."""
        result: Result = self._worker_pool.fetch(ticket)
        return result

    def replace(self, worker: WorkerHandle) -> None:
        """Let a worker go for good, and start another one."""
        self._worker_pool.replace(worker)

    def end(self) -> None:
        """Have the workers forget this query's work, and none that they were given since."""
        for worker in self._informed:
            if worker in self._worker_pool.members():
                worker.handle.end.remote(self._work.name)


# -- who works on which block ----


class WorkerLostError(Exception):
    """A worker is gone, and what it was doing with it."""


class WorkerPool(Protocol, Generic[Member]):
    """Some workers that come and go."""

    def members(self) -> list[Member]:
        """Return who is there."""

    def submit(self, worker: Member, block: int) -> object:
        """Ask for a block; return a ticket."""

    def first(self, tickets: list[object]) -> object | None:
        """Wait for what is done next, and return its ticket; None if somebody joined meanwhile.

        Raises:
            ReleaseError: nobody is there, and nobody came in time.
        """

    def fetch_result(self, ticket: object) -> Result:
        """Return what came of it.

        Raises:
            WorkerLostError: nothing did.
        """

    def replace(self, worker: Member) -> None:
        """Let a worker go, and ask for another one."""


class BlockScheduler(Generic[Member]):
    """Deals blocks to a crew, each to whoever had it last while there are such blocks.

    Args:
        worker_pool: the workers.
        count: how many blocks there are.
        last_worker: who had which block last; kept up to date.
        losses: how many workers may be lost.
    """

    def __init__(
        self,
        worker_pool: WorkerPool[Member],
        count: int,
        last_worker: dict[int, Member],
        losses: int,
    ) -> None:
        """Put all blocks in line."""
        self._worker_pool, self._last_worker, self._losses = worker_pool, last_worker, losses
        self._queue = deque(range(count))
        self._tries = [0] * count
        self._pending: dict[object, tuple[Member, int]] = {}

    def run(self) -> Iterator[Result]:
        """Yield what comes of each block, in the order of the blocks.

        Raises:
            ReleaseError: too many workers were lost, or one block lost too many.
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
        """Ask every worker that has room for another block, those that have least first."""
        members = self._worker_pool.members()
        for load in range(_AHEAD):
            for worker in members:
                if self._queue and sum(one is worker for one, _ in self._pending.values()) == load:
                    block = self._next(worker)
                    self._pending[self._worker_pool.submit(worker, block)] = (worker, block)

    def _next(self, worker: Member) -> int:
        """Take a block out of the line: one that the worker had before, else one that nobody here had."""
        own = (block for block in self._queue if self._last_worker.get(block) is worker)
        free = (block for block in self._queue if self._last_worker.get(block) is None)
        block = next(own, None)
        if block is None:
            block = next(free, self._queue[-1])
        self._queue.remove(block)
        return block

    def _return(self, worker: Member, block: int) -> None:
        """Let a lost worker go, and put what it had back in line; refuse where that happens too often."""
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
                f"{'one block' if self._losses >= 0 else 'this query'} lost too many workers, perhaps for "
                "want of memory; the release stays charged. Give workers more memory or smaller blocks "
                "(block_rows=), and resume the run where it had a folder: it draws the same noise"
            )


# -- the cluster ----


def connect(address: str | None) -> Any:
    """Return Ray, joined to the cluster at the address; without one, to where this process or RAY_ADDRESS is.

    Where there is none a cluster of this machine alone is started, without a dashboard.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: there is no cluster at the address, or this process is joined to another one.
    """
    ray = import_ray()
    if ray.is_initialized():
        _check_address(ray, address)
        return ray
    local = address is None and "RAY_ADDRESS" not in os.environ
    given: dict[str, Any] = {"include_dashboard": False} if local else {"address": address}
    try:
        ray.init(**given, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"there is no cluster of Ray at address={address!r} (--address) that this process can join "
            f"({type(error).__name__}); start one with ray start --head, or leave the address out"
        ) from None
    if local:
        _own.add(process_identity(ray))
    return ray


def process_identity(ray: Any) -> str:
    """Return who this process is on which cluster: Ray numbers the processes of each new cluster alike."""
    context = ray.get_runtime_context()
    return f"{context.get_worker_id()} beside {context.get_node_id()}"


def is_own_cluster(ray: Any) -> bool:
    """Whether this process started the cluster for itself."""
    return process_identity(ray) in _own


def _check_address(ray: Any, address: str | None) -> None:
    """Refuse another cluster than the one that this process is joined to: edges would go to the wrong one."""
    here, own = str(ray.get_runtime_context().gcs_address), ray.util.get_node_ip_address()
    if address not in (None, "auto") and _numeric_address(str(address), own) != _numeric_address(here, own):
        raise ConfigError(
            f"this process is joined to the cluster of Ray at {here}, and address={address!r} (--address) is "
            "another one; leave the address out, or leave that cluster first (ray.shutdown())"
        )


def _numeric_address(address: str, own: str) -> tuple[str, str]:
    """Return an address by number, where its name has one; ``own`` is the number of this machine."""
    host, _, port = address.rpartition(":")
    try:
        number = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return host, port
    return own if number.startswith("127.") else number, port


def import_ray() -> Any:
    """Import Ray, which is told to report to nobody."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "backend='ray' (--backend ray) needs Ray; install the extra: pip install 'graphveil[ray]'"
        ) from None
    return ray
