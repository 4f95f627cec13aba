"""The durable ledger: what was ever released of each data set, and how much more may be."""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Any

import sqlalchemy as sa

from graphveil.errors import ConfigError
from graphveil.ledger.bookings import DataSetLedger, accounts_of, fingerprints_of
from graphveil.ledger.places import default_place, url_of
from graphveil.ledger.rows import (
    RAISE,
    Account,
    Chain,
    Tags,
    account_in,
    add_version,
    is_bound_to,
    limit_of,
    limit_plain,
    limit_words,
    name_of,
    names_of,
    open_account_in,
    rows_of,
    unit_key,
    update_account,
    versions,
)
from graphveil.ledger.store import Store, data_sets, lock_names
from graphveil.ledger.verify import Break, breaks_of, names_kept
from graphveil.privacy.unit import NoUnit, Unit


class Ledger:
    """A ledger in a database: SQLite in a file, or PostgreSQL for several machines.

    Args:
        place: a path, or a URL; by default the user's own ledger (GRAPHVEIL_LEDGER, else a file in the data
            folder).

    Raises:
        ConfigError: it lies on a file system without locks, or its URL is of another kind of database.
        LedgerError: the database cannot be used.

    >>> import tempfile
    >>> from graphveil.privacy import Entry, UndirectedEdge
    >>> from graphveil.privacy.events import PureDP
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(folder.name + "/ledger.sqlite")
    >>> ledger.init("friends", "undirected-edge", epsilon="0.3", delta="1e-7")
    >>> friends = ledger.data_set("friends")
    >>> for name in ("a", "b", "c"):
    ...     friends.record(Entry(name, "rows", PureDP(0.1), unit=UndirectedEdge()))
    >>> friends.record(Entry("d", "rows", PureDP(0.1), unit=UndirectedEdge()))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    graphveil.errors.BudgetError: data set 'friends' refuses the release 'rows': it asks for epsilon 0.1...
    >>> ledger.verify()
    []
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(self, place: str | Path | None = None) -> None:
        """Open the ledger, or make an empty one."""
        self._store = Store(default_place() if place is None else url_of(place))

    def __repr__(self) -> str:
        """Show where it lies, without a password."""
        return f"Ledger({self._store.shown!r})"

    @property
    def place(self) -> str:
        """Where it lies, without a password."""
        return self._store.shown

    def close(self) -> None:
        """Close the connections of this process."""
        self._store.close()

    def init(
        self,
        name: str,
        unit: Unit | str,
        *,
        epsilon: str | float | Decimal | None = None,
        delta: str | float | Decimal | None = None,
        tags: Tags | None = None,
    ) -> None:
        """Register a data set, or one more unit of it, with what may be spent under the unit.

        Args:
            name: what the data set is called.
            unit: what is protected.
            epsilon, delta: the limit, both or neither for none.
            tags: keyed fingerprints of its data (:meth:`fingerprints`); without them the first run that names
                the data set binds it. Given once more they register a later version of data that grew, whose
                releases add to the same limits.

        Raises:
            ConfigError: the unit is registered already with another limit or protects nothing, or the figures
                are no budget.
        """
        _check_name(name)
        unit, limit = unit_key(unit), limit_of(epsilon, delta)
        if unit == NoUnit.name:
            raise ConfigError(
                "unit 'none' protects nothing, so nothing is booked under it; name another unit"
            )

        def task(line: sa.Connection) -> None:
            chain = Chain.locked(line, name, make=True)
            known = account_in(line, name, unit)
            if known is None:
                open_account_in(chain, unit, limit)
            elif limit is not None and limit != known.limit:
                raise ConfigError(
                    f"data set {name!r} is registered under unit {unit!r} with {limit_words(known.limit)}; "
                    "change that with `graphveil ledger raise`, which keeps the reason"
                )
            elif not tags:
                raise ConfigError(f"data set {name!r} is registered under unit {unit!r} already")
            if tags:
                add_version(chain, tags)

        self._store.write(task)

    def other_names(self, name: str, tags: Tags) -> list[str]:
        """Return the other data sets of the same data, whose releases do not count under this name."""
        return sorted({*self._store.read(lambda line: list(names_of(line, tags)))} - {name})

    def data_set(self, name: str) -> DataSetLedger:
        """Return the ledger of a registered data set, to attach to a graph.

        Raises:
            ConfigError: there is none of that name.
        """
        self._store.read(lambda line: Chain.read(line, name))
        return DataSetLedger(self._store, name)

    def recognised(self, fingerprints: Tags) -> DataSetLedger:
        """Return the ledger of the data set with these fingerprints, registered now if it is new."""

        def task(line: sa.Connection) -> str:
            lock_names(line)
            known = name_of(line, fingerprints)
            if known is not None:
                return known
            taken = set(line.execute(sa.select(data_sets.c.name)).scalars())
            name = next(name for number in count(1) if (name := f"data-{number}") not in taken)
            add_version(Chain.locked(line, name, make=True), fingerprints)
            return name

        return DataSetLedger(self._store, self._store.write(task))

    def bind(self, name: str, fingerprints: Tags) -> None:
        """Let a data set be the one with these fingerprints, or make sure that it is.

        Raises:
            ConfigError: the data set is bound to other data.
        """

        def task(line: sa.Connection) -> None:
            chain = Chain.locked(line, name)
            known = versions(line, name)
            if known and not is_bound_to(fingerprints, known):
                raise ConfigError(
                    f"these are not the data that {name!r} was registered with, so its budget is not "
                    "theirs; give the files as they were, or, if the data have grown, register the new "
                    f"version: graphveil ledger init {name} --unit UNIT --nodes FILE --edges FILE ..."
                )
            add_version(chain, fingerprints)  # the first one, or what was not known of it yet

        self._store.write(task)

    def fingerprints(self, parts: Mapping[str, Iterable[bytes]]) -> dict[str, str]:
        """Return keyed fingerprints of data; without the ledger's key they tell nothing of them."""
        return fingerprints_of(self._store, parts)

    def names(self) -> list[str]:
        """Return the registered data sets, in alphabetical order."""
        query = sa.select(data_sets.c.name).order_by(data_sets.c.name)
        return self._store.read(lambda line: list(line.execute(query).scalars()))

    def accounts(self, name: str | None = None) -> list[Account]:
        """Return what is spent, for each data set and unit."""
        if name is not None:
            self.data_set(name)
        return accounts_of(self._store, name)

    def raise_limit(
        self,
        name: str,
        unit: Unit | str,
        *,
        epsilon: str | float | Decimal,
        delta: str | float | Decimal,
        reason: str,
    ) -> None:
        """Change the limit of a data set under a unit, for a reason that stays in the chain.

        Raises:
            ConfigError: there is no reason, no such account, or the limit is below the one that holds.
        """
        key, limit = unit_key(unit), limit_of(epsilon, delta)
        if limit is None:
            raise ConfigError("a limit is raised to figures; give both of them (--epsilon, --delta)")
        if not reason.strip():
            raise ConfigError("a limit is raised for a reason, which is kept; give one (--reason)")

        def task(line: sa.Connection) -> None:
            chain = Chain.locked(line, name)
            known = account_in(line, name, key)
            if known is None:
                raise _no_account(name, key)
            if known.limit is not None and (
                limit.epsilon < known.limit.epsilon or limit.delta < known.limit.delta
            ):
                raise ConfigError(
                    f"the limit is {limit_words(known.limit)}; a limit is raised, never lowered"
                )
            chain.add(RAISE, limit_plain(limit) | {"unit": key, "reason": reason.strip()})
            update_account(line, name, key, **limit_plain(limit))

        self._store.write(task)

    def export(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a data set in order, as plain values with their hashes."""
        self.data_set(name)
        for row in self._store.read(lambda line: rows_of(line, name)):
            yield {**json.loads(row.body), "hash": row.hash}

    def verify(self, name: str | None = None) -> list[Break]:
        """Return where a chain or a total does not hold; an empty list if all do.

        Every hash is computed anew, and every total and limit from the entries.
        """
        names = self._store.read(names_kept)
        if name is not None:
            names = [name] if name in names else [self.data_set(name).name]
        return [found for one in names for found in self._store.read(partial(breaks_of, name=one))]


def _check_name(name: str) -> None:
    if (
        not name
        or len(name) > 100
        or name != name.strip()
        or "#" in name
        or "://" in name
        or not name.isprintable()
    ):
        raise ConfigError("a data set's name is 1 to 100 printable characters, without '#' and '://'")


def _no_account(name: str, unit: str) -> ConfigError:
    return ConfigError(
        f"data set {name!r} has no budget under unit {unit!r}; register one: graphveil ledger init "
        f"{quote(name)} --unit {unit} --epsilon E --delta D"
    )
