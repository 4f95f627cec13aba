"""New releases: one at a time, each once, and stored with the run for repeated requests."""

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from graphveil._util.files import load_checked, save_checked
from graphveil.artifacts.release_folder import INTERNAL, MODEL, PRIVACY, WEIGHTS, find_release
from graphveil.errors import (
    ArtifactError,
    BudgetError,
    ConfigError,
    GraphError,
    LedgerError,
    NotImplementedGuaranteeError,
    UnitError,
)
from graphveil.ledger import DataSetLedger
from graphveil.runs.accounts.earlier_predictions import record_prediction
from graphveil.runs.accounts.prediction_accounts import also_charged_ledgers
from graphveil.serve.error_responses import RequestError
from graphveil.serve.keys import Key
from graphveil.serve.limits import ReleaseBudget
from graphveil.serve.releases.records import NewRecordsGraph
from graphveil.serve.releases.server_ledger import ServerLedger
from graphveil.serve.runs import ServedRun

if TYPE_CHECKING:
    from torch import Tensor

    from graphveil.estimators.base import Estimator

_UNITS = {"undirected-edge": False, "directed-edge": True}
_ANSWER = "answer.safetensors"


class ReleaseService:
    """Makes the releases that an operator allowed, of one run under an edge-level unit.

    A release is charged under a reference that follows from the request and the caller's key, before anything
    is computed. Its journal lies in ``internal/served`` of the run: a process that is killed at any moment
    leaves either nothing drawn, or a release that the same request finishes with the same noise. Answers are
    stored there, too. A lock on the folder lets one worker release at a time.

    Privacy:
        Every answer about new records is charged. The model is loaded from ``release/`` alone, so that it
        cannot recognize the graph of the training: an answer without a charge would reveal that a request
        holds exactly the private edges. For the same reason a stored answer is returned only to the key that
        was charged for it: to any other caller it would reveal that somebody else sent this graph.

    Args:
        folder: the run folder, with its internal part.
        run: the served run.
        release_budget: budget of all releases.
        max_waiting: how many requests may wait for a release in this process.

    Raises:
        ConfigError: the run has another unit, no guarantee or no internal part, or the ledger has no such
            budget.
    """

    def __init__(self, folder: Path, run: ServedRun, release_budget: ReleaseBudget, max_waiting: int) -> None:
        """Open the ledgers."""
        _check(folder, run)
        self._folder, self._run, self._most, self._waiting = folder, run, max_waiting, 0
        self._place = folder / INTERNAL / "served"
        self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._server_ledger = ServerLedger(release_budget, run.guarantee, self._place)
        self._other_charged_ledgers()  # raises now what a request would raise later
        self._model_digest = _digest(find_release(folder))

    async def rows(self, records: object, edges: object, most: int, caller: Key) -> list[dict[str, Any]]:
        """Return the rows of new records, in the order in which they were sent.

        Args:
            records: new records, as sent.
            edges: pairs of their ids, as sent.
            most: the largest number of records.
            caller: the key that is charged.

        Raises:
            RequestError: they are invalid, there is no budget for them, or too many requests wait.
        """
        if isinstance(records, list) and len(records) > most:
            raise RequestError("too_many_ids", most=most)
        if self._waiting >= self._most:
            raise RequestError("server_busy")
        self._waiting += 1
        try:
            return await asyncio.to_thread(self._rows, records, edges, caller)
        finally:
            self._waiting -= 1

    async def budget(self) -> dict[str, Any]:
        """Return the limit, the spent and the remaining epsilon.

        Raises:
            RequestError: the ledger cannot be reached.
        """
        try:
            return await asyncio.to_thread(self._server_ledger.as_plain)
        except LedgerError:
            raise RequestError("ledger_unavailable") from None

    def _rows(self, records: object, edges: object, caller: Key) -> list[dict[str, Any]]:
        directed = _UNITS[self._run.guarantee.unit]
        new_records = NewRecordsGraph.read(records, edges, self._run, directed=directed)
        proba = self._answer(new_records, caller, directed=directed).numpy()
        known = list(new_records.features)
        places = {one: place for place, one in enumerate(known)}
        sent = [places[record["id"]] for record in records] if isinstance(records, list) else []
        return [self._run.row_of(known[place], proba[place]) for place in sent]

    def _answer(self, new_records: NewRecordsGraph, caller: Key, *, directed: bool) -> "Tensor":
        """Return probabilities: stored ones, or those of a new release."""
        try:
            reference = self._server_ledger.reference(
                [self._model_digest, caller.sha256.encode(), new_records.bytes]
            )
            kept = self._place / reference / _ANSWER
            if not self._place.is_dir():  # the lock would make it
                raise RequestError("run_changed")
            with FileLock(self._place / "lock", mode=0o600):  # a killed process releases it
                if kept.exists():
                    return load_checked(kept)[0]["proba"]
                return self._release(new_records, reference, kept, directed=directed)
        except BudgetError:
            raise RequestError("budget_exhausted") from None
        except (GraphError, UnitError, NotImplementedGuaranteeError):
            raise RequestError("release_required") from None
        except (FileNotFoundError, NotADirectoryError, ArtifactError):
            raise RequestError("run_changed") from None  # the run folder was moved, removed or edited
        except (LedgerError, ConfigError):
            raise RequestError("ledger_unavailable") from None

    def _release(
        self, new_records: NewRecordsGraph, reference: str, kept: Path, *, directed: bool
    ) -> "Tensor":
        """Query the model and store what it released.

        A model that reads no edges has no privacy cost: its answers follow from the released parameters.
        """
        from graphveil.estimators.saved import load_model
        from graphveil.privacy import attach_ledger

        model: Estimator = load_model(find_release(self._folder))
        if (
            _digest(find_release(self._folder)) != self._model_digest
        ):  # after it was read, so it is of one fit
            raise RequestError("run_changed")
        graph = new_records.graph(classes=model.named_classes, directed=directed)
        privacy_cost = model.privacy_cost(graph)
        if privacy_cost is None:
            return model.predict_proba(graph, allow_spend=True)
        ledger = self._server_ledger.for_request(reference, self._other_charged_ledgers())
        attach_ledger(graph.edge_set, ledger)
        # Before the charge: later predictions of this run count what this one may have queried.
        known = (
            None
            if ledger.is_recorded
            else record_prediction(
                self._folder, graph, self._server_ledger.account, privacy_cost, disjoint=False
            )
        )
        try:
            proba = model.predict_proba(graph, allow_spend=True, workspace=kept.parent)
        except BudgetError:
            if known is not None and not ledger.is_recorded:
                known.drop()
            raise
        save_checked(kept, {"proba": proba})
        return proba

    def _other_charged_ledgers(self) -> list[DataSetLedger]:
        return also_charged_ledgers(self._folder, self._server_ledger.account.ledger, self._run.guarantee)


def _check(folder: Path, run: ServedRun) -> None:
    guarantee = run.guarantee
    if guarantee.unit not in _UNITS:
        raise ConfigError(
            f"New releases need an edge-level privacy unit, and the run has {guarantee.unit!r}. Remove "
            "--allow-releases."
        )
    if not guarantee.valid:
        raise ConfigError("The run has no guarantee, so it makes no new releases. Remove --allow-releases.")
    if find_release(folder) == folder or not (folder / INTERNAL).is_dir():
        raise ConfigError(
            "New releases are stored in the internal part of the run. Serve the run folder, not its release."
        )


def _digest(release: Path) -> bytes:
    """Return a digest that identifies this fit."""
    return b"".join(
        hashlib.sha256((release / name).read_bytes()).digest() for name in (MODEL, PRIVACY, WEIGHTS)
    )
