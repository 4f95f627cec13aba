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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil._util.files import write_atomic
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.ledger import JointLedger, attach_ledger, ledger_of
from graphveil.core.unit import LocalAttributes
from graphveil.data.fingerprint import Numbers, fingerprint_parts, hash_ids
from graphveil.errors import ArtifactError, ConfigError, InputError, MissingDependencyError, PrivacyError
from graphveil.ledger import DataSetLedger, Receipt, unit_key
from graphveil.ledger.accounts import RunAccount, open_ledger_at
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from graphveil.runs.run_folder import (
    RunFolder,
    damaged_file_error,
    forget_data,
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


@contextmanager
def undone_if_rejected(
    folder: RunFolder, graph: "Graph", account: RunAccount | None, *, made: Sequence[Path], resume: bool
) -> Iterator[None]:
    """Refund a new run whose fit is rejected, and remove its folder if nothing of the data was recorded.

    Args:
        folder: the run's.
        graph: Graph whose edges are queried.
        account: the run's account in a ledger, if it has one.
        made: Folders that were missing before the run.
        resume: Whether the run was interrupted before, and so keeps what it has.
    """
    recorded_before = len(ledger_of(graph.edge_set))
    try:
        yield
    except (InputError, PrivacyError, MissingDependencyError):
        if account is not None and not resume:
            account.refund()
        if not resume and len(ledger_of(graph.edge_set)) <= recorded_before:
            forget_data(folder)
            folder.drop(made=made)
        raise


def receipts_in(path: Path) -> list[dict[str, Any]]:
    """Return the receipts in a run's file; none if it does not exist.

    Raises:
        ArtifactError: the file is damaged.
    """
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
    """Add an account's receipts of this process to those in a run's file."""
    known = {receipt["release"]: receipt for receipt in receipts_in(path)}
    known |= {receipt.release: asdict(receipt) for receipt in account.receipts}
    write_json(path, {"place": account.ledger.location, "receipts": list(known.values())})


def receipts_below(folder: Path) -> list[dict[str, Any]]:
    """Return the receipts of a run folder, and of all run folders in it, as in one of a sweep.

    Raises:
        ArtifactError: a file of receipts is damaged.
        ConfigError: The folder does not exist.
    """
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
        path: Its file.
        data_set, place: Dataset and ledger that it is charged to.
        privacy_cost: Privacy cost of the prediction alone.
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
        """Read the file of a prediction.

        Raises:
            ArtifactError: it is damaged.
        """
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
        """The file of the hashed ids of the graph's nodes."""
        return self.path.with_suffix(_IDS_SUFFIX)

    @property
    def people(self) -> Numbers | None:
        """Hashed ids of the graph's nodes; None if it had no ids."""
        return np.load(self.ids_file, allow_pickle=False) if self.ids_file.is_file() else None

    def drop(self) -> None:
        """Delete the file, because nothing was charged."""
        self.path.unlink(missing_ok=True)
        self.ids_file.unlink(missing_ok=True)

    def keep(self, receipts: "list[Receipt]") -> None:
        """Write the prediction and its receipts."""
        plain = {
            "data_set": self.data_set,
            "place": self.place,
            "privacy_cost": guarantee_to_plain(self.privacy_cost),
            "disjoint": self.disjoint,
        }
        write_checked(self.path, plain | {"receipts": [asdict(receipt) for receipt in receipts]})


def earlier_predictions(run: Path) -> list[EarlierPrediction]:
    """Return the predictions that a run's folder records, in order; none if there is only a release.

    Raises:
        ArtifactError: a file is damaged.
    """
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

    Raises:
        ConfigError: The run's folder cannot be written.
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
        privacy_cost: Privacy cost of the prediction alone.
        record: Writes the prediction in the run's folder.
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
            run: The run's folder, or a release alone.
            model: Model loaded from it.
            graph: The other graph.
            privacy_cost: Privacy cost of its prediction alone.
            named: Value of ``--ledger`` for the other graph's data.
            assumed_disjoint: Whether the caller asserts that it shares no edge (or person) with the others.

        Raises:
            ConfigError: The ledger of the training data, or of an earlier graph, cannot be found, or the
                assertion is about data that are the same in the ledger.
            ArtifactError: The folder's receipts are damaged.
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
        """Check the prediction against the limits of all ledgers before the work.

        Raises:
            BudgetError: The prediction exceeds a limit.
        """
        for account in self.charged:
            account.check_room(self.privacy_cost)

    def before(self) -> list[tuple[str, str]]:
        """Return what was released before this command, for its plan."""
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
        """Return the total privacy cost of everything released so far, for each charged dataset."""
        return [account.after() for account in self.charged]

    def as_plain(self) -> dict[str, Any]:
        """Return everything released so far of each charged dataset, for ``--json``."""
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
    """Return the ledgers whose edges may be in a graph to predict: of the training data and earlier graphs.

    Args:
        run: The run's folder.
        own: Ledger of the graph that is queried, which is excluded.
        guarantee: Guarantee of the run.

    Raises:
        ConfigError: A ledger cannot be found.
        ArtifactError: The folder's receipts are damaged.
    """
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
        graph: Graph to predict.
        others: Ledgers of the training data and of graphs that were predicted before, each with the hashed
            ids of its data, or None.
        own: Ledger of the graph to predict.
        unit: The privacy unit.

    Raises:
        ConfigError: The ledger has recorded the graph as training data of the model, or as predicted before.
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
        account: Account of the people.
        protocol: Collection protocol.
        encoded_reports: Ids and encoded LDP reports. Equal ones are charged once.
        records: The record of each LDP report. The entry is named by a fingerprint of both under the
            ledger's key. A changed record may by chance send the same few bits, and is charged again.

    Raises:
        BudgetError: The remaining budget is too small.
    """
    report_lines = (f"{node}\0{text}\n".encode("utf-8", "surrogatepass") for node, text in encoded_reports)
    tags = account.ledger.fingerprints({"messages": report_lines, "records": records}).values()
    reference = f"answers-{''.join(tag[:20] for tag in tags)}"
    account.charge(reference, _label(protocol), protocol.guarantee)


def charge_received(account: RunAccount, protocol: "CollectionProtocol") -> None:
    """Charge a protocol to people of whom this process has only LDP reports, once for all their reports.

    Raises:
        BudgetError: The remaining budget is too small.
    """
    if not any(entry.label == _label(protocol) for entry in account.ledger.entries):
        account.charge(f"received-{protocol.digest.hex()}", _label(protocol), protocol.guarantee)


def _label(protocol: "CollectionProtocol") -> str:
    return f"survey {protocol.digest.hex()[:16]}"
