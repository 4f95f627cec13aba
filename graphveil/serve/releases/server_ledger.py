"""The ledgers of a server.

A release is recorded in the ledger that the operator names, in those of all data that may share edges with it
(first of all the training data), and in a ledger of the server, with the limit that the operator allowed. All
of them use a reference that follows from the request, so a repeated request is charged once.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from shlex import quote
from typing import Any

from graphveil.errors import BudgetError, ConfigError
from graphveil.ledger import Account, DataSetLedger, Ledger, Limit, PrivacyCost, split_name, unit_key
from graphveil.privacy import Entry, Guarantee
from graphveil.runs.accounts.ledger_account import RunAccount
from graphveil.serve.limits import ReleaseBudget

_OWN = "served"


class ServerLedger:
    """The ledgers of a server that may make releases.

    Args:
        release_budget: the budget that the operator allowed.
        guarantee: of the run, whose unit and delta its releases have.
        folder: folder of the ledger of the server.

    Raises:
        ConfigError: the dataset is not registered, it has no budget under the unit, or its name is
            ambiguous.
        LedgerError: a database cannot be used.
    """

    def __init__(self, release_budget: ReleaseBudget, guarantee: Guarantee, folder: Path) -> None:
        """Open both."""
        url, name = split_name(release_budget.ledger)
        self._unit, self._ledger = unit_key(guarantee.protected), Ledger(url, create=False)
        self._limit = Limit(release_budget.epsilon, Decimal(repr(guarantee.delta)))
        self.account = RunAccount.from_name(self._ledger, name, guarantee)
        self._data_set = self.account.ledger
        if not any(one.unit == self._unit for one in self._data_set.accounts):
            raise ConfigError(
                f"Dataset {self._data_set.name!r} has no budget under unit {self._unit!r}. Register one: "
                f"graphveil ledger init {quote(self._data_set.name)} --unit {self._unit} --epsilon E --delta "
                "D"
            )
        own = Ledger(folder / "ledger.sqlite")
        if _OWN not in own.names():
            own.init(_OWN, guarantee.protected)
        self._own = own.data_set(_OWN)

    def reference(self, parts: Sequence[bytes]) -> str:
        """Return the reference of a request: a digest, keyed with the key of the ledger."""
        return self._ledger.fingerprints({"question": parts})["question"]

    def for_request(self, reference: str, others: Sequence[DataSetLedger]) -> "RequestLedger":
        """Return the ledger of one request, to attach to its graph.

        Args:
            reference: of the request.
            others: ledgers of data that the graph may share edges with.
        """
        shared = (self._data_set, *others)
        return RequestLedger(reference, shared, self._own, self._limit, self._unit)

    def as_plain(self) -> dict[str, Any]:
        """Return the limit, the spent and the remaining epsilon of the server and of the dataset."""
        delta, own = self._limit.delta, _account(self._own, self._unit)
        named = _account(self._data_set, self._unit)
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


class RequestLedger:
    """The ledger of the graph of one request: a release is recorded in all ledgers under one reference.

    Nothing is refunded. A charge without noise is used by the next request for the same graph.
    """

    def __init__(
        self, reference: str, shared: Sequence[DataSetLedger], own: DataSetLedger, limit: Limit, unit: str
    ) -> None:
        """Take the ledgers of datasets, and that of the server."""
        self._reference, self._shared, self._own = reference, tuple(shared), own
        self._limit, self._unit = limit, unit

    def record(self, entry: Entry) -> None:
        """Charge a release in all ledgers, or raise before noise is drawn. Repetitions are charged once.

        The ledger of the server comes last: a process that is killed in between leaves the datasets with less
        budget, and never with more.
        """
        entry = replace(entry, release_id=self._reference)
        self.check(entry)
        for ledger in self._shared:
            ledger.record(entry)
        self._own.record(entry)

    def check(self, entry: Entry) -> None:
        """Raise the error that the charge would raise."""
        entry = replace(entry, release_id=self._reference)
        if not self._own.contains(self._reference):
            after = _account(self._own, self._unit).total.plus(PrivacyCost.from_entry(entry))
            if not after.fits(self._limit):
                raise BudgetError("The remaining budget of --allow-releases is too small for this release.")
        for ledger in self._shared:
            ledger.check(entry)

    def contains(self, release_id: str) -> bool:
        """Whether it is recorded in all of them."""
        return self.is_recorded and all(
            ledger.contains(self._reference) for ledger in (*self._shared, self._own)
        )

    @property
    def is_recorded(self) -> bool:
        """Whether it is recorded in any of them."""
        return self._shared[0].contains(self._reference)

    def commit(self, release_id: str) -> None:
        """Note in all that noise is about to be drawn."""
        for ledger in (*self._shared, self._own):
            ledger.commit(self._reference)

    def refund(self, release_id: str) -> bool:
        """Refund nothing."""
        return False

    def __len__(self) -> int:
        """Return the number of recorded releases of this request."""
        return int(self.is_recorded)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries in the ledger of the server."""
        return self._own.entries


def _account(ledger: DataSetLedger, unit: str) -> Account:
    found = [one for one in ledger.accounts if one.unit == unit]
    return found[0] if found else Account(ledger.name, unit, None, 0, PrivacyCost())


def _figures(total: PrivacyCost, limit: Decimal, delta: Decimal) -> dict[str, float | None]:
    """Return limit, spent and remaining epsilon; spent is None if it is unbounded."""
    spent = total.epsilon(delta)
    if spent == float("inf"):
        return {"limit": float(limit), "spent": None, "remaining": 0.0}
    return {"limit": float(limit), "spent": spent, "remaining": max(0.0, float(limit) - spent)}
