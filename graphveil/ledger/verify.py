"""Whether a ledger is whole: every hash, every total and every limit, computed again from the entries."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from graphveil.errors import GraphveilError
from graphveil.ledger.bindings import same_data
from graphveil.ledger.chain import (
    BIND,
    COMMIT,
    INIT,
    RAISE_LIMIT,
    REFUND,
    RESERVE,
    START,
    UNBIND,
    Account,
    HashChain,
    Row,
    account_of,
    entry_of,
    link,
    rows_of,
    tags_in,
)
from graphveil.ledger.costs import Limit, PrivacyCost, stored_limit
from graphveil.ledger.database import UNREADABLE, accounts, data_sets, entries, state_of

_UNREADABLE = (*UNREADABLE, GraphveilError)


@dataclass(frozen=True)
class IntegrityViolation:
    """Entry at which a chain is not intact, and the reason.

    Args:
        data_set: Name of the dataset; empty for the key of the ledger.
        entry: Number of the entry.
        why: Reason.
        other_ledger: Whether a receipt of the entry belongs to another ledger, so nothing is missing here.
    """

    data_set: str
    entry: int
    why: str
    other_ledger: bool = False


def stored_data_set_names(connection: sa.Connection) -> list[str]:
    """Return every dataset that occurs in any table, registered or not, in alphabetical order."""
    columns = (data_sets.c.name, entries.c.data_set, accounts.c.data_set)
    return sorted(
        {name for column in columns for name in connection.execute(sa.select(column).distinct()).scalars()}
    )


def find_violations(connection: sa.Connection, name: str) -> list[IntegrityViolation]:
    """Return the first entry at which the chain does not hold, and what does not follow from the entries."""
    if connection.execute(sa.select(data_sets.c.name).where(data_sets.c.name == name)).one_or_none() is None:
        return [
            IntegrityViolation(name, 1, "its entries or totals are here, and it is not registered any more")
        ]
    chain, head = HashChain.read(connection, name), START
    replay = _AccountReplay(name, state_of(connection).checked)
    for number, row in enumerate(rows_of(connection, name), 1):
        head = link(head, row.body)
        # In this order: the first violation explains those that follow from it.
        if row.number != number:
            why: str | None = "an entry is missing"
        elif row.hash != head:
            why = "the entry was changed: its hash does not follow from its text and the entry before"
        else:
            why = replay.add(row)
        if why:
            return [IntegrityViolation(name, number, why)]
    if (replay.length, head) != (chain.length, chain.head):
        return [IntegrityViolation(name, replay.length + 1, "the chain ends before the head that was kept")]
    kept, counted = dict[str, Account | None](), replay.accounts()
    for row in connection.execute(sa.select(accounts).where(accounts.c.data_set == name)):
        try:
            kept[row.unit] = account_of(row)
        except _UNREADABLE:
            kept[row.unit] = None
    return [
        IntegrityViolation(
            name, chain.length, f"the total kept under unit {unit!r} does not follow from the entries"
        )
        for unit in sorted(kept.keys() | counted.keys())
        if kept.get(unit) != counted.get(unit)
    ]


@dataclass
class _AccountReplay:
    """The accounts of a dataset, counted from its entries."""

    name: str
    key: str  # the check value of the ledger's key
    length: int = 0
    _limits: dict[str, Limit | None] = field(default_factory=dict)
    _live: dict[str, tuple[str, PrivacyCost]] = field(default_factory=dict)  # unit and cost by reference
    _drawn: set[str] = field(default_factory=set)

    def add(self, row: Row) -> str | None:
        """Apply one more entry; return why it is invalid, or None."""
        self.length += 1
        try:
            body = json.loads(row.body)
            reference = body.get("reference", f"#{self.length}")
            recorded = body["data_set"], body["number"], body["kind"], reference
            if recorded != (self.name, self.length, row.kind, row.reference):
                return "the entry's columns do not agree with its text"
            return self._follow(row.kind, body)
        except _UNREADABLE:
            return "the entry's text is none that a ledger writes"

    def _follow(self, kind: str, body: dict[str, Any]) -> str | None:
        """Apply an entry; return why it is not possible, or None."""
        if kind in (INIT, RAISE_LIMIT):
            if (kind == RAISE_LIMIT) != (body["unit"] in self._limits):
                return "a limit is raised of an account that was not opened, or one is opened twice"
            limit, before = stored_limit(body["epsilon"], body["delta"]), self._limits.get(body["unit"])
            if before is not None and (
                limit is None or limit.epsilon < before.epsilon or limit.delta < before.delta
            ):
                return "a limit is lowered"
            self._limits[body["unit"]] = limit
        elif kind == RESERVE:
            if body["unit"] not in self._limits:
                return "a release is recorded in an account that was not opened"
            self._live[body["reference"]] = body["unit"], PrivacyCost.from_entry(entry_of(body))
        elif kind in (COMMIT, REFUND):
            reference = body["reference"]
            if reference not in self._live:
                return f"there is a {kind} entry for a release that was not recorded"
            if kind == COMMIT:
                self._drawn.add(reference)
            elif reference in self._drawn:
                return "a release is given back for which noise may have been drawn"
            else:
                del self._live[reference]
        elif kind == BIND:
            if tags_in(body) and body.get("key", self.key) != self.key:
                return "the data were bound under another key of fingerprints, so they are not recognized"
        elif kind == UNBIND:
            if self._live:
                return "a data set with releases is unbound from its data"
        else:
            return f"an entry is of the unknown kind {kind[:20]!r}"
        return None

    def accounts(self) -> dict[str, Account]:
        """Return the accounts by unit."""
        found = {unit: Account(self.name, unit, limit) for unit, limit in self._limits.items()}
        for unit, privacy_cost in self._live.values():
            one = found[unit]
            found[unit] = Account(self.name, unit, one.limit, one.releases + 1, one.total.plus(privacy_cost))
        return found


class HistoryEntry(NamedTuple):
    """One release that was not refunded: its entry, its cost, and the total under its unit including it."""

    row: Mapping[str, Any]
    privacy_cost: PrivacyCost
    total: PrivacyCost


@dataclass(frozen=True)
class History:
    """The parsed output of ``graphveil.ledger.Ledger.export``.

    Args:
        steps: Releases that were not refunded.
        raised: Entries that raised a limit.
        versions: Entries that bound the dataset to a version of its data.

    >>> import tempfile
    >>> from graphveil.ledger import Ledger
    >>> from graphveil.privacy import PureDP, UndirectedEdge
    >>> from graphveil.ledger import Entry
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(folder.name + "/ledger.sqlite")
    >>> ledger.init("friends", "undirected-edge")
    >>> for name in "ab":
    ...     ledger.data_set("friends").record(Entry(name, "rows", PureDP(0.1), unit=UndirectedEdge()))
    >>> history = History.from_rows(ledger.export("friends"))
    >>> [step.total.epsilon(0.0) for step in history.of_unit("undirected-edge")]
    [0.1, 0.2]
    >>> ledger.close(); folder.cleanup()
    """

    steps: tuple[HistoryEntry, ...]
    raised: tuple[Mapping[str, Any], ...]
    versions: tuple[Mapping[str, Any], ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "History":
        """Read the entries of a dataset, in order."""
        rows, totals = list(rows), dict[str, PrivacyCost]()
        gone = {row["reference"] for row in rows if row["kind"] == REFUND}
        steps, versions, known = list[HistoryEntry](), list[Mapping[str, Any]](), list[Mapping[str, str]]()
        for row in rows:
            if row["kind"] == RESERVE and row["reference"] not in gone:
                unit, privacy_cost = row["unit"], PrivacyCost.from_entry(entry_of(row))
                totals[unit] = totals.get(unit, PrivacyCost()).plus(privacy_cost)
                steps.append(HistoryEntry(row, privacy_cost, totals[unit]))
            elif row["kind"] == UNBIND:
                versions, known = [], []
            elif row["kind"] == BIND:
                # An entry that only adds parts to a known version is not a new one.
                if not any(same_data(row["fingerprints"], one) for one in known):
                    versions.append(row)
                known.append(row["fingerprints"])
        raised = tuple(row for row in rows if row["kind"] == RAISE_LIMIT)
        return cls(tuple(steps), raised, tuple(versions))

    def of_unit(self, unit: str) -> list[HistoryEntry]:
        """Return the releases under a unit."""
        return [step for step in self.steps if step.row["unit"] == unit]


def over_time(steps: Sequence[HistoryEntry], parts: int) -> list[PrivacyCost]:
    """Return what was spent by the end of each of several equal intervals of time."""
    times = [datetime.fromisoformat(step.row["time"]) for step in steps]
    first, last = min(times), max(times)
    ends = [first + (last - first) * (part / parts) for part in range(1, parts)]
    reached = [sum(time <= end for time in times) for end in ends]
    return [steps[count - 1].total for count in (*reached, len(steps))]
