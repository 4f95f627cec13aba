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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil._util.files import write_atomic
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.ledger import JointLedger, PrivacyLedger, attach_ledger, ledger_of
from graphveil.errors import ArtifactError, ConfigError, InputError, MissingDependencyError, PrivacyError
from graphveil.ledger import DataSetLedger, Receipt, unit_key
from graphveil.ledger.accounts import LedgerRegistry, RunAccount
from graphveil.ledger.predictions import possibly_shared_ledgers
from graphveil.ledger.tags import Numbers, fingerprint_parts, hash_ids
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
    found = content.get("receipts", [])
    place = content.get("place")
    whole = isinstance(found, list) and all(
        isinstance(one, dict)
        and all(isinstance(one.get(name), str) for name in ("data_set", "unit", "release", "head"))
        and type(one.get("entry")) is int
        for one in found
    )
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

    @property
    def people(self) -> Numbers | None:
        """Hashed ids of the graph's nodes; None if it had no ids."""
        ids_file = self.path.with_name(self.path.stem + _IDS_SUFFIX)
        if not ids_file.is_file():
            return None
        found: Numbers = np.load(ids_file, allow_pickle=False)
        return found

    def drop(self) -> None:
        """Delete the file, because nothing was charged."""
        self.path.unlink(missing_ok=True)
        self.path.with_name(self.path.stem + _IDS_SUFFIX).unlink(missing_ok=True)

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
    return [_read(path) for path in sorted(RunFolder(run).prediction_charges.glob("*.json"))]


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
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"  # in order, and two at once have two names
    path = folder.prediction_charges / f"{name}.json"
    found = EarlierPrediction(path, account.ledger.name, account.ledger.location, privacy_cost, disjoint)
    try:
        if graph.ids is not None:
            numbers = io.BytesIO()
            np.save(numbers, np.sort(hash_ids(graph.ids.tolist())), allow_pickle=False)
            write_atomic(path.with_name(name + _IDS_SUFFIX), numbers.getvalue())
        found.keep([])
    except OSError as error:
        raise ConfigError(
            f"Cannot write to {folder.internal} ({error.strerror}), where the run records which "
            "graphs it has predicted, so that their privacy costs can be added up. Copy the run to a "
            "folder that can be written."
        ) from None
    return found


def _read(path: Path) -> EarlierPrediction:
    try:
        content = read_checked(path)
        privacy_cost = guarantee_from_plain(content["privacy_cost"])
        receipts = tuple(content["receipts"])
        if not all(isinstance(content[name], str) for name in ("data_set", "place")):
            raise TypeError("Names must be text.")
        return EarlierPrediction(
            path, content["data_set"], content["place"], privacy_cost, content["disjoint"], receipts
        )
    except (ArtifactError, PrivacyError, KeyError, TypeError, ValueError):
        raise ArtifactError(
            f"{path} is damaged, so the privacy cost of earlier predictions of this run is not known. "
            "Restore it from a copy of the run, or delete it and add up the ledgers yourself from "
            "now on."
        ) from None


@dataclass(frozen=True)
class PredictionAccounts:
    """The accounts of one prediction of another graph, attached to it and to the model.

    Args:
        own: Account of the graph that is queried.
        training: Account of the training data; None if they are in no ledger, or the ledger is unknown.
        earlier: Number of predictions that the run's folder records.
        possibly_shared: Datasets that are charged despite an assertion, because nothing shows that it is
            true.
    """

    own: RunAccount
    training: RunAccount | None
    earlier: int
    possibly_shared: tuple[str, ...]
    _run: Path = field(repr=False)
    _graph: "Graph" = field(repr=False)
    _privacy_cost: Guarantee = field(repr=False)
    _assumed_disjoint: bool = field(repr=False)

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
        own = RunAccount.from_parts(
            fingerprint_parts(graph), privacy_cost, named, apart=assumed_disjoint
        ).for_next_experiment()
        ledgers = LedgerRegistry(own.ledger)
        training, earlier = _training(run, ledgers, privacy_cost), earlier_predictions(run)
        own = (
            own.for_next_experiment()
        )  # one ledger may be both, and entries of the training do not belong to this command
        if training is not None:
            attach_ledger(model.fitted_edges, training.ledger)
        others: dict[DataSetLedger, Numbers | None] = {}
        for one in earlier:
            ledger, edges = ledgers.get(one.place, one.data_set), EdgeSet()
            attach_ledger(edges, ledger)
            model.restore_prediction(edges, one.privacy_cost, disjoint=one.disjoint)
            others[ledger] = one.people
        if training is not None:
            others[training.ledger] = None if model.ids_ is None else hash_ids(model.ids_.tolist())
        possibly_shared = []
        if assumed_disjoint:
            ids = None if graph.ids is None else graph.ids.tolist()
            possibly_shared = possibly_shared_ledgers(ids, others, own.ledger, privacy_cost.unit)
        paying: PrivacyLedger = JointLedger([own.ledger, *possibly_shared]) if possibly_shared else own.ledger
        attach_ledger(graph.edge_set, paying)
        names = tuple(ledger.name for ledger in possibly_shared)
        return cls(own, training, len(earlier), names, run, graph, privacy_cost, assumed_disjoint)

    def check_room(self) -> None:
        """Check the prediction against the limits of all ledgers before the work.

        Raises:
            BudgetError: The prediction exceeds a limit.
        """
        for account in self._charged_accounts:
            account.check_room(self._privacy_cost)

    def before(self) -> list[tuple[str, str]]:
        """Return what was released before this command, for its plan."""
        rows = [("ledger", self.own.before())]
        if self.training is not None and self._charged(self.training):
            rows.append(("and of training", self.training.before()))
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
        return [account.after() for account in self._charged_accounts]

    def as_plain(self) -> dict[str, Any]:
        """Return everything released so far of each charged dataset, for ``--json``."""
        training = None if len(self._charged_accounts) == 1 else self._charged_accounts[1].as_plain()
        return {"ledger": self.own.as_plain(), "training_ledger": training}

    @contextmanager
    def recorded_in_folder(self) -> Iterator[None]:
        """Record the prediction in the run's folder; delete the file if it ends before any charge."""
        kept = record_prediction(
            self._run, self._graph, self.own, self._privacy_cost, disjoint=self._assumed_disjoint
        )
        try:
            yield
        except Exception:
            if kept is not None and not self.own.receipts:
                kept.drop()
            raise
        if kept is not None:
            kept.keep([receipt for account in self._charged_accounts for receipt in account.receipts])

    @property
    def _charged_accounts(self) -> list[RunAccount]:
        """The accounts that are shown: of the other graph, and of the training data if they are charged."""
        training = self.training
        return [self.own] if training is None or not self._charged(training) else [self.own, training]

    def _charged(self, training: RunAccount) -> bool:
        if training.ledger is self.own.ledger:
            return False  # one account, charged once
        return not self._assumed_disjoint or training.ledger.name in self.possibly_shared


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
    ledgers = LedgerRegistry(own)
    training = _training(run, ledgers, guarantee)
    found = [] if training is None else [training.ledger]
    found += [ledgers.get(one.place, one.data_set) for one in earlier_predictions(run)]
    return [ledger for ledger in dict.fromkeys(found) if ledger is not own]


def _training(run: Path, ledgers: LedgerRegistry, privacy_cost: Guarantee) -> RunAccount | None:
    """Return the account of a run's training data, according to its receipts; None without any."""
    path = RunFolder(run).receipts
    receipts = receipts_in(path)
    if not receipts:
        return None
    place, first = read_json(path).get("place"), receipts[0]
    if place is None:
        return None  # an older run, whose receipts have no location
    ledger = ledgers.get(place, first["data_set"])
    if not ledger.contains(first["release"]):
        raise ConfigError(
            f"The ledger at {place} does not contain the release of this run, so the run was recorded "
            "in another ledger. Use that ledger."
        )
    return RunAccount(ledger, unit_key(privacy_cost.protected), privacy_cost.delta).for_next_experiment()
