"""Workers on a cluster of Ray: started, given keys and work, replaced when they are lost.

Ray starts processes, finds them room, and carries sealed parcels; it repeats nothing by itself. What it
writes down of a call are a method's name, the numbers of rows, and random names.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from secrets import token_hex
from typing import Any
from weakref import WeakKeyDictionary

from graphveil import __version__
from graphveil._sealed import Box, seal_to
from graphveil.errors import ConfigError, ReleaseError
from graphveil.graph import Adjacency
from graphveil.graph.blocks import block_of
from graphveil.graph.stored.checked import StoredEdges
from graphveil.graph.stored.opened import manifest_of
from graphveil.release.engines.base import BlockWork
from graphveil.release.engines.cluster.dealing import Dealer, LostError
from graphveil.release.engines.cluster.joining import connected, imported, joined_as, owned
from graphveil.release.engines.cluster.parcels import Parcel, packed
from graphveil.release.engines.cluster.worker import Result, Rows, Worker


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

    All parcels are sealed under one key, which each worker is sent sealed to its own lock. Engines share a
    crew: it grows to what the greediest of them wants, and each query is dealt to as many as its own does.
    """

    def __init__(self, wanted: Wanted) -> None:
        """Join or start the cluster, and ask it for workers.

        Raises:
            ConfigError: the cluster is not there, has no room, or has another version of this library.
        """
        self._ray, self._wanted, self._box = connected(wanted.address), wanted, Box()
        self._joined = joined_as(self._ray)
        self._laid: WeakKeyDictionary[Adjacency, Laid] = WeakKeyDictionary()
        self._here: list[Member] = []
        self._coming: dict[Any, Member] = {}
        self._graph: Laid | None = None
        self._query: Asked | None = None
        try:
            self._gather()
        except BaseException:
            self.dismiss()
            raise

    def serves(self, wanted: Wanted) -> bool:
        """Whether this crew can do what is wanted now; if so, see that enough workers are there.

        Raises:
            ConfigError: another cluster is wanted than this process is joined to.
        """
        if not self.stands or wanted.threads != self._wanted.threads:
            return False
        connected(wanted.address)
        self._wanted = wanted
        self._gather()
        return True

    def _gather(self) -> None:
        """Ask for the workers that are missing, and wait for those that the cluster has processors for."""
        wanted, room = self._wanted, self._room()
        workers = wanted.workers or room
        missing = workers - len(self._here) - len(self._coming)
        for _ in range(missing):
            self._start()
        while self._coming and (not self._here or (missing > 0 and len(self._here) < min(workers, room))):
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
        return bool(self._ray.is_initialized() and joined_as(self._ray) == self._joined)

    # -- what an engine asks -------------------------------------------------------------------------------

    def members(self, workers: int | None = None) -> list[Member]:
        """Return the workers that are there, or so many of them."""
        return self._here[:workers]

    def look(self, adjacency: Adjacency) -> None:
        """Show the workers a graph; refuse one that they cannot read.

        Raises:
            ConfigError: the folder of a prepared graph is not where the workers are.
        """
        laid = self._laid_of(adjacency)
        if self._graph is laid:
            return
        self._graph = self._query = None  # until all have seen it, whatever happens meanwhile
        answers = [member.handle.see.remote(laid.name, laid.stored) for member in self._here]
        for words in self._all(answers):
            if words:
                raise ConfigError(
                    f"a worker cannot read the prepared graph: {words}; keep the folder on storage that "
                    "every machine has under the same path"
                )
        self._graph = laid

    def run(self, work: BlockWork, adjacency: Adjacency, rows: list[Rows], losses: int) -> Iterator[Result]:
        """Yield what a work makes of blocks of rows, in their order.

        Raises:
            ReleaseError: too many workers were lost, or another query was begun meanwhile.
        """
        self.look(adjacency)
        laid = self._laid_of(adjacency)
        if laid.stored is None:
            for each in rows:
                if each not in laid.blocks:
                    name = f"{laid.name}/{each[0]}-{each[1]}"
                    laid.blocks[each] = self._put(name, block_of(adjacency, *each))
        homes = laid.homes.setdefault((len(rows), rows[0][0] if rows else 0), {})
        query = self._query = Asked(self, self._wanted, laid, rows, self._put(token_hex(8), work))
        try:
            yield from Dealer(query, len(rows), homes, losses).run()
        finally:
            query.end()

    def asks(self, query: "Asked") -> bool:
        """Whether a query is the one that is being answered: none was begun after it."""
        return self._query is query

    def next_of(self, tickets: list[object], wait: float) -> object | None:
        """Wait for a ticket of these, or for a worker that joins (None).

        Raises:
            ReleaseError: nobody is there, and nobody came in time.
        """
        if not self._here and not tickets:
            if not self._coming or not self._admit(wait):
                raise ReleaseError(
                    f"every worker is lost and none came within {wait:g} seconds; the release stays charged: "
                    "resume the run where it had a folder, and it draws the same noise"
                )
            return None
        ready, _ = self._ray.wait([*tickets, *self._coming], num_returns=1, fetch_local=False)
        if ready[0] not in self._coming:
            return ready[0]  # type: ignore[no-any-return]  # Ray says nothing of its tickets
        self._admit(0)
        return None

    def fetched(self, ticket: Any) -> Any:
        """Return a call's answer.

        Raises:
            LostError: it never came: the worker, its machine, or the answer is gone.
            ConfigError: the worker does not know the call: it runs another graphveil.
        """
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:
            if not isinstance(error.cause, TypeError | AttributeError):
                raise LostError from None
            raise ConfigError(
                f"the cluster's graphveil is called {__version__} like this one and is another; install the "
                "same one on every machine, and start this process where it would find no other"
            ) from None
        except self._ray.exceptions.RayError:
            raise LostError from None

    def leave(self, member: Member) -> None:
        """Let a worker go for good, and start another one."""
        self._here.remove(member)
        self._ray.kill(member.handle)
        self._start()

    def dismiss(self) -> None:
        """End all workers, if this process is still on the cluster."""
        members = [*self._here, *self._coming.values()]
        self._here, self._coming, self._query = [], {}, None
        if self.stands:
            for member in members:
                self._ray.kill(member.handle)

    # -- workers -------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """Return how many workers the cluster has processors for."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self._wanted.threads)

    def _start(self) -> None:
        """Ask for a worker, which joins when it says hello."""
        threads = self._wanted.threads
        kind = _remote_worker().options(
            num_cpus=0 if owned(self._ray) else threads,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        member = Member(kind.remote(threads))
        self._coming[member.handle.hello.remote()] = member

    def _admit(self, wait: float) -> bool:
        """Take in one worker that has said hello; whether one did. One that died is not waited for again."""
        ready, _ = self._ray.wait(list(self._coming), num_returns=1, timeout=wait)
        if not ready:
            return False
        member = self._coming[ready[0]]
        try:
            version, public = self.fetched(ready[0])
        except LostError:
            del self._coming[ready[0]]
            return False
        if version != __version__:
            raise ConfigError(
                f"the cluster has version {version} of graphveil and this is {__version__}; install the same "
                "one there"
            )
        member.handle.take_key.remote(seal_to(public, self._box.key))
        if self._graph is not None:
            member.handle.see.remote(self._graph.name, self._graph.stored)
        self._here.append(member)
        del self._coming[ready[0]]  # last: whoever is in neither list is not let go with the others
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
        size, parts = packed(name, value, self._box)
        return Parcel(name, size, tuple(self._ray.put(part) for part in parts))

    def _all(self, tickets: list[Any]) -> list[Any]:
        """Return all answers; a worker that is lost has none, and is missed when it is asked for a block."""
        answers = []
        for ticket in tickets:
            try:
                answers.append(self.fetched(ticket))
            except LostError:
                continue
        return answers


@lru_cache(maxsize=1)
def _remote_worker() -> Any:
    """Return the worker's class, as Ray starts it."""
    ray = imported()

    class RayWorker(Worker):
        """Fetches parts of parcels from Ray's store, one at a time."""

        def __init__(self, threads: int) -> None:
            super().__init__(threads, ray.get)

    return ray.remote(RayWorker)


class Asked:
    """One query of a crew: its blocks are asked for under its own name, until another query is begun.

    A query may be left where it stands, by an error or an interruption. What workers still do for it nobody
    takes, and its end, however late, ends nothing of the next one's.
    """

    def __init__(self, crew: RayCrew, wanted: Wanted, laid: Laid, rows: list[Rows], work: Parcel) -> None:
        """Take what is asked about which graph."""
        self._crew, self._wanted, self._laid, self._rows, self._work = crew, wanted, laid, rows, work
        self._told: list[Member] = []

    def members(self) -> list[Member]:
        """Return who may be asked.

        Raises:
            ReleaseError: another query was begun.
        """
        if not self._crew.asks(self):
            raise ReleaseError(
                "another query was begun on the cluster before all of this one was read, which ended it; the "
                "release stays charged: resume the run where it had a folder, and it draws the same noise"
            )
        return self._crew.members(self._wanted.workers)

    def ask(self, member: Member, block: int) -> object:
        """Ask a worker for a block; who is asked for the first time gets the work before."""
        name, rows = self._work.name, self._rows[block]
        if member not in self._told:
            member.handle.begin.remote(self._laid.name, self._work)
            self._told.append(member)
        return member.handle.block.remote(name, rows, self._laid.blocks.get(rows))

    def first(self, tickets: list[object]) -> object | None:
        """Wait for a block, or for a worker that joins."""
        return self._crew.next_of(tickets, self._wanted.wait)

    def take(self, ticket: object) -> Result:
        """Fetch a result."""
        result: Result = self._crew.fetched(ticket)
        return result

    def leave(self, member: Member) -> None:
        """Let a worker go for good, and start another one."""
        self._crew.leave(member)

    def end(self) -> None:
        """Have the workers forget this query's work, and none that they were given since."""
        for member in self._told:
            if member in self._crew.members():
                member.handle.end.remote(self._work.name)
