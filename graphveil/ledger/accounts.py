"""Ledger accounts: match the data to a dataset of the ledger, and return what it has spent.

``RunAccount`` is the account of a command, ``CollectionAccount`` that of people who sent LDP reports, and
``LedgerRegistry`` finds the ledgers that earlier releases were charged to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil._util.figures import counted, format_delta, format_upper_bound
from graphveil.core.ledger import Entry, attach_ledger
from graphveil.data.fingerprint import fingerprint_parts, id_fingerprint_parts
from graphveil.errors import ConfigError
from graphveil.ledger.chain import Account, unit_delta, unit_key
from graphveil.ledger.costs import PrivacyCost
from graphveil.ledger.locations import split_name
from graphveil.ledger.reservations import PLANNED_LABEL, DataSetLedger, Receipt
from graphveil.ledger.sql_ledger import Ledger
from graphveil.privacy import Guarantee

if TYPE_CHECKING:
    from graphveil.data import Graph

_MAX_NAMES = 3  # of other data sets that a plan lists
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class RunAccount:
    """A dataset's budget under the privacy unit of one command.

    Args:
        ledger: Ledger of the dataset.
        unit: Privacy unit of the command, as the ledger names it.
        delta: Delta of totals, if the budget does not define one.
        earlier: Ledger entries of this process that belong to other experiments.
        others: Further names of the same data in this ledger, whose releases do not count here.
        people: For each dataset of this ledger, the share of its people that are in the data.
    """

    ledger: DataSetLedger
    unit: str
    delta: float
    earlier: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()
    people: tuple[tuple[str, float], ...] = ()

    @classmethod
    def from_graph(
        cls, graph: "Graph", guarantee: Guarantee, named: str | None, *, charge: "Graph | None" = None
    ) -> "RunAccount":
        """Attach the ledger of a dataset to a graph, and return its account.

        Args:
            graph: The graph as read, before a recipe.
            guarantee: Guarantee of the command.
            named: ``NAME``, ``URL`` or ``URL#NAME`` of a registered dataset; None for the user's own ledger,
                which recognizes the data, or registers them without a limit.
            charge: The graph that is queried, if a recipe has created another one.

        Raises:
            ConfigError: No such dataset is registered, several match, or it has other data.
        """
        account = cls.from_parts(fingerprint_parts(graph), guarantee, named)
        attach_ledger((charge or graph).edge_set, account.ledger)
        return account

    @classmethod
    def from_parts(
        cls,
        parts: Mapping[str, Iterable[bytes]],
        guarantee: Guarantee,
        named: str | None,
        *,
        apart: bool = False,
    ) -> "RunAccount":
        """Return the account of data with these fingerprint parts, attached to no graph.

        The dataset is bound to the data, or registered for them, with the first release, so a rejected run
        leaves no trace.

        Args:
            parts: Content of each part of the data, in pieces.
            guarantee: Guarantee of the command.
            named: Value of ``--ledger``; None for the user's own ledger.
            apart: Whether the data owner asserts that the data are disjoint from others.

        Returns:
            The account under the unit of the guarantee.

        Raises:
            ConfigError: If no such dataset is registered, several match, or it has other data.

        Privacy:
            Reads: the data, for keyed fingerprints. Charges: nothing.
        """
        url, name = (None, None) if named is None else split_name(named)
        ledger_store, unit = Ledger(url, create=named is None), unit_key(guarantee.protected)
        fingerprints = ledger_store.fingerprints(parts)
        people = tuple(ledger_store.shared_nodes(fingerprints).items())
        if named is None:
            found = ledger_store.find_or_create(fingerprints, apart=apart)
            return cls(found, unit, guarantee.delta, people=people)
        account = cls.from_name(ledger_store, name, guarantee)
        ledger = ledger_store.data_set(account.ledger.name, fingerprints)
        others = tuple(ledger_store.other_names(ledger.name, fingerprints))
        return replace(account, ledger=ledger, others=others, people=people)

    @classmethod
    def from_name(cls, ledger_store: Ledger, name: str | None, guarantee: Guarantee) -> "RunAccount":
        """Return the account of a dataset by its name, or of the only one with a budget under the unit."""
        unit = unit_key(guarantee.protected)
        if name is None:
            found = sorted({one.data_set for one in ledger_store.accounts() if one.unit == unit})
            if len(found) != 1:
                listed = ", ".join(found) or "none"
                raise ConfigError(
                    f"The ledger at {ledger_store.location} must have exactly one data set with a budget "
                    f"under unit {unit!r}, but it has {len(found)} ({listed}). Name one with --ledger "
                    "URL#NAME."
                )
            (name,) = found
        return cls(ledger_store.data_set(name), unit, guarantee.delta)

    def check_room(self, guarantee: Guarantee) -> None:
        """Check the total of a run against the limit of every privacy unit before the run starts.

        Raises:
            BudgetError: The total exceeds a limit.
        """
        for one in (guarantee, *guarantee.additional):
            self.ledger.check(Entry("planned", PLANNED_LABEL, one.event, one.slack, one.protected))

    def for_next_experiment(self) -> "RunAccount":
        """Return the account for the next of several experiments; it excludes all earlier ledger entries."""
        return replace(self, earlier=frozenset(receipt.release for receipt in self.ledger.receipts))

    @property
    def receipts(self) -> list[Receipt]:
        """The receipts of this experiment in this process."""
        return [receipt for receipt in self.ledger.receipts if receipt.release not in self.earlier]

    def refund(self) -> None:
        """Refund reservations of this process for which no noise was drawn."""
        for receipt in self.receipts:
            self.ledger.refund(receipt.release)

    def as_plain(self) -> dict[str, Any]:
        """Return all recorded releases of the data under this unit, and the receipts of this process."""
        spent, delta = self._spent()
        epsilon = spent.total.epsilon(delta)
        limit = spent.limit
        return {
            "data_set": self.ledger.name,
            "place": self.ledger.location,
            "unit": self.unit,
            "releases": spent.releases,
            "epsilon": epsilon if epsilon < float("inf") else None,
            "delta": delta,
            "limit": None
            if limit is None
            else {"epsilon": float(limit.epsilon), "delta": float(limit.delta)},
            "receipts": [asdict(receipt) for receipt in self.receipts],
        }

    def before(self, *, resumed: bool = False) -> str:
        """Return what was released before this command, for its plan; a resumed run may have released too."""
        spent, delta = self._spent()
        if not spent.releases:
            under = " under this name" if self.others else ""
            if self._elsewhere:
                return f"no release in the account of these {self._about}{under} ({self._where})"
            return f"nothing of these {self._about} was released{under} before ({self._where})"
        count = counted(spent.releases, "release")
        when = "so far, any of this run among them" if resumed else "before this one"
        part = dict(self.people).get(self.ledger.name)
        nodes = "" if part is None else f", with {_percent(part)} of these nodes"
        return f"{count} {when}{nodes}: {_epsilon(spent.total, delta)}{_format_limit(spent)} ({self._where})"

    def after(self) -> str:
        """Return the total privacy cost of everything released so far."""
        spent, delta = self._spent()
        which = f"this is the {ordinal(spent.releases)} release on these {self._about}"
        return f"{which}: together {_epsilon(spent.total, delta)}{_format_limit(spent)} ({self._where})"

    @property
    def _where(self) -> str:
        where = f"ledger of {self.ledger.name!r}{self._elsewhere}"
        if not self.others:
            return where
        return f"{where}; what the same data spent as {', '.join(map(repr, self.others))} does not count here"

    @property
    def _elsewhere(self) -> str:
        """Which other datasets have some of these nodes, and are not charged."""
        found = [
            f"{_percent(part)} of these nodes are in {name!r}, too, which is not charged"
            for name, part in self.people
            if name != self.ledger.name and name not in self.others
        ]
        return "".join(f"; {words}" for words in found[:_MAX_NAMES])

    @property
    def _about(self) -> str:
        if self.unit.startswith("node"):
            return "people"
        return "records" if self.unit.startswith("local") else "edges"

    def _spent(self) -> tuple[Account, float]:
        spent = account_under(self.ledger, self.unit)
        if spent.limit is not None:
            return spent, float(spent.limit.delta)
        if self.delta or spent.total.epsilon(0.0) < float("inf"):
            return spent, self.delta
        return spent, unit_delta(self.unit)  # this release is pure, and not all of those before were


def account_under(ledger: DataSetLedger, unit: str) -> Account:
    """Return the budget spent under one unit; zero, without a limit, if there is no account."""
    found = [one for one in ledger.accounts if one.unit == unit]
    return found[0] if found else Account(ledger.name, unit, None, 0, PrivacyCost())


def ordinal(number: int) -> str:
    """Return an ordinal number, spelled out up to ten.

    >>> ordinal(4), ordinal(22), ordinal(113)
    ('fourth', '22nd', '113th')
    """
    if 0 < number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    tail = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{tail}"


def _epsilon(total: PrivacyCost, delta: float) -> str:
    epsilon = total.epsilon(delta)
    if epsilon == float("inf"):
        return "no bound"
    return f"epsilon {format_upper_bound(epsilon)} at delta {format_delta(delta)}"


def _percent(part: float) -> str:
    """Return a share as a rounded percentage, which does not reveal the exact count.

    >>> _percent(1.0), _percent(0.9983), _percent(0.004)
    ('all', 'about 99 %', 'less than 1 %')
    """
    if part >= 1:
        return "all"
    return "less than 1 %" if part < 0.01 else f"about {min(99, round(100 * part))} %"


def _format_limit(spent: Account) -> str:
    return "" if spent.limit is None else f", of {spent.limit.epsilon} allowed"


@dataclass(frozen=True)
class CollectionAccount:
    """The account of people who sent LDP reports under one collection protocol.

    Randomizing a table of records is charged under unit ``local-attributes``, before the LDP reports are
    written. The server that receives the LDP reports stores no record. It charges a protocol once, and only
    for people with ids, for any number of later LDP reports.

    Args:
        account: Account of the people.
        guarantee: Guarantee of one LDP report.
        digest: Digest of the protocol.
    """

    account: RunAccount
    guarantee: Guarantee
    digest: bytes

    @classmethod
    def from_records(
        cls, ids: Iterable[object], guarantee: Guarantee, digest: bytes, named: str | None
    ) -> "CollectionAccount":
        """Return the account of the people with these ids.

        Args:
            ids: Ids of the people.
            guarantee: Guarantee of one LDP report.
            digest: Digest of the protocol.
            named: Value of ``--ledger``; None for the user's own ledger, which recognizes the people.

        Raises:
            ConfigError: No such dataset is registered, or it is of other people.
        """
        account = RunAccount.from_parts(id_fingerprint_parts(ids), guarantee, named)
        return cls(account, guarantee, digest)

    @classmethod
    def from_name(cls, named: str, guarantee: Guarantee, digest: bytes) -> "CollectionAccount":
        """Return the account of people with ids, of whom this process has only LDP reports."""
        url, name = split_name(named)
        return cls(RunAccount.from_name(Ledger(url, create=False), name, guarantee), guarantee, digest)

    def charge_reports(self, encoded_reports: Iterable[tuple[object, str]], records: Iterable[bytes]) -> None:
        """Charge LDP reports before they leave this process; equal ones are charged once.

        Args:
            encoded_reports: Ids and encoded LDP reports.
            records: The record of each LDP report. The entry is named by a fingerprint of both under the
                ledger's key. A changed record may by chance send the same few bits, and is charged again.

        Raises:
            BudgetError: The remaining budget is too small.
        """
        report_lines = (
            f"{node}\0{text}\n".encode("utf-8", "surrogatepass") for node, text in encoded_reports
        )
        parts = {"messages": report_lines, "records": records}
        tags = self.account.ledger.fingerprints(parts).values()
        self._charge(f"answers-{''.join(tag[:20] for tag in tags)}")

    def charge_received(self) -> None:
        """Charge the protocol, if no LDP reports under it have been charged.

        Raises:
            BudgetError: The remaining budget is too small.
        """
        if not any(entry.label == self._label for entry in self.account.ledger.entries):
            self._charge(f"received-{self.digest.hex()}")

    def _charge(self, reference: str) -> None:
        entry = Entry(reference, self._label, self.guarantee.event, unit=self.guarantee.protected)
        self.account.ledger.record(entry)
        self.account.ledger.commit(reference)  # LDP reports are randomized already, so no refund is possible

    @property
    def _label(self) -> str:
        return f"survey {self.digest.hex()[:16]}"


class LedgerRegistry:
    """The ledgers of other datasets, found again by their places; of one dataset there is one object."""

    def __init__(self, own: DataSetLedger) -> None:
        """Start with the one ledger that is open already."""
        self._places: dict[str, Ledger] = {}
        self._known = {(own.location, own.name): own}

    def get(self, place: str, name: str) -> DataSetLedger:
        """Return the ledger of a dataset at a place."""
        if (place, name) not in self._known:
            if place not in self._places:
                self._places[place] = open_ledger_at(place)
            self._known[place, name] = self._places[place].data_set(name)
        return self._known[place, name]


def open_ledger_at(place: str) -> Ledger:
    """Open the ledger at a place, which is written without a password."""
    if "://" not in place:
        if not Path(place).is_file():
            raise ConfigError(
                "A prediction on another graph is also charged to the training data, but their ledger "
                f"{place} does not exist. Restore it, or, if no ledger of the training data exists "
                "anymore, predict from the release alone."
            )
        return Ledger(place, create=False)
    usual = Ledger()
    return usual if usual.location == place else Ledger(place, create=False)
