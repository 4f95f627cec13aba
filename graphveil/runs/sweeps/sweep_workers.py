"""Cells of a sweep side by side, each in a worker; ledgers stay with the process that began.

A worker gets the graph once, and asks the first process for everything that its ledgers record: what is
booked is booked in one place, in the order in which it arrives, whatever becomes of the worker.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from graphveil._util.processes import ParentRequest, Workers
from graphveil.data import EdgeSet
from graphveil.data.stored_graph import SerializedGraph
from graphveil.errors import ConfigError
from graphveil.ledger import Account, DataSetLedger, Receipt
from graphveil.privacy import Entry, PrivacyLedger, attach_ledger
from graphveil.runs.accounts.ledger_account import RunAccount
from graphveil.runs.accounts.preview import Preview, preview
from graphveil.runs.inputs.custom_code import load_custom_code
from graphveil.runs.inputs.source import InMemorySource, Source
from graphveil.runs.run import OnProgress
from graphveil.runs.sweeps.sweep_cell import SweepCell

if TYPE_CHECKING:
    from graphveil.data import Graph

_RELEASE_METHODS = ("record", "check", "contains", "commit", "refund", "entries")
_DATA_SET_METHODS = ("receipts", "accounts", "name", "place")


class WorkerProgress(NamedTuple):
    """How far a worker is."""

    stage: str
    done: int
    total: int


class LedgerCall(NamedTuple):
    """What a worker asks of a ledger: one of the names above, with what it is given."""

    ledger_index: int  # which of the sweep's ledgers
    name: str
    given: tuple[Any, ...] = ()


class RemoteLedger:
    """The ledger of a graph, which the first process keeps.

    What was recorded through it, or found recorded, is its own: the receipts of other workers are not.
    """

    def __init__(self, call_parent: ParentRequest, ledger_index: int) -> None:
        """Take the way to the first process, and which of its ledgers is asked."""
        self._first, self._ledger_index = call_parent, ledger_index
        self._own: set[str] = set()

    def _call(self, name: str, *given: Any) -> Any:
        return self._first(LedgerCall(self._ledger_index, name, given))

    def record(self, entry: Entry) -> None:
        """Record the entry there, or raise :class:`BudgetError` and record nothing."""
        self._call("record", entry)
        self._own.add(entry.release_id)

    def check(self, entry: Entry) -> None:
        """Raise what :meth:`record` would, and record nothing."""
        self._call("check", entry)

    def contains(self, release_id: str) -> bool:
        """Whether a release is recorded, and was not withdrawn."""
        held = bool(self._call("contains", release_id))
        if held:
            self._own.add(release_id)
        return held

    def commit(self, release_id: str) -> None:
        """Note that noise is about to be drawn; raise :class:`BudgetError` for what is not recorded."""
        self._call("commit", release_id)

    def refund(self, release_id: str) -> bool:
        """Give a release back that was never committed; whether that could be done."""
        return bool(self._call("refund", release_id))

    def __len__(self) -> int:
        """How many releases are recorded."""
        return len(self.entries)

    def __bool__(self) -> bool:
        """A ledger is there even if nothing is recorded."""
        return True

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything recorded so far, in order."""
        return tuple(self._call("entries"))

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of what was booked, or found booked, through this object."""
        receipts: Sequence[Receipt] = self._call("receipts")
        return tuple(receipt for receipt in receipts if receipt.release in self._own)

    @property
    def accounts(self) -> list[Account]:
        """What is spent under each unit."""
        return list(self._call("accounts"))

    @property
    def name(self) -> str:
        """The data set's name."""
        return str(self._call("name"))

    @property
    def place(self) -> str:
        """Where the ledger lies, without a password."""
        return str(self._call("place"))


RunCell = Callable[["SweepCell", Preview, "Graph", OnProgress, RunAccount | None], dict[str, Any]]


def run_cells_in_parallel(
    cells: Sequence[tuple[SweepCell, PrivacyLedger]],
    raw: "Graph",
    run_cell: RunCell,
    show: OnProgress,
    account: RunAccount | None,
    jobs: int,
    own: Sequence[str] = (),
) -> None:
    """Run cells in workers, each of which leaves its figures in the cell's folder.

    Args:
        cells: those that are not finished, and the ledgers of their graphs.
        raw: the graph as it was read.
        run_cell: runs one; a function of a module, since it is sent.
        show: is told how far they are.
        account: of the whole sweep.
        jobs: how many workers.
        own: files of the user's own, ``FILE.py:NAME``, that the cells need.

    Raises:
        GraphError: the graph has grown, and has several ledgers.
        RunError: a worker died, or failed.
    """
    worker = CellWorker(
        sent=SerializedGraph.from_graph(raw),
        run_cell=run_cell,
        account=None if account is None else (account.unit, account.delta),
        own=tuple(own),
        threads=max(1, (os.cpu_count() or 1) // jobs),
    )
    ledgers = list({id(ledger): ledger for _, ledger in cells}.values())
    tasks = [_sendable(cell, ledgers.index(ledger)) for cell, ledger in cells]
    workers: Workers[_CellTask, None] = Workers(jobs, worker, request_handler(ledgers, show))
    for _ in workers.each(tasks):
        pass


class _CellTask(NamedTuple):
    """A cell to run, whether the caller holds its graph, and the graph's ledger."""

    cell: SweepCell
    given: bool
    ledger_index: int


def _sendable(cell: SweepCell, ledger_index: int) -> _CellTask:
    """Return a cell without the graph that its source may hold."""
    source = cell.experiment.source
    if not isinstance(source, InMemorySource):
        return _CellTask(cell, given=False, ledger_index=ledger_index)
    plain = replace(cell.experiment, source=Source(dataset=source.dataset))
    return _CellTask(replace(cell, experiment=plain), given=True, ledger_index=ledger_index)


def request_handler(ledgers: Sequence[PrivacyLedger], show: OnProgress) -> ParentRequest:
    """Return what the first process answers: for a ledger, and nothing to progress."""

    def answer(question: Any) -> Any:
        if isinstance(question, WorkerProgress):
            return show(*question)
        if not isinstance(question, LedgerCall) or question.name not in _RELEASE_METHODS + _DATA_SET_METHODS:
            raise ConfigError(f"a worker asked {question!r}, which is no question to a ledger")
        found = getattr(ledgers[question.ledger_index], question.name)
        return found(*question.given) if callable(found) else found

    return answer


@dataclass(kw_only=True)
class CellWorker:
    """What a worker holds, and does with a cell."""

    sent: SerializedGraph
    run_cell: RunCell
    account: tuple[str, float] | None
    own: Sequence[str]
    threads: int
    prepared: dict[tuple[object, ...], "Graph"] = field(default_factory=dict)
    ledgers: dict[EdgeSet, RemoteLedger] = field(default_factory=dict)

    def __call__(self, tasks: _CellTask, call_parent: ParentRequest) -> None:
        """Run a cell; its figures stay in its folder."""
        raw, cell = self._raw, tasks.cell
        if tasks.given:
            cell = replace(cell, experiment=replace(cell.experiment, source=InMemorySource.from_graph(raw)))
        one = cell.experiment
        if one.preparation not in self.prepared:
            self.prepared[one.preparation] = one.prepared(raw)
        graph = self.prepared[one.preparation]
        ledger = self._attach_remote_ledger(graph, tasks.ledger_index, call_parent)
        account = None
        if self.account is not None:  # a run asks names, accounts, receipts and to withdraw: all is there
            account = RunAccount(cast(DataSetLedger, ledger), *self.account)
        self.run_cell(
            cell,
            preview(one, graph),
            graph,
            lambda *progress: call_parent(WorkerProgress(*progress)),
            account,
        )

    @cached_property
    def _raw(self) -> "Graph":
        torch.set_num_threads(self.threads)  # of exact sums, which are the same with any number
        for text in self.own:
            load_custom_code(text)
        return self.sent.restored()

    def _attach_remote_ledger(
        self, graph: "Graph", ledger_index: int, call_parent: ParentRequest
    ) -> RemoteLedger:
        """Return the ledger of a graph, which every cell of this worker asks that has the graph."""
        edges = graph.edge_set
        if edges not in self.ledgers:
            self.ledgers[edges] = RemoteLedger(call_parent, ledger_index)
            attach_ledger(edges, self.ledgers[edges])
        return self.ledgers[edges]
