"""Who works on which block, and what happens to a block whose worker is lost.

A block's numbers are a function of the block and the work alone, so it does not matter who makes them, or
that somebody made them before and died. A block that was handed on is not asked for again.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from graphveil.errors import ReleaseError
from graphveil.release.engines.cluster.worker import Result

_AHEAD = 2  # blocks a worker has at a time: it need not wait for the next one
_TRIES = 4  # of a block: a worker that dies so often on it dies of it

Member = TypeVar("Member")


class LostError(Exception):
    """A worker is gone, and what it was doing with it."""


class Crew(Protocol, Generic[Member]):
    """Some workers that come and go."""

    def members(self) -> list[Member]:
        """Return who is there."""

    def ask(self, member: Member, block: int) -> object:
        """Ask for a block; return a ticket."""

    def first(self, tickets: list[object]) -> object | None:
        """Wait for what is done next, and return its ticket; None if somebody joined meanwhile.

        Raises:
            ReleaseError: nobody is there, and nobody came in time.
        """

    def take(self, ticket: object) -> Result:
        """Return what came of it.

        Raises:
            LostError: nothing did.
        """

    def leave(self, member: Member) -> None:
        """Let a worker go, and ask for another one."""


class Dealer(Generic[Member]):
    """Deals blocks to a crew, each to whoever had it last while there are such blocks.

    Args:
        crew: the workers.
        count: how many blocks there are.
        homes: who had which block last; kept up to date.
        losses: how many workers may be lost.
    """

    def __init__(self, crew: Crew[Member], count: int, homes: dict[int, Member], losses: int) -> None:
        """Put all blocks in line."""
        self._crew, self._homes, self._losses = crew, homes, losses
        self._line = deque(range(count))
        self._tries = [0] * count
        self._asked: dict[object, tuple[Member, int]] = {}

    def run(self) -> Iterator[Result]:
        """Yield what comes of each block, in the order of the blocks.

        Raises:
            ReleaseError: too many workers were lost, or one block lost too many.
        """
        count, done, place = len(self._line), dict[int, Result](), 0
        while place < count:
            self._deal()
            ticket = self._crew.first(list(self._asked))
            if ticket is None:
                continue
            member, block = self._asked.pop(ticket)
            try:
                done[block] = self._crew.take(ticket)
                self._homes[block] = member
            except LostError:
                self._return(member, block)
            while place in done:
                yield done.pop(place)
                place += 1

    def _deal(self) -> None:
        """Ask every worker that has room for another block, those that have least first."""
        members = self._crew.members()
        for load in range(_AHEAD):
            for member in members:
                if self._line and sum(one is member for one, _ in self._asked.values()) == load:
                    block = self._next(member)
                    self._asked[self._crew.ask(member, block)] = (member, block)

    def _next(self, member: Member) -> int:
        """Take a block out of the line: one that the worker had before, else one that nobody here had."""
        own = (block for block in self._line if self._homes.get(block) is member)
        free = (block for block in self._line if self._homes.get(block) is None)
        block = next(own, None)
        if block is None:
            block = next(free, self._line[-1])
        self._line.remove(block)
        return block

    def _return(self, member: Member, block: int) -> None:
        """Let a lost worker go, and put what it had back in line; refuse where that happens too often."""
        had = [ticket for ticket, (one, _) in self._asked.items() if one is member]
        back = sorted([block, *(self._asked.pop(ticket)[1] for ticket in had)])
        self._line.extendleft(reversed(back))
        for number in [number for number, one in self._homes.items() if one is member]:
            del self._homes[number]
        self._crew.leave(member)
        self._losses -= 1
        self._tries[block] += 1
        if self._losses < 0 or self._tries[block] == _TRIES:
            raise ReleaseError(
                f"{'one block' if self._losses >= 0 else 'this query'} lost too many workers, perhaps for "
                "want of memory; the release stays charged. Give workers more memory or smaller blocks "
                "(block_rows=), and resume the run where it had a folder: it draws the same noise"
            )
