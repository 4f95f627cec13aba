"""Bookings: a release is reserved, then committed before its noise is first drawn, or given back before that.

A reservation counts as spent. It can be given back only while it is not committed, and what was given back
can no longer be committed: so whoever gives a reservation back has proved that nothing was drawn under it,
and will not be. A process that is killed at any moment leaves the reservation, which its own resumption finds
again by reference, written down before, and does not pay twice.

Every transaction locks one data set, reads its head and its account, and adds one entry: a booking costs the
same whether it is the first or the hundred-thousandth.
"""

import hmac
import json
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Any

import sqlalchemy as sa

from graphveil.errors import BudgetError, ConfigError
from graphveil.ledger.chain import canonical
from graphveil.ledger.rows import (
    COMMIT,
    RESERVE,
    WITHDRAW,
    Account,
    Chain,
    Row,
    account_in,
    account_of,
    entry_of,
    open_account_in,
    reservation,
    rows_of,
    states_of,
    unit_key,
    update_account,
)
from graphveil.ledger.store import Store, accounts, key_of
from graphveil.ledger.totals import Total
from graphveil.privacy import Entry
from graphveil.privacy.figures import delta_up, figure_up
from graphveil.privacy.serialization import events_to_plain


@dataclass(frozen=True)
class Receipt:
    """What a run keeps of a booking: its reference, its place in the chain, and the chain's head there."""

    data_set: str
    unit: str
    release: str
    entry: int
    head: str


class DataSetLedger:
    """The ledger of one registered data set, as a release asks it: under each unit against its own limit.

    What it keeps of what it recorded itself are receipts.
    """

    def __init__(self, store: Store, name: str) -> None:
        """Take the database, and the name of a data set that is registered there."""
        self._store, self.name = store, name
        self._lock = threading.Lock()
        self._receipts: dict[str, Receipt] = {}

    def __repr__(self) -> str:
        """Show the name and the place."""
        return f"DataSetLedger({self.name!r}, {self.place!r})"

    def record(self, entry: Entry) -> None:
        """Reserve the entry, or raise :class:`BudgetError` and record nothing; the same one costs once."""
        receipt = reserve(self._store, self.name, entry, recording=True)
        assert receipt is not None
        self._keep(receipt)

    def check(self, entry: Entry) -> None:
        """Raise what :meth:`record` would, and record nothing."""
        reserve(self._store, self.name, entry, recording=False)

    def holds(self, release_id: str) -> bool:
        """Whether a release is booked here, and was not given back."""
        row = self._store.read(lambda line: _live(line, self.name, release_id))
        if row is None:
            return False
        self._keep(Receipt(self.name, json.loads(row.body)["unit"], release_id, row.number, row.hash))
        return True

    def commit(self, release_id: str) -> None:
        """Note that noise is about to be drawn: from now on the release cannot be given back."""
        commit(self._store, self.name, release_id)

    def withdraw(self, release_id: str) -> bool:
        """Give a release back for which nothing was drawn; whether that could be done."""
        given_back = withdraw(self._store, self.name, release_id)
        if given_back:
            with self._lock:
                self._receipts.pop(release_id, None)
        return given_back

    def __len__(self) -> int:
        """Return how many releases are booked, without reading them."""
        return sum(account.releases for account in self.accounts)

    def __bool__(self) -> bool:
        """A ledger is there even if nothing is booked."""
        return True

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything booked so far and not given back, in order."""
        rows = self._store.read(lambda line: rows_of(line, self.name))
        gone = {row.reference for row in rows if row.kind == WITHDRAW}
        return tuple(
            entry_of(json.loads(row.body))
            for row in rows
            if row.kind == RESERVE and row.reference not in gone
        )

    @property
    def accounts(self) -> list[Account]:
        """What is spent under each unit."""
        return accounts_of(self._store, self.name)

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of what was booked, or found booked, through this object."""
        with self._lock:
            return tuple(self._receipts.values())

    def fingerprints(self, parts: Mapping[str, Iterable[bytes]]) -> dict[str, str]:
        """Return keyed fingerprints, as :meth:`graphveil.ledger.Ledger.fingerprints` does."""
        return fingerprints_of(self._store, parts)

    @property
    def place(self) -> str:
        """Where the ledger lies, without a password."""
        return self._store.shown

    def _keep(self, receipt: Receipt) -> None:
        with self._lock:
            self._receipts[receipt.release] = receipt


def fingerprints_of(store: Store, parts: Mapping[str, Iterable[bytes]]) -> dict[str, str]:
    """Return fingerprints of data under the ledger's key, which does not leave it."""
    key = store.read(key_of)
    found = {}
    for part, chunks in parts.items():
        mac = hmac.new(key, part.encode(), "sha256")
        for chunk in chunks:
            mac.update(chunk)
        found[part] = mac.hexdigest()
    return found


def accounts_of(store: Store, name: str | None = None) -> list[Account]:
    """Return what is spent, for each data set and unit, or for those of one data set."""
    query = sa.select(accounts).order_by(accounts.c.data_set, accounts.c.unit)
    if name is not None:
        query = query.where(accounts.c.data_set == name)
    return store.read(lambda line: [account_of(row) for row in line.execute(query)])


def reserve(store: Store, name: str, entry: Entry, *, recording: bool) -> Receipt | None:
    """Book a release, or only see whether it could be."""
    if entry.unit is None:
        raise ConfigError("a release that is booked has a unit; this one does not say what it protects")
    unit, cost = unit_key(entry.unit), Total.of(entry)
    body = {
        "unit": unit,
        "reference": entry.release_id,
        "label": entry.label,
        "max_degree": getattr(entry.unit, "max_degree", None),
        "events": events_to_plain(entry.event),
        "slack": entry.slack,
    }

    def task(line: sa.Connection, *, recording: bool) -> Receipt | Account | None:
        chain = Chain.read(line, name, lock=recording)
        known = reservation(line, name, entry.release_id)
        if known is not None:
            if WITHDRAW in states_of(line, name, entry.release_id):
                raise BudgetError(
                    f"release {entry.release_id} was given back before anything was drawn, and stays so; "
                    "start a new run"
                )
            return _same_again(known, body, name)
        account = account_in(line, name, unit)
        if account is None:
            _check_unlimited(chain, unit)
            account = Account(name, unit, None, 0, Total())
            if recording:
                open_account_in(chain, unit, None)
        after = account.total.plus(cost)
        if account.limit is not None and not after.fits(account.limit):
            return account
        if not recording:
            return None
        number, head = chain.add(RESERVE, body)
        update_account(line, name, unit, releases=account.releases + 1, total=canonical(after.as_plain()))
        return Receipt(name, unit, entry.release_id, number, head)

    # What does not fit is found, and costly compositions are made, before others are locked out.
    found = store.read(partial(task, recording=False))
    if recording and not isinstance(found, Account):
        found = store.write(partial(task, recording=True))
    if isinstance(found, Account):
        raise BudgetError(_refusal(found, entry, cost))
    return found


def commit(store: Store, name: str, reference: str) -> None:
    """Note that noise is about to be drawn."""

    def task(line: sa.Connection) -> None:
        chain = Chain.locked(line, name)
        states = states_of(line, name, reference)
        if WITHDRAW in states or RESERVE not in states:
            raise BudgetError(
                f"release {reference} is not booked any more, so nothing may be drawn for it; start a new run"
            )
        if COMMIT not in states:
            chain.add(COMMIT, {"reference": reference})

    store.write(task)


def withdraw(store: Store, name: str, reference: str) -> bool:
    """Give back a release that was never committed; whether that could be done."""

    def task(line: sa.Connection) -> bool:
        chain = Chain.locked(line, name)
        states = states_of(line, name, reference)
        if COMMIT in states or RESERVE not in states:
            return False
        if WITHDRAW in states:
            return True
        known = reservation(line, name, reference)
        assert known is not None
        body = json.loads(known.body)
        account = account_in(line, name, body["unit"])
        assert account is not None
        chain.add(WITHDRAW, {"reference": reference})
        left = account.total.minus(Total.of(entry_of(body)))
        update_account(
            line, name, body["unit"], releases=account.releases - 1, total=canonical(left.as_plain())
        )
        return True

    return store.write(task)


def _live(line: sa.Connection, name: str, reference: str) -> Row | None:
    if WITHDRAW in states_of(line, name, reference):
        return None
    return reservation(line, name, reference)


def _same_again(known: Row, body: Mapping[str, Any], name: str) -> Receipt:
    """Return the receipt of a release that is booked already: whoever asks again pays nothing."""
    before = json.loads(known.body)
    if any(before[part] != value for part, value in json.loads(canonical(body)).items()):
        raise BudgetError(
            f"release {known.reference} is booked already, at another price; a new release needs a new id"
        )
    return Receipt(name, before["unit"], known.reference, known.number, known.hash)


def _check_unlimited(chain: Chain, unit: str) -> None:
    """Let a unit go without a limit where none has one; else a budget is for the data's owner to decide."""
    query = sa.select(accounts.c.unit).where(
        accounts.c.data_set == chain.name, accounts.c.epsilon.is_not(None)
    )
    if limited := sorted(chain.line.execute(query).scalars()):
        raise BudgetError(
            f"data set {chain.name!r} has a budget under {', '.join(limited)} and none under unit {unit!r}, "
            "whose costs are no part of it; register one: graphveil ledger init "
            f"{quote(chain.name)} --unit {unit} --epsilon E --delta D"
        )


def _refusal(account: Account, entry: Entry, cost: Total) -> str:
    """Return why a release does not fit, and the largest one of its kind that does."""
    limit = account.limit
    assert limit is not None
    delta = delta_up(float(limit.delta))
    said = (
        f"data set {account.data_set!r} refuses the release {entry.label!r}: it asks for epsilon "
        f"{figure_up(cost.epsilon(limit.delta))}, and {figure_up(account.total.epsilon(limit.delta))} of "
        f"{limit.epsilon} at delta {delta} are spent under unit {account.unit!r}. "
    )
    room = account.total.room(limit, entry)
    if room:
        return said + (
            f"For a release like it, epsilon {room:g} at that delta would still fit. Reduce epsilon, or raise "
            "the limit (graphveil ledger raise). No privacy budget was spent."
        )
    if math.isinf(account.total.plus(cost).epsilon(limit.delta)):
        return said + (
            "Together they have no epsilon at that delta, so no smaller epsilon would fit. Raise the limit's "
            "delta (graphveil ledger raise). No privacy budget was spent."
        )
    return said + (
        "Nothing is left for a release like it. Raise the limit (graphveil ledger raise). No privacy budget "
        "was spent."
    )
