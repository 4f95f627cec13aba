"""Whose ledgers pay for a prediction of another graph: its own data's, and those of all that may share edges.

The rule is that of the book in memory (``docs/decisions/009-predictions-on-other-graphs.md``): the release is
booked for the graph that is asked, for the training data, and for every graph that the run predicted before.
A word that the graphs share nothing spares the others in memory. A durable ledger belongs to somebody, whose
limit is not for another one's word: there it counts only if the ids of the two tables show that it is true.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil.data import EdgeSet
from graphveil.errors import ConfigError
from graphveil.ledger import DataSetLedger, Ledger, unit_key
from graphveil.privacy import Guarantee, LocalAttributes, PrivacyLedger, attach_ledger
from graphveil.privacy.ledger import JointLedger
from graphveil.runs.accounts.earlier_predictions import earlier_predictions, record_prediction
from graphveil.runs.accounts.graph_tags import Numbers, fingerprint_parts, hash_ids
from graphveil.runs.accounts.ledger_account import RunAccount, receipts_in
from graphveil.runs.run_folder import RunFolder, read_json

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator


@dataclass(frozen=True)
class PredictionAccounts:
    """The accounts of one prediction of another graph, attached to it and to the model.

    Args:
        own: of the graph that is asked.
        training: of the data that the model was fitted on; None where they are in no ledger, or nobody knows.
        earlier: how many predictions the run's folder remembers.
        possibly_shared: data sets that are charged although a word was given, because nothing shows that it
            is true.
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
            run: the run's folder, or a release alone.
            model: loaded from it.
            graph: the other graph.
            privacy_cost: what its prediction costs alone.
            named: what ``--ledger`` says of the other graph's data.
            assumed_disjoint: whether the caller says that it shares no edge (or nobody) with the others.

        Raises:
            ConfigError: the ledger of the training data, or of an earlier graph, cannot be found, or the word
                is about data that are the same in the ledger.
            ArtifactError: what the folder remembers is damaged.
        """
        own = RunAccount.from_parts(
            fingerprint_parts(graph), privacy_cost, named, apart=assumed_disjoint
        ).for_next_experiment()
        ledgers = _LedgerRegistry(own.ledger)
        training, earlier = _training(run, ledgers, privacy_cost), earlier_predictions(run)
        own = (
            own.for_next_experiment()
        )  # one ledger may be both, and the training's booking is none of this command
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
        possibly_shared = _possibly_shared(graph, others, privacy_cost, own) if assumed_disjoint else []
        paying: PrivacyLedger = JointLedger([own.ledger, *possibly_shared]) if possibly_shared else own.ledger
        attach_ledger(graph.edge_set, paying)
        names = tuple(ledger.name for ledger in possibly_shared)
        return cls(own, training, len(earlier), names, run, graph, privacy_cost, assumed_disjoint)

    def check_room(self) -> None:
        """Refuse now what a ledger would refuse after the work.

        Raises:
            BudgetError: the prediction does not fit.
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
                    "no proof",
                    f"{', '.join(self.possibly_shared)} charged all the same: the ids do not show that "
                    "nothing is "
                    "shared, and their limit is not for a word",
                )
            )
        return rows

    def after(self) -> list[str]:
        """Return what everything released so far costs together, of each data set that paid."""
        return [account.after() for account in self._charged_accounts]

    def as_plain(self) -> dict[str, Any]:
        """Return what was ever released of each data set that paid, for ``--json``."""
        training = None if len(self._charged_accounts) == 1 else self._charged_accounts[1].as_plain()
        return {"ledger": self.own.as_plain(), "training_ledger": training}

    @contextmanager
    def recorded_in_folder(self) -> Iterator[None]:
        """Have the run's folder remember the prediction, unless it ends before anything is booked."""
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
        """The accounts that are shown: of the other graph, and of the training data where they pay, too."""
        training = self.training
        return [self.own] if training is None or not self._charged(training) else [self.own, training]

    def _charged(self, training: RunAccount) -> bool:
        if training.ledger is self.own.ledger:
            return False  # one account, and it pays once
        return not self._assumed_disjoint or training.ledger.name in self.possibly_shared


def also_charged_ledgers(run: Path, own: DataSetLedger, guarantee: Guarantee) -> list[DataSetLedger]:
    """Return whose edges may also be in a graph that a run predicts: its training's, and earlier graphs'.

    Args:
        run: the run's folder.
        own: the ledger of the graph that is asked, which is not among them.
        guarantee: the run's.

    Raises:
        ConfigError: a ledger cannot be found.
        ArtifactError: what the folder remembers is damaged.
    """
    ledgers = _LedgerRegistry(own)
    training = _training(run, ledgers, guarantee)
    found = [] if training is None else [training.ledger]
    found += [ledgers.get(one.place, one.data_set) for one in earlier_predictions(run)]
    return [ledger for ledger in dict.fromkeys(found) if ledger is not own]


class _LedgerRegistry:
    """The ledgers of other data sets, found again by their places; of one data set there is one object."""

    def __init__(self, own: DataSetLedger) -> None:
        self._places: dict[str, Ledger] = {}
        self._known = {(own.location, own.name): own}

    def get(self, place: str, name: str) -> DataSetLedger:
        """Return the ledger of a data set at a place."""
        if (place, name) not in self._known:
            self._known[place, name] = self._at(place).data_set(name)
        return self._known[place, name]

    def _at(self, place: str) -> Ledger:
        if place not in self._places:
            self._places[place] = open_ledger_at(place)
        return self._places[place]


def open_ledger_at(place: str) -> Ledger:
    """Open the ledger at a place, which is written without a password."""
    if "://" not in place:
        if not Path(place).is_file():
            raise ConfigError(
                f"a prediction of another graph also counts for the data that the model was trained on, and "
                f"their ledger, {place}, is not there; bring it back, or predict from the release alone if "
                "nobody keeps a ledger of those data any more"
            )
        return Ledger(place, create=False)
    usual = Ledger()
    return usual if usual.location == place else Ledger(place, create=False)


def _training(run: Path, ledgers: _LedgerRegistry, privacy_cost: Guarantee) -> RunAccount | None:
    """Return the account of the data that a run was trained on, as its receipts tell; None without any."""
    path = RunFolder(run).receipts
    receipts = receipts_in(path)
    if not receipts:
        return None
    place, first = read_json(path).get("place"), receipts[0]
    if place is None:
        return None  # an older run's, whose receipts do not say where
    ledger = ledgers.get(place, first["data_set"])
    if not ledger.contains(first["release"]):
        raise ConfigError(
            f"the ledger at {place} does not hold the run's own release, so it is not the one that the run "
            "was recorded in; bring that one back"
        )
    return RunAccount(ledger, unit_key(privacy_cost.protected), privacy_cost.delta).for_next_experiment()


def _possibly_shared(
    graph: "Graph", others: dict[DataSetLedger, Numbers | None], privacy_cost: Guarantee, own: RunAccount
) -> list[DataSetLedger]:
    """Return the ledgers of others that may share what is protected with a graph, for all that ids show.

    Ids name people: two tables with at most one id in common have no edge in common, whose two ends would
    both be in both; with none, nobody is in both.
    """
    if own.ledger in others:
        raise ConfigError(
            f"the ledger knows these data as {own.ledger.name!r}, which the model was trained on or has "
            "predicted before, so they are not disjoint; drop --assume-disjoint-edges or "
            "--assume-disjoint-nodes"
        )
    most = 0 if privacy_cost.unit == LocalAttributes.name else 1
    here = None if graph.ids is None else hash_ids(graph.ids.tolist())
    return [
        ledger
        for ledger, there in others.items()
        if here is None or there is None or len(np.intersect1d(here, there)) > most
    ]
