"""The rows of a ledger: the locked chain of a dataset, its entries, and its accounts.

Each entry contains the hash of the previous one, so earlier entries cannot be changed unnoticed.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from graphveil._util import checks
from graphveil.core.ledger import Entry
from graphveil.core.unit import Unit, parse_unit
from graphveil.errors import ConfigError, GraphveilError
from graphveil.ledger.costs import Limit, PrivacyCost, limit_plain, stored_limit
from graphveil.ledger.database import UNREADABLE, accounts, data_sets, entries, lock_names, now, state_of
from graphveil.privacy.serialization import events_from_plain

_REPLACE = "/replace-one"
SKETCH = "sketch"  # keyed hashes of some of the people: how many of them two data sets share
INIT, BIND, UNBIND, RAISE_LIMIT = "init", "bind", "unbind", "raise"
RESERVE, COMMIT, REFUND = "reserve", "commit", "refund"
_TEXTS = {  # what entries of each kind hold as text
    INIT: ("unit",),
    BIND: (),
    UNBIND: (),
    RAISE_LIMIT: ("unit", "reason"),
    RESERVE: ("unit", "label", "reference"),
    COMMIT: ("reference",),
    REFUND: ("reference",),
}
START = "0" * 64  # what the first entry names in place of an entry before it
Tags = Mapping[str, str]
Row = sa.Row[Any]


def canonical(record: Mapping[str, Any]) -> str:
    """Return the canonical text of a JSON object.

    >>> canonical({"b": 1, "a": [2]})
    '{"a":[2],"b":1}'
    """
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)


def link(previous: str, body: str) -> str:
    """Return the hash of an entry: of its text, and of the hash of the entry before it.

    >>> link(START, "{}") == link(START, "{}"), link(START, "{}") == link(link(START, "{}"), "{}")
    (True, False)
    """
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


@dataclass(frozen=True)
class Account:
    """Spent budget and limit of a dataset under one unit.

    Args:
        data_set: Name of the dataset.
        unit: Name of the account, see ``unit_key``.
        limit: Largest allowed total; None for no limit.
        releases: Number of releases that were not refunded.
        total: Their privacy cost.
    """

    data_set: str
    unit: str
    limit: Limit | None = None
    releases: int = 0
    total: PrivacyCost = field(default_factory=PrivacyCost)


@dataclass
class HashChain:
    """The chain of one dataset, locked by the transaction that adds to it."""

    connection: sa.Connection
    name: str
    length: int
    head: str

    @classmethod
    def read(cls, connection: sa.Connection, name: str, *, lock: bool = False) -> "HashChain":
        """Return the chain of a registered dataset; callers that append to it lock it."""
        checks.letters(name=name)
        query = sa.select(data_sets).where(data_sets.c.name == name)
        known = name.isprintable()  # others are never registered, and no database takes some of them
        row = connection.execute(query.with_for_update() if lock else query).one_or_none() if known else None
        if row is None:
            names = connection.execute(
                sa.select(data_sets.c.name).order_by(data_sets.c.name).limit(20)
            ).scalars()
            listed = ", ".join(names) or "none yet"
            raise ConfigError(
                f"The ledger has no data set {name!r} (registered: {listed}). Register it with `graphveil "
                f"ledger init {quote(name)} --unit UNIT --epsilon E --delta D`."
            )
        return cls(connection, name, row.length, row.head)

    @classmethod
    def locked(cls, connection: sa.Connection, name: str, *, make: bool = False) -> "HashChain":
        """Return the chain, locked until the transaction ends; ``make`` registers a new dataset."""
        if make:
            lock_names(connection)
            insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            new = insert(data_sets).values(name=name, length=0, head=START)
            connection.execute(new.on_conflict_do_nothing())
        return cls.read(connection, name, lock=True)

    def add(self, kind: str, body: Mapping[str, Any]) -> tuple[int, str]:
        number = self.length + 1
        text = canonical({**body, "data_set": self.name, "number": number, "kind": kind, "time": now()})
        head = link(self.head, text)
        reference = body.get("reference", f"#{number}")
        values = {"number": number, "kind": kind, "reference": reference, "body": text, "hash": head}
        self.connection.execute(entries.insert().values(data_set=self.name, **values))
        where = data_sets.c.name == self.name
        self.connection.execute(data_sets.update().where(where).values(length=number, head=head))
        self.length, self.head = number, head
        return number, head


def unit_key(unit: Unit | str) -> str:
    """Return the name of the account of a privacy unit.

    Args:
        unit: Privacy unit, or its name.

    Raises:
        UnitError: If the name is not a privacy unit.

    >>> unit_key("undirected-edge")
    'undirected-edge'
    """
    if isinstance(unit, str):
        name, _, relation = unit.partition("/")
        unit = parse_unit(name, max_degree=1, replace_one=bool(relation))  # for any asserted degree
    return unit.name + _REPLACE if getattr(unit, "replace_one", False) else unit.name


def account_in(connection: sa.Connection, name: str, unit: str) -> Account | None:
    query = sa.select(accounts).where(accounts.c.data_set == name, accounts.c.unit == unit)
    row = connection.execute(query).one_or_none()
    return None if row is None else account_of(row)


def account_of(row: Row) -> Account:
    limit = stored_limit(row.epsilon, row.delta)
    texts = isinstance(row.data_set, str) and isinstance(row.unit, str) and isinstance(row.total, str)
    if not texts or type(row.releases) is not int or row.releases < 0:
        raise ValueError("an account must have a name, a unit, and a number of releases")
    unit_delta(row.unit)
    return Account(row.data_set, row.unit, limit, row.releases, PrivacyCost.from_plain(json.loads(row.total)))


def unit_delta(key: str) -> float:
    """Return the largest allowed delta of a unit, used for totals without an explicit delta.

    >>> unit_delta("undirected-edge"), unit_delta("node-record/replace-one")
    (1e-07, 1e-05)
    """
    return parse_unit(key.partition("/")[0], max_degree=1).delta_cap


def open_account_in(chain: HashChain, unit: str, limit: Limit | None) -> None:
    plain = limit_plain(limit)
    chain.add(INIT, plain | {"unit": unit})
    empty = canonical(PrivacyCost().as_plain())
    values = {"data_set": chain.name, "unit": unit, "releases": 0, "total": empty, **plain}
    chain.connection.execute(accounts.insert().values(values))


def update_account(connection: sa.Connection, name: str, unit: str, **values: object) -> None:
    where = (accounts.c.data_set == name) & (accounts.c.unit == unit)
    connection.execute(accounts.update().where(where).values(**values))


def tags_in(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the fingerprints in an entry's text; ValueError if it has none."""
    tags = body["fingerprints"]
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        raise ValueError("fingerprints must map names to strings")
    return tags


def common_parts(one: Tags, other: Tags) -> set[str]:
    """Return the parts of which both have a fingerprint that is compared as a whole."""
    return set(one.keys() & other.keys()) - {SKETCH}


def same_data(fingerprints: Tags, version: Tags) -> bool:
    """Whether data are those of a version, in every part that both have."""
    common = common_parts(fingerprints, version)
    return bool(common) and all(hmac.compare_digest(fingerprints[part], version[part]) for part in common)


def states_of(connection: sa.Connection, name: str, reference: str) -> dict[str, Row]:
    """Return the entries of a release by their kinds: reserved, committed, refunded."""
    query = sa.select(entries).where(entries.c.data_set == name, entries.c.reference == reference)
    return {row.kind: row for row in connection.execute(query)}


def rows_of(connection: sa.Connection, name: str) -> list[Row]:
    query = sa.select(entries).where(entries.c.data_set == name).order_by(entries.c.number)
    return list(connection.execute(query))


def body_of(row: Row) -> dict[str, Any]:
    """Parse an entry; raise one of ``UNREADABLE`` or an error of ours if no ledger wrote it."""
    body = json.loads(row.body)
    if (body["number"], body["kind"], body["data_set"]) != (row.number, row.kind, row.data_set):
        raise ValueError("the columns and the text of an entry differ")
    datetime.fromisoformat(body["time"])
    texts = [body[name] for name in _TEXTS[body["kind"]]]
    if not all(isinstance(text, str) for text in (*texts, row.hash, body["time"])):
        raise TypeError("a text field is not a string")
    if body["kind"] in (INIT, RAISE_LIMIT):
        stored_limit(body["epsilon"], body["delta"])
    elif body["kind"] == BIND:
        tags_in(body)
    elif body["kind"] == RESERVE:
        entry_of(body)
    return dict(body)


def entry_of(body: Mapping[str, Any]) -> Entry:
    event = events_from_plain(body["events"])
    name = body["unit"].removesuffix(_REPLACE)
    unit = parse_unit(name, replace_one=name != body["unit"], max_degree=body["max_degree"])
    return Entry(body["reference"], body["label"], event, body["slack"], unit)


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
        return [step for step in self.steps if step.row["unit"] == unit]
