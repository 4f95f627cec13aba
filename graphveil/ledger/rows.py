"""The rows of a ledger: the locked chain of a data set, its entries, and its accounts."""

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from shlex import quote
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.ledger.chain import START, canonical, link
from graphveil.ledger.costs import Limit, PrivacyCost
from graphveil.ledger.sketch import overlap
from graphveil.ledger.sources import now
from graphveil.ledger.store import accounts, data_sets, entries, lock_names, state_of
from graphveil.privacy import Entry, parse_unit
from graphveil.privacy.calibration import check_proved_delta
from graphveil.privacy.serialization import events_from_plain
from graphveil.privacy.unit import Unit

_REPLACE = "/replace-one"
_MAX_EPSILON, _LEAST, _LETTERS = 10**9, Decimal("1e-100"), 60  # of the figures of a limit
NODE_IDS = "people"  # the part of data that says who is in them, and nothing of what they are like
SKETCH = "sketch"  # keyed hashes of some of the people: how many of them two data sets share
_EXACT = {"edges", "records"}  # parts that no two data sets share unless they share edges or records
SAME_NODES_SHARE = (
    0.5  # share of the smaller of two data sets from which on their people are taken to be the same
)
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
Tags = Mapping[str, str]
Row = sa.Row[Any]


@dataclass(frozen=True)
class Account:
    """What is spent of a data set under one unit, and what may be."""

    data_set: str
    unit: str
    limit: Limit | None
    releases: int
    total: PrivacyCost


@dataclass
class HashChain:
    """The chain of one data set, locked by the transaction that adds to it."""

    connection: sa.Connection
    name: str
    length: int
    head: str

    @classmethod
    def read(cls, connection: sa.Connection, name: str, *, lock: bool = False) -> "HashChain":
        """Return the chain of a registered data set; whoever adds to it locks it."""
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
                f"the ledger has no data set {name!r} (registered: {listed}); register it with `graphveil "
                f"ledger init {quote(name)} --unit UNIT --epsilon E --delta D`"
            )
        return cls(connection, name, row.length, row.head)

    @classmethod
    def locked(cls, connection: sa.Connection, name: str, *, make: bool = False) -> "HashChain":
        """Return the chain, locked until the transaction ends; ``make`` registers a new data set."""
        if make:
            lock_names(connection)
            _insert_if_new(connection, name)
        return cls.read(connection, name, lock=True)

    def add(self, kind: str, body: Mapping[str, Any]) -> tuple[int, str]:
        """Add an entry; its number and the new head."""
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
    """Return what an account is called: the unit's name, and whether records replace each other.

    >>> unit_key("undirected-edge")
    'undirected-edge'
    """
    if isinstance(unit, str):
        name, _, relation = unit.partition("/")
        unit = parse_unit(name, max_degree=1, replace_one=bool(relation))  # whatever degree is asserted
    return unit.name + _REPLACE if getattr(unit, "replace_one", False) else unit.name


def account_in(connection: sa.Connection, name: str, unit: str) -> Account | None:
    """Return the account of a data set under a unit, if it has one."""
    query = sa.select(accounts).where(accounts.c.data_set == name, accounts.c.unit == unit)
    row = connection.execute(query).one_or_none()
    return None if row is None else account_of(row)


def account_of(row: Row) -> Account:
    """Return an account from its row."""
    limit = _kept_limit(row.epsilon, row.delta)
    texts = isinstance(row.data_set, str) and isinstance(row.unit, str) and isinstance(row.total, str)
    if not texts or type(row.releases) is not int or row.releases < 0:
        raise ValueError("an account has a name, a unit, and a number of releases")
    unit_delta_of(row.unit)
    return Account(row.data_set, row.unit, limit, row.releases, PrivacyCost.from_plain(json.loads(row.total)))


def unit_delta_of(key: str) -> float:
    """Return the largest delta that a unit is sold at; raises what an unknown unit raises."""
    return parse_unit(key.partition("/")[0], max_degree=1).delta_cap


def open_account_in(chain: HashChain, unit: str, limit: Limit | None) -> None:
    """Open an account under a unit, with a limit or without."""
    plain = limit_plain(limit)
    chain.add(INIT, plain | {"unit": unit})
    empty = canonical(PrivacyCost().as_plain())
    values = {"data_set": chain.name, "unit": unit, "releases": 0, "total": empty, **plain}
    chain.connection.execute(accounts.insert().values(values))


def update_account(connection: sa.Connection, name: str, unit: str, **values: object) -> None:
    """Change what is kept of an account."""
    where = (accounts.c.data_set == name) & (accounts.c.unit == unit)
    connection.execute(accounts.update().where(where).values(**values))


def add_version(chain: HashChain, fingerprints: Tags) -> None:
    """Bind a data set to data, unless it is bound to them already."""
    known = versions(chain.connection, chain.name)
    if not any(same_data(fingerprints, one) and fingerprints.keys() <= one.keys() for one in known):
        key = state_of(chain.connection).checked
        chain.add(BIND, {"fingerprints": dict(fingerprints), "key": key})


def versions(connection: sa.Connection, name: str) -> list[dict[str, str]]:
    """Return the fingerprints of all versions of a data set that it was not unbound from."""
    return dict(_bound(connection, name)).get(name, [])


def _bound(connection: sa.Connection, name: str | None = None) -> list[tuple[str, list[dict[str, str]]]]:
    """Return the data sets that are bound, in alphabetical order, with the fingerprints of their versions."""
    query = sa.select(entries.c.data_set, entries.c.kind, entries.c.body)
    query = query.where(entries.c.kind.in_((BIND, UNBIND))).order_by(entries.c.data_set, entries.c.number)
    found = dict[str, list[dict[str, str]]]()
    for owner, kind, body in connection.execute(
        query if name is None else query.where(entries.c.data_set == name)
    ):
        if kind == UNBIND:
            found.pop(owner, None)
        else:
            found.setdefault(owner, []).append(tags_in(json.loads(body)))
    return sorted(found.items())


def tags_in(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the fingerprints in an entry's text; ValueError if they are none."""
    tags = body["fingerprints"]
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        raise ValueError("fingerprints are texts by name")
    return tags


def name_of(connection: sa.Connection, fingerprints: Tags, *, apart: bool = False) -> str | None:
    """Return the data set that these are data of: the one that shares most with them."""
    found = shared_with(connection, fingerprints, apart=apart)
    best = max(found, key=lambda name: found[name], default=None)
    return best if best is not None and found[best] >= SAME_NODES_SHARE else None


def names_of(connection: sa.Connection, fingerprints: Tags) -> Iterator[str]:
    """Yield the data sets that these are data of."""
    return (
        name for name, share in shared_with(connection, fingerprints).items() if share >= SAME_NODES_SHARE
    )


def shared_with(connection: sa.Connection, fingerprints: Tags, *, apart: bool = False) -> dict[str, float]:
    """Return how much data share with each data set: 2 for equal edges or records, else a share of people.

    Args:
        connection: the connection.
        fingerprints: of the data.
        apart: whether the user states that nothing else is shared, so that people do not count.
    """
    found = dict[str, float]()
    for name, known in _bound(connection):
        exact = any(
            tags[part] == fingerprints[part]
            for tags in known
            for part in _common(tags, fingerprints) & _EXACT
        )
        if exact:
            found[name] = 2.0
        elif not apart:
            equal = any(
                tags[part] == fingerprints[part] for tags in known for part in _common(tags, fingerprints)
            )
            sketches = [tags[SKETCH] for tags in known if SKETCH in tags]
            share = 1.0 if equal else overlap(fingerprints.get(SKETCH, ""), sketches).smaller
            if share:
                found[name] = share
    return found


def _common(one: Tags, other: Tags) -> set[str]:
    return set(one.keys() & other.keys()) - {SKETCH}


def same_data(fingerprints: Tags, version: Tags) -> bool:
    """Whether data are those of a version, in every part that both have."""
    common = _common(fingerprints, version)
    return bool(common) and all(hmac.compare_digest(fingerprints[part], version[part]) for part in common)


def is_bound_to(fingerprints: Tags, known: Sequence[Tags]) -> bool:
    """Whether data are those of some version: of the versions that know most of the same parts.

    A version that knows only who is in the data would take any edges of these people for its own.
    """
    most = max((len(_common(fingerprints, one)) for one in known), default=0)
    return any(same_data(fingerprints, one) for one in known if len(_common(fingerprints, one)) == most)


def reservation(connection: sa.Connection, name: str, reference: str) -> Row | None:
    """Return the entry that booked a release, if there is one."""
    query = sa.select(entries).where(
        entries.c.data_set == name, entries.c.reference == reference, entries.c.kind == RESERVE
    )
    return connection.execute(query).one_or_none()


def states_of(connection: sa.Connection, name: str, reference: str) -> set[str]:
    """Return what has happened to a release: reserved, committed, withdrawn."""
    query = sa.select(entries.c.kind).where(entries.c.data_set == name, entries.c.reference == reference)
    return set(connection.execute(query).scalars())


def rows_of(connection: sa.Connection, name: str) -> list[Row]:
    """Return the entries of a data set in order."""
    query = sa.select(entries).where(entries.c.data_set == name).order_by(entries.c.number)
    return list(connection.execute(query))


def body_of(row: Row) -> dict[str, Any]:
    """Return what an entry says; raises one of ``UNREADABLE`` or an error of ours if no ledger wrote it."""
    body = json.loads(row.body)
    if (body["number"], body["kind"], body["data_set"]) != (row.number, row.kind, row.data_set):
        raise ValueError("an entry's columns and its text differ")
    datetime.fromisoformat(body["time"])
    texts = [body[name] for name in _TEXTS[body["kind"]]]
    if not all(isinstance(text, str) for text in (*texts, row.hash, body["time"])):
        raise TypeError("a text is not one")
    if body["kind"] in (INIT, RAISE_LIMIT):
        _kept_limit(body["epsilon"], body["delta"])
    elif body["kind"] == BIND:
        tags_in(body)
    elif body["kind"] == RESERVE:
        entry_of(body)
    return dict(body)


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
    if limit is not None and not (_in_range(limit.epsilon, _MAX_EPSILON) and _in_range(limit.delta, 1)):
        raise ConfigError(
            f"a limit has an epsilon of at least 0 and below {_MAX_EPSILON:,} and a delta in [0, 1), each 0 "
            f"or at least {_LEAST} and in up to {_LETTERS} letters, not {limit_words(limit)[:100]}"
        )
    if limit is not None and limit.delta:
        check_proved_delta(float(limit.delta))
    return limit


def _kept_limit(epsilon: object, delta: object) -> Limit | None:
    """Return a limit as it was taken once; ValueError if it never was."""
    if not all(part is None or isinstance(part, str) for part in (epsilon, delta)):
        raise TypeError("figures are kept as text")
    try:
        return limit_of(cast(str | None, epsilon), cast(str | None, delta))
    except ConfigError:
        raise ValueError("a limit is two figures") from None


def limit_from_plain(
    epsilon: str | float | Decimal | None, delta: str | float | Decimal | None
) -> Limit | None:
    """Return a limit from figures that were taken once, or none."""
    if epsilon is None or delta is None:
        return None
    return Limit(Decimal(str(epsilon)), Decimal(str(delta)))


def _in_range(figure: Decimal, most: int) -> bool:
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


def _insert_if_new(connection: sa.Connection, name: str) -> None:
    new = {"name": name, "length": 0, "head": START}
    if connection.dialect.name == "postgresql":
        connection.execute(postgresql.insert(data_sets).values(new).on_conflict_do_nothing())
    else:
        connection.execute(sqlite.insert(data_sets).values(new).on_conflict_do_nothing())
