"""What a server may spend, and the two books that say what it has spent.

A release stands in the ledger that the operator names, against the limit of that data set, and in a book of
the server's own, against what the operator allowed the server. Both have it under a reference that follows
from the question: so whoever asks again, after whatever failed, pays nothing again.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from graphveil.errors import BudgetError, ConfigError
from graphveil.ledger import Account, DataSetLedger, Ledger, Limit, Total, split_name, unit_key
from graphveil.privacy import Entry, Guarantee
from graphveil.serve.limits import Allowance

_OWN = "served"


class Books:
    """The two books of a server that may make releases.

    Args:
        allowance: what the operator allowed.
        guarantee: of the run, whose unit and delta its releases have.
        folder: where the server keeps its own book.

    Raises:
        ConfigError: no such data set is registered, it has no budget under the unit, or several could be
            meant.
        LedgerError: a database cannot be used.
    """

    def __init__(self, allowance: Allowance, guarantee: Guarantee, folder: Path) -> None:
        """Open both."""
        url, name = split_name(allowance.ledger)
        self._unit, self._book = unit_key(guarantee.protected), Ledger(url)
        self._limit = Limit(allowance.epsilon, Decimal(repr(guarantee.delta)))
        self._named = self._book.data_set(name or _only(self._book, self._unit))
        if not any(one.unit == self._unit for one in self._named.accounts):
            raise ConfigError(
                f"data set {self._named.name!r} has no budget under unit {self._unit!r}; register one: "
                f"graphveil ledger init {self._named.name} --unit {self._unit} --epsilon E --delta D"
            )
        own = Ledger(folder / "ledger.sqlite")
        if _OWN not in own.names():
            own.init(_OWN, guarantee.protected)
        self._own = own.data_set(_OWN)

    def reference(self, parts: Sequence[bytes]) -> str:
        """Return what a question is called: a keyed digest, which tells nothing without the ledger's key."""
        return self._book.fingerprints({"question": parts})["question"]

    def of(self, reference: str) -> "QuestionLedger":
        """Return the ledger of one question, to attach to its graph."""
        return QuestionLedger(reference, self._named, self._own, self._limit, self._unit)

    def as_plain(self) -> dict[str, Any]:
        """Return what is allowed, spent and left: of the server, and of the data set."""
        delta, own = self._limit.delta, _account(self._own, self._unit)
        named = _account(self._named, self._unit)
        limit = named.limit
        return {
            "unit": self._unit,
            "delta": float(delta),
            **_figures(own.total, self._limit.epsilon, delta),
            "releases": own.releases,
            "ledger": None
            if limit is None
            else {"delta": float(limit.delta), **_figures(named.total, limit.epsilon, limit.delta)},
        }


class QuestionLedger:
    """The ledger of one question's graph: a release of it stands in both books, under one reference.

    Nothing is given back. What was booked and not drawn is what the next one who asks this will draw.
    """

    def __init__(
        self, reference: str, named: DataSetLedger, own: DataSetLedger, limit: Limit, unit: str
    ) -> None:
        """Take the two books."""
        self._reference, self._named, self._own = reference, named, own
        self._limit, self._unit = limit, unit

    def record(self, entry: Entry) -> None:
        """Book a release in both, or raise and book it in none; the same question costs once.

        The data set's book comes first: a process that is killed in between leaves the server with more to
        spend than it booked there, and the data set with less.
        """
        entry = replace(entry, release_id=self._reference)
        self._check_room(entry)
        self._named.record(entry)
        self._own.record(entry)

    def check(self, entry: Entry) -> None:
        """Raise what booking it would raise."""
        entry = replace(entry, release_id=self._reference)
        self._check_room(entry)
        self._named.check(entry)

    def holds(self, release_id: str) -> bool:
        """Whether it is booked in both."""
        return self._named.holds(self._reference) and self._own.holds(self._reference)

    def commit(self, release_id: str) -> None:
        """Note in both that noise is about to be drawn."""
        self._named.commit(self._reference)
        self._own.commit(self._reference)

    def withdraw(self, release_id: str) -> bool:
        """Give nothing back."""
        return False

    def __len__(self) -> int:
        """Return how many releases of this question are booked."""
        return int(self._named.holds(self._reference))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What the server has booked."""
        return self._own.entries

    def _check_room(self, entry: Entry) -> None:
        if self._own.holds(self._reference):
            return
        after = _account(self._own, self._unit).total.plus(Total.of(entry))
        if not after.fits(self._limit):
            raise BudgetError("what the operator allowed this server does not suffice for this release")


def _account(ledger: DataSetLedger, unit: str) -> Account:
    found = [one for one in ledger.accounts if one.unit == unit]
    return found[0] if found else Account(ledger.name, unit, None, 0, Total())


def _figures(total: Total, limit: Decimal, delta: Decimal) -> dict[str, float | None]:
    """Return limit, spent and remaining; None where what is spent has no bound."""
    spent = total.epsilon(delta)
    if spent == float("inf"):
        return {"limit": float(limit), "spent": None, "remaining": 0.0}
    return {"limit": float(limit), "spent": spent, "remaining": max(0.0, float(limit) - spent)}


def _only(book: Ledger, unit: str) -> str:
    """Return the one data set of a ledger that has a budget under a unit."""
    found = sorted({one.data_set for one in book.accounts() if one.unit == unit})
    if len(found) != 1:
        raise ConfigError(
            f"the ledger at {book.place} should have exactly one data set with a budget under unit {unit!r}, "
            f"and has {len(found)} ({', '.join(found) or 'none'}); name one: --ledger URL#NAME"
        )
    return found[0]
