"""Workers on a cluster of Ray: started, given keys and work, replaced when they are lost.

Ray starts processes, finds them room, and carries sealed parcels; it repeats nothing by itself. What it
writes down of a call are a method's name and the numbers of rows.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import token_hex
from typing import Any
from weakref import WeakKeyDictionary

from graphveil import __version__
from graphveil._sealed import Box, seal_to
from graphveil.errors import ConfigError, MissingDependencyError, ReleaseError
from graphveil.graph import Adjacency
from graphveil.graph.blocks import block_of
from graphveil.graph.stored.checked import StoredEdges
from graphveil.graph.stored.opened import manifest_of
from graphveil.release.engines.base import BlockWork
from graphveil.release.engines.cluster.dealing import Dealer, LostError
from graphveil.release.engines.cluster.parcels import Parcel, packed
from graphveil.release.engines.cluster.worker import Result, Rows, Worker

_QUIET = {  # read by Ray when it is imported or started
    "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which cluster, and what of it."""

    address: str | None
    workers: int | None
    threads: int
    wait: float


@dataclass(eq=False)
class Member:
    """A worker: Ray's handle of it."""

    handle: Any


@dataclass(eq=False)
class Laid:
    """What of a graph lies ready: its name, the parcel of where it is stored, and those of blocks sent."""

    name: str
    stored: Parcel | None
    blocks: dict[Rows, Parcel] = field(default_factory=dict)
    homes: dict[Rows, dict[int, Member]] = field(default_factory=dict)


class RayCrew:
    """The workers of one process on one cluster, which stay until the process ends.

    All parcels are sealed under one key, which each worker is sent sealed to its own lock.
    """

    def __init__(self, wanted: Wanted) -> None:
        """Join or start the cluster, and ask it for workers.

        Raises:
            ConfigError: the cluster is not there, has no room, or has another version of this library.
        """
        self._ray, self._wanted, self._box = connected(wanted), wanted, Box()
        self._joined = self._ray.get_runtime_context().get_worker_id()
        self._laid: WeakKeyDictionary[Adjacency, Laid] = WeakKeyDictionary()
        self._here: list[Member] = []
        self._coming: dict[Any, Member] = {}
        self._graph: Laid | None = None
        self._work: Parcel | None = None
        self._call: tuple[list[Rows], dict[Rows, Parcel]] = ([], {})
        try:
            self._gather(wanted.workers or self._room())
        except BaseException:
            self.dismiss()
            raise

    def _gather(self, workers: int) -> None:
        """Wait for so many workers, or for those that come in time."""
        wanted = self._wanted
        for _ in range(workers):
            self._start()
        while self._coming:
            if not self._admit(wanted.wait):
                break
        if not self._here:
            raise ConfigError(
                f"no worker started on the cluster of Ray within {wanted.wait:g} seconds; ask for fewer "
                "threads (threads=), or for what is free there (ray status)"
            )

    @property
    def stands(self) -> bool:
        """Whether this process is still joined to the cluster as it was."""
        ray = self._ray
        return bool(ray.is_initialized() and ray.get_runtime_context().get_worker_id() == self._joined)

    # -- what an engine asks -------------------------------------------------------------------------------

    def look(self, adjacency: Adjacency) -> None:
        """Show the workers a graph; refuse one that they cannot read.

        Raises:
            ConfigError: the folder of a prepared graph is not where the workers are.
        """
        laid = self._laid_of(adjacency)
        if self._graph is laid:
            return
        self._graph = laid
        answers = [member.handle.see.remote(laid.name, laid.stored) for member in self._here]
        for words in self._all(answers):
            if words:
                self._graph = None
                raise ConfigError(
                    f"a worker cannot read the prepared graph: {words}; keep the folder on storage that "
                    "every machine has under the same path"
                )

    def run(self, work: BlockWork, adjacency: Adjacency, rows: list[Rows], losses: int) -> Iterator[Result]:
        """Yield what a work makes of blocks of rows, in their order."""
        self.look(adjacency)
        laid = self._laid_of(adjacency)
        if laid.stored is None:
            for each in rows:
                if each not in laid.blocks:
                    laid.blocks[each] = self._put(
                        f"{laid.name}/{each[0]}-{each[1]}", block_of(adjacency, *each)
                    )
        self._work = self._put(token_hex(8), work)
        self._call = rows, laid.blocks
        for member in self._here:
            member.handle.begin.remote(laid.name, self._work)
        homes = laid.homes.setdefault((len(rows), rows[0][0] if rows else 0), {})
        try:
            yield from Dealer(self, len(rows), homes, losses).run()
        finally:
            self._work = None
            for member in self._here:
                member.handle.end.remote()

    def dismiss(self) -> None:
        """End all workers, if this process is still on the cluster."""
        members = [*self._here, *self._coming.values()]
        self._here, self._coming = [], {}
        if self.stands:
            for member in members:
                self._ray.kill(member.handle)

    # -- what a dealer asks --------------------------------------------------------------------------------

    def members(self) -> list[Member]:
        """Return the workers that are there."""
        return list(self._here)

    def ask(self, member: Member, block: int) -> object:
        """Ask a worker for a block."""
        rows, parcels = self._call
        return member.handle.block.remote(rows[block], parcels.get(rows[block]))

    def first(self, tickets: list[object]) -> object | None:
        """Wait for a block, or for a worker that joins."""
        if not self._here and not tickets:
            if not self._coming or not self._admit(self._wanted.wait):
                raise ReleaseError(
                    f"every worker is lost and none came within {self._wanted.wait:g} seconds; the release "
                    "stays booked: resume the run where it had a folder, and it draws the same noise"
                )
            return None
        ready, _ = self._ray.wait([*tickets, *self._coming], num_returns=1, fetch_local=False)
        if ready[0] not in self._coming:
            return ready[0]  # type: ignore[no-any-return]
        self._admit(0)
        return None

    def take(self, ticket: object) -> Result:
        """Fetch a result."""
        result: Result = self._fetched(ticket)
        return result

    def leave(self, member: Member) -> None:
        """Let a worker go for good, and start another one."""
        self._here.remove(member)
        self._ray.kill(member.handle)
        self._start()

    # -- workers -------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """Return how many workers the cluster has processors for."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self._wanted.threads)

    def _start(self) -> None:
        """Ask for a worker, which joins when it says hello."""
        threads = self._wanted.threads
        kind = _remote_worker().options(
            num_cpus=threads, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        member = Member(kind.remote(threads))
        self._coming[member.handle.hello.remote()] = member

    def _admit(self, wait: float) -> bool:
        """Take in one worker that has said hello; whether one did. One that died is asked for anew."""
        ready, _ = self._ray.wait(list(self._coming), num_returns=1, timeout=wait)
        if not ready:
            return False
        member = self._coming.pop(ready[0])
        try:
            version, public = self._fetched(ready[0])
        except LostError:
            return False
        if version != __version__:
            raise ConfigError(
                f"the cluster has version {version} of graphveil and this is {__version__}; install the same "
                "one there"
            )
        member.handle.take_key.remote(seal_to(public, self._box.key))
        if self._graph is not None:
            member.handle.see.remote(self._graph.name, self._graph.stored)
            if self._work is not None:
                member.handle.begin.remote(self._graph.name, self._work)
        self._here.append(member)
        return True

    # -- parcels -------------------------------------------------------------------------------------------

    def _laid_of(self, adjacency: Adjacency) -> Laid:
        """Return what is ready of a graph; of a prepared one, where its blocks are."""
        laid = self._laid.get(adjacency)
        if laid is None:
            name, stored = token_hex(8), None
            if adjacency.folder is not None:
                stored = self._put(name, StoredEdges(adjacency.folder.resolve(), manifest_of(adjacency)))
            laid = self._laid[adjacency] = Laid(name, stored)
        return laid

    def _put(self, name: str, value: object) -> Parcel:
        """Seal a value and keep it where every worker gets it."""
        sizes, parts = packed(name, value, self._box)
        return Parcel(name, sizes, tuple(self._ray.put(part) for part in parts))

    def _all(self, tickets: list[Any]) -> list[Any]:
        """Return all answers; a worker that is lost has none, and is missed when it is asked for a block."""
        answers = []
        for ticket in tickets:
            try:
                answers.append(self._fetched(ticket))
            except LostError:
                continue
        return answers

    def _fetched(self, ticket: Any) -> Any:
        """Return a call's answer.

        Raises:
            LostError: it never came: the worker, its machine, or the answer is gone.
        """
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayError:
            raise LostError from None


def connected(wanted: Wanted) -> Any:
    """Return Ray, joined to the cluster at the address; without one, to where this process or RAY_ADDRESS is.

    Where there is none a cluster of this machine alone is started, without a dashboard.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: there is no cluster at the address.
    """
    ray = imported()
    if not ray.is_initialized():
        local = wanted.address is None and "RAY_ADDRESS" not in os.environ
        given: dict[str, Any] = {"include_dashboard": False} if local else {"address": wanted.address}
        if local and wanted.workers is not None:
            given["num_cpus"] = max(os.cpu_count() or 1, wanted.workers * wanted.threads)
        try:
            ray.init(**given, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"there is no cluster of Ray at address={wanted.address!r} (--address) that this process can "
                f"join ({type(error).__name__}); start one with ray start --head, or leave the address out"
            ) from None
    return ray


def imported() -> Any:
    """Import Ray, which is told to report to nobody."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "engine='ray' (--engine ray) needs Ray; install the extra: pip install 'graphveil[ray]'"
        ) from None
    return ray


@lru_cache(maxsize=1)
def _remote_worker() -> Any:
    """Return the worker's class, as Ray starts it."""
    ray = imported()

    class RayWorker(Worker):
        """Fetches parts of parcels from Ray's store, one at a time."""

        def __init__(self, threads: int) -> None:
            super().__init__(threads, ray.get)

    return ray.remote(RayWorker)
