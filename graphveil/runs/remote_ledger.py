"""The ledger of a graph as worker processes see it: every entry is recorded by the first process.

A limit therefore applies across workers, entries are in one order, and the entries of a failed worker remain.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphveil.core.ledger import Entry, PrivacyLedger
from graphveil.errors import ConfigError
from graphveil.ledger import Account, Receipt
from graphveil.runs.grid import Answer

_METHODS = (
    *("record", "check", "contains", "commit", "refund", "entries"),
    *("receipts", "accounts", "name", "location"),  # of a data set's ledger
)


class WorkerProgress(NamedTuple):
    """A request to show how far a worker is."""

    stage: str
    done: int
    total: int


class LedgerCall(NamedTuple):
    """A request to a ledger: one of the names above, with its arguments."""

    ledger_index: int  # which of the sweep's ledgers
    name: str
    arguments: tuple[Any, ...] = ()


def request_handler(ledgers: Sequence[PrivacyLedger], show: Callable[[str, int, int], None]) -> Answer:
    """Return what answers the requests of workers: calls of these ledgers, and progress."""

    def answer(request: Any) -> Any:
        if isinstance(request, WorkerProgress):
            return show(*request)
        if not isinstance(request, LedgerCall) or request.name not in _METHODS:
            raise ConfigError(f"A worker sent an unknown ledger request {request!r}.")
        found = getattr(ledgers[request.ledger_index], request.name)
        return found(*request.arguments) if callable(found) else found

    return answer


class RemoteLedger:
    """The ledger of a graph, which the first process keeps.

    What was recorded through it, or found recorded, is its own: the receipts of other workers are not.
    """

    def __init__(self, send: Answer, ledger_index: int) -> None:
        """Store the connection to the first process, and the index of its ledger."""
        self._send, self._ledger_index = send, ledger_index
        self._own: set[str] = set()

    def _call(self, name: str, *arguments: Any) -> Any:
        return self._send(LedgerCall(self._ledger_index, name, arguments))

    def record(self, entry: Entry) -> None:
        """Record the entry there, or raise ``BudgetError`` and record nothing."""
        self._call("record", entry)
        self._own.add(entry.release_id)

    def check(self, entry: Entry) -> None:
        """Raise what ``record`` would, and record nothing."""
        self._call("check", entry)

    def contains(self, release_id: str) -> bool:
        """Whether a release is recorded, and was not withdrawn."""
        held = bool(self._call("contains", release_id))
        if held:
            self._own.add(release_id)
        return held

    def commit(self, release_id: str) -> None:
        """Record that noise is about to be drawn; raise ``BudgetError`` for an unrecorded release."""
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
        """Of what was recorded, or found recorded, through this object."""
        receipts: Sequence[Receipt] = self._call("receipts")
        return tuple(receipt for receipt in receipts if receipt.release in self._own)

    @property
    def accounts(self) -> list[Account]:
        """The spent budget under each unit."""
        return list(self._call("accounts"))

    @property
    def name(self) -> str:
        """The dataset's name."""
        return str(self._call("name"))

    @property
    def location(self) -> str:
        """The location of the ledger, without a password."""
        return str(self._call("location"))
