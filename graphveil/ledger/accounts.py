"""The account of a command: match its data to a dataset of a ledger, and return what that has spent."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil._util.figures import counted, format_delta, format_upper_bound
from graphveil.core.ledger import Entry, attach_ledger
from graphveil.data.fingerprint import fingerprint_parts
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
        opened, unit, others = Ledger(url, create=named is None), unit_key(guarantee.protected), list[str]()
        fingerprints = opened.fingerprints(parts)
        people = tuple(opened.shared_nodes(fingerprints).items())
        if named is None:
            ledger = opened.find_or_create(fingerprints, apart=apart)
        else:
            ledger = opened.data_set(_chosen(opened, name, unit), fingerprints)
            others = opened.other_names(ledger.name, fingerprints)
        return cls(ledger, unit, guarantee.delta, others=tuple(others), people=people)

    @classmethod
    def from_name(cls, named: str, guarantee: Guarantee) -> "RunAccount":
        """Return the account of a dataset by its name, or of the only one with a budget under the unit."""
        url, name = split_name(named)
        opened, unit = Ledger(url, create=False), unit_key(guarantee.protected)
        return cls(opened.data_set(_chosen(opened, name, unit)), unit, guarantee.delta)

    def check_room(self, guarantee: Guarantee) -> None:
        """Check the total of a run against the limit of every privacy unit before the run starts.

        Raises:
            BudgetError: The total exceeds a limit.
        """
        for one in (guarantee, *guarantee.additional):
            self.ledger.check(Entry("planned", PLANNED_LABEL, one.event, one.slack, one.protected))

    def charge(self, reference: str, label: str, guarantee: Guarantee) -> None:
        """Charge what is randomized already, such as LDP reports, so that no refund is possible."""
        self.ledger.record(Entry(reference, label, guarantee.event, unit=guarantee.protected))
        self.ledger.commit(reference)

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
        return {
            "data_set": self.ledger.name,
            "place": self.ledger.location,
            "unit": self.unit,
            "releases": spent.releases,
            "epsilon": epsilon if epsilon < float("inf") else None,
            "delta": delta,
            "limit": spent.limit and spent.limit.as_dict(),
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


def _chosen(ledger: Ledger, name: str | None, unit: str) -> str:
    """Return the given name, or that of the only dataset with a budget under the unit."""
    if name is not None:
        return name
    found = sorted({one.data_set for one in ledger.accounts() if one.unit == unit})
    if len(found) != 1:
        raise ConfigError(
            f"The ledger at {ledger.location} must have exactly one data set with a budget under unit "
            f"{unit!r}, but it has {len(found)} ({', '.join(found) or 'none'}). Name one with --ledger "
            "URL#NAME."
        )
    return found[0]


def account_under(ledger: DataSetLedger, unit: str) -> Account:
    """Return the budget spent under one unit; zero, without a limit, if there is no account."""
    found = [one for one in ledger.accounts if one.unit == unit]
    return found[0] if found else Account(ledger.name, unit)


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
