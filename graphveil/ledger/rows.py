"""The rows of a ledger: the locked chain of a data set, its entries, and its accounts."""

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from shlex import quote
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from graphveil import _check
from graphveil.errors import ConfigError
from graphveil.ledger.chain import START, canonical, link
from graphveil.ledger.store import accounts, data_sets, entries, lock_names
from graphveil.ledger.totals import Limit, Total
from graphveil.privacy import Entry, parse_unit
from graphveil.privacy.calibration import check_proved_delta
from graphveil.privacy.serialization import events_from_plain
from graphveil.privacy.unit import Unit

_REPLACE = "/replace-one"
_MOST_EPSILON, _LEAST, _LETTERS = 10**9, Decimal("1e-100"), 60  # of the figures of a limit
PEOPLE = "people"  # the part of data that says who is in them, and nothing of what they are like
INIT, BIND, RAISE, RESERVE, COMMIT, WITHDRAW = "init", "bind", "raise", "reserve", "commit", "withdraw"
Tags = Mapping[str, str]
Row = sa.Row[Any]


@dataclass(frozen=True)
class Account:
    """What is spent of a data set under one unit, and what may be."""

    data_set: str
    unit: str
    limit: Limit | None
    releases: int
    total: Total


@dataclass
class Chain:
    """The chain of one data set, locked by the transaction that adds to it."""

    line: sa.Connection
    name: str
    length: int
    head: str

    @classmethod
    def read(cls, line: sa.Connection, name: str, *, lock: bool = False) -> "Chain":
        """Return the chain of a registered data set; whoever adds to it locks it."""
        _check.letters(name=name)
        query = sa.select(data_sets).where(data_sets.c.name == name)
        known = name.isprintable()  # others are never registered, and no database takes some of them
        row = line.execute(query.with_for_update() if lock else query).one_or_none() if known else None
        if row is None:
            names = line.execute(sa.select(data_sets.c.name).order_by(data_sets.c.name).limit(20)).scalars()
            listed = ", ".join(names) or "none yet"
            raise ConfigError(
                f"the ledger has no data set {name!r} (registered: {listed}); register it with `graphveil "
                f"ledger init {quote(name)} --unit UNIT --epsilon E --delta D`"
            )
        return cls(line, name, row.length, row.head)

    @classmethod
    def locked(cls, line: sa.Connection, name: str, *, make: bool = False) -> "Chain":
        """Return the chain, locked until the transaction ends; ``make`` registers a new data set."""
        if make:
            lock_names(line)
            _insert_if_new(line, name)
        return cls.read(line, name, lock=True)

    def add(self, kind: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """Add an entry; its number and the new head."""
        number = self.length + 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        text = canonical({**body, "data_set": self.name, "number": number, "kind": kind, "time": now})
        head = link(self.head, text)
        reference = body.get("reference", f"#{number}")
        values = {"number": number, "kind": kind, "reference": reference, "body": text, "hash": head}
        self.line.execute(entries.insert().values(data_set=self.name, **values))
        where = data_sets.c.name == self.name
        self.line.execute(data_sets.update().where(where).values(length=number, head=head))
        self.length, self.head = number, head
        return number, head


def unit_key(unit: Unit | str) -> str:
    """Return what an account is called: the unit's name, and whether records replace each other.

    >>> unit_key("undirected-edge")
    'undirected-edge'
    """
    if isinstance(unit, str):
        name, _, relation = unit.partition("/")
        unit = parse_unit(name, max_degree=1, replace_one=bool(relation))  # whatever degree is promised
    return unit.name + _REPLACE if getattr(unit, "replace_one", False) else unit.name


def account_in(line: sa.Connection, name: str, unit: str) -> Account | None:
    """Return the account of a data set under a unit, if it has one."""
    query = sa.select(accounts).where(accounts.c.data_set == name, accounts.c.unit == unit)
    row = line.execute(query).one_or_none()
    return None if row is None else account_of(row)


def account_of(row: Row) -> Account:
    """Return an account from its row."""
    limit = limit_from_plain(row.epsilon, row.delta)
    return Account(row.data_set, row.unit, limit, row.releases, Total.from_plain(json.loads(row.total)))


def open_account_in(chain: Chain, unit: str, limit: Limit | None) -> None:
    """Open an account under a unit, with a limit or without."""
    plain = limit_plain(limit)
    chain.add(INIT, plain | {"unit": unit})
    empty = canonical(Total().as_plain())
    values = {"data_set": chain.name, "unit": unit, "releases": 0, "total": empty, **plain}
    chain.line.execute(accounts.insert().values(values))


def update_account(line: sa.Connection, name: str, unit: str, **values: object) -> None:
    """Change what is kept of an account."""
    where = (accounts.c.data_set == name) & (accounts.c.unit == unit)
    line.execute(accounts.update().where(where).values(**values))


def add_version(chain: Chain, fingerprints: Tags) -> None:
    """Bind a data set to data, unless it is bound to them already."""
    known = versions(chain.line, chain.name)
    if not any(same_data(fingerprints, one) and fingerprints.keys() <= one.keys() for one in known):
        chain.add(BIND, {"fingerprints": dict(fingerprints)})


def versions(line: sa.Connection, name: str) -> list[dict[str, str]]:
    """Return the fingerprints of all versions of a data set."""
    query = sa.select(entries.c.body).where(entries.c.data_set == name, entries.c.kind == BIND)
    return [json.loads(body)["fingerprints"] for body in line.execute(query).scalars()]


def name_of(line: sa.Connection, fingerprints: Tags) -> str | None:
    """Return the first of the data sets with these fingerprints, if there is one."""
    return next(names_of(line, fingerprints), None)


def names_of(line: sa.Connection, fingerprints: Tags) -> Iterator[str]:
    """Yield the data sets that one of these fingerprints was bound to: whose edges, or whose records.

    Who is in them decides only where one of the two has nothing else: other edges of the same people are
    another data set.
    """
    query = sa.select(entries.c.data_set, entries.c.body).where(entries.c.kind == BIND)
    for name, body in line.execute(query.order_by(entries.c.data_set)):
        bound = json.loads(body)["fingerprints"]
        parts = fingerprints.keys() & bound.keys()
        if len(fingerprints) > 1 and len(bound) > 1:
            parts -= {PEOPLE}
        if any(bound[part] == fingerprints[part] for part in parts):
            yield str(name)


def same_data(fingerprints: Tags, version: Tags) -> bool:
    """Whether data are those of a version, in every part that both know."""
    common = fingerprints.keys() & version.keys()
    return bool(common) and all(hmac.compare_digest(fingerprints[part], version[part]) for part in common)


def is_bound_to(fingerprints: Tags, known: Sequence[Tags]) -> bool:
    """Whether data are those of some version: of the versions that know most of the same parts.

    A version that knows only who is in the data would take any edges of these people for its own.
    """
    most = max((len(fingerprints.keys() & one.keys()) for one in known), default=0)
    return any(same_data(fingerprints, one) for one in known if len(fingerprints.keys() & one.keys()) == most)


def reservation(line: sa.Connection, name: str, reference: str) -> Row | None:
    """Return the entry that booked a release, if there is one."""
    query = sa.select(entries).where(
        entries.c.data_set == name, entries.c.reference == reference, entries.c.kind == RESERVE
    )
    return line.execute(query).one_or_none()


def states_of(line: sa.Connection, name: str, reference: str) -> set[str]:
    """Return what has happened to a release: reserved, committed, withdrawn."""
    query = sa.select(entries.c.kind).where(entries.c.data_set == name, entries.c.reference == reference)
    return set(line.execute(query).scalars())


def rows_of(line: sa.Connection, name: str) -> list[Row]:
    """Return the entries of a data set in order."""
    query = sa.select(entries).where(entries.c.data_set == name).order_by(entries.c.number)
    return list(line.execute(query))


def entry_of(body: Mapping[str, Any]) -> Entry:
    """Return what a reservation booked."""
    event = events_from_plain(body["events"])
    name = body["unit"].removesuffix(_REPLACE)
    unit = parse_unit(name, replace_one=name != body["unit"], max_degree=body["max_degree"])
    return Entry(body["reference"], body["label"], event, body["slack"], unit)


def limit_of(epsilon: str | float | Decimal | None, delta: str | float | Decimal | None) -> Limit | None:
    """Return a limit from figures that are given, or none.

    Raises:
        ConfigError: they are no figures, or none that a double can be compared with.
    """
    if (epsilon is None) != (delta is None):
        raise ConfigError(
            "a limit needs both epsilon and delta (--epsilon, --delta); give both, or neither for none"
        )
    try:
        limit = limit_from_plain(epsilon, delta)
    except InvalidOperation:
        raise ConfigError(f"epsilon={epsilon!r} and delta={delta!r} must be numbers") from None
    if limit is not None and not (_within(limit.epsilon, _MOST_EPSILON) and _within(limit.delta, 1)):
        raise ConfigError(
            f"a limit has an epsilon of at least 0 and below {_MOST_EPSILON:,} and a delta in [0, 1), each 0 "
            f"or at least {_LEAST} and in up to {_LETTERS} letters, not {limit_words(limit)[:100]}"
        )
    if limit is not None and limit.delta:
        check_proved_delta(float(limit.delta))
    return limit


def limit_from_plain(
    epsilon: str | float | Decimal | None, delta: str | float | Decimal | None
) -> Limit | None:
    """Return a limit from figures that were taken once, or none."""
    if epsilon is None or delta is None:
        return None
    return Limit(Decimal(str(epsilon)), Decimal(str(delta)))


def _within(figure: Decimal, most: int) -> bool:
    """Whether a figure is from 0 to below a bound, and no double or column is too small for it."""
    if not figure.is_finite() or figure.is_signed() or len(str(figure)) > _LETTERS:
        return False
    return not figure or (figure >= _LEAST and float(figure) < most)


def limit_plain(limit: Limit | None) -> dict[str, str | None]:
    """Return a limit as text, as it was given."""
    if limit is None:
        return {"epsilon": None, "delta": None}
    return {"epsilon": str(limit.epsilon), "delta": str(limit.delta)}


def limit_words(limit: Limit | None) -> str:
    """Return a limit in words."""
    return "no limit" if limit is None else f"epsilon {limit.epsilon} at delta {limit.delta}"


def _insert_if_new(line: sa.Connection, name: str) -> None:
    new = {"name": name, "length": 0, "head": START}
    if line.dialect.name == "postgresql":
        line.execute(postgresql.insert(data_sets).values(new).on_conflict_do_nothing())
    else:
        line.execute(sqlite.insert(data_sets).values(new).on_conflict_do_nothing())
