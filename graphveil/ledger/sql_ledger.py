"""The durable ledger: what was ever released of each dataset, and how much more may be."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from graphveil.core.unit import NoUnit, Unit
from graphveil.errors import ConfigError, GraphveilError, LedgerError
from graphveil.ledger.bindings import (
    SAME_NODES_SHARE,
    add_version,
    check_binding,
    fingerprints_of,
    name_of,
    next_unnamed_data_set,
    shared_with,
    versions,
)
from graphveil.ledger.chain import (
    RAISE_LIMIT,
    REFUND,
    RESERVE,
    UNBIND,
    Account,
    HashChain,
    IntegrityViolation,
    Tags,
    account_in,
    body_of,
    find_violations,
    open_account_in,
    rows_of,
    stored_data_set_names,
    unit_key,
    update_account,
)
from graphveil.ledger.costs import Limit, limit_of, limit_plain, limit_words
from graphveil.ledger.database import (
    Store,
    copy_file,
    data_sets,
    entries,
    exchange,
    key_fault,
    state_of,
    writers_excluded,
)
from graphveil.ledger.locations import HighWaterMark, default_location, file_of, url_of
from graphveil.ledger.reservations import DataSetLedger, Receipt, accounts_of


class Ledger:
    """A ledger in a database: SQLite in a file, or PostgreSQL for several machines.

    Args:
        location: Path or URL. The default is the ledger of the user (``GRAPHVEIL_LEDGER``, or a file in the
            data folder).
        create: Whether to create an empty ledger if there is none.

    Raises:
        ConfigError: If it is on a file system without locks, or its URL is of another kind of database.
        LedgerError: If the database cannot be used.

    Privacy:
        A ledger contains events, keyed fingerprints of data, and the key. It is internal: do not publish it.

    >>> import tempfile
    >>> from graphveil.privacy import UndirectedEdge
    >>> from graphveil.ledger import Entry
    >>> from graphveil.core.events import PureDP
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(folder.name + "/ledger.sqlite")
    >>> ledger.init("friends", "undirected-edge", epsilon="0.3", delta="1e-7")
    >>> friends = ledger.data_set("friends")
    >>> for name in ("a", "b", "c"):
    ...     friends.record(Entry(name, "rows", PureDP(0.1), unit=UndirectedEdge()))
    >>> friends.record(Entry("d", "rows", PureDP(0.1), unit=UndirectedEdge()))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    graphveil.errors.BudgetError: release 'rows' costs epsilon 0.1, but 0.3 of epsilon 0.3 is already spent...
    >>> ledger.verify()
    []
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(self, location: str | Path | None = None, *, create: bool = True) -> None:
        self._store = Store(default_location() if location is None else url_of(location), create=create)

    def __repr__(self) -> str:
        return f"Ledger({self._store.display_url!r})"

    @property
    def location(self) -> str:
        """The location, without a password."""
        return self._store.display_url

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
        """Register a dataset, or one more privacy unit of it, with its limit.

        Args:
            name: Name of the dataset.
            unit: Privacy unit.
            epsilon: Limit of epsilon; None for no limit.
            delta: Delta of the limit. Required with ``epsilon``.
            tags: Keyed fingerprints of the data, see ``fingerprints``. Without them, the first run that names
                the dataset binds it. Repeated calls register a later version of data that grew, whose
                releases add to the same limits.

        Raises:
            ConfigError: If the unit is registered already with another limit or protects nothing, or the
                numbers are not a budget.
        """
        printable = name.isprintable() and name == name.strip() and 0 < len(name) <= 100
        if not printable or "#" in name or "://" in name:
            raise ConfigError(
                "The name of a data set must have 1 to 100 printable characters, without '#' and '://'. "
                "Choose another name."
            )
        unit, limit = unit_key(unit), limit_of(epsilon, delta)
        if unit == NoUnit.name:
            raise ConfigError(
                "unit 'none' protects nothing, so no privacy cost can be recorded under it. Use another unit."
            )

        def task(connection: sa.Connection) -> None:
            chain = HashChain.locked(connection, name, make=True)
            known = account_in(connection, name, unit)
            if known is None:
                open_account_in(chain, unit, limit)
            elif limit is not None and limit != known.limit:
                raise ConfigError(
                    f"Data set {name!r} is already registered under unit {unit!r} with "
                    f"{limit_words(known.limit)}. Change the limit with `graphveil ledger raise`, which "
                    "stores the reason."
                )
            elif not tags:
                raise ConfigError(f"Data set {name!r} is already registered under unit {unit!r}.")
            if tags:
                add_version(chain, tags)

        self._store.write(task)

    def other_names(self, name: str, tags: Tags) -> list[str]:
        """Return the other datasets with the same data.

        Their releases do not count under this name.

        Args:
            name: Name of a dataset.
            tags: Keyed fingerprints of its data.

        Privacy:
            Reads: keyed fingerprints of the data, which are internal. Charges: nothing.
        """
        found = self._store.read(lambda connection: shared_with(connection, tags))
        same = {other for other, people in found.items() if people.smaller >= SAME_NODES_SHARE}
        return sorted(same - {name})

    def shared_nodes(self, tags: Tags) -> dict[str, float]:
        """Return the share of the people in some data that each dataset was bound with.

        For large datasets it is an estimate, from keyed hashes of some of the ids.

        Args:
            tags: Keyed fingerprints of the data.

        Privacy:
            Reads: ids of the data, as keyed hashes. Charges: nothing. The shares are internal.
        """

        found = self._store.read(lambda connection: shared_with(connection, tags))
        return {name: people.first for name, people in found.items() if people.first}

    def data_set(self, name: str, data: Tags | None = None, *, limit: Limit | None = None) -> DataSetLedger:
        """Return the ledger of a registered dataset, to attach to a graph.

        Args:
            name: Name of the dataset.
            data: Keyed fingerprints of the data, which the dataset is bound to with the first release.
            limit: Limit of the returned object, under units that are registered without one.

        Raises:
            ConfigError: If no dataset has this name, or it is bound to other data.
        """

        def task(connection: sa.Connection) -> None:
            HashChain.read(connection, name)
            if data is not None:
                check_binding(connection, name, data)

        self._store.read(task)
        return DataSetLedger(self._store, name, data, limit=limit)

    def find_or_create(self, fingerprints: Tags, *, apart: bool = False) -> DataSetLedger:
        """Return the ledger of the dataset with these data, or of a new one.

        Data are those of a dataset if they have its edges, its records, its features or its people, or at
        least half of the people of the smaller of the two. Nothing is registered before the first release.

        Args:
            fingerprints: Keyed fingerprints of the data.
            apart: Whether the data owner asserts that they share no edges, or no people, with datasets that
                have other edges and records.

        Privacy:
            Stores: keyed fingerprints of the data, which are internal: an attacker with the key can test
            guesses. Charges: nothing.
        """

        def task(connection: sa.Connection) -> str:
            return name_of(connection, fingerprints, apart=apart) or next_unnamed_data_set(connection)

        name = self._store.read(task)
        return DataSetLedger(self._store, name, fingerprints, named=False, apart=apart)

    def unbind(self, name: str) -> None:
        """Release a dataset from its data; the next run that names it binds it again.

        Args:
            name: Name of the dataset.

        Raises:
            ConfigError: If the dataset does not exist, is not bound, or has releases.
        """

        def task(connection: sa.Connection) -> None:
            chain = HashChain.locked(connection, name)
            if not versions(connection, name):
                raise ConfigError(f"Data set {name!r} is not bound to any data, so it cannot be unbound.")
            kinds = [row.kind for row in rows_of(connection, name)]
            if kinds.count(RESERVE) > kinds.count(REFUND):
                raise ConfigError(
                    f"Data set {name!r} has releases, so it cannot be used for other data. Register other "
                    "data under another name: graphveil ledger init NAME --unit UNIT --epsilon E --delta D"
                )
            chain.add(UNBIND, {})

        self._store.write(task)

    def fingerprints(self, parts: Mapping[str, Iterable[bytes]]) -> dict[str, str]:
        """Return keyed fingerprints of data.

        Args:
            parts: Content of each part of the data, in pieces; see
                ``graphveil.data.fingerprint.fingerprint_parts``.

        Privacy:
            Reads: the data. Charges: nothing. Without the key of the ledger the fingerprints reveal nothing
            about the data; with both, any guess can be tested.
        """
        return fingerprints_of(self._store, parts)

    def names(self) -> list[str]:
        """Return the registered datasets."""
        query = sa.select(data_sets.c.name).order_by(data_sets.c.name)
        return self._store.read(lambda connection: list(connection.execute(query).scalars()))

    def accounts(self, name: str | None = None) -> list[Account]:
        """Return the spent budget for each dataset and unit.

        Args:
            name: Name of one dataset; None for all of them.

        Raises:
            ConfigError: If there is no such dataset.
        """
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
        """Raise the limit of a dataset under a unit; the chain stores the reason.

        Args:
            name: Name of the dataset.
            unit: Privacy unit of the account.
            epsilon: New limit of epsilon.
            delta: Delta of the new limit.
            reason: Reason of the change.

        Raises:
            ConfigError: If there is no reason, no such account, or the limit is below the current one.
        """
        key, limit = unit_key(unit), limit_of(epsilon, delta)
        if limit is None:
            raise ConfigError("A new limit needs both epsilon and delta. Pass both (--epsilon, --delta).")
        if not reason.strip():
            raise ConfigError(
                'A reason is missing. The ledger stores why a limit was raised. Pass --reason "TEXT".'
            )

        def task(connection: sa.Connection) -> None:
            chain = HashChain.locked(connection, name)
            known = account_in(connection, name, key)
            if known is None:
                raise ConfigError(
                    f"Data set {name!r} has no budget under unit {key!r}. Register one: graphveil ledger "
                    f"init {quote(name)} --unit {key} --epsilon E --delta D"
                )
            if known.limit is not None and (
                limit.epsilon < known.limit.epsilon or limit.delta < known.limit.delta
            ):
                raise ConfigError(
                    f"The limit is {limit_words(known.limit)}, and a limit can only be raised. Pass a larger "
                    "epsilon or delta."
                )
            chain.add(RAISE_LIMIT, limit_plain(limit) | {"unit": key, "reason": reason.strip()})
            update_account(connection, name, key, **limit_plain(limit))

        self._store.write(task)

    def export(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a dataset in order, as JSON values with their hashes.

        Args:
            name: Name of the dataset.

        Returns:
            Iterator over the entries.

        Raises:
            ConfigError: If there is no such dataset.
            LedgerError: If an entry is damaged.

        Privacy:
            Reads: events, labels and keyed fingerprints, never the data. Charges: nothing. The result is
            internal.
        """
        self.data_set(name)

        def task(connection: sa.Connection) -> list[dict[str, Any]]:
            return [{**body_of(row), "hash": row.hash} for row in rows_of(connection, name)]

        yield from self._store.read(task)

    def backup(self, path: str | Path) -> None:
        """Copy a consistent snapshot of the ledger to a new file, while others may write.

        Args:
            path: File to create, readable by its owner only.

        Raises:
            ConfigError: If the file exists, or the ledger is in PostgreSQL (use pg_dump).
            LedgerError: If the file cannot be written.
        """
        self._store.back_up(Path(path))

    def missing_receipts(self, receipts: Iterable[Mapping[str, Any]]) -> list[IntegrityViolation]:
        """Return receipts whose entry this ledger lacks, or has with another hash.

        Args:
            receipts: Receipts of runs, as JSON values.

        Raises:
            ArtifactError: If a receipt cannot be read.
        """
        parsed = [Receipt.from_plain(one) for one in receipts]

        def task(connection: sa.Connection) -> list[IntegrityViolation]:
            found = list[IntegrityViolation]()
            for receipt in parsed:
                # No database takes other names and numbers.
                known = receipt.data_set.isprintable() and 0 < receipt.entry < 1 << 31
                here = (entries.c.data_set == receipt.data_set) & (entries.c.number == receipt.entry)
                row = connection.execute(sa.select(entries).where(here)).one_or_none() if known else None
                other = receipt.ledger not in ("", self._store.ledger_id)
                if row is not None and (row.hash, row.reference) == (receipt.head, receipt.release):
                    continue
                if other:
                    why = "this release was recorded in another ledger"
                elif row is None:
                    why = "the ledger has no such entry"
                else:
                    why = "the ledger has another entry there than the run was recorded with"
                found.append(IntegrityViolation(receipt.data_set, receipt.entry, why, other))
            return found

        return self._store.read(task)

    def verify(self, name: str | None = None) -> list[IntegrityViolation]:
        """Recompute every hash, every total and every limit from the entries.

        Args:
            name: Name of one dataset; None for all of them.

        Returns:
            Violations; an empty list if the ledger is intact.

        Raises:
            ConfigError: If there is no such dataset.
        """
        names = self._store.read(stored_data_set_names)
        if name is not None:
            names = [name] if name in names else [self.data_set(name).name]
        fault = self._store.read(lambda connection: key_fault(state_of(connection)))
        found = [] if fault is None else [IntegrityViolation("", 0, fault)]
        return found + [
            each for one in names for each in self._store.read(partial(find_violations, name=one))
        ]


def restore(
    backup: str | Path,
    location: str | Path | None = None,
    *,
    receipts: Iterable[Mapping[str, Any]] = (),
    force: bool = False,
) -> "Ledger":
    """Replace a ledger file by a backup; the previous file is renamed and kept.

    Every entry of the ledger has to be in the backup, with the same hash. Other processes wait from this
    check to the exchange. Those that have the ledger open get an error with their next release, which then
    is not recorded.

    Args:
        backup: File that ``Ledger.backup`` wrote.
        location: Location of the ledger. The default is the user's own.
        receipts: Receipts of runs, which the backup has to contain.
        force: Whether to accept a backup that lacks entries of the ledger, its mark or the receipts. The
            releases that it lacks are no longer counted.

    Returns:
        The restored ledger.

    Raises:
        ConfigError: If there is no such backup, the ledger is in PostgreSQL, the backup lacks entries, or
            receipts belong to another ledger.
        LedgerError: If the backup is damaged.

    Privacy:
        With ``force``, releases that the backup lacks can be charged again: the limits no longer bound the
        total.
    """
    url = default_location() if location is None else url_of(location)
    file, source = file_of(url), Path(backup)
    if file is None:
        raise ConfigError(
            "graphveil cannot back up or restore a ledger in PostgreSQL. Use pg_dump and pg_restore."
        )
    if not source.is_file():
        raise ConfigError(
            f"There is no backup at {source}. Pass the path of a file that `graphveil ledger backup` wrote."
        )
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    there = file.resolve()  # of a link, what it points to is replaced
    with TemporaryDirectory(prefix=".graphveil-restore-", dir=there.parent) as folder:
        fresh = Path(folder) / file.name
        copy_file(source, fresh)
        try:
            kept = Ledger(fresh, create=False)
        except GraphveilError as error:
            raise type(error)(str(error).replace(str(fresh), str(source))) from None
        breaks = kept.verify()
        if breaks:
            raise LedgerError(
                f"{source} is not an intact ledger: {breaks[0].data_set}, entry {breaks[0].entry}: "
                f"{breaks[0].why}. Use another backup."
            )
        missing_receipts = kept.missing_receipts(receipts)
        others = [one for one in missing_receipts if one.other_ledger]
        if others:  # no backup of this ledger contains them, so force would accept nothing
            raise ConfigError(
                f"{len(others):,} of the receipts belong to another ledger than the backup {source}, for "
                f"example {others[0].data_set}, entry {others[0].entry}. Pass only runs that this ledger "
                "recorded (--runs), or the backup of the other ledger. Nothing was replaced."
            )
        # From here to the exchange nobody else writes, so no release is lost between the two.
        with writers_excluded(there) as present:
            lacking = _lacking(kept, file, present, missing_receipts)
            if lacking and not force:
                raise ConfigError(f"{source} {lacking} Nothing was replaced.")
            kept.close()
            try:
                exchange(there, fresh)
            except FileExistsError:
                raise ConfigError(
                    f"Another process created a ledger at {file} in the meantime. Run the restore again. "
                    "Nothing was replaced."
                ) from None
            HighWaterMark(file).path.unlink(missing_ok=True)
    return Ledger(file)


def _lacking(
    kept: Ledger, file: Path, present: sa.Connection | None, missing_receipts: list[IntegrityViolation]
) -> str:
    """Return what a backup lacks of the ledger or of receipts, and what to do; empty if nothing."""
    seen, (ident, count) = HighWaterMark(file).read(), kept._store.size
    there, lost = ("", None) if present is None else _not_in(kept, present)
    known = there if seen is None else seen[0]
    if known and known != ident:
        return (
            f"is the backup of another ledger than {file}, whose releases would no longer be counted. "
            "Restore it to another file (--ledger FILE), or replace the ledger with --force."
        )
    if missing_receipts:
        first = missing_receipts[0]
        what = f"it lacks {first.data_set}, entry {first.entry}, which a run has a receipt of"
    elif lost is not None:
        what = f"it lacks {lost[0]}, entry {lost[1]}, or has another one there"
    elif seen is not None and seen[1] > count:
        what = f"the ledger had {seen[1]:,} entries, and the backup has {count:,}"
    else:
        return ""
    return (
        f"lacks releases of the ledger: {what}. Use a newer backup. If there is none, --force restores this "
        "one, and the missing releases are no longer counted."
    )


def _not_in(kept: Ledger, present: sa.Connection) -> tuple[str, tuple[str, int] | None]:
    """Return the id of a ledger, and its first entry that another one lacks; of a damaged one what is read.

    The number of entries does not tell: two ledgers may have gone on from one backup.
    """
    query = sa.select(entries.c.data_set, entries.c.number, entries.c.hash)
    has = kept._store.read(lambda connection: {tuple(row) for row in connection.execute(query)})
    ident = ""
    with suppress(sa.exc.SQLAlchemyError):
        ident = str(state_of(present).checked or "")[: len(kept._store.ledger_id)]
    with suppress(sa.exc.SQLAlchemyError):
        for row in present.execute(query.order_by(entries.c.data_set, entries.c.number)):
            if tuple(row) not in has:
                return ident, (row.data_set, row.number)
    return ident, None
