"""Whether a ledger is whole: every hash, every total and every limit, computed anew from the entries."""

import json
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from graphveil.ledger.chain import START, link
from graphveil.ledger.rows import (
    COMMIT,
    INIT,
    RAISE,
    RESERVE,
    WITHDRAW,
    Account,
    Chain,
    Row,
    account_of,
    entry_of,
    limit_of,
    rows_of,
)
from graphveil.ledger.store import accounts
from graphveil.ledger.totals import Limit, Total


@dataclass(frozen=True)
class Break:
    """Where a chain does not hold: the entry, and why."""

    data_set: str
    entry: int
    why: str


def breaks_of(line: sa.Connection, name: str) -> list[Break]:
    """Return the first entry at which the chain does not hold, and what does not follow from the entries."""
    chain, head, books = Chain.read(line, name), START, _Recount()
    for number, row in enumerate(rows_of(line, name), 1):
        head = link(head, row.body)
        why = _fault(row, number, head) or books.add(json.loads(row.body))
        if why:
            return [Break(name, number, why)]
    if (books.length, head) != (chain.length, chain.head):
        return [Break(name, books.length + 1, "the chain ends before the head that was kept")]
    kept = {
        row.unit: account_of(row)
        for row in line.execute(sa.select(accounts).where(accounts.c.data_set == name))
    }
    counted = {unit: Account(name, unit, *figures) for unit, figures in books.figures().items()}
    return [
        Break(name, chain.length, f"the total kept under unit {unit!r} does not follow from the entries")
        for unit in sorted(kept.keys() | counted.keys())
        if kept.get(unit) != counted.get(unit)
    ]


def _fault(row: Row, number: int, head: str) -> str | None:
    if row.number != number:
        return "an entry is missing"
    if row.hash != head:
        return "the entry was changed: its hash does not follow from its text and the entry before"
    body = json.loads(row.body)
    if (body["number"], body["kind"], body.get("reference", f"#{number}")) != (
        number,
        row.kind,
        row.reference,
    ):
        return "the entry's columns do not say what its text says"
    return None


class _Recount:
    """The accounts of a data set, counted from its entries."""

    def __init__(self) -> None:
        self.length = 0
        self._limits: dict[str, Limit | None] = {}
        self._live: dict[str, dict[str, Any]] = {}

    def add(self, body: dict[str, Any]) -> str | None:
        """Take one more entry; why it cannot be, if so."""
        self.length += 1
        kind, reference = body["kind"], body.get("reference")
        if kind in (INIT, RAISE):
            self._limits[body["unit"]] = limit_of(body["epsilon"], body["delta"])
        elif kind == RESERVE:
            self._live[body["reference"]] = body
        elif kind in (COMMIT, WITHDRAW):
            if reference not in self._live:
                return f"a release is {kind}ed that was not booked"
            if kind == WITHDRAW:
                del self._live[body["reference"]]
        return None

    def figures(self) -> dict[str, tuple[Limit | None, int, Total]]:
        """Return limit, number of releases and total by unit."""
        found = {unit: (limit, 0, Total()) for unit, limit in self._limits.items()}
        for body in self._live.values():
            limit, releases, total = found[body["unit"]]
            found[body["unit"]] = limit, releases + 1, total.plus(Total.of(entry_of(body)))
        return found
