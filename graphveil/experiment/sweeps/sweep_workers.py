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

from graphveil._workers import Ask, Workers
from graphveil.errors import ConfigError
from graphveil.experiment.accounts.ledger_account import RunAccount
from graphveil.experiment.accounts.preview import Preview, preview
from graphveil.experiment.inputs.own_code import load_own
from graphveil.experiment.inputs.source import GivenGraph, Source
from graphveil.experiment.run import OnProgress
from graphveil.experiment.sweeps.sweep_cell import Cell
from graphveil.graph import EdgeSet
from graphveil.graph.sent import SentGraph
from graphveil.ledger import Account, DataSetLedger, Receipt
from graphveil.privacy import Entry, PrivacyLedger, attach_ledger

if TYPE_CHECKING:
    from graphveil.graph import Graph

_OF_RELEASES = ("record", "check", "holds", "commit", "withdraw", "entries")
_OF_DATA_SETS = ("receipts", "accounts", "name", "place")


class Progress(NamedTuple):
    """How far a worker is."""

    stage: str
    done: int
    total: int


class Question(NamedTuple):
    """What a worker asks of a ledger: one of the names above, with what it is given."""

    book: int  # which of the sweep's ledgers
    name: str
    given: tuple[Any, ...] = ()


class LedgerElsewhere:
    """The ledger of a graph, which the first process keeps.

    What was recorded through it, or found recorded, is its own: the receipts of other workers are not.
    """

    def __init__(self, ask: Ask, book: int) -> None:
        """Take the way to the first process, and which of its ledgers is asked."""
        self._first, self._book = ask, book
        self._own: set[str] = set()

    def _ask(self, name: str, *given: Any) -> Any:
        return self._first(Question(self._book, name, given))

    def record(self, entry: Entry) -> None:
        """Record the entry there, or raise :class:`BudgetError` and record nothing."""
        self._ask("record", entry)
        self._own.add(entry.release_id)

    def check(self, entry: Entry) -> None:
        """Raise what :meth:`record` would, and record nothing."""
        self._ask("check", entry)

    def holds(self, release_id: str) -> bool:
        """Whether a release is recorded, and was not withdrawn."""
        held = bool(self._ask("holds", release_id))
        if held:
            self._own.add(release_id)
        return held

    def commit(self, release_id: str) -> None:
        """Note that noise is about to be drawn; raise :class:`BudgetError` for what is not recorded."""
        self._ask("commit", release_id)

    def withdraw(self, release_id: str) -> bool:
        """Give a release back that was never committed; whether that could be done."""
        return bool(self._ask("withdraw", release_id))

    def __len__(self) -> int:
        """How many releases are recorded."""
        return len(self.entries)

    def __bool__(self) -> bool:
        """A ledger is there even if nothing is recorded."""
        return True

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything recorded so far, in order."""
        return tuple(self._ask("entries"))

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of what was booked, or found booked, through this object."""
        receipts: Sequence[Receipt] = self._ask("receipts")
        return tuple(receipt for receipt in receipts if receipt.release in self._own)

    @property
    def accounts(self) -> list[Account]:
        """What is spent under each unit."""
        return list(self._ask("accounts"))

    @property
    def name(self) -> str:
        """The data set's name."""
        return str(self._ask("name"))

    @property
    def place(self) -> str:
        """Where the ledger lies, without a password."""
        return str(self._ask("place"))


RunCell = Callable[["Cell", Preview, "Graph", OnProgress, RunAccount | None], dict[str, Any]]


def side_by_side(
    cells: Sequence[tuple[Cell, PrivacyLedger]],
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
        sent=SentGraph.of(raw),
        run_cell=run_cell,
        account=None if account is None else (account.unit, account.delta),
        own=tuple(own),
        threads=max(1, (os.cpu_count() or 1) // jobs),
    )
    books = list({id(ledger): ledger for _, ledger in cells}.values())
    todo = [_sendable(cell, books.index(ledger)) for cell, ledger in cells]
    workers: Workers[_Todo, None] = Workers(jobs, worker, answered_by(books, show))
    for _ in workers.each(todo):
        pass


class _Todo(NamedTuple):
    """A cell to run, whether the caller holds its graph, and the graph's ledger."""

    cell: Cell
    given: bool
    book: int


def _sendable(cell: Cell, book: int) -> _Todo:
    """Return a cell without the graph that its source may hold."""
    source = cell.experiment.source
    if not isinstance(source, GivenGraph):
        return _Todo(cell, given=False, book=book)
    plain = replace(cell.experiment, source=Source(dataset=source.dataset))
    return _Todo(replace(cell, experiment=plain), given=True, book=book)


def answered_by(books: Sequence[PrivacyLedger], show: OnProgress) -> Ask:
    """Return what the first process answers: for a ledger, and nothing to progress."""

    def answer(question: Any) -> Any:
        if isinstance(question, Progress):
            return show(*question)
        if not isinstance(question, Question) or question.name not in _OF_RELEASES + _OF_DATA_SETS:
            raise ConfigError(f"a worker asked {question!r}, which is no question to a ledger")
        found = getattr(books[question.book], question.name)
        return found(*question.given) if callable(found) else found

    return answer


@dataclass(kw_only=True)
class CellWorker:
    """What a worker holds, and does with a cell."""

    sent: SentGraph
    run_cell: RunCell
    account: tuple[str, float] | None
    own: Sequence[str]
    threads: int
    prepared: dict[tuple[object, ...], "Graph"] = field(default_factory=dict)
    ledgers: dict[EdgeSet, LedgerElsewhere] = field(default_factory=dict)

    def __call__(self, todo: _Todo, ask: Ask) -> None:
        """Run a cell; its figures stay in its folder."""
        raw, cell = self._raw, todo.cell
        if todo.given:
            cell = replace(cell, experiment=replace(cell.experiment, source=GivenGraph.of(raw)))
        one = cell.experiment
        if one.preparation not in self.prepared:
            self.prepared[one.preparation] = one.prepared(raw)
        graph = self.prepared[one.preparation]
        ledger = self._attached(graph, todo.book, ask)
        account = None
        if self.account is not None:  # a run asks names, accounts, receipts and to withdraw: all is there
            account = RunAccount(cast(DataSetLedger, ledger), *self.account)
        self.run_cell(cell, preview(one, graph), graph, lambda *told: ask(Progress(*told)), account)

    @cached_property
    def _raw(self) -> "Graph":
        torch.set_num_threads(self.threads)  # of exact sums, which are the same with any number
        for text in self.own:
            load_own(text)
        return self.sent.received()

    def _attached(self, graph: "Graph", book: int, ask: Ask) -> LedgerElsewhere:
        """Return the ledger of a graph, which every cell of this worker asks that has the graph."""
        edges = graph.edge_set
        if edges not in self.ledgers:
            self.ledgers[edges] = LedgerElsewhere(ask, book)
            attach_ledger(edges, self.ledgers[edges])
        return self.ledgers[edges]
