"""The budget book: every release is booked here before it is computed.

A budget belongs to one protected edge set. The default lives in memory; a durable one can be attached.
"""

import math
import threading
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from graphveil.errors import BudgetError, ConfigError
from graphveil.privacy.accountant import Curve, privacy_curve
from graphveil.privacy.events import Event, compose
from graphveil.privacy.guarantee import figure_up
from graphveil.privacy.unit import Unit


@dataclass(frozen=True)
class Entry:
    """One booked release: its id, what it is, and its event. It holds nothing private.

    ``slack`` is the part of delta that the finite resolution of its noise costs; ``unit`` is what the event
    is priced for.
    """

    release_id: str
    label: str
    event: Event
    slack: float = 0.0
    unit: Unit | None = None


class Budget(Protocol):
    """What a release asks of a budget book."""

    def book(self, entry: Entry) -> None:
        """Record the entry, or raise :class:`BudgetError` and record nothing."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything booked so far, in order."""


class MemoryBudget:
    """A budget in memory, with an optional limit.

    >>> from graphveil.privacy.events import Gaussian
    >>> budget = MemoryBudget(epsilon=1.0, delta=1e-7)
    >>> budget.book(Entry("a", "rows", Gaussian(0.2)))
    >>> budget.book(Entry("b", "rows", Gaussian(0.2)))
    Traceback (most recent call last):
    graphveil.errors.BudgetError: the release 'rows' would bring the total to epsilon 1.349 at delta 1e-07; \
the limit is 1, spent so far 0.9318; ask for a smaller epsilon, or raise the limit
    """

    def __init__(self, *, epsilon: float | None = None, delta: float | None = None) -> None:
        """Take the limit: both figures, or neither for none."""
        if (epsilon is None) != (delta is None):
            raise ConfigError("a limit needs both epsilon= and delta=; give both, or neither for no limit")
        self._epsilon, self._delta = epsilon, delta
        self._entries: list[Entry] = []
        self._lock = threading.Lock()

    def book(self, entry: Entry) -> None:
        """Record the entry unless it would pass the limit; a release id is booked once."""
        with self._lock:
            if any(known.release_id == entry.release_id for known in self._entries):
                raise BudgetError(
                    f"release {entry.release_id} is already booked; a new release needs a new id"
                )
            self._check_limit(entry)
            self._entries.append(entry)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything booked so far, in order."""
        return tuple(self._entries)

    def curve(self) -> Curve:
        """Return the privacy curve of everything booked.

        Raises:
            BudgetError: the entries are priced for different units, whose costs do not add up.
        """
        return _curve(self._entries)

    def _check_limit(self, entry: Entry) -> None:
        if self._epsilon is None or self._delta is None:
            return
        after = _epsilon([*self._entries, entry], self._delta)
        if after > self._epsilon:
            spent = _epsilon(self._entries, self._delta)
            raise BudgetError(
                f"the release {entry.label!r} would bring the total to epsilon {figure_up(after)} at delta "
                f"{self._delta:g}; the limit is {self._epsilon:g}, spent so far {figure_up(spent)}; ask for "
                "a smaller epsilon, or raise the limit"
            )


def _epsilon(entries: list[Entry], delta: float) -> float:
    """Return the epsilon of some entries together, at the delta that their slack leaves."""
    left = delta - sum(entry.slack for entry in entries)
    return _curve(entries).epsilon(left) if left > 0 else math.inf


def _curve(entries: list[Entry]) -> Curve:
    units = {entry.unit for entry in entries if entry.unit is not None}
    if len(units) > 1:
        raise BudgetError(
            f"what the book holds is priced for different units ({', '.join(sorted(map(str, units)))}), and "
            "what one edge costs says nothing about a record: the costs do not add up. Keep to one unit on "
            "this data, or attach no limit and account for each unit by hand"
        )
    return privacy_curve(compose(*(entry.event for entry in entries)))


_books: WeakKeyDictionary[object, Budget] = WeakKeyDictionary()


def budget_of(edge_set: object) -> Budget:
    """Return the budget of a protected edge set; an unlimited one in memory is opened on first use."""
    return _books.setdefault(edge_set, MemoryBudget())


def attach_budget(edge_set: object, budget: Budget) -> None:
    """Attach a budget (one with a limit, or a durable one) to an edge set that has not been charged yet."""
    current = _books.get(edge_set)
    if current is not None and current.entries:
        raise BudgetError("releases of these edges are already booked; attach a budget before the first fit")
    _books[edge_set] = budget
