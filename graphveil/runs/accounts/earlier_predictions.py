"""What a run's folder remembers of predictions of other graphs: a file each, for the process that asks next.

A prediction of one graph may be about somebody who was in an earlier one. So the next process has to know
which graphs were asked, at what price, and in which ledger they are booked; and, where somebody gives a word
that two graphs share no edge, who was in them. Private, like everything in ``internal``.
"""

import io
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil._util.files import write_atomic
from graphveil.data import EdgeSet
from graphveil.errors import ArtifactError, ConfigError, PrivacyError
from graphveil.privacy import Guarantee
from graphveil.privacy.serialization import guarantee_from_plain, guarantee_to_plain
from graphveil.runs.accounts.graph_tags import Numbers, hash_ids
from graphveil.runs.run_folder import RunFolder, read_checked, write_checked

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator
    from graphveil.ledger import Receipt
    from graphveil.runs.accounts.ledger_account import RunAccount

_IDS_SUFFIX = ".people.npy"  # beside each file: numbers of the ids, eight bytes each


@dataclass(frozen=True)
class EarlierPrediction:
    """One prediction of another graph.

    Args:
        path: its file.
        data_set, place: where it is booked.
        privacy_cost: what it cost alone.
        disjoint: whether the word was given that the graph shares no edge, or nobody, with earlier ones.
        receipts: the ledgers' receipts; none if the process was killed before it had them.
    """

    path: Path
    data_set: str
    place: str
    privacy_cost: Guarantee
    disjoint: bool
    receipts: tuple[dict[str, Any], ...] = ()

    @property
    def people(self) -> Numbers | None:
        """Who was in the graph, as numbers of their ids; None where it had no ids."""
        ids_file = self.path.with_name(self.path.stem + _IDS_SUFFIX)
        if not ids_file.is_file():
            return None
        found: Numbers = np.load(ids_file, allow_pickle=False)
        return found

    def drop(self) -> None:
        """Forget it: nothing was booked."""
        self.path.unlink(missing_ok=True)
        self.path.with_name(self.path.stem + _IDS_SUFFIX).unlink(missing_ok=True)

    def keep(self, receipts: "list[Receipt]") -> None:
        """Write the receipts beside what is known."""
        write_checked(self.path, self._plain() | {"receipts": [asdict(receipt) for receipt in receipts]})

    def _plain(self) -> dict[str, Any]:
        return {
            "data_set": self.data_set,
            "place": self.place,
            "privacy_cost": guarantee_to_plain(self.privacy_cost),
            "disjoint": self.disjoint,
        }


def earlier_predictions(run: Path) -> list[EarlierPrediction]:
    """Return what a run's folder remembers, in order; nothing where there is only a release.

    Raises:
        ArtifactError: a file is damaged.
    """
    return [_read(path) for path in sorted(RunFolder(run).prediction_charges.glob("*.json"))]


def restore_earlier_predictions(run: Path, model: "Estimator") -> None:
    """Let a model count what its run's folder remembers, where nothing more is to be booked."""
    for one in earlier_predictions(run):
        model.restore_prediction(EdgeSet(), one.privacy_cost, disjoint=one.disjoint)


def record_prediction(
    run: Path, graph: "Graph", account: "RunAccount", privacy_cost: Guarantee, *, disjoint: bool
) -> EarlierPrediction | None:
    """Remember a prediction before it is asked, so that no process that is killed leaves it unknown.

    Returns None where there is only a release, whose folder nobody writes to.

    Raises:
        ConfigError: the run's folder cannot be written.
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
            f"cannot write to {folder.internal} ({error.strerror}), where a run remembers which graphs it "
            "has predicted: without that, nobody can add them up. Copy the run to where it can be written"
        ) from None
    return found


def _read(path: Path) -> EarlierPrediction:
    try:
        content = read_checked(path)
        privacy_cost = guarantee_from_plain(content["privacy_cost"])
        receipts = tuple(content["receipts"])
        if not all(isinstance(content[name], str) for name in ("data_set", "place")):
            raise TypeError("names are text")
        return EarlierPrediction(
            path, content["data_set"], content["place"], privacy_cost, content["disjoint"], receipts
        )
    except (ArtifactError, PrivacyError, KeyError, TypeError, ValueError):
        raise ArtifactError(
            f"{path} is damaged, so nobody can tell what an earlier prediction of this run cost; take it "
            "from a copy of the run, or delete it if the ledgers are read by hand from now on"
        ) from None
