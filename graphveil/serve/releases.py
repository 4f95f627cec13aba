"""New releases, for which an operator allowed a budget: charged before they are computed, and stored.

New records of a request become a graph, whose release is made one at a time, each once, and stored with the
run for repeated requests.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from filelock import FileLock
from pydantic import Field, TypeAdapter, ValidationError

from graphveil._util.files import load_checked, save_checked
from graphveil.core.ledger import JointLedger, PrivacyLedger, attach_ledger
from graphveil.data.tables.encoding import ColumnRule, encode, text
from graphveil.errors import (
    ArtifactError,
    BudgetError,
    ConfigError,
    GraphError,
    LedgerError,
    NotImplementedGuaranteeError,
    UnitError,
)
from graphveil.ledger import DataSetLedger, Ledger, Limit, PrivacyCost
from graphveil.privacy import Guarantee
from graphveil.publish.release_folder import INTERNAL, MODEL, PRIVACY, WEIGHTS, find_release
from graphveil.runs.charges import RunAccount, account_under, also_charged_ledgers, record_prediction
from graphveil.serve.access import Key, ReleaseBudget
from graphveil.serve.runs import Id, ServedRun
from graphveil.serve.schemas import (
    LARGEST,
    Identity,
    NewNodeRecord,
    RequestError,
    invalid_body,
    other_features,
    to_json_bytes,
)

if TYPE_CHECKING:
    from torch import Tensor

    from graphveil.data import Graph
    from graphveil.data.tables.files import Column
    from graphveil.estimators.base import Estimator

_RECORDS = TypeAdapter(Annotated[list[NewNodeRecord], Field(min_length=1)])
_EDGES = TypeAdapter(list[tuple[Identity, Identity]])


@dataclass(frozen=True)
class NewRecordsGraph:
    """A graph that a caller sends, in an order that does not depend on that of the request.

    Args:
        edges: Pairs of ids, each once; of an undirected one the smaller end is first.
    """

    features: Mapping[Id, Sequence[float]]
    edges: Sequence[tuple[Id, Id]]

    @classmethod
    def read(cls, records: object, edges: object, run: ServedRun, *, directed: bool) -> "NewRecordsGraph":
        try:
            field = "records"
            found = _RECORDS.validate_python(records)
            field = "edges"
            pairs = _EDGES.validate_python(edges or [])
        except ValidationError:
            raise invalid_body(field) from None
        features = dict(zip((one.id for one in found), _features(found, run), strict=True))
        known = all(end in features for pair in pairs for end in pair)
        if len(features) < len(found) or not known or len({type(one) for one in features}) > 1:
            raise RequestError("no_graph")
        ranks = {one: rank for rank, one in enumerate(sorted(features))}
        distinct = {pair if directed or ranks[pair[0]] < ranks[pair[1]] else pair[::-1] for pair in pairs}
        edges = sorted(distinct, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        return cls({one: features[one] for one in ranks}, edges)

    @property
    def bytes(self) -> bytes:
        """Bytes that identify this graph."""
        return to_json_bytes([list(self.features.items()), list(self.edges)])

    def graph(self, *, classes: Sequence[str], directed: bool) -> "Graph":
        import torch

        from graphveil.data import Graph

        places = {one: place for place, one in enumerate(self.features)}
        return Graph.from_edges(
            x=torch.tensor(list(self.features.values()), dtype=torch.float32),
            y=torch.full((len(places),), -1),
            targets=None if classes else torch.full((len(places),), torch.nan),
            source=[places[one] for one, _ in self.edges],
            target=[places[other] for _, other in self.edges],
            directed=directed,
            num_classes=len(classes),
            class_names=tuple(classes),
        )


def _features(found: Sequence[NewNodeRecord], run: ServedRun) -> list[list[float]]:
    """Return the features of each record as the model reads them, in 32 bits, for every encoding."""
    rules = () if run.encoding is None else run.encoding.rules
    names = [rule.name for rule in rules]
    if run.encoding is not None and run.encoding.constant:
        # A run without feature columns: the constant 1 may be left out, and means the same graph.
        if any(one.x not in (None, [], [1.0]) for one in found):
            raise RequestError("no_features")
        return [[1.0] for _ in found]
    listed = [one.x for one in found if isinstance(one.x, list)]
    named = [one.x for one in found if isinstance(one.x, dict)]
    if len(listed) == len(found) and all(len(x) == run.features for x in listed):
        matrix = np.array(listed, dtype=np.float32)
    elif rules and len(named) == len(found):
        wrong = [name for name in names if any(name not in x for x in named)]
        if wrong or any(len(x) > len(names) for x in named):
            raise other_features(run.features, names, wrong)
        parts = []
        for rule in rules:
            try:
                parts.append(encode([_column(rule, [x[rule.name] for x in named])], (rule,), len(named)))
            except (GraphError, TypeError, ValueError):  # Arrow's own errors are among them
                wrong.append(rule.name)
        if wrong:
            raise other_features(run.features, names, wrong)
        matrix = np.concatenate(parts, axis=1)
    else:
        raise other_features(run.features, names)
    if np.abs(matrix).max(initial=0.0) > np.float32(LARGEST):
        raise other_features(run.features, names)
    rows: list[list[float]] = matrix.tolist()
    return rows


def _column(rule: ColumnRule, values: Sequence[Any]) -> "Column":
    """Return JSON values as a column that a rule can read; dates are text such as 2026-11-25."""
    import pyarrow as pa

    if rule.kind == "category":
        if any(isinstance(one, list) for one in values):
            raise TypeError
        array = pa.array([None if one is None else text(one) for one in values], pa.string())
    elif rule.kind == "date":
        array = pa.array(values, pa.string()).cast(pa.timestamp("us"))
    elif rule.kind == "list":
        array = pa.array(values, pa.list_(pa.float64()))
    else:
        kind = bool if rule.kind == "bool" else float
        if not all(one is None or type(one) is kind for one in values):
            raise TypeError
        array = pa.array([None if one is None else float(one) for one in values], pa.float64())
    return pa.chunked_array([array])


_OWN = "served"


class ServerLedger:
    """The ledgers of a server that may make releases.

    A release is recorded in the ledger that the operator names, in those of all data that may share edges
    with it (first of all the training data), and in a ledger of the server, with the limit that the operator
    allowed. All of them use a reference that follows from the request, so a repeated request is charged once.
    """

    def __init__(self, release_budget: ReleaseBudget, guarantee: Guarantee, folder: Path) -> None:
        self._limit = Limit(release_budget.epsilon, Decimal(repr(guarantee.delta)))
        self.account = RunAccount.from_name(release_budget.ledger, guarantee)
        self._unit, self._data_set = self.account.unit, self.account.ledger
        if not any(one.unit == self._unit for one in self._data_set.accounts):
            raise ConfigError(
                f"Dataset {self._data_set.name!r} has no budget under unit {self._unit!r}. Register one: "
                f"graphveil ledger init {quote(self._data_set.name)} --unit {self._unit} --epsilon E --delta "
                "D"
            )
        own = Ledger(folder / "ledger.sqlite")
        if _OWN not in own.names():
            own.init(_OWN, guarantee.protected)
        self._own = own.data_set(_OWN, limit=self._limit)

    def reference(self, parts: Sequence[bytes]) -> str:
        """Return the reference of a request: a digest, keyed with the key of the ledger."""
        return self._data_set.fingerprints({"question": parts})["question"]

    def for_request(self, reference: str, others: Sequence[DataSetLedger]) -> PrivacyLedger:
        # The ledger of the server comes last: a process that is killed in between leaves the datasets with
        # less budget, and never with more.
        return JointLedger((self._data_set, *others, self._own), reference=reference)

    def is_recorded(self, reference: str) -> bool:
        return self._data_set.contains(reference)

    def as_plain(self) -> dict[str, Any]:
        delta, own = self._limit.delta, account_under(self._own, self._unit)
        named = account_under(self._data_set, self._unit)
        limit = named.limit
        return {
            "unit": self._unit,
            "delta": float(delta),
            **_figures(own.total, self._limit.epsilon, delta),
            "releases": own.releases,
            "ledger": None
            if limit is None
            else {"delta": float(limit.delta), **_figures(named.total, limit.epsilon, limit.delta)},
        }


def _figures(total: PrivacyCost, limit: Decimal, delta: Decimal) -> dict[str, float | None]:
    spent = total.epsilon(delta)
    if spent == float("inf"):
        return {"limit": float(limit), "spent": None, "remaining": 0.0}
    return {"limit": float(limit), "spent": spent, "remaining": max(0.0, float(limit) - spent)}


_UNITS = {"undirected-edge": False, "directed-edge": True}
_ANSWER = "answer.safetensors"


class ReleaseService:
    """Makes the releases that an operator allowed, of one run under an edge-level unit.

    A release is charged under a reference that follows from the request and the caller's key, before anything
    is computed. Its journal is in ``internal/served`` of the run. If a process is killed, either no noise
    was drawn, or the same request finishes the release with the same noise. Answers are also
    stored there. A lock on the folder lets one worker release at a time.

    Args:
        max_waiting: Number of requests that may wait for a release in this process.

    Privacy:
        Every answer about new records is charged. The model is loaded from ``release/`` alone, so that it
        cannot recognize the graph of the training: an answer without a charge would reveal that a request
        contains exactly the private edges. For the same reason a stored answer is returned only to the key
        that was charged for it: to any other caller it would reveal that this graph was sent before.
    """

    def __init__(self, folder: Path, run: ServedRun, release_budget: ReleaseBudget, max_waiting: int) -> None:
        if run.guarantee.unit not in _UNITS:
            raise ConfigError(
                "New releases need unit 'undirected-edge' or 'directed-edge', but the unit of this run is "
                f"{run.guarantee.unit!r}. Remove --allow-releases."
            )
        if not run.guarantee.valid:
            raise ConfigError(
                "The run has no privacy guarantee, so the server cannot make new releases. Remove "
                "--allow-releases."
            )
        if find_release(folder) == folder or not (folder / INTERNAL).is_dir():
            raise ConfigError(
                "New releases are stored in the internal folder of the run, but only its release was "
                "given. Pass the run folder instead of its release folder."
            )
        self._folder, self._run, self._most, self._waiting = folder, run, max_waiting, 0
        self._place = folder / INTERNAL / "served"
        self._place.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._server_ledger = ServerLedger(release_budget, run.guarantee, self._place)
        self._other_charged_ledgers()  # raises now what a request would raise later
        self._model_digest = _digest(find_release(folder))

    async def rows(self, records: object, edges: object, most: int, caller: Key) -> list[dict[str, Any]]:
        """Return the rows of new records, in the order in which they were sent."""
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
        from graphveil.estimators.inference import PredictionOptions
        from graphveil.estimators.saved import load_model

        model: Estimator = load_model(find_release(self._folder))
        # After it was read, so it is of one fit.
        if _digest(find_release(self._folder)) != self._model_digest:
            raise RequestError("run_changed")
        graph = new_records.graph(classes=model.named_classes, directed=directed)
        privacy_cost = model.privacy_cost(graph)
        if privacy_cost is None:
            return model.outputs(graph, PredictionOptions(allow_spend=True))
        ledger = self._server_ledger.for_request(reference, self._other_charged_ledgers())
        attach_ledger(graph.edge_set, ledger)
        # Before the charge: later predictions of this run count what this one may have queried.
        known, account = None, self._server_ledger.account
        if not self._server_ledger.is_recorded(reference):
            known = record_prediction(self._folder, graph, account, privacy_cost, disjoint=False)
        # The workspace has the journal: a repeated request draws the same noise.
        try:
            proba = model.outputs(graph, PredictionOptions(allow_spend=True, workspace=kept.parent))
        except BudgetError:
            if known is not None and not self._server_ledger.is_recorded(reference):
                known.drop()  # nothing was charged, so later predictions of the run need not count it
            raise
        save_checked(kept, {"proba": proba})
        return proba

    def _other_charged_ledgers(self) -> list[DataSetLedger]:
        return also_charged_ledgers(self._folder, self._server_ledger.account.ledger, self._run.guarantee)


def _digest(release: Path) -> bytes:
    return b"".join(
        hashlib.sha256((release / name).read_bytes()).digest() for name in (MODEL, PRIVACY, WEIGHTS)
    )
