"""Who works on which block, and what happens to a block whose worker is lost.

A block's numbers are a function of the block and the work alone, so it does not matter who makes them, or
that somebody made them before and died. A block that was handed on is not asked for again.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from graphveil.cluster.worker import Result
from graphveil.errors import ReleaseError

_AHEAD = 2  # blocks a worker has at a time: it need not wait for the next one
_TRIES = 4  # of a block: a worker that dies so often on it dies of it

WorkerHandle = TypeVar("WorkerHandle")


class WorkerLostError(Exception):
    """A worker is gone, and what it was doing with it."""


class WorkerPool(Protocol, Generic[WorkerHandle]):
    """Some workers that come and go."""

    def members(self) -> list[WorkerHandle]:
        """Return who is there."""

    def submit(self, worker: WorkerHandle, block: int) -> object:
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

    def replace(self, worker: WorkerHandle) -> None:
        """Let a worker go, and ask for another one."""


class BlockScheduler(Generic[WorkerHandle]):
    """Deals blocks to a crew, each to whoever had it last while there are such blocks.

    Args:
        worker_pool: the workers.
        count: how many blocks there are.
        last_worker: who had which block last; kept up to date.
        losses: how many workers may be lost.
    """

    def __init__(
        self,
        worker_pool: WorkerPool[WorkerHandle],
        count: int,
        last_worker: dict[int, WorkerHandle],
        losses: int,
    ) -> None:
        """Put all blocks in line."""
        self._worker_pool, self._last_worker, self._losses = worker_pool, last_worker, losses
        self._queue = deque(range(count))
        self._tries = [0] * count
        self._pending: dict[object, tuple[WorkerHandle, int]] = {}

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

    def _next(self, worker: WorkerHandle) -> int:
        """Take a block out of the line: one that the worker had before, else one that nobody here had."""
        own = (block for block in self._queue if self._last_worker.get(block) is worker)
        free = (block for block in self._queue if self._last_worker.get(block) is None)
        block = next(own, None)
        if block is None:
            block = next(free, self._queue[-1])
        self._queue.remove(block)
        return block

    def _return(self, worker: WorkerHandle, block: int) -> None:
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
