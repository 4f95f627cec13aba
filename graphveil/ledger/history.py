"""What became of a data set's budgets: releases in order, raised limits, and versions of the data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from graphveil.ledger.costs import Limit, PrivacyCost
from graphveil.ledger.rows import (
    BIND,
    RAISE_LIMIT,
    REFUND,
    RESERVE,
    UNBIND,
    entry_of,
    limit_from_plain,
    same_data,
)


@dataclass(frozen=True)
class HistoryEntry:
    """One release that was not given back: what it cost, and everything under its unit with it."""

    entry: int
    time: str
    unit: str
    label: str
    reference: str
    hash: str
    privacy_cost: PrivacyCost
    total: PrivacyCost


@dataclass(frozen=True)
class LimitChange:
    """A limit that was raised, and why."""

    entry: int
    time: str
    unit: str
    limit: Limit
    reason: str


@dataclass(frozen=True)
class DataVersion:
    """A version of the data that was registered, or bound by the first run."""

    entry: int
    time: str


@dataclass(frozen=True)
class History:
    """What :meth:`graphveil.ledger.Ledger.export` yields, read.

    >>> import tempfile
    >>> from graphveil.ledger import Ledger
    >>> from graphveil.privacy import Entry, PureDP, UndirectedEdge
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
    raised: tuple[LimitChange, ...]
    versions: tuple[DataVersion, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "History":
        """Read the entries of a data set, in order."""
        rows = list(rows)
        raised = [
            LimitChange(*_when(row), row["unit"], limit, row["reason"])
            for row in rows
            if row["kind"] == RAISE_LIMIT
            and (limit := limit_from_plain(row["epsilon"], row["delta"])) is not None
        ]
        return cls(tuple(_steps(rows)), tuple(raised), tuple(_versions(rows)))

    def of_unit(self, unit: str) -> list[HistoryEntry]:
        """Return the releases under a unit."""
        return [step for step in self.steps if step.unit == unit]


def over_time(steps: Sequence[HistoryEntry], parts: int) -> list[PrivacyCost]:
    """Return what was spent by the end of each of so many equal parts of the time from first to last."""
    times = [datetime.fromisoformat(step.time) for step in steps]
    first, last = min(times), max(times)
    ends = [first + (last - first) * (part / parts) for part in range(1, parts)]
    reached = [sum(time <= end for time in times) for end in ends]
    return [steps[count - 1].total for count in (*reached, len(steps))]


def _when(row: Mapping[str, Any]) -> tuple[int, str]:
    return row["number"], row["time"]


def _steps(rows: Sequence[Mapping[str, Any]]) -> Iterator[HistoryEntry]:
    gone = {row["reference"] for row in rows if row["kind"] == REFUND}
    totals = dict[str, PrivacyCost]()
    for row in rows:
        if row["kind"] == RESERVE and row["reference"] not in gone:
            unit, privacy_cost = row["unit"], PrivacyCost.from_entry(entry_of(row))
            totals[unit] = totals.get(unit, PrivacyCost()).plus(privacy_cost)
            about = unit, row["label"], row["reference"], row["hash"]
            yield HistoryEntry(*_when(row), *about, privacy_cost, totals[unit])


def _versions(rows: Sequence[Mapping[str, Any]]) -> Iterator[DataVersion]:
    """Yield versions; an entry that tells more of one that is known, its people say, is none."""
    unbound = max((row["number"] for row in rows if row["kind"] == UNBIND), default=0)
    known = list[Mapping[str, str]]()
    for row in rows:
        if row["kind"] == BIND and row["number"] > unbound:
            if not any(same_data(row["fingerprints"], one) for one in known):
                yield DataVersion(*_when(row))
            known.append(row["fingerprints"])
