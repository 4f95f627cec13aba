"""Ledger receipts in a run folder, and the ledgers that a prediction of another graph is charged to.

A run stores receipts of its ledger entries, and a file for each prediction of another graph, written before
its edges are queried. These files are private, like everything in ``internal``. The next process needs them
to find the queried graphs, their privacy cost, and where that is charged. For graphs that were asserted to
share no edge it also needs the ids of their nodes.

A prediction of another graph is charged to that graph, to the training data, and to every graph that the run
predicted before (``docs/decisions/009-predictions-on-other-graphs.md``). In memory an assertion that the
graphs share nothing exempts the other graphs. A durable ledger has an owner, whose limit no other person's
assertion may relax: there it only counts if the ids of the two tables show that it is true.
"""

import io
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil._util.figures import counted, format_delta, format_upper_bound
from graphveil._util.files import write_atomic
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.ledger import Entry, JointLedger, attach_ledger, charge
from graphveil.core.unit import LocalAttributes, Person, Row
from graphveil.data.fingerprint import Numbers, fingerprint_parts, hash_ids
from graphveil.errors import ArtifactError, ConfigError, PrivacyError
from graphveil.ledger.chain import Account, unit_delta, unit_key
from graphveil.ledger.costs import PrivacyCost
from graphveil.ledger.locations import split_name
from graphveil.ledger.reservations import PLANNED_LABEL, DataSetLedger, Receipt
from graphveil.ledger.sql_ledger import Ledger
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from graphveil.runs.run_folder import (
    RunFolder,
    damaged_file_error,
    read_checked,
    read_json,
    write_checked,
    write_json,
)

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator
    from graphveil.local.collect import CollectionProtocol


_IDS_SUFFIX = ".people.npy"  # next to each file: hashed ids, eight bytes each


_MAX_NAMES = 3  # of other data sets that a plan lists
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class RunAccount:
    """A dataset's budget under the privacy unit of one command.

    Args:
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
            named: ``NAME``, ``URL`` or ``URL#NAME`` of a registered dataset; None for the user's own ledger,
                which recognizes the data, or registers them without a limit.
            charge: The graph that is queried, if a recipe has created another one.
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
            apart: Whether the data owner asserts that the data are disjoint from others.

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
        """Check the total of a run against the limit of every privacy unit before the run starts."""
        for one in (guarantee, *guarantee.additional):
            self.ledger.check(Entry("planned", PLANNED_LABEL, one.event, one.slack, one.protected))

    def charge(self, reference: str, label: str, guarantee: Guarantee) -> None:
        """Charge what is randomized already, such as LDP reports, so that no refund is possible."""
        entry = Entry(reference, label, guarantee.event, unit=guarantee.protected)
        self.ledger.check(entry)  # also a repetition, whose privacy cost must be the same
        charge(self.ledger, entry, drawn=True)

    def for_next_experiment(self) -> "RunAccount":
        """Return the account for the next of several experiments; it excludes all earlier ledger entries."""
        return replace(self, earlier=frozenset(receipt.release for receipt in self.ledger.receipts))

    @property
    def receipts(self) -> list[Receipt]:
        return [receipt for receipt in self.ledger.receipts if receipt.release not in self.earlier]

    def refund(self) -> None:
        """Refund reservations of this process for which no noise was drawn."""
        for receipt in self.receipts:
            self.ledger.refund(receipt.release)

    def as_plain(self) -> dict[str, Any]:
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
        nodes = "" if part is None else f", with {_percent(part)} of these {self._nodes}"
        return f"{count} {when}{nodes}: {_epsilon(spent.total, delta)}{_format_limit(spent)} ({self._where})"

    def after(self) -> str:
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
            f"{_percent(part)} of these {self._nodes} are in {name!r}, too, which is not charged"
            for name, part in self.people
            if name != self.ledger.name and name not in self.others
        ]
        return "".join(f"; {words}" for words in found[:_MAX_NAMES])

    @property
    def _nodes(self) -> str:
        return "persons" if self.unit in (Row.name, Person.name) else "nodes"

    @property
    def _about(self) -> str:
        words = {Row.name: "rows", Person.name: "people", LocalAttributes.name: "records"}
        return "people" if self.unit.startswith("node") else words.get(self.unit, "edges")

    def _spent(self) -> tuple[Account, float]:
        spent = account_under(self.ledger, self.unit)
        if spent.limit is not None:
            return spent, float(spent.limit.delta)
        if self.delta or spent.total.epsilon(0.0) < float("inf"):
            return spent, self.delta
        return spent, unit_delta(self.unit)  # this release is pure, and not all of those before were


def _chosen(ledger: Ledger, name: str | None, unit: str) -> str:
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


def receipts_in(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    content = read_json(path)
    found, place = content.get("receipts", []), content.get("place")
    try:
        whole = isinstance(found, list) and all(map(Receipt.from_plain, found))
    except ArtifactError:
        whole = False
    if not whole or not (place is None or isinstance(place, str)):
        raise damaged_file_error(path)
    return list(found)


def add_receipts(path: Path, account: RunAccount) -> None:
    known = {receipt["release"]: receipt for receipt in receipts_in(path)}
    known |= {receipt.release: asdict(receipt) for receipt in account.receipts}
    write_json(path, {"place": account.ledger.location, "receipts": list(known.values())})


def receipts_below(folder: Path) -> list[dict[str, Any]]:
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder. Name run folders.")
    found: list[dict[str, Any]] = []
    for internal in sorted(folder.rglob("internal")):
        run = RunFolder(internal.parent)
        found += receipts_in(run.receipts)
        for one in earlier_predictions(run.root):
            if not all(isinstance(receipt, dict) for receipt in one.receipts):
                raise ArtifactError(f"{one.path} is damaged: its receipts cannot be read.")
            found += one.receipts
    return found


# -- predictions of other graphs ---------------------------------------------------------------------------


@dataclass(frozen=True)
class EarlierPrediction:
    """One prediction of another graph.

    Args:
        disjoint: Whether the caller asserted that the graph shares no edge, or no person, with earlier ones.
        receipts: Receipts of the ledgers; none if the process was killed before it had them.
    """

    path: Path
    data_set: str
    place: str
    privacy_cost: Guarantee
    disjoint: bool
    receipts: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, path: Path) -> "EarlierPrediction":
        try:
            content = read_checked(path)
            privacy_cost, receipts = guarantee_from_plain(content["privacy_cost"]), tuple(content["receipts"])
            if not all(isinstance(content[name], str) for name in ("data_set", "place")):
                raise TypeError("Names must be text.")
            found = content["data_set"], content["place"], privacy_cost, content["disjoint"]
            return cls(path, *found, receipts)
        except (ArtifactError, PrivacyError, KeyError, TypeError, ValueError):
            raise ArtifactError(
                f"{path} is damaged, so the privacy cost of earlier predictions of this run is not known. "
                "Restore it from a copy of the run, or delete it and add up the ledgers yourself from "
                "now on."
            ) from None

    @property
    def ids_file(self) -> Path:
        return self.path.with_suffix(_IDS_SUFFIX)

    @property
    def people(self) -> Numbers | None:
        return np.load(self.ids_file, allow_pickle=False) if self.ids_file.is_file() else None

    def drop(self) -> None:
        """Delete the file, because nothing was charged."""
        self.path.unlink(missing_ok=True)
        self.ids_file.unlink(missing_ok=True)

    def keep(self, receipts: "list[Receipt]") -> None:
        plain = {
            "data_set": self.data_set,
            "place": self.place,
            "privacy_cost": guarantee_to_plain(self.privacy_cost),
            "disjoint": self.disjoint,
        }
        write_checked(self.path, plain | {"receipts": [asdict(receipt) for receipt in receipts]})


def earlier_predictions(run: Path) -> list[EarlierPrediction]:
    return [EarlierPrediction.read(path) for path in sorted(RunFolder(run).prediction_charges.glob("*.json"))]


def restore_earlier_predictions(run: Path, model: "Estimator") -> None:
    """Load the releases that the run's folder records into a model, if no more will be charged."""
    for one in earlier_predictions(run):
        model.restore_prediction(EdgeSet(), one.privacy_cost, disjoint=one.disjoint)


def record_prediction(
    run: Path, graph: "Graph", account: "RunAccount", privacy_cost: Guarantee, *, disjoint: bool
) -> EarlierPrediction | None:
    """Record a prediction before its edges are queried, so that a killed process leaves a record.

    Returns None if there is only a release, whose folder is never written to.
    """
    folder = RunFolder(run)
    if not folder.lock.is_file():
        return None
    account.ledger.bind_data()  # its name is written down
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}.json"  # in order, and two at once have two names
    place = folder.prediction_charges / name, account.ledger.name, account.ledger.location
    found = EarlierPrediction(*place, privacy_cost, disjoint)
    try:
        if graph.ids is not None:
            numbers = io.BytesIO()
            np.save(numbers, np.sort(hash_ids(graph.ids.tolist())), allow_pickle=False)
            write_atomic(found.ids_file, numbers.getvalue())
        found.keep([])
    except OSError as error:
        raise ConfigError(
            f"Cannot write to {folder.internal} ({error.strerror}), where the run records which "
            "graphs it has predicted, so that their privacy costs can be added up. Copy the run to a "
            "folder that can be written."
        ) from None
    return found


@dataclass(frozen=True)
class PredictionAccounts:
    """The accounts of one prediction of another graph, attached to it and to the model.

    Args:
        charged: Account of the graph that is queried, and of the training data if they are charged.
        possibly_shared: Datasets that are charged despite an assertion, because nothing shows that it is
            true.
    """

    charged: tuple[RunAccount, ...]
    possibly_shared: tuple[str, ...]
    privacy_cost: Guarantee
    record: Callable[[], EarlierPrediction | None]

    @classmethod
    def from_prediction(
        cls,
        run: Path,
        model: "Estimator",
        graph: "Graph",
        privacy_cost: Guarantee,
        named: str | None,
        *,
        assumed_disjoint: bool = False,
    ) -> "PredictionAccounts":
        """Find the ledgers, and attach them.

        Args:
            assumed_disjoint: Whether the caller asserts that it shares no edge (or person) with the others.
        """
        own = RunAccount.from_parts(fingerprint_parts(graph), privacy_cost, named, apart=assumed_disjoint)
        training, earlier = _queried_before(run, own.ledger, privacy_cost)
        # One ledger may be both, and entries of the training do not belong to this command.
        own, others = own.for_next_experiment(), dict[DataSetLedger, Numbers | None]()
        for one, ledger in earlier:
            edges = EdgeSet()
            attach_ledger(edges, ledger)
            model.restore_prediction(edges, one.privacy_cost, disjoint=one.disjoint)
            others[ledger] = one.people
        if training is not None:
            attach_ledger(model.fitted_edges, training.ledger)
            others[training.ledger] = None if model.ids_ is None else hash_ids(model.ids_.tolist())
        shared, also = [], list(others)
        if assumed_disjoint:
            shared = also = _possibly_shared(graph, others, own.ledger, privacy_cost.unit)
        attach_ledger(graph.edge_set, JointLedger([own.ledger, *shared]) if shared else own.ledger)
        charged = [own]
        if training is not None and training.ledger is not own.ledger and training.ledger in also:
            charged.append(training)
        record = partial(record_prediction, run, graph, own, privacy_cost, disjoint=assumed_disjoint)
        return cls(tuple(charged), tuple(ledger.name for ledger in shared), privacy_cost, record)

    def check_room(self) -> None:
        for account in self.charged:
            account.check_room(self.privacy_cost)

    def before(self) -> list[tuple[str, str]]:
        titles = ("ledger", "and of training")
        rows = [(title, account.before()) for title, account in zip(titles, self.charged, strict=False)]
        if self.possibly_shared:
            rows.append(
                (
                    "also charged",
                    f"{', '.join(self.possibly_shared)}: the ids do not show that the graphs share nothing, "
                    "and an assumption does not lift the limit of a ledger",
                )
            )
        return rows

    def after(self) -> list[str]:
        return [account.after() for account in self.charged]

    def as_plain(self) -> dict[str, Any]:
        own, training = [*(account.as_plain() for account in self.charged), None][:2]
        return {"ledger": own, "training_ledger": training}

    @contextmanager
    def recorded_in_folder(self) -> Iterator[None]:
        """Record the prediction in the run's folder; delete the file if it ends before any charge."""
        kept = self.record()
        try:
            yield
        except Exception:
            if kept is not None and not self.charged[0].receipts:
                kept.drop()
            raise
        if kept is not None:
            kept.keep([receipt for account in self.charged for receipt in account.receipts])


def also_charged_ledgers(run: Path, own: DataSetLedger, guarantee: Guarantee) -> list[DataSetLedger]:
    """Return ledgers whose edges may be in a graph to predict: of the training data and earlier graphs."""
    training, earlier = _queried_before(run, own, guarantee)
    found = [] if training is None else [training.ledger]
    found += [ledger for _, ledger in earlier]
    return [ledger for ledger in dict.fromkeys(found) if ledger is not own]


def _queried_before(
    run: Path, own: DataSetLedger, guarantee: Guarantee
) -> tuple[RunAccount | None, list[tuple[EarlierPrediction, DataSetLedger]]]:
    """Return the account of a run's training data, None without receipts, and the ledgers of predictions.

    Of one dataset there is one object, which may be ``own``.
    """
    known, ledger_at = {(own.location, own.name): own}, cache(open_ledger_at)

    def found(place: str, name: str) -> DataSetLedger:
        if (place, name) not in known:
            known[place, name] = ledger_at(place).data_set(name)
        return known[place, name]

    path, training = RunFolder(run).receipts, None
    receipts = receipts_in(path)
    place = read_json(path).get("place") if receipts else None  # older runs do not store it
    if place is not None:
        ledger = found(place, receipts[0]["data_set"])
        if not ledger.contains(receipts[0]["release"]):
            raise ConfigError(
                f"The ledger at {place} does not contain the release of this run, so the run was recorded "
                "in another ledger. Use that ledger."
            )
        account = RunAccount(ledger, unit_key(guarantee.protected), guarantee.delta)
        training = account.for_next_experiment()
    return training, [(one, found(one.place, one.data_set)) for one in earlier_predictions(run)]


def _possibly_shared(
    graph: "Graph", others: Mapping[DataSetLedger, Numbers | None], own: DataSetLedger, unit: str
) -> list[DataSetLedger]:
    """Return the ledgers of other data that may share protected records with a graph, according to ids.

    An assertion that nothing is shared is checked here as far as ids allow. Ids name people. Two tables with
    at most one id in common share no edge, because both ends of an edge would be in both tables; with none,
    they share no person.

    Args:
        others: Ledgers of the training data and of graphs that were predicted before, each with the hashed
            ids of its data, or None.
    """
    if own in others:
        raise ConfigError(
            f"The ledger has these data as {own.name!r}, which the model was trained on or has "
            "already predicted, so they are not disjoint. Omit --assume-disjoint-edges and "
            "--assume-disjoint-nodes."
        )
    most = 0 if unit == LocalAttributes.name else 1
    here = None if graph.ids is None else hash_ids(graph.ids.tolist())
    return [
        ledger
        for ledger, there in others.items()
        if here is None or there is None or len(np.intersect1d(here, there)) > most
    ]


# -- collections of LDP reports ----------------------------------------------------------------------------


def charge_reports(
    account: RunAccount,
    protocol: "CollectionProtocol",
    encoded_reports: Iterable[tuple[object, str]],
    records: Iterable[bytes],
) -> None:
    """Charge LDP reports to the people who send them, before the reports leave this process.

    Args:
        records: The record of each LDP report. The entry is named by a fingerprint of both under the
            ledger's key. A changed record may by chance send the same few bits, and is charged again.
    """
    report_lines = (f"{node}\0{text}\n".encode("utf-8", "surrogatepass") for node, text in encoded_reports)
    tags = account.ledger.fingerprints({"messages": report_lines, "records": records}).values()
    reference = f"answers-{''.join(tag[:20] for tag in tags)}"
    account.charge(reference, _label(protocol), protocol.guarantee)


def charge_received(account: RunAccount, protocol: "CollectionProtocol") -> None:
    """Charge a protocol to people of whom this process has only LDP reports, once for all their reports."""
    if not any(entry.label == _label(protocol) for entry in account.ledger.entries):
        account.charge(f"received-{protocol.digest.hex()}", _label(protocol), protocol.guarantee)


def _label(protocol: "CollectionProtocol") -> str:
    return f"survey {protocol.digest.hex()[:16]}"
