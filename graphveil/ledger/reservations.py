"""Reservations: a release is reserved, then committed before its noise is drawn, or refunded before that.

A reservation counts as spent. It can be refunded only before it is committed, and a refunded one cannot be
committed. A refund therefore proves that no noise was drawn under the reservation, and none will be. A
process that is killed leaves the reservation. The resumed process finds it by its reference, which was
written before, and is not charged twice.

Every transaction locks one dataset, reads its head and its account, and adds one entry. The time per
transaction does not grow with the number of releases.
"""

import json
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import Any

import sqlalchemy as sa

from graphveil._util.figures import format_delta, format_upper_bound
from graphveil.core.ledger import Entry
from graphveil.errors import ArtifactError, BudgetError, ConfigError
from graphveil.ledger.bindings import (
    add_version,
    check_binding,
    fingerprints_of,
    name_of,
    next_unnamed_data_set,
)
from graphveil.ledger.chain import (
    COMMIT,
    REFUND,
    RESERVE,
    Account,
    HashChain,
    Row,
    Tags,
    account_in,
    account_of,
    body_of,
    canonical,
    entry_of,
    open_account_in,
    rows_of,
    states_of,
    unit_key,
    update_account,
)
from graphveil.ledger.costs import Limit, PrivacyCost
from graphveil.ledger.database import Store, accounts, lock_names
from graphveil.privacy.serialization import events_to_plain

PLANNED_LABEL = "planned releases"  # label of a check of all releases of a command together


@dataclass(frozen=True)
class Receipt:
    """Receipt of a recorded release, which a run stores.

    Args:
        data_set: Name of the dataset.
        unit: Name of the account.
        release: Reference of the release.
        entry: Number of the entry in the chain.
        head: Hash of that entry.
        ledger: Id of the ledger, which does not reveal its key; empty if the run did not store it.
    """

    data_set: str
    unit: str
    release: str
    entry: int
    head: str
    ledger: str = ""

    @classmethod
    def from_plain(cls, record: object) -> "Receipt":
        """Read a stored receipt; older runs do not store the ledger.

        Args:
            record: Receipt as JSON values.

        Raises:
            ArtifactError: If it is damaged.
        """
        known = {"ledger": "", **record} if isinstance(record, Mapping) else {}
        values: dict[str, Any] = {name: known.get(name) for name in cls.__dataclass_fields__}
        if any(type(value) is not (int if name == "entry" else str) for name, value in values.items()):
            raise ArtifactError("The receipt is damaged: data set, entry, release or head is missing.")
        return cls(**values)


class _NeedsCompositionError(Exception):
    """A release does not fit by adding up alone: ends the transaction, in which nothing is to be changed."""

    def __init__(self, account: Account) -> None:
        super().__init__(account.unit)
        self.account = account


class DataSetLedger:
    """The ledger of one registered dataset for releases, with a separate limit for each privacy unit.

    It stores receipts of the releases that it recorded itself.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        data: Tags | None = None,
        *,
        named: bool = True,
        apart: bool = False,
        limit: Limit | None = None,
    ) -> None:
        """Create the ledger of a dataset; ``Ledger.data_set`` checks its arguments.

        Args:
            name: Name of a registered dataset, or the next free one.
            data: Fingerprints of data that the dataset is bound to with the first release, not before.
            named: Whether the name was given; otherwise the data are recognized, or get a new name.
            apart: Whether the data owner asserts that the data share nothing with others but equal parts.
            limit: Limit of this object under every unit that is registered without one.
        """
        self._store, self.name = store, name
        self._lock = threading.Lock()
        self._receipts: dict[str, Receipt] = {}
        self._recorded: set[str] = set()
        self._data, self._named, self._apart, self._limit = data, named, apart, limit

    def __repr__(self) -> str:
        return f"DataSetLedger({self.name!r}, {self.location!r})"

    def __reduce__(self) -> tuple[object, tuple[Store, str, Tags | None]]:
        """Open the ledger in another process, without the receipts of this one."""
        options = partial(type(self), named=self._named, apart=self._apart, limit=self._limit)
        return options, (self._store, self.name, self._data)

    def record(self, entry: Entry) -> None:
        """Record a release; a repeated release is charged once."""
        receipt = self._attempt(entry, recording=True)
        assert receipt is not None
        # The transaction chose the name of unnamed data, and has bound them.
        self.name, self._data = receipt.data_set, None
        with self._lock:
            self._recorded.add(receipt.release)
        self._keep(receipt)

    def check(self, entry: Entry) -> None:
        """Raise the error that ``record`` would raise, and record nothing."""
        # Data that would be registered with the first release have no limit yet.
        new = self._data is not None and not self._named and self._store.read(self._known) is None
        if not new:
            self._attempt(entry, recording=False)

    def _attempt(self, entry: Entry, *, recording: bool) -> Receipt | None:
        if entry.unit is None:
            raise ConfigError("the release does not state its privacy unit, so it cannot be recorded")
        unit, cost = unit_key(entry.unit), PrivacyCost.from_entry(entry)
        body = {
            "unit": unit,
            "reference": entry.release_id,
            "label": entry.label,
            "max_degree": getattr(entry.unit, "max_degree", None),
            "events": events_to_plain(entry.event),
            "slack": entry.slack,
        }

        def task(connection: sa.Connection, *, composing: bool) -> Receipt | None:
            name = self._bind_in_transaction(connection) if recording else self.name
            chain = HashChain.read(connection, name, lock=recording)
            # A resumed run, or a transaction whose connection was lost after its commit, records it again.
            states = states_of(connection, name, entry.release_id)
            if RESERVE in states:
                if REFUND in states:
                    raise BudgetError(
                        f"Release {entry.release_id} was refunded before any noise was drawn and cannot be "
                        "used again. Start a new run."
                    )
                _check_repeated(states[RESERVE], body)
                return self._receipt(states[RESERVE])
            account = account_in(connection, name, unit)
            if account is None:
                _check_unlimited(chain, unit)
                account = Account(name, unit)
                if recording:
                    open_account_in(chain, unit, None)
            if account.limit is None:
                account = replace(account, limit=self._limit)
            after = account.total.plus(cost)
            fits = account.limit is None or after.fits_basic_composition(account.limit)
            if not fits and not (composing and account.limit is not None and after.fits(account.limit)):
                raise _NeedsCompositionError(account)
            if not recording:
                return None
            number, head = chain.add(RESERVE, body)
            changed = {"releases": account.releases + 1, "total": canonical(after.as_plain())}
            update_account(connection, name, unit, **changed)
            return Receipt(name, unit, entry.release_id, number, head, self._store.ledger_id)

        run = self._store.write if recording else self._store.read
        try:
            try:
                return run(partial(task, composing=False))
            except _NeedsCompositionError as near:
                # Composed while no other process is locked out, and kept for the next try.
                allowed = near.account.limit
                if allowed is None or not near.account.total.plus(cost).fits(allowed):
                    raise
                return run(partial(task, composing=True))
        except _NeedsCompositionError as near:
            raise BudgetError(_budget_error(near.account, entry, cost)) from None

    def bind_data(self) -> None:
        """Bind the dataset to its data, or register them, before anything is released."""
        self.name, self._data = self._store.write(self._bind_in_transaction), None

    def _known(self, connection: sa.Connection) -> str | None:
        assert self._data is not None
        return name_of(connection, self._data, apart=self._apart)

    def _bind_in_transaction(self, connection: sa.Connection) -> str:
        name = self.name
        if self._data is not None:
            if not self._named:
                lock_names(connection)
                name = self._known(connection) or next_unnamed_data_set(connection)
            chain = HashChain.locked(connection, name, make=not self._named)
            if self._named:
                check_binding(connection, name, self._data)
            add_version(chain, self._data)
        return name

    def contains(self, release_id: str) -> bool:
        """Return whether a release is recorded and was not refunded."""

        def task(connection: sa.Connection) -> Receipt | None:
            states = states_of(connection, self.name, release_id)
            recorded = RESERVE in states and REFUND not in states
            return self._receipt(states[RESERVE]) if recorded else None

        receipt = self._store.read(task)
        if receipt is not None:
            self._keep(receipt)
        return receipt is not None

    def commit(self, release_id: str) -> None:
        """Record that noise is about to be drawn; the release can no longer be refunded."""

        def task(connection: sa.Connection) -> None:
            chain = HashChain.locked(connection, self.name)
            states = states_of(connection, self.name, release_id)
            if REFUND in states or RESERVE not in states:
                raise BudgetError(
                    f"The ledger no longer has release {release_id}, so no noise may be drawn for it. Start "
                    "a new run."
                )
            if COMMIT not in states:
                chain.add(COMMIT, {"reference": release_id})

        self._store.write(task)

    def refund(self, release_id: str) -> bool:
        """Refund a release that was never committed."""

        def task(connection: sa.Connection) -> bool:
            chain = HashChain.locked(connection, self.name)
            states = states_of(connection, self.name, release_id)
            if COMMIT in states or RESERVE not in states:  # noise may have been drawn
                return False
            if REFUND in states:
                return True
            body = body_of(states[RESERVE])
            account = account_in(connection, self.name, body["unit"])
            if account is None:
                raise LookupError("an account is missing")  # of a damaged ledger
            chain.add(REFUND, {"reference": release_id})
            left = account.total.minus(PrivacyCost.from_entry(entry_of(body)))
            changed = {"releases": account.releases - 1, "total": canonical(left.as_plain())}
            update_account(connection, self.name, body["unit"], **changed)
            return True

        refunded = self._store.write(task)
        if refunded:
            with self._lock:
                self._receipts.pop(release_id, None)
                self._recorded.discard(release_id)
        return refunded

    def __len__(self) -> int:
        return sum(account.releases for account in self.accounts)

    def __bool__(self) -> bool:
        """Return True: a ledger without entries is not false."""
        return True

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All recorded releases that were not refunded, in order."""

        def task(connection: sa.Connection) -> tuple[Entry, ...]:
            rows = rows_of(connection, self.name)
            gone = {row.reference for row in rows if row.kind == REFUND}
            live = (row for row in rows if row.kind == RESERVE and row.reference not in gone)
            return tuple(entry_of(body_of(row)) for row in live)

        return self._store.read(task)

    @property
    def accounts(self) -> list[Account]:
        """The spent budget under each unit."""
        return accounts_of(self._store, self.name)

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Receipts of the releases that were recorded, or found, through this object."""
        with self._lock:
            return tuple(self._receipts.values())

    @property
    def recorded(self) -> frozenset[str]:
        """Ids of the releases that were recorded through this object, without those that were found."""
        with self._lock:
            return frozenset(self._recorded)

    def fingerprints(self, parts: Mapping[str, Iterable[bytes]]) -> dict[str, str]:
        """Return keyed fingerprints of data, like ``Ledger.fingerprints``.

        Args:
            parts: Content of each part of the data, in pieces.

        Privacy:
            Reads: the data. Charges: nothing. The fingerprints are internal.
        """
        return fingerprints_of(self._store, parts)

    @property
    def location(self) -> str:
        """The location of the ledger, without a password."""
        return self._store.display_url

    def _receipt(self, row: Row) -> Receipt:
        unit, ledger_id = body_of(row)["unit"], self._store.ledger_id
        return Receipt(row.data_set, unit, row.reference, row.number, row.hash, ledger_id)

    def _keep(self, receipt: Receipt) -> None:
        with self._lock:
            self._receipts[receipt.release] = receipt


def accounts_of(store: Store, name: str | None = None) -> list[Account]:
    query = sa.select(accounts).order_by(accounts.c.data_set, accounts.c.unit)
    if name is not None:
        query = query.where(accounts.c.data_set == name)
    return store.read(lambda connection: [account_of(row) for row in connection.execute(query)])


def _check_repeated(known: Row, body: Mapping[str, Any]) -> None:
    """Raise an error unless a release that is recorded already is the same: it does not spend budget."""
    before = body_of(known)
    if any(before[part] != value for part, value in json.loads(canonical(body)).items()):
        raise BudgetError(
            f"Release {known.reference} is already recorded with another privacy cost. Use a new id "
            "for a new release."
        )


def _check_unlimited(chain: HashChain, unit: str) -> None:
    """Let a unit go without a limit where none has one; else a budget is for the data's owner to decide."""
    query = sa.select(accounts.c.unit).where(
        accounts.c.data_set == chain.name, accounts.c.epsilon.is_not(None)
    )
    if limited := sorted(chain.connection.execute(query).scalars()):
        raise BudgetError(
            f"Data set {chain.name!r} has a budget under {', '.join(limited)}, but none under unit "
            f"{unit!r}. Register one: graphveil ledger init {quote(chain.name)} --unit {unit} "
            "--epsilon E --delta D"
        )


_MIN_REMAINING = 1e-9  # less is the rounding of binary fractions


def _budget_error(account: Account, entry: Entry, cost: PrivacyCost) -> str:
    """Return why a release does not fit, and the largest one of its kind that does."""
    limit = account.limit
    assert limit is not None
    planned, delta = entry.label == PLANNED_LABEL, format_delta(float(limit.delta))
    subject = "the planned releases cost" if planned else f"release {entry.label!r} costs"
    kind = "releases" if planned else "a release"
    remaining_epsilon = account.total.remaining_epsilon(limit, entry)
    if remaining_epsilon > _MIN_REMAINING:
        advice = (
            f"At most epsilon {remaining_epsilon:g} remains for {kind} of this kind. Reduce epsilon, or "
            "raise the limit"
        )
    elif math.isinf(account.total.plus(cost).epsilon(limit.delta)):
        advice = (
            "Their total has no finite epsilon at this delta, so a smaller epsilon does not help. Raise the "
            "delta of the limit"
        )
    else:
        advice = f"No budget remains for {kind} of this kind. Raise the limit"
    return (
        f"{subject} epsilon {format_upper_bound(cost.epsilon(limit.delta))}, but "
        f"{format_upper_bound(account.total.epsilon(limit.delta))} of epsilon {limit.epsilon} is already "
        f"spent (data set {account.data_set!r}, unit {account.unit!r}, delta {delta}). {advice} (graphveil "
        "ledger raise). No privacy budget was spent."
    )
